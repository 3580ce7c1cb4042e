"""Checks of arguments, which builders of programs and shape rules share.

Each raises before anything is changed, and returns the value in its normal form where that helps. ``arg`` is the argument
(``"axis"``) or slot (``"X"``) as the user knows it; ``function`` the public function, or ``""`` in a shape rule, where the
operator's name is added later. A value is a Variable, which messages call by its name, or a ``Meta``. Checks of what
differs from place to place (its class, what was expected, what to do) have keywords for it.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from tstatic.errors import (
    DTypeError,
    IndexRangeError,
    NotFoundError,
    ProgramError,
    ProgramTypeError,
    ShapeError,
    TstaticError,
    near,
    shown,
)
from tstatic.ir.types import UNKNOWN, DType, is_addressable, normalize_axis

T = TypeVar("T")
Items = TypeVar("Items", bound=Collection[Any])
Error = type[TstaticError]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
NUMBERS = (*FLOATS, *INTEGERS)
INDICES = ("int64", "int32")

ANY_RANK = 1 << 10
"""``range(1, ANY_RANK)`` are the ranks from 1 upwards."""


class Shaped(Protocol):
    """What a Variable and a ``Meta`` have in common."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> DType: ...


def subject(arg: str, function: str = "") -> str:
    """Names the argument for a message: ``'axis' of concat``."""
    return f"'{arg}' of {function}" if function else f"'{arg}'"


def with_shape(x: Shaped, arg: str) -> str:
    """Names a value and its shape for a message: ``'x' of shape [2, 3]``, or the slot where it has no name."""
    return f"{_name(x, arg)} of shape {list(x.shape)}"


def _name(x: Shaped, arg: str) -> str:
    return f"'{x.name}'" if hasattr(x, "name") else arg  # a Meta has none


def _var(x: Shaped) -> str | None:
    return getattr(x, "name", None)


def _wrong_argument(
    error: Error, what: str, expected: str, received: object, fix: str, arg: str, function: str
) -> TstaticError:
    return error(what, expected=expected, received=received, fix=fix, op=function or None, var=arg or None)


def _wrong_type(value: Any, words: str, arg: str, function: str, expected: str, fix: str = "") -> TstaticError:
    what = f"The type of '{arg}'{f' in {function}' * bool(function)} must be {words}"
    fix = fix or f"pass {expected} as '{arg}'"
    return _wrong_argument(ProgramTypeError, what, expected, shown(value), fix, arg, function)


def _wrong_shape(error: Error, what: str, expected: str, x: Shaped, arg: str, function: str, fix: str) -> TstaticError:
    received = with_shape(x, arg)
    return error(what, expected=expected, received=received, fix=fix, op=function or None, var=_var(x))


def _wrong_dtype(what: str, expected: str, x: Shaped, arg: str, function: str, fix: str) -> TstaticError:
    received = f"{_name(x, arg)} of dtype {x.dtype.name}"
    return DTypeError(what, expected=expected, received=received, fix=fix, op=function or None, var=_var(x))


def _one_of(words: Sequence[object]) -> str:
    return ", ".join(map(str, words[:-1])) + " or " * (len(words) > 1) + str(words[-1])


