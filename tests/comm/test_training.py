"""Two and four processes train as one place does, bit for bit as so many places of one process where sums have an order."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comm import trainer
from tests.comm.pool import SLACK, Pool, Trial
from tests.comm.trainer import Array, Order
from tests.helpers.patience import pace
from tests.parallel.golden import strategy
from tests.parallel.test_equality import CHOICES, CLIPS, EVERY_FUSION, OPTIMIZERS, ROWS, Nets, agree
from tstatic.comm.transport import ordered_sum

pytestmark = pytest.mark.torch

TRAININGS = int(os.environ.get("TSTATIC_TRAININGS", "20"))
BLOCK = "hierarchical_allreduce_inter_nranks"
Found = list[dict[str, Array]]


class Ranks:
    """Processes that stay connected from one training to the next; others take their place when one of them fails."""

    def __init__(self, pool: Pool, size: int, folder: Path) -> None:
        self.size = size
        self._pool = pool
        self._folder = folder
        self._trial: Trial | None = None
        self._place = folder
        self._trials = 0
        self._orders = 0

    def send(self, order: Order) -> None:
        """Lets them begin."""
        if self._trial is None:
            self._place = self._folder / str(self._trials)
            self._place.mkdir()
            flags = {"CPU_NUM": "1", "FLAGS_step_timeout_s": f"{20 * pace():g}"}
            self._trial = self._pool.trial("training", self.size, flags, folder=str(self._place))
            self._trials += 1
            self._orders = 0
        trainer.send(self._place, self._orders, order)
        self._orders += 1

    def receive(self) -> Found:
        """What each rank has at the end of the last order.

        Raises:
            ChildProcessError: If one of them ended; it says what all printed.
            TimeoutError: If one takes too long.
        """
        assert self._trial is not None
        try:
            for rank in range(self.size):
                self._trial.until(rank, self._orders, 20.0 * SLACK)
        except (ChildProcessError, TimeoutError) as error:
            with self._trial as trial, contextlib.suppress(TimeoutError):
                trial.wait(10.0)  # the one that failed first may still be about to say so
            self._trial = None
            raise type(error)(f"{str(error).splitlines()[0]}{trial.everything()}") from None
        return [trainer.receive(self._place, self._orders - 1, rank) for rank in range(self.size)]

    def end(self) -> None:
        if self._trial is not None:
            with self._trial as trial:
                trainer.send(self._place, self._orders, None)
                codes = trial.wait(10.0 * SLACK)
                assert set(codes.values()) == {0}, trial.everything()
                assert not any(trial.err(rank) for rank in range(self.size)), trial.everything()
            self._trial = None


@pytest.fixture(scope="module")
def ranks(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Ranks]]:
    """So many connected processes."""
    made: dict[int, Ranks] = {}

    def of(size: int) -> Ranks:
        if size not in made:
            made[size] = Ranks(pool, size, tmp_path_factory.mktemp(f"ranks{size}"))
        return made[size]

    yield of
    for one in made.values():
        one.end()


# ---------------------------------------------------------------------------------------------------------- what is right
def alike(found: Found) -> None:
    """All ranks have the same parameters, moments and statistics, bit for bit."""
    for rank, other in enumerate(found):
        assert other.keys() == found[0].keys()
        for name in other.keys() - {"losses"}:
            np.testing.assert_array_equal(other[name], found[0][name], err_msg=f"rank {rank} and rank 0: {name}")


def near(order: Order, found: Found, nets: Nets) -> None:
    """One place that works for all gets the same, within rounding, and so does the mean of the losses."""
    one = nets.alone(order.batch, order.sizes, order.steps)
    agree(without_losses(found[0]), one)
    every = order.choice["num_iteration_per_run"]
    agree({"losses": losses_of(found).mean(1)}, {"losses": nets.losses[every - 1 :: every, 0]})


def equal(order: Order, found: Found, nets: Nets) -> None:
    """As many places of one process get the same, bit for bit, when they add in the same order."""
    build = strategy(sync_batch_norm=order.norm)
    levels = [len(order.rows[0]), order.choice.get(BLOCK, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_sum, "add_in_order", in_levels(levels))
        # Where ops are torch's, its form of the sum would be called in its place.
        patch.setattr(ordered_sum, "SUM", ordered_sum.HOST_SUM)
        together = nets.together(order.batch, order.sizes, order.steps, build)
    every = order.choice["num_iteration_per_run"]
    np.testing.assert_array_equal(
        losses_of(found), nets.losses[every - 1 :: every], err_msg="processes and places: losses"
    )
    for name, array in together.items():
        np.testing.assert_array_equal(found[0][name], array, err_msg=f"processes and places: {name}")


def without_losses(found: dict[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in found.items() if name != "losses"}


def losses_of(found: Found) -> Array:
    """``[runs, places of all processes]``."""
    return np.concatenate([one["losses"] for one in found], axis=1)


def in_levels(levels: Sequence[int]) -> Callable[[Sequence[Array], Sequence[Array]], None]:
    """An ``add_in_order`` that first adds each ``levels[0]`` neighbours, then each ``levels[1]`` of their sums, then all."""
    plain = ordered_sum.add_in_order

    def add(parts: Sequence[Array], targets: Sequence[Array]) -> None:
        for count in levels:
            totals = [np.empty_like(part) for part in parts[::count]]
            for i, total in enumerate(totals):
                plain(parts[i * count : (i + 1) * count], [total])
            parts = totals
        plain(parts, targets)

    return add


def check(ranks: Ranks, order: Order) -> None:
    ranks.send(order)
    nets = order.nets()
    found = ranks.receive()
    alike(found)
    near(order, found, nets)
    if order.strict:
        equal(order, found, nets)


# ------------------------------------------------------------------------------------------------------------------ tests
@st.composite
def orders(draw: st.DrawFn, processes: int) -> Order:
    places = draw(st.integers(1, 2))
    norm = draw(st.booleans())
    count, total = st.integers(2 if norm else 1, 6), places * processes
    sizes = draw(count.map(lambda n: [n] * total) | st.lists(count, min_size=total, max_size=total))
    choice: dict[str, Any] = draw(st.fixed_dictionaries({n: st.sampled_from(v) for n, v in CHOICES.items()}))
    if draw(st.booleans()):
        choice |= dict.fromkeys(EVERY_FUSION, True)
    if norm:
        choice["sync_batch_norm"] = True
    elif processes > 2 and draw(st.booleans()):  # statistics are added over all processes at once
        choice |= {"use_hierarchical_allreduce": True, BLOCK: 2}
    return Order(
        optimizer=draw(st.sampled_from(sorted(OPTIMIZERS))),
        clip=draw(st.sampled_from(sorted(CLIPS))),
        norm=norm,
        rows=tuple(tuple(sizes[at : at + places]) for at in range(0, len(sizes), places)),
        choice=choice,
        steps=draw(st.sampled_from([2, 4])),
        strict=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


@pytest.mark.slow
@settings(max_examples=TRAININGS)
@given(order=orders(2))
def test_two_processes_train_as_one_place_does(ranks: Callable[[int], Ranks], order: Order) -> None:
    check(ranks(2), order)


@pytest.mark.slow
@settings(max_examples=max(1, TRAININGS // 2))
@given(order=orders(4))
def test_four_processes_train_as_one_place_does(ranks: Callable[[int], Ranks], order: Order) -> None:
    check(ranks(4), order)


ORDER = Order(
    optimizer="momentum",
    clip="none",
    norm=False,
    rows=((3, 2), (1, 4), (2, 2), (3, 1)),
    choice={name: values[0] for name, values in CHOICES.items()},
    steps=4,
    strict=True,
    seed=3,
)
PAIR = replace(ORDER, rows=ORDER.rows[:2])


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_switches_agree_in_all_pairs(ranks: Callable[[int], Ranks], row: int) -> None:
    optimizer = sorted(OPTIMIZERS)[row % len(OPTIMIZERS)]
    check(ranks(2), replace(PAIR, optimizer=optimizer, clip="global", choice=ROWS[row], seed=row))


@pytest.mark.parametrize("switch", ["fuse_gemm_epilogue", "fused_feedforward"])
def test_gradients_of_fused_products_are_added_up(ranks: Callable[[int], Ranks], switch: str) -> None:
    """What a fused op makes of several gradients, each parameter's is found in."""
    check(ranks(2), replace(PAIR, choice={**ORDER.choice, switch: True}, strict=False))


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("own start", "rank 1 and rank 0: fc_"),
        ("rank left out", "Not equal to tolerance"),
        ("wrong mean", "Not equal to tolerance"),
        ("other order", "processes and places: "),
    ],
)
def test_planted_faults_are_seen(ranks: Callable[[int], Ranks], fault: str, seen: str) -> None:
    with pytest.raises(AssertionError, match=seen):
        check(ranks(4), replace(ORDER, fault=fault))


def test_each_training_begins_with_the_parameters_of_rank_0(ranks: Callable[[int], Ranks]) -> None:
    for seed in range(2):  # the same program in another Executor and scope
        check(ranks(2), replace(PAIR, seed=seed))


def test_a_rank_that_fails_is_shown_and_replaced(ranks: Callable[[int], Ranks]) -> None:
    with pytest.raises(ChildProcessError, match="KeyError: 'no such fault'"):
        check(ranks(2), replace(PAIR, fault="no such fault"))
    check(ranks(2), PAIR)
