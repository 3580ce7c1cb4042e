"""Kernels of a plan are compiled in other processes before the first run, where the launch finds them; faults there stay there."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import HANG
from tests.kernels import environments
from tstatic.chips import ahead, aot_worker
from tstatic.chips.processes import CompilePool, CompilePoolError, Worker, usable_environment
from tstatic.devices.refusals import LaunchTooLargeError
from tstatic.progress import Progress

ROOT = Path(__file__).parents[2]
KEPT = ("TRITON_", "TSTATIC_CPU_BACKEND", ahead.VARIABLE, "LOCAL_WORLD_SIZE")


def run(name: str, folder: Path) -> Any:
    """What a run of ``ahead_runs`` says, and nothing beside it."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    given = {k: v for k, v in os.environ.items() if not k.startswith(KEPT)}
    own = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TMPDIR": str(folder),
        "TSTATIC_CACHE_DIR": str(folder / "kernels"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_runs", name, str(folder)],
        cwd=ROOT, env={**given, **own}, capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:-1] == ["begun"], "a process that compiles ran the user's script once more"
    assert list(folder.glob("tstatic-compile-*")) == [], "temporary files were left behind"
    return json.loads(said[-1])


def test_nothing_is_compiled_inside_the_first_run(tmp_path: Path) -> None:
    """Also in a daemon of multiprocessing whose script has no guard, and with values that begin at odd addresses."""
    told = run("whole", tmp_path)
    assert told["compiled"] == []
    assert told["found"] > 5
    assert told["found"] == told["entries"], "a process made an entry that no launch looks up"
    assert told["launched"] > told["found"]
    assert told["left"] == [0, 0]
    assert told["without"] == ["kernel"], "without processes a kernel is compiled in the run, and counted"


def test_a_crash_costs_one_way_and_a_hang_is_ended(tmp_path: Path) -> None:
    told = run("faults", tmp_path)
    warned = [text for text in told["said"] if "planted" in text]
    assert len(warned) == 1, told["said"]
    assert "SIGABRT" in warned[0]
    assert told["crashed"] == 2, "tried once more, in another process"
    assert (
        "as the chip has no way to run the first: not compiled: the compiling process was killed by SIGABRT"
        in told["explained"]
    )
    assert told["hung"] == 1
    assert "has no way to run the kernel" in told["error"]
    assert "took longer than 1 s and was killed" in told["error"]
    assert "ahead_runs.py" in told["error"], "the user's line"
    assert told["compiled"] == [], "this process compiles nothing that ended another one"
    assert told["alive"] == []


def test_ctrl_c_and_the_end_of_the_program_end_the_processes(tmp_path: Path) -> None:
    told = run("interrupted", tmp_path)
    assert told["folders"] == 1
    assert told["left"] == []
    assert told["gone"]
    assert told["compiled"] == []
    assert told["found"] == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(told["last"]), 0)


