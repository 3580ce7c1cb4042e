"""What an explanation answers: right after a run, for switches that did nothing, and for two operators of two patterns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.fusion import FUSIONS
from tstatic.ir.operator import OpRole

F = paddle.nn.functional


def strategy(*switches: str) -> static.BuildStrategy:
    made = static.BuildStrategy()
    for name in switches:
        setattr(made, name, True)
    return made


def net() -> tuple[static.Program, static.Program, dict[str, Any]]:
    """A layer, its activation, a layer norm and a loss, with the variables by name."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 16])
        hidden = static.nn.fc(x, 32)
        act = F.gelu(hidden)
        normed = static.nn.layer_norm(act)
        loss = paddle.mean(paddle.tanh(normed))
        paddle.optimizer.SGD(0.1).minimize(loss)
    return main, startup, {"hidden": hidden, "act": act, "normed": normed, "loss": loss}


# ------------------------------------------------------------------------------------------------------- right after a run
def test_right_after_a_run_it_explains_what_that_run_fetched_and_fed() -> None:
    """Guards the first thing a user types: ``explain()`` told of a program with nothing fetched, "launches: 0 -> 0"."""
    x = static.data("x", [None, 8])
    y = paddle.tanh(x * 2.0 + 1.0)
    compiled = static.CompiledProgram(static.default_main_program(), strategy("enable_auto_fusion"))
    assert compiled.explain().traffic.launches_before == 0, "before the first run nothing is fetched"
    exe = static.Executor()
    exe.run(compiled, feed={"x": np.ones((5, 8), "float32")}, fetch_list=[y])
    found = compiled.explain()
    asked = compiled.explain([y], {"x": (5, 8)})
    assert found.traffic == asked.traffic
    assert found.traffic.launches_before == 3
    assert found.traffic.launches_after == 1
    assert found.note == f"As in the last run: fetched {y.name}; fed x [5, 8]."
    assert found.note in str(found)
    # What is asked for beats the run, each part for itself.
    assert compiled.explain([]).traffic.launches_before == 0
    assert compiled.explain(feed_shapes={"x": (10, 8)}).traffic.bytes_before == 2 * found.traffic.bytes_before


def test_the_last_run_decides_and_a_changed_program_forgets_what_it_lacks() -> None:
    x = static.data("x", [None, 8])
    first, second = paddle.exp(x), paddle.tanh(x)
    compiled = static.CompiledProgram(static.default_main_program())
    exe = static.Executor()
    for rows, wanted in ((2, first), (3, second), (2, first)):
        exe.run(compiled, feed={"x": np.ones((rows, 8), "float32")}, fetch_list=[wanted])
        assert f"fetched {wanted.name}; fed x [{rows}, 8]" in compiled.explain().note
    block = static.default_main_program().global_block()
    block._remove_op(0)
    block._remove_var(first.name)
    assert "fetched" not in compiled.explain().note


def test_a_run_pruned_to_one_optimizer_is_explained_so() -> None:
    """What ``minimize`` returned, in the fetch list, leaves the updates of other optimizers out of a run."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 16])
        losses = [paddle.mean(static.nn.fc(x, 4)) for _ in range(2)]
        updates = [paddle.optimizer.SGD(0.1).minimize(loss) for loss in losses]
    exe = static.Executor()
    exe.run(startup)
    compiled = static.CompiledProgram(main)
    feed = {"x": np.ones((4, 16), "float32")}
    exe.run(compiled, feed=feed, fetch_list=[losses[0], updates[0]])
    one = compiled.explain().traffic.launches_before
    assert one == compiled.explain([losses[0], updates[0]]).traffic.launches_before
    exe.run(compiled, feed=feed, fetch_list=[losses[0]])
    assert one < compiled.explain().traffic.launches_before


# ------------------------------------------------------------------------------------------------- switches that did nothing
def test_every_fusion_says_what_it_looks_for() -> None:
    """Guards the class: a finder with neither patterns nor a chain could say nothing of why it made nothing; none has both."""
    assert [f.name for f in FUSIONS if bool(f.finder.patterns) == (f.finder.chain is not None)] == []


def test_a_switch_that_is_on_and_made_nothing_says_why() -> None:
    main, _, made = net()
    on = (
        "fused_attention",
        "fuse_bn_act_ops",
        "fuse_relu_depthwise_conv",
        "fuse_elewise_add_act_ops",
        "fuse_adamw",
        "fuse_gemm_epilogue",
    )
    found = static.CompiledProgram(main, strategy(*on)).explain([made["loss"]], {"x": (4, 16)})
    acted = {a.switch for a in found.applied}
    assert set(found.idle) - {"fuse_bn_add_act_ops"} == set(on) - acted, "and one that is on by default"
    assert all(found.idle.values())
    assert "1 of the 5 operators that it joins: no matrix product follows" in found.idle["fused_attention"]
    assert "the program has no batch_norm" in found.idle["fuse_bn_act_ops"]
    assert found.idle["fuse_relu_depthwise_conv"].startswith("no operator of its kinds stands in the program (")
    assert found.idle["fuse_adamw"] == "no operator of its kinds stands in the program (an update by AdamW)"
    text = str(found)
    assert f"  fused_attention: {found.idle['fused_attention'][:60]}" in text
    for switch, why in found.idle.items():
        assert why in found[switch].reason, "the list of properties and the page have it, too"


def test_a_switch_says_which_fusion_has_its_operators_already() -> None:
    y = F.gelu(static.nn.fc(static.data("x", [4, 16]), 32))
    on = strategy("fuse_gemm_epilogue", "fuse_elewise_add_act_ops")
    found = static.CompiledProgram(static.default_main_program(), on).explain([y])
    assert "fuse_gemm_epilogue has them already" in found.idle["fuse_elewise_add_act_ops"]


def test_a_switch_names_the_operator_at_which_its_pattern_ends() -> None:
    """The nearest pattern, how much of it was found, and the precondition that failed: what makes the add's operand."""
    x = static.data("x", [4, 3, 8, 8])
    y = F.relu(x + static.nn.conv2d(x, 3, 1))
    found = static.CompiledProgram(static.default_main_program(), strategy("fuse_bn_add_act_ops")).explain([y])
    why = found.idle["fuse_bn_add_act_ops"]
    assert "nearest is its pattern" in why
    assert "is made by elementwise_add" in why or "is an input" in why or "is made by conv2d" in why
    assert "and not by batch_norm" in why
    assert "test_explain_answers.py:" in why


