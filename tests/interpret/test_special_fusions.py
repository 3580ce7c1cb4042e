"""NaN, infinities, zeros of both signs and the ends of the range through every fusion: results are those of the unfused program."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import BY_NAME, drawn, few, made, only, recipes_of
from tests.helpers.linear_loss_programs import short_chunks
from tests.helpers.soak import SOAK
from tests.helpers.special_values import differing, largest
from tests.helpers.undecided import known_of, order_decides, tolerated
from tests.interpret.faults import _replaced
from tstatic import static, testing
from tstatic.errors import TstaticError
from tstatic.flags import FILL
from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Fusion
from tstatic.ir.opdef import OPS
from tstatic.ir.types import dtype_of
from tstatic.testing import Recipe
from tstatic.testing.runner import Trial, baseline_of, trial_of_recipe

Array = np.ndarray[Any, Any]

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
RUNS = int(os.environ.get("TSTATIC_SPECIAL_RUNS", "6" if SOAK else "2"))
"""Runs of each program, each with special values in another of its inputs; seven programs of each fusion for 60 runs."""
PROGRAMS = 1 + RUNS // 10
KINDS = ("infinite", "huge", "huge in float16")
QUICK = ("gemm_epilogue", "linear_cross_entropy", "auto", "compiler")
"""Fusions that every run of the tests tries with huge values and in float16; with ``TSTATIC_SOAK`` it is all of them."""
TRAINED = {"fuse_adamw": ("AdamW",), "fuse_all_optimizer_ops": ("SGD", "Momentum", "Adam")}
"""Optimizers whose programs a switch fuses; with ``TSTATIC_SOAK`` the fusions are asked."""
LATER = {
    "attention": "test_special_cases.py tries it by name",
    "dot_product_attention": "test_special_cases.py tries it by name",
    "adamw_norm": "its kernels are those of all_optimizer_norm",
    "all_optimizer": "its kernels are those of adamw, with other formulas",
    "bn_add_act": "its kernels are those of bn_act, with an operand more",
}
"""Fusions that are drawn with ``TSTATIC_SOAK`` only, and why."""
# Patterns list the activations that are loaded.
assert len(OPS) > 400


EXCUSES: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "NaN unfused, under a causal mask": ("causal", lambda unfused, fused: np.isnan(unfused)),
    "NaN unfused, of an infinite gradient": (
        "infinite gradient",
        lambda unfused, fused: np.isnan(unfused) & np.isinf(fused),
    ),
    "NaN fused": ("", lambda unfused, fused: np.isnan(fused)),
}
"""What a row of the page says of results that may differ -> of which programs, where they do."""


def listed() -> dict[tuple[str, str], list[str]]:
    """The page's table: kind of values and fusion -> which results differ."""
    found: dict[tuple[str, str], list[str]] = {}
    kinds = "|".join(KINDS)
    for line in PAGE.read_text().splitlines():
        match = re.match(rf"^\| ((?:{kinds})(?:, (?:{kinds}))*) \| fusions? (.+?) \| (.+?) \| .+ \|$", line)
        for kind in match[1].split(", ") if match else ():
            for name in re.findall(r"`(\w+)`", match[2]):
                found.setdefault((kind, name), []).append(match[3])
    return found


LISTED = listed()


def excused(kind: str, name: str, unfused: Array, fused: Array, *conditions: str) -> Array:
    """Where the page says that the results of a fusion differ, in a program of which these conditions hold."""
    found = np.zeros(unfused.shape, bool)
    if dtype_of(unfused.dtype).is_float:
        for row in LISTED.get((kind, name), ()):
            condition, differ = EXCUSES[row]
            if condition in ("", *conditions):
                found |= differ(unfused.astype(np.float64), fused.astype(np.float64))
    return found


@dataclass(frozen=True)
class Given:
    """What a run is given: feeds, start values, and in words which of them is special."""

    feeds: Mapping[str, Array]
    state: Mapping[str, Array]
    words: str


def values_of(kind: str, top: float) -> list[float]:
    """``infinite``: nothing that overflows in a sum of products; else numbers that do."""
    if kind == "infinite":
        return [np.nan, np.inf, -np.inf, -0.0]
    return [v for v in (-top, 1e30, -3e19, 2e4, top, 2.0**-149) if abs(v) <= top]


