"""Which steps of padded sequences are not padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import INTEGERS, check_dtype, check_int, check_one_element
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, DType, Meta, bool_, int64
from tstatic.ops.base.shapes import Array, emit_one


def _infer(x: Meta, maxlen_tensor: Meta | None, *, maxlen: int, out_dtype: DType) -> Meta:
    check_dtype(x, INTEGERS, "X")
    if maxlen_tensor is not None:
        check_one_element(maxlen_tensor, "maxlen")
    return Meta((*x.shape, maxlen if maxlen_tensor is None and maxlen >= 0 else UNKNOWN), out_dtype)


def _ref(x: Array, maxlen_tensor: Array | None, out: Any, *, maxlen: int, out_dtype: DType) -> list[Array]:
    size = maxlen
    if maxlen_tensor is not None:
        size = int(maxlen_tensor.reshape(-1)[0])
    if size < 0:
        # `initial`: of no lengths at all, or of negative ones only, the mask has no column.
        size = int(x.max(initial=0))
    return [(np.arange(size) < x[..., None]).astype(out_dtype.np)]


def _lower(torch: Any, x: Any, maxlen_tensor: Any, *, maxlen: int, out_dtype: DType) -> Any:
    size = maxlen if maxlen_tensor is None else int(maxlen_tensor.reshape(-1)[0])
    if size < 0:
        size = max(int(x.max()), 0) if x.numel() else 0
    return (torch.arange(size, device=x.device) < x[..., None]).to(getattr(torch, out_dtype.name))


def _onnx_form(g: Any, x: Any, given: Any, *, maxlen: int) -> Any:
    lengths = g.cast(x, int64)
    if given is not None:
        most = g.cast(given, int64)
        most = g.squeeze(most, range(most.rank))
    elif maxlen >= 0:
        most = g.const(maxlen, int64)
    else:
        # As the reference: negative lengths only give a mask without columns.
        most = g("Max", g("ReduceMax", lengths, keepdims=0), g.const(0, int64))
    places = g("Range", g.const(0, int64), most, g.const(1, int64))
    # Broadcast against a new last axis: one row of places for every length.
    return g("Less", places, g.unsqueeze(lengths, [x.rank]), dtype=bool_)


register(OpDef(
    "sequence_mask", "X, MaxLenTensor? -> Y", attrs={"maxlen": -1, "out_dtype": Attr(int64, "dtype")}, infer=_infer,
    ref=_ref, lower=_lower, dynamic=Dynamic("the greatest length, or a value, where no length is given", free=("X",)),
    domain=Domain(
        cases=(
            Case(((3,),)), Case(((2, 3),), {"maxlen": 4, "out_dtype": "float32"}), Case(((0,),), {"out_dtype": "bool"}),
            Case(((),), {"out_dtype": "int32"}), Case(((3, 1), (1,))), Case(((2,), ()), {"out_dtype": "bfloat16"}),
        ),
        values={"X": ValueRange(-1, 5, dtype="int64"), "MaxLenTensor": ValueRange(0, 6, dtype="int64")},
        floats=("float32",), ulps=0,
    ), onnx=_onnx_form,
))  # fmt: skip


@export(
    "nn.functional.sequence_mask", "fluid.layers.sequence_mask", "fluid.layers.sequence_lod.sequence_mask",
    op="sequence_mask",
)  # fmt: skip
def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Returns 1 where a step belongs to a sequence, 0 where it is padding.

    Args:
        x: Lengths, ints of any shape.
        maxlen: The number of steps: an int, a Variable of one element, or ``None`` for the greatest length.
        dtype: Of the result.
        name: Name of the layer.

    Returns:
        ``[*x.shape, maxlen]``.

    Raises:
        ShapeError: If ``maxlen`` is negative, or a Variable of several elements.
        DTypeError: If ``x`` holds no integers.

    Example:
        >>> lengths = paddle.to_tensor([3, 1, 0])
        >>> mask = paddle.nn.functional.sequence_mask(lengths)
        >>> static.Executor().run(fetch_list=[mask])[0]
        array([[1, 1, 1],
               [1, 0, 0],
               [0, 0, 0]])
    """
    function = "sequence_mask"
    check_variable(x, "x", function, INTEGERS)
    attrs: dict[str, Any] = {"out_dtype": dtype}
    ins = {"X": x}
    if isinstance(maxlen, Variable):
        ins["MaxLenTensor"] = check_variable(maxlen, "maxlen", function, INTEGERS)
    elif maxlen is not None:
        attrs["maxlen"] = check_int(maxlen, "maxlen", function, 0)
    return emit_one("sequence_mask", ins, attrs, name=name)
