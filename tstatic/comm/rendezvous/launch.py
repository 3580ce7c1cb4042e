"""Reads this process's rank from the launcher's environment: torchrun's variables, then SLURM's, then Paddle's."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from tstatic.comm.liveness import exits
from tstatic.comm.rendezvous import NO_LAUNCHER, ProcessInfo, depart
from tstatic.comm.transport.gloo import Store
from tstatic.errors import StrategyValueError, TstaticError
from tstatic.locks import lock
from tstatic.logs import get_logger

_SLURM_PORTS = (20000, 20000)
"""First port, and number of ports: below the range that Linux uses for outgoing connections."""
_log = get_logger("dist")


class LaunchError(TstaticError, ValueError):
    """Raised if the launcher's environment variables contradict each other, or some are missing."""


class Trainers(Protocol):
    """The BuildStrategy properties that describe the process group."""

    @property
    def num_trainers(self) -> int: ...
    @property
    def trainer_id(self) -> int: ...
    @property
    def trainers_endpoints(self) -> Sequence[str]: ...


_current: ProcessInfo | None = None
_announcing: list[int] = []
"""Id of the process that tells the others if it ends before it joins them; empty if none does."""
_lock = lock()


def current() -> ProcessInfo:
    """Returns this process's position, read from the environment at the first call.

    Raises:
        LaunchError: If the variables of a launcher contradict each other.
    """
    global _current
    with _lock:
        if _current is None:
            # Once: a script that changes the variables later does not move to another rank.
            _current = read(os.environ)
            if _current.size > 1 and not _announcing:
                atexit.register(_announce)
                # By process: a forked child inherits the handler, and must not speak for its parent.
                _announcing.append(os.getpid())
            if _current.source != NO_LAUNCHER:
                _log.info(
                    "rank %d of %d (local rank %d), meeting at %s:%d: from %s",
                    _current.rank, _current.size, _current.local_rank, _current.address, _current.port, _current.source,
                )  # fmt: skip
        return _current


def arrived() -> None:
    """Records that this process is joining the others: from now on its connections show when it ends."""
    _announcing.clear()


def left(rank: int) -> str:
    """Returns the name under which a rank that ends before the others meet writes so into torchrun's table."""
    return f"left/{rank}"


def _announce() -> None:
    """Tells rank 0, if it is waiting, that this process ended before it joined the others."""
    if _current is None or _announcing != [os.getpid()]:
        return
    error: BaseException | None = getattr(sys, "last_value", None)
    why = "ended its program before it met the others" if error is None else exits.describe(error)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # A process that is ending cannot import torch any more; if it fails, torchrun itself ends the others.
        if "torch" in sys.modules:
            with contextlib.suppress(Exception):
                _announce_to_agent(_current, why)
    elif _current.rank:
        # This process may fail just before rank 0 listens, so wait a little; a program that ends normally does not wait.
        depart(_current, why, 0.0 if error is None else 2.0, restart(os.environ))


def _announce_to_agent(mine: ProcessInfo, why: str) -> None:
    """Writes it into the table of torchrun's agent, and tells rank 0 if it listens already."""
    store = Store(mine, None, time.monotonic() + 2.0, agent=True, patient=False)
    # First the table, then the port: rank 0 looks in the other order, so one of the two sees it.
    store.table.set(left(mine.rank), why)
    if mine.rank and store.table.check(["desk"]):
        depart(replace(mine, port=int(store.table.get("desk").decode())), why, 0.0, restart(os.environ))


def restart(environ: Mapping[str, str]) -> str:
    """Returns the number of times that torchrun has restarted this job."""
    return environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def resolve_process(strategy: Trainers) -> ProcessInfo:
    """Returns the position that the environment and a strategy agree on, and makes it the current one.

    Raises:
        StrategyValueError: If they do not agree.
    """
    global _current
    found = agree(current(), strategy)
    with _lock:
        _current = found
    return found


def _reset_for_tests() -> None:
    global _current
    _current = None


def read(environ: Mapping[str, str]) -> ProcessInfo:
    """Reads the variables of the first launcher that set any; without any, there is a single process.

    Raises:
        LaunchError: If they are incomplete or contradict each other.
    """
    return _torchrun(environ) or _slurm(environ) or _paddle(environ) or ProcessInfo()


