"""Loops of machine code, found in its jumps: what stands in a loop runs often, wherever the assembler put it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Instruction", "loops"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a function.

    Attributes:
        operation: Its opcode.
        labels: Labels that stand before it.
        target: Label that it may jump to, or "".
        ends: Whether the next instruction never runs after it.
    """

    operation: str
    labels: tuple[str, ...] = ()
    target: str = ""
    ends: bool = False


def loops(code: Sequence[Instruction]) -> list[frozenset[int]]:
    """Returns the natural loops of a function: positions in ``code`` of the instructions of each.

    A loop is what lies between its head and a jump back to it, found by control flow: a block that the assembler moved behind
    the end of the function belongs to the loop that it jumps back into. Loops with the same head are one.
    """
    if not code:
        return []
    starts = _starts(code)
    following = _following(code, starts)
    order = _order(following)
    dominator = _dominators(following, order)
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for other in following[block]:
            before[other].append(block)
    members: dict[int, set[int]] = {}
    for block in order:
        for head in following[block]:
            if _dominates(dominator, head, block):
                members.setdefault(head, {head})
                todo = [block]
                while todo:
                    one = todo.pop()
                    if one not in members[head]:
                        members[head].add(one)
                        todo += before[one]
    ends = dict(zip(starts, [*starts[1:], len(code)], strict=True))
    return [frozenset(i for b in blocks for i in range(b, ends[b])) for blocks in members.values()]


def _starts(code: Sequence[Instruction]) -> list[int]:
    """Positions at which a block begins."""
    return [i for i, one in enumerate(code) if i == 0 or one.labels or code[i - 1].target or code[i - 1].ends]


def _following(code: Sequence[Instruction], starts: Sequence[int]) -> dict[int, list[int]]:
    """Block -> blocks that may run next."""
    places = {label: i for i, one in enumerate(code) for label in one.labels}
    found: dict[int, list[int]] = {}
    for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
        last = code[end - 1]
        found[start] = [places[last.target]] if last.target in places else []
        if not last.ends and end < len(code):
            found[start].append(end)
    return found


def _order(following: dict[int, list[int]]) -> list[int]:
    """Blocks that can be reached, each before those behind it (reverse postorder)."""
    seen = {0}
    done: list[int] = []
    stack: list[tuple[int, Iterator[int]]] = [(0, iter(following[0]))]
    while stack:
        block, rest = stack[-1]
        fresh = next((b for b in rest if b not in seen), None)
        if fresh is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(fresh)
            stack.append((fresh, iter(following[fresh])))
    return done[::-1]


def _dominators(following: dict[int, list[int]], order: Sequence[int]) -> dict[int, int]:
    """Block -> the last other block that every way to it passes (Cooper, Harvey and Kennedy, 2001)."""
    place = {block: i for i, block in enumerate(order)}
    found = {0: 0}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for other in following[block]:
            before[other].append(block)
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [b for b in before[block] if b in found]
            new = known[0]
            for other in known[1:]:
                while new != other:
                    if place[new] > place[other]:
                        new = found[new]
                    else:
                        other = found[other]
            if found.get(block) != new:
                found[block] = new
                changed = True
    return found


def _dominates(dominator: dict[int, int], head: int, block: int) -> bool:
    """Whether every way to ``block`` passes ``head``."""
    while block != head and block:
        block = dominator[block]
    return block == head
