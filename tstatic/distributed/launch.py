"""``python -m tstatic.distributed.launch script.py``: starts the processes of a training, one log file each."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from tstatic import places
from tstatic.comm.liveness.mesh import own_address
from tstatic.comm.rendezvous import ProcessInfo, Rendezvous
from tstatic.comm.rendezvous.door import Door
from tstatic.distributed.departures import Departures
from tstatic.distributed.launching import environment, first_failure, free_ports, stop, without_launcher
from tstatic.errors import TstaticError

_START_PORT = 6170
"""The first port of processes on machines that ``--ips`` lists: all machines compute the same ones."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tstatic.distributed.launch",
        description="Starts processes that train together; each gets a number and the addresses of all as PADDLE_* variables.",
    )
    say = parser.add_argument
    say("--nproc_per_node", type=int, help="processes on this machine; by default one for each device, or 1")
    say("--nnodes", default="1", help="number of machines")
    say("--master", help="ip:port of the first machine, the same on all machines")
    say("--rank", type=int, default=-1, help="number of this machine, from 0")
    say("--devices", "--gpus", help="numbers of the GPUs of this machine: 0,1,2")
    say("--ips", help="addresses of all machines, in the order of their numbers")
    say("--host", help="address of this machine")
    say("--start_port", type=int, default=_START_PORT, help="first port of the processes, with --ips")
    say("--log_dir", default="log", help="folder of workerlog.<number>")
    say("--run_mode", default="collective", help="collective, which is the only one")
    say(
        "--job_id",
        default="",
        help="name of the job, the same on all machines; two jobs with different names never meet",
    )
    for name in ("--log_level", "--max_restart", "--elastic_timeout", "--log_overwrite", "--sort_ip"):
        say(name, help=argparse.SUPPRESS)
    say("script", help="the script")
    say("script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


class _Worker:
    """A process that runs the script; what it prints goes to its log, and to this terminal if it is shown."""

    def __init__(self, command: Sequence[str], environ: dict[str, str], log: Path, shown: bool) -> None:
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._log = log.open("wb")
        self._copier = threading.Thread(target=self._copy, args=(self._process.stdout, shown), daemon=True)
        self._copier.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def code(self) -> int | None:
        return self._process.poll()

    def _copy(self, source: IO[bytes], shown: bool) -> None:
        for line in source:
            self._log.write(line)
            self._log.flush()
            if shown:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()

    def close(self) -> None:
        self._copier.join(2.0)
        self._log.close()


def _machines(options: argparse.Namespace, fail: Any) -> tuple[int, int]:
    """Returns the number of machines and that of this one."""
    listed = [one for one in (options.ips or "").split(",") if one]
    text = str(options.nnodes)
    if not text.isdecimal() or int(text) < 1:
        fail(f"--nnodes {text}: a number from 1; the number of machines does not change while they train")
    nodes = max(int(text), len(listed))
    rank = options.rank
    if nodes == 1:
        return 1, 0
    if rank < 0 and options.host in listed:
        rank = listed.index(options.host)
    if not 0 <= rank < nodes:
        fail(f"--rank: the number of this machine, 0 to {nodes - 1}, is needed for {nodes} machines")
    if not listed and not options.master:
        fail("--master ip:port of the first machine, or --ips with all, is needed for several machines")
    return nodes, rank


@dataclass(frozen=True)
class _Job:
    """The processes of all machines.

    Attributes:
        endpoints: Their addresses.
        first: The number of the first one of this machine.
        name: A text that no other start has.
        door: What keeps the meeting point of the launchers; ``None`` if nothing does.
    """

    endpoints: list[str]
    first: int
    name: str
    door: Door | None = None


def _job(options: argparse.Namespace, nodes: int, node: int, count: int) -> _Job:
    """Returns the job; launchers of several machines meet for it.

    Raises:
        RankFailedError: If they do not meet, or launchers of another job are at the same address.
    """
    listed = [one for one in (options.ips or "").split(",") if one]
    name = "-".join(filter(None, (options.job_id, uuid.uuid4().hex)))
    if nodes == 1:
        host = listed[0] if listed else "127.0.0.1"
        ports = free_ports(count)
        if options.master and not listed:
            host, _, port = options.master.rpartition(":")
            ports[0] = int(port)
        return _Job([f"{host}:{port}" for port in ports], 0, name)
    if listed:
        endpoints = [f"{ip}:{options.start_port + i}" for ip in listed for i in range(count)]
        found, door = _meet(options, f"{listed[0]}:{options.start_port}", "--ips", nodes, node, {"name": name})
        if door is not None:
            door.close()  # the first process needs the port, and keeps it
        return _Job(endpoints, node * count, found[0]["name"])
    host, _, port = options.master.rpartition(":")
    own = options.host or own_address(host, int(port), "--master")
    mine = [f"{own}:{one}" for one in free_ports(count, "")]
    # The machines tell each other the addresses of their processes, at the address of the first one.
    found, door = _meet(
        options, options.master, "--master, --nnodes and --rank", nodes, node, {"name": name, "at": mine}
    )
    rows = [one["at"] for one in found]
    return _Job([one for row in rows for one in row], sum(map(len, rows[:node])), found[0]["name"], door)


def _meet(
    options: argparse.Namespace, at: str, source: str, nodes: int, node: int, mine: dict[str, Any]
) -> tuple[list[dict[str, Any]], Door | None]:
    """Exchanges values between the launchers of all machines, which must have been told the same."""
    host, _, port = at.rpartition(":")
    alike = json.dumps([options.script, options.script_args, options.job_id, options.ips])
    run = f"of launchers {hashlib.sha256(alike.encode()).hexdigest()[:16]}"
    rendezvous = Rendezvous(
        ProcessInfo(node, nodes, 0, host, int(port), source), (host, int(port)), run, time.monotonic() + 600.0
    )
    try:
        found = rendezvous.exchange(json.dumps(mine))
        door = rendezvous.leave()
    except BaseException as error:
        rendezvous.close(error)
        raise
    if door is not None:
        door.watch(lambda rank, text: None, lambda: False)
    return [json.loads(found[i]) for i in range(nodes)], door


def main(arguments: Sequence[str] | None = None) -> int:
    """Starts the processes and waits for them; returns 0, or the exit code of the first that failed.

    Args:
        arguments: The command line; that of this process if ``None``.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run_mode != "collective":
        parser.error(f"--run_mode {options.run_mode}: parameter servers are not part of tstatic; leave it out")
    devices = [one.strip() for one in (options.devices or "").split(",") if one.strip()]
    count = options.nproc_per_node or len(devices) or max(1, places.device_count())
    if count < 1:
        parser.error(f"--nproc_per_node {count}: a number from 1")
    nodes, node = _machines(options, parser.error)
    try:
        job = _job(options, nodes, node, count)
    except TstaticError as error:
        print(error, file=sys.stderr)
        return 1
    folder = Path(options.log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-u", options.script, *options.script_args]
    base = without_launcher(os.environ)
    workers: list[_Worker] = []

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    first = job.first
    told = [
        environment(job.endpoints, first + i, i, job.name, nodes, devices[i % len(devices)] if devices else None)
        for i in range(count)
    ]
    departures = Departures(told)
    try:
        for i in range(count):
            workers.append(_Worker(command, base | told[i], folder / f"workerlog.{first + i}", first + i == 0))
        failed = first_failure(workers, departures.tell)
    finally:
        stop(workers, 0.0)
        departures.close()
        if job.door is not None:
            job.door.close()
        for worker in workers:
            worker.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if failed is None:
        return 0
    code = workers[failed].code() or 1
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    print(
        f"rank {first + failed} ended with {how}; its output is in {folder}/workerlog.{first + failed}", file=sys.stderr
    )
    return code if code > 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
