"""Runs passes in order, verifies the program after each, and records what each one did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import DEBUG
from operator import is_not

from tstatic.ir.frozen import FrozenProgram, verify
from tstatic.logs import get_logger

_log = get_logger("passes")


@dataclass(frozen=True, slots=True)
class Pass:
    """A name and a function from frozen program to frozen program."""

    name: str
    run: Callable[[FrozenProgram], FrozenProgram]


@dataclass(frozen=True, slots=True)
class PassRecord:
    """The effect of one pass: ops before and after, and its time in seconds."""

    name: str
    before: int
    after: int
    seconds: float


def run_passes(program: FrozenProgram, passes: Sequence[Pass]) -> tuple[FrozenProgram, tuple[PassRecord, ...]]:
    """Runs ``passes`` in order; returns the program and one record per pass."""
    verify(program, "freeze")
    records = []
    for one in passes:
        start = time.perf_counter()
        before = program.ops
        program = one.run(program)
        verify(program, one.name)
        record = PassRecord(one.name, len(before), len(program.ops), time.perf_counter() - start)
        records.append(record)
        if _log.isEnabledFor(DEBUG) and (len(before) != len(program.ops) or any(map(is_not, before, program.ops))):
            _log.debug("%s: %d ops -> %d ops in %.1f ms", one.name, record.before, record.after, record.seconds * 1e3)
    return program, tuple(records)
