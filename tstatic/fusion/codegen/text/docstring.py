"""The docstring of a module: what it computes, which of the user's variables its parameters are, and which function runs where.

The names and lines of the user's program stand here and nowhere else in a module, on a line for each op and each parameter: what
Triton compiles, and the line that a function begins at, are those of any other program with the same code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tstatic.fusion.codegen.text.launched import Launched, which_runs_where
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.locks import parse_module

NUMBERS: Mapping[str, str] = {
    "n": "elements that all operands share",
    "strip": "rows of a strip, which is what a program goes over; whole tiles",
    "strips": "how many strips there are",
    "depth": "terms of each sum of the product, or of one of its parts",
    "count": "how many tensors or rows there are",
    "kept": "columns, each with a sum of its own",
    "first": "number of the first of these batches",
    "BLOCK": "elements of a program",
    "ROWS": "rows of a tile",
    "COLUMNS": "columns of a tile",
    "DEPTH": "elements of a query or key, padded to a power of 2",
    "WIDTH": "elements of a row of values, padded to a power of 2",
    "STEP": "terms that are read at a time",
    "WHOLE": "whether the depth is a multiple of the step, so that loads need no mask",
    "GROUP": "tiles one below the other whose programs run side by side",
    "PARTS": "parts that the depth was cut into",
    "STRIPS": "strips of a tensor, padded to a power of 2 where one program reads them all",
    "TENSORS": "tensors of a program",
    "MADE": "whether sums over rows of the result are made here, and not read",
    "QUERY_ROWS": "rows of a block of queries' gradients",
    "QUERY_COLUMNS": "columns of a block of queries' gradients",
}
"""Integers and constants of our templates by name."""

SHARED: Mapping[str, str] = {
    "rng": "seed and number of the step, which random numbers depend on",
    "stopped": "whether the step is to change nothing",
    "draws": "for each op that draws: its number in the program, its seed, numbers that it draws with",
    "table:addresses": "where each tensor lies",
    "table:blocks": "for each block: its tensor, and which part of it",
    "table:firsts": "for each tensor the number of its first block; behind them, how many blocks there are",
    "table:kinds": "for each tensor the number of its type",
    "partial:numbers": "for each tensor the numbers of its update",
    "partial:blocks": "for each block the sum of its squares",
    "partial:tensors": "for each tensor the sum of its squares",
    "partial:parts": "the product, or parts of it that are added up",
    "partial:delta": "for each row of the result the sum of its products with its gradient",
    "partial:scores": "scores of some batches, then weights",
    "partial:gradients": "gradients of these weights, then of scores",
    "partial:filter": "for each strip the sums of the filter's gradient",
    "partial:shift": "for each channel the number that deviations are taken from",
    "partial:plain": "for each strip and channel the sum",
    "partial:sum": "for each strip and channel the sum of deviations",
    "partial:spread": "for each strip and channel the sum of squared deviations",
}
"""Memory that the launches of a kernel share; what is not here has sums of strips, which are added by another launch."""

_PART = re.compile(r"part\d+:")
"""What stands before the name of memory of one part of several."""

_LONGEST = 60
"""Characters of a user's name that are shown."""

_FEW = 3
"""Tensors of a table that are shown: updates have hundreds."""

# All but printable ASCII without quotes and backslashes.
_UNSAFE = re.compile(r"[^ !#-&(-\[\]-~]")


def safe(text: str) -> str:
    """Returns what a comment may hold of a user's text: printable ASCII without quotes and backslashes."""
    return _UNSAFE.sub("?", text)


class Told(NamedTuple):
    """What a docstring says of a launch.

    Attributes:
        function: Its name.
        arguments: Values, names of shared memory, or numbers, in the order of the parameters.
        constants: Names of ``tl.constexpr`` parameters.
        tables: Name of a table -> the values whose addresses it holds.
    """

    function: str
    arguments: Sequence[object]
    constants: Iterable[str]
    tables: Mapping[str, Sequence[str]]


