"""Fuses whole multi-head attention blocks: the products that make queries, keys and values, the attention, and what follows it.

A block is ``norm(x + dropout(linear(attention(linear(norm(x))))))``, in which each norm, dropout and bias and the sum may be
missing. Its kernel runs those of its parts one after the other: products, the attention, the product of its result, and a
kernel along rows for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tstatic.fusion.attention.block import attention_block_kernel, backward_core, forward_core
from tstatic.fusion.attention.dot_product_attention import (
    SAVED,
    computed_again,
    mask_notes,
    mask_of,
    saving_of,
    with_marks,
)
from tstatic.fusion.attention.search import OTHER_AXIS, Forward, forward_of, gradients_of, operands_of, whole_of
from tstatic.fusion.codegen.define import works_on_rows
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, refuse
from tstatic.fusion.engine.chain import PRODUCT, SOFTMAX, Chain
from tstatic.fusion.engine.pattern import one
from tstatic.fusion.engine.product_blocks import (
    CHAIN,
    LEFT_TO_ROWS,
    OTHER_AXES,
    ROWS_SWITCH,
    Found,
    adds_bias,
    along_last,
    arriving_gradient,
    behind_last,
    bias_grad_of,
    bias_gradient,
    bias_of,
    gradient_before,
    gradient_behind,
    has_expressions,
    indices_of,
    is_read_by,
    last_result,
    left_to_rows,
    maker_of,
    one_shorter,
    outer_use,
    output_of,
    refused,
    value_of,
    without,
)
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients, pass_on_to_products
from tstatic.fusion.rewrites.moves import Ends, at_back, refusal
from tstatic.fusion.rewrites.redrawn import draw_again
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import GRAD
from tstatic.ir.types import Meta

FIRST = ("1", "1k", "1v")
"""What the names of the products in front of the attention end with, and those of their biases: one product for all of queries,
keys and values, or one for each."""


# --------------------------------------------------------------------------------------------------------------- forward
def _proposals(view: View) -> Iterator[Proposal]:
    """Yields blocks and their gradients, each from its longest form to its shortest one."""
    for index in view.of_type("softmax"):
        if not all(v in view.metas for v in view.ops[index].reads()):
            continue
        forward = forward_of(view, index)
        if forward is not None:
            yield from _forward(view, forward)
        elif (almost := forward_of(view, index, any_axis=True)) is not None:
            yield almost.indices, partial(refuse, OTHER_AXIS)
    for index in view.of_type("softmax_grad"):
        if SAVED in view.ops[index].attrs:
            yield from _backward(view, index)


def _named(indices: set[int]) -> Found:
    return {f"core{i}": i for i in indices}


def _projection(view: View, value: str) -> tuple[int, int | None] | None:
    """Returns the product that makes a value, and the add of its bias."""
    bias = maker_of(view, value, "Out", "elementwise_add")
    if bias is not None:
        for slot in ("X", "Y"):
            product = view.maker.get(one(view.ops[bias].input(slot)) or "")
            if product is not None and _is_plain_product(view.ops[product]):
                made = output_of(view.ops[product], "Out")
                return (product, bias) if adds_bias(view, made) == bias else None
        return None
    product = view.maker.get(value)
    return (product, None) if product is not None and _is_plain_product(view.ops[product]) else None


def _is_plain_product(op: FrozenOp) -> bool:
    return is_product(op.definition) and not op.body and not op.attrs.get("trans_x", False)


def _block(
    view: View, forward: Forward, core: set[int], front: Ends, back: Ends
) -> tuple[Found, MatchRejected | None] | None:
    """Returns the products, their biases and the attention between them, or what is wrong with them; ``None``: no block."""
    product, mixed = view.ops[forward.product], view.ops[forward.mixed]
    operands = [one(e) or "" for e in (product.input("X"), product.input("Y"), mixed.input("Y"))]
    # One product may make all three, which then lie in one value.
    sources = dict.fromkeys(front.layouts[v].value for v in operands)
    found = _named({*core, *front.indices, *back.indices})
    made = [_projection(view, v) for v in sources]
    if all(pair is None for pair in made):
        return (found, front.left[0][1]) if front.left else None
    for name, pair in zip(FIRST, made, strict=False):
        if pair is None:
            reason = "queries, keys and values are not all made by a product, or are not moved as heads"
            # A move that was not taken in says more than that a product is missing.
            left = front.left[0][1] if front.left else MatchRejected("NO_PATTERN", reason, "make each by fc or Linear")
            return found, left
        found[f"linear{name}"] = pair[0]
        if pair[1] is not None:
            found[f"bias{name}"] = pair[1]
    inputs = {one(view.ops[pair[0]].input("X")) for pair in made if pair is not None}
    if len(inputs) > 1:
        reason = "queries, keys and values are made of different inputs"
        return found, MatchRejected("NO_PATTERN", reason, "attend to the block's own input")
    end = back.layouts[one(mixed.output("Out")) or ""].value
    last = next(
        (i for i in view.readers.get(end, ()) if _is_plain_product(view.ops[i]) and view.ops[i].input("X") == end), None
    )
    if last is None:
        reason = "no product reads the heads, side by side again"
        left = (
            back.left[0][1] if back.left else MatchRejected("NO_PATTERN", reason, "join them, and put a product behind")
        )
        return found, left
    return {**found, "linear2": last}, None


def _with_gradient(view: View, forward: Forward) -> tuple[tuple[Found, MatchRejected | None] | None, bool]:
    """Returns the block as it is when its gradient makes the weights again, and whether it has a gradient that does."""
    backward, unfit = whole_of(view, forward)
    inside = {*forward.indices}
    if backward is not None:
        inside |= {*backward.indices}
        inside |= at_back(view, gradients_of(view, backward), inside, scaled=True).indices
    product, mixed = view.ops[forward.product], view.ops[forward.mixed]
    back = at_back(view, [one(mixed.output("Out")) or ""], forward.indices)
    made = _block(view, forward, {*forward.indices}, operands_of(view, product, mixed, (*inside,)), back)
    return made, backward is not None and unfit is None


def _forward(view: View, forward: Forward) -> Iterator[Proposal]:
    saving = saving_of(view, one(view.ops[forward.softmax].input("X")) or "")
    made = _block(view, forward, *forward_core(view, forward, saving)) if saving else _with_gradient(view, forward)[0]
    if made is None:
        return
    found, unfit = made
    if unfit is None and not saving:
        unfit = whole_of(view, forward)[1]
    if unfit is not None:
        yield indices_of(found), partial(refuse, unfit)
        return
    block_input = one(view.ops[found["linear1"]].input("X"))
    norm = maker_of(view, block_input, "Y", "layer_norm")
    rest = behind_last(view, found)
    if norm is not None and not is_read_by(view, rest.get("residual"), block_input):
        found = {"norm1": norm, **found}
    found |= rest
    for name in ("norm2", "norm1"):
        if name in found and not along_last(view, view.ops[found[name]]):
            yield refused(found, "ATTRIBUTE", OTHER_AXES, "set begin_norm_axis to the last axis")
            found = without(found, name)
    if "norm1" in found and (reason := _outer_use(view, found)) is not None:
        yield indices_of(found), partial(refuse, reason)
        found = without(found, "norm1")
    if "residual" in found:
        source = one(view.ops[found.get("norm1", found["linear1"])].input("X"))
        if not is_read_by(view, found["residual"], source):
            yield refused(
                found, "ATTRIBUTE", "what is added is not the block's input", "add the value that the block reads"
            )
            found = without(found, "residual", "norm2")
    if ROWS_SWITCH in view.later:
        shorter = left_to_rows(view, found)
        if shorter != found:
            yield refused(found, "ROWS_KERNEL", LEFT_TO_ROWS)
            found = shorter
    order = ("norm2", "residual", "dropout2", "norm1", "bias2")
    yield from one_shorter(view, found, order, partial(_fused, forward))


def _outer_use(view: View, found: Found) -> MatchRejected | None:
    """Returns why the normalised input has to stay in memory for others than the products."""
    reasons = [outer_use(view, found, "norm1", f"linear{n}") for n in FIRST if f"linear{n}" in found]
    products = {found[f"linear{n}"] for n in FIRST if f"linear{n}" in found}
    readers = view.readers[output_of(view.ops[found["norm1"]], "Y") or ""]
    # Gradients read the normalised input wherever it is made: it stays in memory for them.
    others = [i for i in readers if i not in products and not view.ops[i].type.endswith("_grad")]
    return reasons[0] if others or (reasons[0] is not None and reasons[0].code != "EXTRA_READER") else None


def _values(view: View, found: Found, kind: str, slot: str) -> str | tuple[str, ...] | None:
    """Returns what the products, or the adds of their biases, have in a slot: one value, or one of each."""
    names = [f"{kind}{n}" for n in FIRST if f"{kind}{n}" in found]
    if kind == "bias" and slot in ("bias", f"bias{GRAD}"):
        take = bias_of if slot == "bias" else bias_grad_of
        values = [v for n in names if (v := take(view, found, n)) is not None]
    else:
        values = [v for n in names if (v := value_of(view, found, n, slot)) is not None]
    return (values[0] if len(values) == 1 else tuple(values)) if values else None


def _attrs(view: View, found: Found) -> dict[str, object]:
    """Returns what Paddle's op has as attributes."""
    ops = [view.ops[i] for n, i in found.items() if n.startswith("core")]
    product = next(op for op in ops if op.type in ("matmul_v2", "matmul_v2_grad"))
    heads = view.metas[one(product.input("X")) or ""].shape
    attrs: dict[str, object] = {
        "pre_layer_norm": "norm1" in found,
        # The weight is a layer's, [inputs, 3 * outputs].
        "transpose_qkv_wb": True,
        # [..., heads, rows, depth]; without an axis of heads there is one.
        "num_heads": heads[-3] if len(heads) > 3 else 1,
        "add_residual": "residual" in found,
        # Paddle's mark of a block that is not cut over devices.
        "ring_id": -1,
    }
    for number, name in (("1", "epsilon"), ("2", "ln_epsilon")):
        if f"norm{number}" in found:
            attrs[name] = view.ops[found[f"norm{number}"]].attrs["epsilon"]
    inner = next((op for op in ops if op.type == "dropout"), None)
    outer = view.ops[found["dropout2"]] if "dropout2" in found else None
    for prefix, test, drop in (("attn_dropout_", "attn_dropout_is_test", inner), ("dropout_", "is_test", outer)):
        if drop is None:
            continue
        attrs[f"{prefix}rate"] = drop.attrs["dropout_prob"]
        attrs[f"{prefix}implementation"] = drop.attrs["dropout_implementation"]
        attrs[test] = drop.attrs["is_test"]
        for own in ("seed", "fix_seed"):
            if own in drop.attrs:
                attrs[f"{prefix}{own}"] = drop.attrs[own]
    return attrs


