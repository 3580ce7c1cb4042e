"""Finds masks that let a row of scores see the columns up to its own, by what they hold: constants are computed at compile time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tstatic.fusion.attention.parts import CAUSAL_MASK
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import DType, Meta
from tstatic.passes.fold import Array, Constants

CAUSAL, FINITE = "causal", "finite"
"""Attributes of an op that masks scores: the slot of the scores and the diagonal that a row sees up to; a number that is too large
for that."""

FAR = -1e9
"""A number, as the mask's type holds it, that no sum with a score brings back: its power is 0 beside that of any other score."""

LARGEST = 64 << 20
"""Bytes of a mask, at most, and of each value that it is made of."""


@dataclass(frozen=True, slots=True)
class Found:
    """A constant mask that is 0 on and below a diagonal.

    Attributes:
        diagonal: Row ``i`` sees the columns up to ``i + diagonal``.
        highest: The largest number above the diagonal.
        infinite: Whether all of them are minus infinity.
    """

    diagonal: int
    highest: float
    infinite: bool

    def hides(self, dtype: DType) -> bool:
        """Returns whether nothing above the diagonal counts, in a row that sees a score."""
        # To float16 it is -inf, which all that float16 masks with it is, too.
        with np.errstate(over="ignore"):
            return self.infinite or self.highest <= float(np.array(FAR).astype(dtype.np))


def triangle(mask: Array, rows: int, columns: int) -> Found | None:
    """Returns what a mask of scores does, if it is triangular and leaves each row a column; ``None`` for any other.

    Args:
        mask: What is added, ``[..., rows, columns]``.
        rows, columns: Sizes of the scores.
    """
    if mask.ndim < 2 or mask.shape[-2:] != (rows, columns):
        return None
    matrices = mask.reshape(-1, rows, columns)
    first = matrices[0]
    # The first row says which diagonal it is.
    diagonal = int(np.argmin(np.append(first[0] == 0, False))) - 1
    if not 0 <= diagonal < columns - 1 or any(not np.array_equal(first, other) for other in matrices[1:]):
        return None
    seen = np.tri(rows, columns, diagonal, dtype=bool)
    if not np.array_equal(first == 0, seen):
        return None
    hidden = first[~seen].astype(np.float64)
    # NaN is not below 0, either.
    return Found(diagonal, float(hidden.max()), bool(np.isneginf(hidden).all())) if (hidden < 0).all() else None


class Masks:
    """The masks of one program.

    Attributes:
        kept: Values that ops with a mark read, and what they hold.
    """

    def __init__(self, program: FrozenProgram, metas: Mapping[str, Meta]) -> None:
        self._constants = Constants(program, metas, LARGEST)
        self._metas = metas
        self._found: dict[tuple[str, str, tuple[int, ...]], Found | None] = {}
        self.kept: dict[str, Array] = {}

    def marks(self, ops: Sequence[FrozenOp], raw: str) -> dict[int, FrozenOp]:
        """Returns the ops of a chain from raw scores to a softmax that get a mark, by their place in the chain."""
        value = raw
        for place, op in enumerate(ops):
            slot = next(s.name for s, e in zip(op.definition.inputs, op.inputs, strict=True) if e == value)
            found = self._of(op, slot)
            if found is not None:
                # A second operand could raise what a finite mask hides.
                alone = all(len([*o.contents()]) == 1 for o in ops if o is not op)
                fits = _keeps(ops[place + 1 :], infinite=found.infinite) and (found.infinite or alone)
                if fits and found.hides(self._mask_type(op, slot)):
                    others = [v for v in op.contents() if v != value]
                    self.kept.update((v, a) for v in others if (a := self._constants.get(v)) is not None)
                    return {place: replace(op, attrs={**op.attrs, CAUSAL: (slot, found.diagonal)})}
                if not found.infinite:
                    return {place: replace(op, attrs={**op.attrs, FINITE: found.highest})}
            (value,) = op.writes()
        return {}

    def _mask_type(self, op: FrozenOp, slot: str) -> DType:
        return self._metas[next(v for v in op.contents() if v != op.input(slot))].dtype

    def _of(self, op: FrozenOp, slot: str) -> Found | None:
        """Returns what an op adds to the scores in a slot, or puts in their place."""
        (out,) = op.writes()
        shape = self._metas[out].shape
        if len(shape) < 2 or self._metas[str(op.input(slot))].shape != shape:
            return None
        key = (op.type, "/".join(v for v in op.contents() if v != op.input(slot)), shape)
        if key not in self._found:
            self._found[key] = self._looked_at(op, slot, shape)
        return self._found[key]

    def _looked_at(self, op: FrozenOp, slot: str, shape: tuple[int, ...]) -> Found | None:
        rows, columns = shape[-2:]
        if op.type == "elementwise_add":
            other = op.input("Y" if slot == "X" else "X")
            mask = self._constants.get(str(other))
            rank = 0 if mask is None else mask.ndim
            # Only a mask whose last dimensions are those of the scores.
            if mask is None or op.attrs["axis"] not in (-1, len(shape) - rank):
                return None
            return triangle(mask, rows, columns)
        if op.type == "where" and slot == "X":
            condition, never = (self._constants.get(str(op.input(s))) for s in ("Condition", "Y"))
            if condition is None or never is None or condition.ndim < 2 or never.size != 1:
                return None
            # A number in the place of a score takes no part of it along: as if it were added to 0.
            return triangle(np.where(condition, 0.0, np.float64(never.reshape(())[()])), rows, columns)
        return None


def _keeps(ops: Sequence[FrozenOp], *, infinite: bool) -> bool:
    """Returns whether scores that are masked are so behind further ops, too."""
    return all(
        op.type == "cast"
        or (infinite and (op.type == "elementwise_add" or (op.type == "scale" and op.attrs["scale"] > 0)))
        for op in ops
    )


def gradient_mark(op: FrozenOp, marked: FrozenOp) -> FrozenOp:
    """Returns an op of the gradient, with a mark if it is that of a marked op: where nothing is seen, weights are 0."""
    if op.definition.of != marked.type or marked.type != "where" or op.input("Condition") != marked.input("Condition"):
        return op
    return replace(op, attrs={**op.attrs, CAUSAL: ("Out@GRAD", marked.attrs[CAUSAL][1])})


def for_kernel(body: Sequence[FrozenOp]) -> list[FrozenOp]:
    """Returns the ops of an attention as kernels compute them: marked ones know the diagonal, and read no mask."""
    found: list[FrozenOp] = []
    renamed: dict[str, str] = {}
    for op in body:
        if renamed:
            op = op.with_inputs(renamed)
        if CAUSAL not in op.attrs:
            found.append(op)
            continue
        slot, diagonal = op.attrs[CAUSAL]
        (out,) = op.writes()
        if op.definition.of:
            renamed[out] = str(op.input(slot))
            continue
        found.append(replace(op, definition=CAUSAL_MASK, inputs=(op.input(slot),), attrs={"diagonal": diagonal}))
    return found
