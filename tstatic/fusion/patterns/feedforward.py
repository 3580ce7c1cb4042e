"""Fuses feed-forward blocks: two matrix products with an activation between them, and what stands around these.

A block is ``norm(x + dropout(linear(dropout(act(linear(norm(x)))))))``, in which each norm, dropout and bias and the sum may be
missing. Its kernel runs those of its parts one after the other: a product with bias, activation and dropout behind it, the
other product, and a kernel along rows for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tstatic.fusion.codegen.define import works_on_rows
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient
from tstatic.fusion.codegen.text.composite import parts_of
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, refuse
from tstatic.fusion.engine.chain import ACTIVATION, PRODUCT, Chain
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
    passed_on,
    reader_of,
    refused,
    value_of,
    without,
)
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.in_turn import kernel_in_turn
from tstatic.fusion.rewrites.identity_gradients import pass_on_to_products
from tstatic.fusion.rewrites.redrawn import draw_again
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import GRAD, op_def
from tstatic.ir.traits import Activation
from tstatic.ir.types import Meta


# ---------------------------------------------------------------------------------------------------------- the kernel
def feed_forward_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a block, or of its gradient: that of each part, one after the other.

    Raises:
        CodegenUnsupported: If a part has no kernel.
    """
    return kernel_in_turn(parts_of(body, metas), body, metas, needed)


# ------------------------------------------------------------------------------------------------------------- proposals
def blocks(view: View) -> Iterator[Proposal]:
    """Yields blocks and their gradients, each from its longest form to its shortest one."""
    for index, op in enumerate(view.ops):
        if op.body:
            continue
        if is_product(op.definition):
            yield from _forward(view, index)
        elif is_product_gradient(op.definition):
            yield from _backward(view, index)


def _drops_alike(view: View, found: Found) -> bool:
    dropouts = [view.ops[found[n]] for n in ("dropout1", "dropout2") if n in found]
    return len({bool(op.attrs["is_test"]) for op in dropouts}) < 2


_OTHER_STATES = "one dropout is in training and the other in inference"


# --------------------------------------------------------------------------------------------------------------- forward


def _forward(view: View, first: int) -> Iterator[Proposal]:
    """Yields the block whose first product an op is."""
    found = _core(view, first)
    if found is None:
        return
    if "act" not in found:
        yield refused(
            found, "NO_PATTERN", "there is no activation between the two matrix products", "put an activation there"
        )
        return
    block_input = one(view.ops[first].input("X"))
    norm = maker_of(view, block_input, "Y", "layer_norm")
    rest = behind_last(view, found)
    # A residual that adds the norm's own result shows that the norm ends the block before.
    if norm is not None and not is_read_by(view, rest.get("residual"), block_input):
        found = {"norm1": norm, **found}
    found |= rest
    if not _drops_alike(view, found):
        yield refused(found, "ATTRIBUTE", _OTHER_STATES, "give both the same is_test")
        return
    for name in ("norm2", "norm1"):
        if name in found and not along_last(view, view.ops[found[name]]):
            yield refused(found, "ATTRIBUTE", OTHER_AXES, "set begin_norm_axis to the last axis")
            found = without(found, name)
    if "norm1" in found and (reason := outer_use(view, found, "norm1", "linear1")) is not None:
        yield indices_of(found), partial(refuse, reason)
        found = without(found, "norm1")
    if "residual" in found:
        source = one(view.ops[found.get("norm1", first)].input("X"))
        if not is_read_by(view, found["residual"], source):
            yield refused(
                found, "ATTRIBUTE", "what is added is not the block's input", "add the value that the block reads"
            )
            found = without(found, "residual", "norm2")
    # The compiler comes later, and does these in passes over rows that it makes anyway.
    if ROWS_SWITCH in view.later:
        shorter = left_to_rows(view, found)
        if shorter != found:
            yield refused(found, "ROWS_KERNEL", LEFT_TO_ROWS)
            found = shorter
    yield from one_shorter(view, found, ("norm2", "residual", "dropout2", "norm1", "bias2"), _fused)


def _core(view: View, first: int) -> Found | None:
    """Returns the two products and what stands between them; ``None`` where no second one follows."""
    found = {"linear1": first}
    value = output_of(view.ops[first], "Out")
    bias = adds_bias(view, value)
    if bias is not None:
        found["bias1"], value = bias, output_of(view.ops[bias], "Out")
    act = next((i for i in view.readers.get(value or "", ()) if view.ops[i].definition.has(Activation)), None)
    if act is not None:
        found["act"], value = act, output_of(view.ops[act], "Out")
        dropout = reader_of(view, value, "X", "dropout")
        if dropout is not None:
            found["dropout1"], value = dropout, output_of(view.ops[dropout], "Out")
    second = next(
        (i for i in view.readers.get(value or "", ()) if is_product(view.ops[i].definition) and not view.ops[i].body),
        None,
    )
    # The value as a weight, or as both operands, is not the input of a second layer.
    if second is None or view.ops[second].input("X") != value or view.ops[second].input("Y") == value:
        return None
    found["linear2"] = second
    return found


