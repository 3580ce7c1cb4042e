"""Pointwise expressions: one text that runs on numpy and torch, can be differentiated, and that kernels inline.

The language is Python's expression syntax over the slots' lower-case names (``x``, ``out``, ``dout``), attribute names,
numbers, ``+ - * /``, comparisons, ``& | ~`` on truth values and the functions of :data:`FUNCTIONS`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from tstatic.locks import parse_expression

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an expression tree.

    ``op`` is ``"var"`` (``value``: its name), ``"const"`` (``value``: a number) or a function's name.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None

    def __repr__(self) -> str:
        return to_text(self)


ResultKind = Literal["float", "bool"]
"""``float``: of the arguments' type. ``bool``: a truth value."""

Numbers = Literal["any", "second", "swapped", "none"]
"""Which arguments of a function of torch may be numbers: ``any`` of them; the ``second``; one of the two, ``swapped`` if it is the
first, because their order does not matter; or ``none``."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    Attributes:
        numpy: A ufunc, or a function ``(*arguments, out)``; ``None`` when ``expand`` is given.
        torch: ``(torch, *arguments) -> tensor``.
        grads: One text per argument: the derivative over the arguments ``a, b, c`` and the result ``r``.
        expand: A text over ``a, b, c`` that numpy runs instead.
        kind: Type of the result.
        triton: A text over ``{a}, {b}, {c}`` for generated kernels; empty where they use ``expand``, or have no form. Names
            that begin with ``_`` are functions of ``fusion/codegen/text/prelude.py``.
        rounded: The same, rounded once, where ``triton`` is approximate in 32 bits; no form in 64 bits.
        fast: The same of 32 bits in fewer instructions and other last bits, where strict numerics does not ask for those.
        direct: torch's function of the same arguments, if it is one call that takes ``out``.
        whole: Whether integers have integers as the result.
        numbers: Which arguments of ``direct`` may be numbers.
        exact: Jumps where its arguments are rounded otherwise: kernels round low precision before it.
    """

    numpy: Callable[..., Any] | None
    torch: Callable[..., Any]
    grads: tuple[str, ...]
    expand: str = ""
    kind: ResultKind = "float"
    triton: str = ""
    exact: bool = False
    rounded: str = ""
    direct: str = ""
    whole: bool = False
    numbers: Numbers = "any"
    fast: str = ""


FUNCTIONS: dict[str, Function] = {}


def define(
    name: str,
    numpy: Callable[..., Any] | None,
    torch: Callable[..., Any] | None = None,
    *grads: str,
    expand: str = "",
    kind: ResultKind = "float",
    triton: str = "",
    exact: bool = False,
    rounded: str = "",
    direct: str = "",
    whole: bool = False,
    numbers: Numbers = "any",
    fast: str = "",
) -> None:
    """Adds a function to the language; ``torch`` defaults to torch's function of the same name."""
    lowered = torch if torch is not None else (lambda t, *args: getattr(t, name)(*args))
    derivatives = grads or ("0", "0", "0")
    direct = direct or (name if torch is None and not name.startswith("is") else "")
    # A truth value jumps where rounding moves its arguments past each other.
    exact = exact or kind == "bool"
    FUNCTIONS[name] = Function(
        numpy, lowered, derivatives, expand, kind, triton, exact, rounded, direct, whole, numbers, fast
    )


define("add", np.add, lambda t, a, b: a + b, "1", "1", triton="{a} + {b}", direct="add", numbers="swapped", whole=True)
define(
    "sub", np.subtract, lambda t, a, b: a - b, "1", "-1", triton="{a} - {b}", direct="sub", numbers="second", whole=True
)
define(
    "mul", np.multiply, lambda t, a, b: a * b, "b", "a", triton="{a} * {b}", direct="mul", numbers="swapped", whole=True
)
define("div", np.true_divide, lambda t, a, b: a / b, "1 / b", "-r / b", triton="{a} / {b}",
       rounded="tl.div_rn({a}, {b})", direct="div", numbers="second")  # fmt: skip
