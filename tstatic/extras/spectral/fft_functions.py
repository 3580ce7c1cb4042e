"""Fourier transforms as functions: their sizes, axes and sides of the factor, frequencies and shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.spectral.fft import NORMS
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, INTEGERS, check_axis, check_choice, check_int, check_length
from tstatic.ir.declare import default_dtype
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.ir.types import UNKNOWN, dtype_of
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import floor_divide, subtract
from tstatic.ops.elementwise.complex_numbers import COMPLEX, PARTS
from tstatic.ops.shape.creation import to_tensor
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.sequence import shape as shape_of
from tstatic.ops.shape.slicing import slice_
from tstatic.ops.shape.transpose import roll
from tstatic.tuned._common import Array

END = 2**31 - 1
"""Behind the last position of every axis."""


def _padded(x: Variable, axis: int, count: int) -> Variable:
    """Appends zeros along an axis."""
    pads = [0] * 2 * len(x.shape)
    pads[2 * axis + 1] = count
    return emit_one("pad", {"X": x}, {"paddings": pads})


def _sized(x: Variable, axes: Sequence[int], sizes: Sequence[int], function: str) -> Variable:
    """Cuts a value, or pads it with zeros, to sizes along axes."""
    for axis, size in zip(axes, sizes, strict=True):
        check_int(size, "n", function, least=1)
        known = x.shape[axis]
        if known == UNKNOWN:
            # Zeros for an empty axis are enough for every size.
            x = slice_(_padded(x, axis, size), [axis], [0], [size])
        elif known > size:
            x = slice_(x, [axis], [0], [size])
        elif known < size:
            x = _padded(x, axis, size - known)
    return x


def _axes_of(x: Variable, s: Any, axes: Any, function: str) -> tuple[int, ...]:
    if axes is None:
        rank = len(x.shape)
        count = rank if s is None else len(s)
        return tuple(range(rank - count, rank))
    found = tuple(check_axis(axis, x, "axes", function) for axis in axes)
    if not found or len(set(found)) < len(found):
        raise ShapeError(
            f"'axes' of {function} names no axis, or one twice",
            expected="different axes",
            received=list(axes),
            fix="name each axis once",
            op=function,
        )
    return found


def transform(
    function: str, x: Any, s: Any, axes: Any, norm: Any, *, forward: bool, half: str = "", name: str | None = None
) -> Variable:
    """Appends a transform.

    Args:
        function: Paddle's name of it, for messages.
        x: The values.
        s: Sizes along the axes, or ``None`` for those of ``x``.
        axes: Axes, or ``None`` for the last ones that ``s`` has sizes of, or all.
        norm: The side of the factor.
        forward: The direction.
        half: ``"in"`` if the values are half a spectrum of real ones, ``"out"`` if that is the result.
        name: Name of the layer.
    """
    check_choice(norm, NORMS, "norm", function)
    x = check_variable(x, "x", function, (*FLOATS, *INTEGERS, *COMPLEX))
    if not x.dtype.is_inexact:
        x = cast_to(x, default_dtype())
    places = _axes_of(x, s, axes, function)
    if s is not None:
        check_length(s, len(places), "s", function, why="one for each axis")
    attrs: dict[str, Any] = {"axes": places, "normalization": norm, "forward": forward}
    if half == "in":
        x = cast_to(x, x.dtype.complex)
        last = 2 * (x.shape[places[-1]] - 1) if s is None else s[-1]
        if s is not None:
            check_int(last, "n", function, least=1)
            x = _sized(x, places, (*s[:-1], last // 2 + 1), function)
        elif x.shape[places[-1]] == UNKNOWN:
            last = 0
        return emit_one("fft_c2r", {"X": x}, {**attrs, "last_dim_size": last}, name=name, prefix=function)
    if s is not None:
        x = _sized(x, places, s, function)
    if half == "out":
        x = check_variable(x, "x", function, PARTS)
        return emit_one("fft_r2c", {"X": x}, {**attrs, "onesided": True}, name=name, prefix=function)
    if not x.dtype.is_complex:
        return emit_one("fft_r2c", {"X": x}, {**attrs, "onesided": False}, name=name, prefix=function)
    return emit_one("fft_c2c", {"X": x}, attrs, name=name, prefix=function)


def _one(function: str, x: Any, n: Any, axis: int, norm: Any, name: str | None, **kind: Any) -> Variable:
    return transform(function, x, None if n is None else [n], [axis], norm, name=name, **kind)


def _two(function: str, x: Any, s: Any, axes: Any, norm: Any, name: str | None, **kind: Any) -> Variable:
    check_length(axes, 2, "axes", function, why="the axes of a plane")
    return transform(function, x, s, axes, norm, name=name, **kind)


@export("fft.fft", op="fft_c2c")
def fft(x: Variable, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None) -> Variable:
    """Returns the discrete Fourier transform along an axis.

    Args:
        x: Real or complex values of any shape; integers become floats.
        n: The size along the axis: longer values are cut, shorter ones padded with zeros.
        axis: Which axis.
        norm: Where a factor stands: ``"backward"`` at the inverse transform (1/n), ``"forward"`` at this one, ``"ortho"`` at
            both (1/sqrt(n)).
        name: Name of the layer.

    Returns:
        complex64, or complex128 of 64-bit parts.

    Raises:
        ProgramError: For another ``norm``.
        ShapeError: For ``n`` where the axis has an unknown size.

    Example:
        >>> x = paddle.to_tensor([1.0, 0.0, 0.0, 1.0])
        >>> static.Executor().run(fetch_list=[paddle.fft.fft(x)])[0]
        array([2.+0.j, 1.+1.j, 0.+0.j, 1.-1.j], dtype=complex64)
    """
    return _one("fft", x, n, axis, norm, name, forward=True)


@export("fft.ifft", op="fft_c2c")
@parameters_of(fft)
def ifft(**given: Any) -> Variable:
    """Returns the inverse of :func:`fft`; arguments and errors are the same."""
    return _one("ifft", forward=False, **given)


@export("fft.rfft", op="fft_r2c")
@parameters_of(fft)
def rfft(**given: Any) -> Variable:
    """Returns the first ``n // 2 + 1`` places of the transform of real values, which say the others.

    Args:
        x: float32 or float64, or integers, which become floats.
        n, axis, norm, name: As of :func:`fft`.

    Raises:
        DTypeError: For complex values.
    """
    return _one("rfft", forward=True, half="out", **given)


@export("fft.irfft", op="fft_c2r")
@parameters_of(fft)
def irfft(**given: Any) -> Variable:
    """Returns the real values of which :func:`rfft` gives ``x``.

    Args:
        x: The first ``n // 2 + 1`` places of a spectrum; more are cut, missing ones are zeros.
        n: How many values; ``2 * (m - 1)`` for ``m`` places by default.
        axis, norm, name: As of :func:`fft`.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 4.0])
        >>> y = paddle.fft.irfft(paddle.fft.rfft(x), n=3)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 2., 4.], dtype=float32)
    """
    return _one("irfft", forward=False, half="in", **given)


@export("fft.hfft", op="fft_c2r")
@parameters_of(fft)
def hfft(**given: Any) -> Variable:
    """Returns the transform, which is real, of values of which ``x`` has the first half: the others are its conjugates.

    Args:
        x: ``n // 2 + 1`` values; more are cut, missing ones are zeros.
        n: How many values; ``2 * (m - 1)`` of ``m`` by default.
        axis, norm, name: As of :func:`fft`.
    """
    return _one("hfft", forward=True, half="in", **given)


@export("fft.ihfft", op="fft_r2c")
@parameters_of(fft)
def ihfft(**given: Any) -> Variable:
    """Returns the inverse of :func:`hfft` of real values: the first half; arguments and errors as of :func:`rfft`."""
    return _one("ihfft", forward=False, half="out", **given)


@export("fft.fft2", op="fft_c2c")
def fft2(
    x: Variable,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Variable:
    """Returns the transform along two axes.

    Args:
        x: As of :func:`fft`.
        s: The sizes along the axes, as ``n`` of :func:`fft`.
        axes: Which axes.
        norm, name: As of :func:`fft`.
    """
    return _two("fft2", x, s, axes, norm, name, forward=True)


@export("fft.ifft2", op="fft_c2c")
@parameters_of(fft2)
def ifft2(**given: Any) -> Variable:
    """Returns the inverse of :func:`fft2`; arguments are the same."""
    return _two("ifft2", forward=False, **given)


@export("fft.rfft2", op="fft_r2c")
@parameters_of(fft2)
def rfft2(**given: Any) -> Variable:
    """Returns half the transform of real values along two axes: :func:`rfft` along the last; arguments as of :func:`fft2`."""
    return _two("rfft2", forward=True, half="out", **given)


@export("fft.irfft2", op="fft_c2r")
@parameters_of(fft2)
def irfft2(**given: Any) -> Variable:
    """Returns the real values of which :func:`rfft2` gives ``x``; arguments as of :func:`fft2`."""
    return _two("irfft2", forward=False, half="in", **given)


@export("fft.hfft2", op="fft_c2r")
@parameters_of(fft2)
def hfft2(**given: Any) -> Variable:
    """Does along two axes what :func:`hfft` does along one; arguments as of :func:`fft2`."""
    return _two("hfft2", forward=True, half="in", **given)


@export("fft.ihfft2", op="fft_r2c")
@parameters_of(fft2)
def ihfft2(**given: Any) -> Variable:
    """Does along two axes what :func:`ihfft` does along one; arguments as of :func:`fft2`."""
    return _two("ihfft2", forward=False, half="out", **given)


@export("fft.fftn", op="fft_c2c")
def fftn(
    x: Variable,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
    name: str | None = None,
) -> Variable:
    """Returns the transform along several axes.

    Args:
        x: As of :func:`fft`.
        s: The sizes along the axes, as ``n`` of :func:`fft`.
        axes: Which axes; the last ones that ``s`` has sizes of, or all.
        norm, name: As of :func:`fft`.
    """
    return transform("fftn", x, s, axes, norm, forward=True, name=name)


@export("fft.ifftn", op="fft_c2c")
@parameters_of(fftn)
def ifftn(**given: Any) -> Variable:
    """Returns the inverse of :func:`fftn`; arguments are the same."""
    return transform("ifftn", forward=False, **given)


@export("fft.rfftn", op="fft_r2c")
@parameters_of(fftn)
def rfftn(**given: Any) -> Variable:
    """Returns half the transform of real values: :func:`rfft` along the last axis; arguments as of :func:`fftn`."""
    return transform("rfftn", forward=True, half="out", **given)


@export("fft.irfftn", op="fft_c2r")
@parameters_of(fftn)
def irfftn(**given: Any) -> Variable:
    """Returns the real values of which :func:`rfftn` gives ``x``; arguments as of :func:`fftn`."""
    return transform("irfftn", forward=False, half="in", **given)


@export("fft.hfftn", op="fft_c2r")
@parameters_of(fftn)
def hfftn(**given: Any) -> Variable:
    """Does along several axes what :func:`hfft` does along one; arguments as of :func:`fftn`."""
    return transform("hfftn", forward=True, half="in", **given)


@export("fft.ihfftn", op="fft_r2c")
@parameters_of(fftn)
def ihfftn(**given: Any) -> Variable:
    """Does along several axes what :func:`ihfft` does along one; arguments as of :func:`fftn`."""
    return transform("ihfftn", forward=False, half="out", **given)


MOST_FREQUENCIES = 1 << 26
"""How many frequencies are asked for at most: they are constants of the program."""


@export("fft.fftfreq")
def fftfreq(n: int, d: float = 1.0, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the frequency of each place of a transform, ``[n]``: first the rising ones from 0, then the negative ones.

    Args:
        n: How many values are transformed.
        d: The distance of two of them.
        dtype: A float type; the default one if ``None``.
        name: Name of the result.

    Example:
        >>> static.Executor().run(fetch_list=[paddle.fft.fftfreq(4, d=0.5)])[0]
        array([ 0. ,  0.5, -1. , -0.5], dtype=float32)
    """
    return _frequencies(np.fft.fftfreq(check_int(n, "n", "fftfreq", least=1, most=MOST_FREQUENCIES), d), dtype, name)


