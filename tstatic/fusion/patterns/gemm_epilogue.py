"""Fuses a matrix product with the ops per element behind it: bias, activation, dropout, residual; forward and backward.

Behind the gradient of a product these are the gradients of what made its input, with the bias's gradient as a sum over the rows,
and the sum that accumulates the gradient of a weight that several products read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tstatic.fusion.codegen.define import draws, is_elementwise, works_on_rows
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient, products_of
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, refuse
from tstatic.fusion.engine.chain import ELEMENTWISE, PRODUCT, Chain
from tstatic.fusion.engine.pattern import one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns import auto, compiler
from tstatic.fusion.patterns.in_turn import product_kernel
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.rewrites.redrawn import draw_again
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.traits import Activation, Redrawn
from tstatic.ir.types import UNKNOWN, Meta, Shape

MOST_OPS = 12
"""The most ops behind a product.

A choice, to bound the search: products of the golden set have at most three (add, dropout, add)."""

_ADDS = ("elementwise_add", "sum")
_PHASE = OpRole.Backward | OpRole.Optimize


@dataclass(frozen=True, slots=True)
class _Tail:
    """The ops that follow a result of a product, one after the other.

    Attributes:
        ops: Their indices.
        result: What the last one makes, or the product's own result.
        stopped: The last one and the op behind it, and why that does not belong to them.
    """

    ops: tuple[int, ...]
    result: str
    stopped: tuple[tuple[int, int], MatchRejected] | None = None


# --------------------------------------------------------------------------------------------------------------- search
def _followers(view: View, product: FrozenOp, value: str) -> list[int]:
    """Returns the readers of a value other than gradients of forward ops: these read what is written for them anyway."""
    readers = dict.fromkeys(view.readers.get(value, ()))
    return [i for i in readers if product.definition.of or not view.ops[i].definition.of]


def _joins(view: View, product: FrozenOp, index: int, value: str) -> bool:
    """Returns whether an op computes each element from one of a value, in the same phase of the step as the product."""
    op = view.ops[index]
    return (
        not (op.body or op.sub_blocks)
        and (is_elementwise(op.definition) or op.definition.has(Redrawn))
        and value in op.contents()
        and op.role & _PHASE == product.role & _PHASE
        and all(v in view.metas for v in (*op.reads(), *op.writes()))
    )


def _follow(view: View, start: int, value: str, types: Sequence[str] = (), masks: bool = False) -> _Tail:
    """Returns the ops behind a value that a product makes.

    Args:
        view: The program.
        start: The product's index.
        value: What it makes.
        types: Only ops of these types, if any are given.
        masks: Include gradients that read a mask and may draw it again instead.
    """
    product, last, found = view.ops[start], start, list[int]()
    # A value that completes a parameter's gradient ends the tail: later stages look for it.
    while len(found) < MOST_OPS and view.program.names.get(value, value) not in view.ops[last].role_var:
        followers = _followers(view, product, value)
        joining = [i for i in followers if _joins(view, product, i, value)]
        if types:
            joining = [i for i in joining if view.ops[i].type in types]
        if not joining:
            break
        index = joining[0]
        unfit = _unfit(view, (last, index), value, followers)
        if unfit is None and not masks and view.ops[index].definition.has(Redrawn):
            unfit = MatchRejected(
                "RANDOM", f"{view.ops[index].type} reads a mask that is stored", "do not fetch the mask"
            )
        if unfit is not None:
            return _Tail(tuple(found), value, ((last, index), unfit))
        found.append(index)
        last = index
        value, *further = _results(view, product, index, view.metas[value].shape)
        # Behind two results of the product's shape the tail would have to go on twice.
        if further:
            break
    return _Tail(tuple(found), value)


def _results(view: View, product: FrozenOp, index: int, shape: Shape) -> list[str]:
    """Returns the results of an op with the product's shape that something follows; one at least."""
    writes = list(view.ops[index].writes())
    full = [v for v in writes if view.metas[v].shape == shape]
    return [v for v in full if _followers(view, product, v)] or full[:1] or writes[:1]


