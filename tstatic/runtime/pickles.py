"""Reads pickles of plain data and arrays without running code.

:func:`load_pickle` interprets the opcodes of protocols 2 to 5 itself. A name that a pickle asks for is one of :data:`_NAMES`, each
with a constructor of plain data below; nothing is imported, called or executed on a file's behalf. What is made is paid for out of
a budget that grows with the file, so that a few bytes which copy one object again and again do not fill the memory.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from tstatic.errors import CheckpointError

Array = np.ndarray[Any, Any]

MAX_DEPTH = 100
"""Containers inside containers."""
MAX_INTEGER = 1024
"""Bytes of one integer."""
BUDGET = 24 << 20
"""Bytes that a file of any size may cost; each of its own bytes adds :data:`PER_BYTE`."""
PER_BYTE = 3
_OBJECT = 64
"""Bytes that are counted for an object and its places in the stack, the memo and a container."""
KINDS = "biufcSU"
"""Kinds of the dtypes that arrays may have: no Python objects."""


class _Name:
    """A function or class that a pickle names; it is never the real one."""

    def __init__(self, make: Callable[[_Reader, tuple[Any, ...]], Any]) -> None:
        self.make = make


class _Dtype:
    """A dtype whose byte order is given afterwards."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "="

    def made(self) -> np.dtype[Any]:
        if self.code[:1] not in KINDS or not self.code[1:].isdigit() or len(self.code) > 12 or self.order not in "<>=|":
            raise ValueError(f"an array of dtype {self.code[:40]!r}")
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _EmptyArray:
    """An array without shape and content, which the next BUILD gives; ``places`` are where the memo holds it."""

    def __init__(self) -> None:
        self.places: list[int] = []