# ------------------------------------------------------------------------------------------------------ both versions
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n).to(tl.float32) + tl.load(y + at, mask=at < n), mask=at < n)
"""
# What launchers refer to, of the driver's library.
DRIVER = "".join(
    f"int {name}(void) {{ return 0; }}\n"
    for name in ("cuGetErrorString", "cuFuncSetAttribute", "cuPointerGetAttribute", "cuCtxGetCurrent", "cuDeviceGet",
                 "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuLaunchKernelEx", "cuTensorMapEncodeTiled")
)  # fmt: skip
LOOK = """
import importlib.util, json, subprocess, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("aot_worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
sys.modules["aot_worker"] = worker
spec.loader.exec_module(worker)
import triton
from triton.backends.nvidia import driver
job = json.loads(sys.argv[2])
worker.use_chip(job["chip"])
# Loaded as the runtime loads it, in a file and under a name of its own.
function = worker.load(job["text"], Path(sys.argv[3])).add
entry, there = worker.entry_of(function, job)
hits = []
triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
def none(*_, **__):
    raise AssertionError("gcc was called")
launcher = True
if there:
    subprocess.check_call = none
    made = function.warmup(*worker.values_of(job["arguments"]), grid=(1,), **job["constants"], **job["options"])
    if hasattr(driver, "make_launcher"):
        driver.CudaLauncher(made.src, made.metadata)
print(json.dumps({"entry": entry, "there": there, "hits": hits, "triton": triton.__version__}))
"""


# Of the pinned version, a whole run has shown it above.
@pytest.mark.parametrize("which", ["pinned", "3.6"] if environments.ALL else ["3.6"])
def test_a_launch_looks_up_what_a_process_made(which: str, tmp_path: Path) -> None:
    """The key that a launch makes is the name of the entry that was written; with Triton 3.6 its launcher is there, too."""
    python = environments.python(which)
    stub = tmp_path / "libcuda.so.1"
    made = subprocess.run(
        ["gcc", "-shared", "-o", str(stub), "-x", "c", "-"], input=DRIVER, text=True, capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no C compiler")
    environment = usable_environment(
        TRITON_CACHE_DIR=str(tmp_path / "cache"), TRITON_LIBCUDA_PATH=str(tmp_path), LD_LIBRARY_PATH=str(tmp_path)
    )
    arguments = [{"pointer": "bfloat16"}, {"pointer": "float32", "odd": True}, {"pointer": "float32"}, {"value": 1600}]
    job = {
        "text": KERNEL, "function": "add", "arguments": arguments, "constants": {"BLOCK": 256}, "options": {"num_warps": 2},
        "chip": 90, "launcher": True, "limit": 60.0, "path": str(tmp_path / "kernel.py"),
    }  # fmt: skip

    def looked(given: dict[str, Any]) -> Any:
        command = [python, "-c", LOOK, aot_worker.__file__, json.dumps(given), str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    before = looked(job)
    assert not before["there"]
    worker = Worker(python, tmp_path, environment, 60.0)
    try:
        answer = worker.ask(json.dumps(job) + "\n")
    finally:
        worker.close()
    assert not answer.get("error")
    assert worker.triton == before["triton"]
    headers = "Python.h" in answer["launcher"] or "CalledProcessError" in answer["launcher"]
    if which == "3.6" and headers:
        pytest.skip(f"no launcher can be made here: {answer['launcher']}")
    assert answer["launcher"] in ("", "this version of triton needs none")
    assert answer["entry"] == before["entry"]
    after = looked(job)
    assert after["there"]
    assert after["hits"] == [True]


def test_what_triton_compiles_once_is_one_job() -> None:
    job = {
        "text": "",
        "function": "f",
        "constants": {},
        "options": {},
        "arguments": [{"pointer": "float32"}, {"value": 1600}],
    }

    def other(*arguments: dict[str, Any]) -> str:
        return aot_worker.alike({**job, "arguments": list(arguments)})

    x = {"pointer": "float32"}
    assert aot_worker.alike(job) == other(x, {"value": 3200})
    keys = [other(x, {"value": n}) for n in (1600, 1601, 1, 2**31 * 16, 1.5)] + [
        other({**x, "odd": True}, {"value": 1600})
    ]
    assert len(set(keys)) == len(keys)


# --------------------------------------------------------------------------------------------------------------- pool
class FakeWorker:
    """A process that answers at once; some jobs end it."""

    triton = "0"

    def __init__(self, asked: list[str]) -> None:
        self.asked, self.alive, self.closed = asked, True, False

    def ask(self, line: str) -> dict[str, Any]:
        self.asked.append(line.strip())
        self.alive = "crash" not in line
        return {"error": "" if self.alive else "died"}

    def kill(self) -> None:
        self.alive = False

    def close(self) -> None:
        self.closed = True


def test_the_largest_job_is_first_and_a_process_that_died_is_replaced() -> None:
    asked: list[str] = []
    made: list[FakeWorker] = []
    answers: dict[str, str] = {}
    ended: list[bool] = []

    def start() -> Any:
        made.append(FakeWorker(asked))
        return made[-1]

    pool = CompilePool(
        1, start, lambda line, answer, _: answers.update({line.strip(): answer["error"]}), lambda: ended.append(True)
    )
    pool.put({"small": 1.0, "crash": 50.0, "large": 90.0, "middle": 20.0})
    pool.join()
    assert asked == ["large", "crash", "middle", "small"]
    assert answers == {"large": "", "crash": "died", "middle": "", "small": ""}
    assert len(made) == pool.started == 2
    assert all(one.closed for one in made)
    assert not ended
    pool.put({"later": 1.0})
    pool.join()
    pool.seal()
    assert asked[-1] == "later"
    assert ended == [True]


def test_where_no_process_starts_the_reason_is_raised() -> None:
    def start() -> Any:
        raise CompilePoolError("none", "", "")

    pool = CompilePool(3, start, lambda *_: None)
    pool.put({"a": 1.0, "b": 2.0})
    with pytest.raises(CompilePoolError):
        pool.join()


# ------------------------------------------------------------------------------------------------------------- in here
def test_the_variable_says_how_many(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(ahead, "usable_cpus", lambda: 24)
    for name in (ahead.VARIABLE, "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert ahead.processes() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert ahead.processes() == 3, "the ranks of a machine share its cores"
    for text, count in (("0", 0), ("1", 1), ("20", 20), (" 4 ", 4), ("many", 3), ("-1", 3)):
        monkeypatch.setenv(ahead.VARIABLE, text)
        assert ahead.processes() == count
    assert [r.getMessage() for r in caplog.records] == [
        f"{ahead.VARIABLE} counts processes, and cannot be '{text}'; 3 are used" for text in ("many", "-1")
    ]
    for text in ("0", "1"):
        monkeypatch.setenv(ahead.VARIABLE, text)
        assert ahead.begin([]) is None


def test_a_fork_forgets_what_its_parent_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a child that waits for ever: nobody tells it when its parent's processes are done."""
    launch = ("kernel", (1,), (), {}, {})
    job = ahead._Job("entry", "label", "", 1)
    monkeypatch.setitem(ahead._by_launch, ahead._key("code", launch), [job])
    child = os.fork()
    if child == 0:
        ahead.finish("code", [launch])
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    job.done, job.error, job.fatal = True, "it died\nin pieces", True
    with pytest.raises(LaunchTooLargeError, match=r"not compiled: it died$"):
        ahead.finish("code", [launch])


def test_progress_is_shown_by_who_waits() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = [0.0]
    stream = Terminal()
    batch = ahead.Batch(asked=2)
    batch.progress = Progress("compiling kernels", 0, stream, lambda: now[0])
    batch.jobs = [ahead._Job("a", "rows.kernel", "", 1, done=True, seconds=2.0), ahead._Job("b", "sum.kernel", "", 1)]
    now[0] = 4.0
    ahead._show(batch)
    assert stream.getvalue() == "\rcompiling kernels 1/2, 4.0 s left (rows.kernel)"
    assert str(batch) == "1 of 2 kernels compiled in 0 processes, slowest rows.kernel 2.0 s"
    batch.jobs[1].done, batch.jobs[1].error = True, "no"
    assert str(batch).endswith(", 1 not compiled")
    assert batch.failed == ["sum.kernel: no"]
