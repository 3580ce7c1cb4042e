"""Ops as lines of numpy in float64: what a generated module is compared with where it runs alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tstatic.fusion.codegen.define import Draw, LoopBody, define, define_channels
from tstatic.fusion.codegen.loops.lines import _bare, number
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
from tstatic.ir.expr import FUNCTIONS, INFIX, Node, count_uses, parse, substitute
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.pointwise import COLUMN
from tstatic.ir.types import DType, Meta, Shape, broadcast_shapes, float64

_PLAIN = {"isnan": "np.isnan", "isinf": "np.isinf", "erf": "erf"}
"""Functions that are not ufuncs here, and what the script calls for them."""
_ALONG = {"rsum": "sum", "rmax": "max", "csum": "sum", "cmean": "mean", "cvar": "var"}
"""Functions of a row or a channel, and numpy's along axes."""
_LOGIC = ("both", "either", "invert", "differ")
# Characters of a text that stays inside of others, as in kernels (`loops/lines.py`).
_LONG = 60
# Up to here float64 holds every whole number, so that such a number may be written as either.
_EXACT_INTEGER = 1 << 53


RUN = (7 + (5 << 32), 3 + (1 << 32))
"""Seed, and run count and place, of a script's random numbers."""

WORDS = '''def words(shape, position, own, flip=0, half=False):
    """The random word of each element, Philox-4x32-10: under the key of seed and place, of the counter (block of four, op, run).

    half: 16 bits of it, of a block of eight and seven rounds.
    """
    m, w = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
    seed, run = own or RNG[0], RNG[1] % 2**32
    k0, k1 = seed % 2**32, (seed // 2**32 ^ RNG[1] // 2**32) % 2**32
    at = np.arange(int(np.prod(shape)), dtype=np.uint64)
    block = at // (8 if half else 4)
    c0, c1 = block % 2**32, block // 2**32
    c2, c3 = np.full_like(at, position), np.full_like(at, run ^ flip)
    for i in range(7 if half else 10):
        p0, p1 = c0 * m[0], c2 * m[1]
        c0, c2 = p1 // 2**32 ^ c1 ^ (k0 + i * w[0]) % 2**32, p0 // 2**32 ^ c3 ^ (k1 + i * w[1]) % 2**32
        c1, c3 = p1 % 2**32, p0 % 2**32
    found = np.choose(((at // 2 if half else at) % 4).astype(int), (c0, c1, c2, c3))
    return (found // 2 ** (at % 2 * 16) % 2**16 if half else found).reshape(shape).astype(np.int64)'''

NORMAL = '''def normal(shape, digits, *given):
    """Normal numbers of pairs of neighbours, by the method of Box and Muller."""
    count = int(np.prod(shape)) + 1
    n = words((count,), *given)
    n = n >> 8 if digits == 24 else n * 2**21 + (words((count,), *given, 2**31) >> 11)
    first, second = (n[lane : count // 2 * 2 : 2] / 2.0**digits for lane in (0, 1))
    length = np.sqrt(-2 * np.log(first + 2.0**-digits))
    pairs = length * np.cos(2 * np.pi * second), length * np.sin(2 * np.pi * second)
    return np.stack(pairs, -1).reshape(-1)[: count - 1].reshape(shape)'''

WITHIN = '''def within(n, factor, low):
    """The normal quantile of each (n + 0.5) * factor + low."""
    from statistics import NormalDist

    p = (n + 0.5) * factor + low
    inner = np.clip(p, 5e-324, 1 - 2.0**-53)
    found = np.vectorize(NormalDist().inv_cdf, otypes=[float])(inner)
    return np.where(p <= 0, -np.inf, np.where(p >= 1, np.inf, found))'''

BELOW_SPAN = '''def below(shape, span, wide, *given):
    """The upper half of each random word, or of two, times the span."""
    n = words(shape, *given).astype(object)
    if wide:
        n = n * 2**32 + words(shape, *given, 2**31).astype(object)
    found = n * (span % 2**64 or 2**64) // 2 ** (64 if wide else 32)
    return ((found + 2**63) % 2**64 - 2**63).astype(np.int64)'''

