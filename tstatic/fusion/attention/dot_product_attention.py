"""Fuses ``softmax(q k' ...) ... v`` into one kernel that keeps neither scores nor weights, forward and backward.

The forward part gets an op that saves the logarithm of each row's sum of powers, from which kernels compute the weights again. The
backward part gets the ops that make them, so that where no kernel runs, gradients have the bits of the unfused program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tstatic.fusion.attention.causal import CAUSAL, FINITE, Masks, for_kernel, gradient_mark
from tstatic.fusion.attention.grad import attention_grad_kernel
from tstatic.fusion.attention.kernel import attention_kernel
from tstatic.fusion.attention.parts import Attention, Gradient, one
from tstatic.fusion.attention.search import (
    OTHER_AXIS,
    Backward,
    Forward,
    almost_forward,
    backward_of,
    forward_of,
    gradients_of,
    operands_of,
    product_of,
    whole_of,
)
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.matrix.layouts import Layout, Moved
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, refuse
from tstatic.fusion.engine.chain import PRODUCT, SOFTMAX, Chain
from tstatic.fusion.engine.pattern import one as pattern_one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.rewrites.moves import Ends, at_back, in_front
from tstatic.fusion.rewrites.redrawn import draw_again
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta, float32, float64
from tstatic.passes.dce import without_unused

RESULT, STRIDES, SAVED = "result", "result_strides", "saved"
"""Attributes of the gradient of an attention's softmax: the value that holds the attention's result, the strides of the result's
dimensions in it, and what was saved of each row."""


# -------------------------------------------------------------------------------------------------------------- rewriting
def with_marks(program: FrozenProgram, metas: Mapping[str, Meta]) -> FrozenProgram:
    """Marks causal masks; they become constants of the program, and what makes them is removed."""
    # Under strict numerics nothing is skipped, and masks stay in memory.
    if strict_numerics():
        return program
    view, masks = View(program, metas), Masks(program, metas)
    marked: dict[int, FrozenOp] = {}
    for index in view.of_type("softmax"):
        forward = forward_of(view, index)
        if forward is not None and all(view.metas[v].known for v in view.ops[index].reads()):
            chain = [view.ops[i] for i in forward.behind_scores]
            found = masks.marks(chain, one(view.ops[forward.product].output("Out")))
            marked |= {forward.behind_scores[place]: op for place, op in found.items()}
    if not marked:
        return program
    # Constants from here on: what made them is dropped.
    made = {v for v in masks.kept if v in view.maker}
    ops = [marked.get(i, op) for i, op in enumerate(view.ops) if not made.issuperset(op.writes()) or not op.writes()]
    return without_unused(program.edit(ops=tuple(ops), constants={**program.constants, **masks.kept}))


def prepared(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Saves each row's sum of powers, and computes weights again where their gradient reads them."""
    if not any(op.type == "softmax" for op in program.ops):
        return program
    program = draw_again(program, metas)
    view = View(program, metas)
    # Only adds in front of a softmax are asked, by the position that a gradient has from its forward op: others belong to
    # patterns that are looked for later.
    adds: set[int] = set()
    for index in view.of_type("softmax"):
        forward = forward_of(view, index) if all(v in metas for v in view.ops[index].reads()) else None
        adds |= {view.ops[i].position for i in (forward.behind_scores if forward is not None else ())}
    gradients = {i for i, op in enumerate(view.ops) if op.type == "elementwise_add_grad" and op.position in adds}
    return computed_again(eliminate_identity_gradients(program, metas, gradients), metas)


