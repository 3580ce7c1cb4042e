"""A save that ends after any of its system calls: loads give the old state or the new one, and the next save completes it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tstatic as paddle
from tests.cpu.test_whole_saves import WAYS, Net, count_calls, ended, fork
from tests.helpers.other_user import as_nobody, open_folder
from tests.helpers.soak import SOAK
from tests.helpers.trees import snapshot
from tstatic.formats import leftovers

HOWS = list(WAYS) if SOAK else ["save", "save_persistables"]
LOADS = 10


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_save_that_ends_after_any_system_call_is_loaded_ten_times_and_then_completed(how: str) -> None:
    """Loads finished the save that they found; one that could not write found other files than one that could."""
    net = Net()
    seen, kept = [], 0
    with open_folder() as base:
        net.save(how, base / "old", 1.0)
        for last in range(1, 400):
            folder = base / str(last)
            shutil.copytree(base / "old", folder)

            def save(folder: Path = folder, last: int = last) -> None:
                count_calls(last)
                net.save(how, folder, 2.0)

            code = ended(fork(save))
            kept += (folder / leftovers.COMMITTED).exists()
            before = snapshot(folder)
            values = [net.load(how, folder) for _ in range(LOADS // 2)]
            told = as_nobody(lambda folder=folder: [net.load(how, folder) for _ in range(LOADS - LOADS // 2)])
            assert len(set(values)) == 1
            assert told == str(values), told
            assert snapshot(folder) == before, "reading changed the folder"
            seen.append(values[0])
            if last % 2:
                net.save(how, folder, 1.0)
                assert net.load(how, folder) == 1.0
            else:
                # A save of something else completes the one that broke off.
                paddle.save({}, folder / "other")
                assert net.load(how, folder) == values[0]
                (folder / "other").unlink()
            assert tuple(sorted(os.listdir(folder))) == WAYS[how].names
            if code == 0:
                break
            assert code == 9
    assert seen == sorted(seen), "there is one point at which the save counts"
    assert (seen[0], seen[-1]) == (1.0, 2.0)
    assert kept > (2 if len(WAYS[how].names) > 1 else -1), "it also ended between the commit and the last move"
    assert len(seen) > 15
