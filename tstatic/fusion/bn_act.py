"""Batch norm and the activation after it, forward and backward."""

from __future__ import annotations

from tstatic.fusion.codegen.batch_norm import batch_norm_kernel
from tstatic.fusion.engine import Fused, Fusion
from tstatic.fusion.pattern import Match, Pattern
from tstatic.ir.frozen import FrozenOp

ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu", "silu", "leaky_relu", "relu6", "swish", "hard_swish")
GRADS = tuple(f"{a}_grad" for a in ACTIVATIONS)

_STATISTICS = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace")


def act_of_norm(p: Pattern) -> None:
    """``act(batch_norm(x))``."""
    norm = p.op("norm", "batch_norm", X=p.value("x"))
    act = p.op("act", ACTIVATIONS, X=norm.Y)
    act.Out  # noqa: B018 - names the result


def grad_of_act_of_norm(p: Pattern) -> None:
    """The gradient of ``act(batch_norm(x))``."""
    act = p.op("act", GRADS, Out_GRAD=p.value("dout"))
    p.op("norm", "batch_norm_grad", Y_GRAD=act.X_GRAD)


def forward_parts(norm: FrozenOp) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Inputs and outputs of a fused op that are those of the batch norm; what the activation makes is added to them."""
    slots = ("X", "Scale", "Bias", "Mean", "Variance", "MomentumTensor")
    return {s: one(norm.input(s)) for s in slots}, {s: one(norm.output(s)) for s in _STATISTICS}


def backward_parts(norm: FrozenOp, act: FrozenOp, dout: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The same for the gradient; the activation's saved output is ``Y``."""
    read = {s.name: e for s, e in zip(act.card.inputs, act.inputs, strict=True)}
    slots = ("X", "Scale", "Bias", "SavedMean", "SavedVariance")
    ins = {"Y": one(read.get("Out")), "Y@GRAD": dout, **{s: one(norm.input(s)) for s in slots}}
    return ins, {s: one(norm.output(s)) for s in ("X@GRAD", "Scale@GRAD", "Bias@GRAD")}


def one(entry: object) -> str | None:
    """The value of a slot that holds one."""
    return entry if isinstance(entry, str) else None


def _fuse(match: Match) -> Fused:
    norm, act = match.op("norm"), match.op("act")
    attrs = {**norm.attrs, "act_type": act.type.removesuffix("_grad")}
    if norm.type == "batch_norm":
        ins, outs = forward_parts(norm)
        return Fused("fused_batch_norm_act", ins, {"Y": one(act.output("Out")), **outs}, attrs)
    ins, outs = backward_parts(norm, act, match.values["dout"])
    return Fused("fused_batch_norm_act_grad", ins, outs, attrs)


FUSION = Fusion(
    "bn_act",
    "fuse_bn_act_ops",
    (act_of_norm, grad_of_act_of_norm),
    _fuse,
    kernel=batch_norm_kernel,
)