def _unfit(view: View, pair: tuple[int, int], value: str, followers: Sequence[int]) -> MatchRejected | None:
    """Returns why an op cannot join the one before it."""
    last, index = pair
    if value in view.fetched:
        return MatchRejected("FETCHED", value=value)
    if value in view.kept:
        return MatchRejected("PERSISTABLE", value=value)
    others = [view.ops[i].type for i in followers if i != index]
    if others:
        return MatchRejected("EXTRA_READER", value=value, reader=others[0])
    if not view.forbidden.isdisjoint((last, index)):
        return MatchRejected("FORBIDDEN")
    return _misplaced(view, view.ops[index], value)


def _misplaced(view: View, op: FrozenOp, value: str) -> MatchRejected | None:
    """Returns why an op's operands do not lie as the product's elements, its columns, or one number for all."""
    metas, shape = view.metas, view.metas[value].shape
    sizes = [s for v in (*op.reads(), *op.writes()) for s in metas[v].shape]
    # The engine and the kernel have codes of their own for these.
    if UNKNOWN in sizes or 0 in sizes:
        return None
    if op.definition.has(Redrawn):
        return None
    formula = view.formulas.of(op)
    if formula is None:
        return MatchRejected("RANDOM" if op.definition.random else "NO_KERNEL_FORM", reader=op.type)
    # A bias, aligned with the product.
    row = (*(1,) * (len(shape) - 1), *shape[-1:])
    if formula.full != shape or not any(metas[v].shape == shape for v in op.writes()):
        return MatchRejected("SHAPE_MISMATCH", f"{op.type} works on {list(formula.full)}, the product on {list(shape)}")
    for entry, aligned in zip(formula.entries, formula.aligned, strict=True):
        if entry is None or aligned is None or metas[entry].shape == shape or metas[entry].numel == 1:
            continue
        if metas[entry].rank != 1 or aligned != row:
            return MatchRejected(
                "SHAPE_MISMATCH",
                f"'{entry}' of shape {list(metas[entry].shape)} has neither the product's elements nor one per column",
                f"give it the shape {list(shape[-1:])} of a bias, or expand it to {list(shape)}",
            )
    for position, target in formula.targets.items():
        name = op.outputs[position]
        if isinstance(name, str) and target != shape and (metas[name].rank != 1 or target != row):
            return MatchRejected("SUM_SHAPE", f"'{name}' is not the sum over the rows, one element per column")
    return None


def _no_matrix(view: View, op: FrozenOp) -> MatchRejected | None:
    """Returns why a product is none of matrices; all sizes are known."""
    y = view.metas[str(op.input("Y"))]
    try:
        products_of(op, view.metas)
    except CodegenUnsupported as found:
        return MatchRejected(found.code, found.reason, reader=op.type)
    if y.rank != 2:
        return MatchRejected("NOT_A_MATRIX", f"the weight of {op.type} has rank {y.rank}", reader=op.type)
    return None


# --------------------------------------------------------------------------------------------- what a kernel along rows takes
def _left_to_rows(view: View, product: FrozenOp, tail: _Tail) -> int:
    """Returns how many ops of a tail stay with the product if a kernel along rows reads the result.

    That kernel reads the rows anyway, adds the residual on the way, and widens them in registers: in memory they would take
    twice the bytes.
    """
    count = len(tail.ops)
    if compiler.FUSION.switch not in view.later or not any(
        _works_along_rows(view, i) for i in _followers(view, product, tail.result)
    ):
        return count
    shape = view.metas[tail.result].shape
    while count:
        op = view.ops[tail.ops[count - 1]]
        residual = op.type in _ADDS and sum(view.metas[v].shape == shape for v in op.contents()) > 1
        # A dropout goes along with the residual behind it, and by itself stays with the product.
        if not residual and not _widens(view, op) and not (count < len(tail.ops) and draws(op.definition)):
            break
        count -= 1
    # A library's product lies in memory: adding the bias would be a pass of its own.
    if count == 1 and not view.metas[tail.result].dtype.is_low and _bias(view, view.ops[tail.ops[0]]) is not None:
        return 0
    return count


