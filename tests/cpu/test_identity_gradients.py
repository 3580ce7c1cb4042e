"""Identity gradients need no ops; every bit, fetched values and kept values stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gradient_programs import COMPUTED, Built, build, learned, run, strategy
from tstatic import static
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.ir.frozen import FrozenProgram, freeze
from tstatic.ir.types import Meta
from tstatic.plan.known_values import infer_program

SWITCHES = ((), ("fuse_elewise_add_act_ops",), ("enable_auto_fusion",), ("build_cinn_pass",), ("all",))


def frozen(built: Built, fetches: list[str] | None = None) -> tuple[FrozenProgram, dict[str, Meta]]:
    block = built.main.global_block()
    program = freeze(built.main, list(built.feed), fetches or built.fetches)
    return program, dict(infer_program(program, {n: block.var(n).meta for n in built.feed}))


def add_grads(program: FrozenProgram) -> int:
    return sum(op.type == "elementwise_add_grad" for op in program.ops)


@pytest.mark.parametrize("name", COMPUTED)
def test_every_bit_stays(name: str) -> None:
    built = build(COMPUTED[name])
    block = built.main.global_block()
    # With the gradient of every inner value fetched no op goes.
    every = [n for op in block.ops for n in op.output_arg_names]
    wanted = dict(zip(every, run(built, 1, fetches=every)[0], strict=True))
    for switches in SWITCHES:
        values, _, _ = run(built, 1, *switches)
        for fetch, value in zip(built.fetches, values, strict=True):
            assert value.tobytes() == wanted[fetch].tobytes(), (fetch, switches)


@pytest.mark.parametrize(
    ("name", "left"), [("residual", 0), ("both_overwrite", 0), ("chained", 0), ("to_itself", 0), ("mixed", 1)]
)
def test_what_is_handed_on_is_no_op(name: str, left: int) -> None:
    program, metas = frozen(build(COMPUTED[name]))
    assert add_grads(program) > left
    changed = eliminate_identity_gradients(program, metas)
    assert add_grads(changed) == left
    assert eliminate_identity_gradients(changed, metas) is changed
    # The adding up of gradients stays.
    assert sum(op.type == "sum" for op in changed.ops) == sum(op.type == "sum" for op in program.ops)


def test_a_fetched_gradient_is_an_array_of_its_own() -> None:
    built = build(lambda x, y: paddle.tanh(x + y), direct=True)
    program, metas = frozen(built)
    assert add_grads(eliminate_identity_gradients(program, metas)) == 1
    for switches in SWITCHES:
        (_, dx, dy), _, _ = run(built, 1, *switches)
        assert dx.tobytes() == dy.tobytes()
        dx += 1
        assert dx.tobytes() != dy.tobytes()


@pytest.mark.numpy_device
def test_a_kept_gradient_is_written() -> None:
    built = build(lambda x, y: paddle.tanh(x * 2.0 + y))
    kept = built.main.global_block().var("y@GRAD")
    kept.persistable = True
    program, metas = frozen(built)
    assert add_grads(eliminate_identity_gradients(program, metas)) == 1
    scope = static.Scope()
    compiled = static.CompiledProgram(built.main, build_strategy=strategy("all"))
    values = static.Executor("cpu").run(compiled, feed=built.feed, fetch_list=built.fetches, scope=scope)
    assert np.array(scope.array("y@GRAD") * np.float32(0.5)).tobytes() == values[2].tobytes()


def test_what_a_user_feeds_is_copied() -> None:
    """A fed value lies in memory of its own kind."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y, given = (static.data(n, [3, 4], "float32") for n in ("x", "y", "given"))
        x.stop_gradient = y.stop_gradient = False
        grads = static.gradients([x + y], [x, y], [given])
        out = grads[0] * 2.0 + grads[1]
    program = freeze(main, ["x", "y", "given"], [out.name])
    metas = infer_program(program, {n: main.global_block().var(n).meta for n in ("x", "y", "given")})
    assert eliminate_identity_gradients(program, metas) is program