def _fused(forward: Forward, view: View, found: Found) -> Fused:
    get = partial(value_of, view, found)
    product = view.ops[forward.product]
    saving = saving_of(view, one(view.ops[forward.softmax].input("X")) or "")
    _, front, _ = forward_core(view, forward, saving)
    operands = [one(e) or "" for e in (product.input("X"), product.input("Y"), view.ops[forward.mixed].input("Y"))]
    sources = tuple(dict.fromkeys(front.layouts[v].value for v in operands))
    ins = {
        "X": get("norm1" if "norm1" in found else "linear1", "X"),
        "LnScale": get("norm1", "Scale"), "LnBias": get("norm1", "Bias"),
        "QKVW": _values(view, found, "linear", "Y"), "QKVBias": _values(view, found, "bias", "bias"),
        "SrcMask": mask_of(view, forward.behind_scores, one(product.output("Out")) or ""),
        "OutLinearW": get("linear2", "Y"), "OutLinearBias": bias_of(view, found, "bias2"),
        "Ln2Scale": get("norm2", "Scale"), "Ln2Bias": get("norm2", "Bias"),
    }  # fmt: skip
    outs: dict[str, str | tuple[str, ...] | None] = {
        "LnMean": get("norm1", "Mean"), "LnVariance": get("norm1", "Variance"), "LnOut": get("norm1", "Y"),
        "QKVBiasOut": sources[0] if len(sources) == 1 else sources,
        "SoftmaxAux": output_of(view.ops[saving[-1]], "Out") if saving else None,
        "FMHAOut": get("linear2", "X"),
        "DropoutMaskOut": get("dropout2", "Mask"), "BiasDropoutResidualOut": get("norm2", "X"),
        "Ln2Mean": get("norm2", "Mean"), "Ln2Variance": get("norm2", "Variance"),
        "Y": last_result(view, found, CHAIN),
    }  # fmt: skip
    inner = ("LnOut", "BiasDropoutResidualOut")
    return Fused("fused_attention", ins, outs, _attrs(view, found), inner=inner, notes=mask_notes(view, forward))


