"""The parts of an attention: which ops it has, its sizes, and ops per element on blocks of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tstatic.fusion.codegen.loops.lines import Typed, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand, build
from tstatic.fusion.codegen.matrix.layouts import Layout, numpy_moves
from tstatic.fusion.codegen.text.emit import coordinates, loaded
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.fusion.codegen.text.script import Fitting
from tstatic.fusion.codegen.text.size_names import SizeNames, product_of
from tstatic.ir import expr
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.types import DType, Meta, Shape, float32

_EXACT = [name for name, function in expr.FUNCTIONS.items() if function.exact]
"""Functions that jump where their arguments are rounded otherwise."""

CAUSAL_MASK = OpDef("causal_mask", "X -> Out", attrs={"diagonal": 0})
"""Among the ops of an attention: minus infinity above a diagonal."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The ops of an attention, by their roles.

    Attributes:
        product: Makes raw scores of queries and keys.
        behind_scores: Ops per element that make scores of them.
        softmax: Makes weights of the scores.
        behind_weights: Ops per element behind the softmax.
    """

    product: FrozenOp
    behind_scores: tuple[FrozenOp, ...]
    softmax: FrozenOp
    behind_weights: tuple[FrozenOp, ...]

    @property
    def raw(self) -> str:
        return one(self.product.output("Out"))

    @property
    def scores(self) -> str:
        return next(iter(self.behind_scores[-1].writes())) if self.behind_scores else self.raw

    @property
    def weights(self) -> str:
        return one(self.softmax.output("Out"))

    @property
    def used(self) -> str:
        """The weights that the last product takes."""
        return next(iter(self.behind_weights[-1].writes())) if self.behind_weights else self.weights

    @property
    def ops(self) -> tuple[FrozenOp, ...]:
        return (self.product, *self.behind_scores, self.softmax, *self.behind_weights)

    @property
    def factor(self) -> float | None:
        """What the product is multiplied by to be the scores, a causal mask aside, if that is all and it is positive."""
        factor = 1.0
        for op in self.unmasked.behind_scores:
            if op.type != "scale" or len([e for e in op.inputs if e]) > 1 or op.attrs["bias"]:
                return None
            factor *= op.attrs["scale"]
        # A negative factor would make the smallest raw score the largest.
        return factor if 0 < factor < math.inf else None

    @property
    def diagonal(self) -> int | None:
        """The last key that the first query sees, where each query sees one more; ``None`` where masks are in memory."""
        return next((op.attrs["diagonal"] for op in self.behind_scores if op.definition is CAUSAL_MASK), None)

    @property
    def unmasked(self) -> Attention:
        """The same without the causal mask."""
        kept: list[FrozenOp] = []
        renamed: dict[str, str] = {}
        for op in self.behind_scores:
            op = op.with_inputs(renamed)
            if op.definition is CAUSAL_MASK:
                renamed[one(op.output("Out"))] = one(op.input("X"))
            else:
                kept.append(op)
        return replace(self, behind_scores=tuple(kept))


@dataclass(frozen=True, slots=True)
class Gradient:
    """The ops of the gradient of an attention, from the last product's back to the first one's."""

    mixed: FrozenOp
    weights: tuple[FrozenOp, ...]
    softmax: FrozenOp
    scores: tuple[FrozenOp, ...]
    product: FrozenOp

    @property
    def ops(self) -> tuple[FrozenOp, ...]:
        return (self.mixed, *self.weights, self.softmax, *self.scores, self.product)


def one(entry: Entry) -> str:
    """Returns the value of a slot that must hold one."""
    assert isinstance(entry, str), "a slot that must hold one value"
    return entry


@dataclass(frozen=True, slots=True)
class Sizes:
    """Queries ``[*batch, rows, depth]``, keys ``[*keys, columns, depth]``, values ``[*keys, columns, width]``.

    A size of 1 among ``keys`` where ``batch`` has another one: several heads share keys and values.
    """

    batch: Shape
    keys: Shape
    rows: int
    columns: int
    depth: int
    width: int

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def key_batches(self) -> int:
        return math.prod(self.keys)

    def named(self, sizes: SizeNames) -> SizeTexts:
        """Returns the names of the sizes in the text of a kernel."""
        return SizeTexts(
            sizes("QUERIES", self.rows, "queries of a batch: rows of scores"),
            sizes("KEYS", self.columns, "keys and values of a batch: columns of scores"),
            sizes("KEY_SIZE", self.depth, "elements of a query or key"),
            sizes("VALUE_SIZE", self.width, "elements of a row of values"),
        )

    def key_batch(self, sizes: SizeNames) -> str:
        """Returns the text of the batch of keys of a batch of queries."""
        if self.keys == self.batch:
            return "batch"
        dims = tuple(n == m for n, m in zip(self.keys, self.batch, strict=True))
        return (
            f"({coordinates(self.batch, Operand('', '', float32, dims), 'batch', sizes)})" if any(dims) else "0 * batch"
        )

    def batch_of_head(self, sizes: SizeNames) -> str:
        """Returns the text of the batch of queries of a batch of keys and the number of a head that shares them."""
        terms: list[str] = []
        # Names of the inner axes: of all, of those that keys have, and of those that they lack.
        all_inner, own, other = list[str](), list[str](), list[str]()
        for axis, (size, kept) in reversed([*enumerate(zip(self.batch, self.keys, strict=True))]):
            if size > 1:
                name = sizes(f"AXIS_{axis}", size, f"size of axis {axis} of what the operands share")
                which, below = ("keys", own) if kept == size else ("head", other)
                terms.append(f"{which} // {product_of(below)} % {name} * {product_of(all_inner)}")
                below.insert(0, name)
                all_inner.insert(0, name)
        return " + ".join(reversed(terms))


class SizeTexts(NamedTuple):
    """Names of :class:`Sizes` in the text of a kernel."""

    rows: str
    columns: str
    depth: str
    width: str


def sizes_of(product: FrozenOp, mixed: FrozenOp, metas: Mapping[str, Meta]) -> Sizes:
    """Returns the sizes of an attention by its two products.

    Raises:
        CodegenUnsupported: If the operands do not lie as this kernel reads them.
    """
    q, k, v = (metas[one(e)].shape for e in (product.input("X"), product.input("Y"), mixed.input("Y")))
    if product.attrs["trans_x"] or not product.attrs["trans_y"] or mixed.attrs["trans_x"] or mixed.attrs["trans_y"]:
        raise CodegenUnsupported("ATTRIBUTE", "the products of an attention are q @ k' and weights @ v", product)
    # Sizes below are counted from the end, and a vector has no second one.
    if min(len(q), len(k), len(v)) < 2:
        raise CodegenUnsupported("NOT_A_MATRIX", "an operand of the attention is a vector", product)
    batch = q[:-2]
    # Dimensions that are missing count as 1, as when numpy broadcasts.
    keys, values = ((1,) * (len(batch) - len(s) + 2) + s[:-2] for s in (k, v))
    shared = all(n in (1, m) for n, m in zip(keys, batch, strict=False))
    if len(keys) != len(batch) or keys != values or not shared:
        raise CodegenUnsupported("SHAPE_MISMATCH", "keys and values are batched in another way than queries", product)
    if 0 in (*q, *k, *v):
        raise CodegenUnsupported("EMPTY", "there are no elements", product)
    return Sizes(batch, keys, q[-2], k[-2], q[-1], v[-1])


def check_types(product: FrozenOp, softmax: FrozenOp, mixed: FrozenOp, metas: Mapping[str, Meta]) -> None:
    """Checks that both products are of one type, and that the softmax computes in the type in which they are added up.

    Raises:
        CodegenUnsupported: If not: a matrix instruction multiplies one type, and all of a block is of one.
    """
    q, k, v, weights = (
        metas[one(e)].dtype for e in (product.input("X"), product.input("Y"), mixed.input("Y"), softmax.output("Out"))
    )
    if not q == k == v:
        names = ", ".join(dtype.name for dtype in (q, k, v))
        raise CodegenUnsupported("NO_KERNEL_FORM", f"queries, keys and values have several types: {names}", product)
    # Scores go to the softmax without leaving registers, and so in the type of their sums.
    if weights.compute != q.compute:
        reason = f"the softmax is of {weights.name}, the products are added up in {q.compute.name}"
        raise CodegenUnsupported("NO_KERNEL_FORM", reason, softmax)


class Inlined:
    """Ops per element on blocks of scores, as a function of the module.

    Attributes:
        given: Values that the function gets: value -> name of the parameter.
        result: The value that it returns.
        casts_round: Whether casts round what they take to its own 16-bit type: where a function would show it.
    """

    def __init__(
        self,
        name: str,
        ops: Sequence[FrozenOp],
        given: Mapping[str, str],
        result: str,
        sizes: Sizes,
        metas: Mapping[str, Meta],
        compute: DType,
        casts_round: bool | None = None,
    ) -> None:
        self.name, self.given, self.result = name, given, result
        self.sizes, self.metas, self.compute = sizes, metas, compute
        self.group: LoopNest | None = None
        if ops:
            group = build(ops, metas, [result])
            # An operator of other sizes has elements that are in no block of scores.
            space = math.prod(group.iteration_space)
            if group.inner is not None or group.summed or space != sizes.batches * sizes.rows * sizes.columns:
                raise CodegenUnsupported("SHAPE_MISMATCH", "an operator is not one per element of the scores", ops[0])
            for operand in group.inputs:
                # A function gets one block of scores, in which other places of them do not lie.
                if operand.value in given and not operand.full:
                    raise CodegenUnsupported("SHAPE_MISMATCH", "the scores are used at two places", ops[0])
            self.group = group
            # Where a function jumps, rounding decides on which side: values are rounded there as the ops do it.
            if casts_round is None:
                casts_round = any(expr.calls(n, _EXACT) for _, body in group.ops for n in body.nodes.values())
        self.casts_round = bool(casts_round)

    @property
    def read(self) -> list[Operand]:
        """Operands in memory."""
        inside = self.group.inputs if self.group is not None else ()
        return [o for o in inside if o.value not in self.given]

    @property
    def draws(self) -> bool:
        return self.group is not None and bool(self.group.drawings)

    @property
    def draws_eights(self) -> bool:
        """Whether halves are drawn for eight scores at a time: those of a row lie beside each other in their stream."""
        drawings = self.group.drawings if self.group is not None else ()
        return bool(drawings) and self.sizes.columns % 8 == 0 and all(one.operand.full for one in drawings)

    def _index(self, operand: Operand, sizes: SizeNames) -> tuple[str, str]:
        """Returns offset and mask of an operand's elements in a block of scores."""
        assert self.group is not None
        space, s, t = self.group.iteration_space, self.sizes, self.sizes.named(sizes)
        if operand.full:
            return "offsets", "mask"
        # The batch is the same for a whole block: what it adds to an offset is one number.
        for cut in range(len(space) + 1):
            if math.prod(space[:cut]) == s.batches:
                # The first axes are the batches, and `cut` is where they end.
                inner = operand.dims[cut:]
                own = replace(operand, dims=operand.dims[:cut])
                text = coordinates(space[:cut], own, "batch", sizes) if cut else "batch"
                if all(inner):
                    size, place = f"({t.rows} * {t.columns})", f"rows * {t.columns} + columns"
                elif not any(inner):
                    # One number for all scores, in the shape of a block of columns.
                    size, place = "1", "0 * columns"
                elif len(inner) == 2 and inner == (False, True) and space[cut:] == (s.rows, s.columns):
                    size, place = t.columns, "columns"
                elif len(inner) == 2 and inner == (True, False) and space[cut:] == (s.rows, s.columns):
                    size, place = t.rows, "rows"
                else:
                    continue
                batch = f"({text}) * {size} + " if any(operand.dims[:cut]) else ""
                return f"({batch}{place})", "mask"
        return f"({coordinates(space, operand, 'offsets', sizes)})", "mask"

    def text(self, names: Mapping[str, str], pointers: Sequence[str], used: set[str]) -> str:
        """Returns the function; ``names`` are those of the parameters of values in memory."""
        more = ["eights", "turned: tl.constexpr"] if self.draws_eights else []
        head = f"def {self.name}({', '.join([*self.given.values(), 'batch', 'rows', 'columns', *pointers, *more])}):"
        # Without ops it gives back what it gets, so that loops need not ask.
        if self.group is None:
            return "\n".join(["@triton.jit", *nested(head, [f"return {self.given[self.result]}"])])
        named = SizeNames()
        t, run = self.sizes.named(named), named("RUN", 8, "neighbours whose random numbers are drawn together")
        group = replace(
            self.group, inputs=tuple(replace(o, name=names.get(o.value, o.name)) for o in self.group.inputs)
        )
        low = {v: self.metas[v].dtype for v in self.given}
        given = {v: Typed(n, self.compute, low[v] if low[v].is_low else None) for v, n in self.given.items()}
        eights = [f"(batch * {t.rows} + rows) * {t.columns} + eights, columns, {run}, turned"] * len(group.drawings)
        loads, lines = loaded(
            group, lambda o: self._index(o, named), given, self.casts_round, eights if self.draws_eights else ()
        )
        used |= lines.used
        body = [
            f"mask = (rows < {t.rows}) & (columns < {t.columns})",
            f"offsets = (batch * {t.rows} + rows) * {t.columns} + columns",
            *loads,
            *lines.lines,
            f"return {lines.done[self.result].text}",
        ]
        return "\n".join(["@triton.jit", *nested(head, named.defined(body))])


