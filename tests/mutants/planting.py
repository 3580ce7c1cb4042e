"""Plants a mutant, runs its tests in a process of their own, and says which failed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.patience import pace
from tests.mutants.change import changed

ROOT = Path(__file__).parents[2]
HOOK = Path(__file__).parent / "hook"
LIMIT_S = 60.0
"""Seconds of the processor that a mutant's tests may take."""


@dataclass(frozen=True)
class Mutant:
    """A fault, and the tests that must see it.

    Attributes:
        file: Path of the module.
        function: Its function, with the classes and functions around it; empty for the module's own statements.
        kind: Kind of node.
        was: The node's text.
        becomes: What it is replaced by.
        tests: Files, and tests of files.
        k: Expression that narrows the tests.
        number: Which of several nodes of that text; 0 where there is one alone.
        interpret: The tests are those of the interpreter's ring.
    """

    file: str
    function: str
    kind: str
    was: str
    becomes: str
    tests: tuple[str, ...]
    k: str = ""
    number: int = 0
    interpret: bool = False

    @property
    def name(self) -> str:
        """``plan/memory.py: function `place`: comparison `a < b` becomes `a <= b```."""
        where = f"function `{self.function}`" if self.function else "module"
        which = f" {self.number}" if self.number else ""
        return f"tstatic/{self.file}: {where}: {self.kind}{which} `{self.was}` becomes `{self.becomes}`"

    def facts(self) -> dict[str, object]:
        """What the hook needs."""
        module = ".".join(("tstatic", *Path(self.file).with_suffix("").parts))
        return {
            "module": module.removesuffix(".__init__"), "function": self.function, "kind": self.kind, "was": self.was,
            "becomes": self.becomes, "number": self.number,
        }  # fmt: skip

    def applies(self) -> None:
        """Raises DoesNotApplyError if the source has no such node."""
        changed((ROOT / "tstatic" / self.file).read_text(), self.facts())


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the first test that failed (empty: none did), and how long it took."""

    killed_by: str
    seconds: float
    problem: str = ""


def plant_in_kernels(fault: str) -> Outcome:
    """Plants one of ``tests/interpret/faults.py`` and runs random programs until one differs."""
    test = "tests/interpret/test_faults.py::test_planted_faults_are_caught"
    outcome = plant(None, (test,), interpret=True, TSTATIC_FAULTS=fault)
    # That test passes where the fault is caught.
    caught = not outcome.killed_by and not outcome.problem
    return Outcome(test if caught else "", outcome.seconds, outcome.problem)


def plant(
    mutant: Mutant | None,
    tests: tuple[str, ...] = (),
    k: str = "",
    interpret: bool = False,
    wall_s: float = 6 * LIMIT_S * pace(),
    **more: str,
) -> Outcome:
    """Runs the tests of a mutant, or some tests without any.

    Args:
        mutant: Names its tests itself.
        tests, k, interpret: Without a mutant, as for one.
        wall_s: Seconds after which the tests' process and all that it started are killed.
        **more: Variables of the tests' environment.
    """
    if mutant is not None:
        tests, k, interpret = mutant.tests, mutant.k, mutant.interpret
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        planted = Path(folder, "planted")
        drop = ("TSTATIC_CPU_BACKEND", "TRITON_INTERPRET", "TSTATIC_MUTANT", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS")
        environment = {key: value for key, value in os.environ.items() if key not in drop}
        # Kernels are cached by their text: a wrong one harms no later process, but its folder is as good as the others.
        environment |= {"HYPOTHESIS_PROFILE": "ci", "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}", **more}
        environment |= {"TSTATIC_CPU_BACKEND": "interpret"} if interpret else {}
        if mutant is not None:
            environment["TSTATIC_MUTANT"] = json.dumps({**mutant.facts(), "planted": str(planted)})
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
        command += ["-k", k] if k else []
        begun, spent = time.perf_counter(), os.times()
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=wall_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                took = time.perf_counter() - begun
                return Outcome("", took, f"subprocess timeout: its tests did not end within {wall_s:g} s")
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        after = os.times()
        seconds = after.children_user + after.children_system - spent.children_user - spent.children_system
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
        if process.returncode not in (0, 1) or (process.returncode == 1) != bool(failed):
            return Outcome("", seconds, f"pytest ended with {process.returncode}: {(out + err)[-600:]}")
        if mutant is not None and not planted.exists():
            return Outcome("", seconds, "its tests never import the module")
        if seconds > LIMIT_S:
            return Outcome("", seconds, f"its tests take more than {LIMIT_S:.0f} s")
        return Outcome(failed[1] if failed else "", seconds)
