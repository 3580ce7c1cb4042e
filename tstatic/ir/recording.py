"""Records the numpy calls of a function once, so that later runs make those calls and nothing else.

Between two calls into numpy a function makes views and looks up plans while it holds the interpreter's lock: other threads wait
for that lock, and each wait costs them the time to fall asleep and to wake, often more than the call itself takes. A recorded run
holds the lock for the calls alone.

A function is recorded by running it on arrays of a subclass that notes calls instead of making them. Whatever cannot be repeated
without the function ends the recording, and the function itself runs: a look at values, an array that numpy allocates, a call
without ``out``. A write that went past the recording cannot happen, because the arrays are read-only meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import byte_bounds

Array = np.ndarray[Any, Any]
Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function with its arguments."""

CALL_BYTES = 350
"""About what a call keeps: its tuples, and views of arrays."""
RECORDED_BYTES = 2300
"""About what a recorded call keeps: each of its views also keeps the one that was recorded."""
MOST_CALLS = 4096
"""Calls from which a function is not recorded: their list would take megabytes, and they are long enough not to need it."""
MOST_BYTES = 1 << 18
"""Bytes of an array of the function's own that is kept with the calls."""


class NotRecordable(Exception):  # noqa: N818
    """Raised where a function does what calls alone cannot repeat."""


_READ = frozenset({"shape", "strides", "dtype", "size", "ndim", "itemsize", "nbytes", "flags", "base", "view", "T", "transpose",
                   "swapaxes", "reshape", "fill", "_tape", "__array_interface__", "__class__", "__array_ufunc__",
                   "__array_function__", "__array_priority__", "__array_finalize__", "__array_wrap__"})  # fmt: skip
"""What a function may ask an array for; none of it depends on values."""


def _maximum(a: Any, b: Any, out: Array) -> None:
    np.maximum(a, b, out=out)


def _minimum(a: Any, b: Any, out: Array) -> None:
    np.minimum(a, b, out=out)


_POSITIONAL: dict[np.ufunc, Callable[..., Any]] = {np.maximum: _maximum, np.minimum: _minimum}
"""Ufuncs whose third argument numpy does not want to be a result any more."""


def _address(array: Array) -> int:
    return int(np.ndarray.__getattribute__(array, "__array_interface__")["data"][0])


class _Recorded(np.ndarray[Any, Any]):
    """An array whose numpy calls are noted on a tape."""

    _tape: _Tape | None = None

    def __array_finalize__(self, made_from: Any) -> None:
        if isinstance(made_from, _Recorded):
            self._tape = made_from._tape

    # Anything else might give away values, which later runs would not see change.
    def __getattribute__(self, name: str) -> Any:
        if name not in _READ:
            raise NotRecordable(name)
        return super().__getattribute__(name)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        return _tape_of((*inputs, *given.get("out", ()))).ufunc(ufunc, method, inputs, given)

    def __array_function__(self, function: Any, types: Any, args: Any, given: Any) -> None:
        if function is not np.copyto or len(args) != 2 or given:
            raise NotRecordable(function)
        _tape_of(args).add(np.copyto, (args[1],), (args[0],), (args[0], args[1]))

    def __getitem__(self, key: Any) -> Any:
        for part in key if isinstance(key, tuple) else (key,):
            if not (part is None or part is Ellipsis or isinstance(part, slice | int | np.integer)):
                raise NotRecordable("values at given places are a copy")
        found = super().__getitem__(key)
        if not isinstance(found, _Recorded):
            raise NotRecordable("a value")
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if value is not target:  # else the end of an operation in place, such as `a[0] += b`
            _tape_of((self,)).add(np.copyto, (value,), (target,), (target, value))

    def fill(self, value: Any) -> None:
        _tape_of((self,)).add(np.copyto, (value,), (self,), (self, value))

    def reshape(self, *shape: Any, **given: Any) -> Any:
        # A reshape that has to copy would read the values of this run for all later ones.
        found = super().reshape(*shape, **given)
        if found.size and _address(found) != _address(self):
            raise NotRecordable("a copy")
        return found

    def _refuse(self, *args: Any) -> NoReturn:
        raise NotRecordable("a value")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __contains__ = _refuse
    # Types of numbers and the buffer protocol aside, all else comes through `__getattribute__`.


def _tape_of(values: Sequence[Any]) -> _Tape:
    for value in values:
        if isinstance(value, _Recorded):
            tape: _Tape | None = value._tape
            if tape is not None:
                return tape
    raise NotRecordable("no array of the function")