# ------------------------------------------------------------------------------------------------------------------ names
def _text(value: Any) -> str:
    """Returns a text, which Python 2 wrote as bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise ValueError(f"a text, not {type(value).__name__}")
    return value


def _encode(reader: _Reader, args: tuple[Any, ...]) -> bytes:
    text, *codec = args
    if codec not in (["latin1"], ["latin-1"]) or not isinstance(text, str):
        raise ValueError("another use of encode than for bytes in latin1")
    reader.spend(len(text))
    return text.encode("latin1")


def _dtype(reader: _Reader, args: tuple[Any, ...]) -> _Dtype:
    del reader
    return _Dtype(_text(args[0]))


def _reconstruct(reader: _Reader, args: tuple[Any, ...]) -> _EmptyArray:
    del reader
    kind, shape, _ = args
    if kind is not _NDARRAY or shape != (0,):
        raise ValueError("another use of _reconstruct than for an array")
    return _EmptyArray()


def _scalar(reader: _Reader, args: tuple[Any, ...]) -> Any:
    dtype, data = args
    return reader.array((), dtype, data, False)[()]


def _frombuffer(reader: _Reader, args: tuple[Any, ...]) -> Array:
    data, dtype, shape, order = args
    return reader.array(shape, dtype, data, order == "F")


def _ordered(reader: _Reader, args: tuple[Any, ...]) -> OrderedDict[Any, Any]:
    if not args:
        return OrderedDict()
    (rows,) = args
    done: OrderedDict[Any, Any] = OrderedDict()
    for key, value in rows:
        reader.spend(_OBJECT)
        done[_key(key)] = value
    return done


def _tuple(reader: _Reader, args: tuple[Any, ...]) -> tuple[Any, ...]:
    rows = args[0] if args else ()
    if not isinstance(rows, list | tuple) or len(args) > 1:
        raise ValueError("a tuple of something else than a list")
    reader.spend(8 * len(rows))
    return tuple(rows)


def _eval(reader: _Reader, args: tuple[Any, ...]) -> Any:
    """Returns the array of ``eval('data', {'data': array})``, which is how Paddle writes a tensor; evaluates nothing."""
    del reader
    if len(args) != 2 or args[0] != "data" or type(args[1]) is not dict or list(args[1]) != ["data"]:
        raise ValueError("another use of eval than Paddle's for a tensor")
    if not isinstance(args[1]["data"], np.ndarray):
        raise ValueError("a tensor without an array")
    return args[1]["data"]


def _bytes(reader: _Reader, args: tuple[Any, ...]) -> bytes:
    """Returns no bytes, which is how protocol 2 writes the content of an empty array."""
    del reader
    if args:
        raise ValueError("another use of bytes than for none")
    return b""


def _not_called(reader: _Reader, args: tuple[Any, ...]) -> Any:
    raise ValueError("a call of ndarray")


_NDARRAY = _Name(_not_called)
_ORDERED = _Name(_ordered)
_NUMPY = {"_reconstruct": _Name(_reconstruct), "scalar": _Name(_scalar)}
_BUILTINS = {"tuple": _Name(_tuple), "eval": _Name(_eval), "bytes": _Name(_bytes)}
_NAMES: dict[tuple[str, str], _Name] = {
    **{(f"numpy.{core}.multiarray", name): made for core in ("core", "_core") for name, made in _NUMPY.items()},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Name(_frombuffer) for core in ("core", "_core")},
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Name(_dtype),
    ("_codecs", "encode"): _Name(_encode),
    ("collections", "OrderedDict"): _ORDERED,
    **{(module, name): made for module in ("builtins", "__builtin__") for name, made in _BUILTINS.items()},
}
"""What a pickle may name, and what makes it here."""


def _key(value: Any) -> Any:
    """Returns a key of a dict.

    Raises:
        ValueError: If it is of another kind, or a number so large that many of them could be made to collide.
    """
    if isinstance(value, str | bytes | bool | None) or (isinstance(value, int | float) and abs(value) < 2**53):
        return value
    raise ValueError(f"a key of type {type(value).__name__}")


# ----------------------------------------------------------------------------------------------------------------- reader
class _Reader:
    """The state of an interpreter of opcodes: position, stack, memo, and what is left of the budget."""

    def __init__(self, data: bytes, strings: str) -> None:
        self.data = data
        self.strings = strings
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.left = BUDGET + PER_BYTE * len(data)

    def spend(self, count: int) -> None:
        """Takes bytes from the budget."""
        self.left -= count
        if self.left < 0:
            raise ValueError("more objects than a file of this size is read into")

    def take(self, count: int) -> bytes:
        """Returns the next bytes."""
        end = self.at + count
        if end > len(self.data):
            raise ValueError("an end in the middle of a value")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def sized(self, width: int) -> bytes:
        """Returns bytes behind their count."""
        count = self.number(width)
        self.spend(count)
        return self.take(count)

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 256)
        if end < 0:
            raise ValueError("a name without an end")
        found = self.data[self.at : end].decode("ascii")
        self.at = end + 1
        return found

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("a value taken from an empty stack")
        return self.stack.pop()

    def popped(self) -> list[Any]:
        """Returns what lies above the last mark, and removes both."""
        if not self.marks:
            raise ValueError("no mark")
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def remember(self, index: int) -> None:
        if not self.stack:
            raise ValueError("nothing to remember")
        value = self.stack[-1]
        if isinstance(value, _EmptyArray):
            value.places.append(index)
        self.memo[index] = value

    def name(self, module: Any, name: Any) -> _Name:
        found = _NAMES.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
        if found is None:
            raise ValueError(f"the name {str(module)[:80]}.{str(name)[:80]}, which is not one of data")
        return found

    def array(self, shape: Any, dtype: Any, data: Any, fortran: Any) -> Array:
        """Returns an array of bytes that are there."""
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or len(shape) > 32:
            raise ValueError("an array without shape or dtype")
        kind = dtype.made()
        if not all(type(size) is int and 0 <= size < 2**48 for size in shape):
            raise ValueError(f"an array of shape {str(shape)[:80]}")
        raw = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(raw, bytes) or not kind.itemsize or math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array {kind}{str(list(shape))[:80]} without its bytes")
        self.spend(len(raw))
        flat = np.frombuffer(raw, kind).astype(kind.newbyteorder("="))
        return flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)

    def build(self, target: Any, state: Any) -> Any:
        """Returns an object with the state that BUILD gives it."""
        if isinstance(target, _EmptyArray):
            _, shape, dtype, fortran, data = state
            made = self.array(shape, dtype, data, fortran)
            for index in target.places:
                if self.memo.get(index) is target:
                    self.memo[index] = made
            return made
        if not isinstance(target, _Dtype) or not isinstance(state, tuple) or len(state) < 2:
            raise ValueError("a state for an object that has none")
        target.order = _text(state[1])
        return target

    def put(self, target: Any, rows: list[Any]) -> None:
        """Puts keys and values into a dict."""
        if not isinstance(target, dict) or len(rows) % 2:
            raise ValueError("items for something else than a dict")
        for i in range(0, len(rows), 2):
            target[_key(rows[i])] = rows[i + 1]

    def extend(self, target: Any, rows: list[Any]) -> None:
        if not isinstance(target, list):
            raise ValueError("elements for something else than a list")
        target.extend(rows)

    def top(self) -> Any:
        if not self.stack:
            raise ValueError("an empty stack")
        return self.stack[-1]

    def string(self, raw: bytes) -> str | bytes:
        """Returns a text of Python 2."""
        return raw if self.strings == "bytes" else raw.decode(self.strings)

    def run(self) -> Any:
        """Interprets the opcodes up to STOP; returns the object."""
        while True:
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                (made,) = self.stack
                return made
            self.spend(_OBJECT)
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise ValueError(f"the opcode 0x{code:02x}, which is not one of data")
            operation(self)


def _pushing(make: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    return lambda r: r.stack.append(make(r))


def _integer(r: _Reader, width: int) -> int:
    size = r.number(width)
    if size > MAX_INTEGER:
        raise ValueError(f"an integer of {size:,} bytes")
    return int.from_bytes(r.take(size), "little", signed=True)


def _reduce(r: _Reader) -> Any:
    args, function = r.pop(), r.pop()
    if not isinstance(function, _Name) or not isinstance(args, tuple):
        raise ValueError("a call of something else than a name")
    return function.make(r, args)


def _new_object(r: _Reader) -> Any:
    args, kind = r.pop(), r.pop()
    if kind is not _ORDERED or args != ():
        raise ValueError("an object of a class of its own")
    return OrderedDict()


def _remembered(r: _Reader, index: int) -> Any:
    if index not in r.memo:
        raise ValueError("a value that was not made")
    return r.memo[index]


def _tuple_of(r: _Reader, count: int) -> tuple[Any, ...]:
    return tuple(reversed([r.pop() for _ in range(count)]))


def _set_item(r: _Reader) -> None:
    value, key = r.pop(), r.pop()
    r.put(r.top(), [key, value])


def _append(r: _Reader) -> None:
    value = r.pop()
    r.extend(r.top(), [value])


def _appends(r: _Reader) -> None:
    rows = r.popped()
    r.extend(r.top(), rows)


def _set_items(r: _Reader) -> None:
    rows = r.popped()
    r.put(r.top(), rows)


def _dict_of(r: _Reader) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    r.put(made, r.popped())
    return made


def _build(r: _Reader) -> Any:
    state, target = r.pop(), r.pop()
    return r.build(target, state)


def _stack_global(r: _Reader) -> _Name:
    name, module = r.pop(), r.pop()
    return r.name(module, name)


_OPERATIONS: dict[int, Callable[[_Reader], Any]] = {
    ord("("): lambda r: r.marks.append(len(r.stack)),
    ord("0"): lambda r: r.pop(),
    ord("1"): lambda r: r.popped(),
    ord("N"): _pushing(lambda r: None),
    0x88: _pushing(lambda r: True),
    0x89: _pushing(lambda r: False),
    ord("J"): _pushing(lambda r: int.from_bytes(r.take(4), "little", signed=True)),
    ord("K"): _pushing(lambda r: r.number(1)),
    ord("M"): _pushing(lambda r: r.number(2)),
    0x8A: _pushing(lambda r: _integer(r, 1)),
    0x8B: _pushing(lambda r: _integer(r, 4)),
    ord("G"): _pushing(lambda r: struct.unpack(">d", r.take(8))[0]),
    ord("T"): _pushing(lambda r: r.string(r.sized(4))),
    ord("U"): _pushing(lambda r: r.string(r.sized(1))),
    ord("B"): _pushing(lambda r: r.sized(4)),
    ord("C"): _pushing(lambda r: r.sized(1)),
    **dict.fromkeys((0x8E, 0x96), _pushing(lambda r: r.sized(8))),  # bytes, and a bytearray, which only arrays use
    ord("X"): _pushing(lambda r: r.sized(4).decode("utf-8", "surrogatepass")),
    0x8C: _pushing(lambda r: r.sized(1).decode("utf-8", "surrogatepass")),
    0x8D: _pushing(lambda r: r.sized(8).decode("utf-8", "surrogatepass")),
    ord("]"): _pushing(lambda r: []),
    ord("l"): _pushing(lambda r: r.popped()),
    ord("a"): _append,
    ord("e"): _appends,
    ord(")"): _pushing(lambda r: ()),
    ord("t"): _pushing(lambda r: tuple(r.popped())),
    0x85: _pushing(lambda r: _tuple_of(r, 1)),
    0x86: _pushing(lambda r: _tuple_of(r, 2)),
    0x87: _pushing(lambda r: _tuple_of(r, 3)),
    ord("}"): _pushing(lambda r: {}),
    ord("d"): _pushing(_dict_of),
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("c"): _pushing(lambda r: r.name(r.line(), r.line())),
    0x93: _pushing(_stack_global),
    0x81: _pushing(_new_object),
    ord("R"): _pushing(_reduce),
    ord("b"): _pushing(_build),
    ord("q"): lambda r: r.remember(r.number(1)),
    ord("r"): lambda r: r.remember(r.number(4)),
    0x94: lambda r: r.remember(len(r.memo)),
    ord("h"): _pushing(lambda r: _remembered(r, r.number(1))),
    ord("j"): _pushing(lambda r: _remembered(r, r.number(4))),
    0x95: lambda r: r.take(8),  # FRAME: how much a reader from a file may read ahead
}


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


def check_nest(root: Any, most: int) -> None:
    """Checks that an object is a finite nest of plain values which can be walked through.

    Args:
        root: The object.
        most: Values that a walk may meet; one that is named several times counts each time.

    Raises:
        ValueError: If it is nested deeper than :data:`MAX_DEPTH`, contains itself, holds something else than plain data, or repeats
            parts so often that a walk has no end.
    """
    sizes: dict[int, int] = {}
    path: dict[int, tuple[Any, Iterator[Any], list[int]]] = {}

    def enter(value: Any) -> int | None:
        """Returns the size of a value, or puts it on the path."""
        if not isinstance(value, dict | list | tuple):
            if isinstance(value, _Name | _Dtype | _EmptyArray):
                raise ValueError("a part of an array without the rest")
            return 1
        if id(value) in path:
            raise ValueError("a container that contains itself")
        if id(value) in sizes:
            return sizes[id(value)]
        if len(path) >= MAX_DEPTH:
            raise ValueError(f"containers nested deeper than {MAX_DEPTH} levels")
        path[id(value)] = value, _children(value), [1]
        return None

    size = enter(root)
    while path:
        identity, (_, rest, count) = next(reversed(path.items()))
        for child in rest:
            size = enter(child)
            if size is None:
                break
            count[0] += size
            if count[0] > most:
                raise ValueError("parts that are repeated without end")
        else:
            del path[identity]
            sizes[identity] = count[0]
            if path:
                next(reversed(path.values()))[2][0] += count[0]


def load_pickle(
    data: bytes, path: object = "these bytes", strings: Literal["latin1", "bytes", "utf-8", "ascii"] = "latin1"
) -> Any:
    """Returns the plain data in a pickle: numbers, texts, bytes, lists, tuples, dicts, and arrays of numbers or texts.

    Runs no code. Makes arrays only of bytes that are in the file; what it makes takes at most about three times the file and 24 MB.

    Args:
        data: A pickle of protocol 2 to 5 that ends with the bytes.
        path: The file that they come from, for messages.
        strings: How texts of Python 2 are decoded; ``"bytes"`` leaves them as they are.

    Raises:
        CheckpointError: If it is damaged, or names anything but data.
    """
    made, end = read_pickle(data, path, strings)
    if end != len(data):
        raise _refused(path, f"{len(data) - end:,} bytes behind its end")
    return made


def read_pickle(data: bytes, path: object, strings: str = "latin1") -> tuple[Any, int]:
    """Returns the data in a pickle, as :func:`load_pickle`, and the number of its bytes; more may follow.

    Raises:
        CheckpointError: If it is damaged, or names anything but data.
    """
    try:
        if data[:1] != b"\x80" or not 2 <= (data[1] if len(data) > 1 else 0) <= 5:
            raise ValueError("bytes that do not begin with protocol 2 to 5")
        reader = _Reader(data, strings)
        reader.at = 2
        made = reader.run()
        check_nest(made, 1000 + 4 * len(data))
        return made, reader.at
    except (ValueError, TypeError, LookupError, struct.error, OverflowError, RecursionError) as error:
        raise _refused(path, str(error)[:200] or type(error).__name__) from None


def _refused(path: object, received: str) -> CheckpointError:
    return CheckpointError(
        f"this pickle cannot be read: {path}",
        expected="a whole pickle of dicts, lists, numbers, texts and arrays; its functions are not run",
        received=received,
        fix="take an older copy of the file, or save plain arrays in it",
    )
