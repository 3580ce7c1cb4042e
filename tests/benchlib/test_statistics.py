"""When two peers differ: under 1 % false differences on a noisy machine, and real ones are found."""

from __future__ import annotations

import math
import random

import pytest

from tests.benchlib.fakes import FakeTimer, Noise
from tstatic.benchlib import statistics
from tstatic.benchlib.measure import Samples, Setting, measure
from tstatic.benchlib.statistics import control_difference, paired, unpaired

ROWS = 1500
SETTING = Setting(repeats=25, seconds=1e-9)


def measured(seed: int, other: float = 1.0, bias: float = 0.0) -> dict[str, Samples]:
    """Samples of three peers, the third of which is the first one again; each has a bias of its own that stays."""
    runs = {name: (lambda name=name: name) for name in ("mine", "other", "control")}
    true = dict(zip(runs.values(), (1e-3, 1e-3 * other, 1e-3), strict=True))
    draw = random.Random(seed)
    biased = {run: math.exp(draw.gauss(0, bias)) for run in runs.values()}
    timer = FakeTimer(Noise(seed, true, biased), calls=False)
    return measure({n: [r] for n, r in runs.items()}, timer, SETTING, random.Random(seed))


DIFFERENT = ("faster", "slower")


def finding(found: dict[str, Samples]) -> str:
    control = control_difference(found["mine"].seconds, found["control"].seconds)
    return paired(found["mine"].seconds, found["other"].seconds, control).finding


@pytest.mark.parametrize("bias", [0.0, 0.01])
def test_equals_are_called_different_in_less_than_one_row_in_a_hundred(bias: float) -> None:
    called = sum(finding(measured(seed, bias=bias)) in DIFFERENT for seed in range(ROWS))
    assert called < 0.01 * ROWS, called


def test_without_turns_the_same_noise_would_show_differences() -> None:
    """The oracle can fail: samples taken one peer after the other, judged by their medians."""
    called = 0
    for seed in range(300):
        run = print
        noise = Noise(seed, {run: 1e-3})
        mine, other = ([noise(run) for _ in range(15)] for _ in range(2))
        called += abs(math.log(statistics.median(sorted(mine)) / statistics.median(sorted(other)))) > math.log(1.03)
    assert called > 60


def test_a_bias_that_the_control_shows_is_not_called_a_difference() -> None:
    mine, other = [1.0 + i / 1000 for i in range(15)], [1.06 + i / 1000 for i in range(15)]
    assert paired(mine, other).finding == "faster"
    assert paired(mine, other, control=control_difference(mine, [v * 0.95 for v in mine])).finding == "undecided"


def test_the_same_is_said_only_of_a_ratio_that_is_known_to_be_near_one() -> None:
    """Guards against a noisy machine on which everything is called the same: 0.39 times torch's time was."""
    steady, shaky = [1.0 + i / 1000 for i in range(20)], [1.0 + (i % 5 - 2) / 10 for i in range(20)]
    assert paired(steady, steady).finding == "same"
    assert paired(steady, shaky).finding == "undecided"
    wide = [1.0, 2.6] * 10
    assert paired([1.0] * 20, wide).finding == "undecided"
    # A difference that is known, and too small to count, is the same within the band.
    assert paired(steady, [v * 1.02 for v in steady]).finding == "same"
    assert paired(steady, [v * 1.045 for v in steady], floor=0.1).finding == "same"


@pytest.mark.parametrize(("factor", "word"), [(1.25, "faster"), (0.8, "slower")])
def test_real_differences_are_found(factor: float, word: str) -> None:
    found = [finding(measured(seed, factor)) for seed in range(200)]
    assert found.count(word) > 150, found.count(word)
    assert set(found) <= {word, "same", "undecided"}


def test_a_large_ratio_that_noise_may_have_made_is_not_called_the_same() -> None:
    noisy = [0.4, 0.5, 0.6, 0.7, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 3.7]
    assert paired(noisy, [1.0] * 12).finding == "undecided"
    assert unpaired(noisy[2:8], [1.0, 1.0, 0.2, 0.3, 6.0, 7.0]).finding == "undecided"


def test_small_differences_do_not_count_however_sure_they_are() -> None:
    assert paired([1.0] * 40, [1.02] * 40).finding == "same"
    assert paired([1.0] * 40, [1.02] * 40, floor=0.01).finding == "faster"


def test_too_few_samples_decide_nothing() -> None:
    least = statistics.least_samples()
    assert least == 11
    assert Setting().least == least
    assert paired([1.0] * (least - 1), [2.0] * (least - 1)).finding == "undecided"
    assert paired([1.0] * least, [2.0] * least).finding == "faster"
    assert unpaired([1.0] * 3, [2.0] * 3).finding == "undecided"


@pytest.mark.parametrize("count", [11, 15, 24, 60])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    rank = statistics._sign_rank(count)
    outside = 2 * sum(math.comb(count, k) for k in range(rank + 1)) / 2**count
    inside = 2 * sum(math.comb(count, k) for k in range(rank + 2)) / 2**count
    assert outside <= statistics.ERROR < inside


def test_samples_of_two_runs_are_compared_by_their_ranks() -> None:
    draw = random.Random(3)
    called = 0
    for _ in range(1000):
        a, b = ([draw.lognormvariate(0, 0.3) for _ in range(15)] for _ in range(2))
        called += unpaired(a, b).finding in DIFFERENT
    assert called < 10
    assert unpaired([1.0 + i / 100 for i in range(15)], [1.5 + i / 100 for i in range(15)]).finding == "faster"


def test_quantiles_are_samples() -> None:
    assert [statistics.quantile([3.0, 1.0, 2.0, 5.0, 4.0], q) for q in (0.0, 0.2, 0.8, 1.0)] == [1.0, 2.0, 5.0, 5.0]
