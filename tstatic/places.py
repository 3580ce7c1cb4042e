"""Places: the devices that programs name, what this machine has of them, and which one is used by default."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.util
import logging
import operator
import os
from collections.abc import Callable, Sequence
from typing import ClassVar, SupportsIndex

from tstatic import flags
from tstatic.errors import DeviceError, PlaceError, PlaceTypeError, shown
from tstatic.logs import warn_once
from tstatic.no_effect import no_effect

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "NullPlace",
    "Place",
    "cpu_places",
    "cuda_places",
    "device_count",
    "expected_place",
    "get_device",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "parse_place",
    "resolve",
    "set_device",
    "to_place",
]

# The kinds of place that programs can run on; a new device adds its kind here.
BACKENDS: tuple[str, ...] = ("cpu", "null", "gpu")


@dataclasses.dataclass(frozen=True, repr=False)
class Place:
    """A device by name. It can be made on any machine; *using* one that is not there is an error (``resolve``).

    Places compare by value: ``CUDAPlace(0) == CUDAPlace(0)``.

    Example:
        >>> places = [paddle.CPUPlace(), paddle.CUDAPlace(0)]
        >>> all(isinstance(place, fluid.core.Place) for place in places)
        True
        >>> [place.name for place in places]
        ['cpu', 'gpu:0']
    """

    kind: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The spelling that ``set_device`` takes: ``cpu``, ``gpu:0``, ``gpu_pinned``."""
        return self.kind

    def _equals(self, other: object) -> bool:
        return self == other

    def is_cpu_place(self) -> bool:
        return self.kind == "cpu"

    def is_gpu_place(self) -> bool:
        return self.kind == "gpu"

    def is_cuda_pinned_place(self) -> bool:
        return self.kind == "gpu_pinned"

    def __repr__(self) -> str:
        return f"Place({self.name})"


@dataclasses.dataclass(frozen=True, repr=False)
class CPUPlace(Place):
    """The CPU. A list with several of them makes as many replicas.

    Example:
        >>> place = paddle.CPUPlace()
        >>> y = paddle.full([2], 3.0)
        >>> static.Executor(place).run(fetch_list=[y])[0]
        array([3., 3.], dtype=float32)
    """

    kind: ClassVar[str] = "cpu"

    def get_device_id(self) -> int:
        return 0


@dataclasses.dataclass(frozen=True, repr=False)
class CUDAPlace(Place):
    """The NVIDIA GPU with number ``id``, counted after ``CUDA_VISIBLE_DEVICES``.

    Raises:
        PlaceTypeError: ``id`` is not an integer.
        PlaceError: ``id`` is negative.

    Example:
        >>> place = paddle.CUDAPlace(1)
        >>> place.get_device_id()
        1
        >>> place == paddle.CUDAPlace(1), place == paddle.CPUPlace()
        (True, False)
    """

    id: int
    kind: ClassVar[str] = "gpu"

    def __init__(self, id: SupportsIndex) -> None:
        object.__setattr__(self, "id", _device_id(id))

    @property
    def name(self) -> str:
        return f"gpu:{self.id}"

    def get_device_id(self) -> int:
        return self.id

    gpu_device_id = get_device_id


@dataclasses.dataclass(frozen=True, repr=False)
class NullPlace(Place):
    """A device that plans everything and computes nothing: what is left is the runtime's own overhead."""

    kind: ClassVar[str] = "null"


@dataclasses.dataclass(frozen=True, repr=False)
class CUDAPinnedPlace(Place):
    """Page-locked host memory, from which copies to a GPU run in the background.

    Example:
        >>> place = paddle.CUDAPinnedPlace()
        >>> place == paddle.CUDAPinnedPlace()
        True
        >>> place == paddle.CPUPlace()
        False
    """

    kind: ClassVar[str] = "gpu_pinned"


