"""Says why a fusion that is on made nothing: what came nearest to what it looks for, and which precondition failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.define import is_elementwise
from tstatic.fusion.engine import Applied, Fusion
from tstatic.fusion.engine.chain import Chain
from tstatic.fusion.engine.pattern import Misfit, Pattern, attempts
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp
from tstatic.where import show

MOST_KINDS = 4
"""Types of operators that a sentence names."""


def why_idle(fusion: Fusion, view: View, applied: Sequence[Applied]) -> str:
    """Returns why a fusion made nothing, for one that rejected no match: a clause without a full stop.

    Args:
        fusion: The fusion.
        view: The program as the user built it.
        applied: What the other fusions made.
    """
    finder = fusion.finder
    if finder.chain is not None:
        return _chain(finder.chain, view, applied)
    return _patterns([Pattern(function) for function in finder.patterns], view, applied)


def _taken(indices: Iterable[int], view: View, applied: Sequence[Applied]) -> str:
    """Returns the switch of a fusion that has some of these ops; empty if none has."""
    # By what they write: in the fused program ops have other indices.
    made = {v for i in indices for v in view.ops[i].writes()}
    return next((a.switch for a in applied if any(v in made for m in a.members for v in m.outputs)), "")


def _at(op: FrozenOp) -> str:
    where = show(op.where)
    return f"{op.type} at {where}" if where else op.type


def _types(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(types))
    return ", ".join(found[:MOST_KINDS]) + (", ..." if len(found) > MOST_KINDS else "")


def _absent(kinds: str) -> str:
    return f"no operator of its kinds stands in the program ({kinds})"


# ---------------------------------------------------------------------------------------------------------------- patterns
def _patterns(patterns: Sequence[Pattern], view: View, applied: Sequence[Applied]) -> str:
    kinds = [kind for pattern in patterns for op in pattern.ops for kind in op.types]
    present = {op.type for op in view.ops}
    if present.isdisjoint(kinds):
        return _absent(_types(kinds))
    best: tuple[int, Pattern, str] | None = None
    for pattern in patterns:
        for bound, text in _tries(pattern, view, applied):
            # Of equal ones the shorter pattern: less of it is missing.
            if best is None or (bound, -len(pattern.ops)) > (best[0], -len(best[1].ops)):
                best = bound, pattern, text
    if best is None:
        # Of each pattern some operator is here, but not the one that a search begins with.
        pattern = max(patterns, key=lambda one: sum(not present.isdisjoint(op.types) for op in one.ops))
        missing = [_types(op.types) for op in pattern.ops if present.isdisjoint(op.types)]
        return f"nearest is its pattern '{_name(pattern)}', for which the program has no {' and no '.join(missing)}"
    bound, pattern, text = best
    return f"nearest is its pattern '{_name(pattern)}', {bound} of its {len(pattern.ops)} operators: {text}"


def _name(pattern: Pattern) -> str:
    return pattern.function.__name__.strip("_").replace("_", " ")


def _tries(pattern: Pattern, view: View, applied: Sequence[Applied]) -> Iterator[tuple[int, str]]:
    """Yields how far each search for a pattern came: how many of its ops it found, and what stopped it."""
    for one in attempts(pattern, view):
        indices = list(one.ops.values())
        if one.misfit is None:
            switch = _taken(indices, view, applied)
            why = f"{switch} has them already" if switch else "they stand there, but not in the form that it takes"
            yield len(indices), why
        elif indices:
            yield len(indices), _misfit(one.misfit, view)


def _misfit(found: Misfit, view: View) -> str:
    """Returns why the search for a pattern ended."""
    op = view.ops[found.index]
    if found.why == "maker":
        maker = view.maker.get(found.entry)
        made = "is an input" if maker is None else f"is made by {_at(view.ops[maker])}"
        return f"'{found.slot}' of {_at(op)} {made}, and not by {_types(found.wanted)}"
    if found.why == "value":
        return f"'{found.slot}' of {_at(op)} is another value than the pattern has there"
    if found.why == "missing":
        return f"{_at(op)} has no single '{found.slot}'"
    return f"{_at(op)} stands in two of its places"


# ------------------------------------------------------------------------------------------------------------------ chains
@dataclass(frozen=True, slots=True)
class _Reached:
    """How many links of a chain were found, and the ops of the longest part, the last one last."""

    count: int
    ops: tuple[int, ...]


def _chain(chain: Chain, view: View, applied: Sequence[Applied]) -> str:
    words = [link.words for link in chain.links]
    if not any(link.fits(op) for link in chain.links for op in view.ops):
        return _absent(", ".join(dict.fromkeys(words)))
    reached = _longest(chain, view)
    if not reached.count:
        return f"the program has no {words[0].split(' ', 1)[1]}, with which what it joins begins"
    last = _at(view.ops[reached.ops[-1]])
    if reached.count == len(words):
        switch = _taken(reached.ops, view, applied)
        if switch:
            return f"nearest is what ends with {last}, which {switch} has already"
        return f"nearest is what ends with {last}, but not in the form that it takes: {chain.rule}"
    behind = view.readers.get(next(iter(view.ops[reached.ops[-1]].writes()), ""), ())
    readers = _types(view.ops[i].type for i in behind)
    read = f"its result is read by {readers}" if readers else "no operator reads its result"
    missing = f"no {_bare(words[reached.count])} follows, {read}"
    return f"nearest is {last}, {reached.count} of the {len(words)} operators that it joins: {missing}"


def _bare(words: str) -> str:
    return words.removeprefix("an ").removeprefix("a ")


def _longest(chain: Chain, view: View) -> _Reached:
    """Returns the longest part of a chain that stands in a program."""
    best = _Reached(0, ())
    # Op -> number of links -> the ops of such a part that ends with it, or that it only passes on.
    ends: list[dict[int, tuple[int, ...]]] = []
    for index, op in enumerate(view.ops):
        before: dict[int, tuple[int, ...]] = {}
        for value in op.reads():
            maker = view.maker.get(value)
            if maker is not None and maker < index:
                for count, ops in ends[maker].items():
                    # Of parts of equal length any one will do.
                    before.setdefault(count, ops)
        mine: dict[int, tuple[int, ...]] = {}
        if op.definition.view is not None or is_elementwise(op.definition):
            mine.update(before)
        for number, link in enumerate(chain.links):
            if link.fits(op) and (number == 0 or number in before):
                mine[number + 1] = (*before.get(number, ()), index)
        ends.append(mine)
        for count, ops in mine.items():
            if count > best.count:
                best = _Reached(count, ops)
    return best


__all__ = ["why_idle"]
