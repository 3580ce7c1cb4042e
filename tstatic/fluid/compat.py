"""``paddle.compat`` of 1.x: texts and bytes, and arithmetic that does not depend on the version of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.export import door


def _each(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    """Converts an object, or the members of a list, a set or a dict; in place, the object itself is changed."""
    if isinstance(obj, list):
        made: Any = [_each(one, convert, inplace) for one in obj]
        if inplace:
            obj[:] = made
    elif isinstance(obj, set):
        made = {_each(one, convert, inplace) for one in obj}
        if inplace:
            obj.clear()
            obj.update(made)
    elif isinstance(obj, dict):
        made = {_each(key, convert, inplace): _each(value, convert, inplace) for key, value in obj.items()}
        if inplace:
            obj.clear()
            obj.update(made)
    else:
        return convert(obj)
    return obj if inplace else made


@door("compat.to_text")
def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Returns bytes as a text; lists, sets and dicts member by member, all else as it is.

    Args:
        obj: Bytes, a text, or a list, set or dict of them.
        encoding: How the bytes are to be read.
        inplace: Changes a list, set or dict itself.

    Example:
        >>> paddle.compat.to_text([b"a", "b"])
        ['a', 'b']
    """
    return _each(obj, lambda one: one.decode(encoding) if isinstance(one, bytes) else one, inplace)


@door("compat.to_bytes")
def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Returns a text as bytes; lists, sets and dicts member by member.

    Args:
        obj: A text, bytes, ``None``, or a list, set or dict of them.
        encoding: How the texts are to be written.
        inplace: Changes a list, set or dict itself.

    Raises:
        ProgramTypeError: For anything else.

    Example:
        >>> paddle.compat.to_bytes({"a": "b"})
        {b'a': b'b'}
    """

    def convert(one: Any) -> Any:
        if one is None or isinstance(one, bytes):
            return one
        if not isinstance(one, str):
            raise ProgramTypeError(
                "only texts become bytes",
                expected="a str or bytes",
                received=shown(one),
                fix="pass str(obj)",
                op="to_bytes",
            )
        return one.encode(encoding)

    return _each(obj, convert, inplace)


@door("compat.round")
def round(x: float, d: int = 0) -> float:
    """Rounds to ``d`` decimals, halves away from zero, as Python 2 did.

    Args:
        x: A number.
        d: Number of decimals.

    Example:
        >>> paddle.compat.round(2.5), paddle.compat.round(-0.25, 1)
        (3.0, -0.3)
    """
    scale: float = 10**d
    if x == 0:
        return math.copysign(0.0, x)
    whole = math.floor if x > 0 else math.ceil
    return float(whole(x * scale + math.copysign(0.5, x))) / scale


@door("compat.floor_division")
def floor_division(x: Any, y: Any) -> Any:
    """Returns ``x // y``.

    Args:
        x, y: Numbers.
    """
    return x // y


@door("compat.get_exception_message")
def get_exception_message(exc: BaseException) -> str:
    """Returns what an exception says."""
    return str(exc)


__all__ = ["floor_division", "get_exception_message", "round", "to_bytes", "to_text"]
