"""Joined steps compute what steps one after the other compute, in whatever order the tasks run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tstatic.devices import immediate
from tstatic.devices.cpu import tile_chain as module
from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.cpu.pool import Pool, TileFailed
from tstatic.devices.cpu.tile_chain import TileChain, chain_steps, find_failed_op
from tstatic.devices.step import BoundStep, ReadyStep, Region, Workspace, spans_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def

SIZE = 64


def digest(reads: list[Any], writes: list[Any], salt: int) -> None:
    """Writes something that depends on every value read and on what stood in the place before."""
    total = salt
    for a in reads:
        for v in a:
            total = (total * 31 + int(v)) % 1000003
    for a in writes:
        for i in range(len(a)):
            a[i] = (total + 7 * i + int(a[i])) % 1000003


def random_works(rng: random.Random, memory: Any) -> list[tuple[BoundStep, int]]:
    works = []
    for owner in range(rng.randint(2, 7)):
        work = BoundStep()
        count = rng.choice([1, 2, 4, 8])
        width = SIZE // 4 // count
        # Tiles of one step never disturb each other: that is what cutting it promises.
        source = rng.randrange(0, SIZE - 16, 4)
        target = rng.choice([t for t in range(0, SIZE - 16, 4) if abs(t - source) >= 16 or t == source])
        whole = rng.random() < 0.2 and target != source
        sums = [np.zeros(1, np.int64) for _ in range(count)] if rng.random() < 0.3 else []
        for i in range(count):
            reads = [memory[source : source + 16] if whole else memory[source + i * width : source + (i + 1) * width]]
            writes = [sums[i]] if sums else [memory[target + i * width : target + (i + 1) * width]]
            call = (digest, (reads, writes, owner))
            work.add(lambda arrays, call=call: [call], (), reads, writes)
        if sums:
            out = memory[target : target + 1]
            work.after.append((digest, (sums, [out], owner)))
            work.after_spans += spans_of([*sums, out])
        works.append((work, owner))
    return works


def agree(seed: int) -> tuple[bool, int]:
    """Runs one random program both ways; also says how many steps were joined to others."""
    found = []
    steps = 0
    for together in (False, True):
        rng = random.Random(seed)
        memory = np.arange(SIZE, dtype=np.int64)
        works = random_works(rng, memory)
        parts = list(chain_steps(works, threads=2, no_chaining=not together))
        assert [o for p in parts for _, o in p.works] == list(range(len(works)))
        steps = len(works) - len(parts) if together else 0
        for part in parts:
            order = list(range(len(part.tasks)))
            rng.shuffle(order)
            for task in order:
                for w, p in part.tasks[task]:
                    for function, args in part.works[w][0].bind_workspace(Workspace())[p]:
                        function(*args)
            for work, _ in part.works:
                for function, args in work.after:
                    function(*args)
        found.append(memory)
    return bool((found[0] == found[1]).all()), steps


def test_the_order_of_tasks_does_not_matter() -> None:
    joins = 0
    for seed in range(400):
        same, steps = agree(seed)
        assert same, seed
        joins += steps
    assert joins > 100, "the programs must give it something to join"


@pytest.mark.parametrize(
    "fault",
    [
        lambda found, new: set(),
        lambda found, new: set(list(module_overlaps(found, new))[1:]),
    ],
    ids=["no conflict is seen", "one conflict is missed"],
)
def test_a_missed_conflict_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, "_overlaps", fault)
    assert not all(agree(seed)[0] for seed in range(400))


module_overlaps = module._overlaps


def tiles(calls: list[Any], spans: list[Any]) -> BoundStep:
    work = BoundStep()
    for call, (reads, writes) in zip(calls, spans, strict=True):
        work.add(lambda arrays, call=call: [call], (), reads, writes)
    return work


def test_a_step_that_needs_the_whole_batch_is_not_joined() -> None:
    memory = np.zeros(16)
    halves = [([], [memory[i : i + 4]]) for i in range(0, 16, 4)]
    nothing = (lambda: None, ())
    chain = TileChain(tiles([nothing] * 4, halves), "a", threads=1)
    out = np.zeros(4)
    assert not chain.add(tiles([nothing] * 4, [([memory], [out[i : i + 1]]) for i in range(4)]), "b")
    assert chain.add(tiles([nothing] * 4, [([w[0]], [out[i : i + 1]]) for i, (_, w) in enumerate(halves)]), "c")
    assert len(chain.tasks) == 4


def test_what_is_added_up_afterwards_is_not_read_before() -> None:
    parts, total = [np.zeros(1) for _ in range(4)], np.zeros(1)
    nothing = (lambda: None, ())
    work = tiles([nothing] * 4, [([], [p]) for p in parts])
    work.after.append(nothing)
    work.after_spans += spans_of([*parts, total])
    chain = TileChain(work, "sum", threads=1)
    elsewhere = np.zeros(4)
    assert not chain.add(tiles([nothing] * 4, [([total], [elsewhere[i : i + 1]]) for i in range(4)]), "reader")
    assert chain.add(tiles([nothing] * 4, [([], [elsewhere[i : i + 1]]) for i in range(4)]), "other")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_names_its_step(threads: int) -> None:
    memory = np.zeros(8)
    halves = [memory[:4], memory[4:]]

    def fail() -> None:
        raise ValueError("no")

    nothing = (lambda: None, ())
    first = tiles([nothing, nothing], [([], [h]) for h in halves])
    second = tiles([nothing, (fail, ())], [([h], [h]) for h in halves])
    chain = TileChain(first, "first", threads)
    assert chain.add(second, "second")
    pool = Pool(threads) if threads > 1 else None
    calls, op_of_call = chain.bind_workspaces([Workspace() for _ in range(threads)], pool)
    failed = []
    for (function, args), owner in zip(calls, op_of_call, strict=True):
        try:
            function(*args)
        except (ValueError, TileFailed) as error:
            failed.append(find_failed_op(error, owner))
    assert [(type(e), o) for e, o in failed] == [(ValueError, "second")]
    if pool is not None:
        pool.close()


def test_memory_that_is_not_known_closes_a_step() -> None:
    work, known = BoundStep(), BoundStep()
    for one in (work, known):
        one.add(lambda arrays: [], (), [None, [None, np.zeros(2)]], [np.zeros(1)])
    assert known.spans is not None
    work.add(lambda arrays: [], (), [object()], [])
    assert work.spans is None
    assert not TileChain(work, "a", 1).add(tiles([(print, ())], [([], [])]), "b")


def test_comparing_steps_grows_with_the_length_of_a_program_and_not_with_its_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = [0]
    overlaps = module._overlaps

    def counted(found: Any, new: Any) -> Any:
        compared[0] += len(found) * len(new)
        return overlaps(found, new)

    monkeypatch.setattr(module, "_overlaps", counted)
    memory = np.arange(64, dtype=np.int64)

    def cost(steps: int) -> int:
        compared[0] = 0
        works = []
        for _ in range(steps):
            work = BoundStep()
            for i in range(8):
                own = memory[8 * i : 8 * i + 8]
                work.add(lambda arrays: [], (), [own], [own])
            works.append((work, 0))
        parts = list(chain_steps(works, threads=2))
        assert max(len(part.works) for part in parts) > 1
        assert sum(len(part.works) for part in parts) == steps
        return compared[0]

    assert cost(512) < 5 * cost(128)


def tiled(*reads: Any) -> BoundStep:
    """A step with a tile for each of these."""
    work = BoundStep()
    for i, one in enumerate(reads):
        work.add(lambda arrays, i=i: [(print, (i,))], (), [one], [np.zeros(1)])
    return work


@pytest.mark.parametrize(
    ("work", "threads", "pays"),
    [
        (tiled(np.zeros(1 << 20)), 2, False),  # a single tile
        (tiled(np.zeros(4), np.zeros(4)), 2, True),
        (tiled(np.zeros(4), np.zeros(4)), 1, False),
        (tiled(np.zeros(1 << 16), np.zeros(4)), 1, True),
        (tiled([None, np.zeros(1 << 16)], None), 1, True),
    ],
)
def test_steps_are_chained_where_threads_share_them_or_caches_do_not_hold_what_they_read(
    work: BoundStep, threads: int, pays: bool
) -> None:
    device, op = CpuDevice(), op_of_nothing()
    made = device.schedule([ReadyStep(op, device.stream(), work)] * 2, Region(threads, [Workspace()] * threads))
    assert immediate._pays_to_chain(work, threads) is pays
    if not pays:
        order = [args[0] for function, args in made.calls if function is print]
        assert order == [*range(len(work.tile_binders))] * 2, "in the order of the steps"


def op_of_nothing() -> FrozenOp:
    return FrozenOp(op_def("relu"), ("x",), ("y",), {})