# ------------------------------------------------------------------------------------------------------- Python values
def check_type(
    value: Any, kind: type[T] | tuple[type[T], ...], arg: str, function: str = "", *, expected: str = "", fix: str = ""
) -> T:
    """Returns ``value`` if it is an instance of ``kind``; a bool counts as an int only where bool is named.

    Raises:
        ProgramTypeError: If it is of another type.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    # True is an int: it passes only where bool, or anything at all, is asked for.
    if isinstance(value, kinds) and (not isinstance(value, bool) or {bool, object} & {*kinds}):
        return value
    words = [k.__name__ for k in kinds if k is not type(None)]
    listed = " or ".join([*words, "None"] if len(words) < len(kinds) else words)
    wanted = expected or f"{'an' if listed[0] in 'aeiouAEIOU' else 'a'} {listed}"
    raise _wrong_type(value, listed, arg, function, wanted, fix)


def check_int(
    value: Any,
    arg: str,
    function: str = "",
    least: int | None = None,
    most: int | None = None,
    *,
    fix: str = "",
    error: Error = ShapeError,
) -> int:
    """Returns a whole number (Python's or numpy's) from ``least`` to ``most`` as an int.

    Raises:
        ProgramTypeError: If it is not a whole number.
        ShapeError: If it is out of range.
    """
    wanted = "an int"
    if least is not None:
        wanted += f" of at least {least}" if most is None else f" from {least} to {most}"
    elif most is not None:
        wanted += f" of at most {most}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise _wrong_type(value, "int", arg, function, wanted)
    number = int(value)
    low, high = least is not None and number < least, most is not None and number > most
    if low or high:
        what = f"the value of {subject(arg, function)} is too {'small' if low else 'large'}"
        fix = fix or f"pass a {'larger' if low else 'smaller'} '{arg}'"
        raise _wrong_argument(error, what, wanted, repr(number), fix, arg, function)
    return number


def check_number(
    value: Any,
    arg: str,
    function: str = "",
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    finite: bool = True,
    error: Error = ProgramError,
) -> float:
    """Returns a number (Python's or numpy's) that is not NaN as a float, within the bounds that are given.

    Args:
        least, most: Bounds that the number may reach.
        above, below: Bounds that it may not reach.
        finite: Whether infinities are refused.

    Raises:
        ProgramTypeError: If it is not a number.
        ProgramError: If it is out of range.
    """
    low = f"{least:g} <= " if least is not None else f"{above:g} < " if above is not None else ""
    high = f" <= {most:g}" if most is not None else f" < {below:g}" if below is not None else ""
    wanted = f"a number, {low}{arg}{high}" if low or high else "a finite number" if finite else "a number"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise _wrong_type(value, "float", arg, function, wanted, f"pass a number as '{arg}'")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the floats
        number = math.inf
    inside = (
        (least is None or number >= least)
        and (most is None or number <= most)
        and (above is None or number > above)
        and (below is None or number < below)
    )
    if not inside or math.isnan(number) or (finite and math.isinf(number)):
        what = f"the value of {subject(arg, function)} is out of range"
        raise _wrong_argument(error, what, wanted, repr(value), f"choose {wanted}", arg, function)
    return number


def check_choice(
    value: Any, choices: Sequence[T], arg: str, function: str = "", *, fix: str = "", error: Error = ProgramError
) -> T:
    """Returns ``value`` if it is among ``choices``, which are plain values (texts, numbers, ``None``).

    Raises:
        ProgramError: Names the choices.
    """
    # A Variable is never compared: its == builds an operator.
    if isinstance(value, (*{type(choice) for choice in choices}, np.generic)) and value in choices:
        return cast(T, value)
    what, wanted = f"{subject(arg, function)} is not one of its choices", _one_of([*map(repr, choices)])
    received, fixes = (repr(value), near(value, map(str, choices))) if isinstance(value, str) else (shown(value), "")
    fix = fix or fixes or f"pass {arg}={choices[0]!r}"
    raise _wrong_argument(error, what, wanted, received, fix, arg, function)


def check_known(
    name: T, known: Iterable[str], what: str, *, fix: str = "", error: Error = NotFoundError, op: str | None = None
) -> T:
    """Returns ``name`` if it is among ``known``.

    Args:
        what: What has no such name, as the beginning of a sentence: ``"LayerDict has no layer"``.

    Raises:
        NotFoundError: Lists the known names and suggests near ones.
    """
    names = list(known)
    if name in names:
        return name
    wanted = f"one of {', '.join(names[:50])}{', ...' * (len(names) > 50)}" if names else "no name: there is none"
    fix = near(str(name), names) or fix or "use one of the names above"
    raise _wrong_argument(error, f"{what} {name!r}", wanted, repr(name), fix, "", op or "")


def check_callable(value: Any, arg: str, function: str, expected: str = "a function") -> Callable[..., Any]:
    """Returns ``value`` if it can be called.

    Raises:
        ProgramTypeError: If it cannot.
    """
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise _wrong_type(value, "callable", arg, function, expected, f"pass {expected}, without calling it")


# ---------------------------------------------------------------------------------------------------------------- lists
def check_not_empty(
    items: Items, arg: str, function: str = "", *, of: str = "Variable", error: Error = ShapeError
) -> Items:
    """Returns ``items`` if there are any.

    Raises:
        ShapeError: For an empty list.
    """
    if len(items):  # arrays refuse to be true or false
        return items
    what, wanted = f"the list {subject(arg, function)} is empty", f"at least one {of}"
    raise _wrong_argument(error, what, wanted, "an empty list", f"pass {wanted} as '{arg}'", arg, function)


def check_length(
    items: Items,
    counts: int | Sequence[int],
    arg: str,
    function: str = "",
    *,
    why: str = "",
    fix: str = "",
    error: Error = ShapeError,
) -> Items:
    """Returns ``items`` if it has one of the lengths.

    Args:
        counts: The lengths that are accepted.
        why: Where the length comes from: ``"one per spatial axis"``.

    Raises:
        ShapeError: If it has another length.
    """
    accepted = (counts,) if isinstance(counts, int) else counts
    if len(items) in accepted:
        return items
    wanted = f"{_either(accepted)} value{'s' * (tuple(accepted) != (1,))}"
    what, fix = f"{subject(arg, function)} has the wrong number of values", fix or f"pass {wanted} as '{arg}'"
    received = f"{len(items)}: {list(items)!r}"[:200]  # a list may hold thousands
    raise _wrong_argument(error, what, wanted + f", {why}" * bool(why), received, fix, arg, function)


def check_each(value: Any, count: int, arg: str, function: str, of: str, *, error: Error = ShapeError) -> list[Any]:
    """Returns ``count`` values from a list or tuple of as many, or from a single value, which applies to all.

    Args:
        of: What each value belongs to: ``"convolution"``.

    Raises:
        ShapeError: If the list has another length.
    """
    if not isinstance(value, list | tuple):
        return [value] * count
    return list(check_length(value, count, arg, function, why=f"one per {of}, or a single one for all", error=error))


def check_ints(value: Any, count: int, arg: str, function: str = "") -> tuple[int, ...]:
    """Returns ``count`` ints from an int, which is repeated, or from a list or tuple of them.

    Raises:
        ProgramTypeError: For anything else.
        ShapeError: If the number of values is wrong.
    """
    values = value if isinstance(value, list | tuple) else (value,) * count
    if any(isinstance(v, bool | np.bool_) or not isinstance(v, numbers.Integral) for v in values):
        fix = f"pass {arg}=2 or {arg}={[2] * count}"
        raise _wrong_type(value, "int, list or tuple", arg, function, f"an int, or a list of {count} ints", fix)
    check_length(values, count, arg, function, why="or a single int")
    return tuple(map(int, values))


def _either(accepted: Collection[int]) -> str:
    if isinstance(accepted, range) and len(accepted) > 1:
        return f"{accepted[0]} or more" if accepted.stop >= ANY_RANK else f"{accepted[0]} to {accepted[-1]}"
    return _one_of(tuple(accepted))


# ------------------------------------------------------------------------------------------------ shapes, axes, and sizes
def check_rank(
    x: Shaped,
    ranks: int | Collection[int],
    arg: str,
    function: str = "",
    *,
    layout: str = "",
    fix: str = "",
    error: Error = ShapeError,
) -> None:
    """Refuses a value of another rank.

    Args:
        ranks: Those accepted; ``range(1, ANY_RANK)`` for 1 or more.
        layout: The meaning of the axes: ``"NCHW"``, ``"[batch, classes]"``.

    Raises:
        ShapeError: Says which ranks are accepted.
    """
    accepted = (ranks,) if isinstance(ranks, int) else ranks
    if len(x.shape) not in accepted:
        what = f"{subject(arg, function)} has the wrong number of dimensions"
        wanted = f"{_either(accepted)} dimension{'s' * (tuple(accepted) != (1,))}{f' ({layout})' * bool(layout)}"
        fix = fix or "reshape it, for example with paddle.unsqueeze for a missing axis"
        raise _wrong_shape(error, what, wanted, x, arg, function, fix)


def check_has_shape(
    x: Shaped,
    shape: Sequence[int],
    arg: str,
    function: str = "",
    *,
    why: str = "",
    fix: str = "",
    error: Error = ShapeError,
) -> None:
    """Refuses a value of another shape; an unknown size, on either side, fits any.

    Args:
        why: What the shape means: ``"one value per class"``.

    Raises:
        ShapeError: Says what was expected.
    """
    if not same_shape(x.shape, shape):
        what = f"{subject(arg, function)} has the wrong shape"
        wanted = f"shape {list(shape)}{f', {why}' * bool(why)}"
        fix = fix or "reshape it, or check the shapes of the arguments"
        raise _wrong_shape(error, what, wanted, x, arg, function, fix)


def check_size(x: Shaped, axis: int, size: int, arg: str, function: str = "", *, why: str = "", fix: str = "") -> None:
    """Refuses a value without that axis, or whose axis has another size; an unknown size, on either side, fits any.

    Args:
        axis: The axis, counted from the front or the back.
        why: What the size means: ``"one per class"``, ``"in_channels"``.

    Raises:
        ShapeError: Says what was expected.
    """
    rank = len(x.shape)
    if not -rank <= axis < rank or (x.shape[axis] != size and UNKNOWN not in (x.shape[axis], size)):
        what = f"axis {axis} of {subject(arg, function)} has the wrong size"
        wanted = f"size {size}{f' ({why})' * bool(why)}"
        fix = fix or "reshape it, or check the shapes of the arguments"
        raise _wrong_shape(ShapeError, what, wanted, x, arg, function, fix)


def check_one_element(x: Shaped, arg: str, function: str = "") -> None:
    """Refuses a value that has not exactly one element; an unknown size fits.

    Raises:
        ShapeError: Says which shape it has.
    """
    if UNKNOWN not in x.shape and math.prod(x.shape) != 1:
        what = f"{subject(arg, function)} must have one element"
        fix = "reduce it, for example with paddle.all for truth values"
        raise _wrong_shape(ShapeError, what, "one element: shape [1] or []", x, arg, function, fix)


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Returns whether two shapes can be the same; an unknown size fits any."""
    return len(a) == len(b) and all(m == n or UNKNOWN in (m, n) for m, n in zip(a, b, strict=True))


