"""Row offsets of fed and fetched tensors: checked, cut for replicas, joined; tensors made from lengths."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.devices import read
from tstatic.errors import FeedError
from tstatic.ir.program import Program, Variable
from tstatic.runtime.lod_levels import divides
from tstatic.runtime.scope import LoDTensor, tensor_of
from tstatic.where import show

Array = np.ndarray[Any, Any]
Lod = Sequence[Sequence[int]]


def _refused(var: Variable, what: str, expected: object, received: object, fix: str) -> FeedError:
    where = show(var.made_at)
    return FeedError(what, expected=expected, received=received, fix=fix, var=var.name, op="feed", where=where)


def check_lod(value: Any, rows: int, var: Variable, feed: Mapping[str, Any]) -> list[list[int]]:
    """Returns the offsets of what is fed for a variable: its own, or those that the feed has under their names; or none.

    Raises:
        FeedError: If they do not divide its rows, or have another number of levels than is declared.
    """
    lod = value.lod() if isinstance(value, LoDTensor) else []
    # All or none: with some of the levels alone the rows could not be told apart.
    if not lod and var.lod and all(name in feed for name in var.lod):
        lod = [np.asarray(feed[name]).tolist() for name in var.lod]
    if lod and not divides(lod, rows):
        ends = [len(level) - 1 for level in lod[1:]] + [rows]
        raise _refused(
            var,
            f"the LoD of what is fed for '{var.name}' does not divide its rows",
            f"in each level offsets from 0, rising, to {' and '.join(map(str, ends))}",
            f"{lod} for {rows} rows",
            "set_lod takes offsets, not lengths: [[0, 2, 5]] for sequences of 2 and 3 rows",
        )
    if lod and var.lod and len(lod) != len(var.lod):
        raise _refused(
            var,
            f"the LoD of what is fed for '{var.name}' has another number of levels than is declared",
            f"{len(var.lod)}, as lod_level says",
            f"{len(lod)}: {lod}",
            f"feed a tensor of {len(var.lod)} levels, or declare lod_level={len(lod)}",
        )
    return lod


def offsets_of(value: Any, rows: int, var: Variable, feed: Mapping[str, Any]) -> dict[str, Array]:
    """Returns the offsets of what is fed for a variable, by their names; empty for an array alone.

    Raises:
        FeedError: As :func:`check_lod` does.
    """
    lod = check_lod(value, rows, var, feed)
    # What is declared without levels may be fed with some: nothing reads them.
    return {name: np.array(level, np.int64) for name, level in zip(var.lod, lod, strict=False)} if lod else {}


def open_rows(program: Program) -> dict[str, str]:
    """Returns inputs whose first size each batch decides, so that plans do not depend on it -> the outermost offsets with them.

    They are the rows of sequences, and the offsets of inner levels.
    """
    inputs = [var for var in program.global_block().vars.values() if var.is_data and var.lod]
    return {name: var.lod[0] for var in inputs for name in (var.name, *var.lod[1:])}


# ----------------------------------------------------------------------------------------------------- several replicas
def cut(array: Array, lod: Lod, first: int, last: int) -> LoDTensor:
    """Returns the outermost sequences from ``first`` to before ``last``, as a tensor."""
    parts = []
    # From the outermost level inwards: the ends of one are numbers of sequences of the next, and at last rows.
    for level in lod:
        parts.append([offset - level[first] for offset in level[first : last + 1]])
        first, last = level[first], level[last]
    tensor = tensor_of(array[first:last])
    tensor.set_lod(parts)
    return tensor


def joined_offsets(parts: Sequence[Array]) -> Array:
    """Returns the offsets of sequences of several tensors, one after the other."""
    # Each part but the first loses its leading 0, in whose place the end before it stands.
    ends = itertools.accumulate(int(part[-1]) for part in parts[:-1])
    return np.concatenate([parts[0], *(part[1:] + end for part, end in zip(parts[1:], ends, strict=True))])


# -------------------------------------------------------------------------------------------------------------- fetches
class FetchedLods:
    """Which row offsets are fetched together with the variables of a fetch list.

    Args:
        program: The program.
        names: What is fetched.
    """

    def __init__(self, program: Program, names: Sequence[str]) -> None:
        block = program.global_block()
        self._lods = [var.lod if (var := block.vars.get(name)) is not None else () for name in names]
        self.names = frozenset(name for lod in self._lods for name in lod)
        written = {name for op in block.ops for name in op.output_arg_names} if self.names else set()
        self._missing = self.names - written

    def available(self, fed: Mapping[str, Any]) -> list[tuple[str, ...]]:
        """Returns the offsets of each fetched variable; none where those that would be fed are not: an array was fed."""
        return [() if self._missing.intersection(lod).difference(fed) else lod for lod in self._lods]


def check_numpy(names: Sequence[str], lods: Sequence[tuple[str, ...]]) -> None:
    """Checks that fetched variables can be given as arrays.

    Raises:
        FeedError: If one has sequences, which an array cannot show.
    """
    found = [name for name, lod in zip(names, lods, strict=True) if lod]
    if found:
        raise FeedError(
            "Some of your fetched tensors hold LoD information. They can not be completely cast to Python ndarray. Please set "
            "the parameter 'return_numpy' as 'False' to return LoDTensor itself directly.",
            expected="return_numpy=False, or variables without sequences",
            received=", ".join(map(repr, found)),
            fix="pass return_numpy=False, then np.array(tensor) and tensor.lod()",
            op="fetch",
            var=found[0],
        )


def with_lod(values: Sequence[Array], lods: Sequence[Sequence[str]]) -> list[LoDTensor]:
    """Returns fetched values as tensors.

    Args:
        values: The values, then the offsets of each, in order.
        lods: Names of the offsets of each value.
    """
    offsets = iter(values[len(lods) :])
    tensors = []
    for value, lod in zip(values, lods, strict=False):
        tensor = tensor_of(value)
        tensor.set_lod([read(next(offsets)).tolist() for _ in lod])
        tensors.append(tensor)
    return tensors