def fitting_result(
    body: Sequence[FrozenOp], mixed: FrozenOp, result: Layout, saved: str, metas: Mapping[str, Meta]
) -> Fitting:
    """Returns that an attention's gradient reads the attention's result, for the check of a module that runs alone.

    Args:
        body: The ops of the gradient, in order.
        mixed: The gradient of the last product.
        result: Where the result lies.
        saved: What was saved of each row.
        metas: Metadata of all values.
    """
    softmax = next(op for op in body if op.type == "softmax")
    name = f"{result.value}@FITTING"
    forward = op_def("matmul_v2")
    ins = {"X": mixed.input("X"), "Y": mixed.input("Y")}
    # The forward product again, over the weights that the gradient's module makes: their result has to be the saved one.
    made = replace(
        mixed, definition=forward, inputs=tuple(ins.get(s.name) for s in forward.inputs), outputs=(name,),
        attrs=forward.complete({"trans_x": False, "trans_y": False}),
    )  # fmt: skip
    known = {**metas, name: metas[one(mixed.input("Out@GRAD"))]}
    # What makes the weights again stands in front of the last product's gradient.
    before = body[: next(i for i, op in enumerate(body) if op is mixed)]
    return Fitting(result.value, [*before, made], name, result.strides, saved, one(softmax.input("X")), known)


