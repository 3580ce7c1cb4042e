"""The sum of squares of many tensors: partial sums per block, then one per tensor, then those added in the given order.

The last launch also computes what follows from the sum in single numbers, such as the factor that clips gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tstatic.fusion.codegen.kernel import (
    Kernel,
    KernelArgument,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    Table,
    operands,
    power_of_two,
)
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, Typed, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand, build
from tstatic.fusion.codegen.text.emit import as_kernel, function, loaded, stored
from tstatic.fusion.codegen.text.reference import NoNameError, Reference
from tstatic.fusion.codegen.text.script import Parts, bounds, entry, script, wrapped
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.fusion.codegen.update.segmenting import (
    ADDRESSES,
    BLOCKS,
    FIND,
    HELPER,
    STEP,
    TABLES,
    segments,
    table,
    table_sizes,
)
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target

BLOCK = 4096
"""Elements per program: 32 for each thread of four warps, enough loads in flight."""

FIRSTS, PARTIALS, SUMS = KernelLocal("table:firsts"), KernelLocal("partial:blocks"), KernelLocal("partial:tensors")

KINDS = KernelLocal("table:kinds")
"""The type of each tensor, by its number among the types, where there are several."""


def _parameters(compute: DType, several: bool) -> tuple[KernelParameter, ...]:
    partials = KernelParameter("partials", "pointer", TYPES[compute.name], PARTIALS)
    kinds = (KernelParameter("kinds", "pointer", "i64", KINDS),) if several else ()
    return (*TABLES, *kinds, partials, KernelParameter("BLOCK", "constant"))


def _address(dtype: DType, name: str) -> list[str]:
    """Returns the lines that say where a block of a tensor of a type begins."""
    pointer = f"tl.pointer_type({LANGUAGE[dtype.name]})"
    return [
        f"{name} = tl.multiple_of(tl.load(addresses + tl.load(block)).to({pointer}), ALIGNED)",
        f"{name} += tl.multiple_of(tl.load(block + FIRST), PADDED_TO)",
    ]


def _load(dtype: DType, compute: DType, name: str) -> str:
    cast = "" if dtype is compute else f".to({LANGUAGE[compute.name]})"
    return f"x = tl.load({name} + offsets, mask=mask, other=0){cast}"


def _reads(dtypes: Sequence[DType], compute: DType) -> list[str]:
    """Returns the lines that read a block of a tensor of one of these types."""
    tile = [
        "offsets = tl.arange(0, BLOCK)",
        "mask = offsets < tl.multiple_of(tl.load(block + TOUCHED).to(tl.int32), PADDED_TO)",
    ]
    if len(dtypes) == 1:
        return [*_address(dtypes[0], "at"), *tile, _load(dtypes[0], compute, "at")]
    lines = [*tile, "kind = tl.load(kinds + tl.load(block))", f"x = tl.zeros((BLOCK,), {LANGUAGE[compute.name]})"]
    for number, dtype in enumerate(dtypes):
        # The addresses have another name in each branch: what has one name has one type.
        name = f"at{number}"
        lines += nested(f"if kind == {number}:", [*_address(dtype, name), _load(dtype, compute, name)])
    return lines


def _functions(dtypes: Sequence[DType], compute: DType) -> str:
    kind = LANGUAGE[compute.name]
    block = function(
        "kernel",
        _parameters(compute, len(dtypes) > 1),
        [
            *FIND,
            *_reads(dtypes, compute),
            # Loads reach into the padding, for full width; what lies there need not be zero.
            "x = tl.where(offsets < tl.load(block + OWN).to(tl.int32), x, 0.0)",
            "tl.store(partials + tl.program_id(0), tl.sum(x * x, 0))",
        ],
        table_sizes(),
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
    return "\n\n\n".join((block, tensors))


@dataclass(frozen=True, slots=True)
class _Total:
    """The last launch: the sum, and the single numbers that follow from it.

    Attributes:
        compute: The type of the sum.
        result: The sum.
        needed: Values that are written.
        group: The ops that follow.
    """

    compute: DType
    result: str
    needed: Sequence[str]
    group: LoopNest | None

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """What is read beside the sum."""
        return tuple(o for o in self.group.inputs if o.value != self.result) if self.group is not None else ()

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What is written."""
        own = Operand("y", self.result, self.compute, (True,))
        return (*([own] if self.result in self.needed else []), *(self.group.outputs if self.group is not None else ()))

    def function(self, used: set[str]) -> str:
        """Returns the text; one program and no atomics: the order of additions is always the same."""
        names, sizes = ("sums", *(o.name for o in (*self.inputs, *self.outputs))), SizeNames()
        many = sizes("AT_ONCE", 8, "loads that do not wait for each other")
        body = [
            # All values are blocks of one element, as functions of the prelude take them.
            "offsets = tl.arange(0, 1)",
            "mask = offsets < 1",
            "result = tl.load(sums + offsets)",
            f"for first in range(1, count, {many}):",
            "    # In the tensors' order.",
            f"    for i in tl.static_range({many}):",
            "        result += tl.load(sums + first + i + offsets, mask=mask & (first + i < count), other=0)",
        ]
        made = {self.result: Typed("result", self.compute)}
        if self.group is not None:
            loads, lines = loaded(self.group, lambda operand: ("offsets", "mask"), made)
            body += [*loads, *lines.lines]
            made |= lines.done
            used |= lines.used
        for operand in self.outputs:
            text = stored(made[operand.value], operand.dtype, used)
            body.append(f"tl.store({operand.name} + offsets, {text}, mask=mask)")
        pointers = [KernelParameter(name, "pointer") for name in names]
        return function("total", (*pointers[:1], KernelParameter("count", "integer"), *pointers[1:]), body, sizes)

    def launch(self, count: int) -> Launch:
        """Returns its launch over the sums of so many tensors."""
        around = (*self.inputs, *self.outputs)
        types = f"*{TYPES[self.compute.name]}", "i32", *(f"*{TYPES[o.dtype.name]}" for o in around)
        return Launch("total", (1,), (SUMS, count, *(o.value for o in around)), {}, 1, types)


