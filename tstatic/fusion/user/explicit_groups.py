"""Makes the fusions that users require with ``static.fuse_together``."""

from __future__ import annotations

from tstatic.errors import UnsupportedError
from tstatic.fusion.engine import Fusion, Groups, Log, apply
from tstatic.fusion.engine.view import View
from tstatic.ir.declare import FUSE_TOGETHER
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.types import Meta
from tstatic.where import show

EXPLICIT_GROUPS = Fusion("together", "fuse_together()", Groups(View.explicit_groups))
"""The groups of ``static.fuse_together``; fused before any other fusion."""


def has_explicit_groups(program: FrozenProgram) -> bool:
    """Returns whether the program has a group of ``static.fuse_together``."""
    return any(FUSE_TOGETHER in op.scope for op in program.ops)


def apply_explicit_groups(program: FrozenProgram, metas: dict[str, Meta], log: Log) -> FrozenProgram:
    """Makes the fusions that the user requires.

    Raises:
        UnsupportedError: If one is impossible; it has the code, the reason, the ops with the user's lines, and the smallest
            change that would allow it.
    """
    if not has_explicit_groups(program):
        return program
    mine = Log()
    done = apply(EXPLICIT_GROUPS, program, metas, mine)
    log.applied.extend(mine.applied)
    if not mine.refused:
        return done
    # The first is enough: the others may follow from it.
    no = mine.refused[0]
    ops = ", ".join(f"{m.type} at {show(m.where)}" if m.where else m.type for m in no.members)
    raise UnsupportedError(
        f"the operators inside fuse_together() cannot be one kernel: {no.code}, {no.reason}",
        expected="operators that one kernel can compute",
        received=ops,
        fix=no.change,
        op=no.members[-1].type,
        where=show(no.members[-1].where),
    )
