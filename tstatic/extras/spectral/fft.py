"""Discrete Fourier transforms along axes: complex to complex, real to complex and complex to real.

A transform is linear, so its gradient is its adjoint:
the transform in the other direction, with the factor on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import Attr, one_of
from tstatic.ir.checks import check_axis, check_dtype
from tstatic.ir.opdef import Case, Domain, GradContext, GradOp, OpDef, ValueRange, register
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import grad_is_forward_op, grad_is_op
from tstatic.ops.elementwise.complex_numbers import COMPLEX, PARTS
from tstatic.tuned._common import Array

NORMS = ("backward", "ortho", "forward")
_OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
_ATTRS = {
    "axes": Attr(kind="ints"), "normalization": Attr("backward", "str", one_of(*NORMS)), "forward": True,
}  # fmt: skip
_NUMBER = ValueRange(dtype="complex")
_ULPS = 64.0


def _transform(x: Array, axes: Sequence[int], normalization: str, forward: bool) -> Array:
    """Transforms complex values; the factor is that of numpy's function for the direction."""
    function = np.fft.fftn if forward else np.fft.ifftn
    if x.size == 0:
        return np.zeros(x.shape, x.dtype)
    return np.asarray(function(x, axes=tuple(axes), norm=normalization))  # type: ignore[arg-type]


def _torch_transform(torch: Any, x: Any, axes: Sequence[int], normalization: str, forward: bool) -> Any:
    function = torch.fft.fftn if forward else torch.fft.ifftn
    return function(x, dim=tuple(axes), norm=normalization) if x.numel() else x.clone()


# ------------------------------------------------------------------------------------------------------ complex to complex
def _c2c_infer(x: Meta, axes: Sequence[int]) -> Meta:
    check_dtype(x, COMPLEX, "X")
    for axis in axes:
        check_axis(axis, x, "axes")
    return x


def _adjoint(ctx: GradContext) -> dict[str, Any]:
    attrs = ctx.attrs
    return {**attrs, "normalization": _OTHER[attrs["normalization"]], "forward": not attrs["forward"]}


