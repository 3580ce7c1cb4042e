"""``FLAGS_numerics=strict``: a fused program gives what the unfused one gives, bit for bit, where both run as kernels."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

import tstatic as paddle
from tests.cpu.bn_nets import gradients_of, residual, strategy, trained
from tests.helpers import feedforward_programs
from tests.helpers.drawn import PLAIN, ROW_FAMILIES, drawn, only
from tests.helpers.epilogue_programs import epilogue_recipe
from tests.helpers.patience import HANG
from tests.helpers.quick_interpreter import interpret_quickly
from tests.helpers.soak import SOAK
from tstatic import static, testing
from tstatic.flags import using_numerics
from tstatic.fusion.codegen.kernel import Launch
from tstatic.fusion.codegen.matrix import gemm
from tstatic.fusion.codegen.matrix.gemm_tail import Tail
from tstatic.fusion.codegen.matrix.gemm_tiles import Tile, tiles_of
from tstatic.fusion.patterns import in_turn
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta, bfloat16
from tstatic.static.compile import pipeline
from tstatic.target import CHIPS, H200, TINY
from tstatic.testing.runner import baseline_of, everything_on, trial_of_recipe

F = paddle.nn.functional

KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "forward": (8, {}),
    "gradients": (6, {"backward": True}),
    "special values": (4, {"special": True}),
    "rows": (5, {"families": ROW_FAMILIES, "backward": True}),
    "long rows": (2, {"families": ROW_FAMILIES, "long_rows": True}),
    "training": (4, {"optimizer": True, "runs": 2}),
}


@pytest.fixture(autouse=True)
def strict() -> None:
    paddle.set_flags({"FLAGS_numerics": "strict"})


def assert_same_bits(fused: Any, unfused: Any, what: object = "") -> None:
    """All bits but those of NaN, whose sign nobody reads."""
    assert fused.dtype == unfused.dtype, what
    if fused.dtype.kind in "fV":
        fused, unfused = (np.where(np.isnan(a), np.nan, a.astype(np.float64)) for a in (fused, unfused))
    assert fused.tobytes() == unfused.tobytes(), what


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_give_the_same_bits(kind: str) -> None:
    count, options = KINDS[kind]
    count *= 4 if SOAK else 1

    @seed(6)
    @settings(max_examples=count, **PLAIN)
    @given(testing.programs(max_ops=8, **options))
    def check(recipe: testing.Recipe) -> None:
        trial, feeds = trial_of_recipe(recipe)
        on = everything_on()
        plain = trial.run(trial.compiled(baseline_of(on)), feeds, trial.state)
        fused = trial.run(trial.compiled(on), feeds, trial.state)
        for row, other in zip(fused, plain, strict=True):
            for a, b in zip(row, other, strict=True):
                assert_same_bits(a, b, recipe)

    check()


def test_functions_of_sums_give_the_same_bits() -> None:
    main = static.Program()
    with static.program_guard(main):
        x, y = static.data("x", [257]), static.data("y", [257])
        outs = [paddle.tanh(x + y), F.gelu(x + y), F.softplus(x) * y]
    rng = np.random.default_rng(0)
    feed = {"x": 3 * rng.standard_normal(257, "f4"), "y": rng.standard_normal(257, "f4")}
    compiled = static.CompiledProgram(main, everything_on())
    fused, unfused = (static.Executor().run(p, feed=feed, fetch_list=outs) for p in (compiled, main))
    assert len(compiled.explain(fetch_list=outs).applied) == 2
    for a, b in zip(fused, unfused, strict=True):
        assert_same_bits(a, b)


def test_fusions_that_compute_otherwise_are_refused_and_their_cost_is_told() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        q, k, v = (static.data(n, [2, 2, 128, 64], "bfloat16") for n in "qkv")
        y = paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.125), v)
    told = static.CompiledProgram(main, everything_on()).explain(fetch_list=[y])
    assert told.strict is not None
    (cost,) = told.strict.refused
    assert (cost.rejection.switch, cost.rejection.code) == ("fuse_dot_product_attention", "NUM_STRICT")
    # The scores and the weights, two of 128 x 128 numbers a head, are written and read again.
    assert cost.launches == told.strict.launches == 2
    assert cost.bytes == told.strict.bytes == 4 * 4 * 128 * 128 * 2
    assert "Strict numerics: 2 launches and 524,288 bytes a step more than default numerics" in str(told)
    assert told.to_dict()["strict"]["refused"][0]["launches"] == 2
    default = static.CompiledProgram(main, everything_on(), numerics="default").explain(fetch_list=[y])
    assert default.strict is None
    assert [a.op for a in default.applied] == ["fused_dot_product_attention"]


# ------------------------------------------------------------------------------------------------- products, blocks, norms
def runs_of(recipe: testing.Recipe, on: static.BuildStrategy, times: int = 3) -> tuple[list[str], Any]:
    """Checks that fused runs give the unfused run's bits, each time; returns the types of operators and the results."""
    trial, feeds = trial_of_recipe(recipe)
    plain = trial.run(trial.compiled(baseline_of(on)), feeds, trial.state)
    for _ in range(times):
        fused = trial.run(trial.compiled(on), feeds, trial.state)
        for row, other in zip(fused, plain, strict=True):
            for a, b in zip(row, other, strict=True):
                assert_same_bits(a, b, recipe)
    return [op.type for op in trial.compiled(on).program.global_block().ops], plain


