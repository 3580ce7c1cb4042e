"""What an imported module is: names, sizes, modes, state, writes to memory, and what can be done with the program."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.formats import paddle_writing

torch = pytest.importorskip("torch")
nets = pytest.importorskip("tests.torch_import.nets")
nn = torch.nn


def run(net: Any, *arrays: Any, program: Any = None) -> list[Any]:
    feed = {name: np.asarray(a) for name, a in zip(net.feed_names, arrays, strict=True)}
    return static.Executor().run(program or net.program, feed=feed, fetch_list=net.fetch_vars)


# ----------------------------------------------------------------------------------------------------------------- names
def test_names_and_lines_are_those_of_the_module() -> None:
    module = nets.made("gpt")
    net = paddle.from_torch(module, nets.NETS["gpt"].arguments(2), prefix="model.")
    assert sorted(net.variables) == sorted(module.state_dict())
    assert net.variables["blocks.0.qkv.weight"].name == "model.blocks.0.qkv.weight"
    assert net.variables["blocks.0.qkv.weight"].shape == (48, 16)
    # One tensor of two names is one parameter, with the first of them.
    assert net.variables["head.weight"] is net.variables["wte.weight"]
    assert len(net.program.all_parameters()) == len(list(module.parameters()))
    assert net.feed_names == ["ids"]
    assert net.output_names == ["out"]
    assert (net.fetch_vars[0].shape, net.fetch_vars[0].dtype) == ((-1, 8, 20), "float32")
    assert repr(net) == f"<TorchProgram: ids -> out [-1, 8, 20]; {net.program!r}>"
    # Operators have the lines of the module's code, and the paths of its parts.
    product = next(op for op in net.program.global_block().ops if op.type == "matmul_v2")
    file, line = product.where
    assert Path(file).name == "nets.py"
    assert "self.qkv(self.ln_1(x))" in Path(file).read_text(encoding="utf-8").splitlines()[line - 1]
    assert product.namescope == "/blocks.0/qkv/"


class Nested(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"logits": x + 1, "states": (x, [None, x * 2])}


def test_results_keep_their_places_in_what_forward_returns() -> None:
    net = paddle.from_torch(Nested(), torch.zeros(2, 3))
    assert net.output_names == ["logits", "states.0", "states.1.1"]
    found = run(net, np.ones((4, 3), "float32"))
    assert [a[0, 0] for a in found] == [2.0, 1.0, 2.0]


class Both(nn.Module):
    def forward(self, x: Any, scale: float = 1.0, *, shift: Any = None) -> Any:
        return x * scale + shift, None


def test_arguments_by_name_and_numbers() -> None:
    x, shift = torch.randn(2, 3), torch.randn(2, 3)
    net = paddle.from_torch(Both(), {"x": x, "scale": 2.0, "shift": shift})
    assert net.feed_names == ["x", "shift"]
    # The number is a part of the program, and None is not a result.
    (found,) = run(net, np.ones((5, 3), "float32"), np.ones((5, 3), "float32"))
    assert found.tolist() == [[3.0] * 3] * 5


def test_numpy_arrays_are_examples_too() -> None:
    net = paddle.from_torch(nn.ReLU(), np.zeros((2, 3), "float32"))
    assert net.fetch_vars[0].shape == (-1, 3)


# ----------------------------------------------------------------------------------------------------------------- sizes
class Sizes(nn.Module):
    """Reads two sizes, and makes tensors of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        y = self.linear(x).view(b, t, 2, 3).transpose(1, 2)
        places = torch.arange(t)[None].expand(b, t)
        seen = torch.ones(t, t).tril()
        z = nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)
        return (
            z.transpose(1, 2).reshape(b, t * 6),
            nn.functional.local_response_norm(x[:, None], 2),
            places,
            seen @ x,
            torch.zeros(b, 2),
            x.reshape(b * t, 4).sum(1).view(b, t),
        )