def _torchrun(environ: Mapping[str, str]) -> ProcessInfo | None:
    if "RANK" not in environ:
        if _number(environ, "WORLD_SIZE", 1, 1) == 1:  # some images export it for every process
            return None
        raise _missing("torchrun", "RANK", f"WORLD_SIZE={environ['WORLD_SIZE']} without RANK", "unset WORLD_SIZE")
    if "WORLD_SIZE" not in environ:
        raise _missing("torchrun", "WORLD_SIZE", f"RANK={environ['RANK']} without WORLD_SIZE", "unset RANK")
    rank, size = _ranks(environ, "RANK", "WORLD_SIZE")
    address, port = environ.get("MASTER_ADDR", ""), _number(environ, "MASTER_PORT", 0, 0, 65535)
    if size > 1 and not (address and port):
        name = "MASTER_PORT" if address else "MASTER_ADDR"
        raise _missing("torchrun", name, f"RANK={rank}, WORLD_SIZE={size} without {name}", "unset RANK and WORLD_SIZE")
    local = _number(environ, "LOCAL_RANK", rank, 0)
    together = _number(environ, "LOCAL_WORLD_SIZE", 0, 1)
    # torchrun calls a job "none" unless --rdzv_id, or --standalone, names it.
    named = environ.get("TORCHELASTIC_RUN_ID", "none")
    job = f"torchrun {named}" if named not in ("", "none") else ""
    return ProcessInfo(rank, size, local, address, port, "torchrun's RANK and WORLD_SIZE", together, job)


def _slurm(environ: Mapping[str, str]) -> ProcessInfo | None:
    if "SLURM_PROCID" not in environ or "SLURM_NTASKS" not in environ:
        return None
    # A step may have fewer tasks than the job.
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    rank, size = _ranks(environ, "SLURM_PROCID", tasks)
    if size > 1 and "SLURM_JOB_ID" in environ and not {"SLURM_STEP_ID", "SLURM_STEPID"} & set(environ):
        # The batch script's own process has the job's SLURM_NTASKS, but the other tasks were not started.
        _log.info("SLURM_NTASKS=%d belongs to tasks that srun starts; this process was not: single", size)
        return None
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
    address = environ.get("MASTER_ADDR") or first_host(nodes)
    if size > 1 and not address:
        raise _missing("srun", "SLURM_JOB_NODELIST", f"SLURM_PROCID={rank}, {tasks}={size} without a list of nodes")
    first, ports = _SLURM_PORTS
    # All tasks of a step compute the same port; jobs that share a node get different ones.
    chosen = first + (_number(environ, "SLURM_JOB_ID", 0, 0) * 7 + _number(environ, "SLURM_STEP_ID", 0, 0)) % ports
    # The user's own goes first: a cluster may open a single port between its nodes.
    port = _number(environ, "MASTER_PORT", chosen, 1, 65535)
    local = _number(environ, "SLURM_LOCALID", 0, 0)
    per_node = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    alike = re.fullmatch(r"(\d+)(\(x\d+\))?", per_node)
    together = int(alike[1]) if alike else 0
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or "0"
    job = f"SLURM {environ['SLURM_JOB_ID']}.{step}" if environ.get("SLURM_JOB_ID") else ""
    return ProcessInfo(rank, size, local, address, port, f"SLURM's SLURM_PROCID and {tasks}", together, job)


