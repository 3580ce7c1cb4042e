"""The op of CONTRIBUTING.md, put where the recipe says: the whole project takes it in, and a fault in it is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.snippets import python_blocks

ROOT = Path(__file__).parents[2]
RECIPE = python_blocks(ROOT / "CONTRIBUTING.md")[0]

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with the recipe's file in it."""
    for folder in ("tstatic", "tests", "docs", "bench"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tstatic" / "ops" / "exp2.py").write_text(RECIPE, encoding="utf-8")
    return tmp_path


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


SCRIPTS = """
import os, runpy
for script in ("tests/api/regenerate.py", "docs/regenerate.py"):
    try:
        runpy.run_path(os.path.abspath(script), run_name="__main__")
    except SystemExit as ended:
        assert not ended.code
"""


def test_everything_is_filled_in(project: Path) -> None:
    code = (
        "import numpy as np, tstatic as paddle; from tstatic import static\n"
        "x = static.data('x', [2]); x.stop_gradient = False; y = paddle.exp2(x) + x.exp2()\n"
        "(g,) = static.gradients([y], [x])\n"
        "print(*static.Executor('cpu').run(feed={'x': np.array([1, 3], 'float32')}, fetch_list=[y, g]))"
    )
    # One process: all of them import the same.
    done = python(project, "-c", code + SCRIPTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:7] == ["[", "4.", "16.]", "[", "2.7725887", "11.090355", "]"], done.stderr
    for wrote in ("signatures.txt", "ops.md"):
        assert wrote in done.stdout, done.stderr
    assert "tstatic.exp2(x, name=None)" in (project / "tests" / "api" / "signatures.txt").read_text(encoding="utf-8")
    assert (
        "def exp2(self, name: str | None = ...) -> Variable" in (project / "tstatic" / "ir" / "methods.pyi").read_text()
    )
    assert "| `exp2` | `X -> Out` |" in (project / "docs" / "ops.md").read_text(encoding="utf-8")


def test_generic_tests_pick_it_up(project: Path) -> None:
    done = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops", "-k", "exp2")
    assert done.returncode == 0, done.stdout
    passed = int(done.stdout.split(" passed")[0].split()[-1])
    assert passed >= 8, done.stdout


def test_a_fault_in_the_lowering_or_the_gradient_is_found(project: Path) -> None:
    file = project / "tstatic" / "ops" / "exp2.py"
    wrong = {"torch.exp2(x)": "torch.exp(x)", "dout * out * 0.6931471805599453": "dout * out"}
    text = RECIPE
    for right, planted in wrong.items():
        assert right in text
        text = text.replace(right, planted)
    file.write_text(text, encoding="utf-8")
    files = ("tests/ops/test_lower.py", "tests/ops/test_grad.py")
    done = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", "exp2")
    assert done.returncode == 1, done.stdout
    for name in ("test_lower", "test_grad"):
        assert f"FAILED tests/ops/{name}.py" in done.stdout
