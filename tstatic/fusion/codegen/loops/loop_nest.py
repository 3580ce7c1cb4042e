"""Ops as one loop nest: where each value lies in the common iteration space, what is read, computed and written per element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tstatic.fusion.codegen.define import LoopBodies, LoopBody, define
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.ir import expr
from tstatic.ir.frozen import FrozenOp, flat
from tstatic.ir.types import DType, Meta, Shape, int32

AxisMap = tuple[int, ...]
"""Which dimensions of the iteration space a value's own dimensions of size above 1 are, in order."""


class CodegenUnsupported(Exception):  # noqa: N818
    """The ops cannot be one kernel: a stable code, and a sentence."""

    def __init__(self, code: str, reason: str, op: FrozenOp | None = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.op = op


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in memory.

    Attributes:
        name: Parameter of the kernel.
        value: The program's value.
        dtype: Its type in memory.
        dims: Which dimensions of the collapsed space it has; a missing one is broadcast, or summed for an output.
    """

    name: str
    value: str
    dtype: DType
    dims: tuple[bool, ...]

    @property
    def full(self) -> bool:
        return all(self.dims)


DRAW_ROW = 2
"""Integers that the table of an op that draws begins with: its number, and its own seed."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Random numbers of an op.

    Attributes:
        position: The op's number in the program.
        seed: Its own seed.
        dims: Which dimensions of the collapsed space the numbers have.
        loaded: Names and numbers that its expressions read from memory.
    """

    position: int
    seed: int
    dims: tuple[bool, ...]
    loaded: tuple[tuple[str, int | float], ...] = ()

    @property
    def operand(self) -> Operand:
        """In the place of a value in memory: a number's place in the stream is that of an element in an array."""
        return Operand("", "", int32, self.dims)


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A loop nest.

    Attributes:
        iteration_space: Sizes of the collapsed dimensions, outermost first; ``(1,)`` for single elements.
        inputs, outputs: Operands.
        ops: With their loop bodies, in order.
        reads: (index of the op, name inside its expressions) -> operand's index, or the value of an earlier op.
        metas: Metadata of all values.
        inner: For a group along rows: where the dimensions of a row begin.
        drawings: Random numbers that ops draw.
        drawn: Index of an op -> that of its random numbers.
    """

    iteration_space: Shape
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    ops: tuple[tuple[FrozenOp, LoopBody], ...]
    reads: Mapping[tuple[int, str], int | str]
    metas: Mapping[str, Meta] = field(repr=False)
    inner: int | None = None
    drawings: tuple[Drawing, ...] = ()
    drawn: Mapping[int, int] = field(default_factory=dict)

    @property
    def numel(self) -> int:
        return _product(self.iteration_space)

    def draw_row(self, drawing: int) -> int:
        """Returns where in the table of the ops that draw the numbers of one of them begin."""
        return sum(DRAW_ROW + len(one.loaded) for one in self.drawings[:drawing])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return _product(self.iteration_space[: self.inner])

    def per_row(self, operand: Operand) -> bool:
        """Returns whether an operand has one element per row."""
        if self.inner is None:
            return False
        return all(operand.dims[: self.inner]) and not any(operand.dims[self.inner :])

    @property
    def summed(self) -> tuple[Operand, ...]:
        """Outputs that are sums."""
        return tuple(o for o in self.outputs if not o.full and not self.per_row(o))

    @property
    def inplace(self) -> tuple[tuple[str, str], ...]:
        """(input, output) that may lie in the same memory: each element is read before what is made of it is written there.

        A program reads all elements of its part before it writes the first of them, or reads them again just before it
        writes them, and no other program reads them.
        """
        # A value that is read at two places may be read at the second one after it was overwritten at the first.
        met = Counter(o.value for o in self.inputs)
        sources = [o for o in self.inputs if o.full and met[o.value] == 1]
        behind: dict[str, set[str]] = {}
        for k, (op, formula) in enumerate(self.ops):
            reached: set[str] = set()
            for name in formula.inputs:
                source = self.reads[k, name]
                reached |= behind[source] if isinstance(source, str) else {self.inputs[source].value}
            behind.update(dict.fromkeys(op.writes(), reached))
        return tuple(
            (source.value, result.value)
            for result in self.outputs
            if result.full
            for source in sources
            if source.value in behind[result.value] and source.dtype.itemsize == result.dtype.itemsize
        )


# Cached, as ``build`` asks for each op again with every op that joins its group.
@lru_cache(maxsize=4096)
def _large(shape: Shape) -> tuple[int, ...]:
    return tuple(i for i, n in enumerate(shape) if n != 1)


def _axis_maps(ops: Sequence[FrozenOp], formulas: Sequence[LoopBody]) -> tuple[Shape, list[AxisMap]]:
    """Returns the iteration space, and per op which of its dimensions the op's own ones are.

    Placing begins at an op that has the whole space and follows shared values, so that an operand that one op meets at an
    ``axis`` stays there.
    """
    # Dimensions of one element have no place: an op on [8, 1, 4] and one on [8, 4] are the same loops.
    sizes = [tuple(n for n in d.full if n != 1) for d in formulas]
    # Of the shapes with most dimensions the one with most elements; all others must fit into it.
    iteration_space = max(dict.fromkeys(sizes), key=lambda s: (len(s), _product(s)))
    start = sizes.index(iteration_space)
    found: dict[int, AxisMap] = {start: tuple(range(len(iteration_space)))}
    touched = [_touched(op, formula) for op, formula in zip(ops, formulas, strict=True)]
    # Value -> where its dimensions lie, known from the ops that were placed so far.
    values: dict[str, AxisMap] = {}
    made = _made(ops)
    # An op is tried again with each op that is placed, until a value that both touch says where it lies.
    rest = [i for i in range(len(ops)) if i != start]
    pending = [start]
    while pending:
        index = pending.pop()
        axis_of = dict(zip(_large(formulas[index].full), found[index], strict=True))
        for entry, large in touched[index]:
            here = tuple(map(axis_of.__getitem__, large))
            known = values.setdefault(entry, here)
            # An input at two places is two operands; a value of the group lives in registers, at one place.
            if known != here and entry in made:
                raise _conflict(entry, ops[index])
        unplaced = []
        for other in rest:
            placed = _placed(ops[other], formulas[other], touched[other], values, iteration_space)
            if placed is None:
                unplaced.append(other)
            else:
                found[other] = placed
                pending.append(other)
        rest = unplaced
    if rest:
        op, formula = ops[rest[0]], formulas[rest[0]]
        raise CodegenUnsupported(
            "SHAPE_MISMATCH", f"{op.type} works on {list(formula.full)}, the others on {list(iteration_space)}", op
        )
    return iteration_space, [found[i] for i in range(len(ops))]


def _made(ops: Sequence[FrozenOp]) -> set[str]:
    return {v for op in ops for v in op.writes()}


def _conflict(value: str, op: FrozenOp) -> CodegenUnsupported:
    return CodegenUnsupported("AXIS_CONFLICT", f"'{value}' is used at two places of the common shape", op)


def _touched(op: FrozenOp, formula: LoopBody) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the values of an op, each with the dimensions of its aligned shape that are above 1."""
    done: list[tuple[str, tuple[int, ...]]] = []
    for read, shape in zip(formula.entries, formula.aligned, strict=True):
        if shape is not None and read is not None:
            done.append((read, _large(shape)))
    for i, shape in formula.targets.items():
        entry = op.outputs[i]
        assert isinstance(entry, str)
        done.append((entry, _large(shape)))
    return done


def _placed(
    op: FrozenOp,
    formula: LoopBody,
    touched: Sequence[tuple[str, tuple[int, ...]]],
    values: Mapping[str, AxisMap],
    iteration_space: Shape,
) -> AxisMap | None:
    """Returns where an op's dimensions lie, if values with known places say so."""
    axis_of: dict[int, int] = {}
    for entry, large in touched:
        place = values.get(entry)
        if place is None or len(large) != len(place):
            continue
        for i, p in zip(large, place, strict=True):
            if axis_of.setdefault(i, p) != p:
                raise _conflict(entry, op)
    wanted = _large(formula.full)
    if axis_of.keys() >= {*wanted}:
        return tuple(map(axis_of.__getitem__, wanted))
    # A dimension is unknown: only the whole space leaves no choice.
    sizes = tuple(map(formula.full.__getitem__, wanted))
    return tuple(range(len(iteration_space))) if sizes == iteration_space else None


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for s in sizes:
        total *= s
    return total


def build(
    ops: Sequence[FrozenOp],
    metas: Mapping[str, Meta],
    kept: Sequence[str],
    known: LoopBodies | None = None,
) -> LoopNest:
    """Puts ops into one loop nest.

    Args:
        ops: In program order.
        metas: Metadata of all their values; every size is known.
        kept: Values that are written to memory; all others stay in registers.
        known: What is already defined, for a caller who builds many groups of the same ops.

    Raises:
        CodegenUnsupported: With the reason, if they do not fit.
    """
    formulas = []
    written: set[str] = set()
    for op in ops:
        for one in op.definition.indices:
            for checked in (v for v in flat([op.input(one.slot)]) if v in written):
                # A kernel can neither raise nor check what it makes itself: positions are checked in memory, before it.
                what = "probabilities" if one.chances else "positions"
                raise CodegenUnsupported("POSITION", f"{op.type} reads '{checked}' as {what}", op)
        written.update(op.writes())
        formula = define(op, metas) if known is None else known.of(op)
        if formula is None:
            raise CodegenUnsupported("NOT_POINTWISE", f"{op.type} states no expression", op)
        if any(metas[v].dtype.is_complex for v in (*op.reads(), *op.writes())):
            raise CodegenUnsupported("COMPLEX", f"{op.type} works on complex values", op)
        # A grid of 0 programs cannot be launched.
        if 0 in formula.full:
            raise CodegenUnsupported("EMPTY", f"{op.type} has no elements", op)
        formulas.append(formula)
    iteration_space, places = _axis_maps(ops, formulas)
    made = _made(ops)
    rank = len(iteration_space)
    # A row's dimensions, if an op works along rows; a sum over just these then is one along rows as well.
    reduced = _row_dimensions(formulas, places, ops)
    each_row = tuple(d for d in range(rank) if d not in reduced)
    if reduced and strict_numerics():
        for op, formula in zip(ops, formulas, strict=True):
            # By itself it is not a kernel along rows, and adds in another order.
            if formula.inner is None and any(shape != formula.full for shape in formula.targets.values()):
                raise CodegenUnsupported("NUM_STRICT", f"{op.type} adds in another order by itself", op)
    if reduced:
        formulas = [_summed_by_row(d, p, each_row, rank) for d, p in zip(formulas, places, strict=True)]
    # A value that ops meet at two places of the space, as with two values of ``axis``, is two operands.
    inputs: dict[tuple[str, AxisMap], int] = {}
    reads: dict[tuple[int, str], int | str] = {}
    placed: dict[str, AxisMap] = {}
    sums: set[str] = set()
    # A forward op and its gradient, which draws the same numbers again, share them in one kernel.
    drawings: dict[tuple[int, int, tuple[tuple[str, int | float], ...], AxisMap], int] = {}
    drawn: dict[int, int] = {}
    # In program order: what an op reads of the group is placed before it.
    for k, (op, formula, place) in enumerate(zip(ops, formulas, places, strict=True)):
        axis_of = dict(zip(_large(formula.full), place, strict=True))
        if formula.draw is not None:
            there = tuple(map(axis_of.__getitem__, _large(formula.draw.shape)))
            if there != tuple(sorted(there)):
                raise _conflict(next(iter(op.writes())), op)
            key = formula.draw.position, formula.draw.seed, formula.draw.loaded, there
            drawn[k] = drawings.setdefault(key, len(drawings))
        for name, position in formula.inputs.items():
            read, shape = formula.entries[position], formula.aligned[position]
            assert read is not None
            assert shape is not None
            here = tuple(map(axis_of.__getitem__, _large(shape)))
            if read in made:
                if read in sums:
                    raise CodegenUnsupported("SUM_INSIDE", f"{op.type} reads the sum '{read}'", op)
                if read in placed and placed[read] != here:
                    raise _conflict(read, op)
                reads[k, name] = read
            else:
                reads[k, name] = inputs.setdefault((read, here), len(inputs))
        for position, shape in formula.targets.items():
            entry = op.outputs[position]
            assert isinstance(entry, str)
            placed[entry] = tuple(map(axis_of.__getitem__, _large(shape)))
            # Fewer dimensions than its op: a sum, or one value per row.
            summed = placed[entry] != place and position not in formula.per_row
            if summed:
                sums.add(entry)
            # A sum is complete when all programs are done, so no op of the same launch can read it.
            if summed and entry not in kept:
                raise CodegenUnsupported(
                    "SUM_INSIDE", f"{op.type} sums '{entry}', which another op of the group reads", op
                )
            small = not summed and len(placed[entry]) != rank
            # One value per row can be written along rows.
            if entry in kept and small and not (reduced and placed[entry] == each_row):
                raise CodegenUnsupported("SMALL_OUTPUT", f"'{entry}' is smaller than the group's common shape", op)
            if summed and len(place) != rank:
                raise CodegenUnsupported("SHAPE_MISMATCH", f"{op.type} sums over a part of the common shape", op)
    outputs = [(v, placed[v]) for v in kept]
    all_places = [place for _, place in (*inputs, *outputs)] + [place for *_, place in drawings]
    rows = [[d in place for d in range(rank)] for place in all_places]
    # A row's dimensions never join those before them.
    rows.append([d not in reduced for d in range(rank)])
    iteration_space, rows = _collapsed(iteration_space, rows)
    outer = rows.pop()
    if reduced and outer != sorted(outer, reverse=True):
        raise CodegenUnsupported("ROWS", "the dimensions of a row are not the last ones of the common shape")
    inner = outer.index(False) if reduced else None
    operands = [tuple(r) for r in rows]
    # Numbered, not the user's names: programs that differ in
    # names alone share a kernel, and no name can break the text.
    names = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(len(outputs))]
    group = LoopNest(
        iteration_space,
        tuple(Operand(n, v, metas[v].dtype, d) for n, (v, _), d in zip(names[0], inputs, operands, strict=False)),
        tuple(Operand(n, v, metas[v].dtype, d) for n, (v, _), d in zip(names[1], outputs, operands[len(inputs) :], strict=False)),
        tuple(zip(ops, formulas, strict=True)),
        reads,
        metas,
        inner,
        tuple(
            Drawing(position, seed, dims, loaded)
            for (position, seed, loaded, _), dims in zip(drawings, operands[len(inputs) + len(outputs) :], strict=True)
        ),
        drawn,
    )  # fmt: skip
    # It would pass for a value per row (`summed` leaves those out), and be stored without being added up.
    if any(o.value in sums and group.per_row(o) for o in group.outputs):
        raise CodegenUnsupported("SUM_SHAPE", "a sum along the rows of operators that work on whole rows")
    _check_sums(group)
    return group


