"""Fuses feed-forward blocks: two matrix products with an activation between them, and what stands around these.

A block is ``norm(x + dropout(linear(dropout(act(linear(norm(x)))))))``, in which each norm, dropout and bias and the sum may be
missing. Its kernel runs those of its parts one after the other: a product with bias, activation and dropout behind it, the
other product, and a kernel along rows for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from tstatic.fusion.codegen.composite import parts_of
from tstatic.fusion.codegen.define import is_elementwise, works_on_rows
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.products import is_product, is_product_gradient
from tstatic.fusion.engine import Fused, Fusion, Proposal, refuse
from tstatic.fusion.identity_gradients import pass_on_to_products
from tstatic.fusion.in_turn import kernel_in_turn
from tstatic.fusion.pattern import one
from tstatic.fusion.reasons import MatchRejected
from tstatic.fusion.redrawn import draw_again
from tstatic.fusion.view import View
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.opdef import GRAD, op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta

ROWS_SWITCH = "build_cinn_pass"
"""The switch of the compiler that makes kernels along rows of whatever stands side by side."""

Found = dict[str, int]
"""Name of an op of the block -> its index in the program."""


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


def _indices(found: Found) -> tuple[int, ...]:
    return tuple(sorted(found.values()))


def _refused(found: Found, code: str, reason: str, change: str = "", reader: str = "") -> Proposal:
    return _indices(found), partial(refuse, MatchRejected(code, reason, change, reader=reader))


def _reader(view: View, value: str | None, slot: str, kind: str = "") -> int | None:
    """Returns the op of a type that reads a value in a slot; the first one, as the engine refuses what several read."""
    for index in view.readers.get(value or "", ()):
        op = view.ops[index]
        if not op.body and (not kind or op.type == kind) and _input(op, slot) == value:
            return index
    return None


def _input(op: FrozenOp, slot: str) -> Entry:
    return op.input(slot) if any(s.name == slot for s in op.definition.inputs) else None


def _output(op: FrozenOp, slot: str) -> str | None:
    return one(op.output(slot)) if any(s.name == slot for s in op.definition.outputs) else None


def _maker(view: View, value: str | None, slot: str, kind: str) -> int | None:
    """Returns the op of a type that makes a value in a slot."""
    index = view.maker.get(value or "")
    if index is None or view.ops[index].body or view.ops[index].type != kind:
        return None
    return index if _output(view.ops[index], slot) == value else None


def _is_bias(view: View, op: FrozenOp, whole: Meta | None) -> bool:
    """Returns whether an add takes a vector, one element per column, to a value of that shape."""
    if whole is None or whole.rank < 2:
        return False
    x, y = (view.metas.get(one(_input(op, slot)) or "") for slot in ("X", "Y"))
    if x is None or y is None:
        return False
    # A vector on the left is aligned from the right, as numpy does it.
    vector, axes = (y, (-1, whole.rank - 1)) if y.rank == 1 else (x, (-1,))
    other = x if y.rank == 1 else y
    return vector.shape == whole.shape[-1:] and other.shape == whole.shape and op.attrs["axis"] in axes


def _along_last(view: View, op: FrozenOp) -> bool:
    """Returns whether a layer norm's rows are the last axis."""
    meta = view.metas.get(one(op.input("X")) or "")
    return meta is not None and op.attrs["begin_norm_axis"] == meta.rank - 1


def _drops_alike(view: View, found: Found) -> bool:
    dropouts = [view.ops[found[n]] for n in ("dropout1", "dropout2") if n in found]
    return len({bool(op.attrs["is_test"]) for op in dropouts}) < 2


_OTHER_STATES = "one dropout is in training and the other in inference"
_OTHER_AXES = "layer norm works over more than the last axis"
_LEFT_TO_ROWS = "a kernel along rows takes it together with its neighbours"


def _without(found: Found, *names: str) -> Found:
    return {n: i for n, i in found.items() if n not in names}


def _last(view: View, found: Found, slots: Mapping[str, str]) -> str | None:
    """Returns the result of the last op of a chain, of those that are in it."""
    for name in reversed(list(slots)):
        if name in found:
            return _output(view.ops[found[name]], slots[name])
    return None


