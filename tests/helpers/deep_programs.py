"""Programs as long, wide and deep as they get, through everything that walks a program: ``python -m tests.helpers.deep_programs``.

Each stage runs with a recursion limit that a function which calls itself once an operator, a reader, an input or a name
exceeds. ``--size 10000`` takes a quarter of an hour of processor time; the default run, ``tests/unit/test_deep_programs.py``,
uses 300, which exceeds the limit just as well.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

LIMIT = 250
"""Frames of the interpreter: a test that calls a stage stands on about 60 of them."""


def weight(shape: list[int], name: str | None = None) -> Any:
    """Returns a parameter that each run of the startup program gives the same values."""
    size = int(np.prod(shape))
    values = np.linspace(-0.3, 0.3, size, dtype="float32").reshape(shape)
    return static.create_parameter(
        shape, "float32", name=name, default_initializer=paddle.nn.initializer.Assign(values)
    )


def chain(x: Any, n: int) -> Any:
    """A chain of elementwise operators, which fuse."""
    h = x
    for _ in range(n):
        h = paddle.tanh(h + 0.5)
    return h * weight([8])


def unrolled(x: Any, n: int) -> Any:
    """A recurrent net that is written out: one weight and one input are read in every step."""
    w, h = weight([8, 8]), x
    for _ in range(n):
        h = paddle.tanh(paddle.matmul(h, w) + x)
    return h


def one_value(x: Any, n: int) -> Any:
    """One parameter with many readers side by side, and one operator that adds them up."""
    w = weight([8])
    return paddle.add_n([paddle.scale(x * w, float(i + 1) / n) for i in range(n)])


def many_inputs(x: Any, n: int) -> Any:
    """One operator that joins many values."""
    w = weight([8])
    return paddle.concat([x * w for _ in range(n)], 0)


def many_parameters(x: Any, n: int) -> Any:
    """A chain in which each operator reads a parameter of its own, so that the update has many, too."""
    h = x
    for _ in range(n):
        h = h + weight([8])
    return h


def nested_names(x: Any, n: int) -> Any:
    """Operators inside many name scopes, and a name of many parts."""
    n = min(n, 1000)
    with contextlib.ExitStack() as scopes:
        for i in range(n):
            scopes.enter_context(static.name_scope(f"s{i}"))
        w = weight([8], "/".join(["a"] * n) + "." + ".".join(["b"] * n))
        return paddle.tanh(x * w)


KINDS = {f.__name__: f for f in (chain, unrolled, one_value, many_inputs, many_parameters, nested_names)}


@contextlib.contextmanager
def shallow(limit: int) -> Iterator[None]:
    """Lets a block use ``limit`` frames, those that stand already included."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def everything_on() -> Any:
    """Returns a strategy that asks for every fusion."""
    build = static.BuildStrategy()
    for name in dir(build):
        if name.startswith("fuse") or name == "build_cinn_pass":
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                if getattr(build, name) in (False, None):
                    setattr(build, name, True)
    return build


def stages(kind: str, n: int, folder: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the name of each stage and what runs it; each may need those before it."""
    main, startup = static.Program(), static.Program()
    executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    feed = {"x": np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)}
    known: dict[str, Any] = {}

    def build() -> None:
        with static.program_guard(main, startup):
            known["x"] = x = static.data("x", [4, 8])
            known["loss"] = paddle.mean(KINDS[kind](x, n))
            paddle.optimizer.SGD(1e-4).minimize(known["loss"])

    def run(program: Any) -> float:
        with static.scope_guard(scope):
            executor.run(startup)
            losses = [executor.run(program, feed=feed, fetch_list=[known["loss"]])[0] for _ in range(2)]
        return float(losses[1].item())

    def fused() -> float:
        known["compiled"] = static.CompiledProgram(main, build_strategy=everything_on())
        known["fused"] = run(known["compiled"])
        return known["fused"]

    def explained() -> None:
        known["why"] = why = known["compiled"].explain()
        assert str(why)
        assert why.to_json()
        assert "<svg" in why.to_html()

    def saved() -> None:
        with static.scope_guard(scope):
            static.save(main, f"{folder}/state")
            static.load(main, f"{folder}/state", executor)
            static.save_inference_model(f"{folder}/model", [known["x"]], [known["loss"]], executor)
            program, feeds, fetches = static.load_inference_model(f"{folder}/model", executor)
            known["served"] = executor.run(program, feed={feeds[0]: feed["x"]}, fetch_list=fetches)[0].item()
            wanted = executor.run(main.clone(for_test=True), feed=feed, fetch_list=[known["loss"]])[0].item()
        assert known["served"] == wanted

    def copied() -> None:
        text = str(main)
        assert str(main.clone()) == text
        assert len(static.Program.parse_from_string(main.desc.serialize_to_string()).global_block().ops) == len(
            main.global_block().ops
        )

    yield "build", build
    yield "run", lambda: known.update(plain=run(main))
    yield "fuse", fused
    # Sums of thousands of terms in another order: the last bits differ.
    yield "compare", lambda: np.testing.assert_allclose(known["fused"], known["plain"], rtol=1e-4, atol=1e-6)
    yield "explain", explained
    yield "copy", copied
    yield "save", saved


def check(kind: str, n: int, limit: int = LIMIT, report: Callable[[str], object] | None = None) -> None:
    """Runs all stages of one kind of program."""
    with tempfile.TemporaryDirectory() as folder:
        for name, stage in stages(kind, n, folder):
            start = time.process_time()
            with shallow(limit):
                stage()
            if report is not None:
                report(f"{kind}, {n}: {name} {time.process_time() - start:.1f} s")


def main() -> None:
    """Checks the kinds that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="kinds of programs (default: all)")
    parser.add_argument("--size", type=int, default=10_000, help="operators, readers, inputs")
    parser.add_argument("--limit", type=int, default=LIMIT, help="frames of the interpreter")
    asked = parser.parse_args()
    paddle.enable_static()
    # What is loaded at its first use is loaded by a small program, as programs do: imports nest deeper than the limit.
    for kind in KINDS:
        check(kind, 2, sys.getrecursionlimit())
    for kind in asked.kinds or KINDS:
        check(kind, asked.size, asked.limit, report=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
