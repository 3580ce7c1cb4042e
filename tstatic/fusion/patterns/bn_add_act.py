"""Fuses batch norm, the add of a residual and the activation after it, forward and backward."""

from __future__ import annotations

from tstatic.fusion.codegen.channels.batch_norm import batch_norm_kernel
from tstatic.fusion.engine import Fused, Fusion, Patterns
from tstatic.fusion.engine.pattern import Match, Op, Pattern, Value, activation_grads, activations, one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.patterns.bn_act import backward_parts, forward_parts
from tstatic.ir.checks import same_shape


def norm_plus(p: Pattern) -> Value:
    """``act(batch_norm(x) + z)``."""
    norm = p.op("norm", "batch_norm", X=p.value("x"))
    add = p.op("add", "elementwise_add", X=norm.Y, Y=p.value("z"))
    act = p.op("act", activations(), X=add.Out)
    return act.Out


def plus_norm(p: Pattern) -> Value:
    """``act(z + batch_norm(x))``."""
    norm = p.op("norm", "batch_norm", X=p.value("x"))
    add = p.op("add", "elementwise_add", X=p.value("z"), Y=norm.Y)
    act = p.op("act", activations(), X=add.Out)
    return act.Out


def grad_of_norm_plus(p: Pattern) -> Op:
    """The gradient of ``act(batch_norm(x) + z)``."""
    act = p.op("act", activation_grads(), Out_GRAD=p.value("dout"))
    add = p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)
    return p.op("norm", "batch_norm_grad", Y_GRAD=add.X_GRAD)


def grad_of_plus_norm(p: Pattern) -> Op:
    """The gradient of ``act(z + batch_norm(x))``."""
    act = p.op("act", activation_grads(), Out_GRAD=p.value("dout"))
    add = p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)
    return p.op("norm", "batch_norm_grad", Y_GRAD=add.Y_GRAD)


def summed_grad_of_norm_plus(p: Pattern) -> Op:
    """The gradient of ``act(batch_norm(x) + z)`` whose result several ops read: their gradients are summed first."""
    total = p.op("sum", "sum")
    act = p.op("act", activation_grads(), Out_GRAD=total.Out)
    add = p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)
    return p.op("norm", "batch_norm_grad", Y_GRAD=add.X_GRAD)


def summed_grad_of_plus_norm(p: Pattern) -> Op:
    """The gradient of ``act(z + batch_norm(x))``, likewise."""
    total = p.op("sum", "sum")
    act = p.op("act", activation_grads(), Out_GRAD=total.Out)
    add = p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)
    return p.op("norm", "batch_norm_grad", Y_GRAD=add.Y_GRAD)


def _fuse(match: Match) -> Fused:
    norm, add, act = match.op("norm"), match.op("add"), match.op("act")
    metas = match.view.metas
    x, y = add.input("X"), add.input("Y")
    if x == y and norm.type == "batch_norm":
        raise MatchRejected(
            "ATTRIBUTE", "batch norm's result is added to itself", "multiply it by 2 instead (paddle.scale)"
        )
    # An unknown size is the kernel's to refuse (DYNAMIC).
    if not same_shape(metas[str(x)].shape, metas[str(y)].shape):
        raise MatchRejected(
            "ATTRIBUTE",
            "the residual has another shape than batch norm's result",
            "broadcast it before, with paddle.expand",
        )
    attrs = {**norm.attrs, "act_type": act.type.removesuffix("_grad")}
    if norm.type == "batch_norm":
        ins, outs = forward_parts(norm)
        ins["Z"] = match.values["z"]
        return Fused("fused_bn_add_activation", ins, {"Y": one(act.output("Out")), **outs}, attrs)
    ins, outs = backward_parts(norm, act, one(act.input("Out@GRAD")))
    # Whichever operand the norm made, the residual is the other one.
    other = "Y@GRAD" if one(add.output("X@GRAD")) == one(norm.input("Y@GRAD")) else "X@GRAD"
    return Fused("fused_bn_add_activation_grad", ins, {**outs, "Z@GRAD": one(add.output(other))}, attrs)


_PATTERNS = (
    # A sum precedes the activation's gradient, so that the longer match, which begins with it, is tried first.
    norm_plus, plus_norm, summed_grad_of_norm_plus, summed_grad_of_plus_norm, grad_of_norm_plus, grad_of_plus_norm,
)  # fmt: skip
FUSION = Fusion("bn_add_act", "fuse_bn_add_act_ops", Patterns(_PATTERNS, _fuse), kernel=batch_norm_kernel, exact=True)
