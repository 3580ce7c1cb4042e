"""Multi-head attention blocks in all forms: fused as unfused, what joins and what does not, and who gets which op."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.attention_blocks import PACKINGS, Block, drawn_block, recipe
from tests.helpers.drawn import BY_NAME, applied_of, codes_of, only, told_of, types_of
from tests.helpers.soak import SOAK, shards
from tstatic import static, testing
from tstatic.fusion.attention import grad as attention_grad
from tstatic.fusion.attention import module as attention_module
from tstatic.fusion.attention.tiles import Blocks
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.runtime.scope import Scope
from tstatic.static.compile import compile_program
from tstatic.target import TINY
from tstatic.testing import Step
from tstatic.testing.runner import everything_on, trial_of_recipe

FUSION = BY_NAME["attention"]
PROGRAMS = int(os.environ.get("TSTATIC_ATTENTION_BLOCKS", "500" if SOAK else "14"))
FULL = Block(projected=True, norm="pre", residual="left", mask="pairs", dropout=(0.3, 0.25), rows=17)


def fused_ops(one: testing.Recipe, *switches: str) -> list[FrozenOp]:
    built = one.build()
    strategy = only(switches[0])
    for switch in switches[1:]:
        setattr(strategy, switch, True)
    known = {n: Meta(a.shape, dtype_of(a.dtype)) for n, a in built.feeds.items()}
    after = compile_program(built.main, strategy, [known], built.fetches, Scope()).first.after
    return [op for op in after.ops if op.fusion == FUSION.name]


# ---------------------------------------------------------------------------------------------------------- properties
@pytest.mark.parametrize("shard", shards(7, 2))
def test_fused_equals_unfused(shard: int) -> None:
    for number in range(shard * PROGRAMS // 7, (shard + 1) * PROGRAMS // 7):
        kind = "training" if number % 7 == 5 else "forward" if number % 7 == 3 else "gradients"
        more = {"dtype": "float32"} if kind == "training" else {}
        block = drawn_block(number, projected=True, **more)
        one = recipe(block, kind)
        wanted = {"fused_attention", *(["fused_attention_grad"] if kind != "forward" else [])}
        assert {a.op for a in applied_of(told_of(one, FUSION.switch), FUSION)} == wanted, block
        try:
            testing.assert_equivalent(one, only(FUSION.switch) if number % 4 else everything_on(), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"block {number} ({block}, {kind}): {error}") from None


@pytest.mark.slow
def test_any_inner_value_can_be_fetched() -> None:
    trial, feeds = trial_of_recipe(recipe(FULL, "gradients"))
    names = [n for op in trial.program.global_block().ops for n in op.output_arg_names]
    together = replace(trial, fetches=list(dict.fromkeys(names)), _compiled={}, _plain={})
    assert together.compare(only(FUSION.switch), feeds) is None
    for name in ("biased_qkv", "q_heads", "weights", "mixed", "turned_back", "q_heads@GRAD", "biased_qkv@GRAD"):
        alone = replace(trial, fetches=[*trial.fetches, name], _compiled={}, _plain={})
        assert alone.compare(only(FUSION.switch), feeds) is None, name


# ------------------------------------------------------------------------------------------------------- what is fused
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("norm", ["", "pre", "post"])
def test_nothing_of_a_block_is_left_over(packing: str, norm: str) -> None:
    for residual, mask, scale, biases, rate in (("left", "keys", "query", True, 0.3), ("", "", "scores", False, 0.0)):
        block = replace(
            FULL,
            packing=packing,
            norm=norm,
            residual=residual,
            mask=mask,
            scale=scale,
            biases=biases,
            dropout=(rate, rate),
        )
        one = recipe(block, "gradients")
        forward, backward = applied_of(told_of(one, FUSION.switch), FUSION)
        # Two ops that save each row's sum of powers are added.
        assert len(forward.members) == len(one.steps) + 2, block
        assert types_of(backward).count("mul_grad") == {"separate": 4, "pair": 3}.get(packing, 2)
        assert ("layer_norm_grad" in types_of(backward)) == bool(norm)
        assert not {"transpose2", "split", "concat", "stack"} & {
            op.type for op in _others(one, FUSION.switch)
        }, block  # fmt: skip


def _others(one: testing.Recipe, *switches: str) -> list[FrozenOp]:
    built = one.build()
    known = {n: Meta(a.shape, dtype_of(a.dtype)) for n, a in built.feeds.items()}
    after = compile_program(built.main, only(switches[0]), [known], built.fetches, Scope()).first.after
    return [op for op in after.ops if not op.body]


def test_the_whole_block_is_one_op_with_the_slots_of_paddle() -> None:
    forward, backward = fused_ops(recipe(FULL, "gradients"), FUSION.switch)
    assert forward.type == "fused_attention"
    slots = {s.name: e for s, e in zip(forward.definition.inputs, forward.inputs, strict=True) if e}
    assert slots == {
        "X": "x", "LnScale": "scale", "LnBias": "shift", "QKVW": "w_qkv", "QKVBias": "b_qkv", "SrcMask": "mask",
        "OutLinearW": "w_out", "OutLinearBias": "b_out",
    }  # fmt: skip
    results = {s.name: e for s, e in zip(forward.definition.outputs, forward.outputs, strict=True) if e}
    assert results == {
        "LnMean": "mean", "LnVariance": "variance", "LnOut": "norm", "QKVBiasOut": "biased_qkv", "SoftmaxAux": "masked@SAVED",
        "FMHAOut": "joined", "Y": "total",
    }  # fmt: skip
    assert backward.type == "fused_attention_grad"
    results = {s.name: e for s, e in zip(backward.definition.outputs, backward.outputs, strict=True) if e}
    assert set(results) == {f"{n}@GRAD" for n in slots if n != "SrcMask"}
    attrs = forward.attrs
    assert attrs["pre_layer_norm"] is True
    assert attrs["transpose_qkv_wb"] is True
    assert attrs["add_residual"] is True
    assert attrs["num_heads"] == 2
    assert attrs["ring_id"] == -1
    assert attrs["epsilon"] == 1e-5
    assert (attrs["attn_dropout_rate"], attrs["dropout_rate"]) == (0.3, 0.25)


def test_the_update_finds_every_gradient() -> None:
    """What data parallel training sums: the pairs of parameter and gradient of all members."""
    (_, backward) = fused_ops(recipe(FULL, "training"), FUSION.switch)
    assert set(backward.role_var[::2]) == {"w_qkv", "b_qkv", "w_out", "b_out", "scale", "shift"}


@pytest.mark.parametrize(
    ("norm", "left"), [("pre", {"norm1"}), ("post", set())], ids=["pre", "post"]
)  # fmt: skip
def test_rows_kernels_take_the_norm_where_that_is_one_pass(norm: str, left: set[str]) -> None:
    told = told_of(recipe(replace(FULL, norm=norm), "gradients"), FUSION.switch, "build_cinn_pass")
    forward, backward = applied_of(told, FUSION)
    assert "matmul_v2" in types_of(forward)
    assert ("layer_norm_grad" in types_of(backward)) == (not left)
    assert ("ROWS_KERNEL" in codes_of(told, FUSION)) == bool(left)


def test_a_larger_pattern_wins_whole() -> None:
    told = told_of(
        recipe(FULL, "gradients"),
        FUSION.switch,
        "fuse_dot_product_attention",
        "fuse_gemm_epilogue",
        "fused_feedforward",
    )
    assert [a.op for a in told.applied] == ["fused_attention", "fused_attention_grad"]


# --------------------------------------------------------------------------------------------------------- near misses
def _with(change: Callable[[Step], Step | None], **fixed: Any) -> testing.Recipe:
    one = recipe(replace(FULL, **fixed))
    steps = tuple(made for s in one.steps if (made := change(s)) is not None)
    return replace(one, steps=steps)


def _attr(type: str, out: str, **attrs: Any) -> Callable[[Step], Step]:
    def change(step: Step) -> Step:
        if step.type != type or out not in step.writes:
            return step
        return replace(step, attrs=tuple({**dict(step.attrs), **attrs}.items()))

    return change


def _reads(out: str, slot: str, value: str) -> Callable[[Step], Step]:
    def change(step: Step) -> Step:
        if out not in step.writes:
            return step
        return replace(step, inputs=tuple((s, (value,)) if s == slot else (s, row) for s, row in step.inputs))

    return change


def _fetching(name: str) -> testing.Recipe:
    one = recipe(FULL)
    return replace(one, fetches=(*one.fetches, name))


SQUARE = {"rows": 8, "size": 8, "heads": 8, "batch": 2, "mask": "", "dropout": (0.0, 0.0)}

MISSES: dict[str, tuple[Callable[[], testing.Recipe], str]] = {
    "keys not turned": (
        lambda: _with(_attr("matmul_v2", "scores", trans_y=False), **SQUARE), "ATTRIBUTE",
    ),
    "softmax along the queries": (lambda: _with(_attr("softmax", "weights", axis=2)), "ATTRIBUTE"),
    "rows of queries do not lie side by side": (
        lambda: _with(_attr("transpose2", "q_heads", axis=(0, 2, 3, 1)), **SQUARE), "STRIDES",
    ),
    "norm over two axes": (lambda: _norm_over_two(), "ATTRIBUTE"),
    "another value is added": (lambda: _other_residual(), "ATTRIBUTE"),
    "keys of another input": (lambda: _other_input(), "NO_PATTERN"),
    "no product behind": (lambda: _no_output(), "NO_PATTERN"),
    "scores fetched": (lambda: _fetching("scores"), "FETCHED"),
    "heads fetched": (lambda: _fetching("q_heads"), "FETCHED"),
    "weights read by another": (lambda: _extra("weights"), "EXTRA_READER"),
    "split read by another": (lambda: _extra("k_part"), "EXTRA_READER"),
    "weights persistable": (lambda: replace(recipe(FULL), kept=("weights",)), "PERSISTABLE"),
}  # fmt: skip


def _norm_over_two() -> testing.Recipe:
    one = _with(_attr("layer_norm", "norm", begin_norm_axis=1))
    size = FULL.rows * FULL.width
    inputs = tuple(replace(i, shape=(size,)) if i.name in ("scale", "shift") else i for i in one.inputs)
    return replace(one, inputs=inputs)


def _other_residual() -> testing.Recipe:
    one = _with(_reads("total", "X", "other"))
    x = next(i for i in one.inputs if i.name == "x")
    return replace(one, inputs=(*one.inputs, replace(x, name="other", seed=5)))


def _other_input() -> testing.Recipe:
    one = _with(_reads("product_k", "X", "other"), packing="separate")
    x = next(i for i in one.inputs if i.name == "x")
    return replace(one, inputs=(*one.inputs, replace(x, name="other", seed=5)))


def _no_output() -> testing.Recipe:
    one = recipe(FULL)
    at = next(i for i, s in enumerate(one.steps) if "joined" in s.writes)
    return replace(one, steps=one.steps[: at + 1], fetches=("joined",))


def _extra(value: str) -> testing.Recipe:
    one = recipe(FULL)
    return replace(
        one, steps=(*one.steps, Step.of("tanh", {"X": value}, {"Out": "extra"}, {})), fetches=(*one.fetches, "extra")
    )


@pytest.mark.parametrize("name", MISSES)
def test_what_almost_fits_is_left_with_a_code(name: str) -> None:
    build, code = MISSES[name]
    one = build()
    told = told_of(one, FUSION.switch)
    if name not in ("norm over two axes", "another value is added"):
        assert not applied_of(told, FUSION), name
    else:
        (forward,) = applied_of(told, FUSION)
        assert ("layer_norm" in types_of(forward)) == (name != "norm over two axes")
        assert "total" not in {v for m in forward.members for v in m.outputs} or name != "another value is added"
    assert code in codes_of(told, FUSION), (codes_of(told, FUSION), [r.reason for r in told.refused])


INNER = ("joined", "mixed", "dropped0", "weights", "masked", "scores", "q_heads", "v_part", "product_qkv", "norm")
"""Values between the ends of a block, whose gradients are between the ends of its gradient."""


@pytest.mark.parametrize("code", ["FETCHED", "PERSISTABLE", "EXTRA_READER"])
@pytest.mark.parametrize("value", INNER)
def test_gradients_that_almost_fit_are_left_with_a_code(value: str, code: str) -> None:
    built = recipe(FULL, "gradients").build()
    fetches = list(built.fetches)
    gradient = built.main.global_block().var(f"{value}@GRAD")
    if code == "FETCHED":
        fetches.append(gradient.name)
    elif code == "PERSISTABLE":
        gradient.persistable = True
        built.main._touch()
    else:
        with static.program_guard(built.main, built.startup):
            fetches.append(paddle.cumsum(gradient, -1).name)
    compiled = static.CompiledProgram(built.main, only(FUSION.switch))
    explained = compiled.explain(fetch_list=fetches)
    assert gradient.name not in {v.split("#")[0] for a in explained.applied for v in a.gone}
    assert codes_of(explained, FUSION) == {code}
    assert any(value in r.reason for r in explained.refused)
    # Behind the norm, the rest of the gradient is fused.
    assert any(a.op.endswith("_grad") for a in applied_of(explained, FUSION)) == (value == "norm")


@pytest.mark.parametrize("factor", [0.5, 1.0, -1.25])
def test_any_scale_is_computed_as_it_stands(factor: float) -> None:
    """Where Paddle's op always divides by the root of the head size."""
    one = _with(_attr("scale", "scaled", scale=factor), dropout=(0.0, 0.0))
    assert len(applied_of(told_of(one, FUSION.switch), FUSION)) == 1
    testing.assert_equivalent(one, only(FUSION.switch), shrink=False)


