"""One layer and direction of a recurrence over all steps: ``lstm_sequence``, ``gru_sequence``, ``simple_rnn_sequence``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.ir.attrs import one_of
from tstatic.ir.checks import FLOATS, INDICES, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, PARTIAL_SUM, WHOLE, Attr, Case, Cost, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.ref import plain
from tstatic.ir.split import RECURRENCES, tiles
from tstatic.ir.types import Meta
from tstatic.ops.base.host import NO_GRADIENT_CALL, READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide_on_host
from tstatic.ops.base.sliding import as_metas
from tstatic.ops.recurrent import _recurrent_onnx as _onnx
from tstatic.tuned._common import Array
from tstatic.tuned.recurrent import GRU, LSTM, SIMPLE, Recurrence, backward, backward_scratch, forward, forward_scratch

TILE_ROWS = 16
"""Rows of the batch in a tile: a step's product of 8 rows takes nearly as long as one of 16."""
_WEIGHTS = ("WeightIh", "WeightHh", "BiasIh", "BiasHh")


class _Sequence:
    """The functions of one op; inputs are the sequence, the state (one or two values), four parameters and the lengths."""

    def __init__(self, kind: Recurrence, cell: str, torch_name: Callable[[str], str]) -> None:
        self.kind = kind
        self.cell = cell
        self.torch_name = torch_name
        self.states = ("InitH", "InitC") if kind.has_cell else ("InitH",)
        self.inputs = ("Input", *self.states, *_WEIGHTS, "SequenceLength")
        self.last = ("LastH", "LastC") if kind.has_cell else ("LastH",)
        # A simple RNN keeps none: the slope of tanh and relu follows from Out alone.
        self.kept = ("Gates",) if kind.saved else ()

    # ------------------------------------------------------------------------------------------------------------ slots
    @property
    def slots(self) -> str:
        """The slots of the forward op."""
        outs = ("Out", *self.last, *(f"{n}~" for n in self.kept))
        return f"{', '.join(self.inputs)}? -> {', '.join(outs)}"

    @property
    def grad_slots(self) -> str:
        """The slots of the backward op."""
        given = (*self.inputs[:-1], "SequenceLength?", "Out", *self.kept, *(f"{n}{GRAD}?" for n in ("Out", *self.last)))
        return f"{', '.join(given)} -> {', '.join(f'{n}{GRAD}' for n in self.inputs[:-1])}"

    def infer(self, x: Meta, *rest: Meta | None) -> tuple[Meta, ...]:
        """Checks the inputs and returns the outputs' metadata."""
        count = len(self.states)
        named = dict(zip(self.inputs, (x, *rest), strict=True))
        # Integers, so it takes no part in the check of one dtype.
        length = named.pop("SequenceLength")
        given = {name: meta for name, meta in named.items() if meta is not None}
        check_rank(x, 3, "Input", layout="[steps, batch, size]")
        check_dtype(x, FLOATS, "Input")
        check_same_dtype(list(given.values()), list(given))
        state = given["WeightHh"]
        check_rank(state, 2, "WeightHh", layout="[gates * width, width]")
        width, columns = state.shape[1], self.kind.gates * state.shape[1] if state.shape[1] > 0 else -1
        check_has_shape(state, (columns, width), "WeightHh", why=f"{self.kind.gates} x width rows of width")
        check_has_shape(given["WeightIh"], (columns, x.shape[2]), "WeightIh", why="[gates * width, size of the input]")
        for name in ("BiasIh", "BiasHh"):
            check_has_shape(given[name], (columns,), name, why="[gates * width]")
        for name in self.states:
            check_has_shape(given[name], (x.shape[1], width), name, why="[batch, width]")
        if length is not None:
            check_dtype(length, INDICES, "SequenceLength")
            check_has_shape(length, (x.shape[1],), "SequenceLength", why="[batch]")
        out = x.with_shape((*x.shape[:2], width))
        # One step more for a cell: the cell before the first step is kept as well, so no step backward is a special case.
        steps = x.shape[0] + self.kind.has_cell if x.shape[0] >= 0 else -1
        kept = (steps, x.shape[1], self.kind.saved * width if width > 0 else -1)
        # What only the backward pass reads is not rounded.
        saved = (Meta(kept, x.dtype.compute) for _ in self.kept)
        return (out, *(x.with_shape(out.shape[1:]) for _ in range(count)), *saved)

    # -------------------------------------------------------------------------------------------------------- numpy
    def _sizes(self, x: Meta, out: Meta) -> tuple[Any, ...]:
        return (self.kind, *x.shape, out.shape[2], x.dtype.compute.np)

    def scratch(self, x: Meta, *rest: Any) -> tuple[Meta, ...]:
        """Returns the buffers of the forward pass, and one instead of gates that nobody reads."""
        count = len(self.inputs)
        buffers = list(as_metas(forward_scratch(*self._sizes(x, rest[count - 1]))))
        batch, width = x.shape[1], rest[count - 1].shape[2]
        for gates in rest[count + len(self.states) :]:
            # If nobody reads the gates, a step writes them over those of the step before; a cell needs its predecessor besides.
            shape = (1 + self.kind.has_cell, batch, self.kind.saved * width)
            buffers.append(Meta(shape if gates is None else (0,), x.dtype.compute))
        return tuple(buffers)

    def ref(self) -> Callable[..., None]:
        """Returns the forward reference."""
        count, states = len(self.inputs), len(self.states)

        @in_float32(outputs=1 + states + len(self.kept))
        def run(*arrays: Any, is_reverse: bool, scratch: Sequence[Array], activation: str = "tanh") -> None:
            x, initial, (w, u, b, v) = arrays[0], arrays[1 : 1 + states], arrays[1 + states : 5 + states]
            out, *last = arrays[count : count + 1 + states]
            gates, work = None, scratch
            if self.kept:
                # The last buffer replaces gates that nobody reads; it is empty otherwise.
                gates, work = arrays[count + 1 + states], scratch[:-1]
                gates = scratch[-1] if gates is None else gates
            forward(
                self.kind, x, initial, (w, u), (b, v), arrays[count - 1], out, last, gates, is_reverse, work, activation
            )

        return run

    def grad_scratch(self, x: Meta, *rest: Any) -> tuple[Meta, ...]:
        """Returns the buffers of the backward pass."""
        return as_metas(backward_scratch(*self._sizes(x, rest[len(self.inputs) - 1])))

    def grad_ref(self) -> Callable[..., None]:
        """Returns the backward reference."""
        count, states, kept = len(self.inputs), len(self.states), len(self.kept)

        @in_float32(outputs=count - 1)
        def run(*arrays: Any, is_reverse: bool, scratch: Sequence[Array], activation: str = "tanh") -> None:
            x, initial, (w, u) = arrays[0], arrays[1 : 1 + states], arrays[1 + states : 3 + states]
            out = arrays[count]
            gates = arrays[count + 1] if kept else None
            dout, *dlast = arrays[count + 1 + kept : count + 2 + kept + states]
            results = arrays[count + 2 + kept + states :]
            dx, dinitial, dparameters = results[0], results[1 : 1 + states], results[1 + states :]
            backward(
                self.kind, x, initial, (w, u), arrays[count - 1], out, gates, dout, dlast, dx, dinitial,
                dparameters[:2], dparameters[2:], is_reverse, scratch, activation,
            )  # fmt: skip

        return run

    def cost(self, x: Meta, *rest: Any) -> Cost:
        """Returns the operations of the matrix products, and the bytes of sequences and weights."""
        w, u = rest[len(self.states) : len(self.states) + 2]
        steps = x.shape[0] * x.shape[1]
        # A multiplication and an addition for each weight, row and step; elementwise work is left out, it is of lower order.
        return Cost(2.0 * steps * (w.numel + u.numel), float(2 * x.nbytes + w.nbytes + u.nbytes))

    def _parts(self, x: Meta, rest: Sequence[Any]) -> list[slice] | None:
        # Without steps, rows or columns there is no work to divide.
        if min(x.shape) < 1:
            return None
        # Along the batch only: a step needs the step before, and its product needs all columns of the state.
        return RECURRENCES.parts(
            x.shape[1], self.cost(x, *rest).flops, multiple=TILE_ROWS if x.shape[1] >= TILE_ROWS else 1
        )

    def split(self, x: Meta, *rest: Any) -> Any:
        """Cuts the forward pass along the batch."""
        states = [0] * len(self.states)
        return tiles(self._parts(x, rest), 1, *states, *[WHOLE] * 4, 0, 1, *states, *[1] * len(self.kept))

    def grad_split(self, x: Meta, *rest: Any) -> Any:
        """Cuts the backward pass along the batch: the gradients of the parameters are sums over the tiles."""
        states = [0] * len(self.states)
        kept = [1] * len(self.kept)
        # Tiles are added in their order, which shapes alone decide: the sum does not depend on the number of threads.
        outs = [1, *states, *[PARTIAL_SUM] * 4]
        return tiles(self._parts(x, rest), 1, *states, *[WHOLE] * 4, 0, 1, *kept, 1, *states, *outs)

    # -------------------------------------------------------------------------------------------------------- torch
    def lower(self, torch: Any, *given: Any, is_reverse: bool, activation: str = "tanh") -> Any:
        """Runs torch's own layer; with lengths row by row, each cut to its length."""
        count = len(self.states)
        length = given[-1]
        x, *rest = (torch_wide_on_host(t) for t in given[:-1])
        initial, parameters = rest[:count], rest[count:]
        function = getattr(torch._VF, self.torch_name(activation))

        def layer(x: Any, initial: Sequence[Any]) -> tuple[Any, list[Any]]:
            if not len(x):
                return x.new_zeros(0, x.shape[1], initial[0].shape[1]), list(initial)
            # torch's states have an axis of layers and directions.
            state = tuple(one[None] for one in initial)
            # torch knows "reverse" only as the second direction of a layer that has both, so time is turned round outside.
            source = x.flip(0) if is_reverse else x
            state = state if count == 2 else state[0]
            out, *last = function(source, state, parameters, True, 1, 0.0, True, False, False)
            return out.flip(0) if is_reverse else out, [one[0] for one in last]

        if length is None:
            out, last = layer(x, initial)
        else:
            outs, lasts = [], []
            # Row by row, not packed: a reversed row of its own length then begins at its own last step.
            for row, size in enumerate(length.clamp(0, len(x)).tolist()):
                part, ends = layer(x[:size, row : row + 1], [s[row : row + 1] for s in initial])
                outs.append(torch.cat([part, part.new_zeros(len(x) - size, *part.shape[1:])]))
                lasts.append(ends)
            out = torch.cat(outs, 1) if outs else x.new_zeros(len(x), 0, initial[0].shape[1])
            last = [torch.cat(one) for one in zip(*lasts, strict=True)] if lasts else list(initial)
        low = given[0].dtype
        return (out.to(low), *(one.to(low) for one in last), *[None] * len(self.kept))

    def grad_lower(self, torch: Any, *given: Any, is_reverse: bool, activation: str = "tanh") -> Any:
        """Differentiates :meth:`lower` with torch."""
        count, outs = len(self.inputs), 1 + len(self.states)
        wide: list[Any] = [None if t is None else torch_wide_on_host(t) for t in given]
        with torch.enable_grad():
            leaves = [t.detach().clone().requires_grad_() for t in wide[: count - 1]]
            results = self.lower(torch, *leaves, wide[count - 1], is_reverse=is_reverse, activation=activation)
            seeds = wide[count + 1 + len(self.kept) :]
            # Without steps no result depends on the sequence or the weights, and torch refuses to differentiate by them.
            pairs = [(r, s) for r, s in zip(results[:outs], seeds, strict=True) if s is not None and r.requires_grad]
            zeros = [torch.zeros_like(leaf) for leaf in leaves]
            if not pairs:
                return tuple(z.to(g.dtype) for z, g in zip(zeros, given, strict=False))
            found = torch.autograd.grad([r for r, _ in pairs], leaves, [s for _, s in pairs], allow_unused=True)
        return tuple(
            (z if f is None else f).to(g.dtype) for f, z, g in zip(found, zeros, given[: count - 1], strict=True)
        )

    # --------------------------------------------------------------------------------------------------- definition
    def cases(self) -> tuple[Case, ...]:
        """Returns shapes: steps, batch, size of the input, width, whether there are lengths, reversed."""
        found = []
        for steps, batch, size, width, lengths, reverse in (
            (3, 2, 3, 2, False, False), (3, 2, 3, 2, False, True), (4, 3, 2, 3, True, False), (4, 3, 2, 3, True, True),
            (1, 1, 1, 1, False, False), (1, 4, 3, 2, True, True), (0, 2, 3, 2, False, False), (2, 0, 3, 2, True, False),
            (3, 17, 5, 4, True, True),
        ):  # fmt: skip
            # (3, 17, ...) has more rows than a tile and a tile of one row left over.
            columns = self.kind.gates * width
            shapes = (
                (steps, batch, size), *[(batch, width)] * len(self.states), (columns, size), (columns, width), (columns,),
                (columns,), (batch,) if lengths else None,
            )  # fmt: skip
            found.append(Case(shapes, {"is_reverse": reverse}))
        return tuple(found)

    def op(self, type: str, attrs: dict[str, Any], alternatives: Sequence[dict[str, Any]] = ()) -> OpDef:
        """Returns the definition of the op."""
        cases = self.cases()
        more = tuple(Case(case.shapes, {**case.attrs, **given}) for given in alternatives for case in cases[:4])
        onnx = _onnx.sequence(type.partition("_")[0].upper() if len(self.kept) else "RNN", len(self.states))
        return OpDef(
            type, self.slots, attrs={"is_reverse": False, **attrs}, infer=self.infer,
            ref=plain(self.ref(), self.scratch, recorded=True),
            traits=(READS_LENGTHS.where("SequenceLength"),), lower=self.lower, split=self.split, cost=self.cost,
            grad=GradOp(
                self.grad_slots, ref=plain(self.grad_ref(), self.grad_scratch, recorded=True), traits=(NO_GRADIENT_CALL,),
                lower=self.grad_lower,
                split=self.grad_split, cost=lambda *metas: self.cost(*metas).times(2),
                instead=f"call nn.{self.cell} once per step in a Python loop",
            ),
            uses_blas=True, paddle=ABSENT,
            domain=Domain(
                cases=(*cases, *more), ulps=32.0,
                values={
                    **{name: ValueRange(-1.0, 1.0) for name in _WEIGHTS},
                    "SequenceLength": ValueRange(0, "Input.0", dtype="int64"),
                },
            ), onnx=onnx,
        )  # fmt: skip


register(_Sequence(LSTM, "LSTMCell", lambda activation: "lstm").op("lstm_sequence", {}))
register(_Sequence(GRU, "GRUCell", lambda activation: "gru").op("gru_sequence", {}))
register(
    _Sequence(SIMPLE, "SimpleRNNCell", lambda activation: f"rnn_{activation}").op(
        "simple_rnn_sequence", {"activation": Attr("tanh", "str", one_of("tanh", "relu"))}, ({"activation": "relu"},)
    )
)
