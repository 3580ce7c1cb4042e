"""Type checkers see the names that are filled in from the registry, with their annotations."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.api import every_module, stubs
from tstatic.ir import registry
from tstatic.ir.export import namespace
from tstatic.ir.opdef import OPS
from tstatic.ir.program import Program, Variable

ROOT = Path(__file__).parents[2]

GOOD = """
import numpy as np

import tstatic as paddle
from tstatic import fluid, nn, static
from tstatic.nn import functional


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.act = nn.ReLU()

    def forward(self, x: static.Variable) -> static.Variable:
        hidden: static.Variable = self.act(self.first(x))
        spectrum: static.Variable = paddle.fft.ifft2(hidden, norm="ortho")
        hidden = hidden + spectrum.abs()
        return functional.softmax(paddle.tanh(hidden) * 2.0 - hidden.mean(axis=-1, keepdim=True), axis=-1)


def build(rate: float) -> tuple[static.Program, static.Variable]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], paddle.float32)
        loss = paddle.mean(Net()(x).sum(axis=0)[1:3].astype("float64"))
        static.nn.fc(x, size=3, activation="relu")
        decay = fluid.layers.exponential_decay(rate, 10, 0.5)
        fluid.optimizer.Adam(learning_rate=decay).minimize(loss)
    return main, loss


def run(main: static.Program, loss: static.Variable) -> float:
    exe = static.Executor(paddle.CPUPlace())
    compiled = static.CompiledProgram(main, static.BuildStrategy())
    (value,) = exe.run(compiled, feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])
    return float(value) + len(main.state_dict())
"""

# Modules whose names are equal pass on the stub of the first of them.
PATHS = """
from tstatic import fluid, static
from tstatic.fluid.layers import control_flow, nn, ops, tensor
from tstatic.fluid.layers.nn import fc
from tstatic.fluid.layers.ops import *

x: static.Variable = fluid.layers.data("x", [4])
for made in (nn.fc(x, 3), ops.fc(x, 3), tensor.fc(x, 3), control_flow.fc(x, 3), fc(x, 3), relu(x)):
    hidden: static.Variable = made
nn.fcc(x, 3)  # has no attribute
ops.fcc(x, 3)  # has no attribute
tensor.fc(x, size="3")  # incompatible type
control_flow.fc(x)  # Missing positional argument
fc(x)  # Missing positional argument
relu("x")  # incompatible type
"""

# Each line is wrong, and the comment is part of what mypy says.
BAD = """
import tstatic as paddle
from tstatic import fluid, nn, static

x = static.data("x", [None, 4])
paddle.tanhh(x)  # has no attribute
paddle.tanh("x")  # incompatible type
static.nn.fc(x)  # Missing positional argument
x.reshape()  # Missing positional argument
x.no_method()  # has no attribute
nn.functional.softmax(x, axs=1)  # Unexpected keyword
nn.functional.conv1d(x, x, strid=2)  # Unexpected keyword
paddle.fft.ifft2(x, norm=1)  # incompatible type
static.nn.conv3d(x, num_filters=2)  # Missing positional argument
nn.ReLU(slope=1)  # Unexpected keyword
nn.MaxUnPool3D()  # Missing positional argument
nn.Conv3DTranspose(3, 4, 3, stridde=2)  # Unexpected keyword
fluid.layers.no_layer(x)  # has no attribute
paddle.optimizer.SGD(learning_rte=0.1)  # Unexpected keyword
count: str = x.shape[0]  # Incompatible types
"""


SCRIPTS = {"good": GOOD, "bad": BAD, "paths": PATHS}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What ``mypy --strict`` says of each of a user's scripts, without its name."""
    stubs.write()
    folder = tmp_path_factory.mktemp("scripts")
    paths = {name: folder / f"{name}.py" for name in SCRIPTS}
    for name, path in paths.items():
        path.write_text(SCRIPTS[name], encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, *map(str, paths.values())], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr + done.stdout
    found: dict[str, list[str]] = {}
    for name, path in paths.items():
        # By the name alone: for what its cache knows, mypy repeats the folder of an earlier run.
        mark = f"/{path.name}:"
        lines = [text.partition(mark)[2] for text in done.stdout.splitlines() if mark in text]
        # Nothing about the package itself: what is wrong there is `make types`' business.
        found[name] = [text for text in lines if ": error: " in text]
    return found