# -------------------------------------------------------------------------------------------------------------- backward
def _backward(view: View, softmax: int) -> Iterator[Proposal]:
    """Yields the gradient of the block around the gradient of a softmax."""
    core, front, back, arriving = backward_core(view, softmax)
    found = _named({*core, *front.indices, *back.indices})
    source = front.layouts[arriving].value
    last = view.maker.get(source)
    if last is None or not is_product_gradient(view.ops[last].definition) or view.ops[last].body:
        yield from _not_whole(view, found, source, front)
        return
    found["linear2"] = last
    for name, value in zip(FIRST, dict.fromkeys(at.value for at in back.layouts.values()), strict=False):
        bias = bias_gradient(view, value)
        if bias is not None:
            found[f"bias{name}"] = bias
        product = next((i for i in view.readers.get(value, ()) if _takes(view.ops[i], value)), None)
        if product is None:
            yield from _not_whole(view, found, value, back)
            return
        found[f"linear{name}"] = product
    found |= gradient_before(view, found)
    found |= _gradients_behind(view, found)
    for name, others in (("norm2", ("sum2",)), ("norm1", ("sum1",))):
        if name in found and not along_last(view, view.ops[found[name]]):
            yield refused(found, "ATTRIBUTE", OTHER_AXES, "set begin_norm_axis to the last axis")
            found = without(found, name, *others)
    if ROWS_SWITCH in view.later:
        shorter = without(found, "norm1", "sum1") if "norm1" in found else found
        total = output_of(view.ops[shorter["sum1"]], "Out") if "sum1" in shorter else None
        if any(works_on_rows(view.ops[i].definition) for i in view.readers.get(total or "", ())):
            shorter = without(shorter, "sum1")
        maker = view.maker.get(arriving_gradient(view, found) or "")
        if maker is not None and "sum2" not in found and has_expressions(view.ops[maker]):
            # Whatever makes the gradient that arrives has expressions, and can be one kernel with these.
            shorter = without(shorter, "norm2", "dropout2")
        if shorter != found:
            yield refused(found, "ROWS_KERNEL", LEFT_TO_ROWS)
            found = shorter
    if not {"norm2", "dropout2"} & found.keys():
        # Who makes the gradient that arrives sums it, too, in the same pass.
        found = without(found, "bias2")
    order = ("sum1", "norm1", "sumx", "sum2", "norm2")
    fused = partial(_fused_gradient, softmax)
    yield from one_shorter(view, found, order, fused)
    found = without(found, *order)
    if "dropout2" in found:
        found = without(found, "dropout2", "bias2")
        yield indices_of(found), partial(fused, view, found)