def computed_again(
    program: FrozenProgram, metas: dict[str, Meta], chosen: Callable[[View, Forward], bool] | None = None
) -> FrozenProgram:
    """Does it for all attentions, or for those that are ``chosen``."""
    if strict_numerics():
        # Kernels that add up block by block have bits of their own: nothing is to be changed for them.
        return program
    program = with_marks(program, metas)
    view = View(program, metas)
    before: dict[int, list[FrozenOp]] = {}
    behind: dict[int, list[FrozenOp]] = {}
    changed: dict[int, FrozenOp] = {}
    names = dict(program.names)
    for index in view.of_type("softmax"):
        forward = forward_of(view, index)
        backward, unfit = (None, None) if forward is None else whole_of(view, forward)
        if forward is None or backward is None or unfit is not None or not (chosen is None or chosen(view, forward)):
            continue
        made = _Rewriting(view, metas, names, forward, backward)
        behind[index] = made.saving
        before[backward.mixed] = made.again
        changed |= made.changed
    if not before:
        return program
    ops: list[FrozenOp] = []
    for index, op in enumerate(view.ops):
        ops += [*before.get(index, ()), changed.get(index, op), *behind.get(index, ())]
    return program.edit(ops=tuple(ops), names=names)


class _Rewriting:
    """New ops for one attention.

    Attributes:
        saving: They follow the softmax.
        again: They stand before the gradient.
        changed: The gradient's ops, which read what is computed again.
    """

    def __init__(
        self, view: View, metas: dict[str, Meta], names: dict[str, str], forward: Forward, backward: Backward
    ) -> None:
        self.view, self.metas, self.names = view, metas, names
        softmax = view.ops[forward.softmax]
        scores = one(softmax.input("X"))
        meta = metas[scores]
        low = meta.dtype.is_low
        self.saving: list[FrozenOp] = []
        # Kernels add up powers in float32, and what is saved has that sum's digits.
        wide = self._cast(self.saving, softmax, scores, float32) if low else scores
        total = self._new(f"{scores}@TOTAL", Meta((*meta.shape[:-1], 1), metas[wide].dtype))
        attrs = {"axis": (-1,), "keepdim": True, "reduce_all": False}
        self._add(self.saving, softmax, "logsumexp", {"X": wide}, total, attrs)
        # Beside scores that a mask made -1e9, float32 has no place for the logarithm of how many they are.
        saved = self._new(f"{scores}@SAVED", Meta(metas[total].shape, float64))
        kinds = {"in_dtype": metas[total].dtype, "out_dtype": float64}
        self._add(self.saving, softmax, "cast", {"X": total}, saved, kinds)
        # The copies belong to the phase of the gradient, and complete no parameter's gradient.
        role = view.ops[backward.mixed].role
        self.again: list[FrozenOp] = []
        renamed: dict[str, str] = {}
        product, mixed = view.ops[forward.product], view.ops[forward.mixed]
        result = one(mixed.output("Out"))
        back = at_back(view, gradients_of(view, backward), backward.indices, scaled=True)
        moved = operands_of(view, product, mixed, (*forward.indices, *backward.indices, *back.indices))
        for index in (*sorted(moved.indices), forward.product, *forward.behind_scores):
            self._copy(view.ops[index], renamed, role)
        # Only kernels read what was saved: this says that it is needed.
        at = replace(softmax, role=role, role_var=())
        self._add(self.again, at, "assign", {"X": saved}, self._new(f"{scores}@READ", metas[saved]), {})
        for index in (forward.softmax, *forward.behind_weights):
            self._copy(view.ops[index], renamed, role)
        self.changed = {i: view.ops[i].with_inputs(renamed) for i in (*backward.indices, *back.indices)}
        for index in forward.behind_scores:
            if CAUSAL in view.ops[index].attrs:
                self.changed |= {i: gradient_mark(self.changed[i], view.ops[index]) for i in backward.scores}
        gradient = self.changed[backward.softmax]
        place = at_back(view, [result], forward.indices).layouts[result]
        told = {RESULT: place.value, STRIDES: place.strides, SAVED: saved}
        self.changed[backward.softmax] = replace(gradient, attrs={**gradient.attrs, **told})

    def _new(self, name: str, meta: Meta) -> str:
        while name in self.metas:
            name += "_"
        self.metas[name] = meta
        self.names[name] = name
        return name

    def _add(
        self, ops: list[FrozenOp], like: FrozenOp, kind: str, ins: Mapping[str, str], out: str, attrs: Mapping[str, Any]
    ) -> None:
        definition = op_def(kind)
        inputs = tuple(ins.get(s.name) for s in definition.inputs)
        ops.append(
            FrozenOp(definition, inputs, (out,), definition.complete(attrs), like.role, (), like.where, like.position)
        )

    def _cast(self, ops: list[FrozenOp], like: FrozenOp, value: str, dtype: Any) -> str:
        meta = self.metas[value]
        out = self._new(f"{value}@{dtype.name}", Meta(meta.shape, dtype))
        self._add(ops, like, "cast", {"X": value}, out, {"in_dtype": meta.dtype, "out_dtype": dtype})
        return out

    def _copy(self, op: FrozenOp, renamed: dict[str, str], role: int) -> None:
        """Computes an op again; its place in the program decides its random numbers and stays."""
        like = op.with_inputs(renamed)
        for out in op.writes():
            renamed[out] = self._new(f"{out}@AGAIN", self.metas[out])
        outputs = tuple(
            renamed.get(e, e) if isinstance(e, str) else e and tuple(renamed.get(v, v) for v in e) for e in op.outputs
        )
        self.again.append(replace(like, outputs=outputs, role=role, role_var=()))


