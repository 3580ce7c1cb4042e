"""Finds attentions in a program, forward and backward, for the fusions that take one: alone, and with the layers around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tstatic.fusion.attention.parts import check_types, one, sizes_of
from tstatic.fusion.codegen.define import draws, is_elementwise, is_pointwise
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.moves import Ends, in_front
from tstatic.fusion.rewrites.redrawn import why_stored
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import UNKNOWN

MOST_OPS = 8
"""The most ops per element between two of the products.

A choice, to bound the search: attentions of the golden set have three (scale, mask, cast)."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Indices of the ops of an attention: the product of queries and keys, ops per element, the softmax, ops, the last product."""

    product: int
    behind_scores: tuple[int, ...]
    softmax: int
    behind_weights: tuple[int, ...]
    mixed: int

    @property
    def indices(self) -> tuple[int, ...]:
        return (self.product, *self.behind_scores, self.softmax, *self.behind_weights, self.mixed)


@dataclass(frozen=True, slots=True)
class Backward:
    """Indices of the ops of its gradient, from the last product's to the first one's."""

    mixed: int
    weights: tuple[int, ...]
    softmax: int
    scores: tuple[int, ...]
    product: int

    @property
    def indices(self) -> tuple[int, ...]:
        return (self.mixed, *self.weights, self.softmax, *self.scores, self.product)


# --------------------------------------------------------------------------------------------------------------- search
def _per_element(view: View, index: int, draw: bool = False) -> bool:
    """Returns whether an op computes each element of its one result from elements of its operands."""
    op = view.ops[index]
    fits = is_elementwise if draw else is_pointwise
    return fits(op.definition) and not op.body and len([*op.writes()]) == 1


def _keeps_sums(view: View, index: int) -> bool:
    """Returns whether an op makes a multiple of each weight, or another float type of it: the sum over all keys may follow it."""
    op = view.ops[index]
    return _per_element(view, index, draw=True) and (draws(op.definition) or _converts(view, op))


def _converts(view: View, op: FrozenOp) -> bool:
    return op.type == "cast" and all(view.metas[v].dtype.is_float for v in (*op.reads(), *op.writes()))


def product_of(view: View, value: str) -> tuple[int, tuple[int, ...]] | None:
    """Returns the product that a value is made of, and the ops per element between, in order."""
    shape = view.metas[value].shape
    maker = view.maker.get(value)
    stack: list[tuple[int | None, tuple[int, ...]]] = [(maker, ())]
    while stack:
        index, behind = stack.pop()
        if index is None or len(behind) > MOST_OPS:
            continue
        op = view.ops[index]
        if op.type == "matmul_v2" and not op.body:
            return index, behind
        if not _per_element(view, index):
            continue
        # The operand that has the scores' shape; of two such ones (a mask as large) the one that comes from a product.
        stack += [(view.maker.get(v), (index, *behind)) for v in op.contents() if view.metas[v].shape == shape]
    return None


OTHER_AXIS = MatchRejected(
    "ATTRIBUTE", "softmax works along another axis than that of the keys", "let softmax work along the last axis"
)


def forward_of(view: View, softmax: int, any_axis: bool = False) -> Forward | None:
    """Returns the attention around a softmax over the keys; with ``any_axis`` also what would be one."""
    op = view.ops[softmax]
    scores = op.input("X")
    if op.body or not isinstance(scores, str):
        return None
    if op.attrs["axis"] not in (-1, view.metas[scores].rank - 1) and not any_axis:
        return None
    found = product_of(view, scores)
    if found is None:
        return None
    value, behind = one(op.output("Out")), list[int]()
    while len(behind) <= MOST_OPS:
        # Other readers are found when all ops of the attention are known, and reported then.
        following = [i for i in dict.fromkeys(view.readers.get(value, ())) if not view.ops[i].definition.of]
        last = [i for i in following if view.ops[i].type == "matmul_v2" and view.ops[i].input("X") == value]
        if last:
            return Forward(found[0], found[1], softmax, tuple(behind), last[0])
        # The kernel divides by the sum over all keys at the end.
        joining = [i for i in following if _keeps_sums(view, i)]
        if not joining:
            return None
        behind.append(joining[0])
        (value,) = view.ops[joining[0]].writes()
    return None


