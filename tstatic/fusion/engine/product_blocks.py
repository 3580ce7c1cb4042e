"""The parts of blocks with two matrix products: what stands before, between and behind them, forward and backward.

A block is a dict of names: ``norm1``, ``linear1``, ``bias1``, ..., ``linear2``, ``bias2``, ``dropout2``, ``residual``, ``norm2``;
its gradient has the same names, and ``sum1`` and ``sum2`` for what adds up gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from tstatic.fusion.codegen.define import is_elementwise, works_on_rows
from tstatic.fusion.engine import Fused, Proposal, refuse
from tstatic.fusion.engine.pattern import one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import GRAD
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta

ROWS_SWITCH = "build_cinn_pass"
"""The switch of the compiler that makes kernels along rows of whatever stands side by side."""


Found = dict[str, int]
"""Name of an op of the block -> its index in the program."""


CHAIN = {
    "norm1": "Y", "linear1": "Out", "bias1": "Out", "act": "Out", "dropout1": "Out", "linear2": "Out", "bias2": "Out",
    "dropout2": "Out", "residual": "Out", "norm2": "Y",
}  # fmt: skip
"""Names of a block's ops in their order, and the slot of each that the next one reads."""


OTHER_AXES = "layer norm works over more than the last axis"


LEFT_TO_ROWS = "a kernel along rows takes it together with its neighbours"


def indices_of(found: Found) -> tuple[int, ...]:
    """Returns the indices of the ops of a block, in order."""
    return tuple(sorted(found.values()))


def refused(found: Found, code: str, reason: str, change: str = "", reader: str = "") -> Proposal:
    """Returns the proposal of a block that is not made, with the reason."""
    return indices_of(found), partial(refuse, MatchRejected(code, reason, change, reader=reader))


def reader_of(view: View, value: str | None, slot: str, kind: str = "") -> int | None:
    """Returns the op of a type that reads a value in a slot; the first one, as the engine refuses what several read."""
    for index in view.readers.get(value or "", ()):
        op = view.ops[index]
        if not op.body and (not kind or op.type == kind) and input_of(op, slot) == value:
            return index
    return None


def input_of(op: FrozenOp, slot: str) -> Entry:
    """Returns what an op has in an input slot; ``None`` if it has no such slot."""
    return op.input(slot) if any(s.name == slot for s in op.definition.inputs) else None


def output_of(op: FrozenOp, slot: str) -> str | None:
    """Returns what an op has in an output slot; ``None`` if it has no such slot."""
    return one(op.output(slot)) if any(s.name == slot for s in op.definition.outputs) else None


def maker_of(view: View, value: str | None, slot: str, kind: str) -> int | None:
    """Returns the op of a type that makes a value in a slot."""
    index = view.maker.get(value or "")
    if index is None or view.ops[index].body or view.ops[index].type != kind:
        return None
    return index if output_of(view.ops[index], slot) == value else None


def is_bias(view: View, op: FrozenOp, whole: Meta | None) -> bool:
    """Returns whether an add takes a vector, one element per column, to a value of that shape."""
    if whole is None or whole.rank < 2:
        return False
    x, y = (view.metas.get(one(input_of(op, slot)) or "") for slot in ("X", "Y"))
    if x is None or y is None:
        return False
    # A vector on the left is aligned from the right, as numpy does it.
    vector, axes = (y, (-1, whole.rank - 1)) if y.rank == 1 else (x, (-1,))
    other = x if y.rank == 1 else y
    return vector.shape == whole.shape[-1:] and other.shape == whole.shape and op.attrs["axis"] in axes


def along_last(view: View, op: FrozenOp) -> bool:
    """Returns whether a layer norm's rows are the last axis."""
    meta = view.metas.get(one(op.input("X")) or "")
    return meta is not None and op.attrs["begin_norm_axis"] == meta.rank - 1


def without(found: Found, *names: str) -> Found:
    """Returns a block without some of its ops."""
    return {n: i for n, i in found.items() if n not in names}


def last_result(view: View, found: Found, slots: Mapping[str, str]) -> str | None:
    """Returns the result of the last op of a chain, of those that are in it."""
    for name in reversed(list(slots)):
        if name in found:
            return output_of(view.ops[found[name]], slots[name])
    return None


