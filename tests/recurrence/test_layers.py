"""``nn.LSTM``, ``GRU`` and ``SimpleRNN`` against torch's with the same weights: outputs, states and all gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tstatic import fluid, nn, static
from tstatic.errors import ProgramError, ShapeError, TstaticError

torch = pytest.importorskip("torch")

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "SimpleRNN": nn.SimpleRNN}
TORCH = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "SimpleRNN": torch.nn.RNN}


def torch_sequences(module: Any, x: Any, states: Any, lengths: Any) -> Any:
    """Runs torch's layer, padded rows packed; states come back in the rows' order."""
    if lengths is None:
        return module(x, states)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=False)
    out, last = module(packed, states)
    steps = x.shape[1 if module.batch_first else 0]
    return torch.nn.utils.rnn.pad_packed_sequence(out, module.batch_first, total_length=steps)[0], last


@settings(max_examples=25)
@given(
    kind=st.sampled_from(sorted(KINDS)), layers=st.integers(1, 3), both=st.booleans(), time_major=st.booleans(),
    steps=st.integers(1, 5), batch=st.integers(1, 4), size=st.integers(1, 4), width=st.integers(1, 4),
    has_lengths=st.booleans(), has_states=st.booleans(), relu=st.booleans(), seed=st.integers(0, 1000),
)  # fmt: skip
def test_outputs_states_and_gradients_are_those_of_torch(
    kind: str, layers: int, both: bool, time_major: bool, steps: int, batch: int, size: int, width: int,
    has_lengths: bool, has_states: bool, relu: bool, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    shape = (steps, batch, size) if time_major else (batch, steps, size)
    rows = layers * (2 if both else 1)
    feed: dict[str, Any] = {"x": rng.normal(size=shape).astype("float32")}
    count = 2 if kind == "LSTM" else 1
    if has_states:
        feed |= {f"s{i}": rng.normal(size=(rows, batch, width)).astype("float32") for i in range(count)}
    lengths = rng.integers(1, steps + 1, batch) if has_lengths else None
    if lengths is not None:
        feed["n"] = lengths
    settings_ = {"activation": "relu"} if kind == "SimpleRNN" and relu else {}
    with static.program_guard(static.Program(), static.Program()):
        inputs = {
            k: static.data(k, [None] * (v.ndim - 1) + [v.shape[-1]] if k == "x" else v.shape, v.dtype)
            for k, v in feed.items()
        }
        for name, var in inputs.items():
            var.stop_gradient = name == "n"
        layer = KINDS[kind](size, width, layers, "bidirect" if both else "forward", time_major, **settings_)
        states = [inputs[f"s{i}"] for i in range(count)] if has_states else None
        y, last = layer(inputs["x"], states if count == 2 or states is None else states[0], inputs.get("n"))
        ends = list(last) if count == 2 else [last]
        # Every result gets a gradient of its own.
        loss = sum(((v * v * (k + 1)).sum() for k, v in enumerate((y, *ends))), start=0.0)
        wanted = [v for n, v in inputs.items() if n != "n"]
        gradients = static.gradients([loss], [*layer.parameters(), *wanted])
        exe = static.Executor()
        exe.run(static.default_startup_program())
        results = exe.run(feed=feed, fetch_list=[y, *ends, *gradients])
        values = {k: np.array(v.get_value()) for k, v in layer.state_dict().items() if "." not in k}
    module = TORCH[kind](
        size, width, layers, bidirectional=both, batch_first=not time_major,
        **({"nonlinearity": settings_["activation"]} if settings_ else {}),
    )  # fmt: skip
    assert sorted(values) == sorted(module.state_dict())
    module.load_state_dict({k: torch.tensor(v) for k, v in values.items()})
    leaves = {k: torch.tensor(v, requires_grad=True) for k, v in feed.items() if k != "n"}
    start = None if not has_states else (leaves["s0"], leaves["s1"]) if count == 2 else leaves["s0"]
    out, end = torch_sequences(module, leaves["x"], start, None if lengths is None else torch.tensor(lengths))
    expected = [out, *(end if count == 2 else [end])]
    sum((v * v * (k + 1)).sum() for k, v in enumerate(expected)).backward()
    names = dict(module.named_parameters())
    order = [k for k in layer.state_dict() if "." not in k]
    expected += [names[k].grad for k in order] + [leaf.grad for leaf in leaves.values()]
    for mine, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_parameters_have_the_names_of_paddle() -> None:
    lstm = nn.LSTM(3, 4, num_layers=2, direction="bidirect")
    state = lstm.state_dict()
    assert list(state)[:6] == [
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
        "weight_ih_l0_reverse",
        "weight_hh_l0_reverse",
    ]
    assert (state["weight_ih_l0"].name, state["bias_hh_l1_reverse"].name) == ("lstm_cell_0.w_0", "lstm_cell_3.b_1")
    assert list(state)[16:19] == ["0.cell_fw.weight_ih", "0.cell_fw.weight_hh", "0.cell_fw.bias_ih"]
    assert [n for n, _ in lstm.named_sublayers()] == ["0", "0.cell_fw", "0.cell_bw", "1", "1.cell_fw", "1.cell_bw"]
    assert state["weight_ih_l1"].shape == (16, 8)
    assert list(nn.GRU(3, 4).state_dict())[4:] == [
        "0.cell.weight_ih",
        "0.cell.weight_hh",
        "0.cell.bias_ih",
        "0.cell.bias_hh",
    ]
    assert (
        repr(nn.SimpleRNN(3, 4, activation="relu"))
        == "SimpleRNN(3, 4\n  (0): RNN(\n    (cell): SimpleRNNCell(3, 4, activation=relu)\n  )\n)"
    )


def test_a_bias_of_false_stays_zero() -> None:
    x = static.data("x", [2, 3, 4])
    lstm = nn.LSTM(4, 5, bias_ih_attr=False)
    y, _ = lstm(x)
    from tstatic import optimizer

    optimizer.SGD(0.5).minimize((y * y).mean())
    exe = static.Executor()
    exe.run(static.default_startup_program())
    before = np.array(lstm.bias_hh_l0.get_value())
    exe.run(feed={"x": np.ones((2, 3, 4), "float32")}, fetch_list=[y])
    assert not np.array(lstm.bias_ih_l0.get_value()).any()
    assert (np.array(lstm.bias_hh_l0.get_value()) != before).any()


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.SimpleRNNCell])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_cell_run_by_rnn_gives_what_the_layer_gives(cell: Any, reverse: bool) -> None:
    """Any cell goes through the ``recurrent`` op, LSTM through an op of its own; outputs of rows that are over differ."""
    made = cell(3, 4)
    x, n = static.data("x", [2, 5, 3]), static.data("n", [2], "int64")
    x.stop_gradient = False
    y, last = nn.RNN(made, is_reverse=reverse)(x, sequence_length=n)
    state = list(last) if isinstance(last, tuple) else [last]
    loss = sum(((s * s).sum() for s in state), start=(y * y)[:, :2].sum())
    gradients = static.gradients([loss], [*made.parameters(), x])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(1).normal(size=(2, 5, 3)).astype("float32"), "n": np.array([5, 2])}
    results = exe.run(feed=feed, fetch_list=[y, *state, *gradients])
    kind = {nn.LSTMCell: "LSTM", nn.GRUCell: "GRU", nn.SimpleRNNCell: "SimpleRNN"}[cell]
    module = TORCH[kind](3, 4, batch_first=True)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    module.load_state_dict({f"{k}_l0": torch.tensor(np.array(getattr(made, k).get_value())) for k in names})
    leaf = torch.tensor(feed["x"], requires_grad=True)
    total, ends = 0.0, []
    for row, length in enumerate(feed["n"]):
        part = leaf[row : row + 1, :length]
        out, end = module(part.flip(1) if reverse else part)
        out = out.flip(1) if reverse else out
        total = total + (out * out)[:, :2].sum()
        ends.append(end if isinstance(end, tuple) else (end,))
        np.testing.assert_allclose(results[0][row, :length], out[0].detach(), rtol=1e-4, atol=1e-5)
    for k in range(len(state)):
        joined = torch.cat([e[k][0] for e in ends])
        total = total + (joined * joined).sum()
        np.testing.assert_allclose(results[1 + k], joined.detach(), rtol=1e-4, atol=1e-5)
    total.backward()
    expected = [getattr(module, f"{k}_l0").grad for k in names] + [leaf.grad]
    for mine, theirs in zip(results[1 + len(state) :], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


def test_dropout_lies_between_layers() -> None:
    lstm = nn.LSTM(3, 4, num_layers=3, dropout=0.5)
    lstm(static.data("x", [2, 5, 3]))
    types = [op.type for op in static.default_main_program().global_block().ops]
    assert types.count("dropout") == 2
    assert types.count("lstm_sequence") == 3


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda x: nn.LSTM(3, 4, direction="backward"), ProgramError, "direction"),
        (lambda x: nn.LSTM(3, 0), ShapeError, "hidden_size"),
        (lambda x: nn.SimpleRNN(3, 4, activation="sigmoid"), ProgramError, "activation"),
        (lambda x: nn.LSTM(5, 4)(x), ShapeError, "input_size"),
        (lambda x: nn.LSTM(3, 4)(x, x), TstaticError, "initial_states"),
        (lambda x: nn.GRU(3, 4)(x, static.data("h", [2, 2, 4])), ShapeError, "num_layers"),
        (lambda x: nn.GRU(3, 4)(x, sequence_length=static.data("n", [2, 1], "int64")), ShapeError, "sequence_length"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(build: Any, error: type[Exception], words: str) -> None:
    x = static.data("x", [2, 5, 3])
    ops = len(static.default_main_program().global_block().ops)
    with pytest.raises(error, match=words):
        build(x)
    assert len(static.default_main_program().global_block().ops) == ops


@pytest.mark.parametrize("both", [False, True])
def test_the_1x_layer_of_one_parameter_gives_what_torch_gives(both: bool) -> None:
    """All weights first, then all biases, in torch's order and packing."""
    ways, layers, steps, batch, size, width = 1 + both, 2, 3, 2, 4, 5
    x = static.data("x", [steps, batch, size])
    h, c = (static.data(n, [layers * ways, batch, width]) for n in "hc")
    out, last_h, last_c = fluid.layers.lstm(x, h, c, steps, width, layers, is_bidirec=both)
    (packed,) = static.default_main_program().all_parameters()
    gradient = static.gradients([(out * out).sum() + last_c.sum()], [packed])[0]
    exe = static.Executor()
    exe.run(static.default_startup_program())
    module = torch.nn.LSTM(size, width, layers, bidirectional=both)
    names = [n for n, _ in module.named_parameters()]
    order = [n for n in names if n.startswith("weight")] + [n for n in names if n.startswith("bias")]
    packed.set_value(np.concatenate([module.get_parameter(n).detach().numpy().ravel() for n in order]))
    rng = np.random.default_rng(0)
    feed = {n: rng.normal(size=v.shape).astype("float32") for n, v in (("x", x), ("h", h), ("c", c))}
    found = exe.run(feed=feed, fetch_list=[out, last_h, last_c, gradient])
    given = {n: torch.tensor(v) for n, v in feed.items()}
    expected, (end_h, end_c) = module(given["x"], (given["h"], given["c"]))
    ((expected * expected).sum() + end_c.sum()).backward()
    gradients = torch.cat([module.get_parameter(n).grad.ravel() for n in order])
    for mine, theirs in zip(found, (expected, end_h, end_c, gradients), strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), rtol=1e-4, atol=1e-5)
