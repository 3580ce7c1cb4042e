"""Plans and memory reports: what they say before the run is what happens, and no option changes a result."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import dense, regression, rows, state
from tests.helpers.soak import SOAK
from tstatic import devices, display, static
from tstatic.errors import FeedError, ProgramError
from tstatic.fusion.codegen.kernel import KernelLocal
from tstatic.ir.frozen import VerifyError, freeze, verify
from tstatic.ir.types import Meta, float32
from tstatic.passes.cse import cse
from tstatic.passes.dce import dce
from tstatic.passes.fold import fold
from tstatic.passes.manager import Pass, run_passes
from tstatic.plan.memory import aligned
from tstatic.plan.report import memory_report
from tstatic.static.compile import compile_program


def net() -> tuple[Any, Any, Any]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 16])
        h = x
        for _ in range(4):
            h = dense(h, 32, "tanh")
        loss = paddle.mean(paddle.square(h))
        paddle.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def test_memory_options_change_the_plan_and_never_a_result() -> None:
    peaks: dict[Any, int] = {}
    results = []
    for optimize, inplace in itertools.product((None, True, False), (True, False)):
        main, startup, loss = net()
        strategy = static.BuildStrategy()
        strategy.memory_optimize = optimize
        strategy.enable_inplace = inplace
        with static.scope_guard(static.Scope()):
            paddle.seed(1)
            exe = static.Executor("cpu")
            exe.run(startup)
            compiled = static.CompiledProgram(main, strategy)
            peaks[optimize, inplace] = compiled.memory_report({"x": (64, 16)}, [loss]).peak_bytes
            losses = [exe.run(compiled, feed={"x": rows(64, 16)}, fetch_list=[loss])[0] for _ in range(3)]
            assert compiled.plan.arena_bytes == peaks[optimize, inplace]
            results.append((losses, state(static.global_scope(), main)))
    for inplace in (True, False):
        assert peaks[True, inplace] == peaks[None, inplace]
        assert peaks[True, inplace] < peaks[False, inplace]
    assert peaks[False, True] < peaks[False, False]
    first, values = results[0]
    for losses, others in results[1:]:
        assert losses == first
        assert all(np.array_equal(values[n], others[n]) for n in values)


@pytest.mark.numpy_device
def test_the_report_says_what_and_where() -> None:
    main, startup, loss = net()
    exe = static.Executor("cpu")
    exe.run(startup)
    compiled = static.CompiledProgram(main)
    report = compiled.memory_report({"x": (64, 16)}, [loss])
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["peak_bytes"] == report.peak_bytes > 0
    live = [o.live_bytes for o in report.by_op]
    assert max(live) <= report.peak_bytes
    assert report.peak is not None
    assert report.peak.live_bytes == max(live)
    arena = sum(report.by_category[c] for c in ("feeds", "activations", "gradients", "temporaries"))
    assert arena == max(live)
    assert report.by_category["parameters"] == sum(4 * int(np.prod(p.shape)) for p in main.all_parameters())
    assert all("nets.py" in o.where or "test_plan.py" in o.where for o in report.by_op)
    assert "peak at step" in str(report)
    state_bytes = static.global_scope().held_bytes()
    assert report.held_bytes == state_bytes
    exe.run(compiled, feed={"x": rows(64, 16)}, fetch_list=[loss])
    assert compiled.memory_report({"x": (64, 16)}, [loss]).held_bytes >= state_bytes + report.peak_bytes


def test_what_ops_need_while_they_run_has_a_place_in_the_arena_of_a_device() -> None:
    """On the CPU threads have workspaces of their own, so nothing is there."""
    main, _, loss = net()
    for name in ("cpu", "fake"):
        made = compile_program(
            main, static.BuildStrategy(), [{"x": Meta((64, 16), float32)}], [loss.name], static.Scope(),
            device=devices.DEVICES[name],
        )  # fmt: skip
        plan = made.first.plan
        report = memory_report(plan, {}, 0)
        assert sum(
            report.by_category[c] for c in ("feeds", "activations", "gradients", "temporaries", "scratch")
        ) == max(o.live_bytes for o in report.by_op)
        assert report.peak is not None
        at = report.peak.step
        held = sum(
            aligned(b.nbytes) for b in plan.lifetimes if isinstance(b.name, KernelLocal) and b.first <= at <= b.last
        )
        assert report.by_category["scratch"] == held
        if name == "cpu":
            assert not plan.scratch
            continue
        assert held > 0
        assert "scratch" in str(plan)
        assert max(start + size for start, size in plan.scratch.values()) <= plan.arena_bytes
        for i, (start, size) in plan.scratch.items():
            touched = [
                (plan.storage[plan.root[v]], v) for v in (*plan.steps[i].op.contents(), *plan.steps[i].op.writes())
            ]
            for slot, value in touched:
                if slot.kind in ("arena", "feed") and slot.meta is not None:
                    assert start + size <= slot.offset or slot.offset + slot.meta.nbytes <= start, (i, value)


def test_partial_sums_of_kernels_lie_in_the_arena() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, w = static.data("x", [4000, 64]), static.data("w", [64])
        x.stop_gradient = w.stop_gradient = False
        (found,) = static.gradients([paddle.mean(paddle.tanh(x * w))], [w])
    build = static.BuildStrategy()
    build.enable_auto_fusion = True
    feeds = {"x": Meta((4000, 64), float32), "w": Meta((64,), float32)}
    plan = compile_program(
        main, build, [feeds], [found.name], static.Scope(), device=devices.DEVICES["interpret"]
    ).first.plan  # fmt: skip
    sums = {i: plan.kernels[s.op.outputs].calls.partials for i, s in enumerate(plan.steps) if s.how == "kernel"}
    wanted = {i: sum(count * t.itemsize for count, t in partials.values()) for i, partials in sums.items() if partials}
    assert wanted
    assert {i: plan.scratch[i][1] for i in wanted} == {i: aligned(size) for i, size in wanted.items()}
    report = memory_report(plan, {}, 0)
    live = dict(zip(range(len(plan.steps)), report.by_op, strict=True))
    assert all(live[i].live_bytes >= size for i, size in wanted.items())


@pytest.mark.numpy_device
@pytest.mark.parametrize("reduce", [False, True], ids=["AllReduce", "Reduce"])
def test_the_report_of_several_places_has_what_each_of_them_allocates(reduce: bool) -> None:
    main, startup, loss = net()
    build = static.BuildStrategy()
    if reduce:
        build.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
    exe = static.Executor("cpu")
    exe.run(startup)
    both = static.CompiledProgram(main, build).with_data_parallel(loss.name, places=["cpu"] * 3)
    report = both.memory_report({"x": (50, 16)}, [loss])
    sessions: list[Any] = []
    exe.run(both, feed={"x": rows(50, 16)}, fetch_list=[loss])
    sessions = list(both._history.sessions)
    arenas = sorted(session.arena.array.nbytes for session in sessions)  # type: ignore[union-attr]
    assert sorted(one.peak_bytes for one in report.replicas) == arenas
    assert [one.by_category["feeds"] for one in report.replicas] == [aligned(n * 16 * 4) for n in (16, 17, 17)]
    assert report.peak_bytes == max(arenas)
    one_place = static.CompiledProgram(main, build).memory_report({"x": (50, 16)}, [loss])
    assert report.peak_bytes < one_place.peak_bytes
    assert one_place.replicas == ()
    assert [one["peak_bytes"] for one in report.to_dict()["replicas"]] == [one.peak_bytes for one in report.replicas]
    assert f"arenas of the 3 places: {display.size(report.replicas[0].peak_bytes)}, " in str(report)
    with pytest.raises(FeedError, match="fewer rows than there are devices"):
        both.memory_report({"x": (2, 16)}, [loss])


def test_a_reshape_is_a_view_where_memory_lies_in_order_and_the_count_of_launches_follows() -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [4, 6])
        flat = paddle.reshape(paddle.tanh(x), [3, 8])
        turned = paddle.reshape(paddle.transpose(flat, [1, 0]), [24])
        y = paddle.exp(flat), paddle.exp(turned)
    compiled = static.CompiledProgram(main)
    given = np.arange(24, dtype="f4").reshape(4, 6)
    static.Executor("cpu").run(compiled, feed={"x": given}, fetch_list=[*y])
    how = {(s.op.type, s.op.output("Out")): s.how for s in compiled.plan.steps}
    assert [kind for (op, _), kind in how.items() if op == "reshape2"] == ["view", "ref"], "turned rows are copied"
    worked = sum(kind != "view" for kind in how.values())
    assert worked == 4
    assert compiled.explain(fetch_list=[*y]).traffic.launches_before == worked


@pytest.mark.parametrize(("rows", "joined"), [((64, 128, 5), True), ((5, 64), False)])
def test_rows_are_written_to_their_place_in_a_concat(rows: tuple[int, ...], joined: bool) -> None:
    """Where each part begins at a multiple of 256 bytes; what reads a part later finds it, too, and no option changes a result."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        given = [static.data(f"x{i}", [n, 16]) for i, n in enumerate(rows)]
        parts = [paddle.tanh(x) for x in given]
        whole = paddle.concat(parts, axis=0)
        fetches = [paddle.exp(whole), paddle.sin(parts[0]), paddle.concat([parts[1], parts[1]], axis=0)]
    feeds = {x.name: np.random.default_rng(i).random(x.shape, np.float32) for i, x in enumerate(given)}
    wanted = np.exp(np.tanh(np.concatenate([*feeds.values()])))
    for inplace in (True, False):
        strategy = static.BuildStrategy()
        strategy.enable_inplace = inplace
        compiled = static.CompiledProgram(main, strategy)
        got = static.Executor("cpu").run(compiled, feed=feeds, fetch_list=fetches)
        np.testing.assert_allclose(got[0], wanted, rtol=1e-6)
        np.testing.assert_allclose(got[1], np.sin(np.tanh(feeds["x0"])), rtol=1e-6)
        np.testing.assert_allclose(got[2], np.tanh(np.concatenate([feeds["x1"]] * 2)), rtol=1e-6)
        plan = compiled.plan
        # The second concat has one part twice: it has to copy.
        hows = [step.how for step in plan.steps if step.op.type == "concat"]
        assert hows == ["joined" if joined and inplace else "ref", "ref"]
        if hows[0] == "joined":
            begin = plan.storage[whole.name].offset
            offsets = [plan.storage[one.name].offset - begin for one in parts]
            assert offsets == [0, 64 * 64, 192 * 64]