def _whole(value: object, what: str, example: str) -> int:
    """Returns ``value`` as an int >= 0, or raises an error about ``what``."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        received = shown(value)
        raise PlaceTypeError(f"{what} is an integer", expected="int >= 0", received=received, fix=f"write {example}")
    if number < 0:
        raise PlaceError(f"{what} cannot be negative", expected="int >= 0", received=number, fix=f"write {example}")
    if number >= 1 << 31:
        raise PlaceError(f"{what} is too large", expected="int < 2**31", received=number, fix=f"write {example}")
    return number


def _device_id(value: object) -> int:
    return _whole(value, "the number of a GPU", "CUDAPlace(0)")


def parse_place(device: str) -> Place:
    """Returns the place that a text names: ``cpu``, ``gpu`` (the first selected one), ``gpu:1`` or ``gpu_pinned``.

    Raises:
        PlaceTypeError: ``device`` is not a str.
        PlaceError: The text names no place.
    """
    if not isinstance(device, str):
        raise _no_place(device)
    word = device.strip().lower()
    if word == "cpu":
        return CPUPlace()
    if word == "gpu":
        return CUDAPlace((_selected_gpus() or [0])[0])
    if word == "gpu_pinned":
        return CUDAPinnedPlace()
    kind, _, number = word.partition(":")
    if kind == "gpu" and number.isascii() and number.isdecimal():
        return CUDAPlace(int(number))
    fix = f"write 'gpu:{number or 0}'" if kind in {"cuda", "gpu"} else "write 'cpu' or 'gpu:0'"
    raise PlaceError(
        f"'{device}' does not name a device",
        expected="'cpu', 'gpu', 'gpu:x' with a number x, or 'gpu_pinned'",
        received=repr(device),
        fix=fix,
    )


def to_place(place: Place | str) -> Place:
    """Returns ``place`` as a ``Place``; texts are read by ``parse_place``.

    Raises:
        PlaceTypeError: It is neither a place nor a text.
    """
    if isinstance(place, Place):
        return place
    if isinstance(place, str):
        return parse_place(place)
    raise _no_place(place)


def _no_place(value: object) -> PlaceTypeError:
    return PlaceTypeError(
        "a place is needed here, or a text that names one",
        expected="CPUPlace(), CUDAPlace(id), or a text such as 'cpu' or 'gpu:0'",
        received=shown(value),
        fix="pass CPUPlace() or CUDAPlace(0)",
    )


def cpu_count() -> int:
    """Returns how many CPU cores this process may use (a container or ``taskset`` may allow fewer than there are)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_count() -> int:
    """Returns how many NVIDIA GPUs this machine shows to this process, after ``CUDA_VISIBLE_DEVICES``.

    Example:
        >>> x = paddle.full([2], 3.0)
        >>> place = paddle.CUDAPlace(0) if paddle.device.device_count() else paddle.CPUPlace()
        >>> static.Executor(place).run(fetch_list=[x])[0]
        array([3., 3.], dtype=float32)
    """
    return _count_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _count_gpus(visible: str | None) -> int:
    # torch takes seconds to import, so everything that can say "none" without it is asked first.
    if visible is not None and visible.strip() in {"", "-1"}:
        return 0
    if importlib.util.find_spec("torch") is None:
        return 0
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    import torch

    return int(torch.cuda.device_count()) if torch.version.cuda else 0


class Capability:
    """The answer to "was this built with ...?": call it, or use it as a truth value as some scripts do."""

    def __init__(self, name: str, answer: Callable[[], bool]) -> None:
        self.__name__ = name
        self.__doc__ = f"Whether programs can run on {name.rpartition('_')[2]} here; true or false, called or not."
        self._answer = answer

    def __call__(self) -> bool:
        return self._answer()

    def __bool__(self) -> bool:
        return self._answer()

    def __repr__(self) -> str:
        return f"<{self.__name__}: {self._answer()}>"


