"""Faults planted in captured steps are all found, each by the check of nets that its row names."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import graph_faults as faults
from tests.helpers.captured_nets import NETS
from tests.helpers.captured_runs import differences, ran, refused, standing_in
from tstatic.errors import TstaticError

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

Check = Callable[[faults.Plant], bool]
"""Plants a fault, and says whether something is wrong then."""


def bits(device: str, name: str) -> Check:
    """Other bits than without a graph and without the fault, or an error, or no graph: ``test_captured_nets.py`` compares them."""

    def found(plant: faults.Plant) -> bool:
        with standing_in(device):
            plain = ran(NETS[name], "off")
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            with standing_in(device) as made:
                try:
                    captured = ran(NETS[name], "auto")
                except (TstaticError, RuntimeError, AssertionError):
                    return True
                return bool(differences(plain, captured)) or (device == "gpu" and bool(refused(made)))

    return found


def counts(plant: faults.Plant) -> bool:
    """A number of captures or launches that five runs of one plan have not."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with standing_in("gpu") as gpu:
            ran(NETS["adamw, clipped by the global norm"], "auto")
            return [graph.launches for graph in gpu.cuda.graphs] != [4]


def pools(plant: faults.Plant) -> bool:
    """Two threads whose graphs have one memory."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with standing_in("gpu") as gpu:
            kept: list[Any] = []  # a pool goes with its last graph
            for _ in range(2):
                thread = threading.Thread(
                    target=lambda: kept.append(ran(NETS["adamw, clipped by the global norm"], "auto"))
                )
                thread.start()
                thread.join()
            first, second = gpu.cuda.pools
            return first is second


FAULTS: dict[str, tuple[faults.Plant, Check]] = {
    "streams that do not join": (faults.no_join, bits("fake", "dropout")),
    "streams that do not part": (faults.no_fork, bits("fake", "dropout")),
    "a missing wait": (faults.missing_wait, bits("fake", "convolutions and batch norm")),
    "an event before its calls": (faults.early_event, bits("fake", "convolutions and batch norm")),
    "a wait for the launch before": (faults.waits_first, bits("fake", "dropout")),
    "a capture in the first run": (faults.captured_at_once, counts),
    "a capture in each run": (faults.captured_each_time, counts),
    "calls beside a launch": (faults.called_and_launched, bits("fake", "dropout")),
    "a capture without a launch": (faults.not_launched, bits("gpu", "dropout")),
    "a rate in the graph": (faults.frozen_rate, bits("gpu", "scheduled rate")),
    "a feed in the graph": (faults.frozen_feed, bits("fake", "dropout")),
    "a fetch before the wait": (faults.early_fetch, bits("fake", "embedding")),
    "a step of the host in the graph": (faults.host_captured, bits("gpu", "a function of python")),
    "a size of values in the graph": (faults.host_captured, bits("fake", "sizes that values decide")),
    "memory that moved": (faults.moved_memory, bits("fake", "another device in between")),
    "words that are not reset": (faults.words_kept, bits("fake", "bad positions")),
    "an update that does not ask": (faults.update_unasked, bits("fake", "bad positions")),
    "a refused run that counts": (faults.counted_run, bits("fake", "bad positions with dropout")),
    "a slot that is written too early": (faults.stale_slot, bits("fake", "convolutions and batch norm")),
    "one pool for two threads": (faults.one_pool, pools),
    "a broken capture that goes on": (faults.capture_left_on, bits("fake", "dropout")),
    "a broken capture's run that is skipped": (faults.broken_run_skipped, bits("fake", "dropout")),
    "a broken capture's run that is made twice": (faults.broken_run_twice, bits("fake", "dropout")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant, check = FAULTS[name]
    assert check(plant), plant.__doc__


def test_nothing_is_found_without_a_fault() -> None:
    """Of the checks that no other test makes in this form."""
    assert not counts(lambda patch: None)
    assert not pools(lambda patch: None)
    assert not bits("fake", "dropout")(lambda patch: faults.breaking(patch, 4))
