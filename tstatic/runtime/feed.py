"""Checks and converts the user's feed; the caller's dict is never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.devices.base import Array, Device, DeviceArray, Memory
from tstatic.devices.step import Stream
from tstatic.errors import FeedError, FeedTypeError, TstaticError, near, reason, shown
from tstatic.ir.program import Program, Variable
from tstatic.ir.recording import Call
from tstatic.ir.types import UNKNOWN, DType, dtype_of, has_mask, numel
from tstatic.logs import warn_once
from tstatic.plan.plan import Plan
from tstatic.runtime.dlpack import CAPSULE, array_of
from tstatic.runtime.fetch import pinned_slots
from tstatic.runtime.lod import offsets_of
from tstatic.runtime.scope import LoDTensor
from tstatic.shortage import out_of_memory
from tstatic.where import show

Arrays = dict[str, np.ndarray[Any, Any]]

_NO_NUMBERS = "OSUMm"
"""Kinds of numpy dtypes that hold no numbers (objects, texts and dates): an error here names the feed, one of an op would not."""


def check_feed_dict(feed: Any) -> Mapping[str, Any]:
    """Returns the feed as a mapping.

    Raises:
        FeedTypeError: If it is neither a dict nor a list of one dict, or a key is not a str.
    """
    if feed is None:
        return {}
    if isinstance(feed, list | tuple):
        if len(feed) == 1 and isinstance(feed[0], Mapping):
            feed = feed[0]
        else:
            raise FeedTypeError(
                "a list of feeds is for data-parallel programs; this one runs on a single place",
                expected="a dict {name: array}, or a list that holds exactly one dict",
                received=f"a {type(feed).__name__} of {len(feed)} items",
                fix="feed one dict, or compile with with_data_parallel",
                op="feed",
            )
    if not isinstance(feed, Mapping):
        raise FeedTypeError(
            "feed requires dict as its Parameter. But you passed in something else",
            expected="a dict {name: array}",
            received=f"{type(feed).__name__}",
            fix="pass feed={'x': array}",
            op="feed",
        )
    try:
        # Item by item unless it is a plain dict: `**` does not ask a subclass that has a `__getitem__` of its own.
        given: dict[str, Any] = {**feed} if type(feed) is dict else {name: feed[name] for name in feed}
    except Exception as error:
        raise FeedTypeError(
            "the feed could not be read",
            expected="a dict {name: array}",
            received=f"{type(feed).__name__}, which raises {reason(error)}",
            fix="pass feed={'x': array}",
            op="feed",
        ) from error
    for name in given:
        if not isinstance(name, str):
            raise FeedTypeError(
                "the keys of feed are names of variables",
                expected="str keys",
                received=shown(name),
                fix="use variable.name as the key",
                op="feed",
            )
    return given


def _fail(
    var: Variable, what: str, expected: object, received: object, fix: str, cls: type[FeedError] = FeedError
) -> FeedError:
    return cls(what, expected=expected, received=received, fix=fix, var=var.name, op="feed", where=show(var.made_at))


def to_array(value: Any, var: Variable) -> np.ndarray[Any, Any]:
    """Converts one fed value; lists and numbers take the variable's dtype, arrays must have it already.

    Raises:
        FeedTypeError: If the value is not an array of numbers, or the object's own methods raise.
        FeedError: If the dtype cannot hold the numbers.
        OutOfMemoryError: If there is no memory for a copy.
    """
    try:
        return _array_of(value, var)
    except MemoryError as error:
        what = f"what was fed for '{var.name}'"
        raise out_of_memory(what, cause=error, op="feed", var=var.name, where=show(var.made_at)) from error


def _array_of(value: Any, var: Variable) -> np.ndarray[Any, Any]:
    if type(value) is np.ndarray:
        # No user code runs here: an exception is about the array, or comes from a signal handler.
        return _convert(value, var)
    try:
        return _convert(value, var)
    except (TstaticError, MemoryError):
        raise
    except Exception as error:
        raise _fail(
            var, f"what was fed for '{var.name}' could not be read as an array", f"an array of {var.dtype.name}{list(var.shape)}",
            f"{type(value).__name__}, which raises {reason(error)}",
            "feed a CPU array, for example tensor.detach().cpu().numpy()", FeedTypeError,
        ) from error  # fmt: skip


def _convert(value: Any, var: Variable) -> np.ndarray[Any, Any]:
    name = var.name
    if has_mask(value):
        raise _fail(
            var, f"a masked array was fed for '{name}', whose mask would be lost", "an array or list without a mask",
            type(value).__name__,
            "fill it, array.filled(0), and feed ~np.ma.getmaskarray(array) as an input of its own", FeedTypeError,
        )  # fmt: skip
    if isinstance(value, np.ndarray | LoDTensor):
        array = np.asarray(value)
    elif isinstance(value, bool | int | float | complex | list | tuple | np.generic):
        array = _from_list(value, var)
    elif isinstance(value, Variable):
        raise _fail(
            var, f"a Variable was fed for '{name}'", "an array", repr(value),
            "feed the data itself; a Variable only names a place in the program", FeedTypeError,
        )  # fmt: skip
    elif is_foreign(value):
        array = host_array(value)
    else:
        raise _fail(
            var, f"what was fed for '{name}' cannot become an array", "an array, a list of numbers, or anything with __array__",
            shown(value, 60),
            f"convert it: np.asarray(..., dtype='{var.dtype.name}')", FeedTypeError,
        )  # fmt: skip
    if array.dtype.kind in _NO_NUMBERS or array.dtype.fields is not None:
        raise _fail(
            var, f"the array fed for '{name}' does not hold numbers", f"dtype {var.dtype.name}", f"dtype {array.dtype}",
            "feed numbers; a ragged list has to be padded first",
            FeedTypeError,
        )  # fmt: skip
    # Ufuncs and kernels read memory as it is; a file's arrays may have the other byte order.
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _from_list(value: Any, var: Variable) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise _fail(
            var, f"the list fed for '{var.name}' is ragged", f"rows of one length, shape {list(var.shape)}",
            "rows of different lengths", "pad the rows to one length", FeedError,
        ) from None  # fmt: skip
    if array.dtype.kind in _NO_NUMBERS or array.dtype.fields is not None or isinstance(value, np.generic):
        return array
    wanted = var.dtype
    if array.dtype.kind == "c" and not wanted.is_complex and array.size:
        raise _fail(
            var, f"a list of complex numbers was fed for '{var.name}'", f"{wanted.name} values", "complex numbers",
            "feed np.real(values) and np.imag(values), or declare the input as 'complex64'", FeedTypeError,
        )  # fmt: skip
    if array.dtype.kind == "f" and not wanted.is_inexact and array.size:
        raise _fail(
            var, f"a list of floats was fed for '{var.name}'", f"{wanted.name} values", "floats",
            f"convert them: np.asarray(values, dtype='{wanted.name}')", FeedTypeError,
        )  # fmt: skip
    if wanted.name == "bool" and array.dtype.kind in "iu" and array.size and (array.min() < 0 or array.max() > 1):
        raise _fail(
            var, f"a list of numbers was fed for '{var.name}', which is bool", "True and False, or 1 and 0",
            f"values in [{array.min()}, {array.max()}]", "compare them: np.asarray(values) != 0", FeedTypeError,
        )  # fmt: skip
    if wanted.is_integer and array.size and array.dtype.kind in "iu":
        low, high = np.iinfo(wanted.np).min, np.iinfo(wanted.np).max
        if array.min() < low or array.max() > high:
            raise _fail(
                var, f"a number fed for '{var.name}' does not fit its dtype", f"values in [{low}, {high}]",
                f"values in [{array.min()}, {array.max()}]", "use a wider dtype", FeedError,
            )  # fmt: skip
    return array.astype(wanted.np)


def is_foreign(value: Any) -> bool:
    """Whether :func:`host_array` may read a value: another library's array or tensor, or a DLPack capsule."""
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__") or isinstance(value, CAPSULE)


