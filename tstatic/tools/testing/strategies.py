"""Defines hypothesis strategies: random static programs that run without overflow, and feeds for any program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tstatic.fusion.engine.pattern import Pattern
from tstatic.ir.checks import check_known
from tstatic.ir.opdef import Case, OpDef, ValueRange, op_def
from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of, numel
from tstatic.tools.testing.feeds import Range, data_variables, sample_feeds
from tstatic.tools.testing.op_kinds import PatternFunction, broadcasts, domain_of, family_of, is_forward, lay_out
from tstatic.tools.testing.parts import Feeds
from tstatic.tools.testing.program_builder import MOST_ELEMENTS, ProgramBuilder, Value
from tstatic.tools.testing.recipe import Recipe

SHAPES: tuple[tuple[int, ...], ...] = (
    (3,), (2, 3), (1,), (4, 4), (), (2, 3, 4), (3, 1), (1, 5), (5, 7), (2, 3, 1, 2), (17,), (3, 1, 5), (4, 5, 6), (33,),
    (7, 17), (2, 1), (129,), (1, 1), (2, 3, 4, 5), (16, 16), (5, 3, 7), (257,), (8, 33),
)  # fmt: skip
EMPTY: tuple[tuple[int, ...], ...] = ((0,), (2, 0, 3), (0, 4))


class Work:
    """Appends steps to a builder as a tape of bytes says, with a method per family; one that finds no inputs appends nothing."""

    def __init__(self, tape: bytes, builder: ProgramBuilder, dtypes: tuple[str, ...]) -> None:
        self.tape = iter(tape)
        self.builder = builder
        self.dtypes = dtypes

    def below(self, count: int) -> int:
        """Returns the next byte modulo ``count``; 0 after the end of the tape."""
        return next(self.tape, 0) % count

    def coin(self) -> bool:
        return bool(self.below(2))

    # ----------------------------------------------------------------------------------------------------------- values
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.choose(SHAPES) if self.below(40) != 39 else self.choose(EMPTY)
        return found

    def fresh(self, shape: tuple[int, ...], dtype: str, values: Any = None) -> str:
        return self.builder.fresh(shape, dtype, values, self.below(256))

    def choose(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def pick(self, accept: Callable[[Value], bool] = lambda v: v.is_float) -> str | None:
        """Returns an existing value; recent ones are more likely, so that chains grow."""
        found = [n for n in reversed(self.builder.pool) if accept(self.builder.values[n])][:8]
        k = self.below(16)
        return None if not found else found[0] if k < 6 else found[k % len(found)]

    def definition(self, family: str, name: str) -> OpDef:
        """Returns an op definition of a family, usually one whose domain contains the value."""
        definitions = family_of(family)
        fitting = [c for c in definitions if all(self.builder.fits(c, s.name, name) for s in c.inputs)]
        chosen: OpDef = self.choose(definitions if self.below(6) == 5 else fitting or definitions)
        return chosen

    def like(self, name: str, shape: tuple[int, ...]) -> str:
        """Returns a value of a shape and of the dtype of another value: an existing one, or a new input."""
        dtype = self.builder.values[name].dtype
        if self.coin():
            found = self.pick(lambda v: v.shape == shape and v.dtype == dtype)
            if found is not None:
                return found
        return self.fresh(shape, dtype)

    # --------------------------------------------------------------------------------------------------------- families
    def unary(self, definition: OpDef | None = None) -> None:
        x = self.pick()
        if x is not None:
            definition = definition or self.definition("unary", x)
            self.builder.emit(definition.type, {definition.inputs[0].name: x}, self.choose(domain_of(definition).attrs))

    def binary(self, definition: OpDef | None = None) -> None:
        x = self.pick()
        if x is None:
            return
        definition = definition or self.definition("binary", x)
        shape = self.builder.values[x].shape
        form, axis = self.choose(broadcasts(shape))
        attrs = dict(self.choose(domain_of(definition).attrs))
        if axis != -1:
            if "axis" not in definition.attrs:
                return
            attrs["axis"] = axis
        twice = form == shape and self.below(5) == 4
        y = x if twice else self.like(x, form)
        first, second = definition.inputs[0].name, definition.inputs[1].name
        pair = {first: y, second: x} if self.coin() else {first: x, second: y}
        self.builder.emit(definition.type, pair, attrs)

    def compare(self, definition: OpDef | None = None) -> None:
        """Appends a comparison and a ``where`` that it controls."""
        definition = definition or self.choose(family_of("compare"))
        x = self.pick()
        if x is None:
            return
        value = self.builder.values[x]
        y = self.like(x, value.shape) if value.exact and self.coin() else self.builder.threshold(x)
        made = self.builder.emit(
            definition.type,
            {definition.inputs[0].name: x, definition.inputs[1].name: y},
            self.choose(domain_of(definition).attrs),
        )
        if made and self.builder.values[made[0]].dtype == "bool":
            a = self.pick(lambda v: v.shape == value.shape and v.dtype == value.dtype)
            if a is not None:
                self.builder.emit("where", {"Condition": made[0], "X": a, "Y": self.like(x, value.shape)}, {})

    def cast(self) -> None:
        x = self.pick()
        if self.below(6) == 5 and "float32" in self.dtypes:
            # A parameter moves, and may come to lie where its last bit decides.
            given = self.builder.untrained if self.builder.parameters else self.builder.fresh
            name = given(self.shape(), "float32", None, self.below(256))
            self.builder.witness(name, self.choose(("bfloat16", "float16")))
        elif x is not None:
            attrs = {"in_dtype": self.builder.values[x].dtype, "out_dtype": self.choose((*self.dtypes, "float32"))}
            self.builder.emit("cast", {"X": x}, attrs)

    def reduce(self, definition: OpDef | None = None) -> None:
        definition = definition or self.choose(family_of("reduce"))
        x = self.pick(lambda v: v.is_float and 0 not in v.shape)
        if x is None:
            return
        rank = len(self.builder.values[x].shape)
        axes = tuple(i for i in range(rank) if self.coin())
        attrs = {"dim": axes, "keep_dim": self.coin()} if axes else {"reduce_all": True}
        self.builder.emit(definition.type, {"X": x}, attrs)

    def softmax(self, definition: OpDef | None = None) -> None:
        definition = definition or self.choose(family_of("axis"))
        x = self.pick(lambda v: v.is_float and bool(v.shape) and 0 not in v.shape)
        if x is not None:
            rank = len(self.builder.values[x].shape)
            self.builder.emit(definition.type, {"X": x}, {"axis": self.below(rank) - rank})

    def norm(self, definition: OpDef | None = None) -> None:
        definition = definition or self.choose(family_of("norm"))
        x = self.pick(lambda v: v.is_float and len(v.shape) > 1 and 0 not in v.shape and numel(v.shape[1:]) > 1)
        if x is None:
            return
        value = self.builder.values[x]
        axis = 1 + self.below(len(value.shape) - 1)
        size = (numel(value.shape[axis:]),)
        ins = {"X": x}
        if self.coin():
            ins["Scale"] = self.fresh(size, value.dtype)
        if self.coin():
            ins["Bias"] = self.fresh(size, value.dtype)
        self.builder.emit(definition.type, ins, {"begin_norm_axis": axis})

    def matmul(self, definition: OpDef | None = None) -> None:
        definition = definition or self.choose(family_of("matmul"))
        x = self.pick(lambda v: v.is_float and 2 <= len(v.shape) <= 3 and 0 not in v.shape)
        if x is None:
            return
        shape = self.builder.values[x].shape
        trans_x, trans_y = self.coin(), self.coin()
        inner = shape[-2] if trans_x else shape[-1]
        columns = self.choose((3, 1, 4, 7))
        other = (columns, inner) if trans_y else (inner, columns)
        y = self.like(x, (*shape[:-2], *other) if len(shape) > 2 and self.coin() else other)
        self.builder.emit(definition.type, {"X": x, "Y": y}, {"trans_x": trans_x, "trans_y": trans_y})

    def reshape(self) -> None:
        x = self.pick(lambda v: v.is_float and 0 not in v.shape)
        if x is None:
            return
        size = numel(self.builder.values[x].shape)
        halves = [d for d in range(2, size) if size % d == 0]
        shapes = [(size,), (1, size), (size, 1), *((d, size // d) for d in halves)]
        shapes += [(1, d, size // d, 1) for d in halves]
        self.builder.emit("reshape2", {"X": x}, {"shape": self.choose(shapes)})

    def transpose(self) -> None:
        x = self.pick(lambda v: v.is_float and len(v.shape) > 1)
        if x is not None:
            order = list(range(len(self.builder.values[x].shape)))
            for i in range(1, len(order)):
                k = self.below(i + 1)
                order[i], order[k] = order[k], order[i]
            self.builder.emit("transpose2", {"X": x}, {"axis": tuple(order)})

    def gather(self) -> None:
        x = self.pick(lambda v: v.is_float and bool(v.shape) and 0 not in v.shape)
        if x is None:
            return
        shape = self.builder.values[x].shape
        axis = self.below(len(shape))
        count = self.choose((2, 1, 5))
        index = self.builder.index((count,), shape[axis], self.below(256))
        self.builder.emit("gather", {"X": x, "Index": index}, {"axis": axis})

    def any(self, definition: OpDef | None = None) -> None:
        """Appends any op of the registry with shapes and attributes of its domain; reshapes values of the same size."""
        definition = definition or self.choose(family_of("cases"))
        case = self.choose(domain_of(definition).cases)
        x = self.pick()
        if x is None:
            return
        dtype = self.builder.values[x].dtype
        if dtype not in domain_of(definition).floats:
            return
        ins: dict[str, Any] = {}
        for slot, shape in zip(definition.inputs, (*case.shapes, *([None] * len(definition.inputs))), strict=False):
            if shape is None:
                continue
            values = domain_of(definition).values.get(slot.name)
            shapes = [tuple(s) for s in shape] if slot.many else [tuple(shape)]
            if sum(numel(s) for s in shapes) > self.builder.most_elements:
                return
            row = [self._shaped(definition, case, slot.name, s, dtype, values) for s in shapes]
            ins[slot.name] = row if slot.many else row[0]
        self.builder.emit(definition.type, ins, case.attrs)

    def pattern(self, pattern: Pattern) -> bool:
        """Appends the ops of a fusion's pattern; returns whether all were accepted."""
        ops = lay_out(pattern, self.choose, self.shape)
        dtype = self.choose(self.dtypes)
        if ops is None or any(dtype not in domain_of(op.definition).floats for op in ops):
            return False
        names: dict[str, str] = {}
        for op in ops:
            ins: dict[str, Any] = {}
            for slot, shape in op.shapes.items():
                values = domain_of(op.definition).values.get(slot)
                value = op.op.inputs.get(slot)
                if value is not None and value.name in names:
                    ins[slot] = names[value.name]
                    continue
                case = op.case or Case((shape,), op.attrs)
                many = isinstance(shape, list)
                # Usually new inputs: an existing value may be one that the pattern just computed.
                own = self.below(4) and (values is None or values.dtype == "float")
                row = [
                    self.fresh(tuple(s), dtype, values)
                    if own
                    else self._shaped(op.definition, case, slot, tuple(s), dtype, values)
                    for s in (shape if many else [shape])
                ]
                ins[slot] = row if many else row[0]
                if value is not None:
                    names[value.name] = row[0]
            if not self.builder.emit(op.definition.type, ins, op.attrs):
                return False
            made = dict(self.builder.steps[-1].outputs)
            names.update((value.name, made[slot][0]) for slot, value in op.op.outputs.items() if slot in made)
        return True

    def _shaped(self, definition: Any, case: Any, slot: str, shape: tuple[int, ...], dtype: str, values: Any) -> str:
        if values is not None and values.dtype != "float":
            return self.builder.fresh(
                shape, values.dtype, self.builder.bounded(definition, case, values), self.below(256)
            )
        if values is None or not (values.rows or values.distinct):
            found = self.pick(lambda v: v.dtype == dtype and numel(v.shape) == numel(shape))
            if found is not None and self.builder.values[found].shape == shape:
                return found
            if found is not None and 0 not in shape:
                made = self.builder.emit("reshape2", {"X": found}, {"shape": shape})
                if made:
                    return made[0]
        return self.fresh(shape, dtype, values)


