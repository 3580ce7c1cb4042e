"""Which rows of a table the batch has looked up, for updates that leave the others alone."""

from __future__ import annotations

from collections.abc import Mapping

from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Variable

Lookups = tuple[Operator, ...]


def sparse_gradients(block: Block) -> dict[str, Lookups]:
    """Finds gradients that are zero outside of the rows that lookups with ``is_sparse`` name.

    Sums and elementwise ops hand this on. A gradient with another part as well, such as that of a table that is also
    multiplied by something, is not listed, nor is one that comes out of a block of control flow.

    Returns:
        Name -> the backward ops of the lookups.
    """
    found: dict[str, Lookups] = {}
    for op in block.ops:
        lookups = _lookups(block, op, found)
        for name in op.output_arg_names:
            found.pop(name, None)
            if lookups:
                found[name] = lookups
    return found


def _lookups(block: Block, op: Operator, found: Mapping[str, Lookups]) -> Lookups:
    if op.definition.of and op.attrs.get("is_sparse"):
        return (op,)
    if op.definition.expression is None or not op.definition.expression.elementwise:
        return ()
    # A single number, such as the factor of a norm, changes no row from zero.
    read = [n for n in op.input_arg_names if n in found or block._var_recursive(n).meta.numel != 1]
    if any(n not in found for n in read):
        return ()
    return tuple(dict.fromkeys(one for n in read for one in found[n]))


def row_mask(lookups: Lookups, param: Variable) -> Variable:
    """Emits the ops that count how often each row of a table was looked up, over all replicas; returns ``[rows]``."""
    block = param.block.program.global_block()
    mask = block.create_var(
        name=names.generate(f"{param.name}_rows"), shape=param.shape[:1], dtype="float32", stop_gradient=True
    )
    # The role of a gradient: data parallelism adds up what the replicas counted.
    with block.program._role_guard(OpRole.Backward, (mask.name, mask.name)):
        single = len(lookups) == 1
        counts = [
            emit(
                "embedding_rows",
                {"Ids": op.input("Ids")[0], "W": op.input("W")[0]},
                {"padding_idx": op.attrs["padding_idx"]},
                outputs={"Out": mask} if single else None,
            )
            for op in lookups
        ]
        if not single:
            emit("sum", {"X": counts}, outputs={"Out": mask})
    return mask
