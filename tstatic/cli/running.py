"""Commands that run programs: run, profile, verify, selftest."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static
from tstatic.cli.outcome import FINDING, OK, CommandError, Outcome, Table
from tstatic.cli.scripts import execute
from tstatic.cli.subjects import SIZE, Subject, subject_of
from tstatic.cli.targets import check_target
from tstatic.errors import TstaticError
from tstatic.profiler import tables
from tstatic.profiler.profiler import Profiler
from tstatic.progress import tracked
from tstatic.static.strategy import BuildStrategy
from tstatic.testing import EquivalenceError, assert_equivalent, check_grads, sample_feeds
from tstatic.testing.runner import everything_on
from tstatic.where import show


def run(script: str, arguments: Sequence[str]) -> Outcome:
    """Runs a script in which ``paddle`` is tstatic."""
    execute(script, arguments)
    return Outcome({})


# --------------------------------------------------------------------------------------------------------------- profile
def profile(
    target: str, arguments: Sequence[str] = (), runs: int = 10, batch: int = 0, trace: str = "", top: int = 20
) -> Outcome:
    """Says how long operators take: in a whole script, or in some runs of a saved program on drawn numbers."""
    profiler = Profiler(on_trace_ready=lambda profiler: None)
    if check_target(target) is None:
        with contextlib.redirect_stdout(sys.stderr), profiler:
            execute(target, arguments)
    else:
        _profile_saved(subject_of(target, arguments), profiler, runs, batch or SIZE)
    events = [event for event in profiler.events if event.kind == "op"]
    if not events:
        raise CommandError(f"'{target}' ran no program: there is nothing to measure", FINDING)
    if trace:
        profiler.export(trace)
    whole = sum(event.end - event.start for event in events) or 1
    rows = tables.rows_of(events, lambda e: f"{e.name}\n{show(e.op.where) if e.op is not None else ''}")
    found = sorted(((*name.partition("\n")[::2], row) for name, row in rows.items()), key=lambda one: -one[2].total)
    data = {
        "operators": [
            {"operator": kind, "where": where, "calls": len(row.times), "total_ms": row.total / 1e6,
             "average_us": row.average / 1e3, "share": row.total / whole}
            for kind, where, row in found
        ],
        "total_ms": whole / 1e6,
        "trace": trace,
    }  # fmt: skip
    shown = [
        (kind, where, len(row.times), f"{row.total / 1e6:.2f} ms", f"{row.average / 1e3:.1f} us",
         f"{100 * row.total / whole:.1f} %")
        for kind, where, row in found[:top]
    ]  # fmt: skip
    title = f"Where the {whole / 1e6:.1f} ms of the operators of {target} go"
    parts: list[str | Table] = [Table(title, ("operator", "line", "calls", "total", "average", "share"), shown)]
    if trace:
        parts.append(f"{trace}: open it at https://ui.perfetto.dev or chrome://tracing")
    return Outcome(data, parts)


def _profile_saved(subject: Subject, profiler: Profiler, runs: int, size: int) -> None:
    feed = sample_feeds(subject.program, sizes=(size,))
    exe, compiled = static.Executor(), subject.compiled()

    def step() -> None:
        exe.run(compiled, feed=feed, fetch_list=list(subject.fetches), scope=subject.scope)

    step()  # compiles
    with profiler:
        for _ in range(runs):
            step()


# ---------------------------------------------------------------------------------------------------------------- verify
def verify(
    target: str, arguments: Sequence[str] = (), program: int = 0, first: int = 0, examples: int = 5, steps: int = 1,
    seed: int = 0,
) -> Outcome:  # fmt: skip
    """Compares a program without any fusion with itself under every strategy."""
    subject = subject_of(target, arguments, program, first)
    strategies = _strategies(subject)
    rows: list[tuple[object, ...]] = []
    results: list[dict[str, Any]] = []
    failure = ""
    with static.scope_guard(subject.scope):
        for name, strategy in tracked(
            "verifying strategies", strategies.items(), len(strategies), lambda pair: pair[0]
        ):
            try:
                made = assert_equivalent(
                    subject.program, strategy, fetch_list=list(subject.fetches) or None, steps=steps, seed=seed,
                    examples=examples,
                )  # fmt: skip
                said = {"strategy": name, "equal": True, "fusions": made.fusions, "kernels": made.kernels}
                rows.append((name, "equal", made.fusions, made.kernels))
            except EquivalenceError as error:
                said = {"strategy": name, "equal": False, "message": str(error), "script": error.script}
                rows.append((name, "DIFFERS", "", ""))
                failure = failure or str(error)
            results.append(said)
    table = Table(
        f"{subject.label}: {examples} drawn feeds, {steps} steps each, against the program without fusions",
        ("strategy", "results", "fusions compared", "kernels run"),
        rows,
    )
    kernels = sum(int(one.get("kernels", 0)) for one in results)
    parts: list[str | Table] = [table]
    if not kernels:
        parts.append(
            "No generated kernel ran: fused operators ran as those that they replace. --interpret runs the kernels in Triton's "
            "interpreter."
        )
    if failure:
        parts.append(failure)
    data = {"program": subject.label, "equal": not failure, "kernels": kernels, "strategies": results}
    return Outcome(data, parts, FINDING if failure else OK)


def _strategies(subject: Subject) -> dict[str, BuildStrategy]:
    """Returns every strategy worth a comparison: that of the run, each fusion by itself if it would act, and all of them."""
    found = {"all fusions": everything_on()}
    if subject.build.changed():
        found["as it ran"] = subject.build
    plain = subject.switched(False, ())
    for one in replace(plain, build=BuildStrategy()).compiled().explain(list(subject.fetches)).off():
        strategy = BuildStrategy()
        setattr(strategy, one.switch, True)
        found[one.switch] = strategy
    return found


# -------------------------------------------------------------------------------------------------------------- selftest
def _trains() -> None:
    loss, exe, scope = _net()
    first, last = (float(_step(exe, loss, scope)) for _ in range(2))
    if not last < first:
        raise AssertionError(f"the loss went from {first} to {last}")


def _net() -> tuple[Any, static.Executor, static.Scope]:
    """Builds a small net in a program of its own, and initialises it."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, label = static.data("x", [None, 6]), static.data("label", [None, 1], "int64")
        hidden = paddle.nn.functional.gelu(static.nn.layer_norm(static.nn.fc(x, 8)))
        loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(hidden, 4), label))
        paddle.optimizer.AdamW(0.05, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup, scope=scope)
    return loss, exe, scope


