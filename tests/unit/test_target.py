"""The facts of chips."""

from __future__ import annotations

import dataclasses

import pytest

from tests.kernels.limits import SHARED_LIMIT
from tstatic import target

CHIPS = (target.A100, target.H100, target.B200)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda c: c.name)
def test_chips_have_the_shared_memory_that_compiled_kernels_are_checked_for(chip: target.Target) -> None:
    assert chip.shared_bytes == SHARED_LIMIT[int(chip.architecture.removeprefix("sm_"))]
    assert not chip.large_programs


def test_only_where_nothing_runs_beside_a_program_are_programs_large() -> None:
    assert target.INTERPRETER.large_programs
    assert not dataclasses.replace(target.INTERPRETER, multiprocessors=2).large_programs