_WORDS = {Node("var", value=name) for name in (DRAWN, HALF, BELOW, BELOW_64, ELEMENT)}

_UNIT_53_TEXT = "(words({given}) * 2**21 + (words({given}, 2**31) >> 11))"

_NUMBERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    DRAWN: ("(words({given}) - 2**31)", ()),
    HALF: ("words({given}, half=True)", ()),
    UNIT_24: ("(words({given}) >> 8)", ()),
    UNIT_53: (_UNIT_53_TEXT, ()),
    NORMAL_24: ("normal({shape}, 24, {op})", (NORMAL,)),
    NORMAL_53: ("normal({shape}, 53, {op})", (NORMAL,)),
    WITHIN_24: ("within(words({given}), {loaded})", (WITHIN,)),
    WITHIN_53: (f"within({_UNIT_53_TEXT}, {{loaded}})", (WITHIN,)),
    BELOW: ("below({shape}, {loaded}, False, {op})", (BELOW_SPAN,)),
    BELOW_64: ("below({shape}, {loaded}, True, {op})", (BELOW_SPAN,)),
    ELEMENT: ("np.arange(int(np.prod({shape}))).reshape({shape})", ()),
}
"""What expressions read of random numbers -> its text, and the functions that it calls beside :data:`WORDS`."""
_LOADED = {WITHIN_24: 2, WITHIN_53: 2, BELOW: 1, BELOW_64: 1}
"""How many of the numbers that an op loads are part of them."""


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a numpy value of a shape; ``low``: the 16-bit type that holds it in the program."""

    text: str
    shape: Shape
    is_bool: bool = False
    low: DType | None = None


Rule = Callable[["Reference", FrozenOp], None]
"""Writes an op that states no expressions."""


_UNITS = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 1e-6, "float64": 1e-14}
"""By what part of it a value of a type may be off: half a unit in the last place of 16 bits, some units of wider types."""


class NoNameError(Exception):
    """A function that plain numpy text cannot call."""


class Reference:
    """Writes ops one by one, each on values of their own shapes; the names are w1, w2, ...

    Args:
        metas: Metadata of all values.
        names: Values that are given -> what they are called.
        rule: Writes ops that state no expressions.
        written: Values that the kernel writes to memory.
        unrounded: Results of casts that take what was computed, before it is rounded to 16 bits.

    Attributes:
        lines: What was written.
        read: Values that ops read.
        helpers: Functions that the lines call, by name.
        jumps: Whether something was rounded to whole numbers or compared.
    """

    def __init__(
        self,
        metas: Mapping[str, Meta],
        names: Mapping[str, str],
        rule: Rule | None,
        written: Collection[str],
        unrounded: Collection[str] = (),
    ) -> None:
        self.unrounded = unrounded
        self.metas = metas
        self.rule = rule
        self.written = written
        self.read: set[str] = set()
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.jumps = False
        self._given = names
        self._done: dict[str, Value] = {}
        self._count = 0
        self._several = False

    def write(self, ops: Sequence[FrozenOp]) -> None:
        """Writes ops in order.

        Raises:
            NoNameError: One of their functions has no plain form in numpy.
        """
        # All are defined first: whether a 16-bit value is rounded depends on later ops that read it.
        bodies = [(op, define(op, self.metas) or define_channels(op, self.metas)) for op in ops]
        self.read = {v for op in ops for v in op.reads()}
        self._several = self.rule is not None and len(ops) > 1
        for op, body in bodies:
            # A user's op may be called anything, and this line is part of a text that is run.
            self.lines.append(f"# {safe(op.type)}")
            if body is not None:
                _Expressions(self, op, body).write()
                continue
            assert self.rule is not None, f"{op.type} has no form in numpy"
            self.rule(self, op)

    def of(self, value: str) -> Value:
        """Returns a value; zeros for what the kernel does not read, since the results cannot depend on it."""
        found = self._done.get(value)
        if found is None:
            meta = self.metas[value]
            text = self._given.get(value, f"np.zeros({meta.shape!r})")
            found = Value(text, meta.shape, meta.dtype.name == "bool")
        return found

    def name(self, value: Value) -> Value:
        """Gives a text a name of its own."""
        self._count += 1
        self.lines.append(f"w{self._count} = {_bare(value.text)}")
        return replace(value, text=f"w{self._count}")

    def put(self, entry: object, text: str) -> None:
        """Sets an op's output, if the op has it; an array of the output's shape."""
        if isinstance(entry, str):
            meta = self.metas[entry]
            # Behind products errors meet values that cancel: to move the inputs alone does not show what rounding may do.
            if self._several and meta.dtype.name in _UNITS:
                text = f"near({_bare(text)}, {_UNITS[meta.dtype.name]!r})"
            found = self.name(Value(text, meta.shape, meta.dtype.name == "bool"))
            self._done[entry] = replace(found, low=meta.dtype if meta.dtype.is_low else None)


class _Expressions:
    """One op by its expressions."""

    def __init__(self, reference: Reference, op: FrozenOp, body: LoopBody) -> None:
        self.reference = reference
        self.op = op
        self.body = body
        self.environment: dict[str, Value] = {}
        self.known: dict[Node, Value] = {}
        self.uses: Counter[Node] = Counter()

    def write(self) -> None:
        d = self.body
        if d.inner is not None:
            row = (1,) * d.inner + d.full[d.inner :]
            self.environment[COLUMN] = Value(f"np.arange({math.prod(row)}).reshape({row!r})", row)
        if d.draw is not None:
            self._draw(d.draw)
        for name, position in d.inputs.items():
            read, shape = d.entries[position], d.aligned[position]
            assert read is not None
            assert shape is not None
            self.environment[name] = _shaped(self.reference.of(read), shape)
        for position, node in d.nodes.items():
            count_uses(node, self.uses)
            entry = self.op.outputs[position]
            assert isinstance(entry, str)
            meta, target = self.reference.metas[entry], d.targets[position]
            value = self._value(node)
            if value.low is not None and value.low is not meta.dtype and entry not in self.reference.unrounded:
                # As kernels do: a cast from a 16-bit type keeps what was rounded off.
                self.reference.jumps = True
                value = Value(f"rounded({value.text}, torch.{value.low.name})", value.shape)
            if node.op == "const":
                # A number has no shape of its own; what follows sums and reshapes.
                value = Value(f"np.full({d.full!r}, {value.text})", d.full, value.is_bool)
            summed = target != d.full and position not in d.per_row
            if summed:
                axes = tuple(i for i, (n, full) in enumerate(zip(target, d.full, strict=True)) if n != full)
                # Broadcast first: along an axis that the expression lacks, its value counts once for each place.
                text = f"np.sum({_number(_whole(value, d.full)).text}, axis={axes!r}, keepdims=True)"
                value = Value(text, target)
            value = _shaped(_whole(self._stored(value, meta.dtype), target), meta.shape)
            if meta.dtype.is_low and not summed and entry in self.reference.written and entry in self.reference.read:
                # Kernels go on with what they wrote.
                value = replace(value, text=f"rounded({_bare(value.text)}, torch.{meta.dtype.name})")
            self.reference.put(entry, value.text)

    def _draw(self, draw: Draw) -> None:
        """Gives the random numbers that the expressions read a text."""
        read = set[str]().union(*map(expr.variables, self.body.nodes.values()))
        self.reference.helpers["words"] = WORDS
        op = f"{draw.position}, {draw.seed}"
        self.environment |= {name: Value(f"({value!r})", ()) for name, value in draw.loaded}
        for name, (text, helpers) in _NUMBERS.items():
            if name not in read:
                continue
            loaded = ", ".join(repr(value) for _, value in draw.loaded[: _LOADED.get(name, 0)])
            text = text.format(given=f"{draw.shape!r}, {op}", shape=repr(draw.shape), op=op, loaded=loaded)
            self.environment[name] = Value(text, draw.shape)
            for one in helpers:
                self.reference.helpers[one.split("(")[0].removeprefix("def ")] = one

    def _stored(self, value: Value, dtype: DType) -> Value:
        """Returns the value as a type of the program holds it; floats keep all their bits."""
        if dtype.name == "bool":
            return value if value.is_bool else Value(f"({value.text} != 0)", value.shape, True)
        if dtype.is_float:
            return _number(value)
        self.reference.jumps = True
        return Value(f"whole({_bare(value.text)}, np.{dtype.name})", value.shape)

    def _value(self, node: Node) -> Value:
        """Returns the text of an expression."""
        if node.op == "const":
            return Value(_constant(node.value), (), isinstance(node.value, bool))
        if node.op == "var":
            return self.environment[node.value]
        found = self.known.get(node)
        if found is None:
            found = self._apply(node)
            if self.uses[node] > 1 or len(found.text) > _LONG:
                found = self.reference.name(found)
            self.known[node] = found
        return found

    def _apply(self, node: Node) -> Value:
        function = FUNCTIONS[node.op]
        if node.op in _ALONG:
            return self._along(node)
        if function.expand:
            body = substitute(parse(function.expand), dict(zip("abc", node.args, strict=False)))
            count_uses(body, self.uses)
            return self._value(body)
        values = [self._value(a) for a in node.args]
        shape: Shape = ()
        for v in values:
            shape = broadcast_shapes(shape, v.shape)
        # Random words are whole numbers here and there: nothing is rounded before they are compared.
        if function.exact and not any(word in node.args for word in _WORDS):
            self.reference.jumps = True
            # Kernels compute 16-bit values in float32 and round them where a jump would show it.
            values = [v if v.low is None else Value(f"rounded({v.text}, torch.{v.low.name})", v.shape) for v in values]
        if node.op == "where":
            condition, yes, no = values
            both = yes.is_bool and no.is_bool
            yes, no = (yes, no) if both else (_number(yes), _number(no))
            return Value(f"np.where({_truth(condition)}, {_bare(yes.text)}, {_bare(no.text)})", shape, both)
        logic = node.op in _LOGIC
        texts = [_truth(v) if logic else _number(v).text for v in values]
        is_bool = function.kind == "bool"
        if node.op == "neg":
            return Value(f"(-{texts[0]})", shape)
        if node.op == "reciprocal":
            return Value(f"(1 / {texts[0]})", shape)
        # Two literals would be Python's: 1 / 0 raises there, and is infinite in numpy.
        if node.op in INFIX and not all(a.op == "const" for a in node.args):
            return Value(f"({texts[0]} {INFIX[node.op]} {texts[1]})", shape, is_bool)
        name = _PLAIN.get(node.op)
        if name is None:
            if not isinstance(function.numpy, np.ufunc):
                raise NoNameError(node.op)
            name = f"np.{function.numpy.__name__}"
        return Value(f"{name}({', '.join(_bare(t) for t in texts)})", shape, is_bool)

    def _along(self, node: Node) -> Value:
        """Returns a function of each row or channel."""
        d = self.body
        inside = _number(_whole(self._value(node.args[0]), d.full))
        axes = d.along
        shape = tuple(1 if i in axes else n for i, n in enumerate(d.full))
        return Value(f"np.{_ALONG[node.op]}({_bare(inside.text)}, axis={axes!r}, keepdims=True)", shape)


def _shaped(value: Value, shape: Shape) -> Value:
    """Returns the value in a shape of as many elements."""
    return value if value.shape == shape else replace(value, text=f"{value.text}.reshape({shape!r})", shape=shape)


def _whole(value: Value, shape: Shape) -> Value:
    """Returns the value broadcast to a shape."""
    if value.shape == shape:
        return value
    return replace(value, text=f"np.broadcast_to({_bare(value.text)}, {shape!r})", shape=shape)


def _constant(value: bool | int | float) -> str:
    """Returns a literal that numpy takes among 64-bit numbers."""
    if isinstance(value, bool):
        return repr(bool(value))
    # Larger ones are written as floats: numpy refuses Python's integers beyond 64 bits.
    if isinstance(value, int) and abs(value) <= _EXACT_INTEGER:
        return repr(int(value)) if value >= 0 else f"({int(value)!r})"
    return number(float(value), float64)


def _number(value: Value) -> Value:
    """Returns a truth value as 1 or 0."""
    return Value(f"({value.text} * 1.0)", value.shape) if value.is_bool else value


def _truth(value: Value) -> str:
    return value.text if value.is_bool else f"({value.text} != 0)"