@export("fft.rfftfreq")
def rfftfreq(n: int, d: float = 1.0, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the frequency of each place of :func:`rfft`, ``[n // 2 + 1]``; arguments as of :func:`fftfreq`."""
    return _frequencies(np.fft.rfftfreq(check_int(n, "n", "rfftfreq", least=1, most=MOST_FREQUENCIES), d), dtype, name)


def _frequencies(found: Array, dtype: Any, name: str | None) -> Variable:
    kind = default_dtype() if dtype is None else dtype_of(dtype)
    made = to_tensor(found, kind)
    return made if name is None else emit_one("assign", {"X": made}, name=name)


@export("fft.fftshift", op="roll")
def fftshift(x: Variable, axes: Any = None, name: str | None = None) -> Variable:
    """Moves the frequency 0 to the middle of each axis.

    Args:
        x: Values.
        axes: An axis or a list of them; all by default.
        name: Name of the layer.

    Example:
        >>> x = paddle.fft.fftshift(paddle.fft.fftfreq(5))
        >>> static.Executor().run(fetch_list=[x, paddle.fft.ifftshift(x)])
        [array([-0.4, -0.2,  0. ,  0.2,  0.4], dtype=float32), array([ 0. ,  0.2,  0.4, -0.4, -0.2], dtype=float32)]
    """
    return _shifted(x, axes, "fftshift", 1, name)


@export("fft.ifftshift", op="roll")
def ifftshift(x: Variable, axes: Any = None, name: str | None = None) -> Variable:
    """Undoes :func:`fftshift`; arguments are the same."""
    return _shifted(x, axes, "ifftshift", -1, name)


def _shifted(x: Any, axes: Any, function: str, sign: int, name: str | None) -> Variable:
    x = check_variable(x, "x", function)
    listed = range(len(x.shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    places = [check_axis(axis, x, "axes", function) for axis in listed]
    unknown = [p for p in places if x.shape[p] == UNKNOWN]
    known = [p for p in places if p not in unknown]
    for axis in unknown:
        x = _turned(x, axis, sign)
    if unknown and not known:
        return x if name is None else emit_one("assign", {"X": x}, name=name)
    return roll(x, [sign * (x.shape[p] // 2) for p in known], known, name=name)


def _turned(x: Variable, axis: int, sign: int) -> Variable:
    """Rolls an axis of unknown size by half of it, forward or back."""
    size = slice_(shape_of(x), [0], [axis], [axis + 1])
    half = floor_divide(size, to_tensor([2], "int32"))
    middle = subtract(size, half) if sign > 0 else half
    return concat([slice_(x, [axis], middle, [END]), slice_(x, [axis], [0], middle)], axis)
