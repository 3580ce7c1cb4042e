"""Expressions as lines of Triton text: typed values, shared sub-expressions by name, low precision rounded where it shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.define import LoopBody
from tstatic.fusion.codegen.loops.loop_nest import DRAW_ROW, CodegenUnsupported, LoopNest
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.codegen.text.docstring import safe
from tstatic.ir import expr
from tstatic.ir.drawn import (
    BELOW,
    BELOW_64,
    DRAWN,
    ELEMENT,
    HALF,
    NORMAL_24,
    NORMAL_53,
    UNIT_24,
    UNIT_53,
    WITHIN_24,
    WITHIN_53,
)
from tstatic.ir.expr import FUNCTIONS, MODULAR, Node, count_uses, parse, substitute
from tstatic.ir.pointwise import ALONG, COLUMN
from tstatic.ir.types import DType, bool_, float32, float64, int32, int64, wrap

TYPES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "i1",
}  # fmt: skip
"""tstatic's name of a type -> Triton's in a signature."""

LANGUAGE = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip

DRAW = {
    DRAWN: ("_drawn", int32), HALF: ("_half", int32), UNIT_24: ("_unit24", float32), UNIT_53: ("_unit53", float64),
    NORMAL_24: ("_normal24", float32), NORMAL_53: ("_normal53", float64), WITHIN_24: ("_within24", float64),
    WITHIN_53: ("_within53", float64), BELOW: ("_below", int64), BELOW_64: ("_below64", int64),
    ELEMENT: ("_element", int64),
}  # fmt: skip
"""Random numbers of expressions -> the function of the prelude that draws them, and their type."""

_INTEGER_TOO = frozenset(
    ["add", "sub", "mul", "neg", "square", "abs", "sign", "maximum", "minimum", "where", "floordiv", "remainder"]
)
"""Functions whose kernel form is right for integers; comparisons and logic are, too."""
_LOGIC = ("both", "either", "invert", "differ")
# Characters of a text that stays inside of others: a longer one gets a line and a name, so that people can read the kernel.
_LONG = 60
_COLUMN = Node("var", value=COLUMN)
# As expressions write it: erf(x) + 1 is one function, since erf rounded to float32 keeps few digits of the sum near -1.
_ONE = Node("const", value=1)


@dataclass(frozen=True, slots=True)
class Typed:
    """The text of a value per element.

    Attributes:
        text: A name, a number or an expression in brackets.
        dtype: The type it is computed in.
        low: The 16-bit type that its exact value would be rounded to, if it was not yet.
    """

    text: str
    dtype: DType
    low: DType | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """A value per row that a line makes from all elements of the row.

    Attributes:
        function: ``rsum`` or ``rmax``.
        text: What is summed, or compared.
        dtype: The type it is computed in.
        peak: Of a sum of ``exp(a - rmax(a))``: the name of ``rmax(a)``.
        under: Of such a sum: the text of ``a``.
        at: Of a sum of ``where(column == at, picked, 0)``: the name of a column's number, one per row.
        picked: Of such a sum: the text of what stands there.
    """

    function: str
    text: str
    dtype: DType
    peak: str = ""
    under: str = ""
    at: str = ""
    picked: str = ""


def nested(head: str, lines: Iterable[str]) -> list[str]:
    """Returns a statement (a loop, a function) and the lines inside it."""
    return [head, *(f"    {line}" for line in lines)]


def number(value: bool | int | float, dtype: DType) -> str:
    """Returns a literal; through ``repr`` of a checked number, never through text from outside."""
    if dtype is bool_:
        return "True" if value else "False"
    if not dtype.is_float:
        return repr(int(value))
    real = float(value)
    if math.isnan(real):
        return 'float("nan")'
    if math.isinf(real):
        return 'float("inf")' if real > 0 else 'float("-inf")'
    # In brackets, so that no operator before it meets its sign; -0.0 is not below 0, but has one.
    return repr(real) if real >= 0 and not (real == 0 and math.copysign(1, real) < 0) else f"({real!r})"


class Writer:
    """Writes expressions as lines of one function.

    Attributes:
        lines: Comments, and ``name = text``.
        used: Functions of the prelude that the lines call.
        reductions: Names that lines make from whole rows.
        rounds_once: Divisions and roots are rounded as numpy rounds them, instead of being approximate in 32 bits; a product and
            a sum are two roundings.
    """

    def __init__(self, rounds_once: bool = False) -> None:
        self.lines: list[str] = []
        self.used: set[str] = set()
        self.reductions: dict[str, Reduction] = {}
        self.rounds_once = rounds_once or strict_numerics()
        self._count = 0

    def add(self, name: str, node: Node, environment: Mapping[str, Typed], op: str) -> Typed:
        """Adds the line ``name = ...`` of an expression over typed names, after those of its shared parts."""
        value = Expression(self, environment, op).value(node)
        if value.text == f"v{self._count}":
            # The last line is this value's, named because it is long.
            self.lines[-1] = self.lines[-1].replace(value.text, name, 1)
        else:
            self.lines.append(f"{name} = {_bare(value.text)}")
        return Typed(name, value.dtype)

    def name(self, value: Typed, low: DType | None = None) -> Typed:
        """Gives a value a name of its own, unless it has one."""
        # A name stays, unless the value is rounded from now on.
        if value.text.isidentifier() and low is value.low:
            return value
        self._count += 1
        name = f"v{self._count}"
        self.lines.append(f"{name} = {_bare(value.text)}")
        return Typed(name, value.dtype, low)

    def rounded(self, value: Typed) -> Typed:
        """Returns the value as its 16-bit type holds it."""
        if value.low is None:
            return value
        function = "round_bf16" if value.low.name == "bfloat16" else "round_fp16"
        self.used.add(function)
        return Typed(f"{function}({_bare(value.text)})", value.dtype)


class Lines(Writer):
    """Writes the lines of a group.

    A 16-bit value that is written and read by later lines is rounded for them, too; any other keeps what is rounded off,
    unless ``FLAGS_numerics`` is ``strict``.

    Attributes:
        done: The program's values -> typed names.
        drawn_at: Texts of the places of the group's random numbers in their streams.
        drawn_runs: Arguments by which halves are drawn for runs of neighbours at a time; empty where they do not lie so.
        casts_round: Whether casts round what they take to its own 16-bit type.
    """

    def __init__(
        self,
        group: LoopNest,
        loaded: Mapping[int, Typed],
        drawn_at: Sequence[str] = (),
        casts_round: bool = True,
        drawn_runs: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.casts_round = casts_round
        self.group = group
        self.drawn_at = drawn_at
        self.drawn_runs = drawn_runs
        self._numbers: dict[str, Typed] = {}
        self.loaded = loaded
        self.done: dict[str, Typed] = {}
        # Sums are left out: their bits in memory come from the launch that adds the strips.
        shown = {o.value for o in group.outputs if o not in group.summed}
        every = {v for op, _ in group.ops for v in op.writes()}
        self._shown = (every if strict_numerics() else shown) & {*group.reads.values()}
        # Names that hold exactly what their 16-bit type holds: rounding them again would do nothing.
        self._exact: dict[str, DType] = {}

    def write(self) -> None:
        """Writes all ops."""
        for index, (op, formula) in enumerate(self.group.ops):
            # A column's number has 32 bits, however large the array.
            environment = {COLUMN: Typed("columns", int32)} if formula.inner is not None else {}
            for name in formula.inputs:
                source = self.group.reads[index, name]
                environment[name] = self.done[source] if isinstance(source, str) else self.loaded[source]
            # Its line in the user's program stands in the module's docstring: Triton's cache takes a comment for code.
            self.lines.append(safe(f"# {op.type}"))
            if index in self.group.drawn:
                environment |= self._drawn(self.group.drawn[index], formula)
            writer = Expression(self, environment, op.type)
            for position, node in formula.nodes.items():
                entry = op.outputs[position]
                assert isinstance(entry, str)
                dtype = self.group.metas[entry].dtype
                value = convert(writer.value(node, dtype.compute), dtype.compute)
                if node.op == "const":
                    # Later lines may hand it to functions that take blocks only.
                    value = Typed(f"tl.full((1,), {value.text}, {LANGUAGE[value.dtype.name]})", value.dtype)
                if value.low is not None and value.low is not dtype and self.casts_round:
                    # A cast from a 16-bit type keeps what was rounded off: a comparison behind it would see the difference.
                    value = self.rounded(value)
                if self._exact.get(value.text) is dtype:
                    self.done[entry] = value  # identity
                    continue
                self.done[entry] = self.name(value, low=dtype if dtype.is_low else None)
                if dtype.is_low and entry in self._shown:
                    # A gradient reads it from memory: statistics must be those of what it reads.
                    self.done[entry] = self.name(self.rounded(self.done[entry]))
                    self._exact[self.done[entry].text] = dtype

    def _drawn(self, drawing: int, formula: LoopBody) -> dict[str, Typed]:
        """Returns the names of the random numbers that a formula reads, after a line that draws each."""
        read = set[str]().union(*(expr.variables(node) for node in formula.nodes.values()))
        found = {}
        row = self.group.draw_row(drawing)
        for name, (function, dtype) in DRAW.items():
            if name in read:
                own = f"{name}_{drawing}"
                if own not in self._numbers:
                    at = self.drawn_at[drawing]
                    if name == HALF and self.drawn_runs:
                        function, at = "_half_runs", self.drawn_runs[drawing]
                    self.lines.append(f"{own} = {function}(rng, draws + {row}, {at})")
                    self.used.add(function)
                    self._numbers[own] = Typed(own, dtype)
                found[name] = self._numbers[own]
        kind = next((one.dtype for one in found.values() if one.dtype.is_float), float64)
        for place, (name, value) in enumerate(self.group.drawings[drawing].loaded, row + DRAW_ROW):
            if name in read:
                own = f"d{place}"
                if own not in self._numbers:
                    text = f"_loaded(draws + {place}, {self.drawn_at[drawing]})"
                    self.used.add("_loaded")
                    if isinstance(value, float):
                        narrow = "" if kind is float64 else f".to({LANGUAGE[kind.name]})"
                        text = f"{text}.to(tl.float64, bitcast=True){narrow}"
                    self.lines.append(f"{own} = {text}")
                    self._numbers[own] = Typed(own, kind if isinstance(value, float) else int64)
                found[name] = self._numbers[own]
        return found


def _bare(text: str) -> str:
    """Returns the text without the outermost brackets, if they belong together."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