# --------------------------------------------------------------------------------------------------------------- forward
_CHAIN = {
    "norm1": "Y", "linear1": "Out", "bias1": "Out", "act": "Out", "dropout1": "Out", "linear2": "Out", "bias2": "Out",
    "dropout2": "Out", "residual": "Out", "norm2": "Y",
}  # fmt: skip
"""Names of a block's ops in their order, and the slot of each that the next one reads."""


def _forward(view: View, first: int) -> Iterator[Proposal]:
    """Yields the block whose first product an op is."""
    found = _core(view, first)
    if found is None:
        return
    if "act" not in found:
        yield _refused(
            found, "NO_PATTERN", "there is no activation between the two matrix products", "put an activation there"
        )
        return
    block_input = one(view.ops[first].input("X"))
    norm = _maker(view, block_input, "Y", "layer_norm")
    rest = _rest(view, found)
    if norm is not None and not _reads(view, rest.get("residual"), block_input):
        found = {"norm1": norm, **found}
    found |= rest
    if not _drops_alike(view, found):
        yield _refused(found, "ATTRIBUTE", _OTHER_STATES, "give both the same is_test")
        return
    for name in ("norm2", "norm1"):
        if name in found and not _along_last(view, view.ops[found[name]]):
            yield _refused(found, "ATTRIBUTE", _OTHER_AXES, "set begin_norm_axis to the last axis")
            found = _without(found, name)
    if "norm1" in found and (reason := _outer_use(view, found, "norm1", "linear1")) is not None:
        yield _indices(found), partial(refuse, reason)
        found = _without(found, "norm1")
    if "residual" in found:
        source = one(view.ops[found.get("norm1", first)].input("X"))
        if not _reads(view, found["residual"], source):
            yield _refused(
                found, "ATTRIBUTE", "what is added is not the block's input", "add the value that the block reads"
            )
            found = _without(found, "residual", "norm2")
    if ROWS_SWITCH in view.later:
        shorter = _left_to_rows(view, found)
        if shorter != found:
            yield _refused(found, "ROWS_KERNEL", _LEFT_TO_ROWS)
            found = shorter
    yield from _shorter(view, found, ("norm2", "residual", "dropout2", "norm1", "bias2"), _fused)


def _shorter(
    view: View, found: Found, order: Sequence[str], fused: Callable[[View, Found], Fused]
) -> Iterator[Proposal]:
    """Yields a match, and then without one op after the other; each is a part of the one before."""
    yield _indices(found), partial(fused, view, found)
    for name in order:
        if name in found:
            found = _without(found, name)
            yield _indices(found), partial(fused, view, found)


def _core(view: View, first: int) -> Found | None:
    """Returns the two products and what stands between them; ``None`` where no second one follows."""
    found = {"linear1": first}
    value = _output(view.ops[first], "Out")
    bias = _biased(view, value)
    if bias is not None:
        found["bias1"], value = bias, _output(view.ops[bias], "Out")
    act = next((i for i in view.readers.get(value or "", ()) if view.ops[i].definition.activation), None)
    if act is not None:
        found["act"], value = act, _output(view.ops[act], "Out")
        dropout = _reader(view, value, "X", "dropout")
        if dropout is not None:
            found["dropout1"], value = dropout, _output(view.ops[dropout], "Out")
    second = next(
        (i for i in view.readers.get(value or "", ()) if is_product(view.ops[i].definition) and not view.ops[i].body),
        None,
    )
    if second is None or view.ops[second].input("X") != value or view.ops[second].input("Y") == value:
        return None
    found["linear2"] = second
    return found


def _biased(view: View, value: str | None) -> int | None:
    """Returns the op that adds a bias to a product."""
    for slot in ("X", "Y"):
        add = _reader(view, value, slot, "elementwise_add")
        if add is not None and _is_bias(view, view.ops[add], view.metas.get(value or "")):
            return add
    return None


