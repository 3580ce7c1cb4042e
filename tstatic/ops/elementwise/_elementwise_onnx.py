"""Forms in ONNX of elementwise ops that are one operator there, and of those without an expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import bool_, int64, normalize_axis


def total(g: Graph, xs: Sequence[Value]) -> Value:
    if len(xs) == 1:
        return xs[0]
    # ONNX's Sum knows floats only.
    if xs[0].dtype.is_float:
        return g("Sum", *xs)
    made = xs[0]
    for x in xs[1:]:
        made = g.add(made, x)
    return made


def bitwise(word: str) -> Callable[..., Value]:
    """Makes ``and``, ``or``, ``xor`` or ``not`` of bits, which of truth values is the logical one."""

    def form(g: Graph, *xs: Value) -> Value:
        return g(word.title() if xs[0].dtype is bool_ else f"Bitwise{word.title()}", *xs)

    return form


def is_empty(g: Graph, x: Value) -> Value:
    return g.equal(g("Size", x, dtype=int64), 0)


def every(g: Graph, same: Value) -> Value:
    """Returns whether all of some truth values hold; of none they do."""
    # By counting: ONNX adds and multiplies no truth values, and of no elements the count is 0.
    wrong = g("ReduceSum", g.cast(g("Not", same, dtype=bool_), int64), keepdims=0)
    return g.equal(wrong, 0)


def equal_all(g: Graph, x: Value, y: Value) -> Value:
    return g.const(False) if x.shape != y.shape and -1 not in (*x.shape, *y.shape) else every(g, g.equal(x, y))


def close(g: Graph, x: Value, y: Value, *, rtol: float, atol: float, equal_nan: bool) -> Value:
    a, b = g.wide(x), g.wide(y)
    distance = g("Abs", g.sub(a, b))
    bound = g.add(g.mul(g("Abs", b), rtol), atol)
    # Beside an infinity every distance would be within the bound; only an equal infinity is near.
    infinite = g("IsInf", bound, dtype=bool_)
    near = g("And", g("LessOrEqual", distance, bound, dtype=bool_), g("Not", infinite, dtype=bool_), dtype=bool_)
    near = g("Or", near, g.equal(a, b), dtype=bool_)
    if equal_nan:
        near = g("Or", near, g("And", g("IsNaN", a, dtype=bool_), g("IsNaN", b, dtype=bool_), dtype=bool_), dtype=bool_)
    return every(g, near)


def maxout(g: Graph, x: Value, *, groups: int, axis: int) -> Value:
    at = normalize_axis(axis, x.rank)
    count = g.known(x, [at])[0]
    sizes = [*x.shape[:at], count // groups, groups, *x.shape[at + 1 :]]
    return g("ReduceMax", g.reshape(x, sizes), g.ints([at + 1]), keepdims=0)
