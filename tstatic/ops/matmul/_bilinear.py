"""The gradient of the backward op of an op that is linear in each of two operands."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import GRAD, GradContext, OpSpec


def bilinear_grad(type: str, first: str = "X", second: str = "Y", out: str = "Out") -> Any:
    """The gradient rule of the backward op of ``Out = f(X, Y)`` when ``f`` is linear in each operand.

    With ``dX = f_x(Y, dOut)`` and ``dY = f_y(X, dOut)``, the derivative along ``(ddX, ddY)`` is ``f(ddX, Y) + f(X, ddY)``
    by ``dOut``, ``f_x(ddY, dOut)`` by ``X`` and ``f_y(ddX, dOut)`` by ``Y``: the same two ops once more.
    """

    def rule(ctx: GradContext) -> list[OpSpec]:
        x, y, dout = ctx.inputs[first][0], ctx.inputs[second][0], ctx.inputs[out + GRAD][0]
        ddx, ddy = (
            ctx.out_grads.get(ctx.outputs[slot + GRAD][0]) if ctx.outputs.get(slot + GRAD) else None
            for slot in (first, second)
        )
        specs: list[OpSpec] = []
        if dout in ctx.in_grads:
            pairs = [(a, b) for a, b in ((ddx, y), (x, ddy)) if a is not None and b is not None]
            target = ctx.in_grads[dout]
            parts = [target] if len(pairs) == 1 else [ctx.fresh(target) for _ in pairs]
            for (a, b), part in zip(pairs, parts, strict=True):
                specs.append(OpSpec(type, {first: [a], second: [b]}, {out: [part]}, ctx.attrs))
            if len(parts) > 1:
                specs.append(OpSpec("sum", {"X": parts}, {"Out": [target]}))
        if x in ctx.in_grads and ddy is not None:
            ins = {first: [x], second: [ddy], out + GRAD: [dout]}
            specs.append(OpSpec(f"{type}_grad", ins, {first + GRAD: [ctx.in_grads[x]]}, ctx.attrs))
        if y in ctx.in_grads and ddx is not None:
            ins = {first: [ddx], second: [y], out + GRAD: [dout]}
            specs.append(OpSpec(f"{type}_grad", ins, {second + GRAD: [ctx.in_grads[y]]}, ctx.attrs))
        return specs

    return rule