def docstring(
    name: str,
    code: str,
    ops: Sequence[FrozenOp],
    metas: Mapping[str, Meta],
    launches: Iterable[Told],
    ways: Iterable[Launched],
    held: Mapping[str, str],
    unread: str = "",
) -> str:
    """Returns the docstring of a module.

    Args:
        name: Of the kernel.
        code: The module's functions.
        ops: What it computes.
        metas: Metadata of all values.
        launches: On all chips.
        ways: As for :func:`which_runs_where`.
        held: Name of shared memory -> the value that lies in it.
        unread: What other shared memory holds, if it is none of :data:`SHARED`.
    """
    lines = [f'"""{name}: generated by tstatic.', "", "Computes"]
    lines += [safe(f"    {_placed(op)}") for op in ops]
    makers = {v: op.type for op in ops for v in op.writes()}

    def memory(value: str, tables: Mapping[str, Sequence[str]]) -> str:
        """Returns what a pointer leads to: a variable, or memory that launches share."""
        value = held.get(value, value)
        meta = metas.get(value)
        if meta is not None:
            short = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."
            made = f", made by {makers[value]}" if value in makers else ""
            return f"{short}: {meta.dtype.name} {list(meta.shape)}{made}"
        return unread or _shared(value, tables.get(value, ()))

    for function, entries in _parameters(code, launches, memory).items():
        wide = max(map(len, entries))
        lines += ["", f"Parameters of {function}"]
        lines += [safe(f"    {name:{wide}}  {meaning}") for name, meaning in entries.items()]
    return "\n".join([*lines, "", which_runs_where(code, ways), '"""'])


def _shared(value: str, tensors: Sequence[str]) -> str:
    """Returns what memory holds that launches share; of a table of addresses, where they lead."""
    key = _PART.sub("", value).replace(":second_", ":")
    name = key.removeprefix("partial:")
    merged = name.removeprefix("merged_")
    text = SHARED.get(key, f"for each channel {merged}" if merged != name else f"partial sums of {name}")
    if not tensors:
        return text
    rest = f", and {len(tensors) - _FEW} more" if len(tensors) > _FEW else ""
    return f"{text}: {', '.join(tensors[:_FEW])}{rest}"


def _placed(op: FrozenOp) -> str:
    # The file's name and no more: equal programs in different folders have equal kernels.
    return f"{op.type}  at {op.where[0].rsplit('/', 1)[-1]}:{op.where[1]}" if op.where else op.type


@lru_cache(256)  # programs that are compiled again have the same kernels, and so have the layers of a net
def _functions(code: str) -> Mapping[str, tuple[str, ...]]:
    """Returns the functions of a module with the names of their parameters."""
    nodes = [node for node in parse_module(code).body if isinstance(node, ast.FunctionDef)]
    return {node.name: tuple(one.arg for one in node.args.args) for node in nodes}


def _parameters(
    code: str, launches: Iterable[Told], memory: Callable[[str, Mapping[str, Sequence[str]]], str]
) -> dict[str, dict[str, str]]:
    """Returns function -> parameter -> its meaning; of a parameter that is what it was in a function before, nothing."""
    functions = _functions(code)
    found: dict[str, dict[str, str]] = {}
    told: set[tuple[str, str | None]] = set()
    for launch in launches:
        # Products that the library makes are not functions of the module.
        if launch.function in found or launch.function not in functions:
            continue
        arguments = iter(launch.arguments)
        entries = found[launch.function] = {}
        for name in functions[launch.function]:
            given = None if name in launch.constants else next(arguments)
            key = name, given if isinstance(given, str) else None
            if key not in told:
                told.add(key)
                entries[name] = (
                    memory(given, launch.tables) if isinstance(given, str) else NUMBERS.get(name, "a number")
                )
    return {function: entries for function, entries in found.items() if entries}