define("neg", np.negative, lambda t, a: -a, "-1", triton="_neg({a})", direct="neg", whole=True)
define("floordiv", np.floor_divide, lambda t, a, b: t.floor_divide(a, b), triton="_floor_div({a}, {b})",
       exact=True, direct="floor_divide", whole=True)  # fmt: skip
define(
    "remainder",
    np.remainder,
    lambda t, a, b: t.remainder(a, b),
    "1",
    "-floor(a / b)",
    triton="_floor_mod({a}, {b})",
    exact=True,
    direct="remainder",
    whole=True,
)
# At 0 the logarithm is infinite, and 0 times it NaN: by the exponent the derivative is 0 there.
define(
    "pow",
    np.power,
    lambda t, a, b: t.pow(a, b),
    "b * pow(a, b - 1)",
    "where(a == 0, 0, r * log(a))",
    direct="pow",
    whole=True,
)
define("square", np.square, None, "2 * a", triton="{a} * {a}", whole=True)
define("exp", np.exp, None, "r", triton="tl.exp({a})")
define("expm1", np.expm1, None, "r + 1", triton="_expm1({a})")
define("log", np.log, None, "1 / a", triton="tl.log({a})")
# Divided by ln 2 and ln 10.
define("log2", np.log2, None, "1 / (a * 0.6931471805599453)", triton="tl.log2({a})")
define("log10", np.log10, None, "1 / (a * 2.302585092994046)")
define("log1p", np.log1p, None, "1 / (1 + a)", triton="_log1p({a})")
define("sqrt", np.sqrt, None, "0.5 / r", triton="tl.sqrt({a})", rounded="tl.sqrt_rn({a})")
define("rsqrt", None, None, "-0.5 * r / a", expand="1 / sqrt(a)", triton="1 / tl.sqrt({a})",
       rounded="tl.div_rn(1.0, tl.sqrt_rn({a}))")  # fmt: skip
# In kernels one operation with one rounding, whatever the compiler does with other products and sums.
define("fma", None, lambda t, a, b, c: a * b + c, "b", "a", "1", expand="a * b + c", triton="tl.fma({a}, {b}, {c})",
       rounded="{a} * {b} + {c}")  # fmt: skip
define("reciprocal", np.reciprocal, None, "-r * r", triton="1 / {a}", rounded="tl.div_rn(1.0, {a})")
define("sin", np.sin, None, "cos(a)", triton="tl.sin({a})")
define("cos", np.cos, None, "-sin(a)", triton="tl.cos({a})")
# Triton's language has neither tan nor the inverse and hyperbolic functions: but for tanh they have no form in kernels.
define("tan", np.tan, None, "1 + r * r")
define("asin", np.arcsin, None, "1 / sqrt(1 - a * a)")
define("acos", np.arccos, None, "-1 / sqrt(1 - a * a)")
define("atan", np.arctan, None, "1 / (1 + a * a)")
define("sinh", np.sinh, None, "cosh(a)")
define("cosh", np.cosh, None, "sinh(a)")
define("tanh", np.tanh, None, "1 - r * r", triton="_tanh({a})", fast="_tanh32({a})")
define("asinh", np.arcsinh, None, "1 / sqrt(a * a + 1)")
define("acosh", np.arccosh, None, "1 / sqrt(a * a - 1)")
define("atanh", np.arctanh, None, "1 / (1 - a * a)")
# Below -88, exp(-a) overflows to infinity in float32, and the quotient is 0, as it has to be.
define("sigmoid", None, None, "r * (1 - r)", expand="1 / (1 + exp(-a))", triton="1 / (1 + tl.exp(-{a}))")
define("abs", np.absolute, None, "sign(a)", triton="tl.abs({a})", whole=True)
# torch's sign of NaN is 0.
define("sign", np.sign, lambda t, a: t.where(a == a, t.sign(a), a), triton="_sign({a})", exact=True, whole=True)
define("floor", np.floor, triton="tl.floor({a})", exact=True)
define("ceil", np.ceil, triton="tl.ceil({a})", exact=True)
define("trunc", np.trunc, triton="_trunc({a})", exact=True)
# Half away from zero, as Paddle rounds; adding 0.5 first would be wrong just below a half.
define(
    "round",
    None,
    lambda t, a: t.where((a - t.trunc(a)).abs() >= 0.5, t.trunc(a) + t.sign(a), t.trunc(a)),
    expand="where(abs(a - trunc(a)) >= 0.5, trunc(a) + sign(a), trunc(a))",
    exact=True,
)
# Of equal arguments the first gets the whole gradient, here and in `minimum`.
define(
    "maximum",
    np.maximum,
    lambda t, a, b: _pair(t, "maximum", a, b),
    "a >= b",
    "a < b",
    triton="_maximum({a}, {b})",
    direct="maximum",
    numbers="none",
    whole=True,
)
define(
    "minimum",
    np.minimum,
    lambda t, a, b: _pair(t, "minimum", a, b),
    "a <= b",
    "a > b",
    triton="_minimum({a}, {b})",
    direct="minimum",
    numbers="none",
    whole=True,
)
define(
    "where",
    None,
    lambda t, c, a, b: _torch_where(t, c, a, b),
    "0",
    "where(a, 1, 0)",
    "where(a, 0, 1)",
    triton="tl.where({a}, {b}, {c})",
    direct="where",
    numbers="none",
    whole=True,
)