def test_an_arena_is_dropped_as_often_as_the_strategy_says() -> None:
    main, startup, loss = net()
    exe = static.Executor("cpu")
    exe.run(startup)
    execution = static.ExecutionStrategy()
    execution.num_iteration_per_drop_scope = 2
    compiled = static.CompiledProgram(main, exec_strategy=execution)
    held = []
    for _ in range(4):
        exe.run(compiled, feed={"x": rows(64, 16)}, fetch_list=[loss])
        held.append(exe.held_bytes)
    assert held[0] > 0
    assert held[1] == 0
    assert held[2] == held[0]
    assert held[3] == 0


def test_the_report_needs_every_input_and_knows_the_names() -> None:
    main, _, loss = net()
    compiled = static.CompiledProgram(main)
    with pytest.raises(FeedError, match="'x'"):
        compiled.memory_report({}, [loss])
    with pytest.raises(ProgramError, match="nosuch"):
        compiled.memory_report({"nosuch": (1,)}, [loss])
    with pytest.raises(ProgramError, match="no plan"):
        _ = static.CompiledProgram(main).plan


def test_the_printed_plan_shows_steps_order_events_and_slots() -> None:
    main, _startup, loss = net()
    compiled = static.CompiledProgram(main)
    compiled.memory_report({"x": (8, 16)}, [loss])
    text = str(compiled.plan)
    lines = text.splitlines()
    assert "arena" in lines[0]
    assert "waits" in lines[1]
    body = [line for line in lines[2:] if line.split()[0].isdigit()]
    assert [int(line.split()[0]) for line in body] == list(range(len(body)))
    sub_blocks = [line.split()[1] for line in body]
    assert sub_blocks == sorted(sub_blocks)
    assert set(sub_blocks) == {"main", "update"}
    assert all("state(" in line for line in body if line.split()[1] == "update")
    assert any("arena[" in line for line in body)
    assert any("nets.py" in line for line in body)


