"""The samples of the seed documents run: unedited under the CPU fallback, and with only the place replaced."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers import seeds, warm
from tstatic import flags
from tstatic.ir import declare

ALL = seeds.samples()
SINGLE = [s for s in ALL if not s.data_parallel]
SEVERAL = [s for s in ALL if s.data_parallel]
needs_seeds = pytest.mark.skipif(not ALL, reason="TSTATIC_SEEDS names no folder with the seed documents")

# Stand-ins with the same calls, for machines without the documents.
OWN = {
    "strategy": """
import paddle
import paddle.static as static
paddle.enable_static()
strategy = static.BuildStrategy()
strategy.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
strategy.memory_optimize = True
strategy.debug_graphviz_path = "./graph"
""",
    "threads": """
import paddle
import paddle.static as static
paddle.enable_static()
execution = static.ExecutionStrategy()
execution.num_threads = 4
execution.num_iteration_per_drop_scope = 10
execution.num_iteration_per_run = 10
""",
    "train": """
import numpy
import paddle
import paddle.static as static
paddle.enable_static()
exe = static.Executor(paddle.CUDAPlace(0))
image = static.data(name='image', shape=[None, 4], dtype='float32')
loss = paddle.mean(static.nn.fc(x=image, size=3))
paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
exe.run(static.default_startup_program())
compiled = static.CompiledProgram(static.default_main_program())
before, = exe.run(compiled, feed={'image': numpy.ones((6, 4), 'float32')}, fetch_list=[loss.name])
after, = exe.run(compiled, feed={'image': numpy.ones((6, 4), 'float32')}, fetch_list=[loss.name])
assert after < before
""",
    "customized": """
import numpy
import paddle
import paddle.static as static
paddle.enable_static()
exe = static.Executor(paddle.CUDAPlace(0))
image = static.data(name='image', shape=[None, 1], dtype='float32')
loss = paddle.mean(static.nn.fc(image, size=2))
paddle.optimizer.SGD(learning_rate=0.1).minimize(loss)
exe.run(static.default_startup_program())
strategy = static.BuildStrategy()
strategy.gradient_scale_strategy = static.BuildStrategy.GradientScaleStrategy.Customized
compiled = static.CompiledProgram(static.default_main_program(), build_strategy=strategy)
seed = numpy.full((1,), 0.25, 'float32')
got = exe.run(compiled, feed={'image': numpy.ones((5, 1), 'float32'), loss.name + '@GRAD': seed},
              fetch_list=[loss.name + '@GRAD', 'fc_0.b_0@GRAD'])
assert float(got[0]) == 0.25, got
assert numpy.allclose(got[1], 0.125), got
""",
}


def _as_paddle(code: str, tmp_path: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    return warm.run("tstatic.as_paddle", str(script), module=True, cwd=tmp_path, without=("FLAGS_", "CPU_NUM"), **extra)


def _with_cpu(code: str) -> str:
    """The sample with only the place replaced."""
    code = re.sub(r"CUDAPlace\(\d\)", "CPUPlace()", code)
    return code.replace("use_cuda = True", "use_cuda = False")


def _changed_imports(code: str) -> str:
    code = re.sub(r"^import paddle$", "import tstatic as paddle", code, flags=re.M)
    code = re.sub(r"^import paddle\.([\w.]+) as (\w+)$", r"import tstatic.\1 as \2", code, flags=re.M)
    return re.sub(r"^from paddle", "from tstatic", code, flags=re.M)


@needs_seeds
def test_the_documents_hold_29_samples_of_which_24_need_one_place() -> None:
    assert (len(ALL), len(SINGLE)) == (29, 24)
    counts = {d: sum(s.document == d for s in ALL) for d in {s.document for s in ALL}}
    assert counts == {"ExecutionStrategy": 4, "ParallelExecutor": 3, "BuildStrategy": 20, "CompiledProgram": 2}


@needs_seeds
@pytest.mark.parametrize("sample", SINGLE, ids=lambda s: s.name)
def test_runs_unedited_under_the_cpu_fallback(sample: seeds.Sample, tmp_path: Path) -> None:
    done = _as_paddle(sample.code, tmp_path, FLAGS_cpu_fallback="1")
    assert done.returncode == 0, done.stderr


@needs_seeds
@pytest.mark.parametrize("sample", SINGLE, ids=lambda s: s.name)
def test_runs_with_only_the_place_replaced(
    sample: seeds.Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declare.reset_default_programs()
    scope: dict[str, object] = {}
    exec(compile(_changed_imports(_with_cpu(sample.code)), sample.name, "exec"), scope)
    if "loss_grad" in scope:
        loss, grad = scope["loss_data"]  # type: ignore[misc]
        assert float(grad) == pytest.approx(0.01)
        assert float(loss) == float(loss)


@needs_seeds
@pytest.mark.parametrize("count", [None, "1", "2", "4"])
@pytest.mark.parametrize("sample", SEVERAL, ids=lambda s: s.name)
def test_samples_for_several_places_run_with_any_number_of_them(
    sample: seeds.Sample, count: str | None, tmp_path: Path
) -> None:
    extra = {} if count is None else {"CPU_NUM": count}
    for code in (sample.code, _with_cpu(sample.code)):
        done = _as_paddle(code, tmp_path, FLAGS_cpu_fallback="1", **extra)
        # One sample feeds a list of two; one sets CPU_NUM to 2 where it runs on the CPU.
        places = "2" if "use_cuda = False" in code and "CPU_NUM" in code else count or "1"
        if "feed=[" in code and places != "2":
            assert done.returncode == 1
            assert "does not match the device number" in done.stderr
        else:
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", OWN)
def test_own_programs_with_the_same_calls_run_as_paddle(name: str, tmp_path: Path) -> None:
    done = _as_paddle(OWN[name], tmp_path, FLAGS_cpu_fallback="1")
    assert done.returncode == 0, done.stderr


def test_without_the_fallback_a_gpu_place_is_an_error_that_says_so(tmp_path: Path) -> None:
    if flags.flag("FLAGS_cpu_fallback"):
        pytest.skip("FLAGS_cpu_fallback is set in this environment")
    done = _as_paddle(OWN["train"], tmp_path)
    assert done.returncode != 0
    assert "FLAGS_cpu_fallback" in done.stderr
    assert "gpu:0" in done.stderr


def test_a_module_that_tstatic_lacks_is_named(tmp_path: Path) -> None:
    done = _as_paddle("import paddle.no_such_module\n", tmp_path)
    assert done.returncode != 0
    assert "paddle.no_such_module" in done.stderr
