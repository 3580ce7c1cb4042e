"""Fuses an elementwise add with the activation after or before it, forward and backward."""

from __future__ import annotations

from tstatic.fusion.codegen.define import is_elementwise, works_on_rows
from tstatic.fusion.engine import Fused, Fusion, Patterns
from tstatic.fusion.engine.pattern import Match, Op, Pattern, Value, activation_grads, activations, one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.rewrites.recompute import recompute
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.traits import Activation
from tstatic.ir.types import Meta


def act_of_add(p: Pattern) -> Value:
    """``act(x + y)``."""
    add = p.op("add", "elementwise_add", X=p.value("x"), Y=p.value("y"))
    # Paddle counts scale among the activations here.
    act = p.op("act", (*activations(), "scale"), X=add.Out)
    return act.Out


def add_of_act(p: Pattern) -> Value:
    """``x + act(y)``."""
    act = p.op("act", (*activations(), "scale"), X=p.value("y"))
    add = p.op("add", "elementwise_add", X=p.value("x"), Y=act.Out)
    return add.Out


def act_plus(p: Pattern) -> Value:
    """``act(x) + y``."""
    act = p.op("act", (*activations(), "scale"), X=p.value("x"))
    add = p.op("add", "elementwise_add", X=act.Out, Y=p.value("y"))
    return add.Out


def grad_of_act_of_add(p: Pattern) -> Op:
    """The gradient of ``act(x + y)``."""
    act = p.op("act", activation_grads(), Out_GRAD=p.value("dout"))
    return p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)


def grad_with_sum(p: Pattern) -> Op:
    """The gradient of ``act(x + y)``, with the sum recomputed."""
    add = p.op("recomputed", "elementwise_add", X=p.value("x"), Y=p.value("y"))
    act = p.op("act", activation_grads(), X=add.Out, Out_GRAD=p.value("dout"))
    return p.op("add", "elementwise_add_grad", Out_GRAD=act.X_GRAD)


def same_grad_with_sum(p: Pattern) -> Value:
    """The same if both operands have the shape of the sum: its gradient is theirs."""
    add = p.op("recomputed", "elementwise_add", X=p.value("x"), Y=p.value("y"))
    act = p.op("act", activation_grads(), X=add.Out, Out_GRAD=p.value("dout"))
    return act.X_GRAD


def scaled_grad(p: Pattern) -> Op:
    """The gradient of ``scale(x + y)``: a scale is its own gradient."""
    act = p.op("act", "scale", X=p.value("dout"))
    return p.op("add", "elementwise_add_grad", Out_GRAD=act.Out)


def grad_of_add_of_act(p: Pattern) -> Value:
    """The gradient of ``x + act(y)``."""
    add = p.op("add", "elementwise_add_grad", Out_GRAD=p.value("dout"))
    act = p.op("act", activation_grads(), Out_GRAD=add.Y_GRAD)
    return act.X_GRAD


def grad_of_act_plus(p: Pattern) -> Value:
    """The gradient of ``act(x) + y``."""
    add = p.op("add", "elementwise_add_grad", Out_GRAD=p.value("dout"))
    act = p.op("act", activation_grads(), Out_GRAD=add.X_GRAD)
    return act.X_GRAD


def prepared(program: FrozenProgram, metas: dict[str, Meta], compiler: bool = False) -> FrozenProgram:
    """Removes the gradients of adds of equal shapes, and recomputes sums that activations' gradients read.

    The forward kernel then does not write the sum, and the backward kernel reads the operands instead of it. If one operand is
    a bias, this saves a write; with two full-size operands the bytes stay the same (one write less, one read more).

    Args:
        program: The frozen program.
        metas: Metadata of all its values; those of the new values are added.
        compiler: For groups of any ops: skips a sum whose operands such a group makes, as the copy would join that group.
    """
    program = eliminate_identity_gradients(program, metas)
    view = View(program, metas)
    readers = {add: _gradient_that_reads(view, add, compiler) for add in view.of_type("elementwise_add")}
    return recompute(view, metas, {add: (reader,) for add, reader in readers.items() if reader is not None})