def _frozen(build: Any, fetch: int = -1) -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4])
        out = build(x)
    return freeze(main, ["x"], [out.name])


def test_dead_ops_go_and_ops_with_effects_stay() -> None:
    def build(x: Any) -> Any:
        paddle.exp(x)
        static.Print(x, message="kept")
        return paddle.square(x)

    kept = [op.type for op in dce(_frozen(build)).ops]
    assert "exp" not in kept
    assert "print" in kept
    assert "square" in kept


def test_equal_ops_are_merged_but_random_ones_are_not() -> None:
    def build(x: Any) -> Any:
        return paddle.add(paddle.add(paddle.exp(x), paddle.exp(x)), paddle.add(paddle.rand([4]), paddle.rand([4])))

    types = [op.type for op in dce(cse(_frozen(build))).ops]
    assert types.count("exp") == 1
    assert types.count("uniform_random") == 2


def test_constants_are_computed_once() -> None:
    def build(x: Any) -> Any:
        return paddle.add(x, paddle.sqrt(paddle.add(paddle.ones([4]), paddle.full([4], 3.0))))

    folded = fold(_frozen(build))
    assert [op.type for op in folded.ops] == ["elementwise_add"]
    assert [v.tolist() for v in folded.constants.values()][-1] == [2, 2, 2, 2]