def check_same_shape(xs: Sequence[Shaped], args: str | Sequence[str], function: str = "") -> None:
    """Refuses values of different shapes; an unknown size fits any.

    Args:
        args: The name of each value, or of the list that holds them.

    Raises:
        ShapeError: Names both shapes.
    """
    for i, x in enumerate(xs):
        if not same_shape(x.shape, xs[0].shape):
            what = f"{_both(args, i, function)} have different shapes"
            wanted, fix = f"shape {list(xs[0].shape)}", "reshape or expand one of them"
            raise _wrong_shape(ShapeError, what, wanted, x, _argument(args, i), function, fix)


def check_same_dtype(xs: Sequence[Shaped], args: str | Sequence[str], function: str = "") -> None:
    """Refuses values of different dtypes.

    Args:
        args: The name of each value, or of the list that holds them.

    Raises:
        DTypeError: Names both dtypes.
    """
    for i, x in enumerate(xs):
        if x.dtype is not xs[0].dtype:
            what, dtype = f"{_both(args, i, function)} have different dtypes", xs[0].dtype.name
            fix = _cast_to_wider((x, _argument(args, i)), (xs[0], _argument(args, 0)))
            raise _wrong_dtype(what, f"dtype {dtype}", x, _argument(args, i), function, fix)


