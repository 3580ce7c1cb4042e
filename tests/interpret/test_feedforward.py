"""Feed-forward blocks in all forms: fused as unfused, what joins and what does not, and who gets which op."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.drawn import BY_NAME, applied_of, codes_of, explained, only, told_of, types_of
from tests.helpers.feedforward_programs import DOWNGRADE, UPSCALE, Block, numbered, recipe
from tests.helpers.soak import SOAK, shards
from tests.interpret.kernels import check_grids, kind_of
from tstatic import static, testing
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.runtime.scope import Scope
from tstatic.static.compile import compile_program
from tstatic.target import DEFAULT_TARGET
from tstatic.testing.runner import everything_on, trial_of_recipe

FUSION = BY_NAME["feedforward"]
PROGRAMS = int(os.environ.get("TSTATIC_BLOCKS", "2000" if SOAK else "50"))
"""Nearly the 60 within which test_gemm_epilogue.py wants faults of products caught; a block has two, and their gradients."""
SHARDS = max(5, PROGRAMS // 200)
"""A shard is ten seconds of processor time: it ends in time on a busy machine, too."""
FULL = Block(norm="pre", dropout=(0.3, 0.25))


# ---------------------------------------------------------------------------------------------------------- properties
@pytest.mark.parametrize("shard", shards(SHARDS, 1))
def test_fused_equals_unfused(shard: int) -> None:
    count: Counter[str] = Counter()
    for place in range(shard * (PROGRAMS // SHARDS), (shard + 1) * (PROGRAMS // SHARDS)):
        block, kind = numbered(place), kind_of(place)
        kinds = {"backward": kind == "gradients", "optimizer": "SGD" if kind == "training" else ""}
        one = recipe(block, runs=5 if kind == "training" else 1, **kinds)
        made = applied_of(explained(FUSION, (built := one.build()).main, built.fetches), FUSION)
        wanted = {"fused_feedforward", *(["fused_feedforward_grad"] if kind != "forward" else [])}
        assert {a.op for a in made} == wanted, block
        for record in made:
            assert record.kernel is not None
            check_grids(record.kernel, count)
        count[kind] += 1
        try:
            testing.assert_equivalent(one, everything_on() if place % 10 == 7 else only(FUSION.switch), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"block {place} ({kind}), {block}: {error}") from None
    print(dict(count))
    assert count["gradients"] > 0
    assert count["with a rest of the depth"] >= 0.3 * count["products"]


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_any_inner_value_can_be_fetched(norm: str) -> None:
    block = replace(FULL, norm=norm)
    trial, feeds = trial_of_recipe(recipe(block, backward=True))
    names = [n for op in trial.program.global_block().ops for n in op.output_arg_names]
    for strategy in (only(FUSION.switch), everything_on()):
        together = replace(trial, fetches=list(dict.fromkeys(names)), _compiled={}, _plain={})
        assert together.compare(strategy, feeds) is None
    for name in ("biased1", "dropped1", "product2", "dropped1@GRAD", "biased1@GRAD"):
        alone = replace(trial, fetches=[*trial.fetches, name], _compiled={}, _plain={})
        assert alone.compare(only(FUSION.switch), feeds) is None, name


# ------------------------------------------------------------------------------------------------------- what is fused
def fused_ops(one: testing.Recipe, *switches: str) -> list[FrozenOp]:
    built = one.build()
    strategy = only(switches[0])
    for switch in switches[1:]:
        setattr(strategy, switch, True)
    known = {n: Meta(a.shape, dtype_of(a.dtype)) for n, a in built.feeds.items()}
    after = compile_program(built.main, strategy, [known], built.fetches, Scope()).first.after
    return [op for op in after.ops if op.fusion == FUSION.name]


def test_the_whole_block_is_one_op_with_the_slots_of_paddle() -> None:
    forward, backward = fused_ops(recipe(FULL, backward=True), FUSION.switch)
    assert forward.type == "fused_feedforward"
    slots = {s.name: e for s, e in zip(forward.definition.inputs, forward.inputs, strict=True) if e}
    assert slots == {
        "X": "x", "Linear1Weight": "w1", "Linear1Bias": "b1", "Linear2Weight": "w2", "Linear2Bias": "b2", "Ln1Scale": "scale1",
        "Ln1Bias": "shift1",
    }  # fmt: skip
    results = {s.name: e for s, e in zip(forward.definition.outputs, forward.outputs, strict=True) if e}
    assert results == {
        "Out": "total", "Ln1Mean": "mean1", "Ln1Variance": "variance1", "Ln1Out": "norm1", "Linear1Out": "biased1",
        "Dropout1Out": "dropped1",
    }  # fmt: skip
    assert backward.type == "fused_feedforward_grad"
    results = {s.name: e for s, e in zip(backward.definition.outputs, backward.outputs, strict=True) if e}
    assert set(results) == {
        "X@GRAD", *(f"{n}@GRAD" for n in slots if n != "X"),
    }  # fmt: skip
    attrs = forward.attrs
    assert attrs["pre_layer_norm"] is True
    assert attrs["act_method"] == "gelu"
    assert attrs["add_residual"] is True
    assert (attrs["dropout1_rate"], attrs["dropout2_rate"]) == (0.3, 0.25)
    assert attrs["dropout1_implementation"] == UPSCALE
    assert attrs["ln1_epsilon"] == 1e-5


def test_seeds_are_kept() -> None:
    """Where Paddle resets them: a dropout with a seed of its own draws as it does by itself."""
    one = recipe(FULL, backward=True)
    steps = tuple(replace(s, attrs=(*s.attrs, ("seed", 7))) if s.type == "dropout" else s for s in one.steps)
    seeded = replace(one, steps=steps)
    (forward, _) = fused_ops(seeded, FUSION.switch)
    assert (forward.attrs["dropout1_seed"], forward.attrs["dropout2_seed"]) == (7, 7)
    testing.assert_equivalent(seeded, only(FUSION.switch))


def test_the_update_finds_every_gradient() -> None:
    """What data parallel training sums: the pairs of parameter and gradient of all members."""
    (_, backward) = fused_ops(recipe(FULL, optimizer="SGD"), FUSION.switch)
    assert set(backward.role_var[::2]) == {"w1", "b1", "w2", "b2", "scale1", "shift1"}


@pytest.mark.parametrize("norm", ["", "pre", "post", "both"])
@pytest.mark.parametrize("residual", ["", "left", "right"])
def test_nothing_of_a_block_is_left_over(norm: str, residual: str) -> None:
    block = Block(norm=norm, residual=residual, dropout=(0.3, 0.25))
    one = recipe(block, backward=True)
    (forward, backward) = applied_of(told_of(one, FUSION.switch), FUSION)
    assert len(forward.members) == len([s for s in one.steps if s.type != "cast"])
    wanted = [
        "dropout_grad",
        "elementwise_add_grad",
        "mul_grad",
        "dropout_grad",
        "gelu_grad",
        "elementwise_add_grad",
        "mul_grad",
    ]
    wanted = [
        *["layer_norm_grad"] * (norm in ("post", "both")),
        *wanted,
        *["layer_norm_grad"] * (norm in ("pre", "both")),
    ]
    assert types_of(backward) == [*wanted, *["sum"] * bool(residual)]


def test_parts_are_the_kernels_of_the_other_templates() -> None:
    (forward, backward) = applied_of(
        told_of(recipe(replace(FULL, norm="post", dtype="bfloat16", width=32, inner=64), backward=True), FUSION.switch),
        FUSION,
    )
    assert forward.kernel is not None
    assert backward.kernel is not None
    assert [p.template for p in forward.kernel.parts] == ["gemm", "gemm", "rows"]
    assert [p.template for p in backward.kernel.parts] == ["rows", "gemm", "gemm"]
    # The library adds the biases: the first sum is kept, and the rows read the second.
    launches = forward.kernel.plan(DEFAULT_TARGET).launches
    functions = ["library product", "part0_go_on", "library product", "part2_kernel"]
    assert [one.function for one in launches] == functions
    assert all(getattr(one, "addend", "") for one in (launches[0], launches[2]))
    assert sum(forward.kernel.moved) == sum(n for p in forward.kernel.parts for n in p.moved)


def test_without_dropout_the_bias_gradient_is_left_to_who_makes_what_arrives() -> None:
    (_, backward) = applied_of(told_of(recipe(Block(), backward=True), FUSION.switch), FUSION)
    assert types_of(backward) == ["mul_grad", "gelu_grad", "elementwise_add_grad", "mul_grad", "sum"]


# ------------------------------------------------------------------------------------------------------------ near misses
def _changed(one: testing.Recipe, **attrs: Any) -> testing.Recipe:
    """The recipe with other attributes of the steps that write some values."""
    steps = tuple(
        replace(s, attrs=tuple({**dict(s.attrs), **attrs[s.writes[0]]}.items())) if s.writes[0] in attrs else s
        for s in one.steps
    )
    return replace(one, steps=steps)


def near_misses() -> dict[str, tuple[testing.Recipe, str, set[str]]]:
    """Name -> recipe, the code, and the values whose ops must stay alone."""
    plain = recipe(Block(dropout=(0.3, 0.25)), backward=True)
    normed = recipe(FULL, backward=True)
    other = testing.Input("other", (3, 7, 19), seed=77)
    read_twice = testing.Step.of("cumsum", {"X": "activated"}, {"Out": "more"}, {"axis": -1})
    rest = tuple(
        replace(s, inputs=(("X", ("other",)), s.inputs[1])) if s.writes[0] == "total" else s for s in plain.steps
    )
    bare = recipe(Block(), backward=True)
    linear = tuple(
        replace(s, inputs=(("X", ("biased1",)), *s.inputs[1:])) if s.writes[0] == "product2" else s
        for s in bare.steps
        if s.writes[0] != "activated"
    )
    batch = recipe(Block(product="matmul_v2"), backward=True)
    batched = replace(batch, inputs=tuple(replace(i, shape=(3, 19, 35)) if i.name == "w1" else i for i in batch.inputs))
    tested = recipe(Block(dropout=(0.3, 0.25), is_test=(False, True)), backward=True)
    return {
        "another reader": (
            replace(plain, steps=(*plain.steps, read_twice), fetches=(*plain.fetches, "more")), "EXTRA_READER", {"activated"},
        ),
        "fetched": (replace(plain, fetches=(*plain.fetches, "activated")), "FETCHED", {"activated"}),
        "persistable": (replace(plain, kept=("dropped1",)), "PERSISTABLE", {"dropped1"}),
        "weights of rank 3": (batched, "NOT_A_MATRIX", {"product1"}),
        "another residual": (
            replace(plain, steps=rest, inputs=(*plain.inputs, other)), "ATTRIBUTE", {"total"},
        ),
        "one dropout in inference": (tested, "ATTRIBUTE", {"product1", "product2"}),
        "norm over other axes": (
            replace(
                _changed(normed, norm1={"begin_norm_axis": 1}),
                inputs=tuple(replace(i, shape=(133,)) if i.name in ("scale1", "shift1") else i for i in normed.inputs),
            ), "ATTRIBUTE", {"norm1"},
        ),
        "no activation": (
            replace(bare, steps=linear), "NO_PATTERN", {"product1", "product2"},
        ),
        "norm that is fetched": (replace(normed, fetches=(*normed.fetches, "norm1")), "FETCHED", {"norm1"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(near_misses()))
def test_near_misses_stay_unfused_with_the_right_code(name: str) -> None:
    one, code, alone = near_misses()[name]
    told = told_of(one, FUSION.switch)
    assert code in codes_of(told, FUSION)
    forward = [a for a in applied_of(told, FUSION) if a.op == "fused_feedforward"]
    taken = {v for a in forward for m in a.members for v in m.outputs}
    assert taken.isdisjoint(alone), taken
    testing.assert_equivalent(one, only(FUSION.switch))


# ---------------------------------------------------------------------------------------------------------- who gets what
def test_kernels_along_rows_take_norms_together_with_their_neighbours() -> None:
    """Between blocks the sum, and the norm that reads it, are one pass: the blocks leave both to the compiler."""

    def program() -> tuple[Any, list[str]]:
        main = static.Program()
        with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
            h = static.data("x", [3, 7, 19])
            h.stop_gradient = False
            for _ in range(2):
                n = static.nn.layer_norm(paddle.tanh(h) + h, begin_norm_axis=2)
                g = paddle.nn.functional.gelu(static.nn.fc(n, 35, num_flatten_dims=2))
                h = h + static.nn.fc(g, 19, num_flatten_dims=2)
            loss = paddle.mean(static.nn.layer_norm(h, begin_norm_axis=2) * 0.5)
            paddle.optimizer.SGD(0.1).minimize(loss)
        return main, [loss.name]

    main, fetches = program()
    shapes = {"x": (3, 7, 19)}

    def told(*switches: str) -> Any:
        strategy = only(switches[0])
        for switch in switches[1:]:
            setattr(strategy, switch, True)
        return static.CompiledProgram(main, strategy).explain(fetch_list=fetches, feed_shapes=shapes)

    alone, both = told(FUSION.switch), told(FUSION.switch, "build_cinn_pass")
    assert [a.op for a in applied_of(alone, FUSION)] == ["fused_feedforward"] * 2 + ["fused_feedforward_grad"] * 2
    assert [a.op for a in applied_of(both, FUSION)] == [a.op for a in applied_of(alone, FUSION)]
    norms = [t for a in applied_of(both, FUSION) for t in types_of(a) if "layer_norm" in t]
    assert not norms
    assert "ROWS_KERNEL" in codes_of(both, FUSION)
    assert "ROWS_KERNEL" not in codes_of(alone, FUSION)
    assert both.traffic.launches_after < alone.traffic.launches_after
    assert both.traffic.bytes_after < alone.traffic.bytes_after


SWITCHES = ("fuse_gemm_epilogue", "fuse_elewise_add_act_ops", "enable_auto_fusion", "build_cinn_pass")


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_block_wins_over_smaller_patterns(switch: str) -> None:
    one = recipe(replace(FULL, norm=""), backward=True)
    made = applied_of(told_of(one, FUSION.switch, switch), FUSION)
    assert [a.op for a in made] == ["fused_feedforward", "fused_feedforward_grad"]
    for record, kind in zip(made, ("mul", "mul_grad"), strict=True):
        assert types_of(record).count(kind) == 2
    testing.assert_equivalent(one, [only(FUSION.switch), everything_on()])


def test_dropouts_of_every_implementation_and_state() -> None:
    for implementation in (UPSCALE, DOWNGRADE):
        for is_test in (False, True):
            block = replace(FULL, implementation=(implementation, UPSCALE), is_test=(is_test, is_test), leading=(17,))
            one = recipe(block, backward=True)
            assert [a.op for a in applied_of(told_of(one, FUSION.switch), FUSION)][:1] == ["fused_feedforward"]
            testing.assert_equivalent(one, only(FUSION.switch))