def convert(value: Typed, dtype: DType) -> Typed:
    """Returns the value in another type of computation."""
    if value.dtype is dtype:
        return value
    if dtype is bool_:
        return Typed(f"({value.text} != 0)", dtype)
    return Typed(f"{_target(value.text)}.to({LANGUAGE[dtype.name]})", dtype)


def _target(text: str) -> str:
    return text if text.isidentifier() or text.startswith("(") else f"({text})"


class Expression:
    """One op's expressions; equal parts are computed once."""

    def __init__(self, lines: Writer, environment: Mapping[str, Typed], op: str) -> None:
        self.lines = lines
        self.environment = environment
        self.op = op
        # By expression, and for a choice between numbers by the type that its reader wants.
        self.known: dict[tuple[Node, str], Typed] = {}
        self.uses: Counter[Node] = Counter()
        # Numbers are weak, as in numpy: they take the type of the op's operands, floats before integers.
        floats = [v.dtype for v in environment.values() if v.dtype.is_float]
        self.float = floats[0] if floats else float32
        others = [v.dtype for v in environment.values() if v.dtype.is_integer]
        self.default = self.float if floats else (others[0] if others else bool_)

    def value(self, node: Node, like: DType | None = None) -> Typed:
        count_uses(node, self.uses)
        return self._value(node, like)

    def _value(self, node: Node, like: DType | None = None) -> Typed:
        if node.op == "const":
            return self._constant(node.value, like)
        if node.op == "var":
            return self.environment[node.value]
        # Only a choice hands the wanted type on to the numbers inside it.
        key = node, like.name if like is not None and node.op == "where" else ""
        found = self.known.get(key)
        if found is None:
            found = self._along(node) if node.op in ALONG else self._apply(node, like)
            # A reciprocal with one value per row has a line of its own, before the loop over the row.
            if self.uses[node] > 1 or len(found.text) > _LONG or node.op == "reciprocal":
                found = self.lines.name(found)
            self.known[key] = found
        return found

    def _along(self, node: Node) -> Typed:
        """Returns a function of a row, always with a name of its own."""
        argument = convert(self._value(node.args[0]), self.float)
        found = self.lines.name(self._call(node.op, (argument,), self.float))
        peak = under = ""
        inner = node.args[0]
        # The form of softmax: rows longer than a program make the sum and its maximum in one pass (``row_blocks``).
        if node.op == "rsum" and inner.op == "exp" and inner.args[0].op == "sub":
            above, top = inner.args[0].args
            if top == Node("rmax", (above,)):
                peak, under = self._value(top).text, convert(self._value(above), self.float).text
        at = picked = ""
        # The form of a look-up by class number: one load per row, instead of a pass.
        if node.op == "rsum" and inner.op == "where" and inner.args[2] == expr.ZERO:
            place = self._place(inner.args[0])
            if place is not None:
                at, picked = place.text, convert(self._value(inner.args[1]), self.float).text
        self.lines.reductions[found.text] = Reduction(node.op, argument.text, self.float, peak, under, at, picked)
        return found

    def _place(self, node: Node) -> Typed | None:
        """Returns the column that a comparison of columns looks for, in 32 bits."""
        if node.op != "eq" or _COLUMN not in node.args:
            return None
        wanted = self._value(node.args[node.args[0] == _COLUMN])
        if not wanted.dtype.is_integer or not wanted.text.isidentifier():
            return None
        # Columns have 32 bits: a comparison with 64 would widen the whole block, and take twice the registers.
        if wanted.dtype.itemsize > 4:
            key = node, "place"
            if key not in self.known:
                self.lines.used.add("_place")
                self.known[key] = self.lines.name(Typed(f"_place({wanted.text})", int32))
            wanted = self.known[key]
        return wanted

    def _constant(self, value: bool | int | float, like: DType | None, modular: bool = False) -> Typed:
        dtype = like if like is not None else self.default
        # 1.5 beside integers makes a float; 2.0 does not, as both types hold it.
        if isinstance(value, float) and not dtype.is_float and not (dtype.is_integer and value.is_integer()):
            dtype = self.float
        return Typed(number(wrap(int(value), dtype) if modular and dtype.is_integer else value, dtype), dtype)

    def _apply(self, node: Node, like: DType | None) -> Typed:
        function = FUNCTIONS[node.op]
        place = self._place(node)
        if place is not None:
            return Typed(f"(columns == {place.text})", bool_)
        if not function.triton:
            if not function.expand:
                raise CodegenUnsupported("NO_KERNEL_FORM", f"{self.op} uses {node.op}, which has no form in kernels")
            # The arguments are shared: what an expansion uses twice is counted as used twice, and gets a name.
            body = substitute(parse(function.expand), dict(zip("abc", node.args, strict=False)))
            count_uses(body, self.uses)
            return self._value(body, like)
        if node.op == "where":
            condition = convert(self._value(node.args[0]), bool_)
            yes, no = self._alike(node.args[1:], like)
            return self._call(node.op, (condition, yes, no), yes.dtype)
        if node.op == "add" and _ONE in node.args and not self.lines.rounds_once:
            over = node.args[node.args[0] == _ONE]
            argument = self._value(over.args[0]) if over.op == "erf" else None
            if argument is not None and argument.dtype is float32:
                self.lines.used.add("_erf_plus_one")
                return Typed(f"_erf_plus_one({_bare(argument.text)})", float32)
        logical = node.op in _LOGIC
        operands = self._alike(node.args, bool_ if logical else None, logical, node.op in MODULAR)
        dtype = operands[0].dtype
        # A comparison, or a step such as floor, would show the bits that a 16-bit type does not hold.
        if function.exact:
            operands = tuple(self.lines.rounded(o) for o in operands)
        # True division gives floats, as in numpy.
        if dtype.is_integer and node.op not in _INTEGER_TOO and function.kind != "bool":
            if node.op != "div":
                raise CodegenUnsupported("NO_KERNEL_FORM", f"{self.op} uses {node.op} on integers")
            dtype = self.float
            operands = tuple(convert(o, dtype) for o in operands)
        if dtype.is_float and node.op in ("floordiv", "remainder"):
            raise CodegenUnsupported(
                "NO_KERNEL_FORM", f"{self.op} uses {node.op} on floats, whose last bits numpy defines"
            )
        return self._call(node.op, operands, bool_ if function.kind == "bool" else dtype)

    def _call(self, name: str, operands: tuple[Typed, ...], dtype: DType) -> Typed:
        function = FUNCTIONS[name]
        # In 64 bits Triton's own division and root round once already.
        apart = dtype is float32 or not function.rounded.startswith("tl.")
        text = function.triton
        if self.lines.rounds_once:
            text = function.rounded if apart and function.rounded else text
        elif dtype is float32:
            text = function.fast or text
        self.lines.used.update(word for word in _words(text) if word.startswith("_"))
        texts = dict(zip("abc", (o.text for o in operands), strict=False))
        filled = text.format(**texts)
        # A call is a term by itself; anything else gets brackets.
        simple = text.startswith(("tl.", "_")) and filled.endswith(")") and "==" not in text and "<" not in text
        return Typed(filled if simple else f"({filled})", dtype)

    def _alike(
        self, args: tuple[Node, ...], like: DType | None = None, logical: bool = False, modular: bool = False
    ) -> tuple[Typed, ...]:
        """Returns arguments of one type; numbers take that of the others, truth values count as 1 and 0."""
        strong = {i: self._value(a, like) for i, a in enumerate(args) if a.op != "const"}
        if logical:
            return tuple(
                convert(strong[i] if i in strong else self._constant(a.value, bool_), bool_) for i, a in enumerate(args)
            )
        types = [v.dtype for v in strong.values() if v.dtype is not bool_]
        if types:
            dtype = types[0]
        # Truth values alone: they count as numbers of the op's own type; a single one stays a truth value.
        elif strong and like is None:
            dtype = self.float if any(a.op == "const" for a in args) or len(strong) > 1 else bool_
            if self.default is not self.float and self.default is not bool_:
                dtype = self.default
        else:
            dtype = like if like is not None else self.default
        done = []
        for i, a in enumerate(args):
            value = strong[i] if i in strong else self._constant(a.value, dtype, modular)
            if value.dtype is bool_ and dtype is not bool_ and i in strong:
                value = convert(value, dtype)
            done.append(value)
        # Floats before integers, then the wider type.
        if len({v.dtype for v in done}) > 1:
            wide = max((v.dtype for v in done), key=lambda d: (d.is_float, d.itemsize))
            done = [convert(v, wide) for v in done]
        return tuple(done)


def _words(text: str) -> list[str]:
    return [w for w in "".join(c if c.isalnum() or c == "_" else " " for c in text).split() if w]