def _cast_to_wider(*pair: tuple[Shaped, str]) -> str:
    """The cast that loses least: to the float, or to the dtype of more bytes."""
    (narrow, arg), (wide, _) = sorted(pair, key=lambda p: (p[0].dtype.is_float, p[0].dtype.itemsize))
    return f"convert one of them: paddle.cast({_var(narrow) or arg.lower()}, '{wide.dtype.name}')"


def _argument(args: str | Sequence[str], i: int) -> str:
    return f"{args}[{i}]" if isinstance(args, str) else args[i]


def _both(args: str | Sequence[str], i: int, function: str) -> str:
    names = f"the values of '{args}'" if isinstance(args, str) else f"'{args[0]}' and '{args[i]}'"
    return names + f" of {function}" * bool(function)


def check_dtype(x: Shaped, dtypes: Sequence[str], arg: str, function: str = "", *, fix: str = "") -> None:
    """Refuses a value whose dtype is not among ``dtypes`` (names, as in ``FLOATS``).

    Raises:
        DTypeError: Names them.
    """
    if x.dtype.name not in dtypes:
        what = f"The data type of '{arg}'{f' in {function}' * bool(function)} is not supported"
        fix = fix or f"convert it with paddle.cast({_var(x) or 'x'}, '{dtypes[0]}')"
        raise _wrong_dtype(what, _one_of(dtypes), x, arg, function, fix)


