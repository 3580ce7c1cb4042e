"""A scale and a shift per channel, as of a batch normalisation with fixed statistics."""

from __future__ import annotations

from tstatic.ir.build import LayerNamer
from tstatic.ir.checks import FLOATS, check_choice, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.composed import composed
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.scale import cast


@composed("affine_channel")
def _affine_channel(X: Variable, Scale: Variable, Bias: Variable, *, data_layout: str = "NCHW") -> dict[str, Variable]:
    return {"Out": affine(LayerNamer("affine_channel"), X, Scale, Bias, data_layout)}


def affine(helper: LayerNamer, x: Variable, scale: Variable, bias: Variable, data_layout: str) -> Variable:
    """Emits ``x * scale + bias`` with a number per channel; 16-bit floats are rounded once."""
    function = "affine_channel"
    check_choice(data_layout, ("NCHW", "NHWC", "AnyLayout"), "data_layout", function)
    check_dtype(x, FLOATS, "X", function)
    last = data_layout == "NHWC"
    check_rank(x, range(2, 6), "X", function, layout="[n, ..., c]" if last else "[n, c, ...]")
    axis = len(x.shape) - 1 if last else 1
    for value, slot in ((scale, "Scale"), (bias, "Bias")):
        check_same_dtype((x, value), ("X", slot), function)
        check_has_shape(value, (x.shape[axis],), slot, function, why="a number per channel")
    low = x.dtype.is_low
    # In float32 up to the last step: a product rounded to 16 bits would lose the digits that the shift cancels.
    wide, factor, summand = (cast(v, "float32") if low else v for v in (x, scale, bias))
    product = emit_one("elementwise_mul", {"X": wide, "Y": factor}, {"axis": axis})
    ins, attrs = {"X": product, "Y": summand}, {"axis": axis}
    if not low:
        return helper.emit("elementwise_add", ins, attrs)  # type: ignore[no-any-return]
    total = emit_one("elementwise_add", ins, attrs)
    return helper.emit("cast", {"X": total}, {"in_dtype": total.dtype, "out_dtype": x.dtype})  # type: ignore[no-any-return]
