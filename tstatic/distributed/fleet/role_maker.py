"""Role makers: who this process is among those that a launcher started, or that the script lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from tstatic.comm.rendezvous import ProcessInfo, launch
from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.checks import check_int, check_type
from tstatic.no_effect import no_effect

ALONE = "127.0.0.1:6170"
"""The endpoint of a single process, which nobody connects to."""


class Role:
    """The roles of processes; there are workers only.

    Example:
        >>> from tstatic.distributed import fleet
        >>> role = fleet.UserDefinedRoleMaker(current_id=0, role=fleet.Role.WORKER, worker_num=1)
        >>> role.is_worker(), fleet.Role.WORKER
        (True, 1)
    """

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4
    COORDINATOR = 5


@dataclass(frozen=True)
class _Trainers:
    """What :func:`launch.resolve_process` reads of a strategy."""

    num_trainers: int
    trainer_id: int
    trainers_endpoints: Sequence[str]


def endpoints() -> list[str]:
    """Returns the addresses of all processes, as ``host:port``, in the order of their ranks."""
    mine = launch.current()
    listed = [one.strip() for one in os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if one.strip()]
    if len(listed) == mine.size:
        return listed
    if mine.size == 1:
        return [ALONE]
    # torchrun and SLURM give one address, that of rank 0.
    return [f"{mine.address}:{mine.port + rank}" for rank in range(mine.size)]


def node_num() -> int:
    """Returns the number of machines, as far as the launcher tells."""
    mine = launch.current()
    if mine.local_size and mine.size % mine.local_size == 0:
        return mine.size // mine.local_size
    return len({one.rpartition(":")[0] for one in endpoints()})


class RoleMakerBase:
    """Base class of the role makers.

    Args:
        is_collective: Whether the processes train together by collectives, which is the only way here.

    Raises:
        UnsupportedError: ``TRAINING_ROLE`` says that this process is a parameter server.

    Example:
        >>> from tstatic.distributed import fleet
        >>> from tstatic.distributed.fleet.base.role_maker import RoleMakerBase
        >>> role = fleet.PaddleCloudRoleMaker(is_collective=True)
        >>> isinstance(role, RoleMakerBase), role.worker_num()
        (True, 1)
    """

    def __init__(self, is_collective: bool = False) -> None:
        role = os.environ.get("TRAINING_ROLE", "TRAINER")
        if role != "TRAINER":
            raise servers(f"TRAINING_ROLE={role}")
        check_type(is_collective, (bool, np.bool_, int), "is_collective", type(self).__name__)
        self._is_collective = bool(is_collective)

    def _apply(self) -> None:
        """Makes the position that this object describes the process's own; a launcher's is so without it."""

    def _process(self) -> ProcessInfo:
        return launch.current()

    def _is_worker(self) -> bool:
        return True

    def _is_server(self) -> bool:
        return False

    def _is_first_worker(self) -> bool:
        return self._process().rank == 0

    def _worker_index(self) -> int:
        return self._process().rank

    def _worker_num(self) -> int:
        return self._process().size

    def _role_id(self) -> int:
        return self._worker_index()

    def _server_index(self) -> int:
        return 0

    def _server_num(self) -> int:
        return 0

    def _node_num(self) -> int:
        return node_num()

    def _get_node_num(self) -> int:
        return node_num()

    def _get_local_rank(self) -> int:
        return self._process().local_rank

    def _is_non_distributed(self) -> bool:
        return self._worker_num() == 1

    def _get_trainer_endpoints(self) -> list[str]:
        return endpoints()

    def _get_trainer_endpoint(self) -> str:
        return endpoints()[self._worker_index()]

    def _get_pserver_endpoints(self) -> list[str]:
        return []

    def _generate_role(self) -> None:
        """Does nothing: who this process is was found when it was asked for."""

    generate_role = _generate_role
    is_worker, is_server, is_first_worker = _is_worker, _is_server, _is_first_worker
    worker_index, worker_num, role_id = _worker_index, _worker_num, _role_id
    server_index, server_num = _server_index, _server_num
    get_trainer_endpoints, get_pserver_endpoints = _get_trainer_endpoints, _get_pserver_endpoints

    def to_string(self) -> str:
        """Returns role, number and endpoints, for logs."""
        mine = self._process()
        return f"role: {Role.WORKER}, current_id: {mine.rank}, worker_endpoints: {endpoints()}, server_endpoints: []"

    def __repr__(self) -> str:
        mine = self._process()
        return f"<{type(self).__name__}: rank {mine.rank} of {mine.size}>"


@no_effect(kwargs="it configures parameter servers, which do not exist here")
class PaddleCloudRoleMaker(RoleMakerBase):
    """Takes the role from the launcher's environment: torchrun's variables, SLURM's or Paddle's; without any, one process.

    Args:
        is_collective: Whether the processes train together by collectives.
        **kwargs: Settings of parameter servers.

    Raises:
        UnsupportedError: ``TRAINING_ROLE`` says that this process is a parameter server.

    Example:
        >>> from tstatic.distributed import fleet
        >>> fleet.init(fleet.PaddleCloudRoleMaker(is_collective=True))
        >>> fleet.worker_index(), fleet.worker_num()
        (0, 1)
    """

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        super().__init__(is_collective)


@no_effect(init_gloo="processes connect when they first exchange something")
class UserDefinedRoleMaker(RoleMakerBase):
    """Takes the role from the script: which of the listed endpoints this process is.

    Args:
        is_collective: Whether the processes train together by collectives.
        init_gloo: Connect now.
        current_id: Number of this process.
        role: ``Role.WORKER``.
        worker_num: Number of processes; that of the endpoints by default.
        worker_endpoints: The addresses of all processes, as ``host:port``.
        server_endpoints: Addresses of parameter servers; none.

    Raises:
        UnsupportedError: For another role, or with servers.
        ProgramError: ``current_id`` is not the number of an endpoint, or ``worker_num`` is not that of the endpoints.

    Example:
        >>> from tstatic.distributed import fleet
        >>> role = fleet.UserDefinedRoleMaker(current_id=0, worker_num=1, worker_endpoints=["127.0.0.1:6170"])
        >>> fleet.init(role)
        >>> fleet.worker_num()
        1
    """

    def __init__(
        self, is_collective: bool = False, init_gloo: bool = False, current_id: int = 0, role: int = Role.WORKER,
        worker_num: int = 0, worker_endpoints: Sequence[str] | None = None, server_endpoints: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(is_collective)
        op = type(self).__name__
        for key, given in (("worker_endpoints", worker_endpoints), ("server_endpoints", server_endpoints)):
            check_type(given, (list, tuple, NoneType), key, op, expected="a list of 'host:port'")
        if check_int(role, "role", op) != Role.WORKER or server_endpoints:
            raise servers(f"role={role}, server_endpoints={list(server_endpoints or ())}")
        count = check_int(worker_num, "worker_num", type(self).__name__, least=0, error=ProgramError)
        own = check_int(current_id, "current_id", type(self).__name__, least=0, error=ProgramError)
        listed = list(worker_endpoints or ())
        if not listed and count <= 1:
            listed = [ALONE]
        if (count and count != len(listed)) or own >= len(listed):
            raise ProgramError(
                "the role maker does not say which of the processes this one is",
                expected=f"worker_endpoints for all of {count or len(listed)} processes, and current_id below that",
                received=f"current_id={own}, worker_num={count}, worker_endpoints={listed}",
                fix="list every process's 'host:port', the same in all of them, or start the script with a launcher",
                op=type(self).__name__,
            )
        self._trainers = _Trainers(len(listed), own, listed)

    def _apply(self) -> None:
        launch.resolve_process(self._trainers)

    def _get_trainer_endpoints(self) -> list[str]:
        return list(self._trainers.trainers_endpoints)


class UserDefinedCollectiveRoleMaker(UserDefinedRoleMaker):
    """Takes the role from the script; the 1.x class for collectives.

    Args:
        current_id: Number of this process.
        worker_endpoints: The addresses of all processes, as ``host:port``.

    Raises:
        ProgramError: ``current_id`` is not the number of an endpoint.

    Example:
        >>> from tstatic.fluid.incubate.fleet.base import role_maker
        >>> role = role_maker.UserDefinedCollectiveRoleMaker(0, worker_endpoints=["127.0.0.1:6170"])
        >>> role.worker_index(), role.worker_num()
        (0, 1)
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__(True, current_id=current_id, worker_endpoints=worker_endpoints)


def servers(received: str) -> UnsupportedError:
    """Returns the error about parameter servers, which tstatic does not have."""
    return UnsupportedError(
        "parameter servers are not part of tstatic",
        expected="workers that train together by collectives",
        received=received,
        fix="call fleet.init(is_collective=True), and use static.nn.embedding(is_sparse=True) for large tables",
        op="fleet.init",
    )


__all__ = [
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
    "endpoints",
    "node_num",
]