def _step(exe: static.Executor, loss: Any, scope: static.Scope) -> Any:
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((8, 6), "float32"), "label": rng.integers(0, 4, (8, 1))}
    return exe.run(loss.block.program, feed=feed, fetch_list=[loss], scope=scope)[0]


def _equal_when_fused() -> None:
    loss, _, scope = _net()
    with static.scope_guard(scope):
        assert_equivalent(loss.block.program, everything_on(), fetch_list=[loss], steps=2, examples=2)


def _has_right_gradients() -> None:
    def function(x: Any, y: Any) -> Any:
        return paddle.nn.functional.softmax(paddle.tanh(x) * y)

    rng = np.random.default_rng(1)
    check_grads(function, {name: rng.standard_normal((2, 3), "float32") for name in "xy"})


def _is_saved_bit_for_bit() -> None:
    loss, exe, scope = _net()
    program = loss.block.program
    with tempfile.TemporaryDirectory() as folder, static.scope_guard(scope):
        _step(exe, loss, scope)
        static.save(program, f"{folder}/model")
        expected = _step(exe, loss, scope)
        static.load(program, f"{folder}/model")
        if _step(exe, loss, scope).tobytes() != expected.tobytes():
            raise AssertionError("a step after loading differs from the step after saving")


def _is_equal_on_two_places() -> None:
    loss, exe, scope = _net()
    other, also, beside = _net()
    compiled = static.CompiledProgram(other.block.program).with_data_parallel(
        other.name, places=[paddle.CPUPlace(), paddle.CPUPlace()]
    )
    for _ in range(2):
        alone = _step(exe, loss, scope)
        rng = np.random.default_rng(0)
        feed = {"x": rng.standard_normal((8, 6), "float32"), "label": rng.integers(0, 4, (8, 1))}
        both = also.run(compiled, feed=feed, fetch_list=[other], scope=beside)[0]
    also.close()
    if not np.allclose(np.mean(both), alone, rtol=1e-5):
        raise AssertionError(f"the loss is {alone} on one place and {np.mean(both)} on two")


CHECKS: dict[str, Callable[[], None]] = {
    "a small net trains": _trains,
    "fused programs give the same results": _equal_when_fused,
    "gradients are right": _has_right_gradients,
    "a saved training goes on bit for bit": _is_saved_bit_for_bit,
    "two places train as one": _is_equal_on_two_places,
}


def selftest() -> Outcome:
    """Runs small programs whose results are known, in some seconds."""
    rows = []
    for name, check in CHECKS.items():
        try:
            check()
            rows.append({"check": name, "ok": True, "detail": ""})
        except (AssertionError, TstaticError) as error:
            rows.append({"check": name, "ok": False, "detail": str(error)})
    fine = all(one["ok"] for one in rows)
    table = Table(
        f"tstatic {paddle.__version__}", ("check", "", ""),
        [(one["check"], "ok" if one["ok"] else "FAILED", one["detail"]) for one in rows],
    )  # fmt: skip
    return Outcome({"ok": fine, "checks": rows}, (table,), OK if fine else FINDING)
