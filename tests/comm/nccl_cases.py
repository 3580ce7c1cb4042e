"""What ranks do that are a GPU each, or what stands in for one, and whose values NCCL moves, or what stands in for that."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.comm.cases import group, say, wait_for_line
from tstatic import flags, places


@contextlib.contextmanager
def own_gpu(folder: str, index: int) -> Iterator[Any]:
    """Puts a GPU in the place of this process's first one, and NCCL between the processes."""
    # Here: both import torch, which the other cases have no need of.
    from tests.helpers.gpu import StandIn
    from tests.helpers.nccl_by_gloo import GlooNccl
    from tstatic.comm.transport import nccl
    from tstatic.devices import cuda

    made = StandIn()
    library = GlooNccl(Path(folder), made.cuda)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", str(index))
        patch.setattr(cuda, "device", lambda _: made)
        patch.setattr(places, "_count_gpus", lambda visible: 1)
        patch.setattr(nccl, "load", lambda: library)
        yield made


def nccl_training(
    folder: str, kind: str, steps: int, collectives: str, one_gpu: bool, in_graph: bool = False
) -> None:  # fmt: skip
    """Says what was chosen, losses and parameters, the waits and bytes of the last step, and how many graphs it launched.

    Last what explain says of graphs: how many there are, and the collectives outside of them.
    """
    from tests.parallel.test_late_devices import Net, visits

    rank = group().rank
    flags.set_flags({"FLAGS_collectives": collectives, "FLAGS_collectives_in_graph": in_graph})
    with own_gpu(folder, 0 if one_gpu else rank) as device:
        net = Net(kind, places.CUDAPlace(0), 1, of=group().size, part=rank)
        losses = [float(np.mean(net.step())) for _ in range(steps)]
        launches = sum(graph.launches for graph in device.cuda.graphs)
        with visits(device) as found:
            losses.append(float(np.mean(net.step())))
        launches = sum(graph.launches for graph in device.cuda.graphs) - launches
        (replicas,) = net.exe._replicas.values()
        say([str(one) for one in replicas.choices][-1])
        say(losses)
        say([one.hex()[:32] for one in net.values()[0]])
        say(dict(found))
        say(launches)
        told = net.program.explain(fetch_list=[net.loss])
        say(len(told.graphs), sorted(one.op.type for one in told.outside_graphs if one.op.type.startswith("c_")))


def nccl_sizes(folder: str, kind: str, rows: list[int], collectives: str, others: list[int] | None = None) -> None:
    """Says the parameters after steps of so many rows, between which the second one is written by hand, and what was chosen.

    ``others``: The rows of all ranks but the first, where these differ.
    """
    from tests.parallel.test_late_devices import Net

    rank = group().rank
    flags.set_flags({"FLAGS_collectives": collectives})
    with own_gpu(folder, rank):
        net = Net(kind, places.CUDAPlace(0), 1, of=group().size, part=rank)
        for number, count in enumerate(others if others and rank else rows):
            net.step({name: value[:count] for name, value in net.feed.items()})
            if number == 1:
                net.scope.var(net.main.all_parameters()[1].name).get_tensor().set(np.full(4, 0.5, np.float32))
        (replicas,) = net.exe._replicas.values()
        say(replicas.choices[-1].name, [one.hex() for one in net.values()[0]])


def nccl_suffers(folder: str, kind: str) -> None:
    """Trains; in the fourth step the last rank does something, and the others say what they are told, and how long it took."""
    from tests.parallel.test_late_devices import ROWS, Net

    world = group()
    with own_gpu(folder, world.rank):
        net = Net("plain", places.CUDAPlace(0), 1, of=world.size, part=world.rank)
        for _ in range(3):
            net.step()
        victim = world.rank == world.size - 1
        # All have ended the third step: none learns of the failure there, nor in this exchange.
        world.exchange("three steps", None)
        if victim:
            for rank in range(world.size - 1):
                wait_for_line(rank)
        else:
            say("three steps")
        start = time.monotonic()
        if victim and kind == "exits":
            os._exit(7)
        if victim and kind == "raises":
            raise ValueError("planted")
        if victim and kind == "sleeps":
            time.sleep(1000.0)
        if victim and kind == "leaves":
            return
        feed = dict(net.feed)
        if victim and kind == "refuses":
            feed["y"] = np.full_like(feed["y"], ROWS + 5)
        try:
            net.step(feed)
        except Exception as error:
            say("error", time.monotonic() - start, type(error).__name__, str(error))
            raise
