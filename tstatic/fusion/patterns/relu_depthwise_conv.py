"""Fuses relu with the depthwise convolution that reads it, forward and backward: relu's result is never stored."""

from __future__ import annotations

from collections.abc import Mapping

from tstatic.fusion.codegen.channels.depthwise import relu_depthwise_kernel
from tstatic.fusion.codegen.channels.per_channel import LAST
from tstatic.fusion.engine import Fused, Fusion, Patterns
from tstatic.fusion.engine.pattern import Match, Op, Pattern, Value, one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.recompute import recompute
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import UNKNOWN, Meta

CONVOLUTIONS = ("depthwise_conv2d", "conv2d")
GRADS = tuple(f"{c}_grad" for c in CONVOLUTIONS)


def conv_of_relu(p: Pattern) -> Value:
    """``conv(relu(x))``."""
    relu = p.op("relu", "relu", X=p.value("x"))
    conv = p.op("conv", CONVOLUTIONS, Input=relu.Out)
    return conv.Output


def grads_of_conv_of_relu(p: Pattern) -> Op:
    """The gradients of ``conv(relu(x))``, with relu recomputed."""
    relu = p.op("relu", "relu", X=p.value("x"))
    conv = p.op("conv", GRADS, Input=relu.Out, Output_GRAD=p.value("dout"))
    return p.op("act", "relu_grad", Out=relu.Out, Out_GRAD=conv.Input_GRAD)


def grad_of_filter(p: Pattern) -> Op:
    """The filter's gradient alone, if none is wanted for x."""
    relu = p.op("relu", "relu", X=p.value("x"))
    return p.op("conv", GRADS, Input=relu.Out, Output_GRAD=p.value("dout"))


def is_depthwise(conv: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether each channel has its own filters."""
    x, w = (metas.get(str(conv.input(s))) for s in ("Input", "Filter"))
    if x is None or w is None or x.rank != 4 or UNKNOWN in (*x.shape, *w.shape):
        return False
    channels = x.shape[3] if conv.attrs["data_format"] in LAST else x.shape[1]
    return bool(w.shape[1] == 1 and conv.attrs["groups"] == channels)


def recomputed(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Recomputes relu for the gradients of a depthwise convolution that reads it.

    The gradients read relu's result, which would have to be stored for them; recomputing it from x as they load it costs
    nothing.

    Args:
        program: The frozen program.
        metas: Metadata of all its values; those of the new values are added.
    """
    view = View(program, metas)
    later: dict[int, list[int]] = {}
    for index in view.of_type("relu"):
        out = str(view.ops[index].output("Out"))
        readers = [view.ops[i] for i in view.readers.get(out, ())]
        kinds = sorted(op.type for op in readers)
        gradients = [op for op in readers if op.type in GRADS]
        convolutions = [op for op in readers if op.type in CONVOLUTIONS]
        if out in view.fetched or out in view.kept or len(convolutions) != 1 or len(gradients) != 1:
            continue
        forward, backward = convolutions[0], gradients[0]
        # Besides these only relu's own gradient may read the value: for any other reader it is stored anyway.
        relu_grads = kinds.count("relu_grad")
        if len(readers) != 2 + relu_grads or relu_grads > 1 or backward.type != f"{forward.type}_grad":
            continue
        # As a filter or as the gradient that arrives, it is needed whole.
        if not is_depthwise(forward, metas) or out in (forward.input("Filter"), backward.input("Output@GRAD")):
            continue
        # All but the forward convolution, with which relu's own kernel is fused.
        later[index] = [i for i in view.readers[out] if view.ops[i] is not forward]
    return recompute(view, metas, later)


def _fuse(match: Match) -> Fused:
    conv, metas = match.op("conv"), match.view.metas
    if not is_depthwise(conv, metas):
        unknown = [v for v in (str(conv.input(s)) for s in ("Input", "Filter")) if UNKNOWN in metas[v].shape]
        if unknown:
            raise MatchRejected("DYNAMIC", value=unknown[0])
        raise MatchRejected(
            "ATTRIBUTE", "the convolution has fewer groups than channels", "nothing: it is not a depthwise one"
        )
    attrs = {**conv.attrs, "use_cudnn": False, "fuse_relu_before_depthwise_conv": True}
    ins = {"Input": match.values["x"], "Filter": one(conv.input("Filter"))}
    if not conv.type.endswith("_grad"):
        return Fused(conv.type, ins, {"Output": one(conv.output("Output"))}, attrs)
    ins["Output@GRAD"] = match.values["dout"]
    dx = one(match.op("act").output("X@GRAD")) if "act" in match.ops else None
    # `grad_of_filter` fits here as well: it is meant for a convolution whose input needs no gradient.
    if dx is None and conv.output("Input@GRAD") is not None:
        raise MatchRejected("ATTRIBUTE", "the gradient of relu's result is read by another operator", "nothing")
    return Fused(conv.type, ins, {"Input@GRAD": dx, "Filter@GRAD": one(conv.output("Filter@GRAD"))}, attrs)


FUSION = Fusion(
    "relu_depthwise_conv",
    "fuse_relu_depthwise_conv",
    Patterns((conv_of_relu, grads_of_conv_of_relu, grad_of_filter), _fuse),
    kernel=relu_depthwise_kernel,
    prepare=recomputed,
)