def check_result_dtype(dtype: DType, dtypes: Sequence[str], function: str, *, fix: str = "") -> None:
    """Refuses a ``dtype`` argument that is not among the dtypes (names) that the results of a function can have.

    Raises:
        DTypeError: Names them.
    """
    if dtype.name not in dtypes:
        what = f"the results of {function} cannot have that dtype"
        fix = fix or f"pass dtype='{dtypes[0]}'"
        raise _wrong_argument(DTypeError, what, _one_of(dtypes), dtype.name, fix, "dtype", function)


def check_axis(axis: Any, of: int | Shaped, arg: str = "axis", function: str = "") -> int:
    """Returns an axis of a value (or of a rank), counted from the front.

    Raises:
        ProgramTypeError: If it is not a whole number.
        ShapeError: If there is no such axis.
    """
    rank = of if isinstance(of, int) else len(of.shape)
    number = check_int(axis, arg, function)
    try:
        return normalize_axis(number, rank, arg)
    except TstaticError as error:
        if not isinstance(of, int):
            error.received = f"{number} for {with_shape(of, 'a value')}"
        raise error.add_context(op=function or None, var=arg if isinstance(of, int) else _var(of)) from None


def check_axes(axes: Sequence[Any], of: int | Shaped, arg: str = "axis", function: str = "") -> tuple[int, ...]:
    """Returns different axes of a value (or of a rank), counted from the front, in rising order.

    Raises:
        ProgramTypeError: If one is not a whole number.
        ShapeError: If one does not exist or is named twice.
    """
    found = sorted(check_axis(axis, of, arg, function) for axis in axes)
    if len(set(found)) < len(found):
        what, fix = f"{subject(arg, function)} names an axis twice", "name each axis once"
        raise _wrong_argument(ShapeError, what, "different axes", list(axes), fix, "", function)
    return tuple(found)


