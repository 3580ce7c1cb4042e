"""Data types, shapes with unknown dimensions, the metadata of a value, and arrays that users give."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, FeedTypeError, ShapeError, TstaticError, near, needed_for, reason

with needed_for("bfloat16, one of tstatic's types,"):
    import ml_dtypes

# Paddle's mark of a size that the feed decides.
UNKNOWN = -1


class DType:
    """An element type; a singleton per type, equal to its own name and to its numpy dtype.

    ``paddle.float32``, ``"float32"``, ``np.float32`` and ``VarType.FP32`` all name the same object after :func:`dtype_of`.

    Args:
        name: ``"float32"`` and the like.
        np_type: What ``numpy.dtype`` takes.
        short: Paddle's name, such as ``"FP32"``.

    Example:
        >>> x = static.data("x", [2], dtype=paddle.float16)
        >>> x.dtype == "float16", x.dtype.itemsize
        (True, 2)
        >>> x.dtype.np
        dtype('float16')
    """

    __slots__ = ("compute", "is_complex", "is_float", "is_inexact", "is_low", "itemsize", "name", "np", "short")

    compute: DType
    """The type that arithmetic on this type is done in."""

    def __init__(self, name: str, np_type: Any, short: str) -> None:
        self.name = name
        self.np = np.dtype(np_type)
        self.itemsize = self.np.itemsize
        self.is_float = name in ("float16", "bfloat16", "float32", "float64")
        self.is_complex = self.np.kind == "c"
        # Floats and complex numbers: what has fractions, and gradients.
        self.is_inexact = self.is_float or self.is_complex
        # Whether arithmetic runs in float32 and is rounded once: float16 and bfloat16.
        self.is_low = self.is_float and self.itemsize == 2
        self.compute = self
        self.short = short

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype, so that ``np.zeros(3, var.dtype)`` works."""
        dtype: np.dtype[Any] = self.np
        return dtype

    @property
    def is_integer(self) -> bool:
        return self.np.kind in "iu"

    @property
    def real(self) -> DType:
        """The type of the real and the imaginary part of a complex type; any other type itself."""
        return _PARTS.get(self.name, self)

    @property
    def complex(self) -> DType:
        """The complex type whose parts are of this type; complex64 for any other, a complex type itself.

        Example:
            >>> paddle.float64.complex, paddle.complex64.real
            (tstatic.complex128, tstatic.float32)
        """
        return self if self.is_complex else complex128 if self.name == "float64" else complex64

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str):
            return other == self.name or other == f"paddle.{self.name}"
        # A bool is an int, too, and names no type.
        if type(other) is int:
            return other == _NUMBERS.get(self.name)
        if isinstance(other, np.dtype | type):
            try:
                return bool(self.np == np.dtype(other))
            except TypeError:
                return False
        return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __int__(self) -> int:
        """Paddle's number of the type, as attributes of raw operators hold it; a dtype equals its number."""
        return _NUMBERS[self.name]

    def __repr__(self) -> str:
        return f"tstatic.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_of, (self.name,)


_NUMBERS = {"bool": 0, "int16": 1, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6, "uint8": 20, "int8": 21,
            "bfloat16": 22, "complex64": 23, "complex128": 24}  # fmt: skip
"""Name -> the number in Paddle's files and attributes."""

bool_ = DType("bool", np.bool_, "BOOL")
uint8 = DType("uint8", np.uint8, "UINT8")
int8 = DType("int8", np.int8, "INT8")
int16 = DType("int16", np.int16, "INT16")
int32 = DType("int32", np.int32, "INT32")
int64 = DType("int64", np.int64, "INT64")
float16 = DType("float16", np.float16, "FP16")
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, "BF16")
float32 = DType("float32", np.float32, "FP32")
float16.compute = bfloat16.compute = float32
float64 = DType("float64", np.float64, "FP64")
complex64 = DType("complex64", np.complex64, "COMPLEX64")
complex128 = DType("complex128", np.complex128, "COMPLEX128")


class VarKind(str):
    """What a variable is if not an array of elements, such as ``"reader"``; ``int(...)`` is Paddle's number of it."""

    _number: int

    def __new__(cls, name: str, number: int) -> VarKind:
        made = super().__new__(cls, name)
        made._number = number
        return made

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return str(self), self._number

    def __int__(self) -> int:
        return self._number