def test_a_pass_that_breaks_the_program_is_caught_and_named() -> None:
    frozen = _frozen(lambda x: paddle.square(paddle.exp(x)))
    verify(frozen, "freeze")
    with pytest.raises(VerifyError, match=r"pass 'loses_ops'.*\n.*square"):
        run_passes(frozen, [Pass("loses_ops", lambda p: p.edit(ops=p.ops[1:]))])
    with pytest.raises(VerifyError, match="made twice"):
        verify(frozen.edit(ops=(*frozen.ops, frozen.ops[0])), "doubles")
    with pytest.raises(VerifyError, match="nothing makes it"):
        verify(frozen.edit(ops=()), "empties")


@pytest.mark.slow
def test_a_long_program_builds_and_compiles_without_recursion() -> None:
    count = 100_000 if SOAK else 8_000
    main = static.Program()
    with static.program_guard(main):
        x = y = static.data("x", [2])
        for _ in range(count // 4):
            y = paddle.tanh(paddle.scale(paddle.exp(paddle.scale(y, -1.0)), 0.5))
    assert len(main.global_block().ops) == count
    (value,) = static.Executor("cpu").run(main, feed={"x": np.ones(2, "float32")}, fetch_list=[y])
    assert np.isfinite(value).all()
    assert x.name == "x"


def test_a_regression_net_reuses_memory() -> None:
    main, _startup, loss = regression(paddle.optimizer.SGD(0.1), width=64)
    compiled = static.CompiledProgram(main)
    small = compiled.memory_report({"x": (10, 3)}, [loss]).peak_bytes
    large = compiled.memory_report({"x": (1000, 3)}, [loss]).peak_bytes
    assert large > 10 * small


def test_a_result_takes_no_place_that_the_operator_reads_under_another_name() -> None:
    """Also where the operator is cut: one part must not write what another still reads."""
    x = static.data("x", [1024, 1024])
    h = paddle.exp(x)
    y = h - paddle.transpose(h, [1, 0])
    given = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    (found,) = static.Executor(paddle.CPUPlace()).run(feed={"x": given}, fetch_list=[y])
    np.testing.assert_array_equal(found, -found.T)
    assert np.abs(found).max() > 1


def test_operators_that_differ_in_the_sign_of_a_zero_are_not_merged() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [2])
        signs = [paddle.atan2(paddle.scale(x, zero), paddle.full([2], -1.0)) for zero in (0.0, -0.0)]
    found = static.Executor("cpu").run(main, feed={"x": np.ones(2, np.float32)}, fetch_list=signs)
    assert [np.signbit(value).tolist() for value in found] == [[False, False], [True, True]]