def _ordered(name: str) -> Callable[[Any, Any, Any], Any]:
    """Returns a comparison in torch; complex numbers are ordered by their real parts, then by the others, as in numpy."""
    compare, strict = getattr(operator, name), getattr(operator, name[0] + "t")

    def compared(t: Any, a: Any, b: Any) -> Any:
        if not any(t.is_tensor(one) and one.is_complex() for one in (a, b)):
            return compare(a, b)
        # Numbers of Python have both parts, whatever they are; tensors only if they are complex.
        whole = [t.is_tensor(one) and not one.is_complex() for one in (a, b)]
        (x, p), (y, q) = ((v, 0) if real else (v.real, v.imag) for v, real in zip((a, b), whole, strict=True))
        return strict(x, y) | ((x == y) & compare(p, q))

    return compared


define("lt", np.less, _ordered("lt"), kind="bool", triton="{a} < {b}", direct="lt", numbers="second")
define("le", np.less_equal, _ordered("le"), kind="bool", triton="{a} <= {b}", direct="le", numbers="second")
define("gt", np.greater, _ordered("gt"), kind="bool", triton="{a} > {b}", direct="gt", numbers="second")
define("ge", np.greater_equal, _ordered("ge"), kind="bool", triton="{a} >= {b}", direct="ge", numbers="second")
define("eq", np.equal, lambda t, a, b: a == b, kind="bool", triton="{a} == {b}", direct="eq", numbers="second")
define("ne", np.not_equal, lambda t, a, b: a != b, kind="bool", triton="{a} != {b}", direct="ne", numbers="second")
define(
    "both",
    np.logical_and,
    lambda t, a, b: t.logical_and(a, b),
    kind="bool",
    triton="{a} & {b}",
    direct="logical_and",
    numbers="none",
)
define(
    "either",
    np.logical_or,
    lambda t, a, b: t.logical_or(a, b),
    kind="bool",
    triton="{a} | {b}",
    direct="logical_or",
    numbers="none",
)
define(
    "differ",
    np.logical_xor,
    lambda t, a, b: t.logical_xor(a, b),
    kind="bool",
    triton="{a} ^ {b}",
    direct="logical_xor",
    numbers="none",
)
define("invert", np.logical_not, lambda t, a: t.logical_not(a), kind="bool", triton="~{a}", direct="logical_not")
define("isnan", np.isnan, None, kind="bool")
define("isinf", np.isinf, None, kind="bool", triton='tl.abs({a}) == float("inf")')
define("isfinite", np.isfinite, None, kind="bool", triton='tl.abs({a}) < float("inf")')


