"""Finds the ops that only move elements in front of and behind a group of ops, so that its kernel does without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.matrix.layouts import (
    Layout,
    before,
    behind,
    contiguous,
    covers,
    is_join,
    is_spread,
    operand,
    takes_apart,
)
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.ir.types import UNKNOWN


@dataclass(frozen=True)
class Ends:
    """Ops that move elements at one end of a group.

    Attributes:
        indices: Those that the group's kernel does without.
        layouts: Value of the group -> where its elements lie instead.
        left: Ops that stay outside, each with the reason.
    """

    indices: frozenset[int]
    layouts: Mapping[str, Layout]
    left: tuple[tuple[int, MatchRejected], ...] = ()


def refusal(view: View, value: str, inside: set[int]) -> MatchRejected | None:
    """Returns why a value has to stay in memory; ``None`` if only ops inside read it."""
    if value in view.fetched:
        return MatchRejected("FETCHED", value=value)
    if value in view.kept:
        return MatchRejected("PERSISTABLE", value=value)
    readers = view.outside(value, inside)
    return MatchRejected("EXTRA_READER", value=value, reader=view.ops[readers[0]].type) if readers else None


def _has_sizes(view: View, index: int) -> bool:
    """Returns whether the sizes of an op are known, and nobody forbids to fuse it."""
    op = view.ops[index]
    known = all(v in view.metas and UNKNOWN not in view.metas[v].shape for v in (*op.reads(), *op.writes()))
    return known and index not in view.forbidden


def in_front(view: View, values: Iterable[str], inside: Iterable[int], scaled: bool = False) -> Ends:
    """Finds what moves elements in front of values that a group reads.

    Args:
        view: The program.
        values: What the group reads through strides.
        inside: The group's ops.
        scaled: Whether one multiplication by a number may be among them.
    """
    group = set(inside)
    chains = {v: _chain(view, v, scaled) for v in values}
    kept = {i for chain in chains.values() for i in chain}
    every = group | kept
    left: dict[int, MatchRejected] = {}
    # Until nothing changes: what is in front of an op that stays has to stay, too.
    while True:
        outside = {i for i in kept if any(refusal(view, v, group | kept) for v in view.ops[i].writes())}
        if outside:
            for i in outside:
                # What is in front of an op that stays is read by that one, which nobody needs to be told.
                reasons = [why for v in view.ops[i].writes() if (why := refusal(view, v, every)) is not None]
                if reasons:
                    left[i] = reasons[0]
            kept -= outside
            continue
        suffixes = {v: [i for i in chain if i in kept] for v, chain in chains.items()}
        layouts = {v: _read_layout(view, v, suffix) for v, suffix in suffixes.items()}
        unfit = next((v for v, at in layouts.items() if at is None or not at.rows_lie), None)
        if unfit is None:
            break
        # Without the first op of its chain, what is behind it may still fit.
        left[suffixes[unfit][0]] = MatchRejected("STRIDES")
        kept.discard(suffixes[unfit][0])
    indices = frozenset(i for suffix in suffixes.values() if _moves(view, suffix) for i in suffix)
    # A value behind the same reshape as one that is moved has that one's memory, too.
    indices |= {i for suffix in suffixes.values() if indices.intersection(suffix) for i in suffix}
    read = {
        v: at if indices.intersection(suffixes[v]) else contiguous(v, view.metas[v].shape)
        for v, at in layouts.items()
        if at is not None
    }
    return Ends(indices, read, tuple(sorted(left.items())))


def _moves(view: View, indices: Iterable[int]) -> bool:
    """Returns whether ops do more than reshape, which is free."""
    return any(view.ops[i].type != "reshape2" for i in indices)


def _chain(view: View, value: str, scaled: bool) -> list[int]:
    """Returns the ops that only move elements in front of a value, from the first one on."""
    chain: list[int] = []
    while True:
        index = view.maker.get(value)
        source = operand(view.ops[index]) if index is not None else None
        if index is None or source is None or not _has_sizes(view, index):
            return chain
        if view.ops[index].type == "scale":
            if not scaled:
                return chain
            # A kernel takes one factor.
            scaled = False
        chain.insert(0, index)
        value = source


def _read_layout(view: View, value: str, chain: Sequence[int]) -> Layout | None:
    source = operand(view.ops[chain[0]]) if chain else value
    assert source is not None
    found: Layout | None = contiguous(source, view.metas[source].shape)
    for place, index in enumerate(chain):
        result = operand(view.ops[chain[place + 1]]) if place + 1 < len(chain) else value
        assert result is not None
        found = behind(view.ops[index], found, result, view.metas) if found is not None else None
    return found


# --------------------------------------------------------------------------------------------------------------- behind
def at_back(view: View, values: Sequence[str], inside: Iterable[int], scaled: bool = False) -> Ends:
    """Finds what moves elements behind values that a group makes, and what joins several of them into one.

    Args:
        view: The program.
        values: What the group writes through strides.
        inside: The group's ops.
        scaled: Whether one multiplication by a number may be among them.
    """
    group = set(inside)
    ends = {v: v for v in values}
    # After each step, so that the last ones can be taken back.
    states = [(frozenset[int](), dict(ends))]
    left: dict[int, MatchRejected] = {}
    multiplied: set[str] = set()
    progress = True
    while progress:
        progress = False
        for value in dict.fromkeys(ends.values()):
            step = _next(view, value, [*dict.fromkeys(ends.values())], group | states[-1][0], left)
            if step is None:
                continue
            indices, result = step
            joined = {v for i in indices for v in view.ops[i].contents()}
            if any(view.ops[i].type == "scale" for i in indices):
                own = {v for v, end in ends.items() if end in joined}
                if not scaled or own & multiplied:
                    continue
                multiplied |= own
            ends = {v: result if end in joined else end for v, end in ends.items()}
            states.append((states[-1][0] | indices, dict(ends)))
            progress = True
            # The ends have changed, and with them what may join.
            break
    while True:
        indices, ends = states.pop()
        layouts = {v: _written_layout(view, v, end, indices) for v, end in ends.items()}
        if all(at is not None and at.rows_lie for at in layouts.values()):
            break
        left[max(indices - states[-1][0])] = MatchRejected("STRIDES")
    if not _moves(view, indices):
        indices, layouts = frozenset(), {v: contiguous(v, view.metas[v].shape) for v in values}
    return Ends(indices, {v: at for v, at in layouts.items() if at is not None}, tuple(sorted(left.items())))


def _next(
    view: View, value: str, ends: Sequence[str], inside: set[int], left: dict[int, MatchRejected]
) -> tuple[frozenset[int], str] | None:
    """Returns the ops that move or join a value, with other ends of the group, and what they make."""
    readers = [i for i in dict.fromkeys(view.readers.get(value, ())) if i not in inside]
    moving = [i for i in readers if _is_end(view, i, value)]
    if not moving:
        return None
    index = moving[0]
    why = refusal(view, value, {*inside, index})
    if why is not None:
        left[index] = why
        return None
    if not _has_sizes(view, index):
        return None
    op = view.ops[index]
    if is_join(op):
        entry = op.inputs[0]
        if op.type == "sum" or not isinstance(entry, tuple) or len({*entry}) < len(entry) or not {*entry} <= {*ends}:
            return None
        # The other parts have to be free as well.
        unfit = next((found for v in entry if (found := refusal(view, v, {*inside, index})) is not None), None)
        if unfit is not None:
            left[index] = unfit
            return None
        return frozenset((index,)), next(iter(op.writes()))
    if not is_spread(op):
        return frozenset((index,)), next(iter(op.writes()))
    return _spread(view, index, ends, inside)


def _is_end(view: View, index: int, value: str) -> bool:
    op = view.ops[index]
    # Parts of a result are several values.
    if takes_apart(op):
        return False
    return value in op.contents() and (operand(op) == value or is_join(op) or is_spread(op))


def _spread(view: View, index: int, ends: Sequence[str], inside: set[int]) -> tuple[frozenset[int], str] | None:
    """Returns gradients of slices, and the sum of them, that together hold each element once."""
    padded = next(iter(view.ops[index].writes()))
    readers = [*dict.fromkeys(view.readers.get(padded, ()))]
    if len(readers) != 1 or view.ops[readers[0]].type != "sum" or view.ops[readers[0]].body:
        return None
    total = view.ops[readers[0]]
    makers = [view.maker.get(v, -1) for v in total.contents()]
    if any(i < 0 or not is_spread(view.ops[i]) or not _has_sizes(view, i) for i in makers):
        return None
    sources = [next(iter(view.ops[i].contents())) for i in makers]
    every = {*inside, *makers, readers[0]}
    values = [*sources, *(v for i in makers for v in view.ops[i].writes())]
    if (
        len({*sources}) < len(sources)
        or not {*sources} <= {*ends}
        or not covers([view.ops[i] for i in makers], view.metas)
    ):
        return None
    if any(refusal(view, v, every) is not None for v in values):
        return None
    return frozenset((*makers, readers[0])), next(iter(total.writes()))


def _written_layout(view: View, value: str, end: str, indices: frozenset[int]) -> Layout | None:
    """Returns where a value of a group lies in the one that it becomes a part of."""
    path: list[tuple[int, str]] = []
    while value != end:
        (index,) = (i for i in dict.fromkeys(view.readers[value]) if i in indices and value in view.ops[i].contents())
        path.append((index, value))
        value = next(iter(view.ops[index].writes()))
    found: Layout | None = contiguous(end, view.metas[end].shape)
    for index, part in reversed(path):
        found = before(view.ops[index], found, part, view.metas) if found is not None else None
    return found
