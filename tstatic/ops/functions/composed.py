"""Op types of Paddle that are several ordinary ops here: what raw ``append_op`` and the reader of Paddle's files build for them.

Some have a definition here, too; those below take inputs and attributes that it lacks, such as an axis that is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.composed import composed
from tstatic.ir.program import Variable
from tstatic.ir.types import dtype_of
from tstatic.no_effect import no_effect
from tstatic.ops.conv.grid_sample import affine_grid
from tstatic.ops.elementwise.scale import clip, scale
from tstatic.ops.functions.einsum import einsum
from tstatic.ops.functions.interpolate_functions import image_resize, interpolate
from tstatic.ops.functions.linear import addmm, bilinear
from tstatic.ops.functions.placing import diagonal_scatter, index_put, setitem, shard_index
from tstatic.ops.functions.products import cross, kron, renorm
from tstatic.ops.functions.rearranging import tril_indices, triu_indices
from tstatic.ops.linalg.decompose import eigh, eigvalsh, lstsq, lu, lu_unpack, matrix_rank
from tstatic.ops.linalg.solve import cholesky_solve, matrix_power, multi_dot
from tstatic.ops.reduce.running import logcumsumexp
from tstatic.ops.reduce.statistics import nanmedian
from tstatic.ops.reduce.vector_norm import dist
from tstatic.ops.shape.creation import full
from tstatic.ops.shape.diagonal import trace
from tstatic.ops.shape.joining import concat, split
from tstatic.ops.shape.pad import pad
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import logspace
from tstatic.ops.shape.vision import temporal_shift

Results = Mapping[str, Variable | Sequence[Variable]]
# The coordinates are constants of the program: two int64 for each element, 8 MiB.
MAX_TRIANGLE = 1 << 19
UNUSED = "LAPACK's driver does not show in the result"


# --------------------------------------------------------------------------------------------------------------- products
@composed("einsum")
def _einsum(Operands: Sequence[Variable], *, equation: str) -> Results:
    return {"Out": einsum(equation, *Operands)}


@composed("addmm")
def _addmm(Input: Variable, X: Variable, Y: Variable, *, Alpha: float = 1.0, Beta: float = 1.0) -> Results:
    return {"Out": addmm(Input, X, Y, Beta, Alpha)}


@composed("kron")
def _kron(X: Variable, Y: Variable) -> Results:
    return {"Out": kron(X, Y)}


@composed("cross")
def _cross(X: Variable, Y: Variable, *, dim: int = 9) -> Results:
    return {"Out": cross(X, Y, dim)}


@composed("dist")
def _dist(X: Variable, Y: Variable, *, p: float = 2.0) -> Results:
    return {"Out": dist(X, Y, p)}


@composed("bilinear_tensor_product")
def _bilinear(X: Variable, Y: Variable, Weight: Variable, Bias: Variable | None = None) -> Results:
    return {"Out": bilinear(X, Y, Weight, Bias)}


@composed("multi_dot")
def _multi_dot(X: Sequence[Variable]) -> Results:
    return {"Out": multi_dot(list(X))}


@composed("renorm")
def _renorm(X: Variable, *, p: float, axis: int, max_norm: float) -> Results:
    return {"Out": renorm(X, p, axis, max_norm)}


# ---------------------------------------------------------------------------------------------------------------- matrices
@composed("trace")
def _trace(Input: Variable, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Results:
    return {"Out": trace(Input, offset, axis1, axis2)}


@composed("matrix_power")
def _matrix_power(X: Variable, *, n: int) -> Results:
    return {"Out": matrix_power(X, n)}


@composed("cholesky_solve")
def _cholesky_solve(X: Variable, Y: Variable, *, upper: bool = False) -> Results:
    return {"Out": cholesky_solve(X, Y, upper)}


@composed("eigh")
def _eigh(X: Variable, *, UPLO: str = "L") -> Results:
    return dict(zip(("Eigenvalues", "Eigenvectors"), eigh(X, UPLO), strict=True))


@composed("eigvalsh")
def _eigvalsh(X: Variable, *, UPLO: str = "L") -> Results:
    return {"Eigenvalues": eigvalsh(X, UPLO)}


@composed("lu")
def _lu(X: Variable, *, pivots: bool = True) -> Results:
    return dict(zip(("Out", "Pivots", "Infos"), lu(X, pivots, get_infos=True), strict=True))


@composed("lu_unpack")
def _lu_unpack(X: Variable, Pivots: Variable, *, unpack_ludata: bool = True, unpack_pivots: bool = True) -> Results:
    return dict(zip(("Pmat", "L", "U"), lu_unpack(X, Pivots, unpack_ludata, unpack_pivots), strict=True))


@composed("lstsq")
@no_effect(driver=UNUSED)
def _lstsq(X: Variable, Y: Variable, *, rcond: float = 0.0, driver: str = "gelsy") -> Results:
    return dict(zip(("Solution", "Residuals", "Rank", "SingularValues"), lstsq(X, Y, rcond), strict=True))


@composed("matrix_rank")
def _matrix_rank(
    X: Variable,
    TolTensor: Variable | None = None,
    *,
    tol: float = 0.0,
    hermitian: bool = False,
    use_default_tol: bool = True,
) -> Results:
    # Paddle says in an attribute whether its tolerance counts.
    given = TolTensor if TolTensor is not None else None if use_default_tol else tol
    return {"Out": matrix_rank(X, given, hermitian)}


# ------------------------------------------------------------------------------------------------- reading, writing, making
@composed("set_value")
def _set_value(
    Input: Variable,
    ValueTensor: Variable | None = None,
    *,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
    decrease_axes: Sequence[int] = (),
    none_axes: Sequence[int] = (),
    values: Sequence[float] = (),
    shape: Sequence[int] = (),
    dtype: Any = None,
) -> Results:
    """Input with a part replaced; the axes of ``decrease_axes`` have one index, those of ``none_axes`` are new ones of the part."""
    index: list[Any] = [slice(None)] * len(Input.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = start if axis in decrease_axes else slice(start, end, step)
    for axis in none_axes:
        index.insert(axis, None)
    kind = Input.dtype if dtype is None else dtype_of(dtype)
    # Paddle writes the values flat, and their shape beside them.
    value = np.array(values).reshape(list(shape)).astype(kind.np) if ValueTensor is None else ValueTensor
    # A value may have more axes than the part, of size 1: a part of one number is given one of shape [1].
    sizes = list(value.shape)
    while sizes and sizes[0] == 1:
        del sizes[0]
    value = reshape(value, sizes) if isinstance(value, Variable) else value.reshape(sizes)
    return {"Out": setitem(Input, tuple(index), value)}


@composed("index_put")
def _index_put(x: Variable, indices: Sequence[Variable], value: Variable, *, accumulate: bool = False) -> Results:
    return {"out": index_put(x, list(indices), value, accumulate)}


@composed("fill_diagonal_tensor")
def _fill_diagonal_tensor(X: Variable, Y: Variable, *, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Results:
    # The diagonal of a matrix may come as a row.
    return {"Out": diagonal_scatter(X, Y if len(Y.shape) < len(X.shape) else reshape(Y, [-1]), offset, dim1, dim2)}


@composed("shard_index")
def _shard_index(X: Variable, *, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Results:
    return {"Out": shard_index(X, index_num, nshards, shard_id, ignore_value)}


def _check_triangle(rows: int, columns: int) -> None:
    """Refuses sizes that a file may claim, whose coordinates would not fit into memory."""
    if rows * columns > MAX_TRIANGLE:
        raise ShapeError(
            "the coordinates of this triangle are too many for a program",
            expected=f"at most {MAX_TRIANGLE:,} elements",
            received=f"{rows:,} x {columns:,}",
            fix="compute them with numpy.tril_indices and feed them",
        )


@composed("tril_indices")
def _tril_indices(*, rows: int, cols: int, offset: int = 0, dtype: Any = "int64") -> Results:
    _check_triangle(rows, cols)
    return {"out": tril_indices(rows, cols, offset, dtype)}


@composed("triu_indices")
def _triu_indices(*, row: int, col: int, offset: int = 0, dtype: Any = "int64") -> Results:
    _check_triangle(row, col)
    return {"out": triu_indices(row, col, offset, dtype)}


@composed("logspace")
def _logspace(Start: Variable, Stop: Variable, Base: Variable, *, num: Sequence[int], dtype: Any) -> Results:
    """How many numbers there are is an attribute: a program that fills Paddle's input Num gives it."""
    return {"Out": logspace(Start, Stop, num[0], Base, dtype)}


