"""What starting a command costs, its help, completion, and what is left without typer."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from tests.cli.cases import tstatic, write_script
from tests.unit.test_optional_packages import REFUSE
from tstatic.cli.app import app

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")

ROOT = Path(__file__).parents[2]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]

LOADED = """
import json, sys, time
sys.argv = ["tstatic", *{arguments!r}]
from tstatic.cli import main

try:
    main()
except SystemExit:
    pass
print(json.dumps([sorted(sys.modules), time.process_time()]))
"""


def loaded(*arguments: str) -> set[str]:
    script = LOADED.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    modules, _ = json.loads(done.stdout.splitlines()[-1])
    return set(modules)


def test_help_and_wrong_calls_import_nothing_large() -> None:
    """Processor time is about 0.35 s on an idle machine, most of it numpy's; what counts is what is imported."""
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, json, tstatic; print(json.dumps(sorted(sys.modules)))"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    before = set(json.loads(bare.stdout))
    for arguments in (("explain", "--help"), ("memory", "nowhere.py"), ("convert",), ("bench", "--help"), ("compare",)):
        more = loaded(*arguments) - before
        own = {m for m in more if m.startswith("tstatic")}
        assert {m for m in own if not m.startswith(("tstatic.cli", "tstatic.tools"))} <= {"tstatic.display"}
        assert not {"torch", "triton", "scipy", "rich", "pydantic"} & {m.partition(".")[0] for m in more}


@pytest.mark.slow
def test_every_command_has_an_example_that_runs(tmp_path: Path) -> None:
    write_script(tmp_path, name="train.py")
    assert tstatic(tmp_path, "run", "train.py", ".").returncode == 0
    import torch

    torch.save({"fc1.weight": torch.ones(2, 3)}, tmp_path / "model.pth")
    measured = (
        "bench",
        "--op",
        "relu",
        "--direction",
        "fwd",
        "--peers",
        "tstatic,numpy",
        "--repeats",
        "1",
        "--time",
        "0.001",
        "--json",
    )
    assert tstatic(tmp_path, *measured, "before.json").returncode == 0
    shutil.copy(tmp_path / "before.json", tmp_path / "after.json")
    for name, command in COMMANDS.items():
        found = re.fullmatch(r"Example: tstatic (.+)", command.epilog or "")
        assert found, name
        arguments = shlex.split(found[1])
        assert arguments[0] == name
        if name in ("doctor", "verify", "compile"):
            continue  # tests of their own run them
        done = tstatic(tmp_path, *arguments, TSTATIC_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0, (name, done.stdout, done.stderr)


def test_every_command_but_run_prints_json() -> None:
    with_json = {name for name, c in COMMANDS.items() if any("--json" in p.opts for p in c.params)}
    assert set(COMMANDS) - with_json == {"run"}


def test_help_says_what_each_argument_is() -> None:
    for name, command in COMMANDS.items():
        assert command.help, name
        assert all(getattr(p, "help", None) for p in command.params), name


def test_completion_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tstatic"], cwd=ROOT, capture_output=True, text=True,
        env={"_TSTATIC_COMPLETE": "complete_bash", "COMP_WORDS": "tstatic ker", "COMP_CWORD": "1", "PATH": ""},
    )  # fmt: skip
    assert done.stdout.split() == ["kernels"], done.stderr


def test_without_typer_it_says_what_to_install(tmp_path: Path) -> None:
    hidden = r"""
import importlib.util as u
find = u.find_spec
u.find_spec = lambda n, *a: None if n in ("typer", "rich") else find(n, *a)
"""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        text = (
            REFUSE.format(packages=("typer", "rich"))
            + hidden
            + LOADED.format(arguments=arguments).replace("pass", "raise")
        )
        return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)

    explain = run("explain", "net.py")
    assert explain.returncode == 3
    assert "pip install 'tstatic[cli]'" in explain.stderr
    doctor = run("doctor", "--quick")
    assert "Nothing is broken." in doctor.stdout, doctor.stderr
    assert doctor.returncode == 0
    assert json.loads(run("doctor", "--quick", "--json").stdout)["ok"]
    assert run("--help").returncode == 0
    assert "doctor" in run("--help").stdout


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tstatic": "tstatic.tools.cli:main"}


def test_extras_install_only_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    homes = {"demo": "examples", "docs": "docs"}
    names = {"scikit-learn": "sklearn", "myst-parser": "myst_parser"}
    for extra, packages in project["optional-dependencies"].items():
        if extra == "dev":
            continue
        text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / homes.get(extra, "tstatic")).rglob("*.py"))
        for package in packages:
            name = re.split(r"[<>=\[;]", package)[0]
            if name == "tstatic":
                continue
            module = names.get(name, name)
            # Sphinx imports what its settings name, and pages are built with its command.
            used = rf'^\s*(import|from) {module}\b|^    "{module}",|^html_theme = "{module}"'
            assert module == "sphinx" or re.search(used, text, re.MULTILINE), f"[{extra}] installs {name} for nothing"
