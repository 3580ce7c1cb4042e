"""Public functions of resizing, of Paddle 2.x and 1.x."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    check_choice,
    check_int,
    check_ints,
    check_length,
    check_number,
    check_rank,
    check_sizes,
    check_static_dim,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import is_last, spatial
from tstatic.ops.functions.interpolate_when_run import has_variable, known_when_run, resize_when_run
from tstatic.ops.functions.pool_functions import adaptive_avg_pool1d, adaptive_avg_pool2d

_RANKS = {"nearest": (3, 4, 5), "linear": (3,), "bilinear": (4,), "trilinear": (5,), "bicubic": (4,), "area": (3, 4)}
"""Mode -> ranks of the inputs that it takes."""
# The first is what the default of 2.x means at that rank.
_LAYOUT = {3: ("NCL", "NLC", "NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def _layout(x: Variable, data_format: str, function: str) -> tuple[int, str]:
    """Returns the number of spatial axes, and the layout in the op's spelling."""
    rank = len(x.shape)
    check_rank(x, (3, 4, 5), "x", function)
    check_choice(data_format, _LAYOUT[rank], "data_format", function, error=ShapeError)
    return rank - 2, {"NCW": "NCL", "NWC": "NLC"}.get(data_format, data_format)


def _scales(scale: Any, rank: int, function: str) -> tuple[float, ...]:
    values = scale if isinstance(scale, list | tuple) else [scale] * rank
    check_length(values, rank, "scale", function, why="one per spatial axis")
    return tuple(check_number(v, "scale", function, above=0, error=ShapeError) for v in values)


def _resize(
    function: str, mode: str, x: Variable, size: Any, scale: Any, layout: str, name: str | None, **attrs: Any
) -> Variable:
    """Emits the op of a mode, with sizes or with a scale."""
    if (size is None) == (scale is None):
        raise ShapeError(
            f"{function} takes either the output's size or a scale",
            expected="one of the two",
            received="both" if size is not None else "neither",
            fix="pass size=[h, w] or scale_factor=2",
            op=function,
        )
    rank = len(x.shape) - 2
    if has_variable(size) or has_variable(scale):
        given = known_when_run(
            size if scale is None else scale, rank, "size" if scale is None else "scale_factor", function
        )
        return resize_when_run(x, given, scale is not None, mode, layout, name, **attrs)
    if size is not None:
        sizes = check_ints(size, rank, "size", function)
        check_sizes(sizes, "size", function, least=1)
        attrs |= dict(zip(("out_d", "out_h", "out_w")[3 - rank :], sizes, strict=True))
    else:
        attrs["scale"] = _scales(scale, rank, function)
    return emit_one(f"{mode}_interp_v2", {"X": x}, {"interp_method": mode, "data_layout": layout, **attrs}, name=name)


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
        size: Output sizes, one per spatial axis: numbers, Variables of one element, or one Variable that holds all.
        scale_factor: Instead: a factor, or one per spatial axis; sizes are rounded down. Variables as for ``size``.
        mode: ``nearest``, ``linear`` (rank 3), ``bilinear``, ``bicubic`` (rank 4), ``trilinear`` (rank 5) or ``area``.
        align_corners: Not for ``nearest``.
        align_mode: 0 or 1, for linear modes.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``x`` with its spatial sizes changed.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
        UnsupportedError: For a size that is a Variable with mode ``area``.

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
    fitting = [mode for mode, ranks in _RANKS.items() if rank + 2 in ranks]
    fix = f"choose a mode for an input of rank {rank + 2}"
    check_choice(kind, fitting, "mode", "interpolate", fix=fix, error=ShapeError)
    if align_corners and kind == "nearest":
        raise ShapeError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear",
            expected="align_corners=False with mode='nearest'",
            received="align_corners=True",
            fix="leave align_corners at False, or choose another mode",
            op="interpolate",
        )
    if kind == "area":
        return _area(x, size, scale_factor, rank, layout, name)
    align = {"align_corners": align_corners, "align_mode": align_mode}
    return _resize("interpolate", kind, x, size, scale_factor, layout, name, **align)


def _area(x: Variable, size: Any, scale: Any, rank: int, layout: str, name: str | None) -> Variable:
    """Averages over the area that each output place covers: adaptive average pooling."""
    if has_variable(size) or has_variable(scale):
        raise UnsupportedError(
            "mode 'area' of interpolate needs its sizes when the program is built",
            expected="numbers",
            received="a Variable",
            fix="choose another mode, or pass numbers",
            op="interpolate",
        )
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
    """Returns known output sizes from a scale.

    Raises:
        ShapeError: If a size of the input is unknown.
    """
    sizes = spatial(x.shape, layout)
    if UNKNOWN in sizes:
        raise ShapeError(
            f"{function} needs known sizes here to apply a scale",
            expected="an input whose spatial sizes are known",
            received=list(x.shape),
            fix="give the sizes in static.data, or pass the output's size",
            op=function,
        )
    # Cut, not rounded, as in Paddle.
    return tuple(int(s * f) for s, f in zip(sizes, _scales(scale, rank, function), strict=True))