def _paddle(environ: Mapping[str, str]) -> ProcessInfo | None:
    if "PADDLE_TRAINER_ID" not in environ and "PADDLE_TRAINERS_NUM" not in environ:
        return None
    listed = _endpoints(environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(","))
    if "PADDLE_TRAINERS_NUM" not in environ:
        environ = {**environ, "PADDLE_TRAINERS_NUM": str(max(1, len(listed)))}
    if "PADDLE_TRAINER_ID" not in environ:
        if _number(environ, "PADDLE_TRAINERS_NUM", 1, 1) == 1:
            return None
        raise _missing("paddle.distributed.launch", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM without it")
    rank, size = _ranks(environ, "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")
    source = "Paddle's PADDLE_TRAINER_ID and PADDLE_TRAINERS_NUM"
    if size == 1:
        return ProcessInfo(source=source)
    job = environ.get("PADDLE_JOB_ID", "").strip()
    if not listed and environ.get("PADDLE_MASTER", "").strip():
        return replace(_from_master(environ, rank, size), job=job)
    if len(listed) != size:
        raise _contradiction(
            "PADDLE_TRAINER_ENDPOINTS does not fit PADDLE_TRAINERS_NUM",
            f"{size} endpoints, 'host:port' each, separated by commas",
            f"{len(listed)}: {','.join(listed) or 'none'}",
        )
    own = environ.get("PADDLE_CURRENT_ENDPOINT", "").strip()
    if own and own != listed[rank]:
        raise _contradiction(
            "PADDLE_CURRENT_ENDPOINT is not this trainer's",
            f"{listed[rank]}, which PADDLE_TRAINER_ENDPOINTS lists for PADDLE_TRAINER_ID={rank}",
            own,
        )
    return replace(_from_endpoints(rank, listed, source), job=job)


def _from_master(environ: Mapping[str, str], rank: int, size: int) -> ProcessInfo:
    """Returns the position where only the address of rank 0 is known."""
    address, _, port = environ["PADDLE_MASTER"].strip().rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _contradiction("PADDLE_MASTER is not an address", "host:port", repr(environ["PADDLE_MASTER"]))
    nodes = _number(environ, "PADDLE_NNODES", 1, 1)
    local = _number(environ, "PADDLE_LOCAL_RANK", 0 if nodes > 1 else rank, 0)
    together = size // nodes if size % nodes == 0 else 0
    return ProcessInfo(rank, size, local, address, int(port), "Paddle's PADDLE_TRAINER_ID and PADDLE_MASTER", together)


def _from_endpoints(rank: int, listed: Sequence[str], source: str) -> ProcessInfo:
    hosts = [one.rpartition(":")[0] for one in listed]
    address, _, port = listed[0].rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65536:
        raise LaunchError(
            "the first trainer's endpoint is not an address",
            expected="host:port, such as 127.0.0.1:6170",
            received=repr(listed[0]),
            fix="write every endpoint as host:port",
        )
    counts = [len([*same]) for _, same in itertools.groupby(hosts)]
    together = counts[0] if len({*counts}) == 1 and len(counts) == len({*hosts}) else 0
    return ProcessInfo(rank, len(listed), hosts[:rank].count(hosts[rank]), address, int(port), source, together)


def _endpoints(listed: Sequence[str]) -> list[str]:
    return [one.strip() for one in listed if one.strip()]


def agree(launch: ProcessInfo, strategy: Trainers) -> ProcessInfo:
    """Combines the launcher's values with those of a ``BuildStrategy``.

    ``num_trainers = 1``, the default, means the launcher's values. Any other value must equal the launcher's; without a
    launcher, ``trainers_endpoints`` and ``trainer_id`` describe the processes.

    Raises:
        StrategyValueError: If the two disagree, or, without a launcher, the strategy's properties do not fit each other.
    """
    count, own = strategy.num_trainers, strategy.trainer_id
    if count == 1:
        return launch
    listed = _endpoints(strategy.trainers_endpoints)
    if launch.source == NO_LAUNCHER:
        if len(listed) != count:
            raise StrategyValueError(
                "the trainer numbers is not equal to endpoint numbers, and no launcher started this process",
                expected=f"{count} trainers_endpoints for num_trainers={count}",
                received=f"{len(listed)}: {listed}",
                fix="start the script with torchrun and leave num_trainers at 1, or list every trainer's 'host:port'",
            )
        if own >= count:
            raise _disagrees("trainer_id", f"less than num_trainers={count}", own)
        return _from_endpoints(own, listed, "BuildStrategy.trainers_endpoints")
    if count != launch.size:
        raise _disagrees("num_trainers", f"{launch.size}, from {launch.source}, or 1", count)
    if own != launch.rank:
        raise _disagrees("trainer_id", f"{launch.rank}, from {launch.source}", own)
    if listed and len(listed) != count:
        raise _disagrees("trainers_endpoints", f"{count} of them, or none", len(listed))
    return launch


def _disagrees(name: str, expected: str, received: object) -> StrategyValueError:
    return StrategyValueError(
        f"BuildStrategy.{name} disagrees with how this process was started",
        expected=expected,
        received=received,
        fix="leave num_trainers at 1, or set num_trainers=distributed.get_world_size() and "
        "trainer_id=distributed.get_rank()",
    )


def _ranks(environ: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    size = _number(environ, size_name, 1, 1)
    rank = _number(environ, rank_name, 0, 0)
    if rank >= size:
        raise LaunchError(
            f"the environment variables {rank_name} and {size_name} contradict each other",
            expected=f"{rank_name} from 0 to {size - 1} for {size_name}={size}",
            received=f"{rank_name}={rank}",
            fix=f"start all processes by one launcher, or unset {rank_name} and {size_name}",
        )
    return rank, size


def _number(environ: Mapping[str, str], name: str, default: int, low: int, high: int | None = None) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
        raise LaunchError(
            f"the environment variable {name} is not a number that a launcher sets",
            expected=f"a whole number from {low}" + ("" if high is None else f" to {high}"),
            received=repr(text),
            fix=f"unset {name}, or let a launcher set it",
        )
    return int(text)


def _contradiction(what: str, expected: str, received: str) -> LaunchError:
    return LaunchError(
        f"the environment variable {what}",
        expected=expected,
        received=received,
        fix="start the processes by one launcher, or correct the variables",
    )


def _missing(launcher: str, name: str, received: str, otherwise: str = "") -> LaunchError:
    return LaunchError(
        f"the environment variable {name} is missing",
        expected=f"all variables of one launcher ({launcher} sets {name})",
        received=received,
        fix=f"start the script with {launcher}" + (f", or {otherwise} to run a single process" if otherwise else ""),
    )


def first_host(nodes: str) -> str:
    """Returns the first host of a SLURM list of nodes: ``node[03-05,9],gpu1`` starts with ``node03``."""
    done: list[str] = []
    rest = nodes.strip()
    while rest:
        stop = next((i for i, c in enumerate(rest) if c in "[,"), len(rest))
        done.append(rest[:stop])
        if stop == len(rest) or rest[stop] == ",":
            break
        inside, _, rest = rest[stop + 1 :].partition("]")
        done.append(inside.split(",")[0].split("-")[0])
    return "".join(done)