def host_array(value: Any) -> np.ndarray[Any, Any]:
    """Returns what another library's array or tensor holds, without a copy where the host can read its memory."""
    if isinstance(value, CAPSULE):
        return array_of(value)
    if type(value).__module__.partition(".")[0] == "torch":
        return _from_torch(value)
    if not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _from_torch(value: Any) -> np.ndarray[Any, Any]:
    if getattr(value, "is_meta", False) or (
        getattr(value, "layout", None) is not None and "strided" not in str(value.layout)
    ):
        raise TypeError("a sparse or meta tensor has no plain values")
    # torch refuses numpy() of tensors that need gradients or lie on a GPU.
    value = value.detach().cpu()
    if "bfloat16" in str(value.dtype):
        import torch  # the tensor is torch's, so torch is loaded already

        return value.view(torch.int16).numpy().view(dtype_of("bfloat16").np)  # type: ignore[no-any-return]
    return value.numpy()  # type: ignore[no-any-return]


def check_array(array: np.ndarray[Any, Any], var: Variable) -> np.ndarray[Any, Any]:
    """Checks dtype and shape against the variable's declaration.

    Raises:
        FeedTypeError: If the dtype differs (nothing is cast).
        FeedError: If the shape does not fit, see :func:`check_shape`.
    """
    name = var.name
    given: DType = dtype_of(array.dtype)
    checked = var.need_check_feed or not var.is_data
    if given is not var.dtype and checked:
        raise _fail(
            var, f"The data type of fed Variable '{name}' must be '{var.dtype.name}', but received '{given.name}'",
            var.dtype.name, given.name,
            f"feed {name}.astype('{var.dtype.name}'), or declare the input as '{given.name}'", FeedTypeError,
        )  # fmt: skip
    if var.shape == array.shape:
        return array
    # A parameter or learning rate of one element may be fed with another rank: () for (1,), or a number.
    if numel(var.shape) == 1 and array.size == 1 and not var.is_data:
        return array.reshape(var.shape)
    check_shape(array.shape, var)
    return array