@composed("fill_constant")
def _fill_constant(ValueTensor: Variable, *, shape: Sequence[int], dtype: Any) -> Results:
    """The value is computed."""
    return {"Out": full(list(shape), ValueTensor, dtype)}


# --------------------------------------------------------------------------------------------------------- along axes
@composed("nanmedian")
def _nanmedian(X: Variable, *, axis: Sequence[int] = (), keepdim: bool = False) -> Results:
    return {"Out": nanmedian(X, list(axis) or None, keepdim)}


@composed("logcumsumexp")
def _logcumsumexp(X: Variable, *, axis: int = -1, flatten: bool = False) -> Results:
    return {"Out": logcumsumexp(X, None if flatten else axis)}


@composed("concat")
def _concat(X: Sequence[Variable], AxisTensor: Variable) -> Results:
    """The axis is computed."""
    return {"Out": concat(list(X), AxisTensor)}


@composed("split")
def _split(
    X: Variable,
    AxisTensor: Variable | None = None,
    SectionsTensorList: Sequence[Variable] = (),
    *,
    num: int = 0,
    sections: Sequence[int] = (),
    axis: int = 0,
) -> Results:
    """The axis, or the sizes of the parts, are computed."""
    parts: Any = list(SectionsTensorList) or list(sections) or num
    return {"Out": split(X, parts, axis if AxisTensor is None else AxisTensor)}


