"""Row offsets of sequences: int64 variables of the program beside the variable whose rows they divide.

A variable ``x`` of ``lod_level`` k holds sequences nested k deep, row under row. ``x.lod`` names k variables: the innermost has the
row at which each sequence begins, and the number of rows; any other has offsets into the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ProgramError, TstaticError
from tstatic.ir.attrs import LOD, Slot
from tstatic.ir.declare import offsets_name
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.opdef import OpDef
from tstatic.ir.program import Block, Variable
from tstatic.ir.types import Meta

OUTER = "[:-1]"
"""Behind the slot in ``OpDef.lod``: all levels but the innermost."""


# --------------------------------------------------------------------------------------------------------------- inputs
def with_offsets(definition: OpDef, block: Block, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds the offsets that an op reads, and that the caller did not give, to its inputs.

    Slot ``X@LOD`` is given the innermost offsets of what is in ``X``; ``X@LOD*`` those of all levels, or, where ``X`` is a list,
    the innermost ones of each.

    Raises:
        ProgramError: If a variable has no offsets, and the op needs them.
    """
    done = dict(inputs)
    for slot in definition.inputs:
        base = slot.name.removesuffix(LOD)
        given = inputs.get(base)
        if base == slot.name or given is None or inputs.get(slot.name) is not None:
            continue
        variables = [_variable(block, one) for one in (given if isinstance(given, list | tuple) else [given])]
        if not variables or any(var is None for var in variables):
            continue  # what checks slots says what is wrong
        lods = [var.lod for var in variables if var is not None]
        if all(lods) and lods:
            done[slot.name] = [lod[-1] for lod in lods] if definition.input_slots[base].many else _of_one(slot, lods[0])
        elif not slot.optional:
            var = next(v for v in variables if v is not None and not v.lod)
            raise ProgramError(
                f"operator '{definition.type}' reads sequences, but '{var.name}' is not divided into sequences",
                expected="a variable with a LoD: an input with lod_level=1, or what is computed from one row by row",
                received=repr(var),
                fix=f"declare it with static.data('{var.name}', shape, dtype, lod_level=1), or use layers.lod_reset",
                var=var.name,
            )
    return done


def _of_one(slot: Slot, lod: tuple[str, ...]) -> list[str]:
    return list(lod) if slot.many else [lod[-1]]


def _variable(block: Block, given: Any) -> Variable | None:
    if isinstance(given, Variable):
        return given
    return block._find_var_recursive(given) if isinstance(given, str) else None


# -------------------------------------------------------------------------------------------------------------- outputs
def give_offsets(
    definition: OpDef,
    block: Block,
    inputs: Mapping[str, tuple[str, ...]],
    outputs: dict[str, tuple[str, ...]],
    attrs: Mapping[str, Any],
    metas: tuple[Sequence[Any], Sequence[Any]],
) -> None:
    """Gives the results of an op their offsets: those of its inputs by the rule ``OpDef.lod``, then those that it computes.

    Args:
        definition: The op definition.
        block: The block of the op.
        inputs, outputs: Slot -> names of variables. Slots of computed offsets are added to ``outputs``, with new variables.
        attrs: Complete attributes.
        metas: Metadata per input slot, and per output slot.
    """
    shared, probes = _shared(definition, block, inputs, attrs, metas[0])
    made = {slot.name: meta for slot, meta in zip(definition.outputs, metas[1], strict=True)}
    for slot, names in list(outputs.items()):
        if slot.endswith(LOD) or made[slot] is None:
            continue
        for i, (name, meta) in enumerate(zip(names, _listed(made[slot]), strict=True)):
            var = block._find_var_recursive(name)
            # Inputs and state say themselves how their rows are divided.
            if var is None or var.is_data or var.persistable or meta is None:
                continue
            lod = shared if probes is None or _listed(probes[slot])[i].shape[:1] == (_ROWS,) else ()
            own = made.get(f"{slot}{LOD}")
            if own is not None:
                given = outputs.get(f"{slot}{LOD}") or _declare(var, _listed(own), len(lod))
                outputs[f"{slot}{LOD}"] = given
                lod += given
            # A loop may write a variable from outside: offsets that only its block has mean nothing there.
            if var.block is not block and any(var.block._find_var_recursive(n) is None for n in lod):
                lod = ()
            if lod != var.lod:
                var.lod, var.lod_level = lod, len(lod)


def _listed(metas: Any) -> list[Any]:
    return metas if isinstance(metas, list) else [metas]


def _declare(var: Variable, metas: Sequence[Meta], outer: int) -> tuple[str, ...]:
    """Declares the offsets that an op computes for its result, which has ``outer`` further levels from its input."""
    names = tuple(offsets_name(var.name, outer + i) for i in range(len(metas)))
    for name, meta in zip(names, metas, strict=True):
        if name not in var.block.vars:
            var.block.vars[name] = Variable(
                var.block, name, meta.shape, meta.dtype, stop_gradient=True, where=var.made_at
            )
    return names


_ROWS = 1_000_003
"""A number of rows that no result has by chance: it is prime."""


def _shared(
    definition: OpDef,
    block: Block,
    inputs: Mapping[str, tuple[str, ...]],
    attrs: Mapping[str, Any],
    metas: Sequence[Any],
) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
    """Returns the offsets that results may share with an input, and metadata that says which have its rows; ``None``: all."""
    rule = definition.lod or ""
    slot = rule.removesuffix(OUTER)
    for i, one in enumerate(definition.inputs):
        if one.name != slot and slot != "*":
            continue
        for j, name in enumerate(inputs.get(one.name, ())):
            var = block._find_var_recursive(name)
            if var is None or not var.lod:
                continue
            if rule != slot:
                return var.lod[:-1], None
            # A concat may join rows, a reshape may merge them. The op's shape rule says where the rows of this input go.
            probe = metas[i][j] if one.many else metas[i]
            probe = probe.with_shape((_ROWS, *probe.shape[1:]))
            given = list(metas)
            given[i] = [*metas[i][:j], probe, *metas[i][j + 1 :]] if one.many else probe
            try:
                found = infer_outputs(definition, given, attrs)
            # The rule takes no other number of rows, so that nothing shows where they go.
            except TstaticError:
                return (), None
            return var.lod, {s.name: meta for s, meta in zip(definition.outputs, found, strict=True)}
    return (), None
