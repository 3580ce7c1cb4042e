"""Worker for tstatic and for Paddle, which share an API: ``python peer_static.py tstatic|paddle [backend of CPU places]``."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from nets import NETS, initial_values, tiny_bound, tiny_feed, tiny_ops
from peer import Case, serve

NAME = sys.argv[1]
if sys.argv[2:]:
    os.environ["TSTATIC_CPU_BACKEND"] = sys.argv[2]
if NAME == "tstatic":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
paddle: Any = importlib.import_module(NAME)


# ------------------------------------------------------------------------------ what differs between tstatic and Paddle
def null_place(paddle: Any) -> Any:
    """The device of tstatic that plans everything and computes nothing."""
    return paddle.places.NullPlace()


def with_threads(paddle: Any, program: Any, threads: int) -> Any:
    """The program, to be run on that many threads."""
    if NAME == "paddle":
        paddle.base.core.set_num_threads(threads)
        return program
    execution = paddle.static.ExecutionStrategy()
    execution.num_threads = threads
    return paddle.static.CompiledProgram(program, exec_strategy=execution)


def set_parameter(paddle: Any, name: str, value: Any, place: Any) -> None:
    """Writes a parameter's value into the global scope."""
    paddle.static.global_scope().find_var(name).get_tensor().set(value, place)


def place_of(paddle: Any, case: str) -> Any:
    """The place that a case runs on: ``null:`` in front of its name stands for the null device."""
    return null_place(paddle) if case.startswith("null:") else paddle.CPUPlace()


# ----------------------------------------------------------------------------------------------------------------- cases
def _programs() -> tuple[Any, Any]:
    return paddle.static.Program(), paddle.static.Program()


def _net(case: str, threads: int) -> Case:
    net = NETS[case.removeprefix("null:")]
    place = place_of(paddle, case)
    main, startup = _programs()
    start = time.perf_counter()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = net.build(paddle)
    built = time.perf_counter() - start
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    for name, value in initial_values(net).items():
        set_parameter(paddle, name, value, paddle.CPUPlace())
    exe = paddle.static.Executor(place)
    program = with_threads(paddle, main, threads)
    rng = np.random.default_rng(1)
    feeds = itertools.cycle([net.feed(rng) for _ in range(net.feeds)])
    start = time.perf_counter()
    first = exe.run(program, feed=next(feeds), fetch_list=[loss])[0]
    facts = {
        "build_s": built,
        "first_run_s": time.perf_counter() - start,
        "ops": len(main.global_block().ops),
        "first_value": float(np.asarray(first).reshape(-1)[0]),
    }
    fetch = [loss]
    # Each size once before anything is timed.
    for _ in range(net.feeds - 1):
        exe.run(program, feed=next(feeds), fetch_list=fetch)
    return Case(lambda: exe.run(program, feed=next(feeds), fetch_list=fetch)[0], facts)


def _tiny(case: str, threads: int, count: int) -> Case:
    main, startup = _programs()
    start = time.perf_counter()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        last = tiny_ops(paddle, count)
    built = time.perf_counter() - start
    exe = paddle.static.Executor(place_of(paddle, case))
    program = with_threads(paddle, main, threads)
    feed = tiny_feed()
    start = time.perf_counter()
    first = exe.run(program, feed=feed, fetch_list=[last])[0]
    facts = {
        "build_s": built,
        "first_run_s": time.perf_counter() - start,
        "ops": len(main.global_block().ops),
        "first_value": float(first[0]),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    fetch = [last]
    return Case(lambda: exe.run(program, feed=feed, fetch_list=fetch)[0], facts)


def _bare(count: int) -> Case:
    """The floor of the tiny program: pre-bound ufuncs in a Python loop."""
    feed = tiny_feed()
    calls, result = tiny_bound(count, feed)

    def step() -> Any:
        for function, args in calls:
            function(*args)
        return result

    return Case(step, {"first_value": float(step()[0]), "ops": count})


def _convolution(described: str, threads: int) -> Case:
    """One pass of a convolution on values that lie in the scope; fetches the result's mean, so that no copy is timed."""
    one = json.loads(described)
    main, startup = _programs()
    rng = np.random.default_rng(3)
    sizes = {"x": one["x"], "w": one["w"], "dy": one["y"]}
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        block = main.global_block()
        vars = {n: paddle.create_parameter(s, "float32", name=n) for n, s in sizes.items()}
        x, w, dy = vars.values()
        x.stop_gradient, w.stop_gradient = one["pass"] != "dx", one["pass"] != "dw"
        out = block.create_var(name="y", shape=one["y"], dtype="float32")
        type = "depthwise_conv2d" if one["depthwise"] else "conv2d"
        block.append_op(type=type, inputs={"Input": [x], "Filter": [w]}, outputs={"Output": [out]}, attrs=one["attrs"])
        if one["pass"] != "forward":
            (out,) = paddle.static.gradients([out], [x if one["pass"] == "dx" else w], [dy])
            if NAME == "paddle":
                # Paddle runs all ops of a program; the gradient does not read what the forward op wrote.
                block._remove_op(0)
        mean = paddle.mean(out)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    for name, size in sizes.items():
        set_parameter(paddle, name, rng.standard_normal(size).astype("float32"), paddle.CPUPlace())
    program, fetch = with_threads(paddle, main, threads), [mean]
    first = exe.run(program, fetch_list=fetch)[0]
    return Case(lambda: exe.run(program, fetch_list=fetch)[0], {"first_value": float(np.asarray(first).reshape(-1)[0])})


def prepare(case: str, threads: int) -> Case:
    """Builds and compiles a case: a net's name, ``tiny:<ops>``, ``bare:<ops>`` ``conv:<JSON>``; ``null:`` may stand in front."""
    if case.startswith("conv:"):
        return _convolution(case.removeprefix("conv:"), threads)
    kind, _, count = case.removeprefix("null:").partition(":")
    if kind == "tiny":
        return _tiny(case, threads, int(count))
    if kind == "bare":
        return _bare(int(count))
    return _net(case, threads)


def facts() -> dict[str, Any]:
    """Versions."""
    return {"version": getattr(paddle, "__version__", "?"), "numpy": np.__version__, "python": sys.version.split()[0]}


paddle.enable_static()
if __name__ == "__main__":
    serve(prepare, facts)
