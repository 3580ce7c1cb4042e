"""The op, the fusion and the device of CONTRIBUTING.md, put where the recipes say: the project takes them in, and finds faults."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import child
from tests.helpers.snippets import python_blocks

ROOT = Path(__file__).parents[2]
RECIPE, FUSION, DEVICE = python_blocks(ROOT / "CONTRIBUTING.md")

pytestmark = pytest.mark.slow


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the project."""
    for folder in ("tstatic", "tests", "docs", "bench", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


@pytest.fixture
def project(copied: Path) -> Path:
    """A copy of the project with the op's file in it."""
    (copied / "tstatic" / "ops" / "exp2.py").write_text(RECIPE, encoding="utf-8")
    return copied


def python(project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    environment = child.environment(project, **environ)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


SCRIPTS = """
import os, runpy, sys
from tstatic.tools.cli.op import op
print(op("exp2").data["triton"]["text"].rpartition("@triton.jit")[2])
print("missing:", {title: form["none"] for title, form in op("exp2").data.items() if title != "op" and "none" in form})
# Of the pages those that tell of ops: the others cost a quarter of a minute.
for script, *pages in (("tests/api/regenerate.py",), ("docs/regenerate.py", "ops.md", "api.md")):
    sys.argv = [script, *pages]
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
    assert "v1 = tl.exp(a0 * 0.6931471805599453)" in done.stdout.replace("((", "(").replace("))", ")"), done.stdout
    assert "missing: {}" in done.stdout, done.stdout
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


# ------------------------------------------------------------------------------------------------------------- a fusion
def with_fusion(project: Path, text: str) -> None:
    """Adds the file and the two lines."""
    (project / "tstatic" / "fusion" / "patterns" / "scale_tanh.py").write_text(text, encoding="utf-8")
    front = project / "tstatic" / "fusion" / "patterns" / "__init__.py"
    lines = front.read_text(encoding="utf-8")
    for behind in ("    relu_depthwise_conv,\n", "    relu_depthwise_conv.FUSION,\n"):
        assert lines.count(behind) == 1
        lines = lines.replace(behind, behind + behind.replace("relu_depthwise_conv", "scale_tanh"))
    front.write_text(lines, encoding="utf-8")


PROPERTIES = """
import sys, pytest, tstatic as paddle
from tstatic import static
x = static.data("x", [2, 3]); x.stop_gradient = False
(g,) = static.gradients([paddle.tanh(paddle.scale(x, 2.0, 1.0))], [x])
strategy = static.BuildStrategy(); strategy.fuse_elewise_add_act_ops = True
compiled = static.CompiledProgram(static.default_main_program(), build_strategy=strategy)
print(*(a.op for a in compiled.explain(fetch_list=[g]).applied))
files = [f"tests/interpret/test_{name}.py" for name in ("fusion_properties", "passes_and_switches")]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *files, "-k", "scale_tanh and (CHOSEN)"]))
"""


def properties(project: Path, chosen: str) -> subprocess.CompletedProcess[str]:
    """Runs the generic tests of fusions, in Triton's interpreter."""
    return python(project, "-c", PROPERTIES.replace("CHOSEN", chosen), TSTATIC_CPU_BACKEND="interpret", CPU_NUM="1")


def test_generic_properties_pick_a_fusion_up(copied: Path) -> None:
    pytest.importorskip("triton")
    with_fusion(copied, FUSION)
    done = properties(copied, "gradients or near_misses or takes or another_fusion")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "fused_scale_tanh fused_scale_tanh_grad"
    assert "4 passed" in done.stdout


def test_a_fusion_is_a_file_and_two_lines(copied: Path) -> None:
    with_fusion(copied, FUSION)
    done = python(
        copied, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_ratchets.py", "-k", "docstring"
    )
    assert done.returncode == 0, done.stdout


def test_a_fusion_with_a_wrong_kernel_is_found(copied: Path) -> None:
    pytest.importorskip("triton")
    wrong = """
def lost_scale(body, metas, needed):
    return loop_nest([replace(op, attrs={**op.attrs, "scale": 3.0}) if op.type == "scale" else op for op in body], metas, needed)
"""
    text = FUSION.replace("import Fused, Fusion", "import Fused, Fusion, loop_nest")
    text = text.replace("from tstatic", "from dataclasses import replace\nfrom tstatic", 1).replace(
        "tanh_of_scale), fuse))", "tanh_of_scale), fuse), kernel=lost_scale)"
    )
    assert "kernel=lost_scale" in text
    with_fusion(copied, text.replace("\nFUSION =", f"{wrong}\n\nFUSION ="))
    done = properties(copied, "gradients")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout


# ------------------------------------------------------------------------------------------------------------- a device
def test_a_device_is_a_file_and_two_lines(copied: Path) -> None:
    (copied / "tstatic" / "devices" / "traced.py").write_text(DEVICE, encoding="utf-8")
    front = copied / "tstatic" / "devices" / "__init__.py"
    text = front.read_text(encoding="utf-8")
    for behind, line in (
        ("from tstatic.devices import", "from tstatic.devices import traced\n"),
        ('    "null": null.DEVICE,\n', '    "traced": traced.DEVICE,\n'),
    ):
        assert text.count(behind) == 1
        text = text.replace(behind, line + behind)
    front.write_text(text, encoding="utf-8")
    code = (
        "import numpy as np, tstatic as paddle; from tstatic import static\n"
        "y = paddle.tanh(paddle.exp(static.data('x', [2])))\n"
        "static.Executor('cpu').run(feed={'x': np.zeros(2, 'float32')}, fetch_list=[y])"
    )
    done = python(copied, "-c", code, TSTATIC_CPU_BACKEND="traced")
    assert done.stdout.splitlines() == ["ran exp", "ran tanh"], done.stderr
    wrong = python(copied, "-c", code, TSTATIC_CPU_BACKEND="trace")
    assert "names no backend: 'trace'" in wrong.stderr
    assert "'traced'" in wrong.stderr
