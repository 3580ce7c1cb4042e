"""Drawn programs for tests over the registry of fusions; what a fusion takes is asked of the fusion itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.helpers import feedforward_programs
from tests.helpers.attention_blocks import block_recipe
from tests.helpers.attention_programs import attention_recipe
from tests.helpers.epilogue_programs import epilogue_recipe
from tests.helpers.linear_loss_programs import linear_loss_recipe
from tests.helpers.tied_programs import tied_recipe
from tstatic import static, testing
from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Applied, Fusion
from tstatic.testing.runner import baseline_of
from tstatic.testing.strategies import OPTIMIZERS

SWITCHES = sorted({f.switch for f in FUSIONS})

PLAIN: dict[str, Any] = {
    # A shrunk program comes from assert_equivalent itself; hypothesis' own shrinking would run thousands of kernels.
    "phases": [Phase.generate],
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}
ROW_FAMILIES = ("unary", "binary", "cast", "reduce", "softmax", "norm")
LONG_FAMILIES = ("unary", "reduce", "norm")
BY_NAME = {f.name: f for f in FUSIONS}


def only(switch: str) -> static.BuildStrategy:
    """A strategy that does nothing but one switch."""
    strategy = baseline_of(static.BuildStrategy())
    setattr(strategy, switch, True)
    return strategy


@st.composite
def chosen(draw: st.DrawFn) -> static.BuildStrategy:
    """A strategy with a drawn set of fusion switches, at least one of them on."""
    strategy = static.BuildStrategy()
    on = draw(st.sets(st.sampled_from(SWITCHES), min_size=1))
    for name in SWITCHES:
        setattr(strategy, name, name in on)
    return strategy


def explained(fusion: Fusion, main: static.Program, fetches: list[str]) -> Any:
    """What explain says of a program under one fusion's switch."""
    return static.CompiledProgram(main, only(fusion.switch)).explain(fetch_list=fetches)


def told_of(recipe: testing.Recipe, *switches: str) -> Any:
    """What explain says of a recipe's program under these switches."""
    built = recipe.build()
    strategy = only(switches[0])
    for switch in switches[1:]:
        setattr(strategy, switch, True)
    return static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches)


def applied_of(told: Any, fusion: Fusion) -> list[Applied]:
    """What a fusion was applied to."""
    return [a for a in told.applied if a.fusion == fusion.name]


def types_of(record: Applied) -> list[str]:
    """The types of the operators that became one."""
    return [m.type for m in record.members]


def codes_of(told: Any, fusion: Fusion) -> set[str]:
    """Why a fusion was refused."""
    return {r.code for r in told.refused if r.fusion == fusion.name}


def made(fusion: Fusion, recipe: testing.Recipe) -> list[Applied]:
    """The fusions of this name that a recipe's program gets."""
    built = recipe.build()
    return [a for a in explained(fusion, built.main, built.fetches).applied if a.fusion == fusion.name]


def drawn(strategy: st.SearchStrategy[testing.Recipe], count: int, number: int = 0) -> list[testing.Recipe]:
    """Recipes of a strategy, the same ones every time."""
    found: list[testing.Recipe] = []

    @seed(number)
    @settings(max_examples=count, **PLAIN)
    @given(strategy)
    def collect(recipe: testing.Recipe) -> None:
        found.append(recipe)

    collect()
    return found


@cache
def _optimizers(name: str) -> tuple[str, ...]:
    """The optimizers without which a fusion finds nothing; none if it finds something in plain programs."""
    fusion = BY_NAME[name]
    if any(made(fusion, r) for r in drawn(testing.programs(max_ops=8), 20)):
        return ()
    found = []
    for optimizer in OPTIMIZERS:
        recipes = drawn(testing.programs(min_ops=3, max_ops=6, optimizer=(optimizer,)), 12)
        if any(made(fusion, r) for r in recipes):
            found.append(optimizer)
    return tuple(found)


def _numbered(recipe: Callable[[int, str, int], testing.Recipe]) -> Callable[..., st.SearchStrategy[testing.Recipe]]:
    """Returns a strategy of the programs that a function makes of numbers."""

    def recipes(backward: bool = False, optimizer: Any = False, runs: int = 3, **_: Any) -> Any:
        kind = "training" if optimizer else "gradients" if backward else "forward"
        return st.integers(0, 1 << 30).map(lambda number: recipe(number, kind, runs))

    return recipes