def adds_bias(view: View, value: str | None) -> int | None:
    """Returns the op that adds a bias to a product."""
    for slot in ("X", "Y"):
        add = reader_of(view, value, slot, "elementwise_add")
        if add is not None and is_bias(view, view.ops[add], view.metas.get(value or "")):
            return add
    return None


def behind_last(view: View, core: Found) -> Found:
    """Returns the ops behind the second product."""
    found: Found = {}
    value = output_of(view.ops[core["linear2"]], "Out")
    bias = adds_bias(view, value)
    if bias is not None:
        found["bias2"], value = bias, output_of(view.ops[bias], "Out")
    dropout = reader_of(view, value, "X", "dropout")
    if dropout is not None:
        found["dropout2"], value = dropout, output_of(view.ops[dropout], "Out")
    # A residual may stand on either side of the add.
    for slot, other in (("Y", "X"), ("X", "Y")):
        add = reader_of(view, value, slot, "elementwise_add")
        if add is None:
            continue
        residual = view.metas.get(one(view.ops[add].input(other)) or "")
        # A value that is added to itself is not a residual.
        if residual is not None and residual == view.metas.get(value or "") and view.ops[add].input(other) != value:
            found["residual"], value = add, output_of(view.ops[add], "Out")
            break
    norm = reader_of(view, value, "X", "layer_norm")
    # In a stack of blocks, it is the next block's own norm that reads the sum.
    if norm is not None and ("residual" not in found or is_last_norm(view, value)):
        found["norm2"] = norm
    return found


def is_last_norm(view: View, value: str | None) -> bool:
    """Returns whether nothing else in the forward part reads what a norm reads: then it ends the block before."""
    return sum(not view.ops[i].role & OpRole.Backward for i in view.readers.get(value or "", ())) == 1


def is_read_by(view: View, index: int | None, value: str | None) -> bool:
    """Returns whether an op, if there is one, reads a value."""
    return index is not None and value is not None and value in view.ops[index].reads()


def outer_use(view: View, found: Found, name: str, reader: str) -> MatchRejected | None:
    """Returns why an op's result has to stay in memory for others; ``None`` where only gradients read it, too."""
    op = view.ops[found[name]]
    value = output_of(op, CHAIN[name])
    assert value is not None
    if value in view.fetched:
        return MatchRejected("FETCHED", value=value)
    if value in view.kept:
        return MatchRejected("PERSISTABLE", value=value)
    for i in view.readers[value]:
        if i != found[reader] and not view.ops[i].role & OpRole.Backward:
            return MatchRejected("EXTRA_READER", value=value, reader=view.ops[i].type)
    return None


def left_to_rows(view: View, found: Found) -> Found:
    """Returns the block without what the compiler's kernels along rows do in passes that they make anyway."""
    if "norm1" in found:
        maker = view.maker.get(one(view.ops[found["norm1"]].input("X")) or "")
        if maker is not None and is_elementwise(view.ops[maker].definition):
            # The sum before it, and the norm, are one pass; the sum behind the block reads the same value.
            found = without(found, "norm1", "residual", "norm2", "dropout2")
    if "norm2" in found:
        return found
    result = last_result(view, found, CHAIN)
    followers = [view.ops[i] for i in view.readers.get(result or "", ())]
    if "residual" in found and any(along_rows(op) for op in followers):
        found = without(found, "residual", "dropout2")
        result = last_result(view, found, CHAIN)
        followers = [view.ops[i] for i in view.readers.get(result or "", ())]
    # The library multiplies wide types: what follows would be one more pass over its product.
    wide = result is not None and not view.metas[result].dtype.is_low
    if wide and any(joins_rows(view, op) for op in followers):
        found = without(found, "bias2", "dropout2", "residual")
    return found


def has_expressions(op: FrozenOp) -> bool:
    """Returns whether an op states expressions per element or along rows."""
    return is_elementwise(op.definition) or works_on_rows(op.definition)


def along_rows(op: FrozenOp) -> bool:
    """Returns whether an op of the forward part works along rows."""
    return not op.role & OpRole.Backward and works_on_rows(op.definition)


def joins_rows(view: View, op: FrozenOp) -> bool:
    """Returns whether an op is elementwise and, maybe behind others, an op along rows reads it."""
    # As many as stand between a product and a norm at most: bias, dropout, residual.
    for _ in range(3):
        if along_rows(op):
            return True
        readers = [view.ops[i] for v in op.writes() for i in view.readers.get(v, ())]
        forward = [o for o in readers if not o.role & OpRole.Backward]
        if not is_elementwise(op.definition) or not forward:
            return False
        op = next((o for o in forward if along_rows(o)), forward[0])
    return along_rows(op)