# -------------------------------------------------------------------------------------------------------------- proposals
def saving_of(view: View, scores: str) -> tuple[int, ...]:
    """Returns the ops that save the sums of powers of scores."""
    for index in dict.fromkeys(view.readers.get(scores, ())):
        found = [index]
        # A cast where scores have 16 bits, the sum, and the cast of what is saved.
        while view.ops[found[-1]].type in ("cast", "logsumexp"):
            value = one(view.ops[found[-1]].output("Out"))
            # By the name that `_Rewriting` gives it.
            if value.startswith(f"{scores}@SAVED"):
                return tuple(found)
            further = view.readers.get(value, ())
            if len(further) != 1:
                break
            found.append(further[0])
    return ()


def _propose(view: View) -> Iterator[Proposal]:
    for index in view.of_type("softmax"):
        if not all(v in view.metas for v in view.ops[index].reads()):
            continue
        forward = forward_of(view, index)
        if forward is None:
            if (other := forward_of(view, index, any_axis=True)) is not None:
                yield other.indices, partial(refuse, OTHER_AXIS)
            elif (almost := almost_forward(view, index)) is not None:
                yield almost[0], partial(refuse, almost[1])
            continue
        saving = saving_of(view, one(view.ops[index].input("X")))
        unfit = None if saving else whole_of(view, forward)[1]
        core = {*forward.indices, *saving}
        if unfit is not None:
            yield tuple(sorted(core)), partial(refuse, unfit)
            continue
        mixed = view.ops[forward.mixed]
        front = operands_of(view, view.ops[forward.product], mixed, tuple(core))
        back = at_back(view, [one(mixed.output("Out"))], core)
        yield from _with_ends(core, front, back, partial(_fuse, view, forward, saving))
    for index in view.of_type("softmax_grad"):
        if SAVED not in view.ops[index].attrs:
            continue
        backward = backward_of(view, index)
        assert backward is not None, "the gradient was found before"
        again = made_again(view, backward)
        core = {*again, *backward.indices}
        product, mixed = view.ops[backward.product], view.ops[backward.mixed]
        back = at_back(view, gradients_of(view, backward), core, scaled=True)
        front = operands_of(view, product, mixed, (*core, *back.indices))
        given = in_front(view, [one(mixed.input("Out@GRAD"))], core)
        front = Ends(front.indices | given.indices, {**front.layouts, **given.layouts}, (*front.left, *given.left))
        yield from _with_ends(core, front, back, partial(_fuse_gradient, view, backward, again))


def _with_ends(
    core: set[int], front: Ends, back: Ends, fuse: Callable[[Mapping[str, Layout], Mapping[str, Layout]], Fused]
) -> Iterator[Proposal]:
    """Yields a match with what moves its operands and results, and then without."""
    whole = tuple(sorted({*core, *front.indices, *back.indices}))
    for index, why in (*front.left, *back.left):
        yield tuple(sorted({*whole, index})), partial(refuse, why)
    if len(whole) > len(core):
        yield whole, partial(fuse, front.layouts, back.layouts)
    yield tuple(sorted(core)), partial(fuse, {}, {})