def _pair(t: Any, name: str, a: Any, b: Any) -> Any:
    # torch's `maximum` takes tensors only.
    like = a if hasattr(a, "dtype") else b
    return getattr(t, name)(*(v if hasattr(v, "dtype") else t.as_tensor(v, dtype=like.dtype) for v in (a, b)))


def _torch_where(t: Any, c: Any, a: Any, b: Any) -> Any:
    if picks_or_zero(a, b):
        kind = integers_of_size(t, a)
        return (a.view(kind) * c).view(a.dtype)
    if not hasattr(a, "dtype") and not hasattr(b, "dtype"):
        a = t.as_tensor(a, dtype=t.get_default_dtype())
    return t.where(c, a, b)


def picks_or_zero(a: Any, b: Any) -> bool:
    """Whether a choice is one between a value and 0 in the host's memory, where torch's own takes ten times a product's time."""
    # -0.0 has a bit set, which a product with 0 does not.
    zero = isinstance(b, int | float) and b == 0 and math.copysign(1, b) > 0
    if not zero or not hasattr(a, "dtype") or a.requires_grad:
        return False
    return bool(a.device.type == "cpu" and a.is_floating_point() and a.dim() > 0)


def integers_of_size(t: Any, a: Any) -> Any:
    """Returns the integer type of a float type's size: as integers, values times 1 or 0 keep their bits, or are 0."""
    return {2: t.int16, 4: t.int32, 8: t.int64}[a.itemsize]


# ---------------------------------------------------------------------------------------------------------------- parse
MODULAR = ("add", "sub", "mul")
"""Functions of integers for which a number may be replaced by an equal one modulo the size of the type."""

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
           ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "both", ast.BitOr: "either", ast.BitXor: "differ"}  # fmt: skip
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


@cache
def parse(text: str) -> Node:
    """Reads an expression."""
    return _convert(parse_expression(text).body)