register(OpDef(
    "fft_c2c", "X -> Out", attrs=_ATTRS, infer=_c2c_infer,
    ref=lambda x, out, *, axes, normalization, forward: np.copyto(out, _transform(x, axes, normalization, forward)),
    lower=_torch_transform, complex="own",
    grad=grad_is_op("fft_c2c", _adjoint),
    domain=Domain(
        cases=(
            Case(((5,),), {"axes": (0,)}), Case(((3, 4),), {"axes": (-1,), "forward": False}),
            Case(((2, 3, 2),), {"axes": (0, 2), "normalization": "ortho"}), Case(((0, 3),), {"axes": (1,)}),
            Case(((2, 3),), {"axes": (0, 1), "normalization": "forward", "forward": False}), Case(((1,),), {"axes": (0,)}),
        ),
        values={"X": _NUMBER}, floats=PARTS, ulps=_ULPS,
    ), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


# --------------------------------------------------------------------------------------------------------- real to complex
def _half(size: int) -> int:
    return size if size == UNKNOWN else size // 2 + 1


def _r2c_infer(x: Meta, axes: Sequence[int], onesided: bool) -> Meta:
    check_dtype(x, PARTS, "X")
    last = [check_axis(axis, x, "axes") for axis in axes][-1]
    shape = [_half(s) if i == last and onesided else s for i, s in enumerate(x.shape)]
    return Meta(tuple(shape), x.dtype.complex)


def _r2c(x: Array, out: Array, *, axes: Sequence[int], normalization: str, forward: bool, onesided: bool) -> None:
    if x.size == 0:
        return
    if not onesided:
        np.copyto(out, _transform(x.astype(out.dtype), axes, normalization, forward))
        return
    # The inverse transform of real values is the conjugate of the transform, with the factor on the other side.
    found = np.fft.rfftn(x, axes=tuple(axes), norm=normalization if forward else _OTHER[normalization])  # type: ignore[arg-type]
    np.copyto(out, found if forward else found.conj())


def _torch_r2c(torch: Any, x: Any, *, axes: Sequence[int], normalization: str, forward: bool, onesided: bool) -> Any:
    wide = x.to(torch.complex64 if x.dtype == torch.float32 else torch.complex128)
    found = _torch_transform(torch, wide, axes, normalization, forward)
    last = axes[-1] % x.dim()
    return found.narrow(last, 0, _half(x.shape[last])).clone() if onesided else found


def _spread_half(dout: Array, shape: Sequence[int], axis: int) -> Array:
    """Returns values of half a spectrum in a whole one; the rest is 0."""
    full = np.zeros(tuple(shape), dout.dtype)
    full[(slice(None),) * axis + (slice(0, dout.shape[axis]),)] = dout
    return full


def _r2c_grad(
    x: Array, dout: Array, dx: Array, *, axes: Sequence[int], normalization: str, forward: bool, onesided: bool
) -> None:
    wide = _spread_half(dout, x.shape, axes[-1] % x.ndim) if onesided else dout
    np.copyto(dx, _transform(wide, axes, _OTHER[normalization], not forward).real)


def _torch_r2c_grad(
    torch: Any, x: Any, dout: Any, *, axes: Sequence[int], normalization: str, forward: bool, onesided: bool
) -> Any:
    last = axes[-1] % x.dim()
    if onesided:
        wide = dout.new_zeros(x.shape)
        wide.narrow(last, 0, dout.shape[last]).copy_(dout)
        dout = wide
    return _torch_transform(torch, dout, axes, _OTHER[normalization], not forward).real.clone()


_HALVES = (
    Case(((5,),), {"axes": (0,)}), Case(((3, 4),), {"axes": (-1,), "forward": False}),
    Case(((2, 3, 2),), {"axes": (2, 0), "normalization": "ortho"}), Case(((2, 3),), {"axes": (0, 1), "normalization": "forward"}),
    Case(((0, 3),), {"axes": (1,)}), Case(((2, 6),), {"axes": (0, 1), "forward": False}), Case(((1,),), {"axes": (0,)}),
)  # fmt: skip

register(OpDef(
    "fft_r2c", "X -> Out", attrs={**_ATTRS, "onesided": True}, infer=_r2c_infer, ref=_r2c, lower=_torch_r2c, complex="own",
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=_r2c_grad, lower=_torch_r2c_grad, shape_only=("X",), grad=grad_is_forward_op("fft_r2c"),
    ),
    domain=Domain(
        cases=(*_HALVES, *(Case(c.shapes, {**c.attrs, "onesided": False}) for c in _HALVES[:4])), floats=PARTS, ulps=_ULPS,
    ), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip


# --------------------------------------------------------------------------------------------------------- complex to real
def _c2r_infer(x: Meta, axes: Sequence[int], last_dim_size: int) -> Meta:
    check_dtype(x, COMPLEX, "X")
    last = [check_axis(axis, x, "axes") for axis in axes][-1]
    half = x.shape[last]
    size = last_dim_size or (UNKNOWN if half == UNKNOWN else 2 * (half - 1))
    if half not in (UNKNOWN, _half(size)):
        raise ShapeError(
            f"half a spectrum of {size} values has {_half(size)} places, not {half}",
            expected=f"{_half(size)} along axis {last}",
            received=list(x.shape),
            fix="call paddle.fft.irfft, which cuts or pads its input",
        )
    return Meta(tuple(size if i == last else s for i, s in enumerate(x.shape)), x.dtype.real)


def _c2r(x: Array, out: Array, *, axes: Sequence[int], normalization: str, forward: bool) -> None:
    if out.size == 0:
        return
    # The transform of a spectrum is the inverse one of its conjugate, with the factor on the other side.
    source, norm = (x.conj(), _OTHER[normalization]) if forward else (x, normalization)
    sizes = tuple(out.shape[a] for a in axes)
    np.copyto(out, np.fft.irfftn(source, s=sizes, axes=tuple(axes), norm=norm))  # type: ignore[arg-type]


def _torch_c2r(
    torch: Any, x: Any, *, axes: Sequence[int], normalization: str, forward: bool, last_dim_size: int
) -> Any:
    size = last_dim_size or 2 * (x.shape[axes[-1]] - 1)
    source, norm = (x.conj(), _OTHER[normalization]) if forward else (x, normalization)
    sizes = tuple(size if i == len(axes) - 1 else x.shape[a] for i, a in enumerate(axes))
    if 0 in x.shape:
        shape = [size if i == axes[-1] % x.dim() else s for i, s in enumerate(x.shape)]
        return torch.zeros(shape, dtype=torch.float32 if x.dtype == torch.complex64 else torch.float64)
    return torch.fft.irfftn(source.resolve_conj(), s=sizes, dim=tuple(axes), norm=norm)


def _twice(size: int) -> slice:
    """Returns the places of half a spectrum that count twice: all but the first, and the last of an even number."""
    return slice(1, (size - 1) // 2 + 1)


def _c2r_grad(x: Array, dout: Array, dx: Array, *, axes: Sequence[int], normalization: str, forward: bool) -> None:
    _r2c(dout, dx, axes=axes, normalization=_OTHER[normalization], forward=not forward, onesided=True)
    last = axes[-1] % dx.ndim
    middle = dx[(slice(None),) * last + (_twice(dout.shape[last]),)]
    np.multiply(middle, 2, out=middle)


def _torch_c2r_grad(torch: Any, x: Any, dout: Any, **attrs: Any) -> Any:
    del attrs["last_dim_size"]
    inverse = {"normalization": _OTHER[attrs["normalization"]], "forward": not attrs["forward"], "onesided": True}
    dx = _torch_r2c(torch, dout, **{**attrs, **inverse})
    last = attrs["axes"][-1] % dx.dim()
    dx[(slice(None),) * last + (_twice(dout.shape[last]),)] *= 2
    return dx


register(OpDef(
    "fft_c2r", "X -> Out", attrs={**_ATTRS, "forward": False, "last_dim_size": 0}, infer=_c2r_infer, ref=_c2r, lower=_torch_c2r,
    complex="own",
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=_c2r_grad, lower=_torch_c2r_grad, shape_only=("X",), grad=grad_is_forward_op("fft_c2r"),
    ),
    domain=Domain(
        cases=(
            Case(((3,),), {"axes": (0,), "last_dim_size": 5}), Case(((3, 3),), {"axes": (-1,)}),
            Case(((2, 2, 3),), {"axes": (0, 2), "last_dim_size": 4, "normalization": "ortho"}),
            Case(((2, 3),), {"axes": (0, 1), "forward": True}), Case(((0, 2),), {"axes": (1,)}),
            Case(((2, 3),), {"axes": (1,), "forward": True, "last_dim_size": 5, "normalization": "forward"}),
            Case(((1,),), {"axes": (0,), "last_dim_size": 1}),
        ),
        values={"X": _NUMBER}, floats=PARTS, ulps=_ULPS,
    ), onnx="runtimes of ONNX have no complex numbers",
))  # fmt: skip