def _widens(view: View, op: FrozenOp) -> bool:
    """Returns whether an op is a cast to a type of more bytes."""
    if op.type != "cast":
        return False
    (read,), (made,) = op.reads(), op.writes()
    return bool(view.metas[read].dtype.itemsize < view.metas[made].dtype.itemsize)


def _works_along_rows(view: View, index: int) -> bool:
    op = view.ops[index]
    if op.body or index in view.forbidden or not works_on_rows(op.definition) or not auto.fits(view, op, rows=True):
        return False
    formula = view.formulas.of(op)
    return formula is not None and formula.inner is not None


def _bias(view: View, op: FrozenOp) -> str | None:
    """Returns the operand of an add that has one element per column."""
    if op.type != "elementwise_add":
        return None
    (out,) = op.writes()
    columns = view.metas[out].shape[-1:]
    return next((v for v in op.contents() if view.metas[v].shape == columns != view.metas[out].shape), None)


# -------------------------------------------------------------------------------------------------------------- proposals
def _accumulates(view: View, index: int, value: str) -> _Tail:
    """Returns the sum that the gradient of a shared weight goes into, if this product's is the last to be there."""
    tail = _follow(view, index, value, _ADDS)
    if not tail.ops:
        return tail
    # The sum alone: what follows it reads other gradients.
    first = tail.ops[:1]
    last = max(view.maker.get(v, -1) for v in view.ops[first[0]].reads())
    return _Tail(first if last == index else (), value)


def _propose(view: View) -> Iterator[Proposal]:
    """Yields rejections, and for each product its tail from the longest to the shortest: the first that is safe is made."""
    for index, op in enumerate(view.ops):
        if op.body or not (is_product(op.definition) or is_product_gradient(op.definition)):
            continue
        if not all(v in view.metas for v in (*op.reads(), *op.writes())):
            continue
        if not op.definition.of:
            yield from _proposals(view, index, _follow(view, index, str(op.output("Out"))), ())
            continue
        dx, dy = one(op.output("X@GRAD")), one(op.output("Y@GRAD"))
        tail = _follow(view, index, dx) if dx is not None else _Tail((), "")
        yield from _proposals(view, index, tail, _accumulates(view, index, dy).ops if dy is not None else ())


def _proposals(view: View, index: int, tail: _Tail, total: tuple[int, ...]) -> Iterator[Proposal]:
    """Yields what may become of a product, the ops behind it, and the sum that its second result goes into."""
    op = view.ops[index]
    joined = (*tail.ops, *total)
    known = all(UNKNOWN not in view.metas[v].shape for v in (*op.reads(), *op.writes()))
    unfit = _no_matrix(view, op) if known and (joined or tail.stopped is not None) else None
    if unfit is not None:
        behind = joined[0] if joined else tail.stopped[0][1] if tail.stopped is not None else index
        yield (index, behind), partial(refuse, unfit)
        return
    count = _left_to_rows(view, op, tail) if known and tail.result else len(tail.ops)
    if count < len(tail.ops):
        pair = (tail.ops[count - 1] if count else index), tail.ops[count]
        yield pair, partial(refuse, MatchRejected("ROWS_KERNEL"))
    elif tail.stopped is not None and (tail.ops or not joined):
        pair, why = tail.stopped
        yield pair, partial(refuse, why)
    for length in range(count, -1, -1):
        # With the sum that accumulates the weight's gradient, then without it.
        for also in dict.fromkeys((total, ())):
            if length or also:
                parts = tail.ops[:length], also
                yield tuple(sorted({index, *parts[0], *parts[1]})), partial(_fuse, view, index, *parts)
                # Where every part would be rejected for the same reason, it is given once.
                if not known:
                    return


