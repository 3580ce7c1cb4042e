"""An elementwise add and the activation after or before it, forward and backward."""

from __future__ import annotations

from tstatic.fusion.engine import Fused, Fusion
from tstatic.fusion.pattern import Match, Pattern
from tstatic.ir.frozen import FrozenOp

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "scale")
_GRADS = tuple(f"{a}_grad" for a in ACTIVATIONS if a != "scale")


def act_of_add(p: Pattern) -> None:
    """``act(x + y)``."""
    add = p.op("add", "elementwise_add", X=p.value("x"), Y=p.value("y"))
    act = p.op("act", ACTIVATIONS, X=add.Out)
    act.Out  # noqa: B018 - names the result


def add_of_act(p: Pattern) -> None:
    """``x + act(y)``."""
    act = p.op("act", ACTIVATIONS, X=p.value("y"))
    add = p.op("add", "elementwise_add", X=p.value("x"), Y=act.Out)
    add.Out  # noqa: B018


def act_plus(p: Pattern) -> None:
    """``act(x) + y``."""
    act = p.op("act", ACTIVATIONS, X=p.value("x"))
    add = p.op("add", "elementwise_add", X=act.Out, Y=p.value("y"))
    add.Out  # noqa: B018


def grad_of_act_of_add(p: Pattern) -> None:
    """The gradient of ``act(x + y)``."""
    act = p.op("act", _GRADS, Out_GRAD=p.value("dout"))
    p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)


def scaled_grad(p: Pattern) -> None:
    """The gradient of ``scale(x + y)``: a scale is its own gradient."""
    act = p.op("act", "scale", X=p.value("dout"))
    p.op("add", "elementwise_add_grad", Out_GRAD=act.Out)


def grad_of_add_of_act(p: Pattern) -> None:
    """The gradient of ``x + act(y)``."""
    add = p.op("add", "elementwise_add_grad", Out_GRAD=p.value("dout"))
    act = p.op("act", _GRADS, Out_GRAD=add.Y_GRAD)
    act.X_GRAD  # noqa: B018


def grad_of_act_plus(p: Pattern) -> None:
    """The gradient of ``act(x) + y``."""
    add = p.op("add", "elementwise_add_grad", Out_GRAD=p.value("dout"))
    act = p.op("act", _GRADS, Out_GRAD=add.X_GRAD)
    act.X_GRAD  # noqa: B018


def _fuse(match: Match) -> Fused:
    add, act = match.op("add"), match.op("act")
    first = match.ops["act"] < match.ops["add"]
    backward = add.type.endswith("_grad")
    attrs = {
        "functor_list": [act.type, add.type] if first == backward else [add.type, act.type],
        "axis": add.attrs["axis"],
    }
    if not backward:
        result, inner = (add, act) if first else (act, add)
        values = match.values
        return Fused(
            "fused_elemwise_add_activation",
            {"X": values["x"], "Y": values["y"]},
            {"Out": _one(result.output("Out")), "IntermediateOut": _one(inner.output("Out"))},
            attrs,
        )
    inner_gradient = match.values.get("act.X@GRAD" if first else "add.Y@GRAD") or match.values.get("act.Out")
    outputs = {"X@GRAD": _one(add.output("X@GRAD")), "Y@GRAD": _one(add.output("Y@GRAD"))}
    if not first:
        replaced = "Y@GRAD" if "add.Y@GRAD" in match.values else "X@GRAD"
        inner_gradient = outputs[replaced]
        outputs[replaced] = _one(act.output("X@GRAD"))
    return Fused(
        "fused_elemwise_add_activation_grad",
        {"Out": _slot(act, "Out"), "IntermediateOut": _slot(act, "X"), "Out@GRAD": match.values["dout"]},
        {**outputs, "IntermediateOut@GRAD": inner_gradient},
        attrs,
    )


def _slot(op: FrozenOp, name: str) -> str | None:
    """What stands in a slot that not every activation's gradient has; a scale's X is the incoming gradient."""
    names = [s.name for s in op.card.inputs]
    return _one(op.input(name)) if name in names and op.type != "scale" else None


def _one(entry: object) -> str | None:
    return entry if isinstance(entry, str) else None


FUSION = Fusion(
    "elewise_add_act",
    "fuse_elewise_add_act_ops",
    (act_of_add, add_of_act, act_plus, grad_of_act_of_add, scaled_grad, grad_of_add_of_act, grad_of_act_plus),
    _fuse,
)