@pytest.mark.parametrize(("packing", "queries", "keys"), [("parts", 16, 32), ("heads", 32, 16), ("separate", 16, 32)])
def test_gradients_of_biases_are_sums_that_the_attention_leaves(
    packing: str, queries: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the blocks of queries and of keys: what has fewer blocks leaves zeros in the strips that it has not."""
    sizes = {id(attention_grad.QUERIES): (queries, 16), id(attention_grad.KEYS_AND_VALUES): (16, keys)}
    whole = attention_module.blocks_of

    def blocks(table: Any, *given: Any, **named: Any) -> Any:
        if id(table) not in sizes:
            return whole(table, *given, **named)
        rows, columns = sizes[id(table)]
        return (Blocks(rows, columns, 4, 0),)

    monkeypatch.setattr(attention_module, "blocks_of", blocks)
    one = recipe(replace(FULL, packing=packing, biases=True), "gradients")
    (backward,) = [a for a in applied_of(told_of(one, FUSION.switch), FUSION) if a.op.endswith("_grad")]
    assert backward.kernel is not None
    launches = {launch.function.split("_", 1)[1]: launch for launch in backward.kernel.plan(TINY).launches}
    assert launches["gradients"].constants["STRIPS"] == max(-(-FULL.rows // queries), -(-FULL.rows // keys))
    testing.assert_equivalent(one, only(FUSION.switch), shrink=False)
