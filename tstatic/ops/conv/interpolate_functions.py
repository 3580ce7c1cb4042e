"""Public functions of resizing, of Paddle 2.x and 1.x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.conv._sliding import int_list, is_last, spatial
from tstatic.ops.conv.pool_functions import adaptive_avg_pool1d, adaptive_avg_pool2d

_MODES = ("nearest", "linear", "bilinear", "trilinear", "bicubic", "area")
_RANKS = {"linear": (3,), "bilinear": (4,), "bicubic": (4,), "trilinear": (5,), "nearest": (3, 4, 5), "area": (3, 4)}
_LAYOUT = {3: ("NCL", "NLC", "NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def _refuse(what: str, expected: str, received: object, fix: str, function: str) -> ShapeError:
    return ShapeError(what, expected=expected, received=received, fix=fix, op=function)


def _no_variables(value: Any, name: str, function: str) -> None:
    items = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(v, Variable) for v in items):
        raise UnsupportedError(
            f"{function} needs '{name}' when the program is built",
            expected="ints or floats",
            received="a Variable",
            fix="pass numbers: the size of every value is planned before a run",
            op=function,
        )


def _layout(x: Variable, data_format: str, function: str) -> tuple[int, str]:
    """Number of spatial axes, and the layout in the op's spelling."""
    rank = len(x.shape)
    if rank not in _LAYOUT or data_format not in _LAYOUT[rank]:
        raise _refuse(
            f"data_format of {function} does not fit an input of rank {rank}",
            " or ".join(map(repr, _LAYOUT.get(rank, ("NCHW", "NHWC")))),
            f"{data_format!r} for shape {list(x.shape)}",
            "choose the layout with as many letters as the input has axes",
            function,
        )
    return rank - 2, {"NCW": "NCL", "NWC": "NLC"}.get(data_format, data_format)


def _scales(scale: Any, rank: int, function: str) -> tuple[float, ...]:
    values = scale if isinstance(scale, list | tuple) else [scale] * rank
    good = len(values) == rank and all(
        isinstance(v, int | float | np.number) and not isinstance(v, bool) and v > 0 for v in values
    )
    if not good:
        raise _refuse(
            f"the scale of {function} must be a positive number, or one per spatial axis",
            f"a number above 0, or {rank} of them",
            repr(scale),
            "pass scale_factor=2.0, for example",
            function,
        )
    return tuple(float(v) for v in values)


def _resize(
    x: Variable,
    size: Any,
    scale: Any,
    mode: str,
    attrs: dict[str, Any],
    rank: int,
    function: str,
    name: str | None,
) -> Variable:
    if (size is None) == (scale is None):
        raise _refuse(
            f"{function} takes either the output's size or a scale",
            "one of the two",
            "both" if size is not None else "neither",
            "pass size=[h, w] or scale_factor=2",
            function,
        )
    if size is not None:
        _no_variables(size, "size", function)
        attrs |= dict(zip(("out_d", "out_h", "out_w")[3 - rank :], int_list(size, rank, "size", function), strict=True))
    else:
        _no_variables(scale, "scale_factor", function)
        attrs["scale"] = _scales(scale, rank, function)
    type = f"{mode}_interp_v2"
    out: Variable = emit(type, {"X": x}, attrs, name=name)
    return out


@export("nn.functional.interpolate")
def interpolate(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Resizes images (or sequences, or volumes) by interpolation.

    With ``align_corners`` the corner values stay in the corners: place ``i`` reads ``i * (in - 1) / (out - 1)``. Else place
    ``i`` reads ``i * in / out`` (nearest, ``align_mode`` 1) or ``(i + 0.5) * in / out - 0.5`` (``align_mode`` 0, cubic).

    Args:
        x: ``[n, c, ...]`` or ``[n, ..., c]`` with one to three spatial axes, floats; for ``nearest`` integers, too.
        size: Output sizes, one per spatial axis.
        scale_factor: Instead: a factor, or one per spatial axis; sizes are rounded down.
        mode: ``nearest``, ``linear`` (rank 3), ``bilinear``, ``bicubic`` (rank 4), ``trilinear`` (rank 5) or ``area``.
        align_corners: Not for ``nearest``.
        align_mode: 0 or 1, for linear modes.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        ``x`` with its spatial sizes changed.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        UnsupportedError: If a size or a scale is a Variable.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0]]]])
        >>> y = paddle.nn.functional.interpolate(x, size=[1, 4], mode="bilinear")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1.  , 1.25, 1.75, 2.  ]]]], dtype=float32)
    """
    check_variable(x, "x", "interpolate")
    kind = str(mode).lower()
    # The default means channels second at any rank.
    given = _LAYOUT.get(len(x.shape), ("NCHW",))[0] if data_format == "NCHW" else data_format
    rank, layout = _layout(x, given, "interpolate")
    if kind not in _MODES or rank + 2 not in _RANKS[kind]:
        raise _refuse(
            f"The '{mode}' of interpolate does not fit an input of rank {rank + 2}",
            ", ".join(m for m in _MODES if rank + 2 in _RANKS[m]),
            f"mode={mode!r} for shape {list(x.shape)}",
            "choose a mode for this rank",
            "interpolate",
        )
    if align_corners and kind == "nearest":
        raise _refuse(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear",
            "align_corners=False with mode='nearest'",
            "align_corners=True",
            "leave align_corners at False, or choose another mode",
            "interpolate",
        )
    if kind == "area":
        return _area(x, size, scale_factor, rank, layout, name)
    attrs = {
        "interp_method": kind,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": layout,
    }
    return _resize(x, size, scale_factor, kind, attrs, rank, "interpolate", name)


def _area(x: Variable, size: Any, scale: Any, rank: int, layout: str, name: str | None) -> Variable:
    """Averages over the area that each output place covers: adaptive average pooling."""
    if size is None:
        size = _scaled(x, scale, rank, layout, "interpolate")
    if rank == 1:
        if is_last(layout):
            raise UnsupportedError(
                "mode 'area' of interpolate takes sequences with channels second",
                expected="'NCL'",
                received=repr(layout),
                fix="transpose x to [n, c, length] first",
                op="interpolate",
            )
        return adaptive_avg_pool1d(x, size, name)
    return adaptive_avg_pool2d(x, size, layout, name)


def _scaled(x: Variable, scale: Any, rank: int, layout: str, function: str) -> tuple[int, ...]:
    """Known output sizes from a scale.

    Raises:
        ShapeError: If a size of the input is unknown.
    """
    sizes = spatial(x.shape, layout)
    if UNKNOWN in sizes:
        raise _refuse(
            f"{function} needs known sizes here to apply a scale",
            "an input whose spatial sizes are known",
            list(x.shape),
            "give the sizes in static.data, or pass the output's size",
            function,
        )
    return tuple(int(s * f) for s, f in zip(sizes, _scales(scale, rank, function), strict=True))


@export("nn.functional.upsample")
def upsample(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Another name of :func:`interpolate`.

    Returns:
        ``x`` with its spatial sizes changed.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0]]]])
        >>> y = paddle.nn.functional.upsample(x, scale_factor=2, mode="nearest")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1., 1., 2., 2.],
                 [1., 1., 2., 2.]]]], dtype=float32)
    """
    return interpolate(x, size, scale_factor, mode, align_corners, align_mode, data_format, name)