def product_recipes(count: int) -> list[testing.Recipe]:
    """Drawn products with what follows them: forward, with gradients, and trained; of all float types."""
    kinds = ("forward", "gradients", "gradients", "training")
    return [epilogue_recipe(i, kinds[i % len(kinds)], runs=2) for i in range(count)]


def block_recipes(count: int) -> list[testing.Recipe]:
    """Drawn feed-forward blocks, likewise."""
    kinds: tuple[dict[str, Any], ...] = ({}, {"backward": True}, {"optimizer": "SGD", "runs": 2})
    drawn_blocks = drawn(feedforward_programs.blocks(), count, 11)  # type: ignore[arg-type]
    return [feedforward_programs.recipe(b, **kinds[i % 3]) for i, b in enumerate(drawn_blocks)]  # type: ignore[arg-type]


def types_of(recipes: Iterable[testing.Recipe]) -> set[str]:
    """The types of the products' operands."""
    found = set()
    for recipe in recipes:
        block = recipe.build().main.global_block()
        found |= {block.var(op.input("Y")[0]).dtype.name for op in block.ops if op.type in ("mul", "matmul_v2")}
    return found


def test_products_with_what_follows_them_give_the_same_bits() -> None:
    recipes = product_recipes(400 if SOAK else 6)
    made = Counter(
        kind
        for i, r in enumerate(recipes)
        for kind in runs_of(r, only("fuse_gemm_epilogue"), 3 if SOAK or i < 2 else 1)[0]
    )
    print(dict(made))
    assert made["fused_gemm_epilogue"] >= len(recipes) * 0.9
    assert made["fused_gemm_epilogue_grad"] >= len(recipes) * 0.3
    assert types_of(recipes) == {"float32", "float16", "bfloat16"}


def test_feed_forward_blocks_give_the_same_bits() -> None:
    recipes = block_recipes(200 if SOAK else 4)
    made = Counter[str]()
    for number, recipe in enumerate(recipes):
        on = everything_on() if number % 4 == 3 else only("fused_feedforward")
        made.update(runs_of(recipe, on, 3 if SOAK else 1)[0])
    print(dict(made))
    assert made["fused_feedforward"] == len(recipes)
    assert made["fused_feedforward_grad"] >= len(recipes) * 0.5
    assert types_of(recipes) >= {"float32", "bfloat16"}


@pytest.mark.parametrize(("act", "layout"), [("relu", "NCHW"), ("gelu", "NHWC")])
def test_batch_norm_with_what_stands_around_it_gives_the_same_bits(act: str, layout: str) -> None:
    program = residual(act, layout)
    fetches = gradients_of(program[0])
    unfused, before, _ = trained(program, False, fetches, 2, layout)
    fused, after, told = trained(program, True, fetches, 2, layout)
    assert len(told.applied) == 4
    assert not told.refused
    for a, b in zip(fused, unfused, strict=True):
        for name, x, y in zip(["loss", *fetches], a, b, strict=True):
            assert_same_bits(x, y, name)
    for name, value in before.items():
        assert_same_bits(after[name], value, name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batch_norm_of_16_bits_gives_the_same_bits(dtype: str) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4, 3, 5, 6])
        x.stop_gradient = False
        low = paddle.cast(x, dtype)
        h = static.nn.batch_norm(low, act="relu")
        y = F.relu(static.nn.batch_norm(low) + low)
        loss = paddle.mean(paddle.square(paddle.cast(y * h, "float32")))
        wanted = [loss, y, *static.gradients([loss], [x])]
    exe = static.Executor()
    exe.run(startup)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 3, 5, 6)).astype(np.float32)}
    fused, unfused = (
        exe.run(static.CompiledProgram(main, strategy(on)), feed=feed, fetch_list=wanted) for on in (True, False)
    )
    assert len(static.CompiledProgram(main, strategy(True)).explain(fetch_list=wanted).applied) == 4
    for a, b in zip(fused, unfused, strict=True):
        assert_same_bits(a, b)