DTYPES = ("float32", "bfloat16", "float16")
FAMILIES = (
    "unary", "binary", "compare", "cast", "reduce", "softmax", "norm", "matmul", "reshape", "transpose", "gather", "any",
)  # fmt: skip
# What shrinks first comes first; plain pointwise ops are drawn most often.
_WEIGHTS = {"unary": 4, "binary": 5, "any": 2}
OPTIMIZERS = ("SGD", "Momentum", "Adam", "AdamW")

Draw = Callable[[st.SearchStrategy[Any]], Any]


_TAPE = st.binary(min_size=12, max_size=12)
"""The choices of one step, a byte each, so that hypothesis draws, deletes and lowers a step as a unit."""
_LONG_TAPE = st.binary(min_size=30, max_size=30)
"""The choices of a pattern."""
LONG = (2, 20001)
"""Shape of a value with long rows: longer than a program of a generated kernel, so that it loops over them."""
TRIES = 4
"""Attempts to place a pattern before the program does without it."""


def programs(
    min_ops: int = 2,
    max_ops: int = 40,
    families: Sequence[str] = FAMILIES,
    dtypes: Sequence[str] = DTYPES,
    backward: bool = False,
    optimizer: bool | Sequence[str] = False,
    focus: Sequence[str] = (),
    patterns: Sequence[PatternFunction] = (),
    runs: int = 0,
    nan: bool = False,
    special: bool = False,
    long_rows: bool = False,
) -> st.SearchStrategy[Recipe]:
    """Returns a strategy that draws random straight-line programs of ops from the registry.

    Values come from the domains of the ops' definitions and stay below 100, so that nothing overflows; programs whose results
    would jump when inputs are rounded differently (a comparison of nearly equal values) are repaired while they are drawn,
    not rejected. Values are shared, read twice by one op, broadcast in all forms, and inner ones are fetched.

    Args:
        min_ops, max_ops: Number of ops (a few more if values have to be brought into an op's domain).
        families: Kinds of steps: ``unary``, ``binary`` (pointwise ops, broadcast), ``compare`` (with ``where``), ``cast``,
            ``reduce``, ``softmax`` (also cumulative sums), ``norm``, ``matmul``, ``reshape``, ``transpose``, ``gather``, ``any``
            (any op of the registry with the shapes of its domain).
        dtypes: Float types; a program may mix them by casts.
        backward: Also fetch gradients by all float inputs; values keep clear of kinks.
        optimizer: Some inputs are float32 parameters, trained for one to three steps, half of the time with clipped
            gradients; also names of optimizers to draw from.
        focus: Op types of two steps in three; the others are of ``families``.
        patterns: Patterns of fusions; the program contains one that consists of forward ops.
        runs: Number of training steps; 0 draws it.
        nan: Some of the float inputs hold NaN. Decompositions of matrices refuse it with a NumericsError, fused or not.
        special: Some of the float inputs hold NaN, infinities, zeros of both signs and huge values; the same holds.
        long_rows: The first value has rows of 20,001 elements with a nonzero mean, more than one program of a generated
            kernel holds.

    Returns:
        A strategy of :class:`~tstatic.testing.Recipe`.

    Raises:
        NotFoundError: For an unknown family, which is a ``ValueError``, too.
    """
    for family in families:
        check_known(family, FAMILIES, "there is no family")
    chosen = tuple((_family(op_def(t)), op_def(t)) for t in focus)
    forward = tuple(p for p in map(Pattern, patterns) if is_forward(p))
    optimizers = OPTIMIZERS if optimizer is True else tuple(optimizer or ())
    options = _Options(
        min_ops,
        max_ops,
        tuple(families),
        tuple(dtypes),
        backward,
        optimizers,
        chosen,
        forward,
        runs,
        nan,
        special,
        long_rows,
    )
    return _recipes(options)


