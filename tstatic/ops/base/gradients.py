"""Gradient rules: those that emit one op, those of lists of values, and a collector for rules that emit several ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.ir.opdef import GRAD, NO_ATTRS, GradContext, OpSpec

Rule = Callable[[GradContext], list[OpSpec]]
AttrsOf = Callable[[GradContext], Mapping[str, Any]]


def passed(ctx: GradContext, x: str = "X", out: str = "Out") -> tuple[str, str] | None:
    """Returns the name of the gradient that arrives for an output, and that to write an input's gradient to.

    ``None`` when either is missing: then there is nothing to do.
    """
    # A slot may be absent, and an output may have no gradient: both mean that nothing is to be done.
    wanted, outs = ctx.in_grads.get(ctx.inputs[x][0]), ctx.outputs.get(out)
    arriving = ctx.out_grads.get(outs[0]) if outs else None
    return None if wanted is None or arriving is None else (arriving, wanted)


def grad_is_op(
    type: str,
    attrs: AttrsOf | Mapping[str, Any] = NO_ATTRS,
    x: str = "X",
    out: str = "Out",
    slot: str = "",
    keep: Sequence[str] = (),
) -> Rule:
    """Makes the gradient rule of an op whose gradient is another op (or itself) with attributes of its own.

    Args:
        type: The op to emit.
        attrs: Its attributes, or a function that gives them.
        x, out: The forward op's slots, and the emitted op's.
        slot: The emitted op's input slot where it is not ``x``.
        keep: Input slots that both ops read (masks).
    """

    def rule(ctx: GradContext) -> list[OpSpec]:
        names = passed(ctx, x, out)
        if names is None:
            return []
        values = attrs(ctx) if callable(attrs) else attrs
        kept = {name: ctx.inputs[name] for name in keep}
        return [OpSpec(type, {slot or x: [names[0]], **kept}, {out: [names[1]]}, values)]

    return rule


def grad_is_forward_op(
    type: str,
    source: str = "X",
    result: str = "Out",
    keep: Sequence[str] | Mapping[str, str] = (),
    attrs: Mapping[str, Any] | None = None,
    changed: Mapping[str, Any] = NO_ATTRS,
) -> Rule:
    """Makes the gradient rule of a backward op that is linear in the incoming gradient: the forward op, on the new one.

    Args:
        type: The forward op.
        source, result: Its slots of which the backward op knows the gradients.
        keep: Input slots that both ops read (indices, masks), or the forward op's -> the backward op's.
        attrs: The attributes; by default those of the backward op.
        changed: Attributes in which they differ.
    """
    kept = keep if isinstance(keep, Mapping) else {slot: slot for slot in keep}

    def rule(ctx: GradContext) -> list[OpSpec]:
        names = passed(ctx, result + GRAD, source + GRAD)
        if names is None:
            return []
        inputs = {source: [names[0]], **{slot: ctx.inputs[own] for slot, own in kept.items() if ctx.inputs.get(own)}}
        values = ctx.attrs if attrs is None else attrs
        return [OpSpec(type, inputs, {result: [names[1]]}, {**values, **changed} if changed else values)]

    return rule


def grad_is_linear_op(type: str, result: str, slots: Sequence[str], keep: Sequence[str]) -> Rule:
    """Makes the gradient rule of the backward op of an op that is linear in several inputs: the op itself, or zeros.

    Args:
        type: The forward op.
        result: Its output slot; the backward op reads the gradient of it.
        slots: The input slots in which it is linear; the first has the result's shape.
        keep: Input slots that both ops read.
    """

    def rule(ctx: GradContext) -> list[OpSpec]:
        wanted = ctx.in_grads.get(ctx.inputs[result + GRAD][0])
        specs: list[OpSpec] = []
        inputs = {slot: ctx.inputs[slot] for slot in keep}
        for i, slot in enumerate(slots):
            # The first slot is not an input of the backward op, so
            # zeros for it take their shape from the result's gradient.
            like = ctx.inputs[slot if i else result + GRAD][0]
            name = ctx.out_grads.get(ctx.outputs[slot + GRAD][0]) if ctx.outputs.get(slot + GRAD) else None
            if name is None:
                name = ctx.fresh(like)
                specs.append(OpSpec("fill_any_like", {"X": [like]}, {"Out": [name]}, {"value": 0.0}))
            inputs[slot] = [name]
        # All summands are zeros: no gradient arrived.
        if wanted is None or len(specs) == len(slots):
            return []
        return [*specs, OpSpec(type, inputs, {result: [wanted]}, ctx.attrs)]

    return rule


def bilinear_grad(type: str, first: str = "X", second: str = "Y", out: str = "Out", keep: Sequence[str] = ()) -> Rule:
    """Makes the gradient rule of the backward op of ``Out = f(X, Y)`` when ``f`` is linear in each operand.

    With ``dX = f_x(Y, dOut)`` and ``dY = f_y(X, dOut)``, the derivative along ``(ddX, ddY)`` is ``f(ddX, Y) + f(X, ddY)``
    by ``dOut``, ``f_x(ddY, dOut)`` by ``X`` and ``f_y(ddX, dOut)`` by ``Y``: the same two ops once more.

    Args:
        type: The op ``f``.
        first, second, out: Its slots.
        keep: Further input slots that both ops read where they are given (offsets).
    """

    def rule(ctx: GradContext) -> list[OpSpec]:
        x, y, dout = ctx.inputs[first][0], ctx.inputs[second][0], ctx.inputs[out + GRAD][0]
        ddx, ddy = (
            ctx.out_grads.get(ctx.outputs[slot + GRAD][0]) if ctx.outputs.get(slot + GRAD) else None
            for slot in (first, second)
        )
        kept = {slot: ctx.inputs[slot] for slot in keep if ctx.inputs.get(slot)}
        specs: list[OpSpec] = []
        if dout in ctx.in_grads:
            # A missing ddX or ddY is zero everywhere, and so is its product.
            pairs = [(a, b) for a, b in ((ddx, y), (x, ddy)) if a is not None and b is not None]
            target = ctx.in_grads[dout]
            parts = [target] if len(pairs) == 1 else [ctx.fresh(target) for _ in pairs]
            for (a, b), part in zip(pairs, parts, strict=True):
                specs.append(OpSpec(type, {first: [a], second: [b], **kept}, {out: [part]}, ctx.attrs))
            if len(parts) > 1:
                specs.append(OpSpec("sum", {"X": parts}, {"Out": [target]}))
        # f(x, ddY) is linear in x: its gradient is the forward op's, with ddY in the place of y.
        if x in ctx.in_grads and ddy is not None:
            ins = {first: [x], second: [ddy], out + GRAD: [dout], **kept}
            specs.append(OpSpec(f"{type}_grad", ins, {first + GRAD: [ctx.in_grads[x]]}, ctx.attrs))
        if y in ctx.in_grads and ddx is not None:
            ins = {first: [ddx], second: [y], out + GRAD: [dout], **kept}
            specs.append(OpSpec(f"{type}_grad", ins, {second + GRAD: [ctx.in_grads[y]]}, ctx.attrs))
        return specs

    return rule


# ------------------------------------------------------------------------------------------------------ lists of values
def zeros(ctx: GradContext, like: str, specs: list[OpSpec]) -> str:
    """Returns zeros of a value's shape, by an op added to ``specs``."""
    made = ctx.fresh(like + GRAD)
    specs.append(OpSpec("fill_any_like", {"X": [like]}, {"Out": [made]}, {"value": 0.0}))
    return made


