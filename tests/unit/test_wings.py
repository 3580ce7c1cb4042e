"""The wings of the library: which may lack, names that stay, one object under each, and that nothing below names them."""

from __future__ import annotations

import ast
import base64
import importlib
import pickle
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.helpers import child, measures, source
from tstatic.aliases import MOVED, SAME, WINGS, place_of, public_of, renamed

RECORDED = Path(__file__).with_name("modules.txt").read_text(encoding="utf-8").split()
"""Every module that could be imported before the wings were made."""

PICKLED = {
    "transforms": (
        "gASVAgEAAAAAAACMJHRzdGF0aWMudmlzaW9uLnRyYW5zZm9ybXMudHJhbnNmb3Jtc5SMB0NvbXBvc2WUk5QpgZR9lIwKdHJhbnNmb3Jtc5RdlChoAIwG"
        "UmVzaXpllJOUKYGUfZQojARrZXlzlIwFaW1hZ2WUhZSMBnBhcmFtc5ROjARzaXpllEsDjA1pbnRlcnBvbGF0aW9ulIwIYmlsaW5lYXKUdWJoAIwJTm9y"
        "bWFsaXpllJOUKYGUfZQoaAtoDWgOTowEbWVhbpRdlEc/4AAAAAAAAGGMA3N0ZJRdlEc/0AAAAAAAAGGMBnRvX3JnYpSJjAtkYXRhX2Zvcm1hdJSMA0NI"
        "V5R1YmVzYi4="
    ),
    "recipe": (
        "gASVzAEAAAAAAACMFnRzdGF0aWMudGVzdGluZy5yZWNpcGWUjAZSZWNpcGWUk5QpgZR9lCiMBmlucHV0c5SMFXRzdGF0aWMudGVzdGluZy5wYXJ0c5SM"
        "BUlucHV0lJOUKYGUfZQojARuYW1llIwBeJSMBXNoYXBllEsCSwOGlIwFZHR5cGWUjAdmbG9hdDMylIwGdmFsdWVzlIwQdHN0YXRpYy5pci5vcGRlZpSM"
        "ClZhbHVlUmFuZ2WUk5QpgZRdlChHwAAAAAAAAABHQAAAAAAAAAApjAVmbG9hdJSJiYmMAJSJZWKMBHNlZWSUSwCMCXBhcmFtZXRlcpSJjAVnaXZlbpRO"
        "jANuYW6UiYwHc3BlY2lhbJSJdWKFlIwFc3RlcHOUaAaMBFN0ZXCUk5QpgZR9lCiMBHR5cGWUjAR0YW5olGgFjAFYlGgMhZSGlIWUjAdvdXRwdXRzlIwD"
        "T3V0lIwBeZSFlIaUhZSMBWF0dHJzlCmMBHJvbGWUSwCMCHJvbGVfdmFylCl1YoWUjAdmZXRjaGVzlGgtjAlncmFkaWVudHOUKYwJb3B0aW1pemVylGgY"
        "jARydW5zlEsBjARjbGlwlEcAAAAAAAAAAIwEa2VwdJQpdWIu"
    ),
    "setting": (
        "gASVaQAAAAAAAACMGHRzdGF0aWMuYmVuY2hsaWIubWVhc3VyZZSMB1NldHRpbmeUk5QpgZR9lCiMB3JlcGVhdHOUSxmMB3NlY29uZHOURz9gYk3S8an8"
        "jARtb3N0lEdAJAAAAAAAAIwFbGVhc3SUSwt1Yi4="
    ),
}
"""Instances, as they were written before their modules moved."""


def test_modules_that_moved_are_the_same_objects_under_their_old_names() -> None:
    for name in (one for one in RECORDED if place_of(one) != one):
        now = importlib.import_module(place_of(name))
        assert importlib.import_module(name) is now
        assert now.__spec__ is not None
        assert now.__spec__.name == place_of(name)
        if renamed(name, SAME) == name:
            assert public_of(place_of(name)) == name


def test_every_module_that_could_be_imported_still_can_whatever_comes_first() -> None:
    """In a process of its own: old names first, from the leaves to the root."""
    code = """
        import importlib, sys, warnings
        warnings.simplefilter("ignore")
        names = sys.argv[1].split()
        from tstatic.aliases import place_of
        for name in reversed(names):
            importlib.import_module(name)
            assert sys.modules[name] is sys.modules[place_of(name)], name
        for name, module in list(sys.modules.items()):
            if name.startswith("tstatic."):
                assert module is sys.modules[place_of(name)], name
    """
    names = " ".join(one for one in RECORDED if one != "tstatic.__main__")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), names], env=child.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PICKLED)
def test_pickles_from_before_load(name: str) -> None:
    made = pickle.loads(base64.b64decode(PICKLED[name]))
    if name == "transforms":
        assert made.transforms[0].size == 3
    elif name == "recipe":
        assert made.steps[0].type == "tanh"
        made.build()
    else:
        assert made.repeats == 25


