"""Every program that runs can be explained: those of the property tests, in every form that an explanation has."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.amp import nets as amp_nets
from tests.cpu.nets import regression
from tests.helpers.drawn import OWN, PLAIN, ROW_FAMILIES, SWITCHES, chosen, mixture, recipes_of
from tests.helpers.linear_loss_programs import short_chunks
from tests.helpers.told import shapes_of, tell, tell_recipe
from tstatic import static, testing
from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Fusion

F = paddle.nn.functional
PROGRAMS = int(os.environ.get("TSTATIC_EXPLAINED", "36"))
"""Programs that are explained, of each test a share of them; ``make proof`` asks for many."""

KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "forward": (0, {}),
    "nan": (1000, {"nan": True}),
    "gradients": (2000, {"backward": True}),
    "training": (3000, {"optimizer": True, "runs": 3}),
    "special": (4000, {"special": True, "backward": True}),
    "long rows": (5000, {"long_rows": True, "families": ROW_FAMILIES}),
}
"""Kind -> the seed and the arguments of the random programs that run through generated kernels."""


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs(kind: str) -> None:
    """The first programs of those that the tests of generated kernels draw."""
    number, kinds = KINDS[kind]

    @seed(number)
    @settings(max_examples=max(2, PROGRAMS // 12), **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds), strategy=chosen(), pick=st.integers(0, 999))
    def check(recipe: testing.Recipe, strategy: static.BuildStrategy, pick: int) -> None:
        tell_recipe(recipe, strategy, pick)

    check()


# Updates are in the programs that train.
@pytest.mark.parametrize("fusion", [f for f in FUSIONS if f.finder.patterns or f.name in OWN], ids=lambda f: f.name)
def test_programs_with_the_pattern_of_a_fusion(fusion: Fusion) -> None:
    """With other fusions beside it, which take up what it leaves."""
    count: Counter[str] = Counter()

    @seed(1)
    @settings(max_examples=max(3, PROGRAMS // 20), **PLAIN)
    @given(recipes_of(fusion, backward=True), chosen(), st.integers(0, 999))
    def check(recipe: testing.Recipe, strategy: static.BuildStrategy, pick: int) -> None:
        setattr(strategy, fusion.switch, True)
        with short_chunks():
            count["applied"] += len(tell_recipe(recipe, strategy, pick).applied)

    check()
    assert count["applied"]


def test_programs_of_all_kinds() -> None:
    for number, (recipe, strategy) in enumerate(mixture(10, 20)[: PROGRAMS // 10]):
        tell_recipe(recipe, strategy, number)


# ------------------------------------------------------------------------------------------------------- mixed precision
def switches(pick: random.Random) -> static.BuildStrategy:
    """A strategy with some fusions on."""
    strategy = static.BuildStrategy()
    for name in SWITCHES:
        setattr(strategy, name, pick.random() < 0.5)
    return strategy


def drawn_loss(pick: random.Random) -> Any:
    """A linear layer and its loss, with a drawn step before the layer and drawn weights of the rows behind the loss."""
    rows, depth, classes = pick.choice((6, 13, 24)), pick.choice((4, 16)), pick.choice((5, 17, 40))
    x, y = static.data("x", [rows, depth]), static.data("y", [rows, 1], "int64")
    before = pick.choice((lambda v: v, F.relu, lambda v: v * 0.5, static.nn.layer_norm))
    w = static.create_parameter([depth, classes], "float32")
    logits = paddle.matmul(before(x), w)
    if pick.random() < 0.5:
        logits = logits + static.create_parameter([classes], "float32", is_bias=True)
    loss = F.softmax_with_cross_entropy(logits, y)
    u = static.data("u", [rows, 1])
    behind = pick.choice((lambda v: v, lambda v: v * u, lambda v: v * u + v, lambda v: paddle.square(v) * u))
    return paddle.mean(behind(loss))


def mixed(build: Any, pick: random.Random) -> tuple[static.Program, Any]:
    """A program that trains in drawn mixed precision; returns it and its loss."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        loss = build()
        rule = pick.choice((paddle.optimizer.SGD, paddle.optimizer.Adam, paddle.optimizer.AdamW))(0.1)
        level, dtype = pick.choice(("O1", "O2")), pick.choice(("bfloat16", "float16"))
        static.amp.decorate(rule, level=level, dtype=dtype).minimize(loss)
    return main, loss


def test_losses_of_linear_layers_in_mixed_precision() -> None:
    """A later fusion looks at what the layer's chunks of rows consist of, and finds no place for them in the user's program."""
    with short_chunks():
        for number in range(PROGRAMS // 3):
            pick = random.Random(number)
            main, loss = mixed(lambda: drawn_loss(pick), pick)  # noqa: B023 - it runs before the next number
            strategy = switches(pick)
            strategy.fuse_linear_cross_entropy = strategy.build_cinn_pass = True
            tell(main, strategy, [loss.name], {}, number)


@pytest.mark.parametrize("build", [amp_nets.mlp, amp_nets.gpt, amp_nets.resnet], ids=lambda f: f.__name__)
def test_nets_in_mixed_precision(build: Any) -> None:
    for number in range(max(1, PROGRAMS // 60)):
        pick = random.Random(number)
        main, loss = mixed(build, pick)
        shapes = {v.name: tuple(8 if n < 0 else n for n in v.shape) for v in main.list_vars() if v.is_data}
        tell(main, switches(pick), [loss.name], shapes, number)


def test_the_net_of_many_tests() -> None:
    for number, rule in enumerate((None, paddle.optimizer.SGD(0.1), paddle.optimizer.AdamW(0.1))):
        main, _, loss = regression(rule)
        tell(main, switches(random.Random(number)), [loss.name], shapes_of({"x": [[0.0] * 3] * 4}), number)