def _not_whole(view: View, found: Found, value: str, ends: Ends) -> Iterator[Proposal]:
    """Yields why the gradient of an attention does not reach a product, if one that is needed elsewhere is the reason."""
    adds = [view.ops[i] for i in view.readers.get(value, ()) if view.ops[i].type == "elementwise_add_grad"]
    handed = [v for op in adds if (v := one(op.output(f"X{GRAD}"))) is not None]
    products = {i for v in handed for i in view.readers.get(v, ()) if _takes(view.ops[i], v)}
    why = next(filter(None, (*(why for _, why in ends.left), *(refusal(view, v, products) for v in handed))), None)
    if why is not None:
        yield indices_of(found), partial(refuse, why)


def _takes(op: FrozenOp, value: str) -> bool:
    return is_product_gradient(op.definition) and not op.body and op.input(f"Out{GRAD}") == value


def _gradients_behind(view: View, found: Found) -> Found:
    """Returns the ops behind the gradients of the first products: one sum where there are several."""
    # One product makes all three: its gradient needs no sum.
    if "linear1k" not in found:
        return gradient_behind(view, found)
    products = [found[f"linear{n}"] for n in FIRST if f"linear{n}" in found]
    values = {v for i in products if (v := output_of(view.ops[i], f"X{GRAD}")) is not None}
    sums = [i for v in values for i in view.readers.get(v, ()) if view.ops[i].type == "sum" and not view.ops[i].body]
    # A sum that has others beside these, or not all of them, is not the block's.
    if not sums or not values <= {*view.ops[sums[0]].contents()}:
        return {}
    more = {"sumx": sums[0]}
    value = output_of(view.ops[sums[0]], "Out")
    norm = next(
        (i for i in view.readers.get(value or "", ()) if view.ops[i].type == "layer_norm_grad"
         and view.ops[i].input(f"Y{GRAD}") == value and not view.ops[i].body), None,
    )  # fmt: skip
    if norm is not None:
        more["norm1"] = norm
        value = output_of(view.ops[norm], f"X{GRAD}")
        for index in view.readers.get(value or "", ()):
            if view.ops[index].type == "sum" and not view.ops[index].body:
                more["sum1"] = index
                break
    return more


