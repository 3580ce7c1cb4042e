"""What is written for a program is the same under any hash seed; a process per seed writes everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.helpers.fusion_programs import CASES, build
from tests.helpers.patience import HANG
from tests.helpers.soak import SOAK
from tstatic import static
from tstatic.ir.frozen import freeze
from tstatic.static.explain import dot
from tstatic.utils import unique_name

SIX = (0, 8, 10, 20, 25, 27)
SEEDS = range(10 if SOAK else 3)


def kernels_of_six() -> list[str]:
    """All kernels of six programs."""
    found = []
    for case in SIX:
        for switch in ("fuse_elewise_add_act_ops", "enable_auto_fusion"):
            # Variables are named by a counter of the process.
            with unique_name.guard():
                built = build(CASES[case])
            strategy = static.BuildStrategy()
            setattr(strategy, switch, True)
            shapes = {n: a.shape for n, a in built.feed.items()}
            told = static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches, feed_shapes=shapes)
            found += [k.text for k in told.kernels]
    return found


def graph() -> str:
    """The picture of a program."""
    built = build(CASES[10])
    return dot.graph(freeze(built.main, list(built.feed), built.fetches))


@cache
def written() -> list[dict[str, object]]:
    """What processes with each of the seeds write, two of them at a time."""
    waiting, found = list(SEEDS), []
    while waiting:
        seeds, waiting = waiting[:2], waiting[2:]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.cpu.test_hash_seeds"],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]
        for process in running:
            printed, _ = process.communicate(timeout=HANG)
            assert process.returncode == 0
            found.append(json.loads(printed.splitlines()[-1]))
    return found


@pytest.mark.slow
def test_kernels_do_not_depend_on_hash_seeds() -> None:
    wanted = kernels_of_six()
    assert len(wanted) > 12
    assert [one["kernels"] for one in written()] == [wanted] * len(SEEDS)


@pytest.mark.slow
def test_pictures_do_not_depend_on_hash_seeds() -> None:
    wanted = graph()
    assert len(wanted) > 100
    assert [one["graph"] for one in written()] == [wanted] * len(SEEDS)


if __name__ == "__main__":
    print(json.dumps({"graph": graph(), "kernels": kernels_of_six()}))
