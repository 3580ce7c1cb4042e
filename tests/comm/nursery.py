"""A process with torch imported that forks ranks on demand; ``pool.py`` starts it and talks to it by lines of JSON.

A rank runs one function of a module of cases (``cases.py`` and others) and ends with its hooks and the exit code of a Python
program. Most leave out what Python does after the exit hooks: tearing down torch's modules takes a forked process half a second.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


def _answer(value: Any) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def _enter(namespace: str) -> None:
    """Moves this process to a network namespace that ``ip netns`` made."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(handle, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    os.close(handle)


def _be_a_rank(order: dict[str, Any], rank: int, parent: int) -> None:
    """Makes a forked child what a launcher would have started."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{order['folder']}/{name}.{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), fd)
    os.environ |= order["environ"]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(order["size"])}
    if order["own"]:
        os.environ |= order["own"][rank]
    if order["namespaces"]:
        _enter(order["namespaces"][rank])


def serve() -> dict[str, Any] | None:
    """Forks ranks as told; returns in each of them with its order, and in the nursery at the end."""
    children: set[int] = set()
    _answer("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if "size" in order:
            pids = []
            parent = os.getpid()
            for rank in range(order["size"]):
                pid = os.fork()
                if pid == 0:
                    _be_a_rank(order, rank, parent)
                    return dict(order)
                pids.append(pid)
            children |= {*pids}
            _answer(pids)
        else:
            ended = {}
            for pid in order["poll"]:
                with contextlib.suppress(ChildProcessError):
                    found, status = os.waitpid(pid, os.WNOHANG)
                    if found:
                        ended[pid] = os.waitstatus_to_exitcode(status)
                        children.discard(pid)
            _answer(ended)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def run(order: dict[str, Any]) -> None:
    """Runs a case."""
    module = next(
        one
        for one in (cases, gradient_cases, nccl_cases, net_cases, port_cases, transport_cases)
        if hasattr(one, order["case"])
    )
    getattr(module, order["case"])(**order["arguments"])


def run_and_exit(order: dict[str, Any]) -> None:
    """Runs a case and ends as Python does, but for the tearing down."""
    code: Any = 0
    try:
        run(order)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    import torch.distributed  # noqa: F401 - the reason for this process

    from tests.comm import cases, gradient_cases, nccl_cases, net_cases, port_cases, transport_cases
    from tests.helpers import preloaded

    preloaded.load()
    _order = serve()
    if _order is None:
        os._exit(0)
    if not _order["whole_exit"]:
        preloaded.leave_teardown()
        run_and_exit(_order)
    run(_order)