@export("nn.functional.upsample")
@parameters_of(interpolate)
def upsample(**given: Any) -> Variable:
    """Resizes as :func:`interpolate`, whose other name it is.

    Args:
        x, size, scale_factor, mode, align_corners, align_mode, data_format, name: As in :func:`interpolate`, with its
            errors.

    Returns:
        ``x`` with its spatial sizes changed.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0]]]])
        >>> y = paddle.nn.functional.upsample(x, scale_factor=2, mode="nearest")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1., 1., 2., 2.],
                 [1., 1., 2., 2.]]]], dtype=float32)
    """
    return interpolate(**given)


# --------------------------------------------------------------------------------------------------------- names of 1.x
def _resize_1x(
    function: str,
    mode: str,
    input: Variable,
    out_shape: Any,
    scale: Any,
    name: str | None,
    actual_shape: Any,
    data_format: str,
    **align: Any,
) -> Variable:
    """Resizes as in 1.x: a scale only says the output's size, and sizes decide the ratio."""
    check_variable(input, "input", function)
    # As in 1.x: actual_shape wins over out_shape, and both over a scale.
    out_shape = out_shape if actual_shape is None else actual_shape
    rank, layout = _layout(input, data_format, function)
    if out_shape is not None:
        scale = None
    elif scale is not None and not has_variable(scale) and UNKNOWN not in spatial(input.shape, layout):
        out_shape, scale = _scaled(input, scale, rank, layout, function), None
    return _resize(function, mode, input, out_shape, scale, layout, name, **align)


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
        data_format: Layout of the axes, which says where the channels are.

    Returns:
        ``input`` with its spatial sizes changed.
    """
    align = {"align_corners": align_corners}
    return _resize_1x("resize_nearest", "nearest", input, out_shape, scale, name, actual_shape, data_format, **align)


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
    align = {"align_corners": align_corners, "align_mode": align_mode}
    return _resize_1x("resize_bilinear", "bilinear", input, out_shape, scale, name, actual_shape, data_format, **align)


@export("fluid.layers.resize_trilinear", op="trilinear_interp_v2")
@parameters_of(resize_bilinear, data_format="NCDHW")
def resize_trilinear(**given: Any) -> Variable:
    """Resizes volumes by linear interpolation along three axes; arguments as in :func:`resize_bilinear`.

    Args:
        input: ``[n, c, d, h, w]`` (``NCDHW``) or channels last (``NDHWC``), floats.
        out_shape, scale, actual_shape, align_corners, align_mode: As in :func:`resize_bilinear`, with three sizes.
        name: Name of the layer.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        ``input`` with its spatial sizes changed.
    """
    return _resize_1x("resize_trilinear", "trilinear", **given)


@export("fluid.layers.resize_linear", op="linear_interp_v2")
@parameters_of(resize_bilinear, data_format="NCW")
def resize_linear(**given: Any) -> Variable:
    """Resizes sequences by linear interpolation; arguments as in :func:`resize_bilinear`.

    Args:
        input: ``[n, c, length]`` (``NCW``) or ``[n, length, c]`` (``NWC``), floats.
        out_shape, scale, actual_shape, align_corners, align_mode: As in :func:`resize_bilinear`, with one size.
        name: Name of the layer.
        data_format: ``"NCW"`` or ``"NWC"``.

    Returns:
        ``input`` with its length changed.
    """
    return _resize_1x("resize_linear", "linear", **given)


@export("fluid.layers.image_resize", "fluid.layers.interpolate")
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
    mode = str(resample).upper()
    modes = ("LINEAR", "BILINEAR", "TRILINEAR", "BICUBIC", "NEAREST")
    check_choice(mode, modes, "resample", "image_resize", error=ShapeError)
    align = {"align_corners": align_corners, "align_mode": align_mode}
    return _resize_1x("image_resize", mode.lower(), input, out_shape, scale, name, actual_shape, data_format, **align)


@export("fluid.layers.image_resize_short")
def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resizes images so that their shorter side has a given length; the other side keeps the ratio, rounded.

    Args:
        input: ``[n, c, h, w]``, ``h`` and ``w`` known.
        out_short_len: The length.
        resample: As in :func:`image_resize`.

    Raises:
        ShapeError: If the rank is not 4, or a size is not known.

    Example:
        >>> y = fluid.layers.image_resize_short(paddle.ones([1, 3, 6, 9]), out_short_len=4)
        >>> y.shape
        (1, 3, 4, 6)
    """
    function = "image_resize_short"
    check_rank(check_variable(input, "input", function), 4, "input", function, layout="[n, c, h, w]")
    sizes = [check_static_dim(input.shape[axis], input, f"axis {axis}", function) for axis in (2, 3)]
    ratio = check_int(out_short_len, "out_short_len", function, 1) / min(sizes)
    # Rounded half up, as in Paddle: `round` would go to the even size.
    return image_resize(input, [int(size * ratio + 0.5) for size in sizes], resample=resample)
