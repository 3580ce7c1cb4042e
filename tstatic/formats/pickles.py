"""Reads pickles of plain data and arrays without running code.

:func:`load_pickle` interprets the opcodes of protocols 2 to 5 itself. A name that a pickle asks for is one of :data:`_NAMES`, each
with a constructor of plain data below; nothing is imported, called or executed on a file's behalf. Memory and work are paid for out
of a :class:`~tstatic.ir.budget.Budget` that grows with the file, so that a few bytes which copy one object again and again neither
fill the memory nor keep the reader busy.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from tstatic.errors import CheckpointError
from tstatic.ir.budget import Budget

Array = np.ndarray[Any, Any]

MAX_DEPTH = 100
"""Containers inside containers: far less than Python's recursion takes where somebody prints, compares or copies the nest."""
MAX_INTEGER = 1024
"""Bytes of one integer: its 2466 digits are fewer than the 4300 up to which Python writes a number as text."""
BUDGET = 24 << 20
"""Bytes that a file of any size may cost; each of its own bytes adds :data:`PER_BYTE`."""
PER_BYTE = 3
"""An array's bytes are paid twice, as what is cut out of the file and as the array; the rest is for what stands around them."""
# Bytes that are counted for what an opcode makes, beside its content: the object, its entry in a table that may be copied while it
# grows, and what :func:`check_nest` notes about it.
_PLACE, _ELEMENT, _ENTRY, _MEMO = 8, 10, 120, 128
"""A place on the stack, in a list, in a dict, in the memo."""
_NUMBER, _TEXT, _CONTAINER, _ARRAY, _ORDERED_DICT = 32, 80, 200, 400, 600
"""An object of each kind; an array adds 16 for each of its sizes."""
# Those that numpy writes; any other text would reach `newbyteorder`, which takes more than these.
_ORDERS = ("<", ">", "=", "|")
KINDS = "biufcSU"
"""Kinds of the dtypes that arrays may have: no Python objects."""


class _Name:
    """A function or class that a pickle names; it is never the real one."""

    def __init__(self, make: Callable[[_Reader, tuple[Any, ...]], Any]) -> None:
        self.make = make


