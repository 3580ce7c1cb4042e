"""What ``dropout`` and ``dropout_nd`` share: attributes, scaling, masks and the gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.opdef import GRAD, Attr, GradContext, GradOp, OpSpec
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import Meta, Shape
from tstatic.tuned import draw
from tstatic.tuned.philox import torch_bits

Array = np.ndarray[Any, Any]

UPSCALE, DOWNGRADE = "upscale_in_train", "downgrade_in_infer"
DOWNSCALE = "downscale_in_infer"
"""What ``nn.functional.dropout`` calls the operator's ``downgrade_in_infer``."""


def _implementation(value: Any) -> str | None:
    return None if value in (UPSCALE, DOWNGRADE) else f"'{UPSCALE}' or '{DOWNGRADE}'"


def _chance(value: float) -> str | None:
    return None if 0 <= value <= 1 else "a probability from 0 to 1"


ATTRS = {
    "dropout_prob": Attr(0.5, "float", _chance),
    "is_test": False,
    "dropout_implementation": Attr(DOWNGRADE, "str", _implementation),
    "fix_seed": Attr.idle(False, "a seed other than 0 is used either way"),
    "seed": 0,
}


def scale_of(dropout_prob: float, is_test: bool, dropout_implementation: str) -> float:
    """What the kept elements are multiplied by."""
    if is_test:
        return 1.0 if dropout_implementation == UPSCALE else 1.0 - dropout_prob
    if dropout_implementation == UPSCALE:
        return 1.0 / (1.0 - dropout_prob) if dropout_prob < 1 else 0.0
    return 1.0


def check_float(x: Meta) -> None:
    """Checks that the input has a float dtype.

    Raises:
        DTypeError: If it has another.
    """
    if not x.dtype.is_float:
        raise DTypeError(
            "dropout works on floating-point values",
            expected="a float dtype",
            received=x.dtype.name,
            fix="convert the input with paddle.cast(x, 'float32')",
            op="dropout",
        )


def scaled(x: Array, mask: Array | None, out: Array, scale: float) -> None:
    """``out = x * mask * scale`` (no mask: all ones); float16 and bfloat16 in float32, rounded once."""
    if out.dtype.itemsize == 2 and scale != 1:
        value = x.astype(np.float32)
        if mask is not None:
            np.multiply(value, mask, out=value)
        np.multiply(value, np.float32(scale), out=value)
        np.copyto(out, value, casting="unsafe")
        return
    if mask is None:
        np.multiply(x, out.dtype.type(scale), out=out)
        return
    if out.dtype.itemsize == 2:
        # By 0 or 1, which is exact in any type; the mask's own type would make the product a wider one.
        mask = mask.astype(out.dtype)
    np.multiply(x, mask, out=out)
    if scale != 1:
        np.multiply(out, out.dtype.type(scale), out=out)


def torch_keep(torch: Any, shape: Shape, dropout_prob: float, key: Any, start: int, device: Any) -> Any:
    """The mask of kept elements as uint8."""
    bits = torch_bits(torch, math.prod(shape), key, start, device)
    return (bits >= draw.keep_threshold(dropout_prob)).to(torch.uint8).reshape(shape)


def wide(torch: Any, x: Any) -> Any:
    """The type that a tensor is computed in."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


# ------------------------------------------------------------------------------------------------------------- gradient
def _grad_ref(
    mask: Array, dout: Array, dx: Array, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> None:
    scaled(dout, None if is_test else mask, dx, scale_of(dropout_prob, is_test, dropout_implementation))


def _grad_lower(
    torch: Any, mask: Any, dout: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> Any:
    factor = scale_of(dropout_prob, is_test, dropout_implementation)
    value = dout.to(wide(torch, dout))
    return (value * factor if is_test else value * mask * factor).to(dout.dtype)


def _again(type: str) -> Any:
    """The gradient is linear in the incoming one, so its own gradient is the same op."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        incoming = ctx.out_grads.get(ctx.outputs["X" + GRAD][0])
        wanted = ctx.in_grads.get(ctx.inputs["Out" + GRAD][0])
        if incoming is None or wanted is None:
            return []
        ins = {"Mask": ctx.inputs["Mask"], "Out" + GRAD: [incoming]}
        return [OpSpec(type, ins, {"X" + GRAD: [wanted]}, ctx.attrs)]

    return rule


def gradient(type: str) -> GradOp:
    """The backward op of that type."""
    return GradOp(
        f"Mask, Out{GRAD} -> X{GRAD}",
        ref=_grad_ref,
        lower=_grad_lower,
        infer=lambda mask, dout: dout,
        split=Split(ELEMENTS, FIRST),
        inplace=(("Out" + GRAD, "X" + GRAD),),
        grad=_again(type),
    )