def test_two_open_sizes() -> None:
    module, dim = Sizes(), torch.export.Dim
    net = paddle.from_torch(module, torch.randn(2, 5, 4), dynamic_shapes=({0: dim("batch"), 1: dim("steps", max=64)},))
    for shape in ((3, 7, 4), (2, 2, 4)):
        x = torch.randn(shape)
        for ours, theirs in zip(run(net, x.numpy()), module(x), strict=True):
            assert ours.dtype == theirs.detach().numpy().dtype
            np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_all_sizes_are_fixed_on_demand() -> None:
    net = paddle.from_torch(nn.Linear(4, 3), torch.zeros(2, 4), dynamic_shapes=None)
    assert net.fetch_vars[0].shape == (2, 3)
    with pytest.raises(paddle.errors.FeedError):
        run(net, np.ones((3, 4), "float32"))


class Fixed(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(2, 12)


def test_a_module_may_fix_the_batch() -> None:
    assert paddle.from_torch(Fixed(), torch.zeros(2, 3, 4)).fetch_vars[0].shape == (2, 12)


# ----------------------------------------------------------------------------------------------------------------- modes
class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.planes = nn.Dropout(0.25), nn.Dropout2d(0.5)

    def forward(self, x: Any) -> Any:
        return self.drop(x), self.planes(x), torch.rand_like(x), torch.randn_like(x), torch.rand(2), torch.randn(3)


def test_dropout_draws_in_training_and_is_frozen_by_a_clone() -> None:
    paddle.seed(5)
    net = paddle.from_torch(Drops(), torch.zeros(2, 8, 4, 4))
    x = np.ones((50, 8, 10, 10), "float32")
    with pytest.raises(paddle.errors.FeedError):
        run(net, x)
    x = np.ones((400, 8, 4, 4), "float32")
    dropped, planes, uniform, normal, two, three = run(net, x)
    assert 0.24 < (dropped == 0).mean() < 0.26
    assert np.unique(dropped[dropped != 0]).tolist() == [np.float32(1) / np.float32(0.75)]
    assert set(np.unique(planes.reshape(3200, 16).mean(1))) == {0.0, 2.0}
    assert 0.49 < uniform.mean() < 0.51
    assert 0.98 < normal.std() < 1.02
    assert (two.shape, three.shape) == ((2,), (3,))
    assert not np.array_equal(run(net, x)[0], dropped)
    assert np.array_equal(run(net, x, program=net.program.clone(for_test=True))[0], x)


def test_a_module_in_evaluation_mode_has_no_dropout() -> None:
    net = paddle.from_torch(nn.Dropout(0.5).eval(), torch.zeros(2, 3))
    assert [op.type for op in net.program.global_block().ops] == []


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, partial(nn.RNN, nonlinearity="relu")], ids=str)
def test_dropout_between_recurrent_layers_acts_in_training_only(kind: Any) -> None:
    module, x = kind(3, 4, num_layers=2, dropout=0.5), torch.randn(5, 2, 3)
    wanted = module.eval()(x)[0].detach()
    still = paddle.from_torch(module, x, prefix="still.")
    drawing = paddle.from_torch(module.train(), x, prefix="drawing.")
    np.testing.assert_allclose(run(still, x.numpy())[0], wanted, rtol=1e-5, atol=1e-6)
    assert not np.allclose(run(drawing, x.numpy())[0], wanted, atol=1e-3)
    frozen = run(drawing, x.numpy(), program=drawing.program.clone(for_test=True))[0]
    np.testing.assert_allclose(frozen, wanted, rtol=1e-5, atol=1e-6)


def test_running_statistics_are_updated_in_training_only() -> None:
    module = nn.BatchNorm1d(3, momentum=0.3)
    net = paddle.from_torch(module, torch.zeros(2, 3))
    test = net.program.clone(for_test=True)
    x = torch.randn(4, 3)
    before = net.state_dict()
    run(net, x.numpy(), program=test)
    assert all(np.array_equal(before[n], a) for n, a in net.state_dict().items())
    for _ in range(2):
        run(net, x.numpy())
        module(x)
    state = net.state_dict()
    assert state["num_batches_tracked"] == 2
    # The running variance is the unbiased one: of 4 values 4/3 of the batch's.
    np.testing.assert_allclose(state["running_var"], module.running_var, rtol=1e-6)
    np.testing.assert_allclose(state["running_mean"], module.running_mean, rtol=1e-6)