def _convert(tree: ast.expr) -> Node:
    match tree:
        case ast.Constant(value=value):
            return Node("const", value=value)
        case ast.Name(id=name):
            return Node("var", value=name)
        case ast.BinOp(left=left, op=op, right=right):
            return make(_BINARY[type(op)], _convert(left), _convert(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return make("neg", _convert(operand))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return make("invert", _convert(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return make(_COMPARE[type(op)], _convert(left), _convert(right))
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return make(name, *(_convert(a) for a in args))
    raise AssertionError(f"not part of the expression language: {ast.unparse(tree)}")


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
         "ne": "!="}  # fmt: skip
"""Functions that are operators in Python and numpy alike."""
_INFIX = {**INFIX, "both": "&", "either": "|"}


def to_text(node: Node) -> str:
    """Writes an expression so that :func:`parse` gives it back."""
    if node.op == "var":
        return str(node.value)
    if node.op == "const":
        return repr(node.value) if not (isinstance(node.value, float) and node.value < 0) else f"({node.value!r})"
    args = [to_text(a) for a in node.args]
    if node.op in _INFIX:
        return f"({args[0]} {_INFIX[node.op]} {args[1]})"
    if node.op == "neg":
        return f"(-{args[0]})"
    return f"{node.op}({', '.join(args)})"


# ------------------------------------------------------------------------------------------------- build and simplify
def const(value: Number | str) -> Node:
    """Makes a constant: a number, or the text of an attribute."""
    return Node("const", value=value)


# Nodes compare by value and cannot change, so that all derivatives share these.
ZERO, ONE = const(0), const(1)


def _is(node: Node, value: Number) -> bool:
    # True equals 1 in Python, and is a truth value here.
    return node.op == "const" and not isinstance(node.value, bool) and node.value == value


_FOLDED: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "pow": operator.pow, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq,
    "ne": operator.ne, "both": lambda a, b: bool(a and b), "either": lambda a, b: bool(a or b),
}  # fmt: skip


def _is_real(op: str, *values: Any) -> bool:
    """Returns whether Python gives the number that numpy gives; elsewhere it raises, or a root of -1 is complex."""
    if op == "div":
        return bool(values[1] != 0)
    if op != "pow":
        return True
    base, exponent = values
    try:
        return isinstance(base**exponent, int | float)
    except (ZeroDivisionError, OverflowError):
        return False


def make(op: str, *args: Node) -> Node:
    """Builds a node and folds what has one result whatever the variables hold (``0 + a``, ``1 * a``, constants).

    ``0 * a`` stays: it is NaN where ``a`` is NaN or infinite.
    """
    if op in _FOLDED and all(a.op == "const" for a in args) and _is_real(op, *(a.value for a in args)):
        return const(_FOLDED[op](*(a.value for a in args)))
    # Signed zeros aside: 0 + -0.0 is 0.0, and what is folded stays -0.0. Factors of 1 and a subtracted 0 keep every value.
    if op == "add":
        if _is(args[0], 0):
            return args[1]
        if _is(args[1], 0):
            return args[0]
    elif op == "sub" and _is(args[1], 0):
        return args[0]
    elif op == "mul":
        if _is(args[0], 1):
            return args[1]
        if _is(args[1], 1):
            return args[0]
    elif op == "div":
        if _is(args[1], 1):
            return args[0]
    elif op == "pow":
        if _is(args[1], 1):
            return args[0]
        # A square is one product, rounded once; a power is a call of the mathematical library.
        if _is(args[1], 2):
            return Node("square", (args[0],))
    elif op == "where":
        if args[0].op == "const":
            return args[1] if args[0].value else args[2]
        if args[1] == args[2]:
            return args[1]
    return Node(op, args)


def make_term(op: str, *args: Node) -> Node:
    """Builds a node of a derivative: there a factor 0 says that a term is missing, and the product is 0."""
    if op in ("mul", "div") and (_is(args[0], 0) or (op == "mul" and _is(args[1], 0))):
        return ZERO
    return make(op, *args)


def substitute(node: Node, names: Mapping[str, Node], build: Callable[..., Node] = make) -> Node:
    """Replaces variables by expressions; ``build`` makes the new nodes."""
    if node.op == "var":
        return names.get(node.value, node)
    if not node.args:
        return node
    # Built anew, so that attributes that became numbers fold choices and products away.
    return build(node.op, *(substitute(a, names, build) for a in node.args))


def without(node: Node, names: Iterable[str]) -> Node:
    """Removes what some variables contribute: gradients that did not arrive count as 0."""
    return substitute(node, dict.fromkeys(names, ZERO), make_term)


def variables(node: Node) -> set[str]:
    """Returns the names of the variables in an expression."""
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op == "var":
            found.add(current.value)
        stack.extend(current.args)
    return found


def count_uses(node: Node, uses: Counter[Node]) -> None:
    """Counts how often each part of an expression is used; what is inside equal parts counts once."""
    stack = [node]
    while stack:
        current = stack.pop()
        uses[current] += 1
        if uses[current] == 1:
            stack.extend(current.args)


def calls(node: Node, functions: Sequence[str]) -> bool:
    """Returns whether an expression calls one of some functions."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op in functions:
            return True
        stack.extend(current.args)
    return False


def diff(node: Node, name: str) -> Node:
    """Differentiates an expression by one variable (chain rule over the functions' derivative texts)."""
    if node.op == "var":
        return ONE if node.value == name else ZERO
    # Parts without the variable are not walked through: their derivatives would add up to 0.
    if node.op == "const" or name not in variables(node):
        return ZERO
    function = FUNCTIONS[node.op]
    total = ZERO
    # Derivatives may use the result itself: exp and sqrt need no second evaluation, and equal parts are computed once.
    bound = dict(zip("abc", node.args, strict=False)) | {"r": node}
    for arg, text in zip(node.args, function.grads, strict=False):
        inner = diff(arg, name)
        if _is(inner, 0):
            continue
        outer = substitute(parse(text), bound, make_term)
        if FUNCTIONS.get(outer.op, function).kind == "bool" and outer.op in FUNCTIONS:
            # A truth value as derivative means 1 or 0; written as a selection it never multiplies 0 with an infinity.
            total = make("add", total, make("where", outer, inner, ZERO))
        else:
            total = make("add", total, make_term("mul", inner, outer))
    return total
