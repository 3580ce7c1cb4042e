"""Processes that tests start import the checkout's package, and the fault that ``tests/mutants`` plants in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api import test_recipe
from tests.cli import test_hostile, test_streams
from tests.comm import pool
from tests.examples import test_gpt
from tests.helpers import child, own_process
from tests.mutants.planting import HOOK
from tests.mutants.table import Mutant
from tests.parity import record
from tests.unit import (
    test_imports,
    test_layers_contract,
    test_logs,
    test_optional_packages,
    test_places,
    test_registry,
    test_tracebacks,
)

FAULT = Mutant("version.py", "show_versions", "statement", "return report", "return {}", ("",)).facts()

STARTS: dict[str, Callable[[Path], Any]] = {
    "test_recipe": lambda folder: test_recipe.python(folder, "-c", ""),
    "test_imports": lambda folder: test_imports.test_no_module_imports_anything_heavy(),
    "test_registry": lambda folder: test_registry.run(folder, ""),
    "test_places": lambda folder: test_places.test_asking_for_places_imports_nothing_heavy(),
    "test_logs": lambda folder: test_logs.test_the_import_of_tstatic_switches_the_topics_of_the_environment_on(),
    "test_optional_packages": lambda folder: test_optional_packages.run((), "", folder),
    "test_tracebacks": lambda folder: test_tracebacks.ran(folder, ""),
    "test_gpt": lambda folder: test_gpt.run("-c", ""),
    "test_streams": lambda folder: test_streams.test_a_new_process_with_a_closed_output_says_so(folder),
    "test_hostile": lambda folder: test_hostile.test_an_interrupt_ends_with_130_and_no_traceback(folder, "run"),
    "test_layers_contract": lambda folder: test_layers_contract.test_imports_point_down(),
    "own_process": lambda folder: own_process.run_alone(""),
    "record": lambda folder: subprocess.run([], env=record.environment(), check=False),
    "pool": lambda folder: subprocess.run([], env=pool.environment(), check=False),
}
"""What starts a process in a file of tests."""

OTHERS = {
    "bench/scripts.py": "hides packages by a folder that Python looks into as it starts, and there is one such folder",
    "helpers/warm.py": "puts the path of an order into the process that carries it out",
    "interpret/test_script.py": "a kernel's module runs without the package",
    "kernels/test_contact.py": "a second environment, in which this checkout is not on the path",
    "mutants/planting.py": "plants the fault",
    "unit/test_mutants.py": "plants a fault into a warm process",
}
"""Files that name the path themselves, and why."""


class _StartedError(Exception):
    """Instead of a process."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fault in the environment of this process; the file is there once it has been planted."""
    file = tmp_path / "planted"
    monkeypatch.setenv("TSTATIC_MUTANT", json.dumps({**FAULT, "planted": str(file)}))
    monkeypatch.setenv("PYTHONPATH", f"{HOOK}{os.pathsep}{child.ROOT}")
    return file


@pytest.mark.parametrize("name", STARTS)
def test_a_planted_fault_reaches_every_process(
    name: str, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*args: Any, env: dict[str, str] | None = None, **given: Any) -> Any:
        assert env is not None
        paths = [Path(path).resolve() for path in env["PYTHONPATH"].split(os.pathsep)]
        hook = paths.index(Path(HOOK).resolve())
        if name != "test_layers_contract":  # which looks at the text of the sources, and has no other variables
            assert env["TSTATIC_MUTANT"] == os.environ["TSTATIC_MUTANT"]
        assert not any((path / "sitecustomize.py").exists() for path in paths[:hook])
        raise _StartedError

    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(_StartedError):
        STARTS[name](tmp_path)


def test_a_planted_fault_takes_effect_in_a_process(planted: Path) -> None:
    subprocess.run([sys.executable, "-c", "import tstatic.version"], env=child.environment(), check=True)
    assert planted.exists()


def test_a_copy_of_the_package_comes_first(planted: Path, tmp_path: Path) -> None:
    path = child.environment(tmp_path, without=("HOME",), MORE="1")
    assert path["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), str(HOOK), str(child.ROOT)]
    assert "HOME" not in path
    assert path["MORE"] == "1"


def test_no_other_file_makes_a_path_of_its_own() -> None:
    """Guards against a process that sets the path to the checkout alone: it would not see a planted fault."""
    tests = child.ROOT / "tests"
    naming = {
        str(f.relative_to(tests)) for f in tests.rglob("*.py") if re.search(r"[\"']PYTHONPATH[\"']", f.read_text())
    }
    own = naming - {str(Path(__file__).relative_to(tests)), "helpers/child.py"}
    using = {name for name in own if "child.python_path()" in (tests / name).read_text()}
    assert sorted(own - using - set(OTHERS)) == [], "use tests/helpers/child.py"
    assert sorted(set(OTHERS) - own) == [], "these no longer name it"
