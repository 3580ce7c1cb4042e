"""Recurrences over sequences of different lengths: the order of steps, activations, the cell of an LSTM, and the operators' frame.

Sequences are sorted by length, longest first; step ``t`` is then a matrix of the first rows that are left, as many as there are
sequences of more than ``t`` rows. Rows in the order of steps are called packed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, count_of, lengths_of
from tstatic.ir.attrs import Attr, one_of
from tstatic.ir.checks import check_dtype, check_rank
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.host import READS_LENGTHS


def _sigmoid(x: Array) -> None:
    # Not np.negative: numpy 2.4 repeats the first element of a column of float32 that it negates in place.
    np.subtract(0, x, x)
    np.exp(x, x)
    x += 1
    np.reciprocal(x, x)


def _tanh(x: Array) -> None:
    np.tanh(x, x)


def _relu(x: Array) -> None:
    np.maximum(x, 0, out=x)


def _identity(x: Array) -> None:
    pass


ACTIVATIONS: Mapping[str, tuple[Callable[[Array], None], Callable[[Array], Any]]] = {
    "sigmoid": (_sigmoid, lambda y: y * (1 - y)),
    "tanh": (_tanh, lambda y: 1 - y * y),
    "relu": (_relu, lambda y: y > 0),
    "identity": (_identity, lambda y: 1),
}
"""Name -> the function, in place, and its derivative as a function of the result."""


def activation(default: str) -> Attr:
    """Returns the attribute that names an activation."""
    return Attr(default, "str", one_of(*ACTIVATIONS))


# ---------------------------------------------------------------------------------------------------------------- steps
class Steps:
    """The rows of sequences in the order of steps.

    Args:
        offsets: The offsets of the sequences.
        reverse: Begin at the last row of each.
    """

    def __init__(self, offsets: Array, reverse: bool) -> None:
        lengths = lengths_of(offsets)
        # Stable, as Paddle's sort and the oracle's: sequences of equal length keep their order, so BatchGate compares row by row.
        self.order = np.argsort(-lengths, kind="stable")
        left = lengths[self.order]
        steps = np.arange(left[0] if len(left) else 0)
        # `left` falls; negated it rises, as searchsorted needs: the count of sequences longer than step t.
        self.counts = np.searchsorted(-left, -steps)
        # Cut to the number of steps: without any row, the leading 0 would be a step of its own.
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64)[: len(steps)]
        step = np.repeat(steps, self.counts)
        sequence = np.arange(len(step)) - np.repeat(self.starts, self.counts)
        first = (offsets[1:] - 1 if reverse else offsets[:-1])[self.order]
        # No two packed places name the same row, so results and gradients are written by plain assignment.
        self.rows = first[sequence] + (-step if reverse else step)

    def __iter__(self) -> Iterator[slice]:
        """Yields the packed rows of each step."""
        return (slice(s, s + k) for s, k in zip(self.starts.tolist(), self.counts.tolist(), strict=True))

    def before(self, packed: Array, initial: Array) -> Array:
        """Returns, packed, what stood one step before each row; ``initial`` before the first."""
        made = np.empty_like(packed)
        earlier = None
        for now in self:
            count = now.stop - now.start
            # Sequences only end: those left at this step are the first rows of the step before.
            made[now] = initial[:count] if earlier is None else packed[earlier.start : earlier.start + count]
            earlier = now
        return made

    def write(self, targets: Sequence[Array | None], names: Sequence[str], packed: Mapping[str, Array]) -> None:
        """Writes gradients where they are wanted: that of ``Input`` to its rows, those of initial states in their order."""
        places = {"Input": self.rows, "H0": self.order, "C0": self.order}
        for target, name in zip(targets, names, strict=True):
            if target is not None:
                target[places.get(name, ...)] = packed[name]

    def initial(self, state: Array | None, width: int, dtype: Any) -> Array:
        """Returns the states before the first step, in the order of the sorted sequences."""
        return np.zeros((len(self.order), width), dtype) if state is None else state[self.order]


def check_state(state: Meta | None, offsets: Meta, width: int, slot: str) -> None:
    """Checks the shape of an initial state.

    Raises:
        ShapeError: If it does not fit.
    """
    if state is None:
        return
    expected = (count_of(offsets), width)
    fits = state.rank == 2 and all(
        UNKNOWN in pair or pair[0] == pair[1] for pair in zip(state.shape, expected, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"the initial state {slot} has another shape than one row for each sequence",
            expected=["sequences", width],
            received=list(state.shape),
            fix="give one row for each sequence",
        )


def check_cells(
    x: Meta, offsets: Meta, weight: Meta, bias: Meta | None, gates: int, narrow: int | None = None, biases: int = 0
) -> int:
    """Checks the input and the parameters of a recurrence; returns the width of a state, -1 if it is not known.

    Args:
        x, offsets, weight, bias: The metadata.
        gates: How many parts of that width the input has.
        narrow: The width of what is fed back, if it is another one.
        biases: How many parts the bias has; as the input has if 0.

    Raises:
        ShapeError, DTypeError: If they do not fit.
    """
    check_dtype(x, ("float32", "float64"), "Input")
    check_sequences(x, offsets, "Input")
    check_rank(x, 2, "Input")
    # Feeds give the width; the run then checks the parameters again with known shapes.
    if x.shape[1] == UNKNOWN:
        return UNKNOWN
    width = x.shape[1] // gates
    rows = width if narrow is None else narrow
    for meta, slot, wanted in (
        (weight, "Weight", (rows, gates * width)), (bias, "Bias", (1, (biases or gates) * width)),
    ):  # fmt: skip
        if meta is not None and meta.known and UNKNOWN not in wanted and meta.shape != wanted:
            raise ShapeError(
                f"the {slot} has another shape than the gates need",
                expected=list(wanted),
                received=list(meta.shape),
                fix=f"give the {slot} this shape",
            )
    return width


# ----------------------------------------------------------------------------------------------------------------- LSTM
@dataclass
class Lstm:
    """An LSTM over sequences, with a projection of the hidden state or without.

    Attributes:
        steps: The order of the rows.
        weight: ``[P, 4 * D]``.
        bias: ``[1, 4 * D]``, and the three weights of the peepholes.
        projection: ``[D, P]``, or ``None``: the hidden state is fed back.
        attrs: The op's attributes.
    """

    steps: Steps
    weight: Array
    bias: Array
    projection: Array | None
    attrs: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.width = self.weight.shape[1] // 4
        kinds = ("gate", "cell", "candidate", "proj")
        (self.gate, self.dgate), (self.cell, self.dcell), (self.candidate, self.dcandidate), (self.proj, self.dproj) = (
            ACTIVATIONS[self.attrs.get(f"{kind}_activation", "identity")] for kind in kinds
        )
        # Paddle keeps the peepholes in the bias: D numbers each for input, forget and output behind the 4 D of the gates.
        peepholes = self.bias.reshape(-1)[4 * self.width :]
        self.peepholes = np.split(peepholes, 3) if self.attrs["use_peepholes"] else None
        self.limits = self.attrs.get("cell_clip", 0.0), self.attrs.get("proj_clip", 0.0)

    def parts(self, gates: Array) -> list[Array]:
        """Returns views of the candidate and of the input, forget and output gates."""
        d = self.width
        return [gates[:, i * d : (i + 1) * d] for i in range(4)]

    def run(self, x: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
        """Returns results, cells and gates, packed; ``x`` is packed, the states are sorted."""
        gates = x + self.bias.reshape(-1)[: 4 * self.width]
        cells = np.empty((len(x), self.width), x.dtype)
        outs = np.empty((len(x), self.weight.shape[0]), x.dtype)
        for now in self.steps:
            count = now.stop - now.start
            # Sequences that ended are the last rows; cutting them off needs no mask.
            h, c = h[:count], c[:count]
            step = gates[now]
            step += h @ self.weight
            # Views of `gates`: the activations run in place, and the backward pass reads them from there.
            a, i, f, o = self.parts(step)
            if self.peepholes is not None:
                i += c * self.peepholes[0]
                f += c * self.peepholes[1]
            self.candidate(a)
            self.gate(i)
            self.gate(f)
            # The output gate looks at the new cell after clipping, so it waits; the other two look at the old one.
            c = cells[now] = self.clipped(a * i + c * f, 0)
            if self.peepholes is not None:
                o += c * self.peepholes[2]
            self.gate(o)
            h = outs[now] = self.result(self.hidden(c, o)[0])
        return outs, cells, gates

    def clipped(self, values: Array, which: int) -> Array:
        """Returns the values within the limit of cells (0) or of the projection (1)."""
        limit = self.limits[which]
        return np.clip(values, -limit, limit) if limit > 0 else values

    def hidden(self, c: Array, o: Array) -> tuple[Array, Array]:
        """Returns the hidden state, and the activation of the cell."""
        active = c.copy()
        self.cell(active)
        return o * active, active

    def result(self, hidden: Array) -> Array:
        """Returns what is given out and fed back."""
        if self.projection is None:
            return hidden
        made = hidden @ self.projection
        self.proj(made)
        return self.clipped(made, 1)

    def back(
        self, h0: Array, c0: Array, outs: Array, cells: Array, gates: Array, douts: Array | None, dcells: Array | None
    ) -> dict[str, Array]:
        """Returns the gradients by the name of what they belong to: those of inputs packed, those of states sorted.

        Args:
            h0, c0: Sorted initial states.
            outs, cells, gates: What :meth:`run` returned.
            douts, dcells: Packed gradients of results and cells.
        """
        before = self.steps.before(cells, c0)
        dgates = np.empty_like(gates)
        dresults = np.empty_like(outs)
        hiddens = np.empty_like(cells)
        dh, dc = np.zeros_like(h0), np.zeros_like(c0)
        for now in reversed(list(self.steps)):
            count = now.stop - now.start
            a, i, f, o = self.parts(gates[now])
            da, di, df, do = self.parts(dgates[now])
            c, old = cells[now], before[now]
            # Cheap to recompute from cell and gate, so neither is an output that the forward pass would have to keep.
            hiddens[now], active = self.hidden(c, o)
            dhidden = dh[:count] if douts is None else dh[:count] + douts[now]
            if self.projection is not None:
                dhidden = dhidden * self.dproj(outs[now]) * self.inside(outs[now], 1)
                # Gradient of the product with the projection, kept for all steps: its weights' gradient is one product at the end.
                dresults[now] = dhidden
                dhidden = dhidden @ self.projection.T
            np.multiply(dhidden * active, self.dgate(o), out=do)
            dcell = dc[:count] + dhidden * o * self.dcell(active)
            if dcells is not None:
                dcell += dcells[now]
            if self.peepholes is not None:
                dcell += do * self.peepholes[2]
            # After all of its readers, the output gate's peephole included: what clipping cut passes no gradient to any of them.
            dcell = dcell * self.inside(c, 0)
            np.multiply(dcell * i, self.dcandidate(a), out=da)
            np.multiply(dcell * a, self.dgate(i), out=di)
            np.multiply(dcell * old, self.dgate(f), out=df)
            dc[:count] = dcell * f
            if self.peepholes is not None:
                dc[:count] += di * self.peepholes[0] + df * self.peepholes[1]
            # Only the first `count` rows: the gradient of a shorter sequence's state stays 0 until its own last step.
            np.matmul(dgates[now], self.weight.T, out=dh[:count])
        dbias = [dgates.sum(0)]
        if self.peepholes is not None:
            _, di, df, do = self.parts(dgates)
            dbias += [(di * before).sum(0), (df * before).sum(0), (do * cells).sum(0)]
        found = {
            "Input": dgates, "Weight": self.steps.before(outs, h0).T @ dgates, "Bias": np.concatenate(dbias)[None],
            "H0": dh, "C0": dc,
        }  # fmt: skip
        if self.projection is not None:
            found["ProjWeight"] = hiddens.T @ dresults
        return found

    def inside(self, values: Array, which: int) -> Any:
        """Returns where values are within their limit, so that their gradient goes on."""
        limit = self.limits[which]
        return np.abs(values) < limit if limit > 0 else 1


# --------------------------------------------------------------------------------------------------------------- oracle
def torch_activation(torch: Any, name: str) -> Callable[[Any], Any]:
    """Returns torch's function of a name."""
    found: Callable[[Any], Any] = (lambda x: x) if name == "identity" else getattr(torch, name)
    return found


