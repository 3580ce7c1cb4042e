"""Which saved programs are good in this process only: those that call its Python functions."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tstatic.ir.program import Program


@lru_cache(maxsize=1)
def this_process() -> str:
    """A word that no other process has: functions of ``py_func`` are numbered per process."""
    return secrets.token_hex(8)


def calls_functions(program: Program) -> bool:
    """Whether an op calls a Python function."""
    return any(
        spec.kind == "function" and op.attrs.get(name, -1) >= 0
        for block in program.blocks
        for op in block.ops
        for name, spec in op.card.attrs.items()
    )


def process_of(program: Program) -> str:
    """What marks a program's saved form as good in this process only; empty when it is good everywhere."""
    return this_process() if calls_functions(program) else ""