def test_a_forward_copy_is_the_users() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3, 4], "float32")
        out = paddle.exp(paddle.assign(x * 2.0))
    program = freeze(main, ["x"], [out.name])
    assert (
        eliminate_identity_gradients(program, infer_program(program, {"x": main.global_block().var("x").meta}))
        is program
    )


def test_sizes_must_be_known() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [None, 4], "float32") for n in "xy")
        x.stop_gradient = y.stop_gradient = False
        grads = static.gradients([paddle.tanh(x + y)], [x, y])
        fetches = [(g * 2.0).name for g in grads]
    program = freeze(main, ["x", "y"], fetches)
    block = main.global_block()
    unknown = infer_program(program, {n: block.var(n).meta for n in "xy"})
    assert eliminate_identity_gradients(program, unknown) is program
    for rows, left in (((5, 5), 0), ((5, 1), 1)):
        known = {n: Meta((r, 4), block.var(n).meta.dtype) for n, r in zip("xy", rows, strict=True)}
        assert add_grads(eliminate_identity_gradients(program, infer_program(program, known))) == left


def _adamw() -> Any:
    return paddle.optimizer.AdamW(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.01))


def _momentum() -> Any:
    return paddle.optimizer.Momentum(0.1, 0.9)


@pytest.mark.numpy_device
@pytest.mark.parametrize("optimizer", [_adamw, _momentum])
def test_parameters_that_share_a_gradient(optimizer: Any) -> None:
    built = build(learned, optimizer)
    _, expected, _ = run(built, 3)
    for switches in SWITCHES[1:]:
        _, found, compiled = run(built, 3, *switches)
        for name, value in expected.items():
            assert found[name].tobytes() == value.tobytes(), (name, switches)
    told = compiled.explain(fetch_list=built.fetches)
    assert any(a.op in ("fused_adam", "momentum") for a in told.applied)


# ------------------------------------------------------------------------------------------------------- computed again
def explained(built: Built, *switches: str, fetches: list[str] | None = None) -> Any:
    compiled = static.CompiledProgram(built.main, build_strategy=strategy(*switches))
    return compiled.explain(fetch_list=fetches or built.fetches)


@pytest.mark.parametrize("switch", ["fuse_elewise_add_act_ops", "enable_auto_fusion", "build_cinn_pass"])
@pytest.mark.parametrize("row", [False, True])
def test_a_sum_that_only_a_gradient_needs_is_not_written(switch: str, row: bool) -> None:
    def compute(x: Any, y: Any) -> Any:
        return paddle.nn.functional.gelu(paddle.cumsum(x, 0) + (paddle.flip(y, [1])[0] if row else paddle.flip(y, [1])))

    built = build(compute)
    program, _ = frozen(built)
    total = next(op.output("Out") for op in program.ops if op.type == "elementwise_add")
    told = explained(built, switch)
    assert any(total in a.gone for a in told.applied)
    members = [[m.type for m in a.members] for a in told.applied]
    assert any("elementwise_add" in kinds and "gelu_grad" in kinds for kinds in members)
    values, _, _ = run(built, 1, switch)
    assert [v.tobytes() for v in values] == [v.tobytes() for v in run(built, 1)[0]]


def test_a_sum_that_is_there_anyway_is_read() -> None:
    built = build(lambda x, y: paddle.nn.functional.gelu(x + y))
    total = next(op.output("Out") for op in frozen(built)[0].ops if op.type == "elementwise_add")
    told = explained(built, "fuse_elewise_add_act_ops", fetches=[*built.fetches, str(total)])
    assert not any("RECOMPUTED" in v for a in told.applied for v in a.gone)