def torch_over_sequences(
    torch: Any, x: Any, offsets: Any, reverse: bool, states: Any, step: Callable[[Any, Any], Any]
) -> list[Any]:
    """Runs a step over the rows of each sequence; returns what it gives, one tensor for each of its results.

    Args:
        torch: The module.
        x: The rows.
        offsets: Their offsets.
        reverse: Begin at the last row.
        states: Initial states of each sequence: tensors ``[sequences, ...]``.
        step: ``(row [1, width], states) -> states``; the new states are the results.
    """
    rows: list[Any] = [None] * len(x)
    for number, (first, end) in enumerate(itertools.pairwise(offsets.tolist())):
        state = tuple(s[number : number + 1] for s in states)
        for row in reversed(range(first, end)) if reverse else range(first, end):
            # Row by row and sequence by sequence: written apart from the packed form, so that the two check each other.
            state = rows[row] = step(x[row : row + 1], state)
    return [torch.cat([s[:0], *(row[i] for row in rows)]) for i, s in enumerate(states)]


def torch_packed(torch: Any, offsets: Any, reverse: bool) -> Any:
    """Returns the rows in the order of steps: step 0 of all sequences, the longest first, then step 1."""
    bounds = offsets.tolist()
    lengths = [b - a for a, b in itertools.pairwise(bounds)]
    order = sorted(range(len(lengths)), key=lambda n: -lengths[n])
    rows = [
        bounds[n + 1] - 1 - t if reverse else bounds[n] + t
        for t in range(max(lengths, default=0))
        for n in order
        if t < lengths[n]
    ]
    return torch.tensor(rows, dtype=torch.int64)


