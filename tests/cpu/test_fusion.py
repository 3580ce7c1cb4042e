"""Fusions on numpy: bitwise the unfused results, the right counts, the right reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, Case, build, run
from tstatic import static
from tstatic.fusion import FUSIONS, engine
from tstatic.fusion.engine.reasons import REASONS
from tstatic.ir.opdef import OPS, with_
from tstatic.ir.traits import Activation
from tstatic.ir.types import Meta, dtype_of
from tstatic.static.compile import compile_program
from tstatic.target import DEFAULT_TARGET

F = paddle.nn.functional
SWITCHES: tuple[dict[str, bool], ...] = (
    {"fuse_elewise_add_act_ops": True},
    {"enable_auto_fusion": True},
    {"fuse_elewise_add_act_ops": True, "enable_auto_fusion": True},
)


def forward_fusions(compiled: Any) -> int:
    ops = compiled.program.global_block().ops
    return sum(op.type in ("fused_elemwise_add_activation", "fusion_group") for op in ops)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_table_of_wrong_results(case: Case) -> None:
    built = build(case)
    plain, compiled = run(built)
    assert forward_fusions(compiled) == 0
    for switches in SWITCHES:
        values, compiled = run(built, **switches)
        for name, a, b in zip(built.fetches, plain, values, strict=True):
            assert a.tobytes() == b.tobytes(), f"{name} under {switches}"
        if "fuse_elewise_add_act_ops" in switches and len(switches) == 1:
            assert forward_fusions(compiled) >= case.fused


@pytest.mark.parametrize("case", CASES[:6], ids=lambda c: c.name)
def test_any_inner_variable_can_be_fetched(case: Case) -> None:
    built = build(case)
    names = [n for op in built.main.global_block().ops for n in op.output_arg_names]
    plain, _ = run(built, names)
    for switches in SWITCHES:
        values, _ = run(built, names, **switches)
        assert [v.tobytes() for v in values] == [v.tobytes() for v in plain]
        for name, wanted in zip(names, plain, strict=True):
            assert run(built, [name], **switches)[0][0].tobytes() == wanted.tobytes()


def test_an_activation_is_fused_because_its_definition_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    main, found = near_miss(lambda x, y: F.mish(x + y))
    assert refusals(main, [found]) == []
    monkeypatch.setitem(OPS, "mish", with_(OPS["mish"], traits=(Activation(),)))
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    applied = static.CompiledProgram(main, strategy).explain(fetch_list=[found]).applied
    assert [a.op for a in applied] == ["fused_elemwise_add_activation"]


# ------------------------------------------------------------------------------------------------------------ near misses
def near_miss(
    compute: Callable[[Any, Any], Any], shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((3, 4), (3, 4))
) -> tuple[Any, Any]:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, list(s), "float32") for n, s in zip("xy", shapes, strict=True))
        found = compute(x, y)
    return main, found


def refusals(main: Any, fetch: Any, **switches: Any) -> list[str]:
    strategy = static.BuildStrategy()
    for name in switches or {"fuse_elewise_add_act_ops": True}:
        setattr(strategy, name, True)
    explained = static.CompiledProgram(main, strategy).explain(fetch_list=fetch)
    assert not explained.applied, [a.op for a in explained.applied]
    return [r.code for r in explained.refused]


def test_a_fetched_inner_value_stays() -> None:
    def compute(x: Any, y: Any) -> Any:
        s = x + y
        return s, F.relu(s)

    main, found = near_miss(compute)
    assert refusals(main, list(found)) == ["FETCHED"]


def test_a_persistable_inner_value_stays() -> None:
    def compute(x: Any, y: Any) -> Any:
        s = x + y
        s.persistable = True
        return F.relu(s)

    main, found = near_miss(compute)
    assert refusals(main, [found]) == ["PERSISTABLE"]


def test_an_inner_value_with_another_reader_stays() -> None:
    def compute(x: Any, y: Any) -> Any:
        s = x + y
        return F.relu(s), paddle.exp(s)

    main, found = near_miss(compute)
    assert refusals(main, list(found)) == ["EXTRA_READER"]


def test_an_inner_value_that_control_flow_reads_stays() -> None:
    def compute(x: Any, y: Any) -> Any:
        s = x + y
        picked = static.nn.cond(paddle.sum(x) > 0, lambda: s * 2, lambda: s * 3)
        return F.relu(s), picked

    main, found = near_miss(compute)
    assert refusals(main, list(found)) == ["EXTRA_READER"]


def test_an_empty_batch_stays() -> None:
    main, found = near_miss(lambda x, y: F.relu(x + y), ((0, 4), (4,)))
    assert refusals(main, [found]) == ["EMPTY"]


def test_a_small_inner_result_that_is_needed_stays() -> None:
    def compute(x: Any, y: Any) -> Any:
        b = F.relu(y)
        return x + b, b

    main, found = near_miss(compute, ((3, 4), (4,)))
    assert refusals(main, list(found)) == ["FETCHED"]


def test_a_function_without_a_kernel_form_stays() -> None:
    main, found = near_miss(lambda x, y: paddle.sinh(x + y))
    explained = static.CompiledProgram(main, auto()).explain(fetch_list=[found])
    assert not explained.applied
    assert explained.why(main.global_block().ops[0], main.global_block().ops[1]).code == "NO_KERNEL_FORM"


def test_an_op_without_a_kernel_form_does_not_spoil_its_neighbours() -> None:
    main, found = near_miss(lambda x, y: paddle.tanh(paddle.sinh(x + y) * 2 + 1))
    explained = static.CompiledProgram(main, auto()).explain(fetch_list=[found])
    assert [[m.type for m in a.members] for a in explained.applied] == [["scale", "scale", "tanh"]]


def auto() -> Any:
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    return strategy


def test_a_cycle_is_seen() -> None:
    # relu(a) + cumsum(relu(a)): the group would have to run before and after the cumsum.
    def compute(x: Any, y: Any) -> Any:
        a = F.relu(x)
        return a + paddle.cumsum(a * 1.0, axis=0)

    main, found = near_miss(compute)
    compiled = static.CompiledProgram(main, auto())
    explained = compiled.explain(fetch_list=[found])
    for made in explained.applied:
        kinds = [m.type for m in made.members]
        assert not ("relu" in kinds and "elementwise_add" in kinds), kinds
    value = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    a, b = (
        static.Executor("cpu").run(p, feed={"x": value, "y": value}, fetch_list=[found])[0] for p in (main, compiled)
    )
    assert a.tobytes() == b.tobytes()


# ----------------------------------------------------------------------------------------------------------- explanations
def test_every_code_of_a_refusal_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fusion.md").read_text(encoding="utf-8")
    for code, reason in REASONS.items():
        assert f"| `{code}` |" in page
        assert code == reason.code
        assert len(reason.meaning) > 10
        assert reason.change


def test_an_explanation_says_both_ops_lines_and_the_change() -> None:
    def compute(x: Any, y: Any) -> Any:
        s = x + y
        return s, F.relu(s)

    main, (total, result) = near_miss(compute)
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    compiled = static.CompiledProgram(main, strategy)
    answer = compiled.explain(fetch_list=[total, result]).why(total, result)
    assert not answer.fused
    assert answer.code == "FETCHED"
    for part in ("elementwise_add", "relu", "test_fusion.py:", total.name, "do not fetch"):
        assert part in answer.text, part
    answer = compiled.explain(fetch_list=[result]).why(total, result)
    assert answer.fused
    assert answer.code == "APPLIED"
    off = static.CompiledProgram(main).explain(fetch_list=[result]).why(total, result)
    assert (off.code, "fuse_elewise_add_act_ops = True" in off.text) == ("OFF", True)


def test_launches_and_bytes_fall() -> None:
    built = build(CASES[-3])
    explained = static.CompiledProgram(built.main, auto()).explain(
        fetch_list=built.fetches[:1], feed_shapes={n: a.shape for n, a in built.feed.items()}
    )
    t = explained.traffic
    assert t.launches_after < t.launches_before
    assert t.bytes_after < t.bytes_before
    found = explained.to_dict()["fusions"]
    assert found["launches"] == {"before": t.launches_before, "after": t.launches_after}
    assert all("@triton.jit" in a["source"]["text"] for a in found["applied"])
    assert explained.to_json()


def test_switches_say_how_often_they_acted() -> None:
    built = build(CASES[0])
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    text = static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches[:1]).to_text(verbose=True)
    assert "fuse_elewise_add_act_ops = True (set): active. applied " in text
    assert "enable_auto_fusion = False: active. off: build_strategy.enable_auto_fusion = True" in text


def test_the_program_as_it_runs_shows_the_fused_ops() -> None:
    built = build(CASES[8])
    _, compiled = run(built, fuse_elewise_add_act_ops=True)
    types = [op.type for op in compiled.program.global_block().ops]
    assert "fused_elemwise_add_activation" in types
    assert "fused_elemwise_add_activation_grad" in types
    assert "relu" not in types
    assert "relu" in [op.type for op in built.main.global_block().ops], "the user's program stays as it is"
    assert "fused_elemwise_add_activation" in str(compiled.program)
    assert "relu" in [s.op.type for s in compiled.plan.steps], "on numpy the ops run that the fused one stands for"


def test_the_kernel_of_a_fused_op_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[str] = []
    emit = engine.emit

    def counted(nest: Any) -> Any:
        kernel = emit(nest)
        emitted.append(kernel.name)
        return kernel

    monkeypatch.setattr(engine, "emit", counted)
    x = static.data("x", [4, 8], "float32")
    y = paddle.nn.functional.relu(paddle.exp(x) + 1.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    found = static.CompiledProgram(static.default_main_program(), strategy).explain(fetch_list=[y])
    assert [emitted.count(kernel.name) for kernel in found.kernels] == [1]


def test_a_fused_op_whose_inputs_are_renamed_has_a_kernel_for_the_new_names() -> None:
    x, z = static.data("x", [4, 8], "float32"), static.data("z", [4, 8], "float32")
    y = paddle.nn.functional.relu(paddle.exp(x) + 1.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    known = {name: Meta((4, 8), dtype_of("float32")) for name in ("x", "z")}
    wanted = [y.name, z.name]
    made = compile_program(static.default_main_program(), strategy, [known], wanted, static.Scope()).first
    (op,) = [op for op in made.after.ops if op.body]
    assert engine.kernel_of(op, made.metas) is op.kernel
    other = engine.kernel_of(op.with_inputs({"x": "z"}), made.metas)
    assert [one.value for one in op.kernel.inputs] == ["x"]
    assert [one.value for one in other.inputs] == ["z"]


def test_every_fusion_names_a_property() -> None:
    names = {p.name for p in static.BuildStrategy.properties()}
    for fusion in FUSIONS:
        assert fusion.switch in names


# ------------------------------------------------------------------------------------------------ forbidden and demanded
def test_no_fuse_forbids_forward_and_backward() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [3, 4], "float32") for n in "xy")
        x.stop_gradient = False
        with static.no_fuse():
            a = F.relu(x + y)
        b = paddle.tanh(a + y)
        (grad,) = static.gradients([b], [x])
    for switch in ("fuse_elewise_add_act_ops", "enable_auto_fusion", "build_cinn_pass"):
        strategy = static.BuildStrategy()
        setattr(strategy, switch, True)
        explained = static.CompiledProgram(main, strategy).explain(fetch_list=[b, grad])
        kinds = [m.type for made in explained.applied for m in made.members]
        assert "tanh" in kinds, switch
        assert "relu" not in kinds, switch
        assert "relu_grad" not in kinds, switch
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    codes = {r.code for r in static.CompiledProgram(main, strategy).explain(fetch_list=[b, grad]).refused}
    assert codes == {"FORBIDDEN"}
    assert "FORBIDDEN" in [
        r.code for r in static.CompiledProgram(main.clone(), strategy).explain(fetch_list=[b.name]).refused
    ]


def test_fuse_together_demands_one_kernel() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [3, 4], "float32") for n in "xy")
        with static.fuse_together():
            out = paddle.tanh(F.relu(x + y) * 2)
    explained = static.CompiledProgram(main).explain(fetch_list=[out])
    assert [[m.type for m in a.members] for a in explained.applied] == [["elementwise_add", "relu", "scale", "tanh"]]
    value = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    (got,) = static.Executor("cpu").run(main, feed={"x": value, "y": value}, fetch_list=[out])
    assert np.allclose(got, np.tanh(np.maximum(2 * value, 0) * 2))


def test_a_demand_that_cannot_be_met_says_why() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [3, 4], "float32") for n in "xy")
        with static.fuse_together():
            out = F.relu(paddle.matmul(x, y, transpose_y=True))
    value = np.ones((3, 4), np.float32)
    with pytest.raises(paddle.errors.UnsupportedError) as caught:
        static.Executor("cpu").run(main, feed={"x": value, "y": value}, fetch_list=[out])
    for part in ("NOT_POINTWISE", "matmul", "test_fusion.py:", "fix:"):
        assert part in str(caught.value), part


def test_a_variable_named_like_a_buffer_of_kernels_is_another_one() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("partial:y0", [300, 4], "float32")
        x.stop_gradient = False
        y = static.data("table:addresses", [4], "float32")
        y.stop_gradient = False
        out = F.relu(x + y)
        grads = static.gradients([out], [x, y])
    explained = static.CompiledProgram(main, auto()).explain(fetch_list=[out, *grads])
    assert {r.code for r in explained.refused} <= {"CYCLE"}
    (summed,) = [k for k in explained.kernels if k.template == "sum"]
    calls = summed.plan(DEFAULT_TARGET)
    for name in calls.partials:
        assert name in calls.launches[0].arguments
        assert str(name) not in calls.partials, "the text alone names nothing"
        assert name not in [b.value for b in (*summed.inputs, *summed.outputs)]


def test_of_matches_that_form_a_cycle_only_the_last_is_dropped() -> None:
    """Each of the first two reads a statistic that the other one makes; the third has nothing to do with them."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        xs = [static.data(f"x{i}", [6, 4], "float32") for i in range(3)]
        norms = [static.nn.batch_norm(x, moving_mean_name=f"mean{i}") for i, x in enumerate(xs)]
        first, second = (main.global_block().var(f"mean{i}") for i in range(2))
        residuals = xs[0] + second, xs[1] + first, xs[2]
        outs = [F.relu(norm + residual) for norm, residual in zip(norms, residuals, strict=True)]
    feed = {f"x{i}": np.random.default_rng(i).random((6, 4), np.float32) for i in range(3)}
    strategy = static.BuildStrategy()
    strategy.fuse_bn_add_act_ops = True
    told = static.CompiledProgram(main, strategy).explain(fetch_list=outs)
    assert [a.members[0].outputs[0] for a in told.applied] == [norms[0].name, norms[2].name]
    assert [(r.code, r.members[0].outputs[0]) for r in told.refused] == [("CYCLE", norms[1].name)]
    results = []
    for chosen in (static.BuildStrategy(), strategy):
        chosen.fuse_bn_add_act_ops = chosen is strategy
        executor, scope = static.Executor("cpu"), static.Scope()
        executor.run(startup, scope=scope)
        results.append(executor.run(static.CompiledProgram(main, chosen), feed=feed, fetch_list=outs, scope=scope))
    assert [a.tobytes() for a in results[0]] == [b.tobytes() for b in results[1]]


def test_a_parameter_that_hundreds_of_ops_read_trains_fused() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [2])
        w = static.create_parameter([2], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(1.0))
        total = x
        for _ in range(400):
            total = total + w
        paddle.optimizer.SGD(0.5).minimize(paddle.mean(total))
    values = []
    for fused in (False, True):
        strategy = static.BuildStrategy()
        strategy.enable_auto_fusion = fused
        exe, scope = static.Executor("cpu"), static.Scope()
        exe.run(startup, scope=scope)
        exe.run(static.CompiledProgram(main, strategy), feed={"x": np.zeros(2, "f4")}, scope=scope)
        values.append(np.array(scope.find_var("w").get_tensor()))  # type: ignore[union-attr]
    assert values[0].tolist() == values[1].tolist() == [-99.0, -99.0]