is_compiled_with_cuda = Capability("is_compiled_with_cuda", lambda: "gpu" in BACKENDS and device_count() > 0)
is_compiled_with_rocm = Capability("is_compiled_with_rocm", lambda: False)
is_compiled_with_xpu = Capability("is_compiled_with_xpu", lambda: False)
is_compiled_with_npu = Capability("is_compiled_with_npu", lambda: False)
is_compiled_with_mlu = Capability("is_compiled_with_mlu", lambda: False)
is_compiled_with_ipu = Capability("is_compiled_with_ipu", lambda: False)
is_compiled_with_cinn = Capability("is_compiled_with_cinn", lambda: False)
is_compiled_with_mkldnn = Capability("is_compiled_with_mkldnn", lambda: False)
is_compiled_with_distribute = Capability("is_compiled_with_distribute", lambda: False)


@no_effect(device_type="there are no plug-in devices of any type")
def is_compiled_with_custom_device(device_type: str) -> bool:
    """Returns False: the devices are the CPU and NVIDIA GPUs.

    Example:
        >>> kind = "npu"
        >>> name = kind if paddle.is_compiled_with_custom_device(kind) else "cpu"
        >>> _ = paddle.set_device(name)
        >>> paddle.get_device()
        'cpu'
    """
    return False


def resolve(place: Place | str) -> Place:
    """Returns the place to run on: ``place`` itself when this machine has it.

    Raises:
        DeviceError: The GPU is not there and ``FLAGS_cpu_fallback`` is off. With the flag on the answer is
            ``CPUPlace()``, and the log says so once.
    """
    place = to_place(place)
    if place.kind in ("cpu", "null"):
        return place
    there = device_count()
    wanted = place.id if isinstance(place, CUDAPlace) else 0
    if "gpu" in BACKENDS and wanted < there:
        return place
    if "gpu" not in BACKENDS:
        have = "the CPU (this version of tstatic runs programs on the CPU only)"
    elif there:
        have = "the CPU and " + ", ".join(CUDAPlace(i).name for i in range(there))
    else:
        have = f"the CPU and no GPU ({_why_no_gpu()})"
    if flags.flag("FLAGS_cpu_fallback"):
        text = f"{place} is not there: {have}; FLAGS_cpu_fallback=1 runs it on {CPUPlace()}"
        warn_once(("cpu_fallback", place), text)
        return CPUPlace()
    what = f"this machine has no {place} that tstatic can use"
    fix = "use CPUPlace(), or set FLAGS_cpu_fallback=1 to use the CPU"
    raise DeviceError(what, expected=f"{place.name} to be present", received=have, fix=fix)


