"""Imports point down, stand at the top of files, and bring in nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import child, source

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tstatic"
FILES = source.files()
# What may be imported inside a function: large, optional, or slow and needed by one rare call only.
LAZY = {"torch", "triton", "scipy", "matplotlib", "sklearn", "hypothesis", "rich", "typer", "graphviz", "importlib",
        "platformdirs", "msgspec", "safetensors", "threadpoolctl", "PIL", "cv2", "difflib", "tensorboardX", "onnx",
        "google"}  # fmt: skip
# Packages whose parts are loaded when they are asked for.
LAZY_PARTS = {
    file: {"tstatic"}
    for file in (
        "tstatic/tools/testing/__init__.py",
        "tstatic/ir/__init__.py",
        "tstatic/static/explain/inquiry.py",
        "tstatic/viz/__init__.py",
        "tstatic/formats/checkpoint.py",
    )
}
# Loaded by its path in an environment that may lack everything else.
LAZY_PARTS["tstatic/tools/benchlib/machine.py"] = {"numpy"}
# Modules that act when they are imported, or that exist for an optional package.
APART = {"tstatic.fluid.as_paddle", "tstatic.__main__", "tstatic.tools.cli", "tstatic.tools.testing",
         "tstatic.fusion.codegen.text.prelude", "tstatic.formats.parse", "tstatic.formats.header"}  # fmt: skip


def lazy_imports(text: str) -> set[str]:
    """Returns the top-level packages that are imported inside functions."""
    found: set[str] = set()
    for function in source.walk(source.parsed(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add("." if node.level else (node.module or "").partition(".")[0])
    return found


def test_imports_stand_at_the_top() -> None:
    wrong = {}
    for file in FILES:
        path = file.relative_to(ROOT).as_posix()
        if more := lazy_imports(source.text(file)) - LAZY - LAZY_PARTS.get(path, set()):
            wrong[path] = more
    assert wrong == {}


def test_a_hidden_import_is_found() -> None:
    assert lazy_imports("def f():\n    if True:\n        import os.path\n        from tstatic.ir import x\n") == {
        "os",
        "tstatic",
    }
    assert lazy_imports("import os\ndef f():\n    from . import x\n    import torch\n") == {".", "torch"}


def test_no_module_imports_anything_heavy() -> None:
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in FILES]
    names = [name for name in names if not any(name == a or name.startswith(f"{a}.") for a in APART)]
    assert len(names) > 10
    code = f"import importlib, sys\nfor n in {names!r}: importlib.import_module(n)\n"
    code += f"print('heavy:', *sorted({LAZY!r} & set(sys.modules) - {{'importlib'}}))"
    environment = child.environment()
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_imports_point_down() -> None:
    # In a process of its own: import-linter configures logging, which disables the loggers that exist already.
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.numpy_device("torch's device needs torch", not_on=("torch",))
def test_a_run_imports_nothing_that_it_does_not_need() -> None:
    code = """
import sys
import numpy as np
import tstatic as paddle
from tstatic import static
y = paddle.mean(static.data("x", [None, 2]) + static.data("y", [2]))
static.Executor("cpu").run(feed={"x": np.ones((3, 2), "f4"), "y": [1.0, 2.0]}, fetch_list=[y])
print(sorted({"numpy.ma", "torch", "triton", "difflib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr
