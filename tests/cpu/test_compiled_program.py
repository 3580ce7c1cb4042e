"""CompiledProgram on one place: copies of strategies, Customized loss gradients, and an explanation of every property."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import regression, rows, state
from tstatic import static
from tstatic.devices import cpu_device
from tstatic.errors import FeedError, ProgramError, ProgramTypeError, StrategyTypeError
from tstatic.ir.types import Meta, dtype_of
from tstatic.static.compile import compile_program
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy


def run(program: Any, loss: Any, **feed: Any) -> Any:
    return static.Executor("cpu").run(program, feed={"x": rows(6), **feed}, fetch_list=[loss])[0]


def test_a_compiled_program_gives_what_the_program_gives() -> None:
    main, startup, loss = regression()
    static.Executor("cpu").run(startup)
    assert run(main, loss) == run(static.CompiledProgram(main), loss) == run(static.CompiledProgram(main, None), loss)


def test_strategies_are_copied() -> None:
    main, _, _ = regression()
    strategy = static.BuildStrategy()
    compiled = static.CompiledProgram(main, strategy)
    strategy.enable_inplace = False
    assert compiled.build_strategy.enable_inplace is True


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ProgramTypeError, match="expected Graph or Program"):
        static.CompiledProgram("main")  # type: ignore[arg-type]
    with pytest.raises(ProgramTypeError, match="build_strategy"):
        static.CompiledProgram(static.Program(), {})  # type: ignore[arg-type]
    with pytest.raises(ProgramTypeError, match="exec_strategy"):
        static.CompiledProgram(static.Program(), exec_strategy=3)  # type: ignore[arg-type]
    with pytest.raises(StrategyTypeError, match="enable_inplace"):
        static.BuildStrategy().enable_inplace = 1  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="fuse_bn_act_ops"):
        static.BuildStrategy().fuse_bn_act_op = True  # type: ignore[attr-defined]
    with pytest.raises(ProgramError, match="not a variable of the program"):
        static.CompiledProgram(static.Program()).with_data_parallel(loss_name="loss")


def test_a_fed_loss_gradient_replaces_the_fill() -> None:
    results = {}
    for factor in (1.0, 0.25):
        with static.scope_guard(static.Scope()):
            main, startup, loss = regression(paddle.optimizer.SGD(0.1))
            paddle.seed(4)
            static.Executor("cpu").run(startup)
            before = state(static.global_scope(), main)
            strategy = static.BuildStrategy()
            strategy.gradient_scale_strategy = static.BuildStrategy.GradientScaleStrategy.Customized
            compiled = static.CompiledProgram(main, strategy)
            fed = {loss.name + "@GRAD": np.full((1,), factor, "float32")}
            run(compiled, loss, **fed)
            after = state(static.global_scope(), main)
            results[factor] = {n: after[n] - before[n] for n in before}
            with pytest.raises((FeedError, ValueError), match="@GRAD"):
                run(compiled, loss)
    for name, full in results[1.0].items():
        assert np.allclose(results[0.25][name], 0.25 * full, rtol=1e-3, atol=1e-7), name


def test_without_customized_a_fed_loss_gradient_is_overwritten() -> None:
    main, startup, loss = regression(paddle.optimizer.SGD(0.0))
    exe = static.Executor("cpu")
    exe.run(startup)
    name = loss.name + "@GRAD"
    (got,) = exe.run(main, feed={"x": rows(6), name: np.full((1,), 0.01, "float32")}, fetch_list=[name])
    assert float(got) == 1.0


def test_every_property_is_explained_and_none_silently_ignored() -> None:
    main, _, _ = regression()
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    explained = static.CompiledProgram(main, strategy).explain()
    plain = json.loads(json.dumps(explained.to_dict()))
    for kind in (BuildStrategy, ExecutionStrategy):
        names = {p.name for p in kind.properties()}
        assert set(plain[kind.__name__]) == names, kind
        for name, row in plain[kind.__name__].items():
            assert row["status"] in ("active", "not yet active", "no effect"), name
            assert len(row["reason"]) >= 20, name
            assert name in explained.to_text(verbose=True)
    assert explained["fuse_elewise_add_act_ops"].value is True
    assert explained["fuse_elewise_add_act_ops"].status == "active"
    assert explained["fuse_resunit"].status == "not yet active"
    assert explained["enable_inplace"].status == "active"
    assert "fuse_elewise_add_act_ops = True (set)" in explained.to_text(verbose=True)
    with pytest.raises(KeyError):
        explained["no_such_property"]


def test_num_threads_is_resolved_for_reading_without_touching_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    compiled = static.CompiledProgram(static.Program())
    assert compiled.exec_strategy.num_threads == 12
    assert compiled._settings.execution.num_threads == 0


def test_strategies_that_only_order_or_reuse_never_change_a_result() -> None:
    expected = None
    for name in (
        "enable_inplace",
        "sequential_run",
        "enable_sequential_execution",
        "fix_op_run_order",
        "fuse_bn_act_ops",
    ):
        for value in (True, False):
            with static.scope_guard(static.Scope()):
                main, startup, loss = regression(paddle.optimizer.Adam(0.1))
                paddle.seed(4)
                exe = static.Executor("cpu")
                exe.run(startup)
                strategy = static.BuildStrategy()
                setattr(strategy, name, value)
                compiled = static.CompiledProgram(main, strategy)
                for _ in range(3):
                    got = exe.run(compiled, feed={"x": rows(6)}, fetch_list=[loss])[0]
                expected = got if expected is None else expected
                assert got == expected, name


@pytest.mark.parametrize("places", [None, ["cpu"]], ids=["one place", "one replica"])
def test_a_report_an_explanation_and_a_run_compile_the_same(places: Any) -> None:
    main, startup, loss = regression(paddle.optimizer.Momentum(0.1))
    exe = static.Executor("cpu")
    exe.run(startup)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(main, strategy)
    if places is not None:
        compiled.with_data_parallel(loss.name, places=places)
    compiled.memory_report({"x": (4, 3)}, [loss])
    reported = str(compiled.plan)
    applied = {a.op for a in compiled.explain([loss], {"x": (4, 3)}).applied}
    exe.run(compiled, feed={"x": np.ones((4, 3), "f4")}, fetch_list=[loss])
    assert str(compiled.plan) == reported
    assert applied
    assert applied <= {op.type for op in compiled.program.global_block().ops}


def test_a_compilation_says_whether_a_scope_still_fits() -> None:
    x = static.data("x", [None, 8])
    y = static.nn.fc(x, 3)
    scope = static.Scope()
    with static.scope_guard(scope):
        static.Executor("cpu").run(static.default_startup_program())
    known = {"x": Meta((2, 8), dtype_of("float32"))}
    made = compile_program(static.default_main_program(), static.BuildStrategy(), [known], [y.name], scope)
    assert made.fits(scope)
    assert not made.fits(static.Scope())
    weight = static.default_main_program().all_parameters()[0].name
    scope.var(weight).get_tensor().set(np.ones((8, 4), "f4"))
    assert not made.fits(scope)
    with pytest.raises(FeedError, match="not initialized"):
        made.bind_scope(static.Scope(), [cpu_device()], 1)
