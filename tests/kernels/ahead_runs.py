"""What ``test_ahead`` runs in processes of their own, in which Triton compiles: ``python -m tests.kernels.ahead_runs NAME FOLDER``.

The class of GPUs runs on CPU tensors, the compiler and its processes are real, and compiled kernels are loaded and launched by a
stub. There is no ``__main__`` guard: a process that imported this module as the main one would run everything once more.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

NAME, FOLDER = sys.argv[1], Path(sys.argv[2])
print("begun")
if NAME == "whole" and os.fork() == 0:  # before anything is imported: there are no threads yet
    # As multiprocessing marks its daemons, which may have no children of its own kind.
    import multiprocessing

    multiprocessing.current_process()._config["daemon"] = True  # type: ignore[attr-defined]
    os.environ["TSTATIC_TEST_CHILD"] = "1"
if NAME == "whole" and "TSTATIC_TEST_CHILD" not in os.environ:
    code = os.waitstatus_to_exitcode(os.wait()[1])
    sys.stdout.flush()
    os._exit(code)

import json  # noqa: E402 - behind the fork
import logging  # noqa: E402 - behind the fork
import threading  # noqa: E402 - behind the fork
from typing import Any  # noqa: E402 - behind the fork

import numpy as np  # noqa: E402 - behind the fork

import tstatic as paddle  # noqa: E402 - behind the fork
from tests.helpers.gpu import first_gpu  # noqa: E402 - behind the fork
from tests.helpers.stub_driver import StubDriver  # noqa: E402 - behind the fork
from tstatic import devices, nn, static  # noqa: E402 - behind the fork
from tstatic.chips import ahead  # noqa: E402 - behind the fork
from tstatic.chips.processes import Worker  # noqa: E402 - behind the fork
from tstatic.errors import NoRoomError  # noqa: E402 - behind the fork
from tstatic.fusion.codegen.kernel import Kernel, Launch  # noqa: E402 - behind the fork
from tstatic.fusion.engine import cache  # noqa: E402 - behind the fork

FAULTY = """
import importlib.util, json, os, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("aot_worker", {path!r})
worker = importlib.util.module_from_spec(spec)
sys.modules["aot_worker"] = worker
spec.loader.exec_module(worker)
compile_launch = worker.compile_launch
def broken(job, folder):
    fault = json.loads(os.environ["TSTATIC_TEST_FAULT"])
    if [job["function"], job["constants"], job["options"]] == fault["launch"]:
        Path(fault["begun"]).open("a").write(str(os.getpid()) + " ")
        if fault["kind"] == "crash":
            os.write(2, b"LLVM ERROR: planted")
            os.abort()
        while fault["kind"] == "hang":
            pass
        time.sleep(1000)
    return compile_launch(job, folder)
worker.compile_launch = broken
worker.main(Path(sys.argv[1]))
"""
BEGUN = FOLDER / "begun"


def told(text: str = "") -> list[str]:
    """Processes that the planted fault has met."""
    return BEGUN.read_text().split() if BEGUN.exists() else []


def break_compilations(kind: str, kernel: Kernel, way: int = 0) -> None:
    """Plants a fault in the processes that compile: the first launch of one way of a kernel crashes, hangs or sleeps."""
    device = devices.DEVICES["gpu"]
    launch = next(one for one in [*kernel.candidates(device.target)][way].launches if isinstance(one, Launch))
    fault = {"kind": kind, "launch": [launch.function, dict(launch.constants), launch.options], "begun": str(BEGUN)}
    os.environ["TSTATIC_TEST_FAULT"] = json.dumps(fault)
    script = FOLDER / "faulty.py"
    script.write_text(FAULTY.format(path=str(Path(ahead.__file__).with_name("aot_worker.py"))))
    ahead.Worker = partial(Worker, script=script)  # type: ignore[misc, assignment]


def kernel_of(compiled: static.CompiledProgram, out: Any) -> Kernel:
    with devices.use("gpu"):
        found: Kernel = compiled.explain([out]).kernels[0]
    return found


def entries(folder: Path) -> set[str]:
    """Names of the kernels in Triton's cache: those of its folders that have machine code."""
    return {path.parent.name for path in folder.rglob("*.cubin")}