@composed("unsqueeze2")
def _unsqueeze(X: Variable, AxesTensor: Variable | None = None, AxesTensorList: Sequence[Variable] = ()) -> Results:
    """The axes are computed."""
    return {"Out": unsqueeze(X, list(AxesTensorList) if AxesTensor is None else AxesTensor)}


@composed("scale")
def _scale(X: Variable, ScaleTensor: Variable, *, bias: float = 0.0, bias_after_scale: bool = True) -> Results:
    """The factor is computed."""
    return {"Out": scale(X, ScaleTensor, bias, bias_after_scale)}


@composed("clip")
def _clip(
    X: Variable, Min: Variable | None = None, Max: Variable | None = None, *, min: float = 0.0, max: float = 0.0
) -> Results:
    """Limits are computed."""
    return {"Out": clip(X, min if Min is None else Min, max if Max is None else Max)}


# ------------------------------------------------------------------------------------------------------------------ images
@composed("affine_grid")
def _affine_grid(Theta: Variable, *, output_shape: Sequence[int], align_corners: bool = True) -> Results:
    return {"Output": affine_grid(Theta, list(output_shape), align_corners)}


@composed("temporal_shift")
def _temporal_shift(X: Variable, *, seg_num: int, shift_ratio: float = 0.25, data_format: str = "NCHW") -> Results:
    return {"Out": temporal_shift(X, seg_num, shift_ratio, None, data_format)}


@composed("pad3d")
def _pad3d(
    X: Variable, Paddings: Variable, *, mode: str = "constant", value: float = 0.0, data_format: str = "NCDHW"
) -> Results:
    """The paddings are computed."""
    return {"Out": pad(X, Paddings, mode, value, data_format)}


@composed("nearest_interp_v2", "linear_interp_v2", "bilinear_interp_v2", "trilinear_interp_v2", "bicubic_interp_v2")
@no_effect(out_d="the sizes are computed", out_h="the sizes are computed", out_w="the sizes are computed")
def _interpolated(
    X: Variable,
    OutSize: Variable | None = None,
    SizeTensor: Sequence[Variable] = (),
    Scale: Variable | None = None,
    *,
    data_layout: str = "NCHW",
    out_d: int = -1,
    out_h: int = -1,
    out_w: int = -1,
    interp_method: str = "nearest",
    align_corners: bool = True,
    align_mode: int = 1,
) -> Results:
    """Sizes or factors are computed."""
    size = list(SizeTensor) or OutSize
    factor = None if size is not None else Scale
    if interp_method == "nearest" and align_corners:
        # The op takes what `interpolate` refuses.
        return {"Out": image_resize(X, size, factor, None, "NEAREST", None, True, align_mode, data_layout)}
    return {"Out": interpolate(X, size, factor, interp_method, align_corners, align_mode, data_layout)}