def zeros_for(ctx: GradContext, name: str, specs: list[OpSpec]) -> str:
    """Returns the gradient of a forward output, or zeros (by an op added to ``specs``) when none arrives."""
    return ctx.out_grads.get(name) or zeros(ctx, name, specs)


def gathered(ctx: GradContext, x: str, outs: str) -> tuple[str, list[str], list[OpSpec]] | None:
    """Returns, for a list of outputs, the wanted gradient, the incoming ones, and ops that make zeros for missing ones.

    ``None`` when nothing is wanted or nothing arrives.
    """
    wanted = ctx.in_grads.get(ctx.inputs[x][0])
    names = ctx.outputs[outs]
    if wanted is None or not any(n in ctx.out_grads for n in names):
        return None
    specs: list[OpSpec] = []
    return wanted, [zeros_for(ctx, n, specs) for n in names], specs


def scattered(ctx: GradContext, xs: str, out: str) -> tuple[str, list[str]] | None:
    """Returns, for a list of inputs, the incoming gradient and names for all gradients; unwanted ones are temporaries.

    ``None`` when nothing is wanted or nothing arrives.
    """
    arriving, names = ctx.out_grads.get(ctx.outputs[out][0]), ctx.inputs[xs]
    if arriving is None or not any(n in ctx.in_grads for n in names):
        return None
    return arriving, [ctx.in_grads.get(n) or ctx.fresh(n + GRAD) for n in names]


# ---------------------------------------------------------------------------------------------------------- several ops
class Emitter:
    """Collects the ops of a gradient rule; ``None`` means a value that is zero everywhere."""

    def __init__(self, ctx: GradContext) -> None:
        self.ctx = ctx
        # `specs` are in the order of emission, which is the order in which they run.
        self.specs: list[OpSpec] = []

    def input(self, slot: str) -> str:
        """Returns the name of the forward op's input."""
        return self.ctx.inputs[slot][0]

    def incoming(self, slot: str) -> str | None:
        """Returns the name of the gradient that arrives for an output slot."""
        names = self.ctx.outputs.get(slot)
        return self.ctx.out_grads.get(names[0]) if names else None

    def wanted(self, slot: str) -> str | None:
        """Returns the name to write the gradient of an input slot to."""
        names = self.ctx.inputs.get(slot)
        return self.ctx.in_grads.get(names[0]) if names else None

    def emit(
        self, type: str, inputs: Mapping[str, str], out: str | None = None, slot: str = "Out", **attrs: Any
    ) -> str:
        """Appends an op; returns the name of its output."""
        out = out if out is not None else self.ctx.fresh(type)
        self.specs.append(OpSpec(type, {n: [v] for n, v in inputs.items()}, {slot: [out]}, attrs))
        return out

    def zeros(self, like: str, out: str | None = None) -> str:
        """Appends zeros of a value's shape."""
        return self.emit("fill_any_like", {"X": like}, out, value=0.0)