@dataclass(frozen=True)
class _Options:
    """The arguments of :func:`programs`."""

    least: int
    most: int
    families: tuple[str, ...]
    dtypes: tuple[str, ...]
    backward: bool
    optimizers: tuple[str, ...]
    focus: tuple[tuple[str, OpDef], ...]
    patterns: tuple[Pattern, ...]
    runs: int
    nan: bool
    special: bool
    long_rows: bool


def _family(definition: OpDef) -> str:
    """Returns the method of :class:`Work` that appends steps of an op definition."""
    for name in ("unary", "binary", "compare", "reduce", "norm", "matmul"):
        if definition in family_of(name):
            return name
    return "softmax" if definition in family_of("axis") else "any"


@st.composite
def _recipes(draw: Draw, options: _Options) -> Recipe:
    most = 4 * numel(LONG) if options.long_rows else MOST_ELEMENTS
    builder = ProgramBuilder(options.backward or bool(options.optimizers), bool(options.optimizers), most)
    wanted = draw(st.integers(options.least, options.most))
    work = Work(draw(_TAPE), builder, options.dtypes)
    if options.long_rows:
        work.fresh(LONG, work.choose(options.dtypes), ValueRange(0.25, 2.0))
    else:
        work.fresh(work.shape(), work.choose(options.dtypes))
    inner = [work.below(256) for _ in range(work.below(3))]
    optimizer = work.choose(options.optimizers or OPTIMIZERS)
    runs, clip, place = work.below(3), work.coin(), work.below(max(1, wanted // 2))
    weighted = [f for f in options.families for _ in range(_WEIGHTS.get(f, 1))]
    for number in range(wanted):
        if len(builder.steps) >= options.most:
            break
        if options.patterns and number == place:
            for _ in range(TRIES):
                work.tape = iter(draw(_LONG_TAPE))
                if work.pattern(work.choose(options.patterns)):
                    break
            continue
        work.tape = iter(draw(_TAPE))
        if options.focus and work.below(3):
            family, definition = work.choose(options.focus)
            getattr(work, family)(definition)
        else:
            getattr(work, work.choose(weighted))()
    for _ in range(options.least):
        if len(builder.steps) < options.least:
            # The first value is a plain input, so this is never refused.
            builder.emit("scale", {"X": builder.pool[0]}, {"scale": 0.5, "bias": 0.25})
    recipe = builder.recipe([builder.pool[-1 - i % len(builder.pool)] for i in inner])
    if options.nan or options.special:
        recipe = _with(recipe, draw(st.integers(0, 255)), options.nan, options.special)
    if options.optimizers:
        trained = builder.trained(recipe, optimizer, options.runs or 1 + runs, 0.5 if clip else 0.0)
        return trained if trained is not None else recipe
    return recipe


def _with(recipe: Recipe, which: int, nan: bool, special: bool) -> Recipe:
    """Returns the recipe with NaN or special values in one float input, or in all of them."""
    free = [i for i in recipe.inputs if i.given is None and not i.parameter and dtype_of(i.dtype).is_float]
    if not free:
        return recipe
    chosen = free if which % 4 == 0 else [free[which % len(free)]]
    return replace(
        recipe, inputs=tuple(replace(i, nan=nan, special=special) if i in chosen else i for i in recipe.inputs)
    )


# ---------------------------------------------------------------------------------------------------------------- feeds
@st.composite
def _feeds(draw: Draw, program: Program, ranges: Mapping[str, Range], most: int) -> Feeds:
    rank = max((len(v.shape) for v in data_variables(program)), default=0)
    sizes = [draw(st.integers(1, most)) for _ in range(max(rank, 1))]
    return sample_feeds(program, draw(st.integers(0, 2**31)), ranges, sizes)


def feeds_for(
    program: Program | Recipe, ranges: Mapping[str, Range] | None = None, max_size: int = 8
) -> st.SearchStrategy[Feeds]:
    """Returns a strategy that draws feeds for a program: name -> array for each input that its ops read.

    Unknown sizes are small and fit together; values stay inside the domains of the ops that read them, so labels and
    indices are valid if the ops' definitions tell the limit.

    Args:
        program: A Program or a Recipe.
        ranges: Input name -> ``(low, high)``; whole numbers are drawn from ``low`` to ``high - 1``.
        max_size: Largest size of an unknown dimension.

    Returns:
        A strategy of dicts.
    """
    main = program.build().main if isinstance(program, Recipe) else program
    return _feeds(main, dict(ranges or {}), max_size)


__all__ = ["DTYPES", "EMPTY", "FAMILIES", "SHAPES", "Work", "feeds_for", "programs"]