@pytest.mark.slow
def test_a_right_script_passes(told: dict[str, list[str]]) -> None:
    assert told["good"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bad", "paths"], ids=["functions", "module paths"])
def test_a_wrong_script_does_not(name: str, told: dict[str, list[str]]) -> None:
    lines = SCRIPTS[name].splitlines()
    wanted = {n: line.partition("  # ")[2] for n, line in enumerate(lines, 1) if "  # " in line}
    assert [int(line.partition(":")[0]) for line in told[name]] == sorted(wanted)
    for line in told[name]:
        assert wanted[int(line.partition(":")[0])] in line


def test_the_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    exec(compile(GOOD, "script", "exec"), scope)
    main, loss = scope["build"](0.1)  # type: ignore[operator]
    assert loss.shape == ()
    assert main.num_blocks == 1


# --------------------------------------------------------------------------------------------- stubs, and what they are of
@pytest.fixture(scope="module")
def made() -> dict[Path, ast.Module]:
    """Every stub that follows from the sources."""
    return {path: ast.parse(text) for path, text in stubs.stubs().items()}


def stub_of(module: str, made: Mapping[Path, ast.Module]) -> ast.Module:
    """The stub in which a module's names stand: its own, or the equal one that its own passes on."""
    tree = made[stubs.stub_path(module)]
    passed_on = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
    return stub_of(str(passed_on[0].module), made) if passed_on else tree


def parameters(function: ast.stmt) -> list[str]:
    """Names of a stub's parameters, ``self`` left out, and ``=`` behind those with a default."""
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    bare = len(args.args) - len(args.defaults)
    row = [a.arg + "=" * (i >= bare) for i, a in enumerate(args.args)][1:]
    row += [f"*{args.vararg.arg}"] if args.vararg else ["*"] if args.kwonlyargs else []
    row += [a.arg + "=" * (d is not None) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return [*row, f"**{args.kwarg.arg}"] if args.kwarg else row


def parameters_of(function: Any) -> list[str]:
    """The same of a function or class as it is at run time."""
    given = list(inspect.signature(function).parameters.values())
    row: list[str] = []
    # Where the first parameter takes any number of arguments, the object that has the method is one of them.
    bound = inspect.isfunction(function) and given[:1] and given[0].kind is not given[0].VAR_POSITIONAL
    for p in given[bool(bound) :]:
        if p.kind is p.KEYWORD_ONLY and not any(one.startswith("*") for one in row):
            row.append("*")
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        row.append(f"{mark}{p.name}" + "=" * (p.default is not p.empty))
    return row


@pytest.mark.slow
def test_stubs_say_what_modules_have(made: dict[Path, ast.Module]) -> None:
    assert len(stubs.facades()) > 25
    for name in stubs.facades():
        module = importlib.import_module(name)
        tree = stub_of(name, made)
        (listed,) = (n.value for n in tree.body if isinstance(n, ast.Assign))
        assert ast.literal_eval(listed) == sorted(module.__all__), name
        for node in tree.body:
            for one in node.names if isinstance(node, ast.ImportFrom) else ():
                if one.asname is not None and not one.asname.startswith("_"):
                    found = getattr(importlib.import_module(str(node.module)), one.name)
                    assert found is getattr(module, one.asname), f"{name}.{one.asname}"
            if isinstance(node, ast.ClassDef):
                assert parameters(node.body[0]) == parameters_of(getattr(module, node.name)), f"{name}.{node.name}"


@pytest.mark.slow
def test_every_public_module_has_a_source_or_a_stub(made: dict[Path, ast.Module]) -> None:
    bare = [ROOT.joinpath(*name.split(".")) for name in every_module.public_modules()]
    files = {path: {path.with_suffix(".py"), path / "__init__.py"} for path in bare}
    bare = [path for path in bare if not any(file.exists() for file in files[path])]
    assert len(bare) > 300
    assert [p for p in bare if not {p.with_suffix(".pyi"), p / "__init__.pyi"} & made.keys()] == []


@pytest.mark.slow
def test_stubs_have_the_methods_of_variables_and_programs(made: dict[Path, ast.Module]) -> None:
    classes = {n.name: n for n in made[stubs.PACKAGE / "ir" / "methods.pyi"].body if isinstance(n, ast.ClassDef)}
    for cls in (Variable, Program):
        said = {n.name: parameters(n) for n in classes[f"{cls.__name__}Methods"].body if isinstance(n, ast.FunctionDef)}
        assert said == {name: parameters_of(function) for name, function in namespace(cls.__name__).items()}


def test_the_index_of_a_wheel_is_right() -> None:
    keys = {key: module for module, keys in json.loads(stubs.index())["modules"].items() for key in keys}
    registry.load_all()
    homes = {key: home for key, home in registry._registered.items() if home.startswith("tstatic.")}
    assert {key for key in homes if "." in key and keys.get(key) != homes[key]} == set()
    # Of op types none is wrong, and none is missing but those of backward ops, which follow their forward ops.
    types = {key for key in homes if "." not in key}
    assert {key: keys[key] for key in types & keys.keys() if keys[key] != homes[key]} == {}
    assert {key for key in types - keys.keys() if not OPS[key].of} == set()