def _gradient_that_reads(view: View, index: int, compiler: bool) -> int | None:
    """Returns the activation's gradient, if it and the activation are the only readers of a sum and will be fused with it."""
    add = view.ops[index]
    out = str(add.output("Out"))
    readers = list(dict.fromkeys(view.readers.get(out, ())))
    if out in view.fetched or out in view.kept or len(readers) != 2 or index in view.forbidden:
        return None
    act, gradient = (view.ops[i] for i in readers)
    if not act.definition.has(Activation) or gradient.type != f"{act.type}_grad":
        return None
    if gradient.input("Out@GRAD") == out or not view.forbidden.isdisjoint(readers):
        return None
    # An activation before the add would be fused with it, and the sum would be written anyway.
    makers = [view.ops[view.maker[v]] for v in add.reads() if v in view.maker]
    if any(
        m.definition.has(Activation)
        or m.type == "scale"
        or (compiler and (is_elementwise(m.definition) or works_on_rows(m.definition)))
        for m in makers
    ):
        return None
    return readers[1]


def _fuse_recomputed(match: Match) -> Fused:
    """Fuses a gradient with the recomputed sum, and with the add's own gradient if the match has it."""
    recomputed, act, view = match.op("recomputed"), match.op("act"), match.view
    add = match.op("add") if "add" in match.ops else None
    inner = str(act.output("X@GRAD"))
    follows = [view.ops[i].type for i in dict.fromkeys(view.readers.get(inner, ()))] == ["elementwise_add_grad"]
    # The longer pattern, with the add's own gradient, fits here as well.
    if add is None and follows and inner not in view.fetched and inner not in view.kept:
        raise MatchRejected("ATTRIBUTE", "the add's gradient follows", "nothing: the fusion of the add includes it")
    attrs = {"functor_list": ["elementwise_add", act.type], "axis": recomputed.attrs["axis"]}
    outputs = {"X@GRAD": inner, "Y@GRAD": None}
    if add is not None:
        outputs = {"X@GRAD": one(add.output("X@GRAD")), "Y@GRAD": one(add.output("Y@GRAD"))}
        # The activation's own gradient, which others may read.
        outputs["IntermediateOut@GRAD"] = inner
    ins = {"X": match.values["x"], "Y": match.values["y"], "Out@GRAD": match.values["dout"]}
    return Fused("fused_elemwise_add_activation_grad", ins, outputs, attrs)


def _fuse(match: Match) -> Fused:
    if "recomputed" in match.ops:
        return _fuse_recomputed(match)
    add, act = match.op("add"), match.op("act")
    # By position in the program, where a gradient begins with the outer function.
    first = match.ops["act"] < match.ops["add"]
    backward = add.type.endswith("_grad")
    attrs = {
        # Paddle's order: the outer function first, so that `act(x + y)` is [act, add]; gradients run the other way.
        "functor_list": [act.type, add.type] if first == backward else [add.type, act.type],
        "axis": add.attrs["axis"],
    }
    if not backward:
        result, inner = (add, act) if first else (act, add)
        values = match.values
        return Fused(
            "fused_elemwise_add_activation",
            {"X": values["x"], "Y": values["y"]},
            {"Out": one(result.output("Out")), "IntermediateOut": one(inner.output("Out"))},
            attrs,
        )
    inner_gradient = match.values.get("act.X@GRAD" if first else "add.Y@GRAD") or match.values.get("act.Out")
    outputs = {"X@GRAD": one(add.output("X@GRAD")), "Y@GRAD": one(add.output("Y@GRAD"))}
    if not first:
        # The activation's gradient follows that of the add: its result is the gradient of one operand.
        replaced = "Y@GRAD" if "add.Y@GRAD" in match.values else "X@GRAD"
        inner_gradient = outputs[replaced]
        outputs[replaced] = one(act.output("X@GRAD"))
    return Fused(
        "fused_elemwise_add_activation_grad",
        {"Out": _slot(act, "Out"), "IntermediateOut": _slot(act, "X"), "Out@GRAD": match.values["dout"]},
        {**outputs, "IntermediateOut@GRAD": inner_gradient},
        attrs,
    )


def _slot(op: FrozenOp, name: str) -> str | None:
    """Returns the value of a slot, or ``None`` if this activation's gradient lacks it (a scale's X is the incoming gradient)."""
    names = [s.name for s in op.definition.inputs]
    return one(op.input(name)) if name in names and op.type != "scale" else None


_PATTERNS = (
    act_of_add, add_of_act, act_plus, grad_with_sum, same_grad_with_sum, grad_of_act_of_add, scaled_grad, grad_of_add_of_act,
    grad_of_act_plus,
)  # fmt: skip
FUSION = Fusion("elewise_add_act", "fuse_elewise_add_act_ops", Patterns(_PATTERNS, _fuse), prepare=prepared)