# --------------------------------------------------------------------------------------------------------- names of 1.x
def _resize_1x(
    input: Variable,
    out_shape: Any,
    scale: Any,
    name: str | None,
    actual_shape: Any,
    mode: str,
    align_corners: bool,
    align_mode: int,
    data_format: str,
    function: str,
) -> Variable:
    """Resizing of 1.x: a scale only says the output's size, and sizes decide the ratio."""
    check_variable(input, "input", function)
    if actual_shape is not None:
        _no_variables(actual_shape, "actual_shape", function)
        out_shape, scale = actual_shape, None
    rank, layout = _layout(input, data_format, function)
    if out_shape is not None:
        scale = None
    elif scale is not None and UNKNOWN not in spatial(input.shape, layout):
        out_shape, scale = _scaled(input, scale, rank, layout, function), None
    attrs = {
        "interp_method": mode,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": layout,
    }
    return _resize(input, out_shape, scale, mode, attrs, rank, function, name)


@export("fluid.layers.resize_nearest", op="nearest_interp_v2")
def resize_nearest(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes images by taking the nearest place.

    Args:
        input: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        out_shape: ``[h, w]`` of the output.
        scale: Instead: the factor of both sizes.
        name: The layer's name.
        actual_shape: As ``out_shape``, and before it.
        align_corners: Whether corner values stay in the corners.
        data_format: Where channels stand.

    Returns:
        ``input`` with its spatial sizes changed.
    """
    return _resize_1x(
        input, out_shape, scale, name, actual_shape, "nearest", align_corners, 1, data_format, "resize_nearest"
    )


@export("fluid.layers.resize_bilinear", op="bilinear_interp_v2")
def resize_bilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes images by linear interpolation along both axes; arguments as in :func:`resize_nearest`.

    Args:
        input, out_shape, scale, name, actual_shape, align_corners, data_format: As there.
        align_mode: 1: place ``i`` reads ``i * in / out``; 0: ``(i + 0.5) * in / out - 0.5``.

    Returns:
        ``input`` with its spatial sizes changed.
    """
    return _resize_1x(
        input, out_shape, scale, name, actual_shape, "bilinear", align_corners, align_mode, data_format,
        "resize_bilinear",
    )  # fmt: skip


@export("fluid.layers.resize_trilinear", op="trilinear_interp_v2")
def resize_trilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """Resizes volumes by linear interpolation along three axes; arguments as in :func:`resize_bilinear`.

    Returns:
        ``input`` with its spatial sizes changed.
    """
    return _resize_1x(
        input, out_shape, scale, name, actual_shape, "trilinear", align_corners, align_mode, data_format,
        "resize_trilinear",
    )  # fmt: skip


@export("fluid.layers.resize_linear", op="linear_interp_v2")
def resize_linear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCW",
) -> Variable:
    """Resizes sequences by linear interpolation; arguments as in :func:`resize_bilinear`.

    Returns:
        ``input`` with its length changed.
    """
    return _resize_1x(
        input, out_shape, scale, name, actual_shape, "linear", align_corners, align_mode, data_format, "resize_linear"
    )


@export("fluid.layers.image_resize")
def image_resize(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes by the method that ``resample`` names; other arguments as in :func:`resize_bilinear`.

    Args:
        input, out_shape, scale, name, actual_shape, align_corners, align_mode, data_format: As there.
        resample: ``LINEAR``, ``BILINEAR``, ``TRILINEAR``, ``BICUBIC`` or ``NEAREST``.

    Returns:
        ``input`` with its spatial sizes changed.

    Raises:
        ShapeError: For another method.
    """
    mode = str(resample).lower()
    if mode not in ("linear", "bilinear", "trilinear", "bicubic", "nearest"):
        raise _refuse(
            "The 'resample' of image_resize can only be 'LINEAR', 'BILINEAR', 'TRILINEAR', 'BICUBIC' or 'NEAREST'",
            "one of these",
            repr(resample),
            "choose one of these",
            "image_resize",
        )
    return _resize_1x(
        input, out_shape, scale, name, actual_shape, mode, align_corners, align_mode, data_format, "image_resize"
    )