def torch_gradients(torch: Any, function: Callable[..., Any], given: list[Any], arriving: list[Any]) -> list[Any]:
    """Returns the gradients that torch itself computes; zeros where an input has no part.

    Args:
        torch: The module.
        function: The lowering, of all inputs; its first results have the gradients.
        given: Inputs; ``None`` and integers need none.
        arriving: Gradients of the results; ``None`` for zeros.
    """
    leaves = [t.detach().clone().requires_grad_() if t is not None and t.is_floating_point() else t for t in given]
    with torch.enable_grad():
        results = function(*leaves)
        pairs = [(r, g) for r, g in zip(results, arriving, strict=False) if g is not None]
        wanted = [t for t in leaves if t is not None and t.is_floating_point()]
        # allow_unused: the initial state of sequences without rows reaches no result.
        found = iter(torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
    gradients: list[Any] = []
    for leaf in leaves:
        if leaf is None or not leaf.is_floating_point():
            gradients.append(None)
            continue
        one = next(found)
        gradients.append(torch.zeros_like(leaf) if one is None else one)
    return gradients


# ------------------------------------------------------------------------------------------------------------ operators
def over_sequences(
    type: str, inputs: Sequence[str], outputs: str, kept: str, results: Sequence[str], attrs: Mapping[str, Any],
    functions: tuple[Callable[..., Any], Callable[..., None], Callable[..., None], Callable[..., Any]],
    cases: tuple[Case, ...], instead: str, **more: Any,
) -> OpDef:  # fmt: skip
    """Returns the operator of a recurrence over sequences.

    Args:
        type: Op type.
        inputs: Slots of the values that have gradients, ``"Input"`` first, whose offsets are the second input.
        outputs: Slots of the outputs.
        kept: Slots of those that the backward pass reads.
        results: Slots of those that gradients arrive for.
        attrs: Attributes.
        functions: The shapes' function, the references of both passes, and the form in torch, which torch differentiates.
        cases: Shapes and attributes.
        instead: What to write where second derivatives are asked for.
        **more: Further fields of the definition.
    """
    infer, ref, back, lower = functions
    given = ", ".join(("Input", f"Input{LOD}", *inputs[1:]))
    count, read = 1 + len(inputs), len(kept.split(", "))
    names = [name.strip("~") for name in outputs.split(", ")]
    places = [names.index(name.strip("?")) for name in results]

    def lower_back(torch: Any, *arrays: Any, **attrs: Any) -> Any:
        def chosen(*own: Any) -> list[Any]:
            made = lower(torch, *own, **attrs)
            return [made[place] for place in places]

        found = torch_gradients(torch, chosen, list(arrays[:count]), list(arrays[count + read :]))
        # Offsets are whole numbers and have no gradient.
        return found[0], *found[2:]

    arriving = (f"{name.strip('?')}{GRAD}{'?' * name.endswith('?')}" for name in results)
    return OpDef(
        type, f"{given} -> {outputs}", attrs=attrs, infer=infer, ref=ref, traits=(READS_LENGTHS,), lower=lower, lod="Input",
        amp="black", uses_blas=True,
        grad=GradOp(
            f"{given}, {kept}, {', '.join(arriving)} -> {', '.join(name.strip('?') + GRAD for name in inputs)}",
            infer=lambda x, offsets, *rest: (x, *rest[: count - 2]), ref=back, traits=(READS_LENGTHS,), lower=lower_back,
            instead=instead,
        ),
        domain=Domain(
            cases=cases, values={f"Input{LOD}": ValueRange(dtype="int64", offsets="Input.0")},
            # 80 ulps seen (lstmp_grad), 44 of lstm_grad, 10 of gru_grad: errors of a step go on into all that follow.
            floats=("float32", "float64"), ulps=256.0,
        ), **more,
    )  # fmt: skip