def test_statistics_of_several_places_are_those_of_the_whole_batch() -> None:
    module = nn.BatchNorm1d(3)
    net = paddle.from_torch(module, torch.zeros(2, 3))
    with static.program_guard(net.program, net.startup):
        loss = paddle.mean(net.fetch_vars[0])
        paddle.optimizer.SGD(0.0).minimize(loss)
    build = static.BuildStrategy()
    build.sync_batch_norm = True
    places = static.cpu_places(2)
    compiled = static.CompiledProgram(net.program, build).with_data_parallel(loss_name=loss.name, places=places)
    x = torch.randn(6, 3) + 1
    exe = static.Executor()
    exe.run(net.startup)
    exe.run(compiled, feed={"input": x.numpy()}, fetch_list=[loss])
    module(x)
    np.testing.assert_allclose(net.state_dict()["running_var"], module.running_var, rtol=1e-5)
    np.testing.assert_allclose(net.state_dict()["running_mean"], module.running_mean, rtol=1e-5)


# ----------------------------------------------------------------------------------------------------------------- state
class Padding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3, padding_idx=2)
        nn.init.constant_(self.table.weight[2], 7.0)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("unsaved", torch.full((3,), 2.0), persistent=False)

    def forward(self, ids: Any) -> Any:
        return self.table(ids) * self.frozen * self.unsaved


def test_the_padding_row_is_read_but_not_trained() -> None:
    module = Padding()
    net = paddle.from_torch(module, torch.tensor([[0, 2, 1]]))
    ids = np.array([[2, 1, 2], [4, 4, 0]])
    with static.program_guard(net.program, net.startup):
        gradients = dict(static.append_backward(paddle.sum(net.fetch_vars[0])))
    assert [p.name for p in gradients] == ["table.weight"]
    found, gradient = static.Executor().run(
        net.program, feed={"ids": ids}, fetch_list=[net.fetch_vars[0], *gradients.values()]
    )
    result = module(torch.from_numpy(ids))
    result.sum().backward()
    np.testing.assert_array_equal(found, result.detach())
    np.testing.assert_array_equal(gradient, module.table.weight.grad)
    assert gradient[2].tolist() == [0.0] * 3
    assert not net.variables["frozen"].trainable
    # torch saves no buffer that is not persistent, so it is not loaded either.
    assert "unsaved" in net.variables
    module.load_state_dict({name: torch.from_numpy(a) for name, a in net.state_dict().items()})


class Writes(nn.Module):
    """Writes to views, to a buffer, and computes without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.0)
        self.register_buffer("seen", torch.zeros(2))
        self.constant = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Any) -> Any:
        y = self.drop(self.norm(self.linear(x)))
        y[:, 0] *= 2
        y[:, 1:2] = self.constant[0]
        self.seen[0] += 1
        self.seen.mul_(2)
        return y + self.constant, y.detach() * y


class InPlace(nn.Module):
    """Writes that need no more than new names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = self.linear(x).add_(0.5).sigmoid_()
        z = y * y
        with torch.no_grad():
            level = y.mean()
            self.average.mul_(0.9).add_(0.1 * y.mean(0))
        return z.add_(level).mul_(2), z


@pytest.mark.parametrize("make", [Writes, InPlace])
@pytest.mark.parametrize("train", [True, False])
def test_writes_to_memory(make: Any, train: bool) -> None:
    torch.manual_seed(4)
    module = make().train(train)
    net = paddle.from_torch(module, torch.randn(2, 3))
    with static.program_guard(net.program, net.startup):
        gradients = dict(static.append_backward(sum(paddle.sum(v * v) for v in net.fetch_vars)))
    for _ in range(2):
        x = torch.randn(4, 3)
        theirs = module(x.clone())
        found = static.Executor().run(
            net.program, feed={"x": x.numpy()}, fetch_list=[*net.fetch_vars, *gradients.values()]
        )
        module.zero_grad()
        sum((one * one).sum() for one in theirs).backward()
        for ours, wanted in zip(found, [*theirs, *(module.get_parameter(p.name).grad for p in gradients)], strict=True):
            wanted = wanted.detach().numpy()
            # The gradient of a bias in front of a batch norm is the rounding of sums that cancel.
            np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_types_of_weights(dtype: str) -> None:
    module = nn.Linear(4, 3).to(getattr(torch, dtype))
    net = paddle.from_torch(module, torch.zeros(2, 4, dtype=getattr(torch, dtype)))
    x = torch.randn(5, 4).to(getattr(torch, dtype))
    state = net.state_dict()
    assert state["weight"].dtype.name == dtype
    np.testing.assert_array_equal(state["weight"].astype("float64"), module.weight.detach().double())
    feed = {"input": x.float().numpy().astype(state["weight"].dtype)}
    (found,) = static.Executor().run(net.program, feed=feed, fetch_list=net.fetch_vars)
    np.testing.assert_allclose(found.astype("float64"), module(x).detach().double(), rtol=2e-2, atol=2e-2)