def _joined(given: Mapping[str, str | None], places: Mapping[str, Layout], suffix: str = "") -> dict[str, str | None]:
    """Returns slots with the values in memory: one slot, with the names of all, for a value that several lie in."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if value is not None:
            at = places[value].value if value in places else value
            found[at] = found.get(at, "") + name
    return {f"{name}{suffix}": value for value, name in found.items()}


def made_again(view: View, backward: Backward) -> tuple[int, ...]:
    """Returns the ops that compute the weights, and what is used of them, again."""
    gradient = view.ops[backward.softmax]
    weights = one(gradient.input("Out"))
    softmax = view.maker[weights]
    found = product_of(view, one(view.ops[softmax].input("X")))
    assert found is not None, "the weights were made again"
    behind = [i for i in view.readers[str(gradient.attrs[SAVED])] if view.ops[i].type == "assign"]
    # From what the last product takes back to the weights.
    value = one(view.ops[backward.mixed].input("X"))
    while value != weights:
        behind.append(view.maker[value])
        value = one(view.ops[behind[-1]].input("X"))
    return (found[0], *found[1], softmax, *behind)


def mask_of(view: View, indices: Sequence[int], chain: str) -> str | None:
    """Returns the operand beside the scores of the last add in front of the softmax."""
    adds = [view.ops[i] for i in indices if view.ops[i].type == "elementwise_add"]
    made = {v for i in indices for v in view.ops[i].writes()} | {chain}
    return next((v for op in adds for v in op.contents() if v not in made), None)


def _fuse(
    view: View, forward: Forward, saving: tuple[int, ...], front: Mapping[str, Layout], back: Mapping[str, Layout]
) -> Fused:
    product, mixed = view.ops[forward.product], view.ops[forward.mixed]
    given = {"Q": one(product.input("X")), "K": one(product.input("Y")), "V": one(mixed.input("Y"))}
    mask = mask_of(view, forward.behind_scores, one(product.output("Out")))
    slots = {**_joined(given, front), "Mask": mask}
    result = one(mixed.output("Out"))
    outputs: dict[str, str | tuple[str, ...] | None] = {"Out": back[result].value if result in back else result}
    if saving:
        outputs["SoftmaxAux"] = one(view.ops[saving[-1]].output("Out"))
    attrs = _attributes(view, forward.behind_scores, forward.behind_weights)
    return Fused("fused_dot_product_attention", slots, outputs, attrs, notes=mask_notes(view, forward))


def mask_notes(view: View, forward: Forward) -> tuple[tuple[tuple[int, int], MatchRejected], ...]:
    """Returns what a mask lacks to be causal; it concerns the op that adds it, and the softmax."""
    return tuple(
        ((i, forward.softmax), MatchRejected("MASK_FINITE", value=f"{view.ops[i].attrs[FINITE]:g}"))
        for i in forward.behind_scores
        if FINITE in view.ops[i].attrs
    )


def _attributes(view: View, scores: Sequence[int], weights: Sequence[int]) -> dict[str, object]:
    drops = [view.ops[i].attrs for i in weights if view.ops[i].type == "dropout"]
    causal = any(CAUSAL in view.ops[i].attrs for i in scores)
    return {"dropout_probability": drops[0]["dropout_prob"] if drops else 0.0, "is_causal_masking": causal}


def _fuse_gradient(
    view: View, backward: Backward, again: tuple[int, ...], front: Mapping[str, Layout], back: Mapping[str, Layout]
) -> Fused:
    softmax, mixed, product = (view.ops[i] for i in (backward.softmax, backward.mixed, backward.product))
    arriving = one(mixed.input("Out@GRAD"))
    given = {"Q": one(product.input("X")), "K": one(product.input("Y")), "V": one(mixed.input("Y"))}
    slots = {
        "Out@GRAD": front[arriving].value if arriving in front else arriving, **_joined(given, front),
        "Out": str(softmax.attrs[RESULT]), "SoftmaxAux": str(softmax.attrs[SAVED]),
    }  # fmt: skip
    made = {
        "Q": pattern_one(product.output("X@GRAD")), "K": pattern_one(product.output("Y@GRAD")),
        "V": pattern_one(mixed.output("Y@GRAD")),
    }  # fmt: skip
    return Fused(
        "fused_dot_product_attention_grad", slots, _joined(made, back, "@GRAD"), _attributes(view, again, again)
    )


# ----------------------------------------------------------------------------------------------------------------- kernel
def _saved_by(ops: Sequence[FrozenOp], scores: str) -> list[FrozenOp]:
    """Returns the ops that save the sums of powers of scores, among those behind a softmax."""
    made, found = {scores}, list[FrozenOp]()
    for op in ops:
        if made & {*op.reads()}:
            made.update(op.writes())
            found.append(op)
    return found


def core_kernel(
    body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str], summing: Sequence[FrozenOp] = ()
) -> Kernel:
    """Returns the kernel of an attention or of its gradient, from the ops of a match in the program's order.

    Args:
        body: The ops.
        metas: Metadata of all values.
        needed: Values that are written to memory.
        summing: Gradients of adds of biases that the gradient's kernel is to compute, too: sums over rows of what it writes.
    """
    body = for_kernel(body)
    # The check of a module that runs alone computes the moves, which the kernel does without.
    whole, moved = body, Moved(body, metas)
    if not any(SAVED in op.attrs for op in body):
        # In the program's order: queries times keys come first.
        product, mixed = (op for op in body if op.type == "matmul_v2")
        layouts = {one(e): moved.read(one(e)) for e in (product.input("X"), product.input("Y"), mixed.input("Y"))}
        layouts[one(mixed.output("Out"))] = moved.written(one(mixed.output("Out")))
        body = moved.others
        at = next(i for i, op in enumerate(body) if op.type == "softmax")
        # Weights have the softmax's result, what is saved of each row has not.
        saving = _saved_by(body[at + 1 :], one(body[at].input("X")))
        others = [op for op in body if op not in (product, mixed, body[at]) and op not in saving]
        scores = tuple(op for op in others if body.index(op) < at)
        found = Attention(product, scores, body[at], tuple(op for op in others if op not in scores))
        lse = one(saving[-1].output("Out")) if saving else None
        return attention_kernel(found, mixed, metas, lse, saving, layouts, whole)
    # Backwards: the gradient of the last product comes first.
    first_gradient, last_gradient = (op for op in body if op.type == "matmul_v2_grad")
    read = (last_gradient.input("X"), last_gradient.input("Y"), *map(first_gradient.input, ("Y", "Out@GRAD")))
    layouts = {one(e): moved.read(one(e)) for e in read}
    made_here = (*map(last_gradient.output, ("X@GRAD", "Y@GRAD")), first_gradient.output("Y@GRAD"))
    layouts |= {e: moved.written(e) for e in made_here if isinstance(e, str)}
    body = moved.others
    softmax = next(op for op in body if SAVED in op.attrs)
    saved = str(softmax.attrs[SAVED])
    # An assignment says that this number is read, no more.
    body = [op for op in body if op.type != "assign" or op.input("X") != saved]
    at = body.index(softmax)
    arriving = metas[one(first_gradient.input("Out@GRAD"))].shape
    result = Layout(str(softmax.attrs[RESULT]), arriving, softmax.attrs[STRIDES])
    first = next(i for i, op in enumerate(body) if op.type == "matmul_v2_grad")
    last = next(i for i, op in enumerate(body) if op.type == "softmax")
    again = Attention(body[0], tuple(body[1:last]), body[last], tuple(body[last + 1 : first]))
    biases = {one(op.input("Out@GRAD")): one(op.output("Y@GRAD")) for op in summing}
    gradient = Gradient(body[first], tuple(body[first + 1 : at]), softmax, tuple(body[at + 1 : -1]), body[-1])
    return attention_grad_kernel(again, gradient, metas, needed, saved, result, layouts, [*whole, *summing], biases)


_CHAIN = Chain(
    (PRODUCT, SOFTMAX, PRODUCT),
    "a softmax over the last axis stands between a product with transposed keys and one with values, all of one type",
)
FUSION = Fusion(
    "dot_product_attention",
    "fuse_dot_product_attention",
    Proposals(_propose, _CHAIN),
    kernel=core_kernel,
    prepare=prepared,
)