def test_a_switch_whose_matches_were_refused_says_so() -> None:
    x = static.data("x", [4, 8])
    total = x + x
    y = F.relu(total)
    found = static.CompiledProgram(static.default_main_program(), strategy("fuse_elewise_add_act_ops")).explain(
        [total, y]
    )
    assert found.idle["fuse_elewise_add_act_ops"].startswith("refused 1 x FETCHED: ")


def test_the_summary_stays_short_with_every_switch_on() -> None:
    main, _, made = net()
    found = static.CompiledProgram(main, strategy(*{f.switch for f in FUSIONS})).explain([made["loss"]], {"x": (4, 16)})
    lines = str(found).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 150
    assert all(name in str(found) for name in found.idle if name != "fuse_bn_add_act_ops"), "that one is on by default"


# ------------------------------------------------------------------------------------------------- two operators, two patterns
def test_two_operators_of_two_patterns_are_told_what_joins_them() -> None:
    """Guards the remedy: the answer was "nothing", though turning one switch off joins them."""
    main, _, made = net()
    on = ("fuse_gemm_epilogue", "build_cinn_pass")
    found = static.CompiledProgram(main, strategy(*on)).explain([made["loss"]], {"x": (4, 16)})
    answer = found.why(made["act"], made["normed"])
    assert not answer.fused
    assert answer.code == "TWO_PATTERNS"
    assert answer.change == "build_strategy.fuse_gemm_epilogue = False"
    assert answer.change in answer.text
    # The change does what the answer says.
    changed = static.CompiledProgram(main, strategy("build_cinn_pass")).explain([made["loss"]], {"x": (4, 16)})
    assert changed.why(made["act"], made["normed"]).fused


def test_a_switch_that_another_one_would_keep_from_acting_is_not_the_whole_remedy() -> None:
    """The switch alone joins them, and with the other one on it does not: both changes are named, and tried."""
    main, _, made = net()
    found = static.CompiledProgram(main, strategy("fuse_gemm_epilogue")).explain([made["loss"]], {"x": (4, 16)})
    answer = found.why(made["act"], made["normed"])
    assert answer.change == "build_strategy.build_cinn_pass = True and build_strategy.fuse_gemm_epilogue = False"
    with_one = static.CompiledProgram(main, strategy("fuse_gemm_epilogue", "build_cinn_pass"))
    assert not with_one.explain([made["loss"]], {"x": (4, 16)}).why(made["act"], made["normed"]).fused


def test_every_change_that_is_a_switch_joins_the_operators() -> None:
    """Guards the class: whatever pair is asked about, a change of the strategy in the answer is one that was tried."""
    main, _, made = net()
    values = [
        v
        for op in main.global_block().ops
        if not op.role & (OpRole.Backward | OpRole.Optimize)
        for v in op.output_arg_names
    ][:6]
    count = 0
    for on in ((), ("fuse_gemm_epilogue",), ("fuse_gemm_epilogue", "build_cinn_pass"), ("fuse_elewise_add_act_ops",)):
        found = static.CompiledProgram(main, strategy(*on)).explain([made["loss"]], {"x": (4, 16)})
        for a, b in pairwise(values):
            answer = found.why(a, b)
            parts = answer.change.split(" and ")
            if answer.fused or not all(part.startswith("build_strategy.") for part in parts):
                continue
            changed = strategy(*on)
            for part in parts:
                name, value = part.removeprefix("build_strategy.").split(" = ")
                setattr(changed, name, value == "True")
            assert static.CompiledProgram(main, changed).explain([made["loss"]], {"x": (4, 16)}).why(a, b).fused, (
                on,
                a,
                b,
            )
            count += 1
    assert count >= 6


def test_operators_far_apart_are_told_where_they_part() -> None:
    main, _, made = net()
    found = static.CompiledProgram(main, strategy("fuse_gemm_epilogue")).explain(
        [made["hidden"], made["loss"]], {"x": (4, 16)}
    )
    answer = found.why(made["hidden"], made["loss"])
    assert answer.code == "NO_PATTERN"
    assert answer.change.startswith("ask why('")
    first, second = answer.change.split("'")[1::2]
    assert not found.why(first, second).fused


def test_unrelated_operators_are_told_that_there_is_nothing_to_do() -> None:
    x, other = static.data("x", [4, 8]), static.data("other", [9])
    a, b = paddle.exp(x), paddle.cumsum(other)
    answer = static.CompiledProgram(static.default_main_program()).explain([a, b]).why(a, b)
    assert (answer.code, answer.change) == ("NO_PATTERN", "nothing")


@pytest.mark.parametrize("verbose", [False, True])
def test_an_explanation_without_idle_switches_has_no_such_line(verbose: bool) -> None:
    x = static.data("x", [4, 8])
    y = paddle.tanh(x * 2.0)
    found = static.CompiledProgram(static.default_main_program(), strategy("enable_auto_fusion")).explain([y])
    assert "enable_auto_fusion" not in found.idle
    assert "made no fusion" not in found.to_text(verbose)