def test_a_sum_of_what_another_activation_made_stays_with_it() -> None:
    """The first activation takes the add, whose result is then written."""
    built = build(lambda x, y: paddle.nn.functional.gelu(x + paddle.nn.functional.relu(y * 2.0)))
    told = explained(built, "fuse_elewise_add_act_ops")
    assert not any("RECOMPUTED" in v for a in told.applied for v in a.gone)
    values, _, _ = run(built, 1, "fuse_elewise_add_act_ops")
    assert [v.tobytes() for v in values] == [v.tobytes() for v in run(built, 1)[0]]


def gelu_of_sum(row: bool) -> Any:
    """The gradient of the add is a sum for a row, and otherwise what arrives."""

    def compute(x: Any, y: Any) -> Any:
        return paddle.nn.functional.gelu(paddle.cumsum(x, 0) + (paddle.flip(y, [1])[0] if row else paddle.flip(y, [1])))

    return compute


@pytest.mark.parametrize("why", ["FETCHED", "PERSISTABLE", "EXTRA_READER"])
def test_a_gradient_that_must_be_there_keeps_the_gradient_of_the_add_apart(why: str) -> None:
    """The sum is computed again all the same, and the refusal of the longer pattern is told."""
    built = build(gelu_of_sum(True))
    block = built.main.global_block()
    total = next(op.output_arg_names[0] for op in block.ops if op.type == "elementwise_add")
    inner, fetches = f"{total}@GRAD", list(built.fetches)
    if why == "FETCHED":
        fetches.append(inner)
    elif why == "PERSISTABLE":
        block.var(inner).persistable = True
    else:
        with static.program_guard(built.main, static.Program()):
            fetches.append(paddle.cumsum(block.var(inner), 0).name)
    told = explained(built, "fuse_elewise_add_act_ops", fetches=fetches)
    after = next(op.output_arg_names[0] for op in block.ops if op.type == "elementwise_add_grad")
    answer = told.why(inner, after)
    assert answer.code == why
    assert inner in answer.text
    assert any([m.type for m in a.members] == ["elementwise_add", "gelu_grad"] for a in told.applied)
    assert told.why(total, inner).code in ("NO_PATTERN", "OFF")
    # Without it they are one kernel, and nothing is refused.
    if why != "PERSISTABLE":
        told = explained(built, "fuse_elewise_add_act_ops")
        assert told.why(inner, after).fused
        assert not told.refused


@pytest.mark.parametrize("fetched", [False, True])
def test_an_operator_that_only_hands_on_is_said_to_be_one(fetched: bool) -> None:
    built = build(gelu_of_sum(False))
    ops = built.main.global_block().ops
    inner = next(op.output_arg_names[0] for op in ops if op.type == "gelu_grad")
    after = next(op.output_arg_names[0] for op in ops if op.type == "elementwise_add_grad")
    for switches in SWITCHES:
        told = explained(built, *switches, fetches=[*built.fetches, *([inner] if fetched else [])])
        answer = told.why(inner, after)
        assert answer.code == "IDENTITY", switches
        assert "elementwise_add_grad" in answer.text
        drawing = told.drawing()
        (note,) = drawing.notes_before[next(i for i, op in enumerate(ops) if op.type == "elementwise_add_grad")]
        assert note.kind == "gone"
        assert "is the identity" in note.text
        assert not any(op.type == "elementwise_add_grad" for op in drawing.after.global_block().ops)


def test_a_match_whose_operators_are_taken_is_said_to_be_apart() -> None:
    """An add between two activations goes with one of them."""
    built = build(lambda x, y: paddle.nn.functional.relu(x * 2.0) + paddle.tanh(y * 3.0))
    ops = built.main.global_block().ops
    relu, tanh, add = (
        next(op.output_arg_names[0] for op in ops if op.type == t) for t in ("relu", "tanh", "elementwise_add")
    )
    told = explained(built, "fuse_elewise_add_act_ops")
    answers = [told.why(relu, add), told.why(tanh, add)]
    assert sorted(a.code for a in answers) == ["APPLIED", "TWO_GROUPS"]
