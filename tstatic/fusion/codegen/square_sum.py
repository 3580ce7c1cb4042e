"""The sum of squares of many tensors: partial sums per block, then one per tensor, then those added in the given order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tstatic.fusion.codegen.emit import as_kernel, function
from tstatic.fusion.codegen.kernel import (
    Kernel,
    KernelArgument,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    Table,
    power_of_two,
)
from tstatic.fusion.codegen.lines import LANGUAGE, TYPES
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.script import Parts, entry, script
from tstatic.fusion.codegen.segments import ADDRESSES, BLOCKS, FIND, HELPER, STEP, TABLES, segments, table
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target

BLOCK = 4096
"""Elements per program: 32 for each thread of four warps, enough loads in flight."""

FIRSTS, PARTIALS, SUMS = KernelLocal("table:firsts"), KernelLocal("partial:blocks"), KernelLocal("partial:tensors")


def _parameters(compute: DType) -> tuple[KernelParameter, ...]:
    partials = KernelParameter("partials", "pointer", TYPES[compute.name], PARTIALS)
    return (*TABLES, partials, KernelParameter("BLOCK", "constant"))


def _functions(dtype: DType, compute: DType) -> str:
    kind, memory = LANGUAGE[compute.name], LANGUAGE[dtype.name]
    cast = "" if dtype is compute else f".to({kind})"
    block = function(
        "kernel",
        _parameters(compute),
        [
            *FIND,
            f"at = tl.multiple_of(tl.load(addresses + tl.load(block)).to(tl.pointer_type({memory})), 16)",
            f"at += tl.multiple_of(tl.load(block + 1), {STEP})",
            "offsets = tl.arange(0, BLOCK)",
            f"mask = offsets < tl.multiple_of(tl.load(block + 3).to(tl.int32), {STEP})",
            f"x = tl.load(at + offsets, mask=mask, other=0){cast}",
            # Loads reach into the padding, for full width; what lies there need not be zero.
            "x = tl.where(offsets < tl.load(block + 2).to(tl.int32), x, 0.0)",
            "tl.store(partials + tl.program_id(0), tl.sum(x * x, 0))",
        ],
    )
    # One sum per tensor first, then these in the given order: as the ops add them. One program per tensor, as tensors have
    # from one block to thousands.
    tensors = function(
        "tensors",
        (
            KernelParameter("partials", "pointer"), KernelParameter("firsts", "pointer"), KernelParameter("sums", "pointer"),
            KernelParameter("BLOCK", "constant"),
        ),
        [
            "tensor = tl.program_id(0)",
            "last = tl.load(firsts + tensor + 1).to(tl.int32)",
            f"total = tl.zeros((BLOCK,), {kind})",
            "for start in range(tl.load(firsts + tensor).to(tl.int32), last, BLOCK):",
            "    offsets = start + tl.arange(0, BLOCK)",
            "    total += tl.load(partials + offsets, mask=offsets < last, other=0)",
            "tl.store(sums + tensor, tl.sum(total, 0))",
        ],
    )  # fmt: skip
    # One program and no atomics: the order of additions is always the same.
    total = function(
        "total",
        (KernelParameter("sums", "pointer"), KernelParameter("count", "integer"), KernelParameter("y", "pointer")),
        [
            "result = tl.load(sums)",
            "for first in range(1, count, 8):",
            "    # In the tensors' order; the loads of eight do not wait for each other.",
            "    for i in tl.static_range(8):",
            "        result += tl.load(sums + first + i, mask=first + i < count, other=0)",
            "tl.store(y, result)",
        ],
    )
    return "\n\n\n".join((block, tensors, total))


def square_sum_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a ``sum`` over ``squared_l2_norm`` of many tensors, some of them cast first.

    Args:
        body: The casts, the norms, and the sum at the end.
        metas: Metadata of all their values.
        needed: The sum.

    Raises:
        CodegenUnsupported: If the tensors or the sums have several types.
    """
    last = body[-1]
    # A cast is taken in: the tensor is read in its own type, and widened in registers.
    source = {str(op.output("Out")): str(op.input("X")) for op in body if op.type == "cast"}
    norms = {str(op.output("Out")): str(op.input("X")) for op in body if op.type == "squared_l2_norm"}
    entries = last.input("X")
    assert isinstance(entries, tuple)
    tensors = tuple(source.get(norms[v], norms[v]) for v in entries)
    (result,) = needed
    compute = metas[result].dtype
    dtypes = {metas[t].dtype for t in tensors}
    # One function reads all tensors, through one type of pointer.
    if len(dtypes) > 1 or compute.is_low or next(iter(dtypes)).compute is not compute:
        raise CodegenUnsupported("NO_KERNEL_FORM", "the gradients have several types", last)
    dtype = dtypes.pop()
    sizes = [metas[t].numel for t in tensors]
    number = TYPES[compute.name]

    def plan(target: Target) -> Launches:
        block = power_of_two(max(sizes), 16, 1 << 16) if target.large_programs else BLOCK
        step = 1 if target.large_programs else STEP
        rows = segments(sizes, block, step)
        # Tensor -> number of its first block; the last entry is the number of blocks.
        firsts = np.concatenate([[0], np.cumsum(np.bincount(rows[:, 0], minlength=len(sizes)))]).astype(np.int64)
        # A tile holds the blocks of the largest tensor, up to 1,024.
        wide = power_of_two(max(1, int(np.diff(firsts).max())), 16, 1024)
        launches = []
        # A launch of no programs is an error on a GPU; without blocks the sums per tensor are zero.
        if len(rows):
            launches.append(Launch("kernel", (len(rows),), (ADDRESSES, BLOCKS, PARTIALS), {"BLOCK": block}))
        types = f"*{number}", "*i64", f"*{number}"
        launches.append(Launch("tensors", (len(sizes),), (PARTIALS, FIRSTS, SUMS), {"BLOCK": wide}, types=types))
        types = f"*{number}", "i32", f"*{number}"
        launches.append(Launch("total", (1,), (SUMS, len(sizes), result), {}, 1, types))
        partials = {PARTIALS: (max(1, len(rows)), compute), SUMS: (len(sizes), compute)}
        tables = {
            ADDRESSES: Table(tensors, text='[memory[f"X{i}"] for i in range(len(SIZES))]'),
            BLOCKS: table(rows, block, step),
            FIRSTS: Table(numbers=firsts, text=f"np.cumsum([0, *(-(-n // {block}) for n in SIZES)]).tolist()"),
        }
        return Launches(tuple(launches), partials, tables)

    parts = Parts(
        [f'**{{f"X{{i}}": ((n,), torch.{dtype.name}) for i, n in enumerate(SIZES)}},'],
        [entry("Out", metas[result].shape, compute)],
        {result: "Out"},
        "**given",
        [
            "total = sum(np.sum(np.square(x)) for x in given.values())",
            f'return {{"Out": np.full({metas[result].shape!r}, total)}}',
        ],
        [HELPER],
        sizes,
    )
    memory = tuple(KernelArgument(t, dtype, metas[t].numel) for t in tensors), (KernelArgument(result, compute, 1),)
    return as_kernel(
        "square_sum",
        body,
        _functions(dtype, compute),
        set(),
        _parameters(compute),
        memory,
        plan,
        lambda made: script(made, parts),
    )