def arrays_of_uniform(ops: Sequence[FrozenOp], kept: Sequence[str], known: LoopBodies) -> int | None:
    """Returns how many arrays a loop nest of ops reads and writes if all have one shape, for which :func:`build` never fails.

    A search that tries each op with the group before it would otherwise build the whole group again with each op.

    Args:
        ops: In program order.
        kept: Values that are written to memory.
        known: What is already defined.

    Returns:
        ``None`` if a shape differs, or an op sums, draws, works along rows or reads positions: then ``build`` says.
    """
    shape: Shape | None = None
    read: set[str] = set()
    for op in ops:
        found = known.uniform(op)
        if found is None or (shape is not None and found[0] != shape):
            return None
        shape = found[0]
        read |= found[1]
    return len(read - _made(ops)) + len(kept)


def _summed_by_row(formula: LoopBody, place: AxisMap, each_row: AxisMap, rank: int) -> LoopBody:
    """Makes a sum over just the dimensions of a row one along rows: no second kernel, and others may read it."""
    axis_of = dict(zip(_large(formula.full), place, strict=True))
    mine = [
        position
        for position, shape in formula.targets.items()
        if len(place) == rank
        and tuple(axis_of[i] for i in _large(shape)) == each_row
        and position not in formula.per_row
    ]
    if not mine:
        return formula
    # The op's expression becomes the sum of its row, made by the program that holds the row.
    nodes = {**formula.nodes, **{i: expr.make("rsum", formula.nodes[i]) for i in mine}}
    return replace(formula, nodes=nodes, per_row=formula.per_row | frozenset(mine))