def numpy_matmul(reference: Reference, op: FrozenOp) -> None:
    """Writes products of batches of matrices, their gradients, a causal mask, and the logarithm of a row's sum of powers."""
    if numpy_moves(reference, op):
        return
    if op.type == "logsumexp":
        scores = reference.of(one(op.input("X"))).text
        # Powers of large scores overflow; this subtracts the largest first.
        reference.put(op.output("Out"), f"np.logaddexp.reduce({scores}, axis=-1, keepdims=True)")
        return
    if op.definition is CAUSAL_MASK:
        seen = f"np.tri({', '.join(map(str, reference.metas[one(op.input('X'))].shape[-2:]))}, {op.attrs['diagonal']}, dtype=bool)"
        reference.put(op.output("Out"), f"np.where({seen}, {reference.of(one(op.input('X'))).text}, -np.inf)")
        return
    x, y = (reference.of(one(op.input(slot))) for slot in ("X", "Y"))
    turned = {name: ".swapaxes(-1, -2)" if op.attrs[name] else "" for name in ("trans_x", "trans_y")}
    if not op.definition.of:
        reference.put(op.output("Out"), f"{x.text}{turned['trans_x']} @ {y.text}{turned['trans_y']}")
        return
    d = reference.of(one(op.input("Out@GRAD"))).text
    assert not op.attrs["trans_x"]
    pairs = (("X", f"{d} @ {y.text}" if op.attrs["trans_y"] else f"{d} @ {y.text}.swapaxes(-1, -2)", x.shape),)
    right = f"{d}.swapaxes(-1, -2) @ {x.text}" if op.attrs["trans_y"] else f"{x.text}.swapaxes(-1, -2) @ {d}"
    for slot, text, shape in (*pairs, ("Y", right, y.shape)):
        entry = op.output(f"{slot}@GRAD")
        if isinstance(entry, str):
            reference.helpers["folded"] = _FOLDED
            reference.put(entry, f"folded({text}, {tuple(shape)!r})")


_FOLDED = '''def folded(value, shape):
    """The sum over axes along which a shape was broadcast."""
    value = value.sum(axis=tuple(range(value.ndim - len(shape))))
    axes = tuple(i for i, (n, m) in enumerate(zip(value.shape, shape)) if n != m)
    return value.sum(axis=axes, keepdims=True)'''
