"""Binds NVIDIA's NCCL, the copy that torch has loaded, by ``ctypes``; only this module and ``gloo`` of comm import torch.

Calls do not hold the GIL. Communicators, streams and addresses are numbers, so that tests can put a library in Python in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tstatic.errors import DeviceError, MissingPackageError, needed_for
from tstatic.locks import lock

TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "int64": 4,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
"""NCCL's numbers of the dtypes that it can sum (``ncclDataType_t``)."""

BYTES = TYPES["uint8"]
"""The number by which values are moved that are not summed: NCCL itself sends them as bytes."""

ID_BYTES = 128
"""Of a unique id (``NCCL_UNIQUE_ID_BYTES``)."""

_SUM = 0
"""The reduction (``ncclRedOp_t``)."""

_SUCCESS, _IN_PROGRESS = 0, 7
"""Success, and work that has begun (``ncclResult_t``)."""

_NAME = "libnccl.so.2"


class NcclError(DeviceError):
    """Raised when a call of NCCL fails; it has NCCL's own words.

    Attributes:
        call: The call's name.
        code: NCCL's number of the error (``ncclResult_t``).
    """

    def __init__(self, call: str, code: int, what: str, detail: str = "") -> None:
        super().__init__(
            f"{call} failed: {what}",
            expected="a call of NCCL that succeeds",
            received=f"error {code}: {detail or what}",
            fix="NCCL_DEBUG=WARN makes NCCL say more; FLAGS_collectives=gloo or host does without it",
        )
        self.call, self.code = call, code