def _rest(view: View, core: Found) -> Found:
    """Returns the ops behind the second product."""
    found: Found = {}
    value = _output(view.ops[core["linear2"]], "Out")
    bias = _biased(view, value)
    if bias is not None:
        found["bias2"], value = bias, _output(view.ops[bias], "Out")
    dropout = _reader(view, value, "X", "dropout")
    if dropout is not None:
        found["dropout2"], value = dropout, _output(view.ops[dropout], "Out")
    for slot, other in (("Y", "X"), ("X", "Y")):
        add = _reader(view, value, slot, "elementwise_add")
        if add is None:
            continue
        residual = view.metas.get(one(view.ops[add].input(other)) or "")
        if residual is not None and residual == view.metas.get(value or "") and view.ops[add].input(other) != value:
            found["residual"], value = add, _output(view.ops[add], "Out")
            break
    norm = _reader(view, value, "X", "layer_norm")
    # In a stack of blocks, it is the next block's own norm that reads the sum.
    if norm is not None and ("residual" not in found or _is_last_norm(view, value)):
        found["norm2"] = norm
    return found


def _is_last_norm(view: View, value: str | None) -> bool:
    """Returns whether nothing else in the forward part reads what a norm reads: then it ends the block before."""
    return sum(not view.ops[i].role & OpRole.Backward for i in view.readers.get(value or "", ())) == 1


def _reads(view: View, index: int | None, value: str | None) -> bool:
    return index is not None and value is not None and value in view.ops[index].reads()


def _outer_use(view: View, found: Found, name: str, reader: str) -> MatchRejected | None:
    """Returns why an op's result has to stay in memory for others; ``None`` where only gradients read it, too."""
    op = view.ops[found[name]]
    value = _output(op, _CHAIN[name])
    assert value is not None
    if value in view.fetched:
        return MatchRejected("FETCHED", value=value)
    if value in view.kept:
        return MatchRejected("PERSISTABLE", value=value)
    for i in view.readers[value]:
        if i != found[reader] and not view.ops[i].role & OpRole.Backward:
            return MatchRejected("EXTRA_READER", value=value, reader=view.ops[i].type)
    return None


def _left_to_rows(view: View, found: Found) -> Found:
    """Returns the block without what the compiler's kernels along rows do in passes that they make anyway."""
    if "norm1" in found:
        maker = view.maker.get(one(view.ops[found["norm1"]].input("X")) or "")
        if maker is not None and is_elementwise(view.ops[maker].definition):
            # The sum before it, and the norm, are one pass; the sum behind the block reads the same value.
            found = _without(found, "norm1", "residual", "norm2", "dropout2")
    if "norm2" in found:
        return found
    result = _last(view, found, _CHAIN)
    followers = [view.ops[i] for i in view.readers.get(result or "", ())]
    if "residual" in found and any(_along_rows(op) for op in followers):
        found = _without(found, "residual", "dropout2")
        result = _last(view, found, _CHAIN)
        followers = [view.ops[i] for i in view.readers.get(result or "", ())]
    # The library multiplies wide types: what follows would be one more pass over its product.
    wide = result is not None and not view.metas[result].dtype.is_low
    if wide and any(_joins_rows(view, op) for op in followers):
        found = _without(found, "bias2", "dropout2", "residual")
    return found


def _has_expressions(op: FrozenOp) -> bool:
    return is_elementwise(op.definition) or works_on_rows(op.definition)


def _along_rows(op: FrozenOp) -> bool:
    return not op.role & OpRole.Backward and works_on_rows(op.definition)


def _joins_rows(view: View, op: FrozenOp) -> bool:
    """Returns whether an op is elementwise and, maybe behind others, an op along rows reads it."""
    for _ in range(3):
        if _along_rows(op):
            return True
        readers = [view.ops[i] for v in op.writes() for i in view.readers.get(v, ())]
        forward = [o for o in readers if not o.role & OpRole.Backward]
        if not is_elementwise(op.definition) or not forward:
            return False
        op = next((o for o in forward if _along_rows(o)), forward[0])
    return _along_rows(op)


def _value(view: View, found: Found, name: str, slot: str) -> str | None:
    """Returns what an op of the block has in a slot, an input or an output."""
    if name not in found:
        return None
    op = view.ops[found[name]]
    entry = _input(op, slot)
    return one(entry) if entry is not None else _output(op, slot)