def injected(trial: Trial, feeds: Mapping[str, Array], kind: str, number: int, runs: int) -> Iterator[Given]:
    """Special values in one input at a time: in one element, and of the first kind in some of them."""
    sources = {"feeds": feeds, "state": trial.state}
    places = [
        (where, name)
        for where, source in sources.items()
        for name, array in source.items()
        if dtype_of(array.dtype).is_float and array.size and not re.search("learning_rate|beta|_pow", name)
    ]
    rng = np.random.default_rng([number, KINDS.index(kind)])
    order = rng.permutation(len(places))
    for turn in range(runs):
        where, name = places[order[turn % len(places)]]
        array = sources[where][name].copy()
        values = values_of(kind, largest(dtype_of(array.dtype)))
        # Of huge values one alone: sums of several depend on their order.
        share = 0.3 if kind == "infinite" and turn % 2 else 0.0
        at = rng.random(array.size) < share
        at[rng.integers(array.size)] = True
        value = values[(turn + turn // len(values)) % len(values)]
        array.reshape(-1)[at] = np.array(value).astype(array.dtype)
        with_it = {k: {**v, name: array} if k == where else v for k, v in sources.items()}
        yield Given(with_it["feeds"], with_it["state"], f"{name} with {at.sum()} times {value}")


def unlike(unfused: Array, fused: Array, kind: str, low: bool) -> Array:
    """Where results differ: NaN, infinite or finite in both, and finite numbers beside ordinary ones are close."""
    if not unfused.size:
        return np.zeros(unfused.shape, bool)
    if not dtype_of(unfused.dtype).is_float:
        return np.asarray(unfused != fused) if kind == "infinite" else np.zeros(unfused.shape, bool)
    # What cancels has the sign of its last rounding.
    bad = differing(fused, unfused, None, zeros=False)
    if kind == "infinite":
        a, b = (np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0) for x in (fused, unfused))
        size = np.abs(b).max(-1, keepdims=True) if b.ndim else np.abs(b)
        both = np.isfinite(fused.astype(np.float64)) & np.isfinite(unfused.astype(np.float64))
        bad |= both & (np.abs(a - b) > (0.1 if low else 1e-3) * size + 1e-30)
    return bad


@cache
def programs(name: str) -> list[tuple[int, bool, Trial, Mapping[str, Array]]]:
    """Drawn programs that a fusion is applied to, in float32 and, where it is drawn, in float16: number, float16, trial, feeds."""
    fusion = BY_NAME[name]
    if not SOAK and fusion.switch in TRAINED:
        strategy = testing.programs(min_ops=3, max_ops=8, optimizer=TRAINED[fusion.switch], runs=2)
    else:
        kinds: dict[str, Any] = {} if fusion.finder.general else {"backward": True}
        strategy = recipes_of(fusion, runs=2, **kinds)
    wanted = {False: PROGRAMS, True: PROGRAMS if SOAK or name in QUICK else 0}
    kept: Counter[bool] = Counter()
    found = []
    for number, recipe in enumerate(recipes(strategy)):
        # The interpreter rounds bfloat16 otherwise.
        text = str(recipe)
        low = "float16" in text
        if kept[False] >= PROGRAMS and (kept[True] >= wanted[True] or number >= 12 * PROGRAMS):
            break
        if "bfloat16" not in text and "float64" not in text and kept[low] < wanted[low] and made(fusion, recipe):
            kept[low] += 1
            found.append((number, low, *trial_of_recipe(recipe)))
    return found


def recipes(strategy: Any) -> Iterator[Recipe]:
    """Drawn recipes; few at first, which are enough for most fusions."""
    for start, count in ((0, 6), (6, 24), (24, 60 * PROGRAMS)):
        yield from drawn(strategy, count, 5)[start:]


def difference(fusion: Fusion, kind: str, count: Counter[str], anew: bool = False) -> list[str]:
    """What differs in so many runs and no row excuses; counts runs, and those with results that are NaN or infinite.

    Args:
        fusion, kind, count: The fusion, the kind of values, and what is counted.
        anew: Compile programs again, though they may have run.
    """
    found: list[str] = []
    for number, low, trial, feeds in programs(fusion.name):
        if kind.startswith("huge") and low != (kind == "huge in float16"):
            continue
        conditions = ["causal"] if any(op.type == "tril_triu" for op in trial.program.global_block().ops) else []
        strategy = only(fusion.switch)
        trial = replace(trial, _compiled={}) if anew else trial
        plain, fused = trial.compiled(baseline_of(strategy)), trial.compiled(strategy)
        for given in injected(trial, feeds, kind, number, few(fusion, RUNS)):
            arriving = [a for n, a in given.feeds.items() if n.endswith("_bar")]
            told = [*conditions, *["infinite gradient"] * any(np.isinf(a).any() for a in arriving)]
            try:
                wanted = trial.run(plain, given.feeds, given.state)
            except TstaticError:
                continue
            got = trial.run(fused, given.feeds, given.state, fill=FILL)
            count["runs"] += 1
            names = [*[trial.fetches] * trial.steps, trial.written]
            rows = [t for row in zip(names, wanted, got, strict=True) for t in zip(*row, strict=True)]
            floats = [u.astype(np.float64) for _, u, _ in rows if dtype_of(u.dtype).is_float]
            count["special"] += not all(np.isfinite(u).all() for u in floats)
            count["ordinary"] += any(np.isfinite(u).any() for u in floats)
            differ = [unlike(u, f, kind, low) & ~excused(kind, fusion.name, u, f, *told) for _, u, f in rows]
            if any(bad.any() for bad in differ):
                known = known_of(trial, given.feeds, given.state, fusion.name)
                parts = [[a for row in part for a in row] for part in (known.exact, known.spread, known.undecided)]
                for bad, (_, u, f), *of in zip(differ, rows, *parts, strict=True):
                    if dtype_of(u.dtype).is_float:
                        bad &= ~tolerated(u, f, *of)
            for bad, (name, u, f) in zip(differ, rows, strict=True):
                if bad.any():
                    at = tuple(int(i) for i in np.argwhere(bad)[0])
                    found.append(
                        f"program {number}, {given.words}: {name}{list(at)} is {f[at]} instead of {u[at]}, {bad.sum()} such"
                    )
    return found


CASES = [
    (fusion, kind)
    for fusion in FUSIONS
    for kind in KINDS
    if SOAK or fusion.name in QUICK or (kind == "infinite" and fusion.name not in LATER)
]


@pytest.mark.parametrize(("fusion", "kind"), CASES, ids=[f"{fusion.name}-{kind}" for fusion, kind in CASES])
def test_fused_programs_give_what_unfused_ones_give(fusion: Fusion, kind: str) -> None:
    """Every fusion of the registry; where one cannot, docs/differences.md says which results differ."""
    count: Counter[str] = Counter()
    with short_chunks():
        found = difference(fusion, kind, count)
    if kind != "huge in float16":
        assert count["runs"], "no program had the fusion"
        assert kind == "huge" or count["special"] > 0, count
        assert count["ordinary"], count
    assert not found, "\n".join(found[:20])


def test_the_table_names_what_exists() -> None:
    assert {row for rows in LISTED.values() for row in rows} == set(EXCUSES)
    assert {name for _, name in LISTED} <= {f.name for f in FUSIONS}
    assert {fusion.name for fusion, _ in CASES} | set(LATER) == {f.name for f in FUSIONS}


STORE = r"tl\.store\(([^,]+), (\w+), mask"
HIDDEN = {
    ("gemm_epilogue", "infinite"): (STORE, r"tl.store(\1, tl.where(\2 == \2, \2, 0.0), mask"),
    ("adamw", "infinite"): (r"tl\.where\(own, (\w+), 0\.0\)", r"tl.where(own & (\1 == \1), \1, 0.0)"),
    # Infinity less infinity.
    ("gemm_epilogue", "huge"): (STORE, r"tl.store(\1, \2 + (\2 - \2), mask"),
}
"""Stores that put 0 in the place of NaN, a guard that a kernel should not have, and one that puts NaN in that of infinity."""


@pytest.mark.parametrize(("name", "kind"), HIDDEN)
def test_a_kernel_that_changes_what_is_special_is_seen(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "huge":
        monkeypatch.setattr(f"{__name__}.RUNS", 12)
    hits: list[str] = []
    _replaced("special values changed", *HIDDEN[name, kind]).plant(monkeypatch, hits)
    found = difference(BY_NAME[name], kind, Counter(), anew=True)
    assert hits, "the fault was never planted"
    assert found


TOP = largest(dtype_of("float32"))
INF, NAN = np.inf, np.nan
ACCEPTED: dict[str, tuple[tuple[float, float, float], bool]] = {
    # Unfused, fused, exact.
    "right where the unfused one overflowed": ((INF, 1.5, 1.5), True),
    "right where the unfused one is NaN": ((NAN, -INF, -1e39), True),
    "both overflowed": ((INF, NAN, 1.5), True),
    "both overflowed, beyond the range": ((-INF, NAN, 1e39), True),
    "NaN for an infinity": ((INF, NAN, 1e39), False),
    "NaN for a number": ((1.5, NAN, 1.5), False),
    "an infinity for a number": ((1.5, INF, 1.5), False),
    "an infinity's sign": ((INF, -INF, 1e39), False),
    "a wrong number where the unfused one overflowed": ((NAN, 2.5, 1.5), False),
    "a number for NaN": ((NAN, 1.5, NAN), False),
    "an infinity for NaN": ((NAN, INF, NAN), False),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_counts_as_the_same(name: str) -> None:
    values, accepted = ACCEPTED[name]
    unfused, fused, exact = (np.array([v]) for v in values)
    given = unfused.astype("f4"), fused.astype("f4"), exact, np.array([1e-7])
    assert tolerated(*given, np.array([False]))[0] == accepted
    assert tolerated(*given, np.array([True]))[0]


def test_a_rounding_that_decides_an_infinity_s_sign() -> None:
    """A small number times infinity: in float64 either sign, as roundings say, but never NaN or a number."""
    for fused, spread, accepted in ((-INF, INF, True), (-INF, 1.0, False), (NAN, INF, False), (1.0, INF, False)):
        given = np.array([INF], "f4"), np.array([fused], "f4"), np.array([INF])
        assert tolerated(*given, np.array([spread]), np.array([False]))[0] == accepted


def test_a_result_that_roundings_move_by_more_than_the_range() -> None:
    for spread, accepted in ((TOP / 2, False), (2.0 * TOP, True)):
        given = np.array([0.0], "f4"), np.array([NAN], "f4"), np.array([0.0])
        assert tolerated(*given, np.array([spread]), np.array([False]))[0] == accepted


@pytest.mark.parametrize(
    ("plus", "minus", "decides"),
    [
        (0.9, 0.9, False),  # no order leaves the range
        (1.5, 0.0, False),  # infinite in any order
        (2.5, 0.9, False),
        (0.0, 1.5, False),
        (1.5, 0.9, True),  # a number, or infinite
        (2.5, 1.2, True),  # infinite with either sign, or NaN
    ],
)
def test_sums_whose_order_decides(plus: float, minus: float, decides: bool) -> None:
    assert order_decides(*(np.float64(a) * TOP for a in (plus - minus, plus, minus)), TOP) == decides


def test_a_product_whose_order_decides_is_known() -> None:
    """Of a small product's three terms two overflow together; what reads the row is undecided, the other rows are not."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = static.data("x", [2, 3]), static.data("y", [3, 1])
        out = paddle.scale(paddle.matmul(x, y), 2.0)
    feeds = {"x": np.array([[0.6, 0.6, -0.9], [0.3, 0.3, -0.9]], "f4") * np.float32(TOP), "y": np.ones((3, 1), "f4")}
    known = known_of(Trial(main, {}, [out.name]), feeds, {}, "gemm_epilogue")
    assert known.undecided[0][0].tolist() == [[True], [False]]
    np.testing.assert_allclose(known.exact[0][0], np.array([[0.6], [-0.6]]) * TOP, rtol=1e-6)