def _check_sums(group: LoopNest) -> None:
    """Sums that a kernel can make: all of the same shape, over a run of dimensions; along rows, over the rows."""
    summed = group.summed
    if not summed:
        return
    dims = summed[0].dims
    if any(o.dims != dims for o in summed):
        raise CodegenUnsupported("TWO_SUMS", "the group sums over different dimensions")
    kept = [d for d, has in enumerate(dims) if has]
    if group.inner is not None and kept != list(range(group.inner, len(dims))):
        raise CodegenUnsupported("SUM_SHAPE", "a sum over the rows keeps something else than the columns")
    if kept and kept != list(range(kept[0], kept[-1] + 1)):
        raise CodegenUnsupported("SUM_SHAPE", "a sum keeps dimensions that do not lie together")


def _row_dimensions(formulas: Sequence[LoopBody], places: Sequence[AxisMap], ops: Sequence[FrozenOp]) -> frozenset[int]:
    """Returns which dimensions of the iteration space a row has; all ops along rows must agree."""
    found: frozenset[int] | None = None
    for formula, place, op in zip(formulas, places, ops, strict=True):
        if formula.inner is None:
            continue
        large = _large(formula.full)
        mine = frozenset(p for i, p in zip(large, place, strict=True) if i >= formula.inner)
        if not mine:
            raise CodegenUnsupported("ROWS", f"a row of {op.type} has one element", op)
        if found is not None and mine != found:
            raise CodegenUnsupported("ROWS", f"{op.type} works along other rows than the operators before it", op)
        found = mine
    return found or frozenset()


def _collapsed(iteration_space: Shape, rows: list[list[bool]]) -> tuple[Shape, list[list[bool]]]:
    """Joins neighbouring dimensions that every operand has, or none of them."""
    # Fewer dimensions are fewer integer divisions per element, and often none.
    sizes: list[int] = []
    columns: list[list[bool]] = []
    for d, size in enumerate(iteration_space):
        column = [r[d] for r in rows]
        if columns and columns[-1] == column:
            sizes[-1] *= size
        else:
            sizes.append(size)
            columns.append(column)
    if not sizes:
        return (1,), [[True] for _ in rows]
    return tuple(sizes), [[c[i] for c in columns] for i in range(len(rows))]
