"""Paddle's saved programs as messages: a reader and a writer of the part of protobuf that they use.

The schema below is all that there is. The protobuf package without generated code would need the same schema as descriptors, and
has no limit on memory: an empty message of two bytes costs a hundred. Fields that the schema lacks are skipped, as protobuf wants.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tstatic.ir.budget import Budget, budget_of_program

_OBJECT = 160
"""Bytes that are counted for a field or a message, and its place in a list."""

FLOAT_TYPES = "f", "d"
DTYPE_NUMBERS = {
    "bool": 0, "int16": 1, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6, "uint8": 20, "int8": 21,
    "bfloat16": 22, "complex64": 23, "complex128": 24,
}  # fmt: skip
"""The numbers of dtypes, and below those of kinds of variables."""
DENSE, FEED, FETCH = 7, 9, 10


@dataclass(slots=True)
class TensorDesc:
    """dtype and sizes; ``-1`` for a size that is not known."""

    data_type: int = -1
    dims: Sequence[int] = ()


@dataclass(slots=True)
class LoDTensorDesc:
    """A tensor with levels of sequences."""

    tensor: TensorDesc | None = None
    lod_level: int = 0


@dataclass(slots=True)
class VarType:
    """The kind of a variable; which of the other fields is set depends on it."""

    type: int = 7
    selected_rows: TensorDesc | None = None
    lod_tensor: LoDTensorDesc | None = None
    tensor_array: LoDTensorDesc | None = None


@dataclass(slots=True)
class VarDesc:
    """A variable."""

    name: str = ""
    type: VarType | None = None
    persistable: bool = False
    need_check_feed: bool = False
    is_parameter: bool = False
    stop_gradient: bool = False


@dataclass(slots=True)
class Slot:
    """An input or output of an op: its name and the variables in it."""

    parameter: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Scalar:
    """A number with its own type."""

    type: int = 0
    b: bool = False
    i: int = 0
    r: float = 0.0


@dataclass(slots=True)
class Attr:
    """An attribute; ``type`` says which field holds the value."""

    name: str = ""
    type: int = 0
    i: int | None = None
    f: float | None = None
    s: str | None = None
    ints: Sequence[int] = ()
    floats: Sequence[float] = ()
    strings: list[str] = field(default_factory=list)
    b: bool | None = None
    bools: Sequence[int] = ()
    block_idx: int | None = None
    l: int | None = None  # noqa: E741 - the name in the format
    blocks_idx: Sequence[int] = ()
    longs: Sequence[int] = ()
    float64s: Sequence[float] = ()
    var_name: str | None = None
    vars_name: list[str] = field(default_factory=list)
    float64: float | None = None
    scalar: Scalar | None = None
    scalars: list[Scalar] = field(default_factory=list)


@dataclass(slots=True)
class OpDesc:
    """An op."""

    inputs: list[Slot] = field(default_factory=list)
    outputs: list[Slot] = field(default_factory=list)
    type: str = ""
    attrs: list[Attr] = field(default_factory=list)


@dataclass(slots=True)
class BlockDesc:
    """A block of ops."""

    idx: int = 0
    parent_idx: int = -1
    vars: list[VarDesc] = field(default_factory=list)
    ops: list[OpDesc] = field(default_factory=list)
    forward_block_idx: int = -1


@dataclass(slots=True)
class Version:
    """The version of Paddle that wrote the program."""

    version: int = 0


@dataclass(slots=True)
class ProgramDesc:
    """A program."""

    blocks: list[BlockDesc] = field(default_factory=list)
    version: Version | None = None


# Other formats of Paddle add their messages here.
# Number -> field, and kind: a message, "str", "bool", "int", "float" or "double"; a "*" behind it for many values.
FIELDS: dict[type, dict[int, tuple[str, Any]]] = {
    TensorDesc: {1: ("data_type", "int"), 2: ("dims", "int*")},
    LoDTensorDesc: {1: ("tensor", TensorDesc), 2: ("lod_level", "int")},
    VarType: {
        1: ("type", "int"), 2: ("selected_rows", TensorDesc), 3: ("lod_tensor", LoDTensorDesc),
        4: ("tensor_array", LoDTensorDesc),
    },
    VarDesc: {
        1: ("name", "str"), 2: ("type", VarType), 3: ("persistable", "bool"), 4: ("need_check_feed", "bool"),
        5: ("is_parameter", "bool"), 6: ("stop_gradient", "bool"),
    },
    Slot: {1: ("parameter", "str"), 2: ("arguments", "str*")},
    Scalar: {1: ("type", "int"), 2: ("b", "bool"), 3: ("i", "int"), 4: ("r", "double")},
    Attr: {
        1: ("name", "str"), 2: ("type", "int"), 3: ("i", "int"), 4: ("f", "float"), 5: ("s", "str"), 6: ("ints", "int*"),
        7: ("floats", "float*"), 8: ("strings", "str*"), 10: ("b", "bool"), 11: ("bools", "int*"), 12: ("block_idx", "int"),
        13: ("l", "int"), 14: ("blocks_idx", "int*"), 15: ("longs", "int*"), 16: ("float64s", "double*"), 17: ("var_name", "str"),
        18: ("vars_name", "str*"), 19: ("float64", "double"), 20: ("scalar", Scalar), 21: ("scalars", (Scalar,)),
    },
    OpDesc: {1: ("inputs", (Slot,)), 2: ("outputs", (Slot,)), 3: ("type", "str"), 4: ("attrs", (Attr,))},
    BlockDesc: {
        1: ("idx", "int"), 2: ("parent_idx", "int"), 3: ("vars", (VarDesc,)), 4: ("ops", (OpDesc,)),
        5: ("forward_block_idx", "int"),
    },
    Version: {1: ("version", "int")},
    ProgramDesc: {1: ("blocks", (BlockDesc,)), 4: ("version", Version)},
}  # fmt: skip
_WIRE = {"int": 0, "bool": 0, "double": 1, "str": 2, "float": 5}
_ARRAYS = {"int": "q", "float": "f", "double": "d"}

M = TypeVar("M")


# ------------------------------------------------------------------------------------------------------------------- read
def read_program(data: bytes, budget: Budget | None = None) -> ProgramDesc:
    """Returns the message that bytes hold.

    Raises:
        ValueError: If they are damaged.
        LoadLimitError: If they hold more parts than bytes of that number should cost.
    """
    return read_message(ProgramDesc, data, budget)


def read_message(kind: type[M], data: bytes, budget: Budget | None = None) -> M:
    """Returns a message of a kind (see :func:`read_program`)."""
    return _Reader(data, budget or budget_of_program(len(data), "these bytes")).message(kind, 0, len(data))


class _Reader:
    def __init__(self, data: bytes, budget: Budget) -> None:
        self.data = data
        self.budget = budget

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Returns a number, and where it ends."""
        value = shift = 0
        while at < end:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift > 63:
                raise ValueError("a number longer than ten bytes")
        raise ValueError("an end in the middle of a number")

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields number, wire type, and where the value begins and ends."""
        while at < end:
            key, at = self.varint(at, end)
            number, wire = key >> 3, key & 7
            if wire == 0:
                begin = at
                _, at = self.varint(at, end)
            elif wire == 2:
                size, begin = self.varint(at, end)
                at = begin + size
            elif wire in (1, 5):
                begin = at
                at += 8 if wire == 1 else 4
            else:
                raise ValueError(f"wire type {wire}")
            if at > end or number == 0:
                raise ValueError(
                    "a field that is longer than what it stands in" if number else "a field without a number"
                )
            self.budget.step(_OBJECT)
            yield number, wire, begin, at

    def message(self, kind: type[M], at: int, end: int) -> M:
        """Returns the message between two positions; the last value of a field counts, and those of many are collected."""
        made: Any = kind()
        known = FIELDS[kind]
        for number, wire, begin, stop in self.fields(at, end):
            if number not in known:
                continue
            name, form = known[number]
            many = isinstance(form, tuple) or (isinstance(form, str) and form.endswith("*"))
            if isinstance(form, type | tuple):
                if wire != 2:
                    raise ValueError(f"{name} should be a message")
                self.budget.spend(_OBJECT)
                value = self.message(form[0] if isinstance(form, tuple) else form, begin, stop)
            else:
                base = form.rstrip("*")
                if many and base != "str":
                    self.numbers(made, name, base, wire, begin, stop)
                    continue
                value = self.value(name, base, wire, begin, stop)
            if many:
                getattr(made, name).append(value)
            else:
                setattr(made, name, value)
        return cast(M, made)

    def value(self, name: str, base: str, wire: int, begin: int, stop: int) -> Any:
        if wire != _WIRE[base]:
            raise ValueError(f"{name} is of wire type {wire}")
        if base == "str":
            return self.budget.text(self.data[begin:stop], "utf-8")
        if base in ("float", "double"):
            return struct.unpack_from("<f" if base == "float" else "<d", self.data, begin)[0]
        number = self.varint(begin, stop)[0]
        return bool(number) if base == "bool" else _signed(number)

    def numbers(self, made: Any, name: str, base: str, wire: int, begin: int, stop: int) -> None:
        """Adds one number, or many in a row, to a list, which holds eight bytes for each."""
        rows = getattr(made, name)
        if not isinstance(rows, array):
            rows = array(_ARRAYS[base])
            setattr(made, name, rows)
        if wire == _WIRE[base]:
            rows.append(self.value(name, base, wire, begin, stop))
        elif wire != 2:
            raise ValueError(f"{name} is of wire type {wire}")
        elif base == "int":
            while begin < stop:
                number, begin = self.varint(begin, stop)
                self.budget.step(8)
                rows.append(_signed(number))
        else:
            if (stop - begin) % rows.itemsize:
                raise ValueError(f"{name} ends in the middle of a number")
            self.budget.spend(stop - begin)
            self.budget.work(stop - begin)
            rows.frombytes(self.data[begin:stop])


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


# ------------------------------------------------------------------------------------------------------------------ write
def write_program(program: ProgramDesc) -> bytes:
    """Returns a message as bytes, which :func:`read_program` and Paddle read."""
    return write_message(program)


def write_message(message: Any) -> bytes:
    """Returns a message of any kind as bytes."""
    out = bytearray()
    _write(out, message)
    return bytes(out)


def _varint(out: bytearray, number: int) -> None:
    number &= 0xFFFFFFFFFFFFFFFF
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write(out: bytearray, message: Any) -> None:
    for number, (name, form) in FIELDS[type(message)].items():
        value = getattr(message, name)
        if value is None:
            continue
        many = isinstance(form, tuple) or (isinstance(form, str) and form.endswith("*"))
        for item in value if many else (value,):
            if isinstance(form, type | tuple):
                inner = bytearray()
                _write(inner, item)
                _sized(out, number, inner)
                continue
            base = form.rstrip("*")
            if base == "str":
                _sized(out, number, item.encode("utf-8"))
                continue
            _varint(out, number << 3 | _WIRE[base])
            if base in ("int", "bool"):
                _varint(out, int(item))
            else:
                out += _float32(item) if base == "float" else struct.pack("<d", item)


def _float32(value: float) -> bytes:
    """Returns a number as four bytes; one beyond the range of float32 becomes infinite, as in Paddle's own attributes."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _sized(out: bytearray, number: int, content: bytes | bytearray) -> None:
    _varint(out, number << 3 | 2)
    _varint(out, len(content))
    out += content