OWN: dict[str, Callable[..., st.SearchStrategy[testing.Recipe]]] = {
    "feedforward": feedforward_programs.recipes,
    "gemm_epilogue": _numbered(epilogue_recipe),
    "attention": _numbered(block_recipe),
    "dot_product_attention": _numbered(attention_recipe),
    "linear_cross_entropy": _numbered(linear_loss_recipe),
    "embedding_grad_add": _numbered(tied_recipe),
}
"""Fusions whose ops follow each other too rarely in programs that are drawn op by op -> what draws programs that have them."""


EXPENSIVE = ("attention", "feedforward", "dot_product_attention")


def few(fusion: Fusion, count: int, more: tuple[str, ...] = ()) -> int:
    """How many programs to draw: those with an attention take seconds, and have tests of their own, as ``more`` fusions may."""
    return max(2, count // 4) if fusion.name in (*EXPENSIVE, *more) else count


def recipes_of(fusion: Fusion, **kinds: Any) -> st.SearchStrategy[testing.Recipe]:
    """Programs that contain what a fusion looks for, and others that almost do.

    Args:
        fusion: Any; with patterns, programs are drawn from these.
        **kinds: Of ``testing.programs``: ``backward``, ``optimizer``.
    """
    if fusion.name in OWN:
        return OWN[fusion.name](**kinds)
    if fusion.finder.patterns:
        return testing.programs(max_ops=5, patterns=fusion.finder.patterns, **kinds)
    optimizers = _optimizers(fusion.name)
    if optimizers:
        kinds = {"optimizer": optimizers}
    return testing.programs(min_ops=3, max_ops=8, **kinds)


def keeping(recipe: testing.Recipe) -> testing.Recipe:
    """The recipe with inner values that are persistable."""
    read = {n for s in recipe.steps for n in s.reads}
    inner = [n for s in recipe.steps for n in s.writes if n in read]
    return replace(recipe, kept=tuple(inner[::3]))


@cache
def mixture(count: int, number: int) -> tuple[tuple[testing.Recipe, static.BuildStrategy], ...]:
    """Programs of all kinds, each with a strategy: plain, with gradients, trained, with special values, patterns, long rows."""
    kinds: list[st.SearchStrategy[testing.Recipe]] = [
        testing.programs(max_ops=12),
        testing.programs(max_ops=12, backward=True),
        testing.programs(max_ops=8, backward=True, dtypes=("float32",), families=ROW_FAMILIES),
        testing.programs(max_ops=8, optimizer=True, runs=2),
        testing.programs(max_ops=6, optimizer=("Adam", "Momentum"), runs=2),
        testing.programs(max_ops=8, nan=True).map(keeping),
        testing.programs(max_ops=8, special=True).map(keeping),
        st.one_of([recipes_of(f, backward=True) for f in FUSIONS if f.finder.patterns]),
        st.one_of([recipes_of(f, dtypes=("float32",)) for f in FUSIONS if f.finder.patterns]),
        st.one_of([recipes_of(f, nan=True) for f in FUSIONS if f.finder.patterns]),
    ]
    found: list[tuple[testing.Recipe, static.BuildStrategy]] = []
    for k, kind in enumerate(kinds):

        @seed(number + k)
        @settings(max_examples=-(-count // len(kinds)), **PLAIN)
        @given(kind, chosen())
        def collect(recipe: testing.Recipe, strategy: static.BuildStrategy) -> None:
            found.append((recipe, strategy))

        collect()

    @seed(number)
    @settings(max_examples=max(1, count // 50), **PLAIN)
    @given(testing.programs(max_ops=4, dtypes=("float32",), families=LONG_FAMILIES, long_rows=True))
    def collect_long(recipe: testing.Recipe) -> None:
        found.append((recipe, only("build_cinn_pass")))

    collect_long()
    # All kinds early: what one of them shows is seen soon.
    random.Random(number).shuffle(found)
    return tuple(found)
