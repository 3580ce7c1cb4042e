"""Connects the processes that a launcher started: rank 0's desk, the table of addresses, and connections of all with all."""

from __future__ import annotations

import json
import os

from tstatic.comm.liveness import exits
from tstatic.comm.liveness.mesh import Mesh, own_address
from tstatic.comm.rendezvous import ProcessInfo, Rendezvous, launch
from tstatic.comm.rendezvous.door import Door
from tstatic.comm.transport.gloo import Store, check_torch
from tstatic.errors import RankFailedError


def join(mine: ProcessInfo, deadline: float) -> tuple[Store, Mesh, Door | None]:
    """Joins the other ranks; returns the table for gloo, the connections to all of them, and on rank 0 the job's port."""
    check_torch()  # before anybody waits for this rank: without torch it can only fail
    run = launch.restart(os.environ)
    store: Store | None = None
    where = mine.address, mine.port
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The port belongs to torchrun's agent; rank 0 writes its own rendezvous port into the agent's table.
        store = Store(mine, None, deadline, agent=True)
        where = mine.address, _agents_port(store, mine, deadline)
    own = own_address(mine.address, mine.port, mine.source)
    launch.arrived()  # before the rendezvous, whose connections tell from now on
    rendezvous = Rendezvous(mine, where, run, deadline)
    try:
        mesh = Mesh(mine.rank, mine.size, own)
        if store is not None and mine.rank == 0:
            store.leave("desk", str(rendezvous.address[1]), deadline)
            # Of ranks that end from now on the port hears; those that ended before have written to the table.
            name, text = store.find([launch.left(rank) for rank in range(1, mine.size)], 0.0)
            if name:
                raise rendezvous.absent(next(r for r in range(1, mine.size) if launch.left(r) == name), text)
        if store is None and mine.rank == 0:
            store = Store(mine, None, deadline)
        texts = rendezvous.exchange(json.dumps({"address": mesh.address, "port": 0 if store is None else store.port}))
        said = {rank: json.loads(text) for rank, text in texts.items()}
        mesh.connect({rank: one["address"] for rank, one in said.items()}, deadline, rendezvous.watch)
        if store is None:
            store = Store(mine, said[0]["port"], deadline)
        door = rendezvous.leave()
    except BaseException as error:
        rendezvous.close(error, exits.describe(error))
        raise
    return store, mesh, door


def _agents_port(store: Store, mine: ProcessInfo, deadline: float) -> int:
    """Returns the port of rank 0, which it writes into the table of torchrun's agent; 0 on rank 0 itself.

    Raises:
        RankFailedError: If rank 0 ended before.
    """
    if mine.rank == 0:
        return 0
    name, text = store.find(["desk", launch.left(0)], deadline)
    if name == launch.left(0):
        raise RankFailedError(
            f"rank 0 of {mine.size} {text}",
            expected=f"{mine.size} processes that all start, as {mine.source} say",
            received=f"this is rank {mine.rank}",
            fix="look at that rank's own output and exit code",
        )
    return int(text or 0)


__all__ = ["join"]
