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
from tstatic.display import counted, size
from tstatic.errors import NumericsError, TstaticError
from tstatic.logs import leave_unsaid
from tstatic.progress import tracked
from tstatic.static.strategy import BuildStrategy
from tstatic.tools.cli.outcome import FINDING, OK, CommandError, Outcome, Table
from tstatic.tools.cli.scripts import execute
from tstatic.tools.cli.subjects import SIZE, Subject, subject_of
from tstatic.tools.cli.targets import check_output, check_target
from tstatic.tools.profiler.recording import Profile
from tstatic.tools.profiler.recording import profile as recorded
from tstatic.tools.testing import EquivalenceError, assert_equivalent, check_grads, sample_feeds
from tstatic.tools.testing.equivalence import NO_KERNEL
from tstatic.tools.testing.runner import everything_on

RUNS = 10
"""How many runs of a saved program are measured if nothing else is asked for."""


def run(script: str, arguments: Sequence[str]) -> Outcome:
    """Runs a script in which ``paddle`` is tstatic."""
    execute(script, arguments)
    return Outcome({})


# --------------------------------------------------------------------------------------------------------------- profile
def profile(
    target: str,
    arguments: Sequence[str] = (),
    runs: int = 0,
    batch: int = 0,
    trace: str = "",
    top: int = 20,
    nan: bool = False,
) -> Outcome:
    """Says where the time of a whole script goes, or that of some runs of a saved program on drawn numbers."""
    script = check_target(target) is None
    if script and (runs or batch):
        raise CommandError(
            f"--{'runs' if runs else 'batch'} is for saved programs, and '{target}' is a script, which runs as it stands"
        )
    check_output(trace=trace)
    if nan:
        paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        if script:
            with contextlib.redirect_stdout(sys.stderr), recorded() as found:
                execute(target, arguments)
        else:
            found = _profile_saved(subject_of(target, arguments), runs or RUNS, batch or SIZE)
    except NumericsError as error:
        if not nan:
            raise
        raise CommandError(str(error), FINDING) from error
    rows = found.by_place()
    if not rows:
        raise CommandError(f"'{target}' ran no program: there is nothing to measure")
    if trace:
        found.save_trace(trace)
    whole = sum(row.total for row in rows) or 1
    data = found.to_dict() | {
        "operators": [
            {"operator": row.label, "where": row.name, "calls": row.calls, "total_ms": row.total / 1e6,
             "average_us": row.average / 1e3, "share": row.total / whole, "bytes": row.nbytes,
             "bandwidth_share": row.share_of(found.machines.get(row.device))}
            for row in rows
        ],
        "total_ms": whole / 1e6,
        "trace": trace,
    }  # fmt: skip
    steps = found.steps()
    count = max(steps.count, 1)
    shares = [(p.name, f"{p.total / count / 1e6:.3f} ms", f"{100 * p.total / steps.total:.1f} %") for p in steps.parts]
    shares += [
        (f"{p.device}: {p.name}", f"{p.total / count / 1e6:.3f} ms", f"{100 * p.total / steps.runs[p.device]:.1f} %")
        for p in steps.device_parts
    ]
    shown = [
        (row.label, row.name, row.calls, f"{row.total / 1e6:.2f} ms", f"{row.average / 1e3:.1f} us",
         f"{100 * row.total / whole:.1f} %", size(row.nbytes), _percent(row.share_of(found.machines.get(row.device))))
        for row in rows[:top]
    ]  # fmt: skip
    title = f"Where the {whole / 1e6:.1f} ms of the operators of {target} go"
    head = ("operator", "line", "calls", "total", "average", "share", "bytes", "bandwidth")
    parts: list[str | Table] = [
        Table(f"Where one of the {steps.count} steps goes", ("part", "a step", "share"), shares),
        Table(title, head, shown),
    ]
    kernels = [
        (row.name, row.calls, f"{row.total / 1e6:.2f} ms", f"{row.average / 1e3:.1f} us") for row in found.by_kernel()
    ]
    if kernels:
        parts.append(Table("Kernels", ("kernel", "calls", "total", "average"), kernels[:top]))
    parts += [f"{name}: {machine.told()}" for name, machine in found.machines.items()]
    if nan:
        parts.append("No operator made a NaN or an infinity.")
    if trace:
        parts.append(f"{trace}: open it at https://ui.perfetto.dev or chrome://tracing")
    return Outcome(data, parts)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _profile_saved(subject: Subject, runs: int, batch: int) -> Profile:
    feed = sample_feeds(subject.program, sizes=(batch,))
    exe, compiled = static.Executor(), subject.compiled()

    def step() -> None:
        exe.run(compiled, feed=feed, fetch_list=list(subject.fetches), scope=subject.scope)

    step()  # compiles
    with recorded() as found:
        for _ in range(runs):
            step()
    return found


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
    # Said below the table.
    leave_unsaid(NO_KERNEL)
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
        f"{subject.label}: {counted(examples, 'drawn feed')}, {counted(steps, 'step')} each, against the program without fusions",
        ("strategy", "results", "fusions compared", "kernels run"),
        rows,
    )
    kernels = sum(int(one.get("kernels", 0)) for one in results)
    parts: list[str | Table] = [table]
    if not any(int(one.get("fusions", 0)) for one in results):
        parts.append("No strategy fused anything in this program: there was nothing to compare.")
    elif not kernels:
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


def _equal_when_fused() -> str:
    loss, _, scope = _net()
    # The table says it.
    leave_unsaid(NO_KERNEL)
    with static.scope_guard(scope):
        made = assert_equivalent(loss.block.program, everything_on(), fetch_list=[loss], steps=2, examples=2)
    ran = (
        f"{counted(made.kernels, 'kernel')} ran"
        if made.kernels
        else "no generated kernel ran: it takes a GPU, or triton and torch"
    )
    return f"{counted(made.fusions, 'fused operator')}, {ran}"


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


CHECKS: dict[str, Callable[[], str | None]] = {
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
            rows.append({"check": name, "ok": True, "detail": check() or ""})
        except (AssertionError, TstaticError) as error:
            rows.append({"check": name, "ok": False, "detail": str(error)})
    fine = all(one["ok"] for one in rows)
    table = Table(
        f"tstatic {paddle.__version__}", ("check", "", ""),
        [(one["check"], "ok" if one["ok"] else "FAILED", one["detail"]) for one in rows],
    )  # fmt: skip
    return Outcome({"ok": fine, "checks": rows}, (table,), OK if fine else FINDING)