def _why_no_gpu() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in {"", "-1"}:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides all"
    if importlib.util.find_spec("torch") is None:
        return "torch, which drives GPUs, is not installed"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver: libcuda.so.1 cannot be loaded"
    import torch

    if not torch.version.cuda:
        return f"torch {torch.__version__} was built without CUDA"
    return f"torch {torch.__version__} finds no device with the driver"


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Returns ``device_count`` CPU places.

    Without the argument the environment variable ``CPU_NUM`` decides. Where it is unset it is written as ``'1'``, as
    Paddle does, and the log says so once.

    Raises:
        PlaceTypeError: The count is not an integer.
        PlaceError: The count, or ``CPU_NUM``, is not a number >= 0 (a ``ValueError``).

    Example:
        >>> places = static.cpu_places(2)
        >>> len(places)
        2
        >>> places[0] == paddle.CPUPlace()
        True
    """
    if device_count is None:
        return [CPUPlace()] * _cpu_num()
    return [CPUPlace()] * _whole(device_count, "the number of CPU places", "cpu_places(2)")


def cpu_threads(places: int | None) -> int:
    """Four threads for each of so many places, by default as many as ``CPU_NUM`` says, 1 where it is unset."""
    return 4 * max(1, _cpu_num(ask=False) if places is None else places)


def _cpu_num(ask: bool = True) -> int:
    text = os.environ.get("CPU_NUM")
    if text is None and not ask:
        return 1
    if text is None:
        os.environ["CPU_NUM"] = "1"
        # On a single core one place is what anybody wants; elsewhere it may be a surprise.
        level = logging.WARNING if cpu_count() > 1 else logging.INFO
        message = f"CPU_NUM is not set, so one CPU place is used; export CPU_NUM=N for N of them ({cpu_count()} cores)"
        warn_once("CPU_NUM", message, level=level)
        return 1
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        what, given = "the environment variable CPU_NUM is not a number of CPU places", f"CPU_NUM={text!r}"
        raise PlaceError(what, expected="a whole number >= 0", received=given, fix="export CPU_NUM=1, or unset it")
    return number


def _selected_gpus() -> list[int]:
    # The environment is read again because scripts may set it after the first use of a flag.
    name = "FLAGS_selected_gpus"
    text = flags.flag(name) or os.environ.get(name, "")
    wanted = flags.REGISTRY[name].check(text)
    if wanted:
        what = f"the environment variable {name} is not a list of GPU numbers"
        raise PlaceError(what, expected=wanted, received=repr(text), fix=f"export {name}=0, or unset it")
    return [int(part) for part in text.split(",") if part.strip()]


def cuda_places(device_ids: int | Sequence[int] | None = None) -> Sequence[Place]:
    """Returns GPU places: those with the given numbers, or ``FLAGS_selected_gpus``, or all that are visible.

    With ``FLAGS_cpu_fallback`` on and no GPU here, numbers that are given are kept (each place is replaced when it is
    used), and no numbers mean ``cpu_places()``.

    Raises:
        DeviceError: There is no GPU, or none with such a number, and ``FLAGS_cpu_fallback`` is off.

    Example:
        >>> places = static.cuda_places() if paddle.is_compiled_with_cuda() else static.cpu_places(1)
        >>> y = paddle.full([2], 3.0)
        >>> static.Executor(places[0]).run(fetch_list=[y])[0]
        array([3., 3.], dtype=float32)
    """
    if device_ids is None:
        if not is_compiled_with_cuda and flags.flag("FLAGS_cpu_fallback"):
            return cpu_places()
        device_ids = _selected_gpus() or list(range(device_count())) or [0]
    elif isinstance(device_ids, str) or not isinstance(device_ids, Sequence):
        device_ids = [_device_id(device_ids)]
    result = [CUDAPlace(i) for i in device_ids]
    if not flags.flag("FLAGS_cpu_fallback"):
        for place in result:
            resolve(place)
    return result


_chosen: Place | None = None


def set_device(device: Place | str) -> Place:
    """Makes a device the default of executors that are given no place, and returns it.

    Args:
        device: ``cpu``, ``gpu``, ``gpu:x``, or a place.

    Raises:
        PlaceError: The text names no place (a ``ValueError``).
        DeviceError: This machine does not have it and ``FLAGS_cpu_fallback`` is off.

    Example:
        >>> place = paddle.set_device("cpu")
        >>> paddle.get_device()
        'cpu'
        >>> place == paddle.CPUPlace()
        True
    """
    global _chosen
    _chosen = resolve(device)
    return _chosen


def get_device() -> str:
    """Returns the name of the default device: ``cpu`` or ``gpu:0``."""
    return expected_place().name


def chosen_place() -> Place | None:
    """Returns what ``set_device`` chose, None before."""
    return _chosen


def expected_place() -> Place:
    """Returns the place of executors that are given none: what ``set_device`` chose, else a GPU if there is one."""
    if _chosen is not None:
        return _chosen
    return parse_place("gpu") if is_compiled_with_cuda else CPUPlace()


def _reset_for_tests() -> None:
    """Forgets what ``set_device`` chose."""
    global _chosen
    _chosen = None
