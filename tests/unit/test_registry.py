"""Names, methods and ops are loaded when they are asked for, whatever the index says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tstatic
from tests.helpers import child
from tests.helpers.measures import module_of
from tstatic.ir import registry
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.opdef import OPS
from tstatic.ir.traits import Activation

ROOT = Path(__file__).parents[2]
MODULES = {module_of(str(f.relative_to(ROOT))): f for f in (ROOT / "tstatic").rglob("*.py")}

# Each case runs in a fork of a process that has imported what tstatic needs, and nothing of tstatic.
FORKS = """
import os, sys, threading, traceback
import numpy, ml_dtypes, dataclasses, inspect, logging, socket, tempfile, concurrent.futures

def own():
    return sum(name.partition(".")[0] == "tstatic" for name in sys.modules)

def use():
    import tstatic as paddle
    x = paddle.static.data("x", [2, 3])
    y = paddle.nn.functional.softmax(paddle.concat([x + 1, x.tanh()]))
    assert [op.type for op in paddle.static.default_main_program().global_block().ops] == ["scale", "tanh", "concat", "softmax"]
    assert paddle.nn.ReLU()(y).shape == (4, 3) and paddle.logical_and(y > 0, x[0] > 0).shape == (4, 3)

def fork(*calls):
    pids = []
    for call in calls:
        pid = os.fork()
        if not pid:
            try:
                call()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package with an index that fits it: times are copied too."""
    registry.load_all()
    assert registry.LEARNED.exists()
    shutil.copytree(ROOT / "tstatic", tmp_path / "tstatic")
    return tmp_path


def run(folder: Path, code: str) -> None:
    """Runs a script for a package in ``folder``."""
    script = folder / "case.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(script)]
    environment = child.environment(folder if (folder / "tstatic").exists() else ROOT)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------------------------------------------------- index
@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "null", "[" * 5000, '{"sources": 1, "modules": {}}', '{"sources": FITS, "modules": [1]}', "\xff"],
)
def test_an_unreadable_index_counts_as_none(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = text.replace("FITS", json.dumps(registry._fingerprint()))
    (tmp_path / "index.json").write_bytes(text.encode("latin-1"))
    monkeypatch.setattr(registry, "LEARNED", tmp_path / "index.json")
    assert registry._read() == {}


def test_a_wrong_index_changes_no_answer(copied: Path) -> None:
    folder = copied / "tstatic" / "__pycache__"
    index = folder / "index.json"
    right = json.loads(index.read_text(encoding="utf-8"))
    wrong = {m: [k for k in keys if "concat" not in k] for m, keys in right["modules"].items()}
    wrong[min(m for m in wrong if m.startswith("tstatic.ops.update."))].append("tensor.concat")
    wrong["tstatic.ops.nowhere"] = ["concat"]
    code = f"""
import json, pathlib
index = pathlib.Path({str(index)!r})
right = index.read_text()
index.write_text({json.dumps({**right, "modules": wrong})!r})
fork(use)
# Whoever had to load everything has written down the right one.
assert json.loads(index.read_text()) == json.loads(right)
index.unlink()
fork(use)
assert index.exists()
def cheap():
    use()
    assert own() < 250, own()
fork(cheap)
"""
    run(copied, FORKS + code)


def test_a_folder_that_cannot_be_written_to_does_no_harm(copied: Path) -> None:
    folder = copied / "tstatic" / "__pycache__"
    shutil.rmtree(folder)
    folder.write_text("", encoding="utf-8")  # not a folder, which stops root too
    run(copied, FORKS + "fork(use)")
    # An index that came with the package is used, the times of its sources do not matter, and none is written beside it.
    sources = [registry._fingerprint()[0]]
    modules: dict[str, list[str]] = {}
    for key, module in registry._registered.items():
        modules.setdefault(module, []).append(key)
    shipped = json.dumps({"sources": sources, "modules": modules})
    (copied / "tstatic" / "index.json").write_text(shipped, encoding="utf-8")
    for file in (copied / "tstatic" / "ops").rglob("*.py"):
        os.utime(file, (0, 0))
    folder.unlink()
    run(copied, FORKS + "def cheap():\n    use()\n    assert own() < 250, own()\nfork(cheap)")
    (copied / "tstatic" / "index.json").write_text('{"sources": [0], "modules": {}}', encoding="utf-8")
    run(copied, FORKS + "fork(use)")
    assert not (folder / "index.json").exists()


OP = """
from tstatic.ir.opdef import OpDef, export, register
from tstatic.ops.base.one_input import unary