# -------------------------------------------------------------------------------------------------------- three processes
def digests() -> list[str]:
    """What fused and unfused runs of some programs give, in this process."""
    recipes = [*product_recipes(2), *block_recipes(2)[1:]]
    recipes += drawn(testing.programs(max_ops=6, backward=True, families=ROW_FAMILIES), 1, 5)
    done = []
    for recipe in recipes:
        _, results = runs_of(recipe, everything_on(), 1)
        done.append(hashlib.sha256(b"".join(a.tobytes() for row in results for a in row)).hexdigest())
    return done


@pytest.mark.slow
def test_other_processes_give_the_same_bits() -> None:
    command = [sys.executable, "-m", "tests.interpret.test_strict"]
    seeds = ("1", "2")
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONHASHSEED": s, "FLAGS_numerics": "strict"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for s in seeds
    ]
    here = digests()
    for process in running:
        printed, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0
        assert json.loads(printed.splitlines()[-1]) == here


# ----------------------------------------------------------------------------------------------------------------- faults
def _fused_differ(patch: pytest.MonkeyPatch, tile: Callable[[bool, Tile], Tile | None]) -> None:
    """Products of fused ops are made with another tile, or by the library, than those that are ops by themselves."""
    right, fused = gemm._Module.__init__, {}

    def init(self: Any, body: Sequence[FrozenOp], *rest: Any) -> None:
        right(self, body, *rest)
        if len(body) > 1:
            fused.update({id(part.product): part.product for part in self.parts})

    def fixed(product: Any, target: Any) -> Tile | None:
        return tile(id(product) in fused, tiles_of(product, target, drawn=True)[0])

    patch.setattr(gemm._Module, "__init__", init)
    patch.setattr(gemm, "fixed_tile", fixed)


def _other_tile(patch: pytest.MonkeyPatch) -> None:
    """A product with something behind it is added up in other steps."""
    _fused_differ(patch, lambda fused, tile: replace(tile, depth=2 * tile.depth) if fused else tile)


def _own_product(patch: pytest.MonkeyPatch) -> None:
    """A product with something behind it is not the library's."""
    _fused_differ(patch, lambda fused, tile: tile if fused else None)


def _tail_of_default(tail: Any, used: set[str]) -> str:
    """What stands behind a product goes on with what its type does not hold."""
    return _TEXT(replace(tail, rounds=tail.rounds and tail.stores), used)


_TEXT = Tail.text


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "other tile": _other_tile,
    "own product": _own_product,
    "sums in the tail": lambda patch: patch.setattr(in_turn, "sums_apart", lambda ops, metas: [ops]),
    "product not rounded": lambda patch: patch.setattr(Tail, "text", _tail_of_default),
    "no kernel of its own": lambda patch: patch.setattr(pipeline, "kernel_per_op", lambda frozen, metas: frozen),
}


def run_until_caught(number: int) -> None:
    for recipe in product_recipes(number):
        runs_of(recipe, only("fuse_gemm_epilogue"), 1)


QUICK = ("sums in the tail", "product not rounded", "no kernel of its own")
"""Faults that few programs show; the others take dozens, and belong to ``make proof``."""


@pytest.mark.parametrize("fault", FAULTS if SOAK else QUICK)
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError, match="Recipe"):
        run_until_caught(24 if fault in QUICK else 200)


def test_a_deep_product_is_not_cut_along_its_depth() -> None:
    """Nor does what stands behind a product choose its tile, and nothing else is there to be timed."""
    shapes = {"x": (256, 16384), "w": (16384, 128), "y": (256, 128), "b": (128,), "z": (256, 128)}
    metas = {name: Meta(shape, bfloat16) for name, shape in shapes.items()}
    product = FrozenOp(op_def("matmul_v2"), ("x", "w"), ("y",), {"trans_x": False, "trans_y": False})
    add = FrozenOp(op_def("elementwise_add"), ("y", "b"), ("z",), {"axis": -1})
    alone, fused = gemm.gemm_kernel([product], metas, ["y"]), gemm.gemm_kernel([product, add], metas, ["z"])
    for target in (TINY, *CHIPS):
        (first,), (second,) = alone.candidates(target), fused.candidates(target)
        assert [one.constants for one in first.launches] == [one.constants for one in second.launches], target
        assert [one.function for one in second.launches] == ["kernel"], target
        assert not any(one.contract for one in second.launches if isinstance(one, Launch))
    with using_numerics("default"):
        loose = gemm.gemm_kernel([product, add], metas, ["z"])
        ways = [[one.function for one in way.launches] for way in loose.candidates(H200)]
    assert ways[:2] == [["library product"], ["part", "combine"]]
    assert len(ways) > 2


def main() -> None:
    """Prints what this process computes."""
    interpret_quickly()
    print(json.dumps(digests()))


if __name__ == "__main__":
    main()