def _fused_gradient(softmax: int, view: View, found: Found) -> Fused:
    get = partial(value_of, view, found)
    _, front, back, arriving = backward_core(view, softmax)
    op = view.ops[softmax]
    sources = tuple(dict.fromkeys(at.value for v, at in front.layouts.items() if v != arriving))
    ins: dict[str, str | tuple[str, ...] | None] = {
        f"Y{GRAD}": arriving_gradient(view, found),
        "X": get("norm1" if "norm1" in found else "linear1", "X"),
        "LnScale": get("norm1", "Scale"), "LnBias": get("norm1", "Bias"),
        "LnMean": get("norm1", "Mean"), "LnVariance": get("norm1", "Variance"),
        "LnOut": get("linear1", "X") if "norm1" in found else None,
        "QKVW": _values(view, found, "linear", "Y"),
        "QKVBiasOut": sources[0] if len(sources) == 1 else sources,
        "SoftmaxAux": str(op.attrs[SAVED]), "FMHAOut": get("linear2", "X"),
        "OutLinearW": get("linear2", "Y"),
        "BiasDropoutResidualOut": get("norm2", "X"), "DropoutMaskOut": get("dropout2", "Mask"),
        "Ln2Scale": get("norm2", "Scale"), "Ln2Bias": get("norm2", "Bias"),
        "Ln2Mean": get("norm2", "Mean"), "Ln2Variance": get("norm2", "Variance"),
    }  # fmt: skip
    outs: dict[str, str | tuple[str, ...] | None] = {
        f"X{GRAD}": get("sum1", "Out") or get("norm1", f"X{GRAD}") or get("sumx", "Out")
        or _values(view, found, "linear", f"X{GRAD}"),
        f"LnScale{GRAD}": get("norm1", f"Scale{GRAD}"), f"LnBias{GRAD}": get("norm1", f"Bias{GRAD}"),
        f"QKVW{GRAD}": _values(view, found, "linear", f"Y{GRAD}"),
        f"QKVBias{GRAD}": _values(view, found, "bias", f"bias{GRAD}"),
        # What a gradient of a bias outside of the match reads.
        f"QKVBiasOut{GRAD}": tuple(dict.fromkeys(at.value for at in back.layouts.values())),
        f"OutLinearW{GRAD}": get("linear2", f"Y{GRAD}"), f"OutLinearBias{GRAD}": bias_grad_of(view, found, "bias2"),
        f"Ln2Scale{GRAD}": get("norm2", f"Scale{GRAD}"), f"Ln2Bias{GRAD}": get("norm2", f"Bias{GRAD}"),
        # The residual's gradient, for a sum that is not part of the match.
        f"BiasDropoutResidualOut{GRAD}": get("norm2", f"X{GRAD}"),
    }  # fmt: skip
    attrs = _attrs(view, found)
    # A residual's gradient is one of the block's input's, which a sum adds.
    attrs["add_residual"] = "sum1" in found
    return Fused("fused_attention_grad", ins, outs, attrs)


# ------------------------------------------------------------------------------------------------------------ preparation
def _prepare(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Lets gradients of blocks draw masks again and make weights again, and products read what arrives at adds of biases."""
    if not any(op.type == "softmax" for op in program.ops):
        return program
    # Blocks are found in the program as it will be; only they are changed.
    view = View(eliminate_identity_gradients(draw_again(program, metas), metas), metas)
    drawn, adds, blocks = set[int](), set[int](), set[int]()
    for index in view.of_type("softmax"):
        forward = forward_of(view, index) if all(v in metas for v in view.ops[index].reads()) else None
        # The block as it is once its gradient makes the weights again: the rewriting below brings that about.
        made, trained = _with_gradient(view, forward) if forward is not None else (None, False)
        if forward is None or made is None:
            continue
        # Masks would hide the block from the search, and nobody would learn why it is not fused.
        drawn |= {view.ops[i].position for i in forward.behind_weights}
        if trained and "linear2" in made[0]:
            found = {**made[0], **behind_last(view, made[0])}
            # A gradient has the position of its forward op.
            # Without an outer dropout that is the softmax, which draws nothing.
            drawn.add(view.ops[found.get("dropout2", index)].position)
            adds |= {view.ops[i].position for n, i in found.items() if view.ops[i].type == "elementwise_add"}
            blocks.add(view.ops[index].position)
    program = draw_again(program, metas, {i for i, op in enumerate(program.ops) if op.position in drawn})
    if not blocks:
        return with_marks(program, metas)
    gradients = {i for i, op in enumerate(program.ops) if op.type == "elementwise_add_grad" and op.position in adds}
    program = pass_on_to_products(program, metas, gradients)
    return computed_again(program, metas, lambda v, forward: v.ops[forward.softmax].position in blocks)


_CHAIN = Chain(
    (PRODUCT, PRODUCT, SOFTMAX, PRODUCT, PRODUCT),
    "queries, keys and values are products of one input, in heads, and the heads are put together before the product behind",
)
FUSION = Fusion(
    "attention", "fused_attention", Proposals(_proposals, _CHAIN), kernel=attention_block_kernel, prepare=_prepare
)