def almost_forward(view: View, softmax: int) -> tuple[tuple[int, ...], MatchRejected] | None:
    """Returns the ops of what would be an attention but for what changes its weights, and what is wrong with that."""
    op = view.ops[softmax]
    scores = op.input("X")
    found = product_of(view, scores) if isinstance(scores, str) and not op.body else None
    if found is None:
        return None
    value, behind = one(op.output("Out")), list[int]()
    while len(behind) <= MOST_OPS:
        following = [i for i in dict.fromkeys(view.readers.get(value, ())) if not view.ops[i].definition.of]
        last = [i for i in following if view.ops[i].type == "matmul_v2" and view.ops[i].input("X") == value]
        if last:
            indices = (found[0], *found[1], softmax, *behind, last[0])
            changing = next(view.ops[i] for i in behind if not _keeps_sums(view, i))
            if draws(changing.definition):
                return indices, why_stored(view, changing)
            why = f"{changing.type} reads weights, which are known only when all keys are seen"
            return indices, MatchRejected("SUM_INSIDE", why, reader=changing.type)
        # The first that may go on is enough for a message.
        behind += [i for i in following if is_elementwise(view.ops[i].definition) and not view.ops[i].body][:1]
        if not behind or behind[-1] not in following:
            return None
        value, *_ = view.ops[behind[-1]].writes()
    return None


def backward_of(view: View, softmax: int) -> Backward | None:
    """Returns the gradient around a gradient of softmax."""
    op = view.ops[softmax]
    value, weights = op.input("Out@GRAD"), list[int]()
    while True:
        index = view.maker.get(value) if isinstance(value, str) else None
        if index is None or len(weights) > MOST_OPS:
            return None
        maker = view.ops[index]
        if maker.type == "matmul_v2_grad" and not maker.body and maker.output("X@GRAD") == value:
            break
        converts = _converts(view, maker)
        # Only gradients of forward ops, and casts back to another float type.
        if not (converts or maker.definition.of) or not _per_element(view, index, draw=True):
            return None
        # In front: the search goes against the program's order.
        weights.insert(0, index)
        value = maker.input("X" if converts else "Out@GRAD")
    # Other readers are reported when all ops of the gradient are known.
    stack: list[tuple[str, tuple[int, ...]]] = [(one(op.output("X@GRAD")), ())]
    while stack:
        value, scores = stack.pop()
        for following in dict.fromkeys(view.readers.get(value, ())) if len(scores) <= MOST_OPS else ():
            reader = view.ops[following]
            if reader.type == "matmul_v2_grad" and not reader.body and reader.input("Out@GRAD") == value:
                return Backward(index, tuple(weights), softmax, scores, following)
            if _per_element(view, following):
                stack += [(v, (*scores, following)) for v in reader.writes()]
    return None


def whole_of(view: View, forward: Forward) -> tuple[Backward | None, MatchRejected | None]:
    """Returns the gradient of an attention, if the program has it; and why the attention cannot be made."""
    op = view.ops[forward.softmax]
    weights = one(op.output("Out"))
    gradients = [i for i in dict.fromkeys(view.readers.get(weights, ())) if view.ops[i].type == "softmax_grad"]
    # Two gradients, as of two losses, both read the weights, which then stay in memory.
    backward = backward_of(view, gradients[0]) if len(gradients) == 1 else None
    inside = set(forward.indices) | (set(backward.indices) if backward is not None else set())
    result = one(view.ops[forward.mixed].output("Out"))
    wanted = {result}
    if backward is not None:
        first, last = view.ops[backward.product], view.ops[backward.mixed]
        wanted |= {
            e for e in (first.output("X@GRAD"), first.output("Y@GRAD"), last.output("Y@GRAD")) if isinstance(e, str)
        }
    for value in view.needed(inside):
        if value in wanted:
            continue
        if value in view.fetched:
            return backward, MatchRejected("FETCHED", value=value)
        if value in view.kept:
            return backward, MatchRejected("PERSISTABLE", value=value)
        readers = view.outside(value, inside)
        return backward, MatchRejected("EXTRA_READER", value=value, reader=view.ops[readers[0]].type)
    if inside & view.forbidden:
        return backward, MatchRejected("FORBIDDEN")
    ops = [view.ops[i] for i in inside]
    if any(UNKNOWN in view.metas[v].shape for o in ops for v in (*o.reads(), *o.writes())):
        return backward, MatchRejected("DYNAMIC", "a size of the attention is known only when the program runs")
    try:
        sizes_of(view.ops[forward.product], view.ops[forward.mixed], view.metas)
        check_types(view.ops[forward.product], op, view.ops[forward.mixed], view.metas)
    except CodegenUnsupported as unfit:
        return backward, MatchRejected(unfit.code, unfit.reason, reader=op.type)
    return backward, None


# ------------------------------------------------------------------------------------------------------------------- ends
def operands_of(view: View, product: FrozenOp, mixed: FrozenOp, inside: Sequence[int]) -> Ends:
    """Returns what moves queries, keys and values to where an attention's products read them."""
    values = dict.fromkeys((one(product.input("X")), one(product.input("Y")), one(mixed.input("Y"))))
    return in_front(view, values, inside, scaled=True)


def gradients_of(view: View, backward: Backward) -> list[str]:
    """Returns the gradients of queries, keys and values."""
    product, mixed = view.ops[backward.product], view.ops[backward.mixed]
    found = (product.output("X@GRAD"), product.output("Y@GRAD"), mixed.output("Y@GRAD"))
    return [e for e in found if isinstance(e, str)]
