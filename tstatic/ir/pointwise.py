"""What follows from a pointwise expression: the numpy reference, the torch lowering and the gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir import expr, expr_numpy
from tstatic.ir.types import Meta, dtype_of

Prepare = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]


class Pointwise:
    """A ``ref`` made from expressions; it binds to single ufunc calls, so that a step costs no Python frame of ours.

    Args:
        inputs: Names of the input slots inside the expressions, in order.
        outputs: Output position -> expression text.
        attrs: Names of attributes that expressions may use.
        prepare: Maps ``(input arrays, attributes)`` to input arrays that broadcast by numpy's rule.
        drop: Output positions that have no expression.
    """

    def __init__(
        self, inputs: Sequence[str], outputs: Mapping[int, str], attrs: Sequence[str], prepare: Prepare | None = None
    ) -> None:
        self.inputs = tuple(inputs)
        self.nodes = {i: expr.parse(text) for i, text in outputs.items()}
        self.attrs = tuple(attrs)
        self.prepare = prepare
        self._codes: dict[Any, expr_numpy.Code] = {}
        # ``OpDef.pick`` looks here for the names of the attributes that are used.
        self.function = self.__call__

    def code(self, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any]) -> expr_numpy.Code:
        """Returns the code for these dtypes, wanted outputs and attribute values."""
        wanted = tuple((i, outs[i].dtype) for i in self.nodes if outs[i] is not None)
        present = tuple(None if a is None else a.dtype for a in ins)
        used = tuple((n, attrs[n]) for n in self.attrs if n in attrs)
        key = (wanted, present, used)
        found = self._codes.get(key)
        if found is None:
            values = {n: expr.const(v) for n, v in used if isinstance(v, bool | int | float)}
            found = expr_numpy.compile_numpy(
                {i: expr.substitute(self.nodes[i], values) for i, _ in wanted},
                {n: (i, d) for i, (n, d) in enumerate(zip(self.inputs, present, strict=True)) if d is not None},
                dict(wanted),
                {},
            )
            self._codes[key] = found
        return found

    def bind(
        self, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any], scratch: Sequence[Any] | None = None
    ) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Returns ready calls; ``scratch`` is made here when the caller has none."""
        code = self.code(ins, outs, attrs)
        if self.prepare is not None:
            ins = self.prepare(ins, attrs)
        if scratch is None:
            shape = next(o.shape for o in outs if o is not None)
            scratch = [np.empty(shape, d) for d in code.registers]
        return code.bind(ins, outs, scratch)

    def __call__(self, *arrays: Any, **attrs: Any) -> None:
        count = len(self.inputs)
        for function, args in self.bind(arrays[:count], arrays[count:], attrs):
            function(*args)


def torch_lowering(
    inputs: Sequence[str], outputs: Mapping[int, str], count: int, attrs: Sequence[str], prepare: Prepare | None = None
) -> Callable[..., Any]:
    """Returns a ``lower`` that evaluates the expressions with torch and rounds once to the inputs' float type."""
    nodes = {i: expr.parse(text) for i, text in outputs.items()}

    def lower(torch: Any, *tensors: Any, **values: Any) -> Any:
        if prepare is not None:
            tensors = tuple(prepare(tensors, values))
        named = {n: t for n, t in zip(inputs, tensors, strict=True) if t is not None}
        constants = {n: expr.const(v) for n, v in values.items() if isinstance(v, bool | int | float)}
        like = next(t for t in named.values())
        results: list[Any] = []
        for i in range(count):
            if i not in nodes:
                results.append(None)
                continue
            result = expr.run_torch(torch, expr.substitute(nodes[i], constants), named, {})
            if not hasattr(result, "dtype"):
                result = torch.full_like(like, result)
            if result.dtype.is_floating_point and like.dtype.is_floating_point:
                result = result.to(like.dtype)
            results.append(result)
        return results[0] if count == 1 else tuple(results)

    return lower


def same_as_first(*metas: Any) -> Meta:
    """``infer`` of an op whose result has the first input's shape and dtype."""
    first: Meta = metas[0]
    return first


def as_bool(*metas: Any) -> Meta:
    """``infer`` of a predicate on one input."""
    return Meta(metas[0].shape, dtype_of("bool"))


def derive_gradient(inputs: Sequence[str], outputs: Mapping[str, str], floats: Sequence[str]) -> dict[str, str]:
    """Differentiates pointwise outputs: returns variable name -> gradient text, over ``d<output>`` as incoming gradients.

    ``outputs`` maps the output's name inside expressions to its text; an output that no gradient reaches is left out by
    the caller.
    """
    gradients = {}
    for name in floats:
        total = expr.ZERO
        for out, text in outputs.items():
            inner = expr.diff(expr.parse(text), name)
            seed = expr.Node("var", value=f"d{out}")
            if inner.op == "where" and inner.args[2] == expr.ZERO:
                term = expr.make("where", inner.args[0], expr.make_term("mul", seed, inner.args[1]), expr.ZERO)
            else:
                term = expr.make_term("mul", seed, inner)
            total = expr.make("add", total, term)
        gradients[name] = expr.to_text(total)
    return gradients
