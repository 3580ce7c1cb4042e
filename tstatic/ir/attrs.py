"""Attributes of ops (kinds, defaults and checks), and slots: their named inputs and outputs."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.ir.types import DType, dtype_of


class _NoAttrs(dict[str, Any]):
    """An empty, hashable mapping: dataclasses take no other kind as a default."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0  # all of them are empty, and so equal


NO_ATTRS: Mapping[str, Any] = _NoAttrs()


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


Kind = Literal[
    "bool", "int", "float", "str", "ints", "floats", "strs", "bools", "dtype", "number", "block", "function", "any"
]


@dataclass(frozen=True, slots=True)
class Attr:
    """One attribute of an op: its default, its kind, and what values make sense.

    Attributes:
        default: Its value where none is given.
        kind: Of its values.
        check: Returns a sentence that says what is wrong, or ``None``.
        no_effect: For an attribute that is accepted and changes no result of the op: why. A test finds those that do not
            say so; ``docs/ops.md`` lists those that do.
    """

    default: Any = REQUIRED
    kind: Kind = "any"
    check: Callable[[Any], str | None] | None = None
    no_effect: str = ""

    @staticmethod
    def idle(default: Any, why: str, kind: Kind | None = None) -> Attr:
        """Makes an attribute that changes no result; the default decides its kind."""
        guessed = Attr.of(default)
        return replace(guessed, kind=kind or guessed.kind, no_effect=why)

    @staticmethod
    def of(default: Any) -> Attr:
        """Makes an attribute whose default decides its kind; returns an ``Attr`` unchanged."""
        if isinstance(default, Attr):
            return default
        # Truth values before integers, which they are instances of.
        kinds: tuple[tuple[type, Kind], ...] = (
            (bool, "bool"), (int, "int"), (float, "float"), (str, "str"), (DType, "dtype"),
        )  # fmt: skip
        return Attr(default, next((kind for type, kind in kinds if isinstance(default, type)), "any"))

    def clean(self, op: str, name: str, value: Any) -> Any:
        """Returns ``value`` in the attribute's own type.

        Raises:
            ProgramTypeError: If the value is of another kind.
            ProgramError: If it is NaN where a number is needed, or ``check`` refuses it.
        """
        if value is None and self.default is None:
            return None
        try:
            cleaned = _KINDS[self.kind][0](value)
        except (TypeError, ValueError):
            raise ProgramTypeError(
                f"attribute '{name}' of operator '{op}' has the wrong type",
                expected=EXPECT[self.kind],
                received=shown(value),
                fix=f"pass {EXPECT[self.kind]} for '{name}'",
                op=op,
            ) from None
        reason = self.check(cleaned) if self.check is not None else None
        if reason:
            raise ProgramError(
                f"attribute '{name}' of operator '{op}' has a value that cannot be used",
                expected=reason,
                received=repr(value),
                fix=f"choose {reason}",
                op=op,
            )
        return cleaned


def one_of(*choices: str) -> Callable[[Any], str | None]:
    """Returns the ``check`` of an attribute that takes only these values."""
    return lambda value: None if value in choices else f"one of {', '.join(map(repr, choices))}"


def _as_bool(v: Any) -> bool:
    if isinstance(v, bool | np.bool_):
        return bool(v)
    raise TypeError


def _as_int(v: Any) -> int:
    # A bool is an int in Python; as a size or an axis it is a mistake.
    if isinstance(v, bool | np.bool_) or not isinstance(v, numbers.Integral):
        raise TypeError
    return int(v)


def _as_float(v: Any) -> float:
    if isinstance(v, bool | np.bool_) or not isinstance(v, numbers.Real):
        raise TypeError
    number = float(v)
    # NaN differs from itself: ops with equal attributes would not be found equal.
    if math.isnan(number):
        raise ValueError
    return number


def _as_number(v: Any) -> bool | int | float:
    if isinstance(v, bool | np.bool_):
        return bool(v)
    if isinstance(v, numbers.Integral):
        return int(v)
    if isinstance(v, numbers.Real):
        return float(v)
    raise TypeError