class _Tape:
    """The calls of a function, in order.

    Args:
        known: The arrays that it was given.
    """

    def __init__(self, known: Sequence[Array]) -> None:
        self.calls: list[Call] = []
        self.own_bytes = 0
        self._known = [byte_bounds(a) for a in known if a.size]
        # First and last byte of arrays that noted calls have written.
        self._own: list[tuple[int, int]] = []

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Notes a call of a ufunc that says where its result goes."""
        out = given.pop("out", ())
        if not out or any(one is None for one in out):
            raise NotRecordable("a result of its own")
        if method == "__call__" and not given:
            self.add(_POSITIONAL.get(ufunc, ufunc), inputs, out, (*inputs, *out))
        elif method == "reduce" and set(given) <= {"axis"} and len(inputs) == 1:
            # Array, axis, dtype, out: keywords would be parsed anew in each run.
            self.add(ufunc.reduce, inputs, out, (inputs[0], given.get("axis", 0), None, out[0]))
        else:
            raise NotRecordable(method)
        return out[0] if len(out) == 1 else out

    def add(
        self, function: Callable[..., Any], reads: Sequence[Any], writes: Sequence[Any], args: Sequence[Any]
    ) -> None:
        """Notes a call."""
        for value in reads:
            self._check_read(value)
        for value in writes:
            self._check_written(value)
        if len(self.calls) >= MOST_CALLS:
            raise NotRecordable("too many calls")
        written = {id(value) for value in writes}
        self.calls.append((function, tuple(self._plain(value, id(value) in written) for value in args)))

    def _check_read(self, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            if isinstance(value, bool | int | float | complex | np.generic):
                return
            raise NotRecordable(type(value))
        # Numbers as arrays, constants, what the function was given, or what a call before has written.
        if type(value) is np.ndarray and (not value.ndim or not value.flags.writeable):
            if value.nbytes > MOST_BYTES and not _is_within(value, self._known):
                raise NotRecordable("a large array of its own")
            return
        if not _is_within(value, [*self._known, *self._own]):
            raise NotRecordable("values of unknown origin")

    def _check_written(self, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            raise NotRecordable(type(value))
        if not _is_within(value, self._known):
            if value.nbytes > MOST_BYTES:
                raise NotRecordable("a large array of its own")
            self._own.append(byte_bounds(value))
            self.own_bytes += value.nbytes

    def _plain(self, value: Any, written: bool) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        # As arrays of numpy's own type: calls on recorded ones would be noted again.
        plain = np.ndarray.view(value, np.ndarray) if isinstance(value, _Recorded) else value
        # All arrays are handed out read-only, so that a write that slips past the tape fails.
        if written and not plain.flags.writeable:
            plain = plain.view()
            plain.flags.writeable = True
        return plain


def _is_within(array: Array, spans: Sequence[tuple[int, int]]) -> bool:
    if not array.size:
        return True
    low, high = byte_bounds(array)
    return any(first <= low and high <= last for first, last in spans)


def _arrays(values: Sequence[Any]) -> list[Array]:
    found = []
    for value in values:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _arrays(value)
    return found


def record(
    function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
) -> tuple[list[Call], int] | None:
    """Returns the numpy calls that a function makes on arrays, and the bytes of arrays of its own; ``None`` where calls alone
    would not repeat it.

    Nothing is computed, and no array is changed.

    Args:
        function: It takes arrays, lists of arrays and anything else.
        args, given: Its arguments.
    """
    tape = _Tape(_arrays([*args, *given.values()]))

    def wrap(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            closed = value.view()
            closed.flags.writeable = False
            made = closed.view(_Recorded)
            made._tape = tape
            return made
        if isinstance(value, list | tuple):
            return type(value)(map(wrap, value))
        return value

    try:
        function(*map(wrap, args), **{name: wrap(value) for name, value in given.items()})
    except Exception:
        # NotRecordable, a write into a read-only array, or the function's own error, which its next run raises.
        return None
    return tape.calls, tape.own_bytes


LATE = 8
"""Runs before a recording of :func:`recorded_late`: it costs about as much as six runs save."""
_runs_before: ContextVar[int] = ContextVar("runs before a recording", default=1)


@contextlib.contextmanager
def recorded_late() -> Iterator[None]:
    """Lets what is bound inside record only when it has run a while: for sizes that may not come again."""
    token = _runs_before.set(LATE)
    try:
        yield
    finally:
        _runs_before.reset(token)


class Recording:
    """Calls a function; from its third run on, or later inside :func:`recorded_late`, only what numpy calls it makes.

    Programs that run once or twice need no recording. One thread runs it at a time.

    Args:
        function, args, given: The function and its arguments, which are the same in every run.
    """

    __slots__ = ("_args", "_calls", "_function", "_given", "_left", "_own_bytes")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> None:
        self._function = function
        self._args = args
        self._given = given
        self._left = _runs_before.get()
        self._calls: list[Call] | None = None
        self._own_bytes = 0

    def kept_bytes(self) -> int:
        """Returns about how many bytes the recorded calls keep, or the arguments before there are any."""
        return self._own_bytes + RECORDED_BYTES * (1 if self._calls is None else len(self._calls))

    def __call__(self) -> None:
        calls = self._calls
        if calls is not None:
            for function, args in calls:
                function(*args)
            return
        if not self._left:
            self._calls, self._own_bytes = record(self._function, self._args, self._given) or (None, 0)
        self._left -= 1
        # By the function itself: recording computes nothing.
        self._function(*self._args, **self._given)
