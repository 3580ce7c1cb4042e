"""Feed-forward blocks on numpy: every variant is fused whole, and gradients that almost fit stay unfused with the right code."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tests.helpers.feedforward_programs import Block, recipe
from tests.helpers.near_misses import NO_FUSE
from tstatic import static, testing
from tstatic.testing.recipe import Built

SWITCH = "fused_feedforward"
PLAIN = Block(dropout=(0.3, 0.25))
GRADIENTS = ("dropped1@GRAD", "activated@GRAD", "biased1@GRAD")
"""Of what stands between the two products."""


def built(block: Block = PLAIN) -> Built:
    return recipe(block, backward=True).build()


def told(made: Built, fetches: Sequence[str] = ()) -> Any:
    return static.CompiledProgram(made.main, only(SWITCH)).explain(fetch_list=[*made.fetches, *fetches])


def fused(explained: Any) -> list[str]:
    return [a.op for a in explained.applied]


def codes(explained: Any, value: str) -> set[str]:
    """Why an op that makes a value, or one that reads it, is not fused."""
    # A persistable variable's values have numbers.
    return {r.code for r in explained.refused if any(value == v.split("#")[0] for m in r.members for v in m.outputs)}


# ------------------------------------------------------------------------------------------------------------- variants
VARIANTS = [
    (norm, residual, (0.3 * first, 0.25 * second), product)
    for norm, residual, first, second, product in itertools.product(
        ("", "pre", "post", "both"), ("", "right"), (0, 1), (0, 1), ("mul", "matmul_v2")
    )
]
"""Paddle tries these but two, for ``matmul_v2`` alone: it wants a norm before the block or a residual, and one dropout at least."""


@pytest.mark.parametrize(("norm", "residual", "dropout", "product"), VARIANTS)
def test_every_variant_is_fused_whole(norm: str, residual: str, dropout: tuple[float, float], product: str) -> None:
    block = Block(norm=norm, residual=residual, dropout=dropout, product=product)
    one = recipe(block, backward=True)
    explained = told(one.build())
    forward, backward = explained.applied
    assert (forward.op, backward.op) == ("fused_feedforward", "fused_feedforward_grad")
    assert [m.type for m in forward.members] == [s.type for s in one.steps]
    types = [m.type for m in backward.members]
    # A sum for the bias of the second product belongs to who makes what arrives, where that is not of the block.
    own = bool(dropout[1]) or norm in ("post", "both")
    wanted = Counter({
        f"{product}_grad": 2,
        "gelu_grad": 1,
        "elementwise_add_grad": 1 + own,
        "dropout_grad": sum(rate > 0 for rate in dropout),
        "layer_norm_grad": (norm in ("pre", "both")) + (norm in ("post", "both")),
        "sum": bool(residual),
    })  # fmt: skip
    assert Counter(types) == +wanted


# ----------------------------------------------------------------------------------------------------------- near misses
def fetched(name: str) -> Callable[[], tuple[Built, str]]:
    def make() -> tuple[Built, str]:
        made = built()
        return replace(made, fetches=[*made.fetches, name]), name

    return make


def persistable(name: str) -> Callable[[], tuple[Built, str]]:
    def make() -> tuple[Built, str]:
        made = built()
        made.main.global_block().var(name).persistable = True
        made.main._touch()
        return made, name

    return make


def read_again(name: str) -> Callable[[], tuple[Built, str]]:
    def make() -> tuple[Built, str]:
        made = built()
        with static.program_guard(made.main, made.startup):
            out = paddle.cumsum(made.main.global_block().var(name), -1)
        return replace(made, fetches=[*made.fetches, out.name]), name

    return make


def forbidden() -> tuple[Built, str]:
    """The activation is left outside, and its gradient with it."""
    made = built()
    ops = made.main.global_block().ops
    position = next(op.position for op in ops if "activated" in op.output_arg_names)
    for op in ops:
        if op.position == position:
            op.namescope = f"{NO_FUSE}/"
    made.main._touch()
    return made, "biased1@GRAD"


def other_states() -> tuple[Built, str]:
    return built(replace(PLAIN, is_test=(False, True))), "dropped1@GRAD"


MISSES: dict[str, tuple[Callable[[], tuple[Built, str]], str]] = {
    **{f"{name} is fetched": (fetched(name), "FETCHED") for name in GRADIENTS},
    **{f"{name} is persistable": (persistable(name), "PERSISTABLE") for name in GRADIENTS},
    **{f"{name} is read again": (read_again(name), "EXTRA_READER") for name in GRADIENTS},
    "forbidden": (forbidden, "FORBIDDEN"),
    "one dropout in inference": (other_states, "ATTRIBUTE"),
}


def test_nothing_is_missing() -> None:
    assert fused(told(built())) == ["fused_feedforward", "fused_feedforward_grad"]
    assert len(MISSES) >= 8


@pytest.mark.parametrize("name", MISSES)
def test_near_misses_stay_unfused_with_the_right_code(name: str) -> None:
    make, code = MISSES[name]
    made, value = make()
    explained = told(made)
    assert "fused_feedforward_grad" not in fused(explained)
    assert code in codes(explained, value), explained.refused
    testing.assert_equivalent(
        made.main, only(SWITCH), feeds=made.feeds, fetch_list=made.fetches, startup=made.startup, shrink=False
    )
