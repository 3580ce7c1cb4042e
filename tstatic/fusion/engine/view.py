"""Indexes a frozen program: the maker and readers of each value, the values that must be kept, and ops by type."""

from __future__ import annotations

from collections.abc import Mapping

from tstatic.fusion.codegen.define import LoopBodies
from tstatic.ir.declare import FUSE_TOGETHER, NO_FUSE
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta


class View:
    """An index of one program.

    Args:
        program: The frozen program.
        metas: Metadata of all its values, with the sizes of this run.
        later: Switches of the fusions that come after the one that asks.
    """

    def __init__(self, program: FrozenProgram, metas: Mapping[str, Meta], later: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.ops: tuple[FrozenOp, ...] = program.ops
        self.metas = metas
        self.later = later
        self.formulas = LoopBodies(metas)
        self.maker: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self._types: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            for value in op.reads():
                self.readers.setdefault(value, []).append(index)
            for value in op.writes():
                self.maker[value] = index
            self._types.setdefault(op.type, []).append(index)
        self.fetched = {v for _, v in program.fetches}
        self.kept = set(program.writes.values())
        # A gradient op has the position of its forward op, but not its scope.
        places = {op.position for op in self.ops if NO_FUSE in op.scope}
        self.forbidden = {i for i, op in enumerate(self.ops) if op.position in places and places}

    def explicit_groups(self) -> list[tuple[int, ...]]:
        """Returns the forward ops inside ``fuse_together``, one tuple per use."""
        found: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            at = op.scope.find(FUSE_TOGETHER)
            if at >= 0 and not op.role & OpRole.Backward and not op.body:
                # The mark with its number: scopes inside of it are one group.
                found.setdefault(op.scope[at:].split("/", 1)[0], []).append(index)
        return [tuple(v) for v in found.values()]

    def of_type(self, kind: str) -> list[int]:
        """Returns the indices of the ops of a type."""
        return self._types.get(kind, [])

    def outside(self, value: str, inside: set[int]) -> list[int]:
        """Returns the readers of a value that are not in ``inside``."""
        return [i for i in self.readers.get(value, ()) if i not in inside]

    def needed(self, inside: set[int]) -> list[str]:
        """Returns the values that the ops ``inside`` make and others read, or that are fetched or kept, in order."""
        found = []
        for index in sorted(inside):
            for value in self.ops[index].writes():
                # Asked whether there is one, not which: a value that all layers share has thousands.
                if (
                    value in self.fetched
                    or value in self.kept
                    or any(i not in inside for i in self.readers.get(value, ()))
                ):
                    found.append(value)
        return found

    def between(self, inside: set[int]) -> int | None:
        """Returns an outside op that reads from the ops ``inside`` and that others of them depend on: they cannot be fused.

        ``None`` if there is none, or if nothing is inside.
        """
        if not inside:
            return None
        # Only ops between the first and the last member can depend on one and be read by another: the program is sorted.
        first, last = min(inside), max(inside)
        tainted: set[str] = set()
        culprit: dict[str, int] = {}
        for index in range(first, last + 1):
            op = self.ops[index]
            if index in inside:
                for value in op.reads():
                    if value in tainted:
                        return culprit[value]
                continue
            if any(v in tainted or (self.maker.get(v, -1) in inside) for v in op.reads()):
                for value in op.writes():
                    tainted.add(value)
                    culprit[value] = index
        return None