def check_shape(shape: tuple[int, ...], var: Variable) -> None:
    """Checks a shape against the variable's declaration, unless that leaves feeds unchecked.

    As Paddle does, it compares the axes that were fed: an array may lack trailing axes, and a note says so once.

    Raises:
        FeedError: If there are more axes than declared, none at all, or a fixed size differs.
    """
    if not (var.need_check_feed or not var.is_data):
        return
    lacking = var.is_data and 0 < len(shape) < len(var.shape)
    fits = lacking or len(var.shape) == len(shape)
    if not fits or any(w not in (UNKNOWN, g) for w, g in zip(var.shape, shape, strict=False)):
        raise _fail(
            var,
            f"The fed Variable '{var.name}' should have dimensions = {len(var.shape)}, shape = {_spell(var.shape)}, but received "
            f"fed shape {list(shape)}",
            f"shape {_spell(var.shape)} (-1 takes any size)", f"shape {list(shape)}",
            f"reshape the array fed for '{var.name}', or change static.data('{var.name}', shape=...)",
        )  # fmt: skip
    if lacking:
        warn_once(
            ("feed rank", var.block.program.uid, var.name),
            f"'{var.name}' is declared with shape {_spell(var.shape)} and fed with shape {list(shape)}: it keeps the shape that "
            "is fed, so operators that rely on the missing axes may broadcast or fail",
        )


def _spell(shape: tuple[int, ...]) -> str:
    return str(list(shape))


def read_feed(program: Program, feed: Any, used: frozenset[str], device: Device | None = None) -> Arrays:
    """Returns the arrays that this run needs, checked.

    Args:
        program: The program to run.
        feed: The user's ``feed``.
        used: Names that the program's ops read or that are fetched; other values are dropped unless they are persistable.
        device: The device of the run: what lies in its memory stays there.

    Raises:
        FeedError: If a value is bad, or a name is unknown to the program while a declared input is missing.
    """
    done: Arrays = {}
    block = program.global_block()
    given = check_feed_dict(feed)
    for name, value in given.items():
        var = block.vars.get(name)
        if var is None:
            missing = [n for n, v in block.vars.items() if v.is_data and n in used and n not in feed]
            if missing:
                raise FeedError(
                    f"feed has '{name}', which is not a variable of the program, while input '{missing[0]}' is missing",
                    expected=f"the inputs {', '.join(repr(n) for n, v in block.vars.items() if v.is_data)}",
                    received=f"feed with {', '.join(map(repr, feed))}",
                    fix=near(name, missing) or f"feed '{missing[0]}'",
                    var=missing[0],
                    op="feed",
                    where=show(block.vars[missing[0]].made_at),
                )
            warn_once(
                ("feed", program.uid, name),
                f"feed has '{name}', which is not a variable of the program; it is ignored. {near(name, block.vars)}",
            )
            continue
        array = None if device is None else _on_device(value, var, device)
        if array is None:
            array = to_array(value, var)
        # What is fed for a persistable variable stays in the scope, whether an operator reads it or not.
        if name in used or var.persistable:
            done[name] = check_array(array, var)
        if var.lod:
            offsets = offsets_of(value, len(array) if array.ndim else 1, var, given)
            done.update((n, level) for n, level in offsets.items() if n in used)
    return done


