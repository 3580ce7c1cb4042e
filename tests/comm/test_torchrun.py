"""The same script under torchrun: who it is, what it says when a rank fails, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

import pytest

from tests.comm.pool import SLACK, Pool
from tests.helpers.patience import pace

pytestmark = pytest.mark.torch


def _torchrun(pool: Pool, case: str, **arguments: Any) -> tuple[int, str, str]:
    """Runs a case in two processes that torchrun starts; returns its exit code, stdout and stderr."""
    flags = {"FLAGS_step_timeout_s": f"{20 * pace():g}", "PYTHONWARNINGS": "default"}
    with pool.trial("torchrun", 1, flags, name=case, arguments=arguments) as trial:
        try:
            code = trial.wait(60.0 * SLACK)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(trial.pids[0], signal.SIGKILL)
        return code, trial.out(0), trial.err(0)


@pytest.mark.slow
def test_two_processes_of_torchrun_work_together_and_end_well(pool: Pool) -> None:
    code, out, err = _torchrun(pool, "joined")
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert sorted(line for line in lines if len(line) == 2 and line[1] == 2) == [[0, 2], [1, 2]]
    assert lines.count([1.5, [0.5, 1.0], 0.5]) == 2
    assert "tstatic" not in err


@pytest.mark.slow
def test_the_verdict_is_printed_before_torchrun_ends_the_survivor(pool: Pool) -> None:
    code, out, err = _torchrun(pool, "train", fault="raise", at=3, victims=[1])
    assert code != 0
    assert "tstatic: rank 0 of 2: rank 1 raised ValueError: a planted fault, at " in err
    assert "cases.py" in err
    assert out.count('["fault"') == 1
    assert out.count('["error"') <= 1  # torchrun may end the survivor before its own error comes