def _attrs(view: View, found: Found) -> dict[str, object]:
    """Returns what Paddle's op has as attributes."""
    act = view.ops[found["act"]]
    attrs: dict[str, object] = {
        "pre_layer_norm": "norm1" in found,
        "act_method": act.type.removesuffix("_grad"),
        "add_residual": "residual" in found,
        # A block on one device: parallel layers have a ring.
        "ring_id": -1,
    }
    if "approximate" in act.attrs:
        attrs["approximate"] = act.attrs["approximate"]
    for number in (1, 2):
        if f"norm{number}" in found:
            attrs[f"ln{number}_epsilon"] = view.ops[found[f"norm{number}"]].attrs["epsilon"]
        if f"dropout{number}" in found:
            own = view.ops[found[f"dropout{number}"]].attrs
            attrs[f"dropout{number}_rate"] = own["dropout_prob"]
            attrs[f"dropout{number}_implementation"] = own["dropout_implementation"]
            attrs["is_test"] = own["is_test"]
            for name in ("seed", "fix_seed"):
                if name in own:
                    attrs[f"dropout{number}_{name}"] = own[name]
    return attrs


def _fused(view: View, found: Found) -> Fused:
    get = partial(value_of, view, found)
    ins = {
        "X": get("norm1" if "norm1" in found else "linear1", "X"),
        "Linear1Weight": get("linear1", "Y"), "Linear1Bias": bias_of(view, found, "bias1"),
        "Linear2Weight": get("linear2", "Y"), "Linear2Bias": bias_of(view, found, "bias2"),
        "Ln1Scale": get("norm1", "Scale"), "Ln1Bias": get("norm1", "Bias"),
        "Ln2Scale": get("norm2", "Scale"), "Ln2Bias": get("norm2", "Bias"),
    }  # fmt: skip
    outs = {
        "Out": last_result(view, found, CHAIN),
        "Dropout1Mask": get("dropout1", "Mask"), "Dropout2Mask": get("dropout2", "Mask"),
        "Ln1Mean": get("norm1", "Mean"), "Ln1Variance": get("norm1", "Variance"),
        "Ln2Mean": get("norm2", "Mean"), "Ln2Variance": get("norm2", "Variance"),
        "Linear1Out": get("act", "X"), "Ln1Out": get("norm1", "Y"), "Dropout1Out": get("linear2", "X"),
        "Dropout2Out": get("norm2", "X"),
    }  # fmt: skip
    inner = ("Linear1Out", "Ln1Out", "Dropout1Out", "Dropout2Out")
    return Fused("fused_feedforward", ins, outs, _attrs(view, found), inner=inner)


# -------------------------------------------------------------------------------------------------------------- backward
def _backward(view: View, second: int) -> Iterator[Proposal]:
    """Yields the gradient of a block, from the op that makes the gradients of its second product."""
    found = _gradient_core(view, second)
    if found is None:
        return
    found |= gradient_behind(view, found) | gradient_before(view, found)
    if not _drops_alike(view, found):
        yield refused(found, "ATTRIBUTE", _OTHER_STATES, "give both the same is_test")
        return
    for name, others in (("norm2", ("sum2",)), ("norm1", ("sum1",))):
        if name in found and not along_last(view, view.ops[found[name]]):
            yield refused(found, "ATTRIBUTE", OTHER_AXES, "set begin_norm_axis to the last axis")
            found = without(found, name, *others)
    if ROWS_SWITCH in view.later:
        # The compiler makes the norm's gradient together with its neighbours.
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
    yield from one_shorter(view, found, ("sum1", "norm1", "sum2", "norm2"), _fused_gradient)
    found = without(found, "sum1", "norm1", "sum2", "norm2")
    if "dropout2" in found:
        # Last, what stands between the products alone.
        found = without(found, "dropout2", "bias2")
        yield indices_of(found), partial(_fused_gradient, view, found)


