"""Fuses batch norm with the activation after it, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from tstatic.fusion.codegen.channels.batch_norm import RECOMPUTES, batch_norm_kernel
from tstatic.fusion.engine import Fused, Fusion, Patterns
from tstatic.fusion.engine.pattern import Match, Op, Pattern, Value, activation_grads, activations, one
from tstatic.ir.frozen import FrozenOp

_STATISTICS = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace")


def act_of_norm(p: Pattern) -> Value:
    """``act(batch_norm(x))``."""
    norm = p.op("norm", "batch_norm", X=p.value("x"))
    act = p.op("act", activations(), X=norm.Y)
    return act.Out


def grad_of_act_of_norm(p: Pattern) -> Op:
    """The gradient of ``act(batch_norm(x))``."""
    act = p.op("act", activation_grads(), Out_GRAD=p.value("dout"))
    return p.op("norm", "batch_norm_grad", Y_GRAD=act.X_GRAD)


def forward_parts(norm: FrozenOp) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Returns the inputs and outputs that the fused op has from the batch norm; the caller adds the activation's."""
    slots = ("X", "Scale", "Bias", "Mean", "Variance", "MomentumTensor")
    return {s: one(norm.input(s)) for s in slots}, {s: one(norm.output(s)) for s in _STATISTICS}


def backward_parts(
    norm: FrozenOp, act: FrozenOp, dout: str | None
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Returns the same for the gradient; the activation's saved output is ``Y``."""
    read = {s.name: e for s, e in zip(act.definition.inputs, act.inputs, strict=True)}
    slots = ("X", "Scale", "Bias", "SavedMean", "SavedVariance")
    ins = {"Y": one(read.get("Out")), "Y@GRAD": dout, **{s: one(norm.input(s)) for s in slots}}
    return ins, {s: one(norm.output(s)) for s in ("X@GRAD", "Scale@GRAD", "Bias@GRAD")}


def _fuse(match: Match) -> Fused:
    norm, act = match.op("norm"), match.op("act")
    attrs = {**norm.attrs, "act_type": act.type.removesuffix("_grad")}
    if norm.type == "batch_norm":
        ins, outs = forward_parts(norm)
        return Fused("fused_batch_norm_act", ins, {"Y": one(act.output("Out")), **outs}, attrs)
    ins, outs = backward_parts(norm, act, match.values["dout"])
    return Fused("fused_batch_norm_act_grad", ins, outs, attrs, _recomputing(match))


def _recomputing(match: Match) -> tuple[FrozenOp, ...]:
    """Returns the ops of a gradient that recomputes the activation's result from the norm's input; none if it must be read.

    The result can be recomputed if it is all that the activation's gradient reads, it is computed from this norm's result,
    and both ops are one kernel in the forward pass (no other op reads the value between them): then both passes use the
    same statistics and the same operations.
    """
    view, norm, act = match.view, match.op("norm"), match.op("act")
    # Gradients of other activations read the activation's input, which is the norm's result itself.
    if {s.name for s in act.definition.inputs} != {"Out", "Out@GRAD"}:
        return ()
    places = [view.maker.get(str(act.input("Out")), -1)]
    # -1 gives the last op of the program, and is refused below.
    forward = view.ops[places[0]]
    if places[0] < 0 or forward.type != act.definition.of or dict(forward.attrs) != dict(act.attrs):
        return ()
    inner = str(forward.input("X"))
    places.append(view.maker.get(inner, -1))
    first = view.ops[places[1]]
    if (
        places[1] < 0
        or first.type != norm.definition.of
        or first.output("Y") != inner
        or dict(first.attrs) != dict(norm.attrs)
    ):
        return ()
    same = all(first.input(s) == norm.input(s) for s in ("X", "Scale"))
    same = same and all(first.output(s) == norm.input(s) for s in ("SavedMean", "SavedVariance"))
    seen = inner in view.fetched or inner in view.kept or view.readers.get(inner) != [places[0]]
    if not same or seen or not view.forbidden.isdisjoint(places):
        return ()
    # The gradient needs only the shape of its bias, so another value may have replaced it: use the forward op's bias.
    inputs = (
        first.input("Bias") if s.name == "Bias" else e for s, e in zip(norm.definition.inputs, norm.inputs, strict=True)
    )
    return replace(act, attrs={**act.attrs, RECOMPUTES: True}), replace(norm, inputs=tuple(inputs))


FUSION = Fusion(
    "bn_act",
    "fuse_bn_act_ops",
    Patterns((act_of_norm, grad_of_act_of_norm), _fuse),
    kernel=batch_norm_kernel,
    exact=True,
)