register(OpDef("twice", "X -> Out", pointwise={"Out": "x + x"}))


@export("tensor.twice", "Variable.twice", "Variable.__lshift__")
def twice(x, other=0):
    return unary("twice", x)
"""


def test_a_new_op_file_is_found_by_name_method_operator_and_type(copied: Path) -> None:
    (copied / "tstatic" / "ops" / "shape" / "twice.py").write_text(OP, encoding="utf-8")
    code = """
def by_name():
    import tstatic as paddle
    assert paddle.twice(paddle.static.data("x", [2])).shape == (2,)
def by_method():
    import tstatic as paddle
    assert paddle.static.data("x", [2]).twice().shape == (2,)
def by_operator():
    import tstatic as paddle
    assert (paddle.static.data("x", [2]) << 1).shape == (2,)
def by_type():
    from tstatic.ir.opdef import op_def
    assert op_def("twice").inputs[0].name == "X"
for call in (by_name, by_method, by_operator, by_type):
    fork(call)
"""
    run(copied, FORKS + code)


def test_threads_and_processes_may_import_at_once(copied: Path) -> None:
    code = """
import json, pathlib
names = ["relu", "softmax", "conv2d", "dropout", "layer_norm", "embedding", "pad", "cross_entropy"]
def threads():
    failed = []
    ready = threading.Barrier(len(names))
    def one(name):
        try:
            ready.wait()
            import tstatic as paddle
            from tstatic.ir.opdef import OPS
            assert callable(getattr(paddle.nn.functional, name)), name
            assert OPS["tanh"].type == "tanh" and callable(paddle.static.Program.state_dict)
            assert len(OPS) > 400 and callable(paddle.nn.Transformer)
        except BaseException as error:
            failed.append(error)
    running = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in running: thread.start()
    for thread in running: thread.join()
    assert not failed, failed
fork(threads)
index = pathlib.Path("tstatic/__pycache__/index.json")
right = json.loads(index.read_text())
index.unlink()
fork(*[use] * 4)
assert json.loads(index.read_text()) == right
assert not list(index.parent.glob("index.json.*"))
"""
    run(copied, FORKS + code)


# ---------------------------------------------------------------------------------------------------------------- names
def test_every_public_name_is_found_in_a_fresh_interpreter_and_is_the_same_object(tmp_path: Path) -> None:
    signatures = (ROOT / "tests" / "api" / "signatures.txt").read_text(encoding="utf-8").splitlines()
    paths = sorted({line.split("(")[0].split(" ")[0] for line in signatures})
    code = f"""
import sys, tstatic
from functools import reduce
roots = {{"tstatic": tstatic, "Variable": tstatic.Tensor}}
found = {{}}
for path in {paths!r}:
    root, *parts = path.split(".")
    found[path] = reduce(getattr, parts, roots[root])
from tstatic.ir.export import PUBLIC_API
for path, entry in PUBLIC_API.items():
    root = "Variable" if path.startswith("Variable.") else "tstatic"
    path = path.replace("Program.", "static.Program.").replace("tensor.", "") if root == "tstatic" else path
    known = found.get(path if root == "Variable" else "tstatic." + path)
    assert known is entry.function or path.rpartition(".")[2].startswith("_"), path
for module in {{path.rpartition(".")[0] for path in found}}:
    owner = reduce(getattr, module.split(".")[1:], roots[module.split(".")[0]])
    assert {{path.rpartition(".")[2] for path in found if path.rpartition(".")[0] == module}} <= set(dir(owner)), module