def _gradient_core(view: View, second: int) -> Found | None:
    """Returns the gradients of the two products and of what stands between them."""
    found = {"linear2": second}
    value = output_of(view.ops[second], f"X{GRAD}")
    dropout = reader_of(view, value, f"Out{GRAD}", "dropout_grad")
    if dropout is not None:
        found["dropout1"], value = dropout, output_of(view.ops[dropout], f"X{GRAD}")
    act = reader_of(view, value, f"Out{GRAD}")
    if act is None or not _is_activation_gradient(view.ops[act]):
        return None
    found["act"], value = act, output_of(view.ops[act], f"X{GRAD}")
    bias = bias_gradient(view, value)
    if bias is not None:
        found["bias1"] = bias
        # Where the add's identity gradient is gone, the product reads what arrives.
        value = passed_on(view.ops[bias]) or value
    # A product that reads the gradient as a factor is not the one: it has to arrive as the gradient of its result.
    first = next(
        (
            i
            for i in view.readers.get(value or "", ())
            if is_product_gradient(view.ops[i].definition) and view.ops[i].input(f"Out{GRAD}") == value
        ),
        None,
    )
    return None if first is None else {**found, "linear1": first}


def _is_activation_gradient(op: FrozenOp) -> bool:
    kind = op.type.removesuffix("_grad")
    return op.type.endswith("_grad") and not op.body and op.definition.of == kind and op_def(kind).has(Activation)


def _fused_gradient(view: View, found: Found) -> Fused:
    get = partial(value_of, view, found)
    ins = {
        f"Out{GRAD}": arriving_gradient(view, found),
        "X": get("norm1" if "norm1" in found else "linear1", "X"),
        "Linear1Weight": get("linear1", "Y"), "Linear2Weight": get("linear2", "Y"),
        "Dropout1Mask": get("dropout1", "Mask"), "Dropout2Mask": get("dropout2", "Mask"),
        "Linear1Out": get("act", "X"), "Dropout1Out": get("linear2", "X"),
        "Dropout2Out": get("norm2", "X"),
        "Ln1Scale": get("norm1", "Scale"), "Ln1Bias": get("norm1", "Bias"),
        "Ln1Out": get("linear1", "X") if "norm1" in found else None,
        "Ln1Mean": get("norm1", "Mean"), "Ln1Variance": get("norm1", "Variance"),
        "Ln2Scale": get("norm2", "Scale"), "Ln2Bias": get("norm2", "Bias"),
        "Ln2Mean": get("norm2", "Mean"), "Ln2Variance": get("norm2", "Variance"),
    }  # fmt: skip
    outs: dict[str, str | None] = {
        f"X{GRAD}": get("sum1", "Out") or get("norm1", f"X{GRAD}") or get("linear1", f"X{GRAD}"),
        f"Linear1Weight{GRAD}": get("linear1", f"Y{GRAD}"), f"Linear1Bias{GRAD}": bias_grad_of(view, found, "bias1"),
        f"Linear2Weight{GRAD}": get("linear2", f"Y{GRAD}"), f"Linear2Bias{GRAD}": bias_grad_of(view, found, "bias2"),
        f"Ln1Scale{GRAD}": get("norm1", f"Scale{GRAD}"), f"Ln1Bias{GRAD}": get("norm1", f"Bias{GRAD}"),
        f"Ln2Scale{GRAD}": get("norm2", f"Scale{GRAD}"), f"Ln2Bias{GRAD}": get("norm2", f"Bias{GRAD}"),
        # The residual's gradient, for a sum that is not part of the match.
        f"Dropout2Out{GRAD}": get("norm2", f"X{GRAD}"),
    }  # fmt: skip
    attrs = _attrs(view, found)
    # A residual's gradient is one of the block's input's, which a sum adds.
    attrs["add_residual"] = "sum1" in found
    return Fused("fused_feedforward_grad", ins, outs, attrs)


def _prepare(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Lets gradients of blocks draw masks again, and products read the gradient that arrives at the add of a bias."""
    view = View(program, metas)
    drawing: set[int] = set()
    # A gradient has the position of its forward op.
    adds: set[int] = set()
    for index, op in enumerate(view.ops):
        if op.body or not is_product(op.definition):
            continue
        found = _core(view, index)
        if found is None or "act" not in found:
            continue
        found |= behind_last(view, found)
        for name in ("dropout1", "dropout2"):
            if name in found:
                dropout = view.ops[found[name]]
                masks = [v for v in dropout.writes() if v != dropout.output("Out")]
                drawing |= {found[name], *(i for v in masks for i in view.readers.get(v, ()))}
        adds |= {view.ops[found[name]].position for name in ("bias1", "bias2", "residual") if name in found}
    if not adds and not drawing:
        return program
    program = draw_again(program, metas, drawing)
    gradients = {i for i, op in enumerate(program.ops) if op.type == "elementwise_add_grad" and op.position in adds}
    return pass_on_to_products(program, metas, gradients)


_CHAIN = Chain(
    (PRODUCT, ACTIVATION, PRODUCT), "only biases and dropouts stand between the two products and the activation"
)
FUSION = Fusion(
    "feedforward",
    "fused_feedforward",
    Proposals(blocks, _CHAIN),
    kernel=feed_forward_kernel,
    exact=True,
    prepare=_prepare,
)