def gone(pid: str) -> bool:
    """Whether a process has ended, within the time that bounds a hang."""
    for _ in range(600):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def whole(chip: StubDriver) -> None:
    """A net is trained with processes that compile; then a small program runs without."""
    net = static.Program(), static.Program()
    with static.program_guard(*net):
        x = static.data("x", [8, 48])
        h = nn.functional.dropout(nn.functional.gelu(static.nn.fc(x, 48)), 0.1)
        h = nn.functional.dropout(nn.functional.layer_norm(h + x, [48]), 0.1)
        head, tail = paddle.split(
            paddle.exp(h), [3, 5]
        )  # the second half begins between two multiples of 16 bytes... or not
        odd = paddle.tanh(paddle.reshape(h, [-1])[3:] * 2.0)
        loss = paddle.mean(head) + paddle.mean(nn.functional.gelu(tail * 2.0)) + paddle.mean(odd)
        paddle.optimizer.AdamW(0.1, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = strategy.enable_auto_fusion = strategy.fuse_all_optimizer_ops = True
    os.environ[ahead.VARIABLE] = "2"
    exe = static.Executor(paddle.CUDAPlace(0))
    exe.run(net[1])
    for _ in range(3):
        exe.run(static.CompiledProgram(net[0], strategy), {"x": np.ones((8, 48), "float32")}, [loss])
    told = {
        "compiled": list(chip.compiled), "found": len(set(chip.found)), "entries": len(entries(FOLDER / "triton")),
        "launched": chip.launched, "left": [len(ahead._by_launch), len(ahead._by_entry)],
    }  # fmt: skip
    os.environ[ahead.VARIABLE] = "0"
    with static.program_guard(static.Program(), static.Program()):
        y = paddle.tanh(static.data("x", [70]) * 2.0)
        exe.run(static.CompiledProgram(static.default_main_program(), strategy), {"x": np.ones(70, "float32")}, [y])
    print(json.dumps({**told, "without": list(chip.compiled)}))


def faults(chip: StubDriver) -> None:
    """A compiler that crashes costs one way of a kernel; one that hangs costs the only way."""
    os.environ[ahead.VARIABLE] = "2"
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tstatic").addHandler(handler)
    q, k, v = (static.data(n, [2, 64, 16], "float16") for n in "qkv")
    out = paddle.matmul(nn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.25), v)
    strategy = static.BuildStrategy()
    strategy.fuse_dot_product_attention = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    break_compilations("crash", kernel_of(compiled, out))
    exe = static.Executor(paddle.CUDAPlace(0))
    feed = {n: np.ones((2, 64, 16), "float16") for n in "qkv"}
    for _ in range(2):
        exe.run(compiled, feed, [out])
    with devices.use("gpu"):
        explained = str(compiled.explain([out], verbose=True))
    crashed = len(told())

    with static.program_guard(static.Program(), static.Program()):
        y = paddle.tanh(static.data("x", [70]) * 2.0)
        strategy = static.BuildStrategy()
        strategy.enable_auto_fusion = True
        compiled = static.CompiledProgram(static.default_main_program(), strategy)
    break_compilations("hang", kernel_of(compiled, y))
    ahead.TIMEOUT = 1.0
    try:
        exe.run(compiled, {"x": np.ones(70, "float32")}, [y])
        error = ""
    except NoRoomError as raised:
        error = str(raised)
    os.environ["TSTATIC_TEST_FAULT"] = '{"launch": []}'
    print(json.dumps({
        "said": said, "crashed": crashed, "explained": explained, "error": error, "compiled": chip.compiled,
        "hung": len(told()) - crashed, "alive": [pid for pid in told() if not gone(pid)],
    }))  # fmt: skip


def interrupted(chip: StubDriver) -> None:
    """Ctrl-C, then the end of the program, while processes compile."""
    os.environ[ahead.VARIABLE] = "2"
    y = paddle.tanh(static.data("x", [70]) * 2.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    break_compilations("sleep", kernel_of(compiled, y))

    def interrupt() -> None:
        while not told():
            time.sleep(0.02)
        folders.extend(map(str, Path(os.environ["TMPDIR"]).glob("tstatic-compile-*")))
        os.kill(os.getpid(), 2)

    folders: list[str] = []
    threading.Thread(target=interrupt, daemon=True).start()
    run = partial(static.Executor(paddle.CUDAPlace(0)).run, compiled, {"x": np.ones(70, "float32")}, [y])
    try:
        run()
        raise AssertionError("nothing was interrupted")
    except KeyboardInterrupt:
        pass
    first = {"folders": len(folders), "left": [one for one in folders if Path(one).exists()], "gone": gone(told()[0])}
    # The same program runs afterwards, and nothing is compiled here.
    sleeping, os.environ["TSTATIC_TEST_FAULT"] = os.environ["TSTATIC_TEST_FAULT"], '{"launch": []}'
    run()
    first |= {"compiled": list(chip.compiled), "found": len(chip.found)}
    # Another thread waits for a compilation when the program ends.
    os.environ["TSTATIC_TEST_FAULT"] = sleeping
    os.environ["TRITON_CACHE_DIR"] = str(FOLDER / "other")
    cache._reset_for_tests()
    threading.Thread(
        target=partial(static.Executor(paddle.CUDAPlace(0)).run, compiled, {"x": np.ones(70, "float32")}, [y]),
        daemon=True,
    ).start()
    while len(told()) < 2:
        time.sleep(0.02)
    print(json.dumps({**first, "last": told()[1]}))


paddle.enable_static()
with first_gpu() as device:
    device.generated = True
    stub = StubDriver()
    stub.use()
    {"whole": whole, "faults": faults, "interrupted": interrupted}[NAME](stub)