def value_of(view: View, found: Found, name: str, slot: str) -> str | None:
    """Returns what an op of the block has in a slot, an input or an output."""
    if name not in found:
        return None
    op = view.ops[found[name]]
    entry = input_of(op, slot)
    return one(entry) if entry is not None else output_of(op, slot)


def bias_of(view: View, found: Found, name: str) -> str | None:
    """Returns the vector that an add of the block takes."""
    vectors = [v for slot in ("X", "Y") if (v := value_of(view, found, name, slot)) and view.metas[v].rank == 1]
    return vectors[0] if vectors else None


def bias_gradient(view: View, value: str | None) -> int | None:
    """Returns the gradient of the add of a bias that reads a value."""
    add = reader_of(view, value, f"Out{GRAD}", "elementwise_add_grad")
    fits = add is not None and is_bias(view, view.ops[add], view.metas.get(value or ""))
    return add if fits else None


def passed_on(op: FrozenOp) -> str | None:
    """Returns the name of the gradient of ``X``, which an add passes on unchanged; ``None`` if the op does not make it."""
    vector = one(op.input("Y"))
    own = one(op.input("X"))
    # A value that is added to itself has one gradient under each slot: the one of ``Y`` is returned.
    results = {own: output_of(op, f"X{GRAD}"), vector: output_of(op, f"Y{GRAD}")}
    return results[own]


def gradient_before(view: View, found: Found) -> Found:
    """Returns the ops that make the gradient of the second product's result."""
    more: Found = {}
    value = one(view.ops[found["linear2"]].input(f"Out{GRAD}"))
    bias = maker_of(view, value, f"X{GRAD}", "elementwise_add_grad")
    # The add's gradient passes on what arrives; where that one was removed, it reads the same value as the product's.
    if bias is not None and is_bias(view, view.ops[bias], view.metas.get(value or "")):
        value = one(view.ops[bias].input(f"Out{GRAD}"))
    else:
        bias = bias_gradient(view, value)
    if bias is not None:
        more["bias2"] = bias
    dropout = maker_of(view, value, f"X{GRAD}", "dropout_grad")
    if dropout is not None:
        more["dropout2"], value = dropout, one(view.ops[dropout].input(f"Out{GRAD}"))
    norm = maker_of(view, value, f"X{GRAD}", "layer_norm_grad")
    if norm is not None:
        more["norm2"] = norm
        total = maker_of(view, one(view.ops[norm].input(f"Y{GRAD}")), "Out", "sum")
        if total is not None:
            more["sum2"] = total
    return more


def gradient_behind(view: View, found: Found) -> Found:
    """Returns the ops behind the gradient of the first product."""
    more: Found = {}
    value = output_of(view.ops[found["linear1"]], f"X{GRAD}")
    norm = reader_of(view, value, f"Y{GRAD}", "layer_norm_grad")
    if norm is not None:
        more["norm1"], value = norm, output_of(view.ops[norm], f"X{GRAD}")
    for index in view.readers.get(value or "", ()):
        if view.ops[index].type == "sum" and not view.ops[index].body:
            more["sum1"] = index
            break
    return more


def arriving_gradient(view: View, found: Found) -> str | None:
    """Returns the gradient of the block's result."""
    for name, slot in (("norm2", f"Y{GRAD}"), ("dropout2", f"Out{GRAD}"), ("linear2", f"Out{GRAD}")):
        if name in found and not (name == "norm2" and "sum2" in found):
            return value_of(view, found, name, slot)
    return None


def bias_grad_of(view: View, found: Found, name: str) -> str | None:
    """Returns the gradient of the vector that an add of the block takes."""
    for slot in ("Y", "X"):
        value = value_of(view, found, name, slot)
        if value is not None and view.metas[value].rank == 1:
            return value_of(view, found, name, f"{slot}{GRAD}")
    return None


def one_shorter(
    view: View, found: Found, order: Sequence[str], fused: Callable[[View, Found], Fused]
) -> Iterator[Proposal]:
    """Yields a match, and then without one op after the other; each is a part of the one before."""
    yield indices_of(found), partial(fused, view, found)
    for name in order:
        if name in found:
            found = without(found, name)
            yield indices_of(found), partial(fused, view, found)