# -------------------------------------------------------------------------------------------------------------- attributes
KINDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("i", int), ("f", float), ("s", str), ("ints", tuple), ("floats", tuple), ("strings", tuple), ("b", bool),
    ("bools", lambda row: tuple(map(bool, row))), ("block_idx", int), ("l", int), ("blocks_idx", tuple), ("longs", tuple),
    ("float64s", tuple), ("var_name", str), ("vars_name", tuple), ("float64", float),
)  # fmt: skip
"""Field and Python type of an attribute's value, by the number of its type."""


def value_of(attr: Attr) -> Any:
    """Returns an attribute's value; ``None`` if it has none.

    Raises:
        ValueError: If its type is not one of Paddle's.
    """
    if 0 <= attr.type < len(KINDS):
        name, kind = KINDS[attr.type]
        value = getattr(attr, name)
        return None if value is None else kind(value)
    if attr.type == 16 and attr.scalar is not None:
        return _number(attr.scalar)
    if attr.type == 17:
        return tuple(map(_number, attr.scalars))
    raise ValueError(f"attribute '{attr.name[:80]}' of type {attr.type}")


def _number(scalar: Scalar) -> bool | int | float:
    if scalar.type not in (1, 2, 3):
        raise ValueError(f"a number of type {scalar.type}")
    return (scalar.b, scalar.i, scalar.r)[scalar.type - 1]
