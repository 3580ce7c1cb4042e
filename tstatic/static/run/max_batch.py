"""The largest batch whose run fits in a memory, found from plans alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.checks import check_type
from tstatic.ir.program import Program
from tstatic.ir.types import UNKNOWN
from tstatic.plan.report import Fit

MOST = 1 << 24
"""The largest batch that is tried."""


def given_shapes(feed_shapes: Mapping[str, Sequence[Any]] | None) -> Mapping[str, Sequence[Any]]:
    """Returns the argument ``feed_shapes``, which is ``{}`` by default.

    Raises:
        ProgramTypeError: If it is not a dict.
    """
    wanted = "a dict of inputs and their shapes"
    return check_type(feed_shapes, (Mapping, NoneType), "feed_shapes", "CompiledProgram", expected=wanted) or {}


def with_batch(program: Program, given: Mapping[str, Sequence[int | None]], batch: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each input of a batch.

    Args:
        program: The program.
        given: Input -> shape, with -1 or ``None`` where the size of the batch stands; of others, the declared shape counts.
        batch: Its size.

    Raises:
        ProgramError: If an axis behind the first is open, or no input has an open first axis.
    """
    block = program.global_block()
    shapes: dict[str, tuple[int, ...]] = {}
    opened = False
    for name in [*(n for n, v in block.vars.items() if v.is_data), *given]:
        declared = given.get(name, block.vars[name].shape if name in block.vars else ())
        shape = tuple(UNKNOWN if s is None else int(s) for s in declared)
        if UNKNOWN in shape[1:]:
            raise ProgramError(
                f"input '{name}' has an open size behind its first axis",
                expected="sizes for all axes but the one of the batch",
                received=f"shape {list(shape)}",
                fix=f"give its shape: feed_shapes={{'{name}': (-1, ...)}}",
                var=name,
            )
        opened |= UNKNOWN in shape
        shapes[name] = tuple(batch if s == UNKNOWN else s for s in shape)
    if not opened:
        raise ProgramError(
            "no input has a batch whose size is open",
            expected="an input whose first size is None or -1",
            received=", ".join(f"'{n}' {list(s)}" for n, s in shapes.items()) or "no inputs",
            fix="declare it: static.data(name, [None, ...]), or give feed_shapes={name: (-1, ...)}",
        )
    return shapes


def largest(fits: Callable[[int], Fit], step: int) -> int:
    """Returns the largest multiple of ``step`` that fits, 0 if none does, at most ``MOST``.

    The answer was seen to fit, and the next multiple not to. Memory grows nearly in proportion to the batch, so that four or
    five batches are tried.

    Args:
        fits: Plans a run with a batch of a given size.
        step: What the batch must be a multiple of.
    """
    tried: dict[int, Fit] = {}
    # `low` fits, as 0 does; `high` does not, or is beyond what is tried.
    low, high = 0, MOST // step + 1
    while high - low > 1:
        # Strictly between the two, so that each batch tried narrows the range.
        guess = min(max(_guess(tried, low, high), low + 1), high - 1)
        tried[guess] = fits(guess * step)
        low, high = (guess, high) if tried[guess] else (low, guess)
    return low * step


def _guess(tried: Mapping[int, Fit], low: int, high: int) -> int:
    if len(tried) < 2:
        # First 1, then 4: the line needs two points.
        return 4 * low
    # The line through the two batches that are nearest to the limit; halving where that does not lead there soon.
    (a, at_a), (b, at_b) = sorted(tried.items(), key=lambda one: abs(one[1].free_bytes))[:2]
    slope = (at_b.needed_bytes - at_a.needed_bytes) / (b - a)
    return (low + high) // 2 if slope <= 0 or len(tried) > 12 else a + int(at_a.free_bytes // slope)
