"""Hypothesis strategies: random static programs that run without overflow, and feeds for any program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tstatic.fusion.pattern import Pattern
from tstatic.ir.opdef import OpDef, ValueRange, op_def
from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of, numel
from tstatic.testing.feeds import Range, data_variables, sample_feeds
from tstatic.testing.op_kinds import PatternFunction, family_of, is_forward
from tstatic.testing.parts import Feeds
from tstatic.testing.program_builder import MOST_ELEMENTS, ProgramBuilder
from tstatic.testing.recipe import Recipe
from tstatic.testing.work import Work

DTYPES = ("float32", "bfloat16", "float16")
FAMILIES = (
    "unary", "binary", "compare", "cast", "reduce", "softmax", "norm", "matmul", "reshape", "transpose", "gather", "any",
)  # fmt: skip
# What shrinks first comes first; plain pointwise ops are drawn most often.
_WEIGHTS = {"unary": 4, "binary": 5, "any": 2}
OPTIMIZERS = ("SGD", "Momentum", "Adam", "AdamW")

Draw = Callable[[st.SearchStrategy[Any]], Any]


_TAPE = st.binary(min_size=12, max_size=12)
"""One step's choices: a byte each, so that hypothesis draws, deletes and lowers a step in one piece."""
_LONG_TAPE = st.binary(min_size=30, max_size=30)
"""The choices of a pattern."""
LONG = (2, 20001)
"""The shape of a value with long rows."""
TRIES = 4
"""Draws of a pattern before a program goes without it."""


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
    """Random straight-line programs of ops from the registry.

    Values come from the domains of the ops' definitions and stay below 100, so that nothing overflows; programs whose results
    would jump when inputs are rounded differently (a comparison of nearly equal values) are repaired while they are drawn,
    not rejected. Values are shared, read twice by one op, broadcast in all forms, and inner ones are fetched.

    Args:
        min_ops, max_ops: Number of ops (a few more where a value has to be brought into an op's domain).
        families: Kinds of steps: ``unary``, ``binary`` (pointwise ops, broadcast), ``compare`` (with ``where``), ``cast``,
            ``reduce``, ``softmax`` (also cumulative sums), ``norm``, ``matmul``, ``reshape``, ``transpose``, ``gather``, ``any``
            (any op of the registry with the shapes of its domain).
        dtypes: Float types; a program may mix them by casts.
        backward: Also fetch gradients by all float inputs; values keep clear of kinks.
        optimizer: Some inputs are float32 parameters, trained for one to three steps, half of the time with clipped
            gradients; also names of optimizers to draw from.
        focus: Op types that two steps in three are made of, besides what ``families`` gives.
        patterns: Patterns of fusions; the program contains one of those of forward ops.
        runs: Number of training steps, instead of a drawn one.
        nan: Some of the float inputs hold NaN.
        special: Some of the float inputs hold NaN, infinities, zeros of both signs and huge values.
        long_rows: The first value has rows of 20,001 elements, whose mean is not 0: more than one program of a generated
            kernel holds.

    Returns:
        A strategy of :class:`~tstatic.testing.Recipe`.
    """
    unknown = [f for f in families if f not in FAMILIES]
    if unknown:
        raise ValueError(f"there is no family {unknown[0]!r}; expected some of {', '.join(FAMILIES)}")
    chosen = tuple((_family(op_def(t)), op_def(t)) for t in focus)
    pieces = tuple(p for p in map(Pattern, patterns) if is_forward(p))
    optimizers = OPTIMIZERS if optimizer is True else tuple(optimizer or ())
    options = _Options(
        min_ops,
        max_ops,
        tuple(families),
        tuple(dtypes),
        backward,
        optimizers,
        chosen,
        pieces,
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
    """The method of :class:`_Work` that makes steps of an op definition."""
    for name in ("unary", "binary", "compare", "reduce", "norm", "matmul"):
        if definition in family_of(name):
            return name
    return "softmax" if definition in family_of("axis") else "any"


@st.composite
def _recipes(draw: Draw, options: _Options) -> Recipe:
    most = 4 * numel(LONG) if options.long_rows else MOST_ELEMENTS
    draft = ProgramBuilder(options.backward or bool(options.optimizers), bool(options.optimizers), most)
    wanted = draw(st.integers(options.least, options.most))
    work = Work(draw(_TAPE), draft, options.dtypes)
    if options.long_rows:
        work.fresh(LONG, work.choose(options.dtypes), ValueRange(0.25, 2.0))
    else:
        work.fresh(work.shape(), work.choose(options.dtypes))
    inner = [work.below(256) for _ in range(work.below(3))]
    optimizer = work.choose(options.optimizers or OPTIMIZERS)
    runs, clip, place = work.below(3), work.coin(), work.below(max(1, wanted // 2))
    weighted = [f for f in options.families for _ in range(_WEIGHTS.get(f, 1))]
    for number in range(wanted):
        if len(draft.steps) >= options.most:
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
        if len(draft.steps) < options.least:
            # The first value is a plain input, so this is never refused.
            draft.emit("scale", {"X": draft.pool[0]}, {"scale": 0.5, "bias": 0.25})
    recipe = draft.recipe([draft.pool[-1 - i % len(draft.pool)] for i in inner])
    if options.nan or options.special:
        recipe = _with(recipe, draw(st.integers(0, 255)), options.nan, options.special)
    if options.optimizers:
        trained = draft.trained(recipe, optimizer, options.runs or 1 + runs, 0.5 if clip else 0.0)
        return trained if trained is not None else recipe
    return recipe


def _with(recipe: Recipe, which: int, nan: bool, special: bool) -> Recipe:
    """The recipe with NaN or special values in one float input, or in all of them."""
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
    """Feeds for a program: ``{name: array}`` for each input that its ops read.

    Unknown sizes are small and fit together; values stay inside the domains of the ops that read them, so labels and
    indices are valid where that can be seen.

    Args:
        program: A Program or a Recipe.
        ranges: Input name -> ``(low, high)``; whole numbers are drawn from ``low`` to ``high - 1``.
        max_size: Largest size of an unknown dimension.

    Returns:
        A strategy of dicts.
    """
    main = program.build().main if isinstance(program, Recipe) else program
    return _feeds(main, dict(ranges or {}), max_size)


__all__ = ["DTYPES", "FAMILIES", "feeds_for", "programs"]
