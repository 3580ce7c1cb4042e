"""Pointwise expressions as nodes of ONNX: one translation gives every elementwise op its form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.ir.expr import FUNCTIONS, Node, Number
from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import DType, bool_, float32, float64, int64

Operand = Value | Number

NAMES = {
    "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal", "both": "And", "either": "Or",
    "differ": "Xor", "invert": "Not", "maximum": "Max", "minimum": "Min", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
"""Functions whose operator in ONNX is not called as they are."""
SAME = frozenset({
    "add", "sub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "abs", "sign", "floor", "ceil", "where", "erf",
})  # fmt: skip
"""Functions whose operator in ONNX has their own name."""
TEXTS = {
    "ne": "~(a == b)",
    "square": "a * a",
    # Near 0, exp(a) - 1 would have no digits left.
    "expm1": "tanh(0.5 * a) * (exp(a) + 1)",
    # W. Kahan's quotient of rounded values: where 1 + a rounds to u, log(u) / (u - 1) has hardly changed.
    "log1p": "where(1 + a == 1, a, log(1 + a) * (a / where((1 + a == 1) | isinf(a), 1, (1 + a) - 1)))",
    "log2": "log(a) * 1.4426950408889634",
    "log10": "log(a) * 0.4342944819032518",
    "trunc": "sign(a) * floor(abs(a))",
    "isfinite": "(a - a) == 0",
    "fmax": "where(isnan(a), b, where(isnan(b), a, maximum(a, b)))",
    "fmin": "where(isnan(a), b, where(isnan(b), a, minimum(a, b)))",
    "atan2": "where(isnan(a) | isnan(b), a + b, where(isinf(a) & isinf(b), "
    "where(a < 0, -1, 1) * where(b < 0, 2.356194490192345, 0.7853981633974483), "
    "where(b > 0, atan(a / b), where(b < 0, atan(a / b) + where(a < 0, -3.141592653589793, 3.141592653589793), "
    "where(a > 0, 1.5707963267948966, where(a < 0, -1.5707963267948966, 0))))))",
}
"""Functions that ONNX lacks, over ones that it has."""
WHOLE = {
    "floordiv": "(a - remainder(a, b)) / b",
    "isnan": "a != a",
    "isinf": "a != a",
    "isfinite": "a == a",
    "trunc": "a",
}
"""The same for integers, where that is something else."""
# As in numpy, where 1 // 0.1 is 9 though the quotient rounds to 10. The quotient of what the remainder leaves is whole but for
# its rounding.
_OTHER_SIGN = "(((c < 0) & (b > 0)) | ((c > 0) & (b < 0)))"
_QUOTIENT = f"((a - c) / b - where({_OTHER_SIGN}, 1, 0))"
FRACTIONS = {
    "floordiv": f"where(b == 0, a / b, floor({_QUOTIENT}) + where({_QUOTIENT} - floor({_QUOTIENT}) > 0.5, 1, 0))",
    "remainder": f"where({_OTHER_SIGN}, c + b, c)",
}
"""The same for floats; ``c`` is the remainder with the sign of ``a``."""
LOGICAL = ("both", "either", "differ", "invert")
FLOATS_ONLY = SAME - {"add", "sub", "mul", "div", "neg", "pow", "abs", "sign", "where"} | {"isnan", "isinf"}


def lacking(nodes: Sequence[Node]) -> str:
    """Returns the name of a function in expressions that has no form in ONNX; empty if there is none."""
    stack = list(nodes)
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.args and not (node.op in NAMES or node.op in SAME or node.op in TEXTS or node.op in FRACTIONS):
            if not FUNCTIONS[node.op].expand:
                return node.op
            stack.append(expr.parse(FUNCTIONS[node.op].expand))
        stack.extend(node.args)
    return ""


def translate(g: Graph, node: Node, named: Mapping[str, Value], out: DType) -> Operand:
    """Adds the nodes of an expression.

    16-bit floats are computed in float32 where the expression has inner results, as everywhere else.

    Args:
        g: Where to.
        node: The expression, with attributes in it replaced by numbers.
        named: The values of its variables, of shapes that broadcast by numpy's rule.
        out: The type of the result, which quotients and fractions of integers have too.

    Returns:
        The result in some type, or a number if the expression is one.
    """
    # One function alone runs in the type that it is given; of several, each would round 16 bits once more.
    inner = any(a.args for a in node.args) or node.op in TEXTS or (node.op in FUNCTIONS and FUNCTIONS[node.op].expand)
    values = {n: g.wide(v) for n, v in named.items()} if inner else dict(named)
    return _Translation(g, out.compute, values).value(node)


def log1p(g: Graph, a: Value) -> Value:
    """Returns ``log(1 + a)`` of floats with all digits near 0; ONNX has no operator for it."""
    found = _Translation(g, a.dtype, {}).call("log1p", [a])
    assert isinstance(found, Value)
    return found


class _Translation:
    def __init__(self, g: Graph, out: DType, named: Mapping[str, Operand]) -> None:
        self.g, self.out = g, out
        self.named = named
        # Equal parts of an expression are one node of the model.
        self.memo: dict[Node, Operand] = {}

    def value(self, node: Node) -> Operand:
        found = self.memo.get(node)
        if found is None:
            found = self.memo[node] = self._value(node)
        return found

    def _value(self, node: Node) -> Operand:
        if node.op == "const":
            return node.value if not isinstance(node.value, str) else float(node.value)
        if node.op == "var":
            return self.named[node.value]
        args = [self.value(a) for a in node.args]
        if node.op == "where" and not isinstance(args[0], Value):
            return args[1] if args[0] else args[2]
        return self.call(node.op, args)

    def inside(self, text: str, args: Sequence[Operand]) -> Operand:
        """Returns a text over ``a``, ``b``, ``c``."""
        given = dict(zip("abc", args, strict=False))
        # With a memo of its own: a, b and c mean other values there.
        return _Translation(self.g, self.out, given).value(expr.parse(text))

    def call(self, name: str, args: Sequence[Operand]) -> Operand:
        if not any(isinstance(a, Value) for a in args):
            return _number(name, args)
        whole = all(_whole(a) for a in (args[1:] if name == "where" else args))
        text = TEXTS.get(name) or (FUNCTIONS[name].expand if name not in NAMES and name not in SAME else "")
        if whole and name in WHOLE:
            text = WHOLE[name]
        elif not whole and name in FRACTIONS:
            text = FRACTIONS[name]
            a, b = self.alike(args)
            # ONNX takes floats with `fmod` only, by which the remainder has the sign of the dividend.
            args = a, b, self.g("Mod", a, b, fmod=1)
        if text:
            return self.inside(text, args)
        if name == "remainder":
            a, b = self.alike(args)
            return self.g("Mod", a, b)
        return self.node(name, args)

    def node(self, name: str, args: Sequence[Operand]) -> Value:
        g = self.g
        kind = bool_ if FUNCTIONS[name].kind == "bool" else None
        op = NAMES.get(name) or name.capitalize()
        if name in LOGICAL:
            return g(op, *(self.truth(a) for a in args), dtype=bool_)
        if name == "where":
            a, b = self.alike(args[1:])
            return g("Where", self.truth(args[0]), a, b, dtype=a.dtype)
        if name == "pow" and all(_whole(a) for a in args):
            # Evaluators differ over negative exponents; in float64 all agree, and small powers are whole.
            kept = self.alike(args)
            return g.cast(g("Pow", *(g.cast(v, float64) for v in kept)), kept[0].dtype)
        # Integers divide into fractions; only `//` makes them whole again, of a dividend without remainder.
        typed = self.alike(args, fractions=name in FLOATS_ONLY)
        if typed[0].dtype.name == "bool" and name != "eq":
            typed = [g.cast(v, int64) for v in typed]
        return g(op, *typed, dtype=kind or typed[0].dtype)

    def truth(self, a: Operand) -> Value:
        if isinstance(a, Value):
            return self.g.cast(a, bool_)
        return self.g.const(bool(a))

    def alike(self, args: Sequence[Operand], fractions: bool = False) -> list[Value]:
        """Returns arguments in one type: that of the floats among them; of integers with a fraction, a float type."""
        kinds = [a.dtype for a in args if isinstance(a, Value)]
        floats = [k for k in kinds if k.is_float]
        wanted = max(floats, key=lambda k: k.itemsize) if floats else None
        if wanted is None and (fractions or any(isinstance(a, float) and not _integral(a) for a in args)):
            wanted = self.out if self.out.is_float else float64
        if wanted is None and kinds:
            numbers = [k for k in kinds if k.name != "bool"]
            if numbers:
                wanted = max(numbers, key=lambda k: k.itemsize)
            elif all(isinstance(a, Value | bool) for a in args):
                wanted = bool_
            else:
                wanted = self.out if self.out.name != "bool" else int64
        if wanted is None:
            # Two numbers under a choice.
            wanted = self.out if self.out.name != "bool" or all(isinstance(a, bool) for a in args) else float32
        return [self.g.cast(a, wanted) if isinstance(a, Value) else self.g.const(a, wanted) for a in args]


def _integral(a: float) -> bool:
    return math.isfinite(a) and float(a).is_integer()


def _whole(a: Operand) -> bool:
    return not a.dtype.is_float if isinstance(a, Value) else isinstance(a, int) or _integral(a)


def _number(name: str, args: Sequence[Any]) -> Number:
    """Returns a function of numbers alone."""
    folded = expr.make(name, *(expr.const(a) for a in args))
    if folded.op == "const":
        return folded.value  # type: ignore[no-any-return]
    function = FUNCTIONS[name].numpy
    if function is None:
        return _number_of_text(FUNCTIONS[name].expand, args)
    with np.errstate(all="ignore"):
        return function(*args).item()  # type: ignore[no-any-return]


def _number_of_text(text: str, args: Sequence[Any]) -> Number:
    node = expr.substitute(expr.parse(text), {n: expr.const(a) for n, a in zip("abc", args, strict=False)})
    return (
        node.value
        if node.op == "const"
        else _number(node.op, [_number_of_text(expr.to_text(a), ()) for a in node.args])
    )
