"""``label_smooth``: moves a share of each label to a prior distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import UNKNOWN, Meta, dtype_of, numel
from tstatic.ops._call_ref import CallRef, float_scratch
from tstatic.ops.elementwise._unary import infer_float
from tstatic.ops.shape._shapes import emit_one


def _infer(x: Meta, prior: Meta | None) -> Meta:
    infer_float(x)
    size = x.shape[-1] if x.rank else 0
    if not x.rank or (prior is not None and UNKNOWN not in (size, numel(prior.shape)) and numel(prior.shape) != size):
        raise ShapeError(
            "PriorDist of label_smooth needs one value per class" if x.rank else "X of label_smooth has rank 0",
            expected=f"labels [..., classes] and a prior of {size if x.rank else 'as many'} values",
            received=f"{list(x.shape)} and {None if prior is None else list(prior.shape)}",
            fix="pass labels with the classes along the last axis, and a prior [1, classes]",
        )
    return x


def _calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, epsilon: float) -> Calls:
    x, prior = ins
    out = outs[0]
    if out.size == 0:
        return []
    keep, share = np.asarray(1.0 - epsilon, out.dtype), np.asarray(epsilon / x.shape[-1], out.dtype)
    calls: Calls = [(np.multiply, (x, keep, out))]
    if prior is None:
        return [*calls, (np.add, (out, share, out))]
    part = scratch[0]
    flat = prior.reshape(part.shape, copy=False)
    return [*calls, (np.multiply, (flat, np.asarray(epsilon, out.dtype), part)), (np.add, (out, part, out))]


def _scratch_metas(ins: Sequence[Any], outs: Sequence[Any]) -> tuple[Meta, ...]:
    return () if ins[1] is None else (float_scratch(ins[0], (ins[1].numel,)),)


def _lower(torch: Any, x: Any, prior: Any, epsilon: float) -> Any:
    wide = x.float() if x.itemsize == 2 else x
    rest = epsilon / max(x.shape[-1], 1) if prior is None else epsilon * prior.to(wide.dtype).reshape(-1)
    return (wide * (1.0 - epsilon) + rest).to(x.dtype)


def _grad(ctx: GradContext) -> list[OpSpec]:
    x, dout = ctx.inputs["X"][0], ctx.out_grads.get(ctx.outputs["Out"][0])
    if dout is None or x not in ctx.in_grads:
        return []
    return [OpSpec("scale", {"X": [dout]}, {"Out": [ctx.in_grads[x]]}, {"scale": 1.0 - ctx.attrs["epsilon"]})]


_REF = CallRef(_calls, _scratch_metas)

register(
    OpDef(
        "label_smooth",
        "X, PriorDist? -> Out",
        attrs={"epsilon": Attr(0.0, "float", lambda v: None if 0 <= v <= 1 else "a number from 0 to 1")},
        infer=_infer,
        ref=_REF,
        lower=_lower,
        grad=_grad,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((3, 4),), {"epsilon": 0.1}),
                Case(((3, 4), (1, 4)), {"epsilon": 0.25}),
                Case(((2, 3, 4), (4,)), {"epsilon": 0.5}),
                Case(((5,),), {"epsilon": 1.0}),
                Case(((1, 1),)),
                Case(((0, 3),), {"epsilon": 0.1}),
            ),
            ulps=8.0,
        ),
    )
)


def _build(label: Variable, prior_dist: Variable | None, epsilon: float, name: str | None) -> Variable:
    ins = {
        "X": check_variable(label, "label", "label_smooth"),
        "PriorDist": None if prior_dist is None else check_variable(prior_dist, "prior_dist", "label_smooth"),
    }
    return emit_one("label_smooth", ins, {"epsilon": epsilon}, name=name)


@export("nn.functional.label_smooth", op="label_smooth")
def label_smooth(
    label: Variable, prior_dist: Variable | None = None, epsilon: float = 0.1, name: str | None = None
) -> Variable:
    """Returns ``(1 - epsilon) * label + epsilon * prior``.

    Args:
        label: ``[..., classes]``, one-hot or any distribution.
        prior_dist: ``[1, classes]``; uniform if ``None``.
        epsilon: The share that is moved, from 0 to 1.
        name: Name of the layer.

    Example:
        >>> label = paddle.to_tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> y = paddle.nn.functional.label_smooth(label, epsilon=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.05, 0.95],
               [0.95, 0.05]], dtype=float32)
    """
    return _build(label, prior_dist, epsilon, name)


@export("fluid.layers.label_smooth", op="label_smooth")
def fluid_label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Returns :func:`label_smooth`, computed in ``dtype``.

    Example:
        >>> label = paddle.to_tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> y = fluid.layers.label_smooth(label, epsilon=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.05, 0.95],
               [0.95, 0.05]], dtype=float32)
    """
    check_variable(label, "label", "label_smooth")
    if dtype_of(dtype) is not label.dtype:
        label = emit_one("cast", {"X": label}, {"in_dtype": label.dtype, "out_dtype": dtype_of(dtype)})
    return _build(label, prior_dist, epsilon, name)