VAR_KINDS = {
    number: VarKind(name, number)
    for number, name in {
        7: "dense_tensor", 8: "selected_rows", 9: "feed_minibatch", 10: "fetch_list", 11: "step_scopes", 12: "lod_rank_table",
        13: "lod_tensor_array", 14: "place_list", 15: "reader", 17: "raw",
    }.items()
}  # fmt: skip
"""Paddle's number in files and attributes -> what a variable is."""

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128)
}
_PARTS = {"complex64": float32, "complex128": float64}
_BY_NUMPY = {d.np: d for d in DTYPES.values()}
# Words that numpy knows as well mean what they mean there, on 64-bit Linux: "int" and "float" are Python's types.
_ALIASES = {"float": float64, "double": float64, "single": float32, "half": float16, "int": int64, "long": int64,
            "short": int16, "byte": int8, "fp16": float16, "bf16": bfloat16, "fp32": float32, "fp64": float64,
            "complex": complex128}  # fmt: skip


def wrap(number: int, dtype: DType) -> int:
    """Returns the integer of a type that equals ``number`` modulo 2 to the number of bits, as sums and products do."""
    bits: int = 8 * dtype.itemsize
    low = 0 if dtype.np.kind == "u" else -(1 << (bits - 1))
    return (number - low) % (1 << bits) + low


def dtype_of(value: Any) -> DType:
    """Returns the :class:`DType` that ``value`` names.

    Args:
        value: A DType, its name or numpy's (``"i4"``), Paddle's number, a numpy dtype or type, or a Python type (``bool``, ``int``
            ``float`` and ``complex``: bool, int64, float64 and complex128, under these names too).

    Raises:
        DTypeError: If nothing of that name exists.
    """
    # Nearly all calls: the type of an array, of which binding a plan asks thousands of times.
    if isinstance(value, np.dtype) and (known := _BY_NUMPY.get(value)) is not None:
        return known
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = value.removeprefix("paddle.").removeprefix("tstatic.").removeprefix("torch.")
        found = DTYPES.get(name) or _ALIASES.get(name) or _of_numpy(name)
        if found is not None:
            return found
        raise DTypeError(
            f"there is no dtype named {value!r}",
            expected=f"one of {', '.join(DTYPES)}",
            received=repr(value),
            fix=near(name, DTYPES) or "use one of the names above",
            op="dtype",
        )
    if type(value) is int:
        found = next((d for d in DTYPES.values() if _NUMBERS[d.name] == value), None)
    else:
        found = int64 if value is int else _of_numpy(value)
    if found is None:
        raise DTypeError(
            "this is not a dtype that tstatic has",
            expected=f"one of {', '.join(DTYPES)}",
            received=repr(value),
            fix="pass the dtype's name, for example 'float32'",
            op="dtype",
        )
    return found