def _bias_of(view: View, found: Found, name: str) -> str | None:
    vectors = [v for slot in ("X", "Y") if (v := _value(view, found, name, slot)) and view.metas[v].rank == 1]
    return vectors[0] if vectors else None


def _attrs(view: View, found: Found, suffix: str = "") -> dict[str, object]:
    """Returns what Paddle's op has as attributes."""
    act = view.ops[found["act"]]
    attrs: dict[str, object] = {
        "pre_layer_norm": "norm1" in found,
        "act_method": act.type.removesuffix("_grad"),
        "add_residual": "residual" in found,
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
    get = partial(_value, view, found)
    ins = {
        "X": get("norm1" if "norm1" in found else "linear1", "X"),
        "Linear1Weight": get("linear1", "Y"), "Linear1Bias": _bias_of(view, found, "bias1"),
        "Linear2Weight": get("linear2", "Y"), "Linear2Bias": _bias_of(view, found, "bias2"),
        "Ln1Scale": get("norm1", "Scale"), "Ln1Bias": get("norm1", "Bias"),
        "Ln2Scale": get("norm2", "Scale"), "Ln2Bias": get("norm2", "Bias"),
    }  # fmt: skip
    outs = {
        "Out": _last(view, found, _CHAIN),
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
    found |= _gradient_behind(view, found) | _gradient_before(view, found)
    if not _drops_alike(view, found):
        yield _refused(found, "ATTRIBUTE", _OTHER_STATES, "give both the same is_test")
        return
    for name, others in (("norm2", ("sum2",)), ("norm1", ("sum1",))):
        if name in found and not _along_last(view, view.ops[found[name]]):
            yield _refused(found, "ATTRIBUTE", _OTHER_AXES, "set begin_norm_axis to the last axis")
            found = _without(found, name, *others)
    if ROWS_SWITCH in view.later:
        shorter = _without(found, "norm1", "sum1") if "norm1" in found else found
        total = _output(view.ops[shorter["sum1"]], "Out") if "sum1" in shorter else None
        if any(works_on_rows(view.ops[i].definition) for i in view.readers.get(total or "", ())):
            shorter = _without(shorter, "sum1")
        maker = view.maker.get(_arriving(view, found) or "")
        if maker is not None and "sum2" not in found and _has_expressions(view.ops[maker]):
            shorter = _without(shorter, "norm2", "dropout2")
        if shorter != found:
            yield _refused(found, "ROWS_KERNEL", _LEFT_TO_ROWS)
            found = shorter
    if not {"norm2", "dropout2"} & found.keys():
        # Who makes the gradient that arrives sums it, too, in the same pass.
        found = _without(found, "bias2")
    yield from _shorter(view, found, ("sum1", "norm1", "sum2", "norm2"), _fused_gradient)
    found = _without(found, "sum1", "norm1", "sum2", "norm2")
    if "dropout2" in found:
        found = _without(found, "dropout2", "bias2")
        yield _indices(found), partial(_fused_gradient, view, found)


def _gradient_core(view: View, second: int) -> Found | None:
    """Returns the gradients of the two products and of what stands between them."""
    found = {"linear2": second}
    value = _output(view.ops[second], f"X{GRAD}")
    dropout = _reader(view, value, f"Out{GRAD}", "dropout_grad")
    if dropout is not None:
        found["dropout1"], value = dropout, _output(view.ops[dropout], f"X{GRAD}")
    act = _reader(view, value, f"Out{GRAD}")
    if act is None or not _is_activation_gradient(view.ops[act]):
        return None
    found["act"], value = act, _output(view.ops[act], f"X{GRAD}")
    bias = _bias_gradient(view, value)
    if bias is not None:
        found["bias1"] = bias
        value = _passed_on(view.ops[bias]) or value
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
    return op.type.endswith("_grad") and not op.body and op.definition.of == kind and op_def(kind).activation


def _bias_gradient(view: View, value: str | None) -> int | None:
    """Returns the gradient of the add of a bias that reads a value."""
    add = _reader(view, value, f"Out{GRAD}", "elementwise_add_grad")
    fits = add is not None and _is_bias(view, view.ops[add], view.metas.get(value or ""))
    return add if fits else None


def _passed_on(op: FrozenOp) -> str | None:
    """Returns the gradient of an add that equals what arrives: that of the operand that is not a bias."""
    vector = one(op.input("Y"))
    own = one(op.input("X"))
    results = {own: _output(op, f"X{GRAD}"), vector: _output(op, f"Y{GRAD}")}
    return results[own]


def _gradient_before(view: View, found: Found) -> Found:
    """Returns the ops that make the gradient of the second product's result."""
    more: Found = {}
    value = one(view.ops[found["linear2"]].input(f"Out{GRAD}"))
    bias = _maker(view, value, f"X{GRAD}", "elementwise_add_grad")
    if bias is not None and _is_bias(view, view.ops[bias], view.metas.get(value or "")):
        value = one(view.ops[bias].input(f"Out{GRAD}"))
    else:
        bias = _bias_gradient(view, value)
    if bias is not None:
        more["bias2"] = bias
    dropout = _maker(view, value, f"X{GRAD}", "dropout_grad")
    if dropout is not None:
        more["dropout2"], value = dropout, one(view.ops[dropout].input(f"Out{GRAD}"))
    norm = _maker(view, value, f"X{GRAD}", "layer_norm_grad")
    if norm is not None:
        more["norm2"] = norm
        total = _maker(view, one(view.ops[norm].input(f"Y{GRAD}")), "Out", "sum")
        if total is not None:
            more["sum2"] = total
    return more


def _gradient_behind(view: View, found: Found) -> Found:
    """Returns the ops behind the gradient of the first product."""
    more: Found = {}
    value = _output(view.ops[found["linear1"]], f"X{GRAD}")
    norm = _reader(view, value, f"Y{GRAD}", "layer_norm_grad")
    if norm is not None:
        more["norm1"], value = norm, _output(view.ops[norm], f"X{GRAD}")
    for index in view.readers.get(value or "", ()):
        if view.ops[index].type == "sum" and not view.ops[index].body:
            more["sum1"] = index
            break
    return more


def _fused_gradient(view: View, found: Found) -> Fused:
    get = partial(_value, view, found)
    ins = {
        f"Out{GRAD}": _arriving(view, found),
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
        f"Linear1Weight{GRAD}": get("linear1", f"Y{GRAD}"), f"Linear1Bias{GRAD}": _bias_grad_of(view, found, "bias1"),
        f"Linear2Weight{GRAD}": get("linear2", f"Y{GRAD}"), f"Linear2Bias{GRAD}": _bias_grad_of(view, found, "bias2"),
        f"Ln1Scale{GRAD}": get("norm1", f"Scale{GRAD}"), f"Ln1Bias{GRAD}": get("norm1", f"Bias{GRAD}"),
        f"Ln2Scale{GRAD}": get("norm2", f"Scale{GRAD}"), f"Ln2Bias{GRAD}": get("norm2", f"Bias{GRAD}"),
        # The residual's gradient, for a sum that is not part of the match.
        f"Dropout2Out{GRAD}": get("norm2", f"X{GRAD}"),
    }  # fmt: skip
    attrs = _attrs(view, found)
    attrs["add_residual"] = "sum1" in found
    return Fused("fused_feedforward_grad", ins, outs, attrs)


def _arriving(view: View, found: Found) -> str | None:
    for name, slot in (("norm2", f"Y{GRAD}"), ("dropout2", f"Out{GRAD}"), ("linear2", f"Out{GRAD}")):
        if name in found and not (name == "norm2" and "sum2" in found):
            return _value(view, found, name, slot)
    return None


def _bias_grad_of(view: View, found: Found, name: str) -> str | None:
    for slot in ("Y", "X"):
        value = _value(view, found, name, slot)
        if value is not None and view.metas[value].rank == 1:
            return _value(view, found, name, f"{slot}{GRAD}")
    return None


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
        found |= _rest(view, found)
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


FUSION = Fusion(
    "feedforward", "fused_feedforward", proposes=blocks, kernel=feed_forward_kernel, exact=True, prepare=_prepare
)