class _Dtype:
    """A dtype whose byte order is given afterwards."""

    def __init__(self, code: str) -> None:
        if code[:1] not in KINDS or not code[1:].isdecimal() or not code.isascii():
            raise ValueError(f"an array of dtype {code!r}")
        self.code = code
        self.order = "="

    def made(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _EmptyArray:
    """An array without shape and content, which one BUILD gives: from then on the memo has ``made`` in its place."""

    def __init__(self) -> None:
        self.made: Array | None = None


# ------------------------------------------------------------------------------------------------------------------ names
def _short(value: Any, most: int) -> str:
    """Returns a text of a few characters, which Python 2 wrote as bytes."""
    if not isinstance(value, bytes | str) or len(value) > most:
        raise ValueError(f"a text of up to {most} characters, not {type(value).__name__}")
    return value.decode("latin1") if isinstance(value, bytes) else value


def _encode(reader: _Reader, args: tuple[Any, ...]) -> bytes:
    text, *codec = args
    if codec not in (["latin1"], ["latin-1"]) or not isinstance(text, str):
        raise ValueError("another use of encode than for bytes in latin1")
    reader.budget.spend(_TEXT + len(text))
    reader.budget.work(len(text))
    return text.encode("latin1")


def _dtype(reader: _Reader, args: tuple[Any, ...]) -> _Dtype:
    reader.budget.spend(_CONTAINER)
    # A kind and a size of up to 11 digits, which no element has.
    return _Dtype(_short(args[0], 12))


def _reconstruct(reader: _Reader, args: tuple[Any, ...]) -> _EmptyArray:
    reader.budget.spend(_CONTAINER)
    kind, shape, _ = args
    if kind is not _NDARRAY or type(shape) is not tuple or len(shape) != 1 or type(shape[0]) is not int or shape[0]:
        raise ValueError("another use of _reconstruct than for an array")
    return _EmptyArray()


def _scalar(reader: _Reader, args: tuple[Any, ...]) -> Any:
    dtype, data = args
    return reader.array((), dtype, data, False)[()]


def _frombuffer(reader: _Reader, args: tuple[Any, ...]) -> Array:
    data, dtype, shape, order = args
    return reader.array(shape, dtype, data, order == "F")


def _ordered(reader: _Reader, args: tuple[Any, ...]) -> OrderedDict[Any, Any]:
    reader.budget.spend(_ORDERED_DICT)
    if not args:
        return OrderedDict()
    (rows,) = args
    if not isinstance(rows, list | tuple):
        raise ValueError("a dict of something else than a list")
    done: OrderedDict[Any, Any] = OrderedDict()
    for row in rows:
        reader.budget.step(2 * _ENTRY)
        if not isinstance(row, list | tuple) or len(row) != 2:
            raise ValueError("an item of a dict that is not a pair")
        done[_key(row[0])] = row[1]
    return done


def _tuple(reader: _Reader, args: tuple[Any, ...]) -> tuple[Any, ...]:
    rows = args[0] if args else ()
    if not isinstance(rows, list | tuple) or len(args) > 1:
        raise ValueError("a tuple of something else than a list")
    reader.budget.spend(_CONTAINER + 8 * len(rows))
    reader.budget.work(8 * len(rows))
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
    """The state of an interpreter of opcodes: position, stack, memo, and the budget."""

    def __init__(self, data: bytes, strings: str, budget: Budget) -> None:
        self.data = data
        self.strings = strings
        self.budget = budget
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

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

    def fitting(self, width: int) -> int:
        """Returns a count of bytes that are there, and pays for touching them."""
        count = self.number(width)
        if count > len(self.data) - self.at:
            raise ValueError("an end in the middle of a value")
        self.budget.work(count)
        return count

    def sized(self, width: int) -> bytes:
        """Returns bytes behind their count."""
        count = self.fitting(width)
        self.budget.spend(_TEXT + count)
        return self.take(count)

    def text(self, width: int) -> str:
        """Returns a text behind the count of its bytes."""
        count = self.fitting(width)
        self.budget.spend(_TEXT)
        return self.budget.text(self.take(count), "utf-8", "surrogatepass")

    def line(self) -> str:
        # Names of data are short, and a search to the end of the file in each opcode would cost more than it.
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
        self.budget.spend(_ELEMENT * len(found))
        return found

    def container(self, made: Any) -> Any:
        """Pays for an empty container, or one of elements that are paid for."""
        self.budget.spend(_CONTAINER)
        return made

    def remember(self, index: int) -> None:
        if not self.stack:
            raise ValueError("nothing to remember")
        self.budget.spend(_MEMO)
        self.memo[index] = self.stack[-1]

    def name(self, module: Any, name: Any) -> _Name:
        found = _NAMES.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
        if found is None:
            # Not whatever stands there: the text of a nest of shared lists may have no end.
            told = [one[:80] if isinstance(one, str) else type(one).__name__ for one in (module, name)]
            raise ValueError(f"the name {'.'.join(told)}, which is not one of data")
        return found

    def array(self, shape: Any, dtype: Any, data: Any, fortran: Any) -> Array:
        """Returns an array of bytes that are there."""
        # 32 axes: the most that numpy 1 has, with which Paddle 2.6 runs.
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or len(shape) > 32:
            raise ValueError("an array without shape or dtype")
        kind = dtype.made()
        # A bool is an int, too. No machine addresses 2**48 bytes.
        if not all(type(size) is int and 0 <= size < 2**48 for size in shape):
            told = ", ".join(str(size) if type(size) is int else type(size).__name__ for size in shape)
            raise ValueError(f"an array of shape ({told[:80]})")
        if not isinstance(data, bytes | str):
            raise ValueError("an array without its bytes")
        self.budget.spend(_ARRAY + 16 * len(shape) + len(data))
        self.budget.work(3 * len(data))
        raw = data.encode("latin1") if isinstance(data, str) else data
        if not kind.itemsize or math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array {kind}{str(list(shape))[:80]} without its bytes")
        flat = np.frombuffer(raw, kind).astype(kind.newbyteorder("="))
        return flat.reshape(shape[::-1]).T if fortran is True else flat.reshape(shape)

    def build(self, target: Any, state: Any) -> Any:
        """Returns an object with the state that BUILD gives it."""
        if isinstance(target, _EmptyArray):
            if target.made is not None:
                raise ValueError("an array that is filled twice")
            _, shape, dtype, fortran, data = state
            target.made = self.array(shape, dtype, data, fortran)
            return target.made
        if not isinstance(target, _Dtype) or not isinstance(state, tuple) or len(state) < 2:
            raise ValueError("a state for an object that has none")
        target.order = _short(state[1], 1)
        if target.order not in _ORDERS:
            raise ValueError(f"a dtype in the order {target.order!r}")
        return target

    def put(self, target: Any, rows: list[Any]) -> None:
        """Puts keys and values into a dict."""
        if not isinstance(target, dict) or len(rows) % 2:
            raise ValueError("items for something else than a dict")
        self.budget.spend(_ENTRY // 2 * len(rows))
        for i in range(0, len(rows), 2):
            target[_key(rows[i])] = rows[i + 1]

    def extend(self, target: Any, rows: list[Any]) -> None:
        if not isinstance(target, list):
            raise ValueError("elements for something else than a list")
        self.budget.spend(_ELEMENT * len(rows))
        target.extend(rows)

    def top(self) -> Any:
        if not self.stack:
            raise ValueError("an empty stack")
        return self.stack[-1]

    def string(self, raw: bytes) -> str | bytes:
        """Returns a text of Python 2."""
        return raw if self.strings == "bytes" else self.budget.text(raw, self.strings)

    def run(self) -> Any:
        """Interprets the opcodes up to STOP; returns the object."""
        while True:
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                (made,) = self.stack
                return made
            self.budget.step(_PLACE)
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise ValueError(f"the opcode 0x{code:02x}, which is not one of data")
            operation(self)


def _mark(r: _Reader) -> None:
    r.budget.spend(_NUMBER)
    r.marks.append(len(r.stack))


def _number(r: _Reader, size: int, signed: bool = False) -> int:
    r.budget.spend(_NUMBER)
    return int.from_bytes(r.take(size), "little", signed=signed)


def _float(r: _Reader) -> float:
    r.budget.spend(_NUMBER)
    number: float = struct.unpack(">d", r.take(8))[0]
    return number


def _pushing(make: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    return lambda r: r.stack.append(make(r))


def _integer(r: _Reader, width: int) -> int:
    size = r.number(width)
    if size > MAX_INTEGER:
        raise ValueError(f"an integer of {size:,} bytes")
    r.budget.spend(_NUMBER + 2 * size)
    r.budget.work(2 * size)
    return int.from_bytes(r.take(size), "little", signed=True)


def _reduce(r: _Reader) -> Any:
    args, function = r.pop(), r.pop()
    if not isinstance(function, _Name) or not isinstance(args, tuple):
        raise ValueError("a call of something else than a name")
    return function.make(r, args)


def _new_object(r: _Reader) -> Any:
    args, kind = r.pop(), r.pop()
    if kind is not _ORDERED or type(args) is not tuple or args:
        raise ValueError("an object of a class of its own")
    r.budget.spend(_ORDERED_DICT)
    return OrderedDict()


def _remembered(r: _Reader, index: int) -> Any:
    if index not in r.memo:
        raise ValueError("a value that was not made")
    value = r.memo[index]
    return value.made if isinstance(value, _EmptyArray) and value.made is not None else value


def _tuple_of(r: _Reader, count: int) -> tuple[Any, ...]:
    r.budget.spend(_CONTAINER)
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
    made: dict[Any, Any] = r.container({})
    r.put(made, r.popped())
    return made


def _build(r: _Reader) -> Any:
    state, target = r.pop(), r.pop()
    return r.build(target, state)


def _stack_global(r: _Reader) -> _Name:
    name, module = r.pop(), r.pop()
    return r.name(module, name)


_OPERATIONS: dict[int, Callable[[_Reader], Any]] = {
    ord("("): _mark,
    ord("0"): lambda r: r.pop(),
    ord("1"): lambda r: r.popped(),
    ord("N"): _pushing(lambda r: None),
    0x88: _pushing(lambda r: True),
    0x89: _pushing(lambda r: False),
    ord("J"): _pushing(lambda r: _number(r, 4, signed=True)),
    ord("K"): _pushing(lambda r: r.number(1)),
    ord("M"): _pushing(lambda r: _number(r, 2)),
    0x8A: _pushing(lambda r: _integer(r, 1)),
    0x8B: _pushing(lambda r: _integer(r, 4)),
    ord("G"): _pushing(_float),
    ord("T"): _pushing(lambda r: r.string(r.sized(4))),
    ord("U"): _pushing(lambda r: r.string(r.sized(1))),
    ord("B"): _pushing(lambda r: r.sized(4)),
    ord("C"): _pushing(lambda r: r.sized(1)),
    **dict.fromkeys((0x8E, 0x96), _pushing(lambda r: r.sized(8))),  # bytes, and a bytearray, which only arrays use
    ord("X"): _pushing(lambda r: r.text(4)),
    0x8C: _pushing(lambda r: r.text(1)),
    0x8D: _pushing(lambda r: r.text(8)),
    ord("]"): _pushing(lambda r: r.container([])),
    ord("l"): _pushing(lambda r: r.container(r.popped())),
    ord("a"): _append,
    ord("e"): _appends,
    ord(")"): _pushing(lambda r: ()),
    ord("t"): _pushing(lambda r: r.container(tuple(r.popped()))),
    0x85: _pushing(lambda r: _tuple_of(r, 1)),
    0x86: _pushing(lambda r: _tuple_of(r, 2)),
    0x87: _pushing(lambda r: _tuple_of(r, 3)),
    ord("}"): _pushing(lambda r: r.container({})),
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
    0x95: lambda r: r.number(8),  # FRAME: how much a reader from a file may read ahead
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
        LoadLimitError: If reading it takes more memory or work than its size allows.
    """
    made, end = read_pickle(data, path, strings)
    if end != len(data):
        raise _refused(path, f"{len(data) - end:,} bytes behind its end")
    return made


def read_pickle(data: bytes, path: object, strings: str = "latin1", budget: Budget | None = None) -> tuple[Any, int]:
    """Returns the data in a pickle, as :func:`load_pickle`, and the number of its bytes; more may follow.

    Args:
        data, path, strings: As of :func:`load_pickle`.
        budget: What reading may cost; by default what ``data`` may cost.

    Raises:
        CheckpointError: If it is damaged, or names anything but data.
        LoadLimitError: If reading it takes more memory or work than its size allows.
    """
    try:
        if data[:1] != b"\x80" or not 2 <= (data[1] if len(data) > 1 else 0) <= 5:
            raise ValueError("bytes that do not begin with protocol 2 to 5")
        budget = Budget(len(data), BUDGET, PER_BYTE, path) if budget is None else budget
        reader = _Reader(data, strings, budget)
        reader.at = 2
        made = reader.run()
        # Behind the budget, which bounds what is made: a few shared lists may still be a walk without end.
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
