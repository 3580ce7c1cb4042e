"""Detects programs that are bound to this process because they call its Python functions (``py_func``)."""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

from tstatic.ir.text import program_text

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
        for name, spec in op.definition.attrs.items()
    )


def process_of(program: Program) -> str:
    """What marks a program's saved form as bound to this process; empty when any process can run it."""
    return this_process() if calls_functions(program) else ""


def shared_text(program: Program) -> str:
    """The text of a program as every process writes that builds the same: Python functions are numbered from 0 in it."""
    names = {
        n for b in program.blocks for op in b.ops for n, spec in op.definition.attrs.items() if spec.kind == "function"
    }
    text = program_text(program)
    if not names:
        return text
    numbers: dict[str, int] = {}
    call = re.compile(rf"\b({'|'.join(sorted(names))}) = (\d+)")
    return call.sub(lambda found: f"{found[1]} = {numbers.setdefault(found[2], len(numbers))}", text)