class Library(Protocol):
    """The calls of NCCL that transports make.

    Arguments that they share:
        send, receive: Addresses on the communicator's device.
        count: Number of elements of what one rank sends; for ``reduce_scatter``, of what it receives.
        dtype: One of :data:`TYPES`.
        comm: A communicator.
        stream: A CUDA stream's handle.

    All calls may raise :class:`NcclError`. Those with a ``stream`` queue work, and may first wait for the other ranks until they
    are connected; :meth:`abort` from another thread ends such a wait.

    Attributes:
        version: NCCL's version, such as ``"2.28.9"``.
        where: Path of the library's file.
    """

    version: str
    where: str

    def unique_id(self) -> bytes:
        """Returns 128 bytes that name a new group of ranks."""

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        """Returns a communicator on one device, when all ``size`` ranks have called this."""

    def init_all(self, devices: Sequence[int]) -> list[int]:
        """Returns the communicators of several devices of this process; rank ``i`` is that of ``devices[i]``."""

    def group(self) -> contextlib.AbstractContextManager[None]:
        """Queues the calls in the block together when it ends, for all communicators; only one thread at a time is in a block."""

    def all_reduce(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        """Sums over the ranks, to all."""

    def reduce(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        """Sums over the ranks, to ``root``; the others' ``receive`` is not written."""

    def reduce_scatter(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        """Sums over the ranks; part ``r`` of the sum goes to rank ``r``."""

    def broadcast(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        """Writes what ``root`` sends to all ranks."""

    def all_gather(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        """Writes what all ranks send, in their order, to all ranks."""

    def send(self, send: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        """Sends to one rank, which calls :meth:`receive`."""

    def receive(self, receive: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        """Receives from one rank, which calls :meth:`send`."""

    def async_error(self, comm: int) -> str:
        """Returns what failed behind the calls, such as a lost connection; empty if nothing did."""

    def abort(self, comms: Sequence[int]) -> None:
        """Ends the communicators and all their work, also work that hangs; may be called while another thread is in a call."""

    def destroy(self, comm: int) -> None:
        """Frees a communicator after its work."""


class _UniqueId(ctypes.Structure):
    """Passed by value, as C passes a structure of 128 bytes."""

    _fields_ = (("internal", ctypes.c_char * ID_BYTES),)


_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
# Arguments of `nccl.h`; all but the two that return texts return an `ncclResult_t`.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_I),),
    "ncclGetUniqueId": (ctypes.POINTER(_UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_P), _I, _UniqueId, _I),
    "ncclCommInitAll": (ctypes.POINTER(_P), _I, ctypes.POINTER(_I)),
    "ncclCommDestroy": (_P,),
    "ncclCommAbort": (_P,),
    "ncclCommGetAsyncError": (_P, ctypes.POINTER(_I)),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
    "ncclReduce": (_P, _P, _N, _I, _I, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _N, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _N, _I, _P, _P),
    "ncclSend": (_P, _N, _I, _I, _P, _P),
    "ncclRecv": (_P, _N, _I, _I, _P, _P),
    "ncclGetErrorString": (_I,),
    "ncclGetLastError": (_P,),
}
_TEXTS = ("ncclGetErrorString", "ncclGetLastError")

# NCCL forbids that two threads queue work on one device at the same time, even for different communicators; and groups over several
# devices that are queued in different orders on them may wait for each other.
_queueing = lock()


class Nccl:
    """NCCL in a shared library.

    Args:
        path: Its file.

    Raises:
        OSError: If it cannot be loaded.
        AttributeError: If it lacks a call.
    """

    def __init__(self, path: str) -> None:
        self.where = path
        # CDLL, unlike PyDLL, gives up the GIL: a call that hangs leaves the thread that aborts it free to run.
        self._library = ctypes.CDLL(path)
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes = arguments
            function.restype = ctypes.c_char_p if name in _TEXTS else _I
        number = _I()
        self._call("ncclGetVersion", ctypes.byref(number))
        # 2.9 gave the minor version two digits more.
        split = 10_000 if number.value >= 10_000 else 1_000
        major, rest = divmod(number.value, split)
        self.version = f"{major}.{rest // 100}.{rest % 100}"

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != _SUCCESS:
            raise NcclError(name, code, self._text(code), self._last())

    def _text(self, code: int) -> str:
        return str((self._library.ncclGetErrorString(code) or b"").decode(errors="replace"))

    def _last(self) -> str:
        return str((self._library.ncclGetLastError(None) or b"").decode(errors="replace").strip())

    def unique_id(self) -> bytes:
        made = _UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(made))
        return ctypes.string_at(ctypes.byref(made), ID_BYTES)  # `internal` would end at the first zero

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        import torch

        given, made = _UniqueId.from_buffer_copy(unique_id), _P()
        with torch.cuda.device(device):
            self._call("ncclCommInitRank", ctypes.byref(made), size, given, rank)
        assert made.value is not None
        return made.value

    def init_all(self, devices: Sequence[int]) -> list[int]:
        made = (_P * len(devices))()
        self._call("ncclCommInitAll", made, len(devices), (_I * len(devices))(*devices))
        return [one for one in made if one is not None]

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        with _queueing:
            self._call("ncclGroupStart")
            try:
                yield
            except BaseException:
                # The thread would stay in the group, and queue nothing any more; the first error is the one to report.
                self._library.ncclGroupEnd()
                raise
            self._call("ncclGroupEnd")

    def all_reduce(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._call("ncclAllReduce", send, receive, count, dtype, _SUM, comm, stream)

    def reduce(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._call("ncclReduce", send, receive, count, dtype, _SUM, root, comm, stream)

    def reduce_scatter(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._call("ncclReduceScatter", send, receive, count, dtype, _SUM, comm, stream)

    def broadcast(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._call("ncclBroadcast", send, receive, count, dtype, root, comm, stream)

    def all_gather(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._call("ncclAllGather", send, receive, count, dtype, comm, stream)

    def send(self, send: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._call("ncclSend", send, count, dtype, peer, comm, stream)

    def receive(self, receive: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._call("ncclRecv", receive, count, dtype, peer, comm, stream)

    def async_error(self, comm: int) -> str:
        code = _I()
        self._call("ncclCommGetAsyncError", comm, ctypes.byref(code))
        if code.value in (_SUCCESS, _IN_PROGRESS):
            return ""
        return f"{self._text(code.value)}; {self._last()}".rstrip("; ")

    def abort(self, comms: Sequence[int]) -> None:
        # One group: each of them may wait for the kernels of the others. Without the lock, which a call that hangs holds.
        self._call("ncclGroupStart")
        # Of one that fails nothing is left to abort; the others must end all the same.
        codes = [self._library.ncclCommAbort(comm) for comm in comms]
        self._call("ncclGroupEnd")
        if any(codes):
            raise NcclError("ncclCommAbort", max(codes), self._text(max(codes)), self._last())

    def destroy(self, comm: int) -> None:
        self._call("ncclCommDestroy", comm)


def load() -> Nccl:
    """Returns the NCCL that torch uses: a second copy would have threads, memory and connections a second time.

    Raises:
        MissingPackageError: If there is none; it says where it was looked for.
    """
    with needed_for("NCCL"):
        import torch
    tried = []
    for path in _candidates(Path(torch.__file__).parent):
        try:
            return Nccl(path)
        except (OSError, AttributeError) as error:
            tried.append(f"{path} ({str(error).splitlines()[0]})")
    raise MissingPackageError(
        "NCCL was not found",
        expected="torch for CUDA, which brings NCCL along",
        received=f"torch {torch.__version__}; looked for " + ", ".join(tried),
        fix="install torch for CUDA, or set FLAGS_collectives=gloo (between processes) or host (in one process)",
    )


def _candidates(torch_folder: Path) -> list[str]:
    """Returns files in the order in which they are tried; the name alone, which the system's loader looks up, comes last."""
    found = [path for path in _loaded() if "nccl" in Path(path).name]
    # torch built from source may have NCCL inside of its own library.
    found += [path for path in _loaded() if Path(path).name == "libtorch_cuda.so"]
    folders = [torch_folder.parent / "nvidia" / "nccl" / "lib", torch_folder / "lib"]
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("nvidia.nccl")
        folders += [Path(one) / "lib" for one in (spec and spec.submodule_search_locations) or ()]
    found += [str(folder / _NAME) for folder in folders if (folder / _NAME).is_file()]
    return list(dict.fromkeys([*found, _NAME]))


def _loaded() -> list[str]:
    """Returns the files of the libraries in this process."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = [line.split(maxsplit=5)[5] for line in lines if line.count("/") and ".so" in line]
    return list(dict.fromkeys(names))


__all__ = ["BYTES", "ID_BYTES", "TYPES", "Library", "Nccl", "NcclError", "load"]
