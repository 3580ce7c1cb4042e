"""LSTM over sequences whose hidden state is projected; ``layers.dynamic_lstmp``."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
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
from tstatic.ops.sequence.lstm import ATTRS


def _infer(
    x: Meta, offsets: Meta, h0: Meta | None, c0: Meta | None, weight: Meta, projection: Meta, bias: Meta,
    use_peepholes: bool,
) -> tuple[Meta, Meta, Meta, None, None]:  # fmt: skip
    narrow = projection.shape[1]
    width = check_cells(x, offsets, weight, bias, 4, narrow, 7 if use_peepholes else 4)
    check_state(h0, offsets, narrow, "H0")
    check_state(c0, offsets, width, "C0")
    return x.with_shape((x.shape[0], narrow)), x.with_shape((x.shape[0], width)), x, None, None


def _states(lstm: Lstm, steps: Steps, h0: Array | None, c0: Array | None, dtype: Any) -> tuple[Array, Array]:
    return steps.initial(h0, lstm.weight.shape[0], dtype), steps.initial(c0, lstm.width, dtype)


def _ref(
    x: Array, offsets: Array, h0: Array | None, c0: Array | None, weight: Array, projection: Array, bias: Array,
    result: Array | None, cell: Array | None, gates: Array | None, *unused: None, **attrs: Any,
) -> None:  # fmt: skip
    steps = Steps(offsets, attrs["is_reverse"])
    lstm = Lstm(steps, weight, bias, projection, attrs)
    outs, cells, made = lstm.run(x[steps.rows], *_states(lstm, steps, h0, c0, x.dtype))
    for target, packed in ((result, outs), (cell, cells)):
        if target is not None:
            target[steps.rows] = packed
    if gates is not None:
        gates[...] = made


def _back(
    x: Array, offsets: Array, h0: Array | None, c0: Array | None, weight: Array, projection: Array, bias: Array,
    result: Array, cell: Array, gates: Array, dresult: Array | None, dcell: Array | None, *grads: Array | None, **attrs: Any,
) -> None:  # fmt: skip
    steps = Steps(offsets, attrs["is_reverse"])
    lstm = Lstm(steps, weight, bias, projection, attrs)
    h, c = _states(lstm, steps, h0, c0, x.dtype)
    dresults, dcells = (None if one is None else one[steps.rows] for one in (dresult, dcell))
    found = lstm.back(h, c, result[steps.rows], cell[steps.rows], gates, dresults, dcells)
    for target, name in zip(grads, ("Input", "H0", "C0", "Weight", "ProjWeight", "Bias"), strict=True):
        if target is None:
            continue
        if name in ("Input", "H0", "C0"):
            target[steps.rows if name == "Input" else steps.order] = found[name]
        else:
            target[...] = found[name]


def _lower(
    torch: Any, x: Any, offsets: Any, h0: Any, c0: Any, weight: Any, projection: Any, bias: Any, **attrs: Any
) -> Any:
    width = projection.shape[0]
    kinds = ("gate", "cell", "candidate", "proj")
    gate, act, candidate, project = (torch_activation(torch, attrs[f"{kind}_activation"]) for kind in kinds)
    flat = torch.cat([bias.flatten(), bias.new_zeros(3 * width)])
    wi, wf, wo = flat[4 * width : 7 * width].chunk(3)

    def limited(values: Any, limit: float) -> Any:
        return values.clamp(-limit, limit) if limit > 0 else values

    def step(row: Any, state: Any) -> Any:
        r, c, _ = state
        a, i, f, o = (row + flat[: 4 * width] + r @ weight).chunk(4, 1)
        a, i, f = candidate(a), gate(i + c * wi), gate(f + c * wf)
        new = limited(f * c + i * a, attrs["cell_clip"])
        o = gate(o + new * wo)
        made = limited(project((o * act(new)) @ projection), attrs["proj_clip"])
        return made, new, torch.cat([a, i, f, o], 1)

    n = len(offsets) - 1
    first = x.new_zeros((n, projection.shape[1])) if h0 is None else h0
    second = x.new_zeros((n, width)) if c0 is None else c0
    states = (first, second, x.new_zeros((n, 4 * width)))
    result, cell, gates = torch_over_sequences(torch, x, offsets, attrs["is_reverse"], states, step)
    return result, cell, gates[torch_packed(torch, offsets, attrs["is_reverse"])], None, None


def _lower_back(
    torch: Any, x: Any, offsets: Any, h0: Any, c0: Any, weight: Any, projection: Any, bias: Any, result: Any, cell: Any,
    gates: Any, dresult: Any, dcell: Any, **attrs: Any,
) -> Any:  # fmt: skip
    given = [x, offsets, h0, c0, weight, projection, bias]
    found = torch_gradients(torch, lambda *all: _lower(torch, *all, **attrs), given, [dresult, dcell])
    return found[0], *found[2:]


def _case(rows: int, sequences: int, width: int, narrow: int, states: bool, **attrs: Any) -> Case:
    first, second = ((sequences, narrow), (sequences, width)) if states else (None, None)
    bias = 7 if attrs.get("use_peepholes", True) else 4
    shapes = (
        (rows, 4 * width),
        (sequences + 1,),
        first,
        second,
        (narrow, 4 * width),
        (width, narrow),
        (1, bias * width),
    )
    return Case(shapes, attrs)


register(OpDef(
    "lstmp",
    f"Input, Input{LOD}, H0?, C0?, Weight, ProjWeight, Bias -> Projection, Cell, BatchGate~, BatchCellPreAct~, BatchHidden~",
    paddle=ABSENT,
    attrs={**ATTRS, "proj_activation": activation("tanh"), "cell_clip": 0.0, "proj_clip": 0.0},
    infer=_infer, ref=_ref,
    host=READS_LENGTHS, lower=lambda torch, *given, **attrs: _lower(torch, *given, **attrs), lod="Input", amp="black",
    uses_blas=True,
    grad=GradOp(
        f"Input, Input{LOD}, H0?, C0?, Weight, ProjWeight, Bias, Projection, Cell, BatchGate, Projection{GRAD}?, Cell{GRAD}? "
        f"-> Input{GRAD}, H0{GRAD}, C0{GRAD}, Weight{GRAD}, ProjWeight{GRAD}, Bias{GRAD}",
        infer=lambda x, offsets, h0, c0, weight, projection, bias, *rest: (x, h0, c0, weight, projection, bias), ref=_back,
        host=READS_LENGTHS, lower=lambda torch, *given, **attrs: _lower_back(torch, *given, **attrs),
        instead="pad the sequences (sequence_pad) and write the step with matmul, sigmoid and tanh in a Python loop",
    ),
    domain=Domain(
        cases=(
            _case(7, 3, 2, 3, False), _case(7, 4, 3, 2, True), _case(5, 2, 2, 1, True, use_peepholes=False, is_reverse=True),
            _case(0, 2, 2, 1, True), _case(6, 3, 2, 2, False, proj_activation="identity", cell_clip=50.0, proj_clip=50.0),
        ),
        values={f"Input{LOD}": ValueRange(dtype="int64", offsets="Input.0")}, floats=("float32", "float64"), ulps=256.0,
    ),
))  # fmt: skip
