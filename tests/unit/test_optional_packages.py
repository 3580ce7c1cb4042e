"""What works without the packages that only some calls need, and what those calls say without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import child
from tstatic.errors import MissingPackageError, needed_for

ROOT = Path(__file__).parents[2]
OPTIONAL = ("msgspec", "platformdirs", "safetensors", "threadpoolctl")

REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
for package in {packages!r}:
    try:
        __import__(package)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{{package}} is there")
"""

TRAIN = """
import numpy as np
import tstatic as paddle
from tstatic import errors, fluid, static

paddle.enable_static()
x, y = static.data("x", [None, 4]), static.data("y", [None, 1])
loss = paddle.mean(paddle.nn.functional.relu(static.nn.fc(x, 8) + 1.0) * y)
paddle.optimizer.AdamW(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
exe = static.Executor("cpu")
exe.run(static.default_startup_program())
main = static.default_main_program()
strategy = static.BuildStrategy()
strategy.build_cinn_pass = strategy.fuse_adamw = True
feed = {"x": np.ones((300, 4), "float32"), "y": np.ones((300, 1), "float32")}
compiled = static.CompiledProgram(main, strategy)
first = exe.run(compiled, feed=feed, fetch_list=[loss])[0]
for _ in range(5):
    last = exe.run(compiled, feed=feed, fetch_list=[loss])[0]
assert last < first, (first, last)
assert compiled.explain([loss], {"x": (300, 4), "y": (300, 1)}).applied
assert compiled.memory_report({"x": (300, 4), "y": (300, 1)})
assert str(main) and main.clone()
from tstatic.fusion import cache

assert cache.load("def value():\\n    return 3\\n", "k").value() == 3


def refused(package, call, *arguments):
    try:
        call(*arguments)
    except errors.MissingPackageError as error:
        assert isinstance(error, ImportError)
        assert f"pip install {package}" in str(error), error
        return
    raise SystemExit(f"{call} did without {package}")


refused("msgspec", lambda: main.desc.serialize_to_string())
refused("msgspec", static.Program.parse_from_text, str(main))
refused("msgspec", static.Program.parse_from_string, SAVED)
refused("msgspec", static.save, main, "model")
from tstatic.runtime import checkpoint

refused("safetensors", checkpoint.encode, checkpoint.Checkpoint({}))
refused("msgspec", static.load, main, "there")
"""


def run(packages: tuple[str, ...], script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = child.environment(without=("TSTATIC_CACHE_DIR",), TMPDIR=str(folder), CPU_NUM="1")
    command = [sys.executable, "-W", "error", "-c", REFUSE.format(packages=packages) + script]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


@pytest.mark.numpy_device("only numpy's BLAS is asked for its threads, and says that threadpoolctl is missing")
def test_a_program_is_built_compiled_and_run_without_them(tmp_path: Path) -> None:
    import tstatic
    from tstatic import static

    saved = tstatic.static.Program().desc.serialize_to_string()
    out = static.data("x", [2])
    weight = static.create_parameter([2], "float32", name="w")
    assert (out + weight).shape == (2,)
    static.Executor("cpu").run(static.default_startup_program())
    static.save(static.default_main_program(), str(tmp_path / "there"))
    done = run(OPTIONAL, f"SAVED = {saved!r}\n{TRAIN}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1, "one warning, once"
    assert "threadpoolctl" in done.stderr
    assert "not limited" in done.stderr
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("model")] == []


@pytest.mark.parametrize("package", OPTIONAL)
def test_each_may_be_absent_alone(package: str, tmp_path: Path) -> None:
    script = "import tstatic\nfrom tstatic import fluid, static\nstatic.data('x', [2]) + 1\nprint(tstatic.__version__)"
    done = run((package,), script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_type_system_says_what_it_needs(tmp_path: Path) -> None:
    done = run(("ml_dtypes",), "import tstatic", tmp_path)
    assert done.returncode == 1
    last = done.stderr[done.stderr.index("MissingPackageError") :]
    for part in ("bfloat16", "'ml_dtypes'", "pip install ml_dtypes"):
        assert part in last, done.stderr


def test_only_a_missing_package_is_called_so() -> None:
    with pytest.raises(MissingPackageError, match="pip install no_such_package"), needed_for("this test"):
        import no_such_package.part  # noqa: F401
    with pytest.raises(ImportError, match="no_such_name") as caught, needed_for("this test"):
        from os import no_such_name  # noqa: F401
    assert not isinstance(caught.value, MissingPackageError)


@pytest.mark.parametrize("name", ["programs", "feeds_for"])
def test_random_programs_name_the_package_that_they_need(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tstatic import testing

    for module in ("tstatic.testing.strategies", "tstatic.tools.testing.strategies", "hypothesis.strategies"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(testing, "strategies", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingPackageError, match="pip install hypothesis"):
        getattr(testing, name)
