"""LSTM over sequences of different lengths, with peepholes or without; ``layers.dynamic_lstm``."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.types import Meta
from tstatic.ops._host import READS_LENGTHS
from tstatic.ops.sequence._offsets import Array
from tstatic.ops.sequence._recurrence import (
    Lstm,
    Steps,
    activation,
    check_cells,
    check_state,
    torch_activation,
    torch_gradients,
    torch_over_sequences,
    torch_packed,
)

ATTRS = {
    "use_peepholes": True, "is_reverse": False, "gate_activation": activation("sigmoid"),
    "cell_activation": activation("tanh"), "candidate_activation": activation("tanh"),
}  # fmt: skip


def _infer(
    x: Meta, offsets: Meta, h0: Meta | None, c0: Meta | None, weight: Meta, bias: Meta, use_peepholes: bool
) -> tuple[Meta, Meta, Meta, None]:
    width = check_cells(x, offsets, weight, bias, 4, biases=7 if use_peepholes else 4)
    check_state(h0, offsets, width, "H0")
    check_state(c0, offsets, width, "C0")
    state = x.with_shape((x.shape[0], width))
    return state, state, x, None


def _ref(
    x: Array, offsets: Array, h0: Array | None, c0: Array | None, weight: Array, bias: Array, hidden: Array | None,
    cell: Array | None, gates: Array | None, unused: None, **attrs: Any,
) -> None:  # fmt: skip
    steps = Steps(offsets, attrs["is_reverse"])
    lstm = Lstm(steps, weight, bias, None, attrs)
    initial = (steps.initial(s, lstm.width, x.dtype) for s in (h0, c0))
    outs, cells, made = lstm.run(x[steps.rows], *initial)
    for target, packed in ((hidden, outs), (cell, cells)):
        if target is not None:
            target[steps.rows] = packed
    if gates is not None:
        gates[...] = made


def _back(
    x: Array, offsets: Array, h0: Array | None, c0: Array | None, weight: Array, bias: Array, hidden: Array, cell: Array,
    gates: Array, dhidden: Array | None, dcell: Array | None, *grads: Array | None, **attrs: Any,
) -> None:  # fmt: skip
    steps = Steps(offsets, attrs["is_reverse"])
    lstm = Lstm(steps, weight, bias, None, attrs)
    h, c = (steps.initial(s, lstm.width, x.dtype) for s in (h0, c0))
    dhiddens, dcells = (None if one is None else one[steps.rows] for one in (dhidden, dcell))
    found = lstm.back(h, c, hidden[steps.rows], cell[steps.rows], gates, dhiddens, dcells)
    for target, name in zip(grads, ("Input", "H0", "C0", "Weight", "Bias"), strict=True):
        if target is None:
            continue
        if name in ("Input", "H0", "C0"):
            target[steps.rows if name == "Input" else steps.order] = found[name]
        else:
            target[...] = found[name]


def _lower(
    torch: Any, x: Any, offsets: Any, h0: Any, c0: Any, weight: Any, bias: Any, *, use_peepholes: bool, is_reverse: bool,
    gate_activation: str, cell_activation: str, candidate_activation: str,
) -> Any:  # fmt: skip
    width = weight.shape[0]
    gate, act, candidate = (
        torch_activation(torch, n) for n in (gate_activation, cell_activation, candidate_activation)
    )
    flat = torch.cat([bias.flatten(), bias.new_zeros(3 * width)])
    wi, wf, wo = flat[4 * width : 7 * width].chunk(3)

    def step(row: Any, state: Any) -> Any:
        h, c, _ = state
        a, i, f, o = (row + flat[: 4 * width] + h @ weight).chunk(4, 1)
        a, i, f = candidate(a), gate(i + c * wi), gate(f + c * wf)
        new = f * c + i * a
        o = gate(o + new * wo)
        return o * act(new), new, torch.cat([a, i, f, o], 1)

    zeros = x.new_zeros((len(offsets) - 1, width))
    states = (zeros if h0 is None else h0, zeros if c0 is None else c0, zeros.repeat(1, 4))
    hidden, cell, gates = torch_over_sequences(torch, x, offsets, is_reverse, states, step)
    return hidden, cell, gates[torch_packed(torch, offsets, is_reverse)], None


def _lower_back(
    torch: Any, x: Any, offsets: Any, h0: Any, c0: Any, weight: Any, bias: Any, hidden: Any, cell: Any, gates: Any,
    dhidden: Any, dcell: Any, **attrs: Any,
) -> Any:  # fmt: skip
    given = [x, offsets, h0, c0, weight, bias]
    found = torch_gradients(torch, lambda *all: _lower(torch, *all, **attrs), given, [dhidden, dcell])
    return found[0], *found[2:]


def _case(rows: int, sequences: int, width: int, states: bool, **attrs: Any) -> Case:
    state = (sequences, width) if states else None
    bias = 7 if attrs.get("use_peepholes", True) else 4
    shapes = ((rows, 4 * width), (sequences + 1,), state, state, (width, 4 * width), (1, bias * width))
    return Case(shapes, attrs)


register(OpDef(
    "lstm", f"Input, Input{LOD}, H0?, C0?, Weight, Bias -> Hidden, Cell, BatchGate~, BatchCellPreAct~", attrs=ATTRS,
    infer=_infer, ref=_ref,
    host=READS_LENGTHS, lower=lambda torch, *given, **attrs: _lower(torch, *given, **attrs), lod="Input", amp="black",
    uses_blas=True,
    grad=GradOp(
        f"Input, Input{LOD}, H0?, C0?, Weight, Bias, Hidden, Cell, BatchGate, Hidden{GRAD}?, Cell{GRAD}? "
        f"-> Input{GRAD}, H0{GRAD}, C0{GRAD}, Weight{GRAD}, Bias{GRAD}",
        infer=lambda x, offsets, h0, c0, weight, bias, *rest: (x, h0, c0, weight, bias), ref=_back,
        host=READS_LENGTHS, lower=lambda torch, *given, **attrs: _lower_back(torch, *given, **attrs),
        instead="pad the sequences (sequence_pad) and call nn.LSTMCell once per step in a Python loop",
    ),
    domain=Domain(
        cases=(
            _case(7, 3, 2, False), _case(7, 4, 3, True), _case(5, 2, 2, True, use_peepholes=False, is_reverse=True),
            _case(0, 2, 2, True), _case(6, 3, 1, False, cell_activation="identity", candidate_activation="sigmoid"),
        ),
        values={f"Input{LOD}": ValueRange(dtype="int64", offsets="Input.0")}, floats=("float32", "float64"), ulps=256.0,
    ),
))  # fmt: skip