def test_python_runs_a_module_by_its_old_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tstatic.benchlib.statistics"],
        env=child.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_wheel_takes_every_file_along() -> None:
    settings = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    taken = (*settings["tool"]["setuptools"]["package-data"]["*"], "*.py")
    files = [one for one in source.PACKAGE.rglob("*") if one.is_file() and one.parent.name != "__pycache__"]
    assert [str(one) for one in files if not any(one.match(pattern) for pattern in taken)] == []


# ------------------------------------------------------------------------------------------------------------ without them
REFUSED = """
import importlib.abc, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("tstatic.extras", "tstatic.tools"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Refused())
"""


def test_without_the_wings_the_engine_trains_and_says_what_is_not_there() -> None:
    code = (
        REFUSED
        + """
import numpy as np
import tstatic as paddle
from tstatic import static
from tstatic.errors import MissingPackageError

x, y = static.data("x", [None, 4]), static.data("y", [None, 1], "int64")
loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(x, 3), y))
paddle.optimizer.AdamW(0.1).minimize(loss)
exe = static.Executor()
exe.run(static.default_startup_program())
compiled = static.CompiledProgram(static.default_main_program())
feed = {"x": np.ones((6, 4), "float32"), "y": np.ones((6, 1), "int64")}
losses = [float(np.mean(exe.run(compiled, feed=feed, fetch_list=[loss])[0])) for _ in range(5)]
assert losses[-1] < losses[0]
print(compiled.explain())
from tstatic.ir.opdef import OPS
assert "matmul_v2" in OPS
assert len(OPS) > 300
for asked in (
    lambda: paddle.vision,
    lambda: __import__("tstatic.testing"),
    lambda: paddle.nn.CTCLoss,
    lambda: paddle.fft.fft,
    lambda: OPS["roi_align"],
    lambda: paddle.fluid.layers.crf_decoding,
):
    try:
        asked()
    except MissingPackageError as error:
        assert "which is not there" in str(error), error
    else:
        raise AssertionError(asked)
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


ALONE = (
    "seeds",
    "executor",
    "plan",
    "autodiff",
    "training",
    "compiled_program",
    "control_flow",
    "higher_order",
    "updates",
)
"""Files of the engine's tests, below tests/cpu, that ask for nothing in the wings."""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["tests", "demo"])
def test_the_engine_runs_without_the_wings(what: str) -> None:
    refused = source.ROOT / "tests" / "helpers" / "refused"
    files = [f"tests/cpu/test_{name}.py" for name in ALONE]
    command = ["-m", "pytest", "-q", "-n", "0", "-m", "not slow", *files] if what == "tests" else ["examples/digits.py"]
    environment = child.environment(without=("PYTEST_XDIST_WORKER", "TSTATIC_CPU_BACKEND"), first=refused)
    done = subprocess.run([sys.executable, *command], cwd=source.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    looked = subprocess.run(
        [sys.executable, "-c", "import tstatic.tools"], env=environment, capture_output=True, text=True
    )
    assert "No module named 'tstatic.tools'" in looked.stderr


# ---------------------------------------------------------------------------------------------------------------- by text
TABLES = {"tstatic/__init__.py", "tstatic/aliases.py", "tstatic/unsupported.py"}
"""Files with tables of public names, and of where modules lie."""


def test_no_text_names_a_module_of_a_wing_above() -> None:
    """An import by name would be an arrow upward that no contract sees; tables of facades are the only doors."""
    found = []
    library = tuple(f"tstatic.{one}" for one in measures.LIBRARY)
    for file in source.files():
        path = str(file.relative_to(source.ROOT))
        wing = measures.wing_of(path)
        if path in TABLES or wing in ("extras", "tools"):
            continue
        above = (*WINGS, *library) if wing == "engine" else WINGS
        nodes = source.nodes(file)
        calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        facades = [one for one in calls if one.func.id in ("facade", "facade_module")]  # type: ignore[attr-defined]
        within = {id(one) for call in facades for one in ast.walk(call)}
        within |= {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
        found += [
            f"{path}:{n.lineno}: {n.value!r}"
            for n in nodes
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in within
            if n.value.startswith("tstatic.") and place_of(n.value).startswith(above)
        ]
    assert not found, "\n".join(found)


def test_a_name_that_moved_is_not_taken_again() -> None:
    for old, now in (MOVED | SAME).items():
        assert not source.PACKAGE.joinpath(*old.split(".")).with_suffix(".py").exists(), old
        assert not source.PACKAGE.joinpath(*old.split("."), "__init__.py").exists(), old
        there = source.PACKAGE.joinpath(*now.split("."))
        assert there.with_suffix(".py").exists() or (there / "__init__.py").exists(), now
