"""Fuses optimizer updates of one rule with equal settings: ``fuse_adamw`` and ``fuse_all_optimizer_ops``.

Ops share a group if they differ only in their tensors: attributes, the learning rate, the skip flag, the types, and the
optional slots that are given must be equal. Any difference makes another group, so no parameter loses its own setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tstatic.fusion.codegen.update import update_kernel
from tstatic.fusion.engine import Fused, Fusion, Proposal, Proposals, refuse
from tstatic.fusion.engine.chain import Chain, Link
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ops.update._slots import ROW_MASK, TENSORS

SHARED = ("LearningRate", "SkipUpdate", *TENSORS)
"""Slots that hold one number for all members."""

ADAM_LISTS = {
    "Params": "Param", "Grads": "Grad", "Moments1": "Moment1", "Moments2": "Moment2", "Beta1Pows": "Beta1Pow",
    "Beta2Pows": "Beta2Pow", "MasterParams": "MasterParam",
}  # fmt: skip
"""Slots of ``fused_adam`` -> slots of its members."""

Key = tuple[tuple[str, object], ...]


def _key(view: View, op: FrozenOp, product: int | None) -> Key:
    """Returns what the members of a group have in common: (description, value) pairs in the order of reports."""
    factor = view.ops[product].input("Y") if product is not None else None
    parts: list[tuple[str, object]] = [("operator", op.type), ("factor of the gradient", factor)]
    for sides in ((op.definition.inputs, op.inputs), (op.definition.outputs, op.outputs)):
        for slot, entry in zip(*sides, strict=True):
            if slot.name in SHARED:
                parts.append((slot.name, entry))
            else:
                parts.append((f"type of {slot.name}", view.metas[entry].dtype.name if isinstance(entry, str) else None))
    parts.extend((name, repr(value)) for name, value in sorted(op.attrs.items()))
    return tuple(parts)


def _product(view: View, op: FrozenOp) -> int | None:
    """Returns the op that makes the gradient, if it only scales one by a number in memory, as clipping by global norm does."""
    grad = op.input("Grad")
    if not isinstance(grad, str) or grad in view.fetched or grad in view.kept or len(view.readers[grad]) > 1:
        return None
    index = view.maker.get(grad)
    if index is None or index in view.forbidden or view.ops[index].type != "elementwise_mul" or view.ops[index].body:
        return None
    made = view.metas[grad]
    x, y = (view.metas[e] for e in view.ops[index].inputs if isinstance(e, str))
    # A factor of another type would make the product in that type.
    return index if x == made and y.numel == 1 and y.dtype is made.dtype else None


def _later_reader(view: View, op: FrozenOp) -> tuple[str, FrozenOp] | None:
    """Returns a result that another op reads, and its reader: such an update cannot wait for the end of the step.

    Updates of other state, such as averages of parameters, wait as long.
    """
    for value in op.writes():
        for reader in view.readers.get(value, ()):
            if not view.ops[reader].definition.update:
                return value, view.ops[reader]
    return None


LEAVES_ROWS = (
    "ATTRIBUTE",
    "'lazy_mode' leaves rows alone that the batch does not name; kernels update whole tensors",
    "turn lazy_mode off, or make the table's lookups dense (is_sparse=False)",
)


def leaves_rows(op: FrozenOp) -> bool:
    """Returns whether an update skips some rows."""
    return any(s.name == ROW_MASK and e is not None for s, e in zip(op.definition.inputs, op.inputs, strict=True))


def _propose(fits: Callable[[OpDef], bool], singles: bool, view: View) -> Iterator[Proposal]:
    """Yields rejections, then groups in program order.

    Args:
        fits: Whether ops of a definition are taken.
        singles: Whether a single op is a group, too.
        view: The program.
    """
    groups: list[list[int]] = []
    keys: list[Key] = []
    open_of: dict[Key, list[int]] = {}
    refused: list[tuple[int, str, FrozenOp]] = []
    lazy: list[int] = []
    after: dict[str, frozenset[int]] = {}
    products: dict[int, int | None] = {}
    for index, op in enumerate(view.ops):
        # The groups that an op depends on, through any number of others.
        before = frozenset().union(*(after[v] for v in op.reads() if v in after))
        if fits(op.definition) and not op.body and index not in view.forbidden:
            # Told at the end: no group begins with it.
            if leaves_rows(op):
                lazy.append(index)
                continue
            reader = _later_reader(view, op)
            if reader is not None:
                refused.append((index, *reader))
            # An update whose result is not the variable's last value is one of several in a step.
            elif all(v in view.kept for v in op.writes()):
                products[index] = _product(view, op)
                key = _key(view, op, products[index])
                # The op cannot join a group that it depends on.
                group = next((g for g in open_of.get(key, ()) if g not in before), None)
                if group is None:
                    group = len(groups)
                    groups.append([])
                    keys.append(key)
                    open_of.setdefault(key, []).append(group)
                groups[group].append(index)
                before |= {group}
        if before:
            after.update(dict.fromkeys(op.writes(), before))
    yield from _refusals(view, groups, keys, refused, singles)
    for index in lazy:
        yield (index,), partial(refuse, MatchRejected(*LEAVES_ROWS))
    for members in groups:
        if len(members) > 1 or singles:
            made = [p for i in members if (p := products[i]) is not None]
            yield (
                tuple(sorted({*members, *made})),
                partial(_fused, *([view.ops[i] for i in s] for s in (members, made))),
            )


def _refusals(
    view: View,
    groups: Sequence[list[int]],
    keys: Sequence[Key],
    refused: Sequence[tuple[int, str, FrozenOp]],
    singles: bool,
) -> Iterator[Proposal]:
    by_kind: dict[str, list[int]] = {}
    for g, members in enumerate(groups):
        by_kind.setdefault(view.ops[members[0]].type, []).append(g)
    for index, value, reader in refused:
        same = by_kind.get(view.ops[index].type)
        pair = (index, groups[same[0]][0]) if same else (index,)
        yield tuple(sorted(pair)), partial(refuse, MatchRejected("EXTRA_READER", value=value, reader=reader.type))
    for same in by_kind.values():
        # Each op that is left over is compared with the largest of its kind: it was most likely meant for that one.
        largest = max(same, key=lambda g: len(groups[g]))
        for g in same:
            if g == largest or len(groups[g]) > 1 or singles:
                continue
            differs = _difference(keys[largest], keys[g])
            unfit = MatchRejected("CYCLE", reader=view.ops[groups[g][0]].type)
            if differs is not None:
                unfit = MatchRejected("ATTRIBUTE", f"'{differs}' of the two differs", f"give both the same '{differs}'")
            yield tuple(sorted((groups[largest][0], groups[g][0]))), partial(refuse, unfit)


def _difference(a: Key, b: Key) -> str | None:
    return next((name for (name, x), (_, y) in zip(a, b, strict=True) if x != y), None)


def _column(ops: Sequence[FrozenOp], slot: str, output: bool = False) -> tuple[str, ...] | None:
    """Returns the values of all members in a slot, or ``None`` if the slot is empty or the op definition lacks it."""
    first = ops[0]
    if slot not in {s.name for s in (first.definition.outputs if output else first.definition.inputs)}:
        return None
    entries = [op.output(slot) if output else op.input(slot) for op in ops]
    return tuple(e for e in entries if isinstance(e, str)) or None


def _fused(ops: Sequence[FrozenOp], products: Sequence[FrozenOp]) -> Fused:
    first = ops[0]
    # If the group includes the products, it reads the unscaled gradients.
    raw = {op.output("Out"): op.input("X") for op in products}
    ops = [op.with_inputs({k: v for k, v in raw.items() if isinstance(k, str) and isinstance(v, str)}) for op in ops]
    factor = products[0].input("Y") if products else None
    scale = {"GradScale": factor} if isinstance(factor, str) else {}
    inputs: dict[str, str | tuple[str, ...] | None] = {}
    outputs: dict[str, str | tuple[str, ...] | None] = {}
    if first.type != "adamw":
        for slot in first.definition.inputs:
            column = _column(ops, slot.name)
            inputs[slot.name] = column[0] if column and slot.name in SHARED else column
        outputs = {slot.name: _column(ops, slot.name, output=True) for slot in first.definition.outputs}
        return Fused(first.type, {**inputs, **scale}, outputs, dict(first.attrs))
    for many, one in ADAM_LISTS.items():
        inputs[many] = _column(ops, one)
        outputs[f"{many}Out"] = _column(ops, f"{one}Out", output=True) if one != "Grad" else None
    for slot_name in SHARED:
        column = _column(ops, slot_name)
        inputs[slot_name] = column[0] if column else None
    # Gradients are read only, and have no slot among the results.
    del outputs["GradsOut"]
    return Fused("fused_adam", {**inputs, **scale}, outputs, _adam_attrs(first.attrs))


def _adam_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes of Paddle's ``fused_adam``, and ``lr_ratio``, which Paddle's op lacks."""
    return {
        "beta1": attrs["beta1"],
        "beta2": attrs["beta2"],
        "epsilon": attrs["epsilon"],
        # An attribute of Paddle's op; kernels here cut their work by the chip.
        "chunk_size": 32768,
        "weight_decay": attrs["coeff"] if attrs["with_decay"] else 0.0,
        "use_adamw": True,
        "multi_precision": attrs["multi_precision"],
        "use_global_beta_pow": attrs["use_global_beta_pow"],
        "lr_ratio": attrs["lr_ratio"],
    }


def is_adamw(definition: OpDef) -> bool:
    """Returns whether ``fuse_adamw`` takes an op."""
    return definition.type == "adamw"


def is_update(definition: OpDef) -> bool:
    """Returns whether ``fuse_all_optimizer_ops`` takes an op: an update that one launch can compute."""
    return definition.formula is not None and definition.formula.single_pass


_ADAMW = Chain((Link("an update by AdamW", lambda op: is_adamw(op.definition)),), "updates with the same settings")
ADAMW = Fusion(
    "adamw", "fuse_adamw", Proposals(partial(_propose, is_adamw, True), _ADAMW), kernel=update_kernel, exact=True
)
"""Every ``adamw`` becomes part of a ``fused_adam``, as in Paddle even if it is the only op with its settings."""

_ALL = Chain(
    (Link("an update of a parameter", lambda op: is_update(op.definition)),),
    "two or more updates by one rule, with the same settings and types",
)
ALL = Fusion(
    "all_optimizer",
    "fuse_all_optimizer_ops",
    Proposals(partial(_propose, is_update, False), _ALL),
    kernel=update_kernel,
    exact=True,
)