def square_sum_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a ``sum`` over ``squared_l2_norm`` of many tensors, some of them cast first.

    Args:
        body: The casts, the norms, the sum, and ops behind it that compute single numbers.
        metas: Metadata of all their values.
        needed: Which of the sum and of these numbers are written.

    Raises:
        CodegenUnsupported: If the sums have several types, or what is behind them has no form in kernels.
    """
    place = next(i for i, op in enumerate(body) if op.type == "sum")
    last, head, tail = body[place], body[:place], body[place + 1 :]
    # A cast is taken in: the tensor is read in its own type, and widened in registers.
    source = {str(op.output("Out")): str(op.input("X")) for op in head if op.type == "cast"}
    norms = {str(op.output("Out")): str(op.input("X")) for op in head if op.type == "squared_l2_norm"}
    entries = last.input("X")
    assert isinstance(entries, tuple)
    tensors = tuple(source.get(norms[v], norms[v]) for v in entries)
    result = str(last.output("Out"))
    compute = metas[result].dtype
    types = [metas[t].dtype for t in tensors]
    if compute.is_low or any(t.compute is not compute for t in types):
        raise CodegenUnsupported("NO_KERNEL_FORM", "the gradients are summed in several types", last)
    # In the order of the tensors, so that equal programs have equal texts.
    dtypes = list(dict.fromkeys(types))
    kinds = np.array([dtypes.index(t) for t in types], np.int64)
    several = len(dtypes) > 1
    sizes = [metas[t].numel for t in tensors]
    number = TYPES[compute.name]
    total = _Total(compute, result, needed, build(tail, metas, [v for v in needed if v != result]) if tail else None)
    used: set[str] = set()
    functions = f"{_functions(dtypes, compute)}\n\n\n{total.function(used)}"
    parameters = _parameters(compute, several)

    def plan(target: Target) -> Launches:
        block = target.block("BLOCK", power_of_two(max(sizes), 16, 1 << 16) if target.large_programs else BLOCK)
        step = 1 if target.large_programs else STEP
        rows = segments(sizes, block, step)
        # Tensor -> number of its first block; the last entry is the number of blocks.
        firsts = np.concatenate([[0], np.cumsum(np.bincount(rows[:, 0], minlength=len(sizes)))]).astype(np.int64)
        # A tile holds the blocks of the largest tensor, up to 1,024.
        wide = power_of_two(max(1, int(np.diff(firsts).max())), 16, 1024)
        launches = []
        # A launch of no programs is an error on a GPU; without blocks the sums per tensor are zero.
        if len(rows):
            launches.append(Launch("kernel", (len(rows),), operands(parameters), {"BLOCK": block}))
        taken = f"*{number}", "*i64", f"*{number}"
        launches.append(Launch("tensors", (len(sizes),), (PARTIALS, FIRSTS, SUMS), {"BLOCK": wide}, types=taken))
        launches.append(total.launch(len(sizes)))
        partials = {PARTIALS: (max(1, len(rows)), compute), SUMS: (len(sizes), compute)}
        tables = {
            ADDRESSES: Table(tensors, text='[memory[f"X{i}"] for i in range(len(SIZES))]'),
            BLOCKS: table(rows, block, step),
            FIRSTS: Table(numbers=firsts, text=f"np.cumsum([0, *(-(-n // {block}) for n in SIZES)]).tolist()"),
        }
        if several:
            tables[KINDS] = Table(numbers=kinds, text="KINDS")
        return Launches(tuple(launches), partials, tables)

    memory = (
        (
            *(KernelArgument(t, metas[t].dtype, metas[t].numel) for t in tensors),
            *(KernelArgument(o.value, o.dtype, 1) for o in total.inputs),
        ),
        tuple(KernelArgument(o.value, o.dtype, 1) for o in total.outputs),
    )

    def main(made: Kernel) -> str:
        try:
            return script(made, _parts(total, tail, metas, sizes, types))
        # The kernel itself is good: only its check cannot be written in numpy.
        except NoNameError as error:
            return f"# It does not run alone: {error} has no plain form in numpy."

    return as_kernel("square_sum", body, metas, functions, used, parameters, memory, plan, main)


def _parts(
    total: _Total, tail: Sequence[FrozenOp], metas: Mapping[str, Meta], sizes: Sequence[int], types: Sequence[DType]
) -> Parts:
    """Returns what the module says of itself to run alone: tensor i is called ``Xi``."""
    dtypes = list(dict.fromkeys(types))
    # Of each tensor about as much of a sum near 2, so that none is lost in it, nor the sum in what follows.
    limits = "*(k / (max(1, n) * len(SIZES)) ** 0.5 for k in (1, 2))"
    inputs = [f'**{{f"X{{i}}": ((n,), torch.{dtypes[0].name}, {limits}) for i, n in enumerate(SIZES)}},']
    helpers = [HELPER]
    if len(dtypes) > 1:
        names = ", ".join(f"torch.{t.name}" for t in dtypes)
        drawn = f"((n,), ({names})[kind], {limits})"
        inputs = [f'**{{f"X{{i}}": {drawn} for i, (n, kind) in enumerate(zip(SIZES, KINDS))}},']
        helpers.append(f"KINDS = {wrapped([dtypes.index(t) for t in types])}")
    given = {o.value: o.name for o in total.inputs}
    made = {o.value: o.name for o in total.outputs}
    inputs += [entry(k, metas[v].shape, metas[v].dtype, bounds(tail, v, metas)) for v, k in given.items()]
    outputs = [entry(k, metas[v].shape, metas[v].dtype) for v, k in made.items()]
    texts = {v: f'given["{k}"]' for v, k in given.items()}
    reference = Reference(metas, {**texts, total.result: "total"}, None, list(total.needed))
    reference.write(tail)
    results = ", ".join(f'"{k}": {reference.of(v).text}' for v, k in made.items())
    return Parts(
        inputs,
        outputs,
        given | made,
        "**given",
        [
            'total = sum(np.sum(np.square(given[f"X{i}"])) for i in range(len(SIZES)))',
            f"total = np.full({metas[total.result].shape!r}, total)",
            *reference.lines,
            f"return {{{results}}}",
        ],
        [*helpers, *reference.helpers.values()],
        sizes,
        reference.jumps,
    )