star = {{}}
exec("from tstatic import *", star)
assert star["tanh"] is found["tstatic.tanh"] and star["bool"] is tstatic.bool and "where" in star
"""
    run(tmp_path, code)


def test_a_missing_method_says_so_and_private_ones_load_nothing(tmp_path: Path) -> None:
    code = """
import sys, copy, pickle, numpy, tstatic as paddle
x = paddle.static.data("x", [2])
before = set(sys.modules)
assert not hasattr(x, "__array__") and not hasattr(x, "_repr_png_") and not hasattr(paddle.Tensor, "__get__")
assert not hasattr(paddle, "__wrapped__") and not hasattr(paddle.nn, "__file_")
x + 1, x == 1, x[0]
new = set(sys.modules) - before
assert sum(name.startswith("tstatic.ops") for name in new) <= 40, sorted(new)
owners = {"'Variable' object": x, "type object 'Variable'": paddle.Tensor, "'Program' object": paddle.static.Program()}
for text, owner in owners.items():
    try:
        owner.no_such
    except AttributeError as error:
        assert str(error) == f"{text} has no attribute 'no_such'" and error.name == "no_such" and error.obj is owner
    else:
        raise AssertionError(text)
"""
    run(tmp_path, code)


def test_operators_are_loaded_when_they_are_used_and_then_are_the_functions_themselves(tmp_path: Path) -> None:
    code = """
import sys, tstatic as paddle
from tstatic.ir.declare import default_main_program
x = default_main_program().global_block().create_var(name="x", shape=[2], dtype="float32")
assert not [name for name in sys.modules if name.startswith(("tstatic.ops.", "tstatic.formats.serial", "tstatic.formats.text"))]
2 * x + 1
assert [op.type for op in x.block.ops] == ["scale", "scale"]
from tstatic.ir.export import PUBLIC_API
assert paddle.Tensor.__matmul__ is PUBLIC_API["Variable.__matmul__"].function
assert paddle.Tensor.__lt__ is PUBLIC_API["Variable.__lt__"].function and x.__lt__.__self__ is x
"""
    run(tmp_path, code)


def test_asking_for_missing_names_loads_nothing_and_the_error_says_where_they_are_when_it_is_read(
    tmp_path: Path,
) -> None:
    registry.load_all()  # writes the index
    code = """
import pickle, sys, tstatic as paddle
before = set(sys.modules)
assert not hasattr(paddle, "nothing") and not hasattr(paddle.Tensor, "nothing") and not hasattr(paddle, "Executor")
assert {"tanh", "concat", "static", "Tensor"} <= set(dir(paddle)) and "reshape" in dir(paddle.Tensor)
assert not [name for name in set(sys.modules) - before if name.startswith("tstatic")]
try:
    paddle.Executor
except AttributeError as error:
    assert str(error).endswith("has no attribute 'Executor'. it is static.Executor"), str(error)
    assert repr(error) == f"AttributeError({str(error)!r})" and pickle.loads(pickle.dumps(error)).args == (str(error),)
try:
    from tstatic import tanhh
except ImportError as error:
    assert error.msg == "cannot import name 'tanhh' from 'tstatic'. did you mean 'tanh' or 'tanh_' or 'stanh'?"