def _on_device(value: Any, var: Variable, device: Device) -> Any:
    """Returns a fed value as an array of the device, without a copy; ``None`` if it is not one, or the host has to look at it."""
    if type(value) is np.ndarray or not is_foreign(value) or var.lod or not var.is_data or var.persistable:
        return None
    try:
        return device.accept(value)
    except Exception:
        # Whatever its methods raise: what reads it on the host says so.
        return None


def uninitialised(plan: Plan, var: str) -> FeedError:
    """Returns the error for a persistable variable without a value: which op needs it, and the likely cause."""
    value = plan.program.reads[var]
    reader = next((s.op for s in plan.steps if value in s.op.reads()), None)
    return FeedError(
        f"persistable variable '{var}' has no value in the scope (not initialized)",
        expected="a value written by the startup program, by static.load, or by scope.var(name).get_tensor().set(...)",
        received="nothing",
        fix="call exe.run(static.default_startup_program()) after optimizer.minimize, in the same scope",
        op=reader.type if reader else "fetch",
        var=var,
        where=show(reader.where) if reader else None,
    )


class StagedFeeds:
    """A ring of pinned memory for what runs give to a device that copies while the host continues.

    Args:
        device: The device.
        feeds: Names, and the arrays that the values go to.
        stream: The stream of the copies.
    """

    def __init__(self, device: Device, feeds: Sequence[tuple[str, Array]], stream: Stream) -> None:
        self._device, self._feeds, self._stream = device, list(feeds), stream
        self._memory: list[Memory] = []
        self._slots: list[list[tuple[str, np.ndarray[Any, Any], Call]]] = []
        # The caller's arrays, by slot and name.
        self._given: dict[int, dict[str, DeviceArray]] = {}
        self._add_slot()

    def _add_slot(self) -> None:
        memory, staged = pinned_slots(self._device, [array for _, array in self._feeds], "staged feeds")
        self._memory.append(memory)
        self._slots.append([
            (name, one, self._device.copying(array, one, self._stream))
            for (name, array), one in zip(self._feeds, staged, strict=True)
        ])  # fmt: skip

    def send(self, values: Mapping[str, Any], slot: int = 0) -> None:
        """Copies values to the device.

        Args:
            values: The values; one for each array.
            slot: The slot that they pass through, which may be written because its earlier copies are done.
        """
        while len(self._slots) <= slot:
            self._add_slot()
        self._given[slot] = {}
        for at, (name, staged, (function, args)) in enumerate(self._slots[slot]):
            value = values[name]
            if isinstance(value, DeviceArray):
                # Within the device's memory; the caller's stream is waited for, and waits for this.
                self._given[slot][name] = value
                self._device.copy(self._feeds[at][1], value, self._stream)
            else:
                np.copyto(staged, value)
                function(*args)

    def resend(self, slot: int) -> None:
        """Copies once more what a slot was given."""
        for (name, _, (function, args)), (_, array) in zip(self._slots[slot], self._feeds, strict=True):
            if name in self._given[slot]:
                self._device.copy(array, self._given[slot][name], self._stream)
            else:
                function(*args)

    def forget(self, slot: int) -> None:
        """Drops the caller's arrays that a slot was given."""
        self._given.pop(slot, None)

    def free(self) -> None:
        """Frees the memory."""
        # The views first: memory must not be freed under them.
        self._slots, self._given, self._feeds = [], {}, []
        for memory in self._memory:
            self._device.free(memory)
        self._memory = []