def check_two_axes(axes: Sequence[Any], of: int | Shaped, arg: str = "axis", function: str = "") -> tuple[int, int]:
    """Returns the two axes of a plane of a value (or of a rank), counted from the front, in the order given.

    Raises:
        ProgramTypeError: If one is not a whole number.
        ShapeError: If there are not two, or they are not different axes of the value.
    """
    check_axes(check_length(axes, 2, arg, function, why="the axes of a plane"), of, arg, function)
    first, second = (check_axis(axis, of, arg, function) for axis in axes)  # in the order given
    return first, second


def check_divisible(
    size: int, by: int, what: str, divisor: str, function: str = "", *, fix: str = "", error: Error = ShapeError
) -> int:
    """Returns the quotient of a size and a number that has to divide it; an unknown size stays unknown.

    Args:
        what: What is divided: ``"the number of channels"``.
        divisor: The name of the argument that divides.

    Raises:
        ShapeError: If it does not divide the size.
    """
    if size == UNKNOWN:
        return UNKNOWN
    if by < 1 or size % by:  # `%` by 0 would raise
        wrong = f"{what}{f' of {function}' * bool(function)} must be divisible by {divisor}"
        fix = fix or f"change {what} or {divisor}"
        raise _wrong_argument(error, wrong, f"a multiple of {divisor}={by}", size, fix, "", function)
    return size // by


def check_static_dim(size: int, x: Shaped, what: str, function: str) -> int:
    """Returns a size of ``x`` that the shape of a parameter depends on.

    Args:
        what: Which size: ``"the number of channels"``.

    Raises:
        ShapeError: If it is unknown while the program is built, or 0.
    """
    if size < 1:
        wrong = f"so {what} of its input has to be known while the program is built"
        wrong = wrong if size == UNKNOWN else f"and {what} of its input is 0"
        wanted = f"a shape whose {what} is a number of at least 1"
        fix = "state that size where the input is declared, or reshape the input to a known one"
        raise _wrong_shape(ShapeError, f"{function} makes parameters, {wrong}", wanted, x, "the input", function, fix)
    return size


def check_sizes(shape: Sequence[int], arg: str = "shape", function: str = "", *, least: int = UNKNOWN) -> None:
    """Refuses a shape with a size below ``least`` (by default: below -1, an unknown size) or with too many elements.

    Raises:
        ShapeError: Says which.
    """
    for size in shape:
        if size < least:
            wrong, fix = f"has a size of {size}" if size >= 0 else "has a negative size", f"check the {arg}"
            if size == UNKNOWN and least == 0:
                wrong = "holds a size that is not known"
                fix = "take the size from paddle.shape(x)[0], or use paddle.full_like(x, ...) for a value shaped like x"
            what, wanted = f"{subject(arg, function)} {wrong}", f"sizes of at least {max(least, 0)}"
            raise _wrong_argument(ShapeError, what, wanted, list(shape), fix, "", function)
    if not is_addressable(shape):
        what, wanted = f"{subject(arg, function)} has more elements than can be addressed", "fewer than 2**60 elements"
        raise _wrong_argument(ShapeError, what, wanted, list(shape), f"check the {arg}", "", function)


# --------------------------------------------------------------------------------------------------------- at run time
def check_index(index: np.ndarray[Any, Any], size: int, what: str = "Index", low: int = 0, *, fix: str = "") -> None:
    """Refuses an array with a value outside ``[low, size)``; costs two passes over the indices.

    Raises:
        IndexRangeError: Says which value is the first, and where it is.
    """
    if index.size == 0 or (low <= operator.index(index.min()) and operator.index(index.max()) < size):
        return
    # A third pass, for the message alone.
    flat = index.reshape(-1)
    wrong = np.flatnonzero((flat < low) | (flat >= size))
    place = [int(i) for i in np.unravel_index(wrong[0], index.shape)]
    raise IndexRangeError(
        f"{what} holds a value that is out of range", expected=f"integers from {low} to {size - 1}",
        received=f"{int(flat[wrong[0]])} at {place} ({wrong.size} in all)",
        fix=fix or f"check the data fed to {what}, or the size it points into ({size})",
    )  # fmt: skip