"""
    run(tmp_path, code)


def test_all_that_registers_something_is_in_the_checksums_of_the_index() -> None:
    registry.load_all()
    sources = tuple(f"tstatic.{one}" for one in registry.SOURCES)
    assert {home for home in registry._registered.values() if not home.startswith(sources)} == set()


def test_what_registers_is_loaded_by_load_all() -> None:
    files = set()
    for name, file in MODULES.items():
        if re.search(r"^(@export|register)\(", file.read_text(encoding="utf-8"), re.MULTILINE):
            files.add(name)
    registry.load_all()
    assert sorted(files - sys.modules.keys()) == []
    assert len(files) > 60


def test_no_submodule_hides_an_exported_name() -> None:
    hidden = {f"tstatic.{path.removeprefix('tensor.')}" for path in PUBLIC_API} & MODULES.keys()
    # The front door removes this module's name once it is imported.
    assert hidden == {"tstatic.where"}
    assert tstatic.where is PUBLIC_API["tensor.where"].function


def test_backward_ops_are_registered_with_their_forward_ops() -> None:
    homes = registry._registered
    assert [
        t for t in OPS if t.endswith("_grad") and t in homes and homes[t] != homes.get(t.removesuffix("_grad"))
    ] == []
    assert "tanh_grad" in homes


# ----------------------------------------------------------------------------------------------------------- a registry
@pytest.fixture
def own() -> registry.Registry[int]:
    """A registry with two entries, of no module of the index."""
    made: registry.Registry[int] = registry.Registry()
    made.add("b", 2)
    made.add("a", 1)
    return made


def test_ops_with_a_trait_follow_what_is_registered() -> None:
    activation, other = OPS["relu"], OPS["matmul_v2"]
    before = OPS.loaded_with(Activation)
    assert "relu" in before
    assert OPS.loaded_with(Activation) is before, "nothing has changed, so that nothing is looked through"
    OPS["made_up"] = activation
    try:
        assert {*OPS.loaded_with(Activation)} == {*before, "made_up"}
        OPS["made_up"] = other
        assert {*OPS.loaded_with(Activation)} == {*before}
    finally:
        del OPS["made_up"]
    assert OPS.loaded_with(Activation) == before


def test_a_registry_is_a_mapping_in_sorted_order(own: registry.Registry[int]) -> None:
    assert list(own) == ["a", "b"]
    assert dict(own) == {"a": 1, "b": 2}
    assert (len(own), own["a"], own.get("c"), "c" in own, own.pop("a"), "a" in own) == (2, 1, None, False, 1, False)
    own["c"] = 3
    assert own.loaded == {"b": 2, "c": 3}
    for ask in (lambda: own["nothing"], lambda: own.pop("nothing")):
        with pytest.raises(KeyError, match="nothing"):
            ask()
    with pytest.raises(AssertionError, match="registered twice"):
        own.add("b", 4)


# ------------------------------------------------------------------------------------------ imports that are broken off
BODY = """
def helper():
    return 1

def uses(): return later()

REGISTRY.add("some.name", uses)
if len(FAIL): raise FAIL.pop()
def later(): return "whole"
"""


def test_a_module_whose_import_was_broken_off_registers_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And until then, nobody gets a function of the half that ran."""
    own: registry.Registry[object] = registry.Registry()
    package = tmp_path / "half"
    package.mkdir()
    (package / "body.py").write_text(BODY)
    fail: list[BaseException] = [KeyboardInterrupt()]
    monkeypatch.setattr("builtins.REGISTRY", own, raising=False)
    monkeypatch.setattr("builtins.FAIL", fail, raising=False)
    monkeypatch.setattr(tstatic, "__path__", [*tstatic.__path__, str(package)])
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setitem(registry.INDEX, "some.name", "tstatic.body")
    with pytest.raises(KeyboardInterrupt):
        own["some.name"]
    assert not own.is_final("some.name")
    assert own["some.name"]() == "whole"  # type: ignore[operator]
    assert own.is_final("some.name")
    assert own["some.name"] is own["some.name"]
    sys.modules.pop("tstatic.body")
    registry._whole.discard("tstatic.body")


def test_what_is_no_repetition_is_registered_once() -> None:
    own: registry.Registry[int] = registry.Registry()
    add = compile("REGISTRY.add('key', 1)", "<test>", "exec")
    first, again, other = ({"__name__": name, "REGISTRY": own} for name in ("one", "one", "other"))
    exec(add, first)
    with pytest.raises(AssertionError, match="key is registered twice"):
        exec(add, first)
    exec(add, again)
    with pytest.raises(AssertionError, match="key is registered twice"):
        exec(add, other)