def _of_numpy(value: Any) -> DType | None:
    """Returns the type that numpy has under a name or for a type; ``None`` if tstatic lacks it."""
    try:
        # '>f4' is float32 as well: the order of bytes is not part of a type here.
        return _BY_NUMPY.get(np.dtype(value).newbyteorder("="))
    except (TypeError, ValueError):
        return None


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, init=False)
class Meta:
    """Shape (``-1`` for an unknown size) and dtype of a value."""

    shape: Shape
    dtype: DType

    def __init__(self, shape: Shape, dtype: DType) -> None:
        # As the slots' own setters do it, in two thirds of the time of a generated method: a plan makes thousands.
        _set_shape(self, shape)
        _set_dtype(self, dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def known(self) -> bool:
        """Whether every size is known."""
        return UNKNOWN not in self.shape

    @property
    def numel(self) -> int:
        """Number of elements; ``-1`` when a size is unknown."""
        return UNKNOWN if UNKNOWN in self.shape else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        size: int = (UNKNOWN if UNKNOWN in self.shape else math.prod(self.shape)) * self.dtype.itemsize
        return size

    def with_shape(self, shape: Iterable[int]) -> Meta:
        return Meta(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> Meta:
        return Meta(self.shape, dtype)

    def __hash__(self) -> int:
        # Metas are keys of what is planned for sizes, which are what they differ in; a hash of the dtype costs as much again.
        return hash(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


_set_shape, _set_dtype = vars(Meta)["shape"].__set__, vars(Meta)["dtype"].__set__


def numel(shape: Sequence[int]) -> int:
    """Returns the product of the sizes; ``-1`` when a size is unknown."""
    return UNKNOWN if UNKNOWN in shape else math.prod(shape)


MAX_ELEMENTS = (1 << 60) - 1
"""The largest number of elements: 2**60 of 8 bytes, the widest dtype, are 2**63 bytes, which an int64 cannot count."""


def is_addressable(shape: Sequence[int]) -> bool:
    """Returns whether a value of the shape has at most :data:`MAX_ELEMENTS` elements; unknown sizes and 0 count as 1."""
    return math.prod(max(int(size), 1) for size in shape) <= MAX_ELEMENTS


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """Maps a negative axis to its positive number.

    Raises:
        ShapeError: If the axis is outside ``[-rank, rank)``.
    """
    # A scalar counts as having one axis.
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(
            f"{what} {axis} is out of range for a value of rank {rank}",
            expected=f"an {what} in [{-rank}, {max(rank, 1) - 1}]",
            received=axis,
            fix=f"choose an {what} that the input has",
        )
    return axis + rank if axis < 0 else axis


def broadcast_shapes(x: Shape, y: Shape) -> Shape:
    """Returns the shape of a numpy-style broadcast, where an unknown size may meet a known one.

    An unknown size against 1 stays unknown; against a size above 1 it must turn out to be that size or 1, so the result is
    that size.

    Raises:
        ShapeError: If two known sizes differ and neither is 1.
    """
    rank = max(len(x), len(y))
    px = (1,) * (rank - len(x)) + x
    py = (1,) * (rank - len(y)) + y
    out = []
    for a, b in zip(px, py, strict=True):
        if a == b or b == 1:
            out.append(a)
        elif a == 1:
            out.append(b)
        elif a == UNKNOWN or b == UNKNOWN:
            # An unknown size that meets a known one equals it, or is 1.
            out.append(max(a, b))
        else:
            raise ShapeError(
                "operands could not be broadcast together",
                expected="sizes that are equal, or 1, from the last dimension backwards",
                received=f"X of shape {list(x)} and Y of shape {list(y)}",
                fix="reshape or expand one operand so that the sizes agree",
            )
    return tuple(out)


# -------------------------------------------------------------------------------------------------------------- arrays
def has_mask(value: Any) -> bool:
    """Returns whether a value is a masked array, or a list that holds one at any depth."""
    # Importing numpy.ma takes 20 ms; where nobody has, there are no masked arrays.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is None:
        return False
    return isinstance(value, masked) or (isinstance(value, list | tuple) and _lists_mask(value, masked))


def _lists_mask(rows: Iterable[Any], masked: type) -> bool:
    # Types first: a list of a million numbers is looked through at the speed of C.
    kinds = set(map(type, rows))
    if any(issubclass(kind, masked) for kind in kinds):
        return True
    return any(issubclass(kind, list | tuple) for kind in kinds) and any(
        _lists_mask(row, masked) for row in rows if isinstance(row, list | tuple)
    )


def plain(value: Any, what: str, op: str) -> np.ndarray[Any, Any]:
    """Converts a value as ``np.asarray`` does; messages name it as ``what`` of the call ``op``.

    Raises:
        DTypeError: For a masked array: the elements under the mask would count again.
        FeedTypeError: For what is not an array, also if the object's own methods raise.
    """
    try:
        masked = has_mask(value)
        array = np.asarray(value)
    except (TstaticError, MemoryError):
        raise
    except Exception as error:
        raise FeedTypeError(
            f"{what} could not be read as an array",
            expected="an array or a rectangular list of numbers",
            received=f"{type(value).__name__}, which raises {reason(error)}",
            fix="pass a numeric array; a ragged list has to be padded first",
            op=op,
        ) from error
    if masked:
        raise DTypeError(
            f"{what} is a masked array, whose mask would be lost",
            expected="an array or list without a mask",
            received=type(value).__name__,
            fix="fill it, array.filled(0), and give ~np.ma.getmaskarray(array) as an array of its own",
            op=op,
        )
    return array
