"""LSTM over sequences of different lengths, with peepholes or without; ``layers.dynamic_lstm``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.extras.sequence._offsets import Array
from tstatic.extras.sequence._recurrence import (
    Lstm,
    Steps,
    activation,
    check_cells,
    check_state,
    over_sequences,
    torch_activation,
    torch_over_sequences,
    torch_packed,
)
from tstatic.ir.opdef import Case, OpDef, register
from tstatic.ir.types import Meta

ATTRS = {
    "use_peepholes": True, "is_reverse": False, "gate_activation": activation("sigmoid"),
    "cell_activation": activation("tanh"), "candidate_activation": activation("tanh"),
}  # fmt: skip


class LstmOp:
    """The functions of ``lstm``, and of ``lstmp``, whose hidden state is projected: those weights stand before the bias.

    Args:
        projection: Slots of the projection's weights: one or none.
    """

    def __init__(self, *projection: str) -> None:
        self.inputs = ("Input", "H0", "C0", "Weight", *projection, "Bias")
        self.count = 1 + len(self.inputs)

    def infer(
        self, x: Meta, offsets: Meta, h0: Meta | None, c0: Meta | None, weight: Meta, *rest: Meta, use_peepholes: bool
    ) -> tuple[Meta | None, ...]:
        """Checks the inputs and returns the outputs' metadata; none for those that no backend here makes."""
        *projection, bias = rest
        narrow = projection[0].shape[1] if projection else None
        # The bias has 4 gates, and with peepholes 3 diagonal weights more.
        width = check_cells(x, offsets, weight, bias, 4, narrow, 7 if use_peepholes else 4)
        fed_back = width if narrow is None else narrow
        # With a projection the fed back state is narrower than the cell, so the two states differ in width.
        check_state(h0, offsets, fed_back, "H0")
        check_state(c0, offsets, width, "C0")
        return (
            x.with_shape((x.shape[0], fed_back)),
            x.with_shape((x.shape[0], width)),
            x,
            None,
            *[None] * len(projection),
        )

    def _ready(self, given: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Lstm, Array, Array]:
        """Returns the recurrence, and the sorted states before the first step."""
        x, offsets, h0, c0, weight, *projection, bias = given[: self.count]
        steps = Steps(offsets, attrs["is_reverse"])
        lstm = Lstm(steps, weight, bias, projection[0] if projection else None, attrs)
        return lstm, steps.initial(h0, len(weight), x.dtype), steps.initial(c0, lstm.width, x.dtype)

    def ref(self, *given: Any, **attrs: Any) -> None:
        """Runs all steps."""
        lstm, h, c = self._ready(given, attrs)
        rows = lstm.steps.rows
        result, cell, gates = given[self.count : self.count + 3]
        outs, cells, made = lstm.run(given[0][rows], h, c)
        for target, packed in ((result, outs), (cell, cells)):
            if target is not None:
                target[rows] = packed
        if gates is not None:
            # BatchGate stays packed, as in Paddle; only results go back to the order of rows.
            gates[...] = made

    def back(self, *given: Any, **attrs: Any) -> None:
        """Computes the gradients."""
        lstm, h, c = self._ready(given, attrs)
        rows = lstm.steps.rows
        result, cell, gates, dresult, dcell, *targets = given[self.count :]
        arriving = (None if one is None else one[rows] for one in (dresult, dcell))
        # Gates are read as they were kept; indexing packs what is in the order of rows.
        found = lstm.back(h, c, result[rows], cell[rows], gates, *arriving)
        lstm.steps.write(targets, self.inputs, found)

    def lower(self, torch: Any, *given: Any, **attrs: Any) -> Any:
        """Runs the steps of each sequence with torch."""
        x, offsets, h0, c0, weight, *projection, bias = given
        width = weight.shape[1] // 4
        gate, act, candidate, project = (
            torch_activation(torch, attrs.get(f"{kind}_activation", "identity"))
            for kind in ("gate", "cell", "candidate", "proj")
        )
        # Zeros make peepholes that add nothing, so one formula serves both; of a bias with peepholes, the zeros are never read.
        flat = torch.cat([bias.flatten(), bias.new_zeros(3 * width)])
        wi, wf, wo = flat[4 * width : 7 * width].chunk(3)

        def limited(values: Any, name: str) -> Any:
            limit = attrs.get(name, 0.0)
            return values.clamp(-limit, limit) if limit > 0 else values

        def step(row: Any, state: Any) -> Any:
            h, c, _ = state
            a, i, f, o = (row + flat[: 4 * width] + h @ weight).chunk(4, 1)
            a, i, f = candidate(a), gate(i + c * wi), gate(f + c * wf)
            new = limited(f * c + i * a, "cell_clip")
            # Peepholes: the output gate sees the new cell, the others saw the old one.
            o = gate(o + new * wo)
            made = o * act(new)
            if projection:
                made = limited(project(made @ projection[0]), "proj_clip")
            return made, new, torch.cat([a, i, f, o], 1)

        sizes = len(weight), width, 4 * width
        states = [
            x.new_zeros((len(offsets) - 1, size)) if one is None else one
            for one, size in zip((h0, c0, None), sizes, strict=True)
        ]
        result, cell, gates = torch_over_sequences(torch, x, offsets, attrs["is_reverse"], states, step)
        return result, cell, gates[torch_packed(torch, offsets, attrs["is_reverse"])], None, *[None] * len(projection)

    def op(
        self, type: str, outputs: str, attrs: Mapping[str, Any], cases: tuple[Case, ...], instead: str, **more: Any
    ) -> OpDef:
        """Returns the definition; the first of the outputs is what is given out and fed back."""
        result = outputs.partition(",")[0]
        inputs = [f"{name}?" if name in ("H0", "C0") else name for name in self.inputs]
        functions = self.infer, self.ref, self.back, self.lower
        kept, results = f"{result}, Cell, BatchGate", (f"{result}?", "Cell?")
        return over_sequences(type, inputs, outputs, kept, results, attrs, functions, cases, instead, **more)


def case(rows: int, sequences: int, width: int, states: bool, narrow: int | None = None, /, **attrs: Any) -> Case:
    """Returns shapes and attributes of an LSTM; ``narrow`` is the width of the projected state."""
    bias = 7 if attrs.get("use_peepholes", True) else 4
    fed_back = width if narrow is None else narrow
    first, second = ((sequences, fed_back), (sequences, width)) if states else (None, None)
    projection = [] if narrow is None else [(width, narrow)]
    shapes = (
        (rows, 4 * width), (sequences + 1,), first, second, (fed_back, 4 * width), *projection, (1, bias * width),
    )  # fmt: skip
    return Case(shapes, attrs)


register(LstmOp().op(
    "lstm", "Hidden, Cell, BatchGate~, BatchCellPreAct~", ATTRS,
    (
        case(7, 3, 2, False), case(7, 4, 3, True), case(5, 2, 2, True, use_peepholes=False, is_reverse=True),
        case(0, 2, 2, True), case(6, 3, 1, False, cell_activation="identity", candidate_activation="sigmoid"),
    ),
    "pad the sequences (sequence_pad) and call nn.LSTMCell once per step in a Python loop",
))  # fmt: skip
