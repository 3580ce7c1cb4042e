"""A sample of the soak of imports that an exception breaks off, and that it sees what it is there to see."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.helpers.own_process import run_alone

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def soak(*args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return run_alone(f"import sys; from tests.unit import soak_imports\n{before}\nsys.exit(soak_imports.main())", *args)


def test_a_name_whose_import_was_broken_off_can_be_used_again() -> None:
    """Ctrl-C during the first use of a name once left it "registered twice" for the rest of the process."""
    done = soak("--trials", "4", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_soak_sees_a_registration_that_cannot_be_repeated() -> None:
    once = """
import tstatic
from tstatic.ir.registry import Registry
def add(self, key, value, add=Registry.add):
    assert key not in self.loaded, f"{key} is registered twice"
    add(self, key, value)
Registry.add = add
"""
    done = soak("--trials", "1", "--seed", "2", before=once)
    assert done.returncode == 1
    assert "is registered twice" in done.stderr


EVENTS = """
import sys
from tests.unit.soak_imports import _at
from tstatic.ir.export import export
dropped = []
sys.unraisablehook = dropped.append
event, heard = 0, 1
while heard > event:  # until an export ends before the event
    event, noted = event + 1, [0]
    sys.settrace(_at(event, KeyboardInterrupt, noted))
    try:
        export(f"fluid.nothing_{event}")(lambda x: x)
    except KeyboardInterrupt:
        heard = event + 1
    else:
        heard = event
    sys.settrace(None)
    assert heard > event or noted[0] < event, f"event {event} raised, and nobody heard of it"
assert event > 20 and not dropped, (event, dropped)
"""


def test_what_the_soak_raises_is_never_dropped() -> None:
    """Within a generator that is closed it was: Python printed "Exception ignored", and the trial tried nothing."""
    done = run_alone(EVENTS)
    assert done.returncode == 0, done.stdout + done.stderr
