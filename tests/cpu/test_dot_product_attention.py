"""The core of an attention as one op: what is fused, and what almost fits and stays as it is, each with its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tstatic import static
from tstatic.devices import cpu_device, standing_in
from tstatic.devices.fake import FakeDevice

F = paddle.nn.functional
BATCH, HEADS, ROWS, COLUMNS, SIZE = 2, 3, 5, 7, 4

Build = Callable[..., Any]


class Net:
    """A program with an attention over two fed sequences."""

    def __init__(self, core: Build, backward: bool = True, **given: Any) -> None:
        self.main, self.startup = static.Program(), static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, self.startup):
            x = static.data("x", [None, ROWS, HEADS * SIZE])
            y = static.data("y", [None, COLUMNS, HEADS * SIZE])
            self.mask = static.data("mask", [ROWS, COLUMNS])
            q = self.heads(static.nn.fc(x, HEADS * SIZE, num_flatten_dims=2))
            k, v = (self.heads(static.nn.fc(y, HEADS * SIZE, num_flatten_dims=2)) for _ in range(2))
            self.inner: list[Any] = []
            out = core(self, q, k, v, **given)
            loss = paddle.mean(paddle.square(out))
            self.fetches = [loss.name, out.name]
            if backward:
                paddle.optimizer.SGD(0.5).minimize(loss)
                self.fetches += [p.name + "@GRAD" for p in self.main.all_parameters()]
        rng = np.random.default_rng(3)
        self.feed = {
            "x": rng.standard_normal((BATCH, ROWS, HEADS * SIZE)).astype("float32"),
            "y": rng.standard_normal((BATCH, COLUMNS, HEADS * SIZE)).astype("float32"),
            "mask": np.where(rng.random((ROWS, COLUMNS)) < 0.3, -1e9, 0).astype("float32"),
        }

    def heads(self, value: Any) -> Any:
        return paddle.transpose(paddle.reshape(value, [0, 0, HEADS, SIZE]), [0, 2, 1, 3])

    def run(self, on: bool, fetches: list[str] | None = None, steps: int = 3) -> tuple[list[Any], Any]:
        strategy = only("fuse_dot_product_attention")
        strategy.fuse_dot_product_attention = on
        compiled = static.CompiledProgram(self.main, strategy)
        wanted = fetches or self.fetches
        paddle.seed(5)
        with static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(self.startup)
            values = [exe.run(compiled, feed=self.feed, fetch_list=wanted) for _ in range(steps)]
            told = compiled.explain(wanted, {n: a.shape for n, a in self.feed.items()})
        return values, told


def core(net: Net, q: Any, k: Any, v: Any, mask: bool = True, drop: float = 0.0, softmax: int = -1) -> Any:
    """Scaled dot-product attention; what lies between its ops is noted."""
    scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), SIZE**-0.5)
    if mask:
        scores = scores + net.mask
    weights = F.softmax(scores, axis=softmax)
    net.inner += [scores, weights]
    if drop:
        weights = F.dropout(weights, drop)
    return paddle.matmul(weights, v)


def check(net: Net, fused: int, fetches: list[str] | None = None) -> Any:
    plain, _ = net.run(False, fetches)
    found, told = net.run(True, fetches)
    for one, other in zip(plain, found, strict=True):
        for a, b in zip(one, other, strict=True):
            # The gradient of the keys' bias is zero but for rounding: softmax does not see a shift.
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-7 + 2e-6 * float(np.abs(a).max()))
    assert len(told.applied) == fused, [(r.code, r.reason) for r in told.refused]
    return told


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_forward_and_gradient(mask: bool, drop: float) -> None:
    told = check(Net(core, mask=mask, drop=drop), 2)
    assert [a.op for a in told.applied] == ["fused_dot_product_attention", "fused_dot_product_attention_grad"]
    assert not told.refused
    # Neither scores nor weights are in memory; one number per row is.
    (forward,) = (a for a in told.applied if not a.op.endswith("_grad"))
    assert any("@SAVED" in v for v in forward.written)
    assert len(forward.written) == 2


def test_inference_saves_nothing() -> None:
    told = check(Net(core, backward=False), 1)
    assert len(told.applied[0].written) == 1


def test_the_rewritten_program_has_the_fused_ops() -> None:
    net = Net(core)
    compiled = static.CompiledProgram(net.main, only("fuse_dot_product_attention"))
    with static.scope_guard(static.Scope()):
        exe = static.Executor("cpu")
        exe.run(net.startup)
        exe.run(compiled, feed=net.feed, fetch_list=net.fetches)
        types = [op.type for op in compiled.program.global_block().ops]
    assert types.count("fused_dot_product_attention") == types.count("fused_dot_product_attention_grad") == 1
    assert "softmax" not in types
    assert "softmax_grad" not in types


# ----------------------------------------------------------------------------------------------------------- near misses
def other_axis(net: Net, q: Any, k: Any, v: Any) -> Any:
    return core(net, q, k, v, softmax=-2)


def weights_elsewhere(net: Net, q: Any, k: Any, v: Any) -> Any:
    out = core(net, q, k, v)
    return out + paddle.mean(net.inner[1])


def scores_elsewhere(net: Net, q: Any, k: Any, v: Any) -> Any:
    out = core(net, q, k, v)
    return out + paddle.mean(net.inner[0])


def kept(net: Net, q: Any, k: Any, v: Any) -> Any:
    out = core(net, q, k, v)
    net.inner[1].persistable = True
    return out


def turned_keys(net: Net, q: Any, k: Any, v: Any) -> Any:
    scores = paddle.matmul(q, paddle.transpose(k, [0, 1, 3, 2]))
    return paddle.matmul(F.softmax(scores), v)


def turned_values(net: Net, q: Any, k: Any, v: Any) -> Any:
    turned = paddle.transpose(v, [0, 1, 3, 2])
    return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True)), turned, transpose_y=True)


def turned_queries(net: Net, q: Any, k: Any, v: Any) -> Any:
    turned = paddle.transpose(q, [0, 1, 3, 2])
    return paddle.matmul(F.softmax(paddle.matmul(turned, k, transpose_x=True, transpose_y=True)), v)


def keys_of_more_heads(net: Net, q: Any, k: Any, v: Any) -> Any:
    """One head of queries for several of keys: the scores have more elements than there are queries."""
    one = paddle.mean(q, axis=1, keepdim=True)
    return paddle.matmul(F.softmax(paddle.matmul(one, k, transpose_y=True)), v)


def scores_per_value(net: Net, q: Any, k: Any, v: Any) -> Any:
    """Weights of one head for the values of all."""
    q, k = (paddle.mean(part, axis=1, keepdim=True) for part in (q, k))
    return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True)), v)


def weights_changed(net: Net, q: Any, k: Any, v: Any) -> Any:
    return paddle.matmul(paddle.tanh(F.softmax(paddle.matmul(q, k, transpose_y=True))), v)


def forbidden(net: Net, q: Any, k: Any, v: Any) -> Any:
    with paddle.static.no_fuse():
        return core(net, q, k, v)


def learned_mask(net: Net, q: Any, k: Any, v: Any) -> Any:
    bias = static.create_parameter([ROWS, COLUMNS], "float32", name="bias")
    return paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) + bias), v)


def whole_weights(net: Net, q: Any, k: Any, v: Any) -> Any:
    """Of a whole number nothing is left when it is divided by the sum over all keys."""
    weights = F.softmax(paddle.matmul(q, k, transpose_y=True) * 30.0)
    mixed = paddle.matmul(paddle.cast(paddle.cast(weights, "int32"), "float32"), v)
    return mixed + paddle.mean(q) + paddle.mean(k)


def several_types(net: Net, q: Any, k: Any, v: Any) -> Any:
    scores = paddle.matmul(*(paddle.cast(one, "float64") for one in (q, k)), transpose_y=True)
    return paddle.matmul(F.softmax(paddle.cast(scores, "float32")), v)


def wider_softmax(net: Net, q: Any, k: Any, v: Any) -> Any:
    scores = paddle.cast(paddle.matmul(q, k, transpose_y=True), "float64")
    return paddle.matmul(paddle.cast(F.softmax(scores), "float32"), v)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (other_axis, "ATTRIBUTE"),
        (weights_elsewhere, "EXTRA_READER"),
        (scores_elsewhere, "EXTRA_READER"),
        (kept, "PERSISTABLE"),
        (turned_keys, "ATTRIBUTE"),
        (weights_changed, "SUM_INSIDE"),
        (turned_values, "ATTRIBUTE"),
        (turned_queries, "ATTRIBUTE"),
        (keys_of_more_heads, "SHAPE_MISMATCH"),
        (scores_per_value, "SHAPE_MISMATCH"),
        (forbidden, "FORBIDDEN"),
        (learned_mask, "EXTRA_READER"),
        (whole_weights, "SUM_INSIDE"),
        (several_types, "NO_KERNEL_FORM"),
        (wider_softmax, "NO_KERNEL_FORM"),
    ],
)
def test_near_misses(build: Build, code: str) -> None:
    told = check(Net(build), 0)
    assert [r.code for r in told.refused] == [code]


@pytest.mark.parametrize("which", [0, 1])
def test_inner_values_can_be_fetched(which: int) -> None:
    net = Net(core)
    told = check(net, 0, [*net.fetches, net.inner[which].name])
    assert [r.code for r in told.refused] == ["FETCHED"]


@pytest.mark.parametrize("code", ["FETCHED", "PERSISTABLE", "EXTRA_READER"])
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_between_the_products_that_others_need_are_made(which: int, code: str) -> None:
    net = Net(core, drop=0.4)
    name = f"{net.inner[which].name}@GRAD"
    fetches = [*net.fetches, name]
    gradient = net.main.global_block().var(name)
    if code == "PERSISTABLE":
        gradient.persistable = True
        net.main._touch()
    if code == "EXTRA_READER":
        with static.program_guard(net.main, net.startup):
            fetches[-1] = paddle.cumsum(gradient, -1).name
    told = check(net, 0, net.fetches if code == "PERSISTABLE" else fetches)
    assert [r.code for r in told.refused] == [code]
    assert name in told.refused[0].reason


@pytest.mark.numpy_device("float16 is computed in float32 by numpy's operators alone")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("switch", ["fuse_dot_product_attention", "fused_attention"])
def test_attentions_of_mixed_precision_are_fused(switch: str, dtype: str) -> None:
    """O1 computes the softmax in float32, between products of 16 bits."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [2, ROWS, HEADS * SIZE])
        out = paddle.nn.MultiHeadAttention(HEADS * SIZE, HEADS, dropout=0.25)(x)
        loss = paddle.mean(paddle.square(out))
        optimizer = static.amp.decorate(
            paddle.optimizer.SGD(0.5), init_loss_scaling=1.0, use_dynamic_loss_scaling=False, level="O1", dtype=dtype
        )
        optimizer.minimize(loss)
    feed = {"x": np.random.default_rng(3).standard_normal((2, ROWS, HEADS * SIZE)).astype("float32")}
    name = "fused_attention" if switch == "fused_attention" else "fused_dot_product_attention"
    found = []
    for strategy in (only(switch), static.BuildStrategy()):
        compiled = static.CompiledProgram(main, strategy)
        paddle.seed(5)
        with static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(startup)
            losses = [exe.run(compiled, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
            told = []
            for device in (cpu_device(), FakeDevice()):
                with standing_in(device):
                    told.append(compiled.explain([loss], {"x": x.shape}).applied)
        found.append((losses, told))
    (fused, on_devices), (plain, _) = found
    for applied, narrow in zip(on_devices, (dtype == "bfloat16", True), strict=True):
        assert {a.op for a in applied} == {name, f"{name}_grad"}
        # What the fusion keeps for the gradient is cast at any precision.
        casts = [sum(m.type == "cast" and "@SAVED" not in m.outputs[0] for m in a.members) for a in applied]
        # CPU places compute float16 in float32, without the casts; chips keep them.
        assert min(casts) >= 2 if narrow else casts == [0, 0], "those around the softmax"
    # On this place the operators run as they are.
    assert [one.tobytes() for one in fused] == [one.tobytes() for one in plain]


@pytest.mark.parametrize("backward", [False, True])
def test_a_mask_of_dropout_that_is_fetched_has_a_code(backward: bool) -> None:
    net = Net(core, backward=backward, drop=0.4)
    (drop,) = [op for op in net.main.global_block().ops if op.type == "dropout"]
    (mask,) = drop.output("Mask")
    told = check(net, 0, [*net.fetches, mask])
    assert [(r.code, mask in r.reason) for r in told.refused] == [("FETCHED", True)]


def test_places_agree_with_one() -> None:
    """Data parallelism: gradients of the parameters around a fused attention are summed over the places."""
    net = Net(core)
    results = []
    for on in (False, True):
        strategy = only("fuse_dot_product_attention")
        strategy.fuse_dot_product_attention = on
        compiled = static.CompiledProgram(net.main, strategy).with_data_parallel(
            net.fetches[0], places=static.cpu_places(2)
        )
        paddle.seed(5)
        with static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(net.startup)
            for _ in range(3):
                mask = np.concatenate([net.feed["mask"]] * 2)
                exe.run(compiled, feed={**net.feed, "mask": mask}, fetch_list=[net.fetches[0]])
            scope = static.global_scope()
            results.append([np.asarray(scope.find_var(p.name).get_tensor()) for p in net.main.all_parameters()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