def _as_str(v: Any) -> str:
    if isinstance(v, str):
        return v
    raise TypeError


def _listed(one: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def convert(v: Any) -> tuple[Any, ...]:
        # A str is a sequence of texts itself: 'ab' would become ('a', 'b').
        if isinstance(v, str | bytes | Mapping) or not isinstance(v, Iterable):
            raise TypeError
        return tuple(one(item) for item in v)

    return convert


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bool": (_as_bool, "a bool"),
    "int": (_as_int, "an int"),
    "float": (_as_float, "a float that is not NaN"),
    "number": (_as_number, "a number"),
    "str": (_as_str, "a str"),
    "ints": (_listed(_as_int), "a list of ints"),
    "floats": (_listed(_as_float), "a list of floats"),
    "bools": (_listed(_as_bool), "a list of bools"),
    "strs": (_listed(_as_str), "a list of str"),
    "dtype": (dtype_of, "a dtype"),
    "block": (lambda v: v, "a block"),
    # One that only this process has; negative for none.
    "function": (_as_int, "the number of a function"),
    "any": (lambda v: v, "a value"),
}
EXPECT = {kind: words for kind, (_, words) in _KINDS.items()}
"""Kind -> its values in the words of messages."""


def packed(array: np.ndarray[Any, Any]) -> tuple[Any, ...] | bytes:
    """Packs an array as an attribute: a tuple of numbers; bytes if it is large, complex, or holds NaN or infinities.

    Bytes are little-endian, in C order, of the attribute ``dtype``; they keep every bit and need no decimal text.
    """
    finite = array.dtype.kind in "biu" or bool(np.isfinite(array).all())
    # A few numbers stay readable in the program's text; more of them are smaller as bytes.
    if array.size <= 64 and finite and array.dtype.kind != "c":
        return tuple(array.ravel().tolist())
    # Saved programs are read on machines of either byte order.
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
    return np.ascontiguousarray(little).tobytes()


# -------------------------------------------------------------------------------------------------------------- slots
GRAD = "@GRAD"
EMPTY = "@EMPTY@"
LOD = "@LOD"
"""Behind the name of a slot: the slot of the row offsets of what is in it (``ir/lod.py``)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One named input or output of an op.

    Attributes:
        name: Paddle's slot name (``X``, ``Out@GRAD``).
        many: Holds a list of values (written ``X*``).
        optional: May be absent (written ``X?``); the op's functions then get ``None``.
        intermediate: An output made for the backward op only (written ``Mask~``).
    """

    name: str
    many: bool = False
    optional: bool = False
    intermediate: bool = False

    @property
    def param(self) -> str:
        """The slot's name inside a pointwise expression: ``X`` is ``x``, ``Out@GRAD`` is ``dout``."""
        name = self.name
        order = 0
        # Gradients of gradients have the suffix twice: `ddout`.
        while name.endswith(GRAD):
            name = name[: -len(GRAD)]
            order += 1
        return "d" * order + name.lower()


_SLOT = re.compile(r"^([A-Za-z0-9_@-]+)([*?~]*)$")


def parse_slots(text: str) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Reads ``"X, Y?, Z* -> Out, Mask~"`` (the marks of the spec's table) into input and output slots."""
    left, arrow, right = text.partition("->")
    assert arrow, f"slots need an arrow: {text!r}"

    def side(part: str) -> tuple[Slot, ...]:
        slots = []
        for item in filter(None, (p.strip() for p in part.split(","))):
            match = _SLOT.match(item)
            assert match, f"bad slot {item!r} in {text!r}"
            name, marks = match.groups()
            # What is intermediate may be left out, too.
            slots.append(Slot(name, "*" in marks, "?" in marks or "~" in marks, "~" in marks))
        return tuple(slots)

    return side(left), side(right)


# ---------------------------------------------------------------------------------------------------------------- op spec
@dataclass(frozen=True, slots=True)
class OpSpec:
    """An op to be appended: what a gradient rule answers with. Values are lists of variable names."""

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any] = NO_ATTRS