def test_two_modules_in_one_scope_have_prefixes() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    a = paddle.from_torch(first, torch.zeros(1, 2), prefix="a.")
    b = paddle.from_torch(second, torch.zeros(1, 2), prefix="b.")
    x = np.ones((3, 2), "float32")
    for net, module in ((a, first), (b, second)):
        np.testing.assert_allclose(run(net, x)[0], module(torch.from_numpy(x)).detach(), rtol=1e-6)


# ------------------------------------------------------------------------------------------------- what programs are for
def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    module = nets.made("digits", train=False)
    (x,) = nets.NETS["digits"].arguments(3)
    net = paddle.from_torch(module, (x,))
    inputs = [net.program.global_block().var(n) for n in net.feed_names]
    exe = static.Executor()
    static.save_inference_model(str(tmp_path / "net"), inputs, net.fetch_vars, exe, program=net.program)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "net"), exe)
        (found,) = exe.run(program, feed={feeds[0]: x.numpy()}, fetch_list=fetches)
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-4, atol=1e-6)


def test_paddle_has_no_unbiased_running_variance() -> None:
    net = paddle.from_torch(nn.BatchNorm1d(3), torch.zeros(2, 3))
    with pytest.raises(paddle.errors.ProgramError, match="unbiased"):
        paddle_writing.write(net.program)
    # In inference it is not needed, and so not written; nor in a program that does not use it.
    assert b"unbiased_variance" not in paddle_writing.write(net.program.clone(for_test=True))
    x = static.data("x", [None, 3])
    static.append_backward(paddle.mean(static.nn.batch_norm(static.nn.fc(x, 3))))
    assert b"batch_norm_grad" in paddle_writing.write(static.default_main_program())
    assert b"unbiased_variance" not in paddle_writing.write(static.default_main_program())


def test_a_model_is_exported_to_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from tests.onnx.forms import run as run_onnx

    module = nets.made("gpt")
    net = paddle.from_torch(module, nets.NETS["gpt"].arguments(2))
    inputs = [net.program.global_block().var(n) for n in net.feed_names]
    path = paddle.onnx.export(str(tmp_path / "net"), inputs, net.fetch_vars, program=net.program)
    import onnx

    arguments = nets.NETS["gpt"].arguments(4)
    feed = {n: a.numpy() for n, a in zip(net.feed_names, arguments, strict=True)}
    wanted = module.eval()(*arguments).detach()
    (found,) = run_onnx(onnx.load(path), feed).values()
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_a_gpt_has_the_fusions_of_one_that_is_built_here() -> None:
    net = paddle.from_torch(nets.made("gpt"), nets.NETS["gpt"].arguments(2))
    with static.program_guard(net.program, net.startup):
        loss = paddle.mean(paddle.square(net.fetch_vars[0]))
        paddle.optimizer.AdamW(0.1).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.fused_attention = strategy.fused_feedforward = strategy.fuse_gemm_epilogue = strategy.build_cinn_pass = (
        True
    )
    strategy.fuse_embedding_grad_add = True
    explained = static.CompiledProgram(net.program, strategy).explain([loss], {"ids": (2, 8)})
    made = [one.op for one in explained.applied]
    for name in ("fused_attention", "fused_attention_grad", "fused_feedforward", "fused_feedforward_grad"):
        assert made.count(name) == 1, name
    assert "embedding_grad_add" in made