# -------------------------------------------------------------------------------------------------------------- fused ops
def _fuse(view: View, index: int, tail: tuple[int, ...], total: tuple[int, ...]) -> Fused:
    op = view.ops[index]
    ops = [view.ops[i] for i in tail]
    attrs = {name: op.attrs.get(name, False) for name in ("trans_x", "trans_y")}
    if op.definition.of:
        return _fuse_backward(view, op, ops, [view.ops[i] for i in total], attrs)
    inside = {index, *tail}
    shape = view.metas[str(op.output("Out"))].shape
    out = _results(view, op, tail[-1], shape)[0]
    act = next((o for o in ops if o.definition.has(Activation)), None)
    needed = set(view.needed(inside)) - {out}
    # Paddle's op saves one value; others are outputs without a name there.
    saved = next((v for o in (op, *ops) for v in o.writes() if v in needed and view.metas[v].dtype.is_float), None)
    slots = {"X": one(op.input("X")), "Y": one(op.input("Y")), "Bias": _bias(view, ops[0])}
    named = {**attrs, "activation": "none" if act is None else act.type, **(act.attrs if act is not None else {})}
    return Fused("fused_gemm_epilogue", slots, {"Out": out, "ReserveSpace": saved}, named, inner=("ReserveSpace",))


def _fuse_backward(
    view: View, op: FrozenOp, ops: Sequence[FrozenOp], sums: Sequence[FrozenOp], attrs: dict[str, bool]
) -> Fused:
    dx, dy = one(op.output("X@GRAD")), one(op.output("Y@GRAD"))
    columns: list[str] = []
    further: list[str] = []
    if ops and dx is not None:
        shape = view.metas[dx].shape
        columns = [v for o in ops for v in o.writes() if view.metas[v].shape != shape]
        # Of the last op alone: what those before it make of that shape is read inside.
        dx, *further = [v for v in ops[-1].writes() if view.metas[v].shape == shape]
    if sums:
        dy = one(sums[0].output("Out"))
    act = next((o for o in ops if _activation_grad(o)), None)
    saved = next((v for v in act.contents() if v != one(act.input("Out@GRAD"))), None) if act is not None else None
    slots = {"DOut": one(op.input("Out@GRAD")), "X": one(op.input("X")), "Y": one(op.input("Y")), "ReserveSpace": saved}
    outputs: dict[str, str | tuple[str, ...] | None] = {"DX": dx, "DY": dy, "DBias": columns[0] if columns else None}
    rest = (*columns[1:], *further)
    if rest:
        outputs["Others"] = rest
    named = {**attrs, "activation_grad": "none" if act is None else act.type, **(act.attrs if act is not None else {})}
    return Fused("fused_gemm_epilogue_grad", slots, outputs, named)


def _activation_grad(op: FrozenOp) -> bool:
    return bool(op.definition.of) and op_def(op.definition.of).has(Activation)


def prepared(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Removes identity gradients between a product's gradient and what follows it, and draws the masks there again.

    Others stay: patterns of later fusions may look for them, and a mask that no kernel draws again is better stored.
    """
    # Until nothing changes: what is removed brings further ops behind a product.
    while True:
        view = View(program, metas)
        behind = _behind(view)
        fewer = eliminate_identity_gradients(program, metas, behind)
        if fewer is program:
            return draw_again(program, metas, behind)
        program = fewer


def _behind(view: View) -> set[int]:
    """Returns the ops behind any product."""
    found: set[int] = set()
    for index, op in enumerate(view.ops):
        if op.body or not all(v in view.metas for v in (*op.reads(), *op.writes())):
            continue
        value = one(op.output("Out")) if is_product(op.definition) else None
        if value is None and is_product_gradient(op.definition):
            value = one(op.output("X@GRAD"))
        if value is not None:
            found.update(_follow(view, index, value, masks=True).ops)
    return found


_CHAIN = Chain(
    (PRODUCT, ELEMENTWISE), "a product of two matrices, with something per element behind it that has its shape"
)
FUSION = Fusion(
    "gemm_epilogue",
    "fuse_gemm_epilogue",
    Proposals(_propose, _CHAIN),
    kernel=product_kernel,
    exact=True,
    prepare=prepared,
)
