"""A group as the text of a module: kernels that can be read, and run alone."""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from tstatic.fusion.codegen.kernel import (
    DRAWS,
    RNG,
    Kernel,
    KernelArgument,
    KernelParameter,
    Launch,
    Launches,
    Table,
    operands,
    power_of_two,
)
from tstatic.fusion.codegen.loops import sums
from tstatic.fusion.codegen.loops.lines import DRAW, LANGUAGE, TYPES, Lines, Typed, nested
from tstatic.fusion.codegen.loops.loop_nest import LoopNest, Operand
from tstatic.fusion.codegen.numerics import strict_numerics, uncontracted
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.fusion.codegen.text.size_names import SizeNames, product_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.locks import parse_module
from tstatic.target import Target

_SPLIT = 8
"""Programs for each multiprocessor that share what is summed over more than rows: half of its warps, whose loads are under way."""

_STRICT_SPLIT = 4
"""The same under strict numerics, whose bits depend on it."""

_FEW = 8
"""So many terms of each sum are one program's tile."""

_MANY_SUMS = 1 << 15
"""So many sums are work for two programs of 128 columns on each of 128 multiprocessors."""

_PRELUDE = Path(__file__).with_name("prelude.py")

TREE_SUM = "_tree_sum"
"""The prelude's function that adds in an order of its own."""


@cache
def _prelude() -> Mapping[str, tuple[str, frozenset[str]]]:
    """Returns function -> its text, and the prelude's functions that it calls."""
    # Read, not imported: kernels are written without Triton.
    text = _PRELUDE.read_text()
    tree = parse_module(text)
    lines = text.splitlines()
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            start = min(d.lineno for d in node.decorator_list)
            body = "\n".join(lines[start - 1 : node.end_lineno])
            called = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names}
            found[node.name] = body, frozenset(called)
    return found


def prelude_functions() -> frozenset[str]:
    """Returns the names of the prelude's functions."""
    return frozenset(_prelude())


def helpers(used: set[str]) -> str:
    """Returns the prelude's functions that are used, with those that they use, in the prelude's order."""
    known = _prelude()
    wanted: set[str] = set()
    pending = list(used)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(known[name][1])
            if name != TREE_SUM and TREE_SUM in in_fixed_order(known[name][0]):
                pending.append(TREE_SUM)
    # In the prelude's order, whatever the order of use: equal kernels have equal text.
    texts = (text if name == TREE_SUM else in_fixed_order(text) for name, (text, _) in known.items() if name in wanted)
    return "\n\n\n".join(texts)


def in_fixed_order(text: str) -> str:
    """Returns the text of functions, in which strict numerics add up the elements of a tile in an order that nothing changes."""
    return text.replace("tl.sum(", f"{TREE_SUM}(") if strict_numerics() else text


def load(operand: Operand, index: str, mask: str, used: set[str]) -> tuple[str, DType]:
    """Returns the text that reads an operand, in the type that it is computed in."""
    # What the mask hides is computed, too: it needs a defined value.
    text = f"tl.load({operand.name} + {index}, mask={mask}, other=0)"
    compute = operand.dtype.compute
    # A bool is a byte in memory.
    if operand.dtype.name == "bool":
        text = f"({text} != 0)"
    elif operand.dtype.name == "bfloat16":
        used.add("from_bf16")
        text = f"from_bf16({text})"
    elif compute is not operand.dtype:
        text += f".to({LANGUAGE[compute.name]})"
    return text, compute


def stored(value: Typed, dtype: DType, used: set[str]) -> str:
    """Returns the text of a value as its type in memory holds it."""
    if dtype.name == "bfloat16":
        used.add("to_bf16")
        return f"to_bf16({value.text})"
    return value.text if value.dtype is dtype else f"{value.text}.to({LANGUAGE[dtype.name]})"


def loaded(
    group: LoopNest,
    index: Callable[[Operand], tuple[str, str]],
    given: Mapping[str, Typed] | None = None,
    casts_round: bool = True,
    drawn_runs: Sequence[str] = (),
) -> tuple[list[str], Lines]:
    """Returns the lines that load a group's inputs, and its own, written.

    Args:
        group: The group.
        index: ``(operand) -> (offset, mask)``.
        given: Inputs that lie in registers: value -> its name there.
        casts_round: Whether casts round what they take to its own 16-bit type.
        drawn_runs: Arguments by which halves are drawn for runs of neighbours at a time, where they lie so.
    """
    used: set[str] = set()
    loads: list[str] = []
    names: dict[int, Typed] = {}
    for i, operand in enumerate(group.inputs):
        if given is not None and operand.value in given:
            names[i] = given[operand.value]
            continue
        text, dtype = load(operand, *index(operand), used)
        loads.append(f"a{i} = {text}")
        names[i] = Typed(f"a{i}", dtype)
    drawn_at = [index(drawing.operand)[0] for drawing in group.drawings]
    lines = Lines(group, names, drawn_at, casts_round, drawn_runs)
    lines.used |= used
    lines.write()
    return loads, lines


def run_of(group: LoopNest, length: int) -> int:
    """Returns for how many neighbours of a row halves are drawn together: for those that a thread reads at a time, if for any.

    Args:
        group: The group.
        length: Of a row; each begins where the one before it ends.
    """
    wide = max((o.dtype.itemsize for o in (*group.inputs, *group.outputs) if o.full), default=8)
    run = 8 if wide <= 2 else 4
    fits = wide <= 4 and length % run == 0 and length >= 2 * run
    return run if fits and group.drawings and all(one.operand.full for one in group.drawings) else 0


def coordinates(iteration_space: tuple[int, ...], operand: Operand, offset: str, sizes: SizeNames) -> str:
    """Returns an operand's element for a linear offset into the space, whose sizes it names."""
    if operand.full:
        return offset
    terms: list[str] = []
    # Names of the axes whose product is the stride of the next run.
    stride: list[str] = []
    run: list[int] = []
    # Neighbouring dimensions that the operand has count as one.
    dims = list(range(len(iteration_space)))
    # From the innermost dimension outwards: a run ends before a dimension that the operand lacks, or at the outermost one.
    for d in reversed(dims):
        if operand.dims[d]:
            run.append(d)
        if (not operand.dims[d] or d == 0) and run:
            # Elements of the space per step of the run.
            below = range(max(run) + 1, len(iteration_space))
            whole = math.prod(iteration_space[i] for i in below)
            text = offset if whole == 1 else f"({offset} // {product_of(_axes(iteration_space, below, sizes))})"
            own = _axes(iteration_space, sorted(run), sizes)
            # The outermost run needs no remainder: no offset lies beyond it.
            if min(run) > 0:
                text = f"({text} % {product_of(own)})"
            terms.append(f"{text} * {product_of(stride)}" if stride else text)
            stride = [*own, *stride]
            run = []
    # A single element is read by the whole block: 0 in the block's shape.
    return " + ".join(reversed(terms)) if terms else "0 * " + offset


def _axes(iteration_space: tuple[int, ...], places: Iterable[int], sizes: SizeNames) -> list[str]:
    return [sizes(f"AXIS_{i}", iteration_space[i], f"size of axis {i} of what the operands share") for i in places]


def emit(group: LoopNest) -> Kernel:
    """Writes the module of a group.

    Raises:
        CodegenUnsupported: If a function or a sum of the group has no form in kernels.
    """
    return _sum_kernel(group) if group.summed else _pointwise_kernel(group)


def module(helpers: str, functions: str) -> str:
    """Returns the parts of a module, put together, but for its docstring."""
    parts = ["import triton\nimport triton.language as tl"]
    # Only functions with another form for the interpreter ask where they run.
    if "INTERPRETED" in helpers:
        parts[-1] = f"import os\n\n{parts[-1]}"
        parts.append('INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")')
    parts += [helpers, functions] if helpers else [functions]
    return "\n\n\n".join(parts) + "\n"


def named(text: str, template: str) -> str:
    """Returns a name that depends on the code alone, comments left out: what an op is called changes nothing."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return f"{template}_{hashlib.sha256(code.encode()).hexdigest()[:10]}"


def as_kernel(
    template: str,
    body: Sequence[FrozenOp],
    metas: Mapping[str, Meta],
    functions: str,
    used: set[str],
    parameters: tuple[KernelParameter, ...],
    memory: tuple[tuple[KernelArgument, ...], tuple[KernelArgument, ...]],
    plan: Callable[[Target], Launches],
    main: Callable[[Kernel], str],
    inplace: tuple[tuple[str, str], ...] = (),
) -> Kernel:
    """Returns functions as a kernel: with the helpers that they call, under a name that depends on their text alone.

    Args:
        template: What wrote the functions.
        body: The ops that they compute.
        metas: Metadata of all their values.
        functions: Their text; the main one is called ``kernel``.
        used: Functions of the prelude that they call.
        parameters: Of the main function.
        memory: What is read, and what is written.
        plan: How they are launched on a chip.
        main: Writes the part that makes the module run as a script.
        inplace: (input, output) that may lie in the same memory.
    """
    functions = in_fixed_order(functions)
    # Of the prelude only what they call: a template may ask for more than one of its forms turns out to need.
    called = {name for name in used if re.search(rf"\b{name}\b", functions)}
    own = helpers(called | {TREE_SUM} if f"{TREE_SUM}(" in functions else called)
    text = module(own, functions)
    return Kernel(
        named(text, template), text, template, parameters, *memory, plan, main, inplace, ops=tuple(body), metas=metas
    )


def offset_type(group: LoopNest) -> str:
    """Returns the type of offsets: 64 bits unless the space is known to be small."""
    # Half of what signed 32 bits hold: the last block reaches beyond the last element.
    return "tl.int64" if group.numel >= 1 << 30 else "tl.int32"


def pointers_of(group: LoopNest, direct: bool = False) -> tuple[KernelParameter, ...]:
    """Returns parameters for a group's memory; unless ``direct``, a summed output is written to partial sums first."""
    summed = set() if direct else set(group.summed)
    memory = tuple(
        KernelParameter(f"p_{o.name}", "pointer", TYPES[o.dtype.compute.name], sums.partial(o))
        if o in summed
        else KernelParameter(o.name, "pointer", TYPES[o.dtype.name], o.value)
        for o in (*group.inputs, *group.outputs)
    )
    if not group.drawings:
        return memory
    return (*memory, KernelParameter("rng", "pointer", "i64", RNG), KernelParameter("draws", "pointer", "i64", DRAWS))


def drawing_table(group: LoopNest) -> Table:
    """Returns which op draws each of the group's random numbers, and what its expressions read."""
    words: list[int] = []
    for one in group.drawings:
        words += [one.position, one.seed]
        words += [int(np.float64(v).view(np.int64)) if isinstance(v, float) else v for _, v in one.loaded]
    return Table(numbers=np.array([word % (1 << 64) for word in words], np.uint64).view(np.int64))


def _pointwise_kernel(group: LoopNest) -> Kernel:
    sizes = SizeNames()
    loads, lines = loaded(
        group, lambda operand: (coordinates(group.iteration_space, operand, "offsets", sizes), "mask")
    )
    stores = []
    for operand in group.outputs:
        value = lines.done[operand.value]
        stores.append(f"tl.store({operand.name} + offsets, {stored(value, operand.dtype, lines.used)}, mask=mask)")
    parameters = (
        *pointers_of(group),
        KernelParameter("n", "integer", "i64" if group.numel >= 1 << 31 else "i32"),
        KernelParameter("BLOCK", "constant"),
    )
    body = [
        f"offsets = tl.program_id(0).to({offset_type(group)}) * BLOCK + tl.arange(0, BLOCK)",
        "mask = offsets < n",
        *loads,
        *lines.lines,
        *stores,
    ]
    numel = group.numel
    wide = max((o.dtype.itemsize for o in (*group.inputs, *group.outputs)), default=4)
    arguments: tuple[str | int | float, ...] = (*operands(parameters), numel)

    def plan(target: Target) -> Launches:
        # 16 bytes a thread of the widest array: 128-bit accesses, and no change of layout for the narrower ones.
        chosen = power_of_two(-(-numel // 3), 16, 1 << 17) if target.large_programs else 2048 // wide
        block = target.block("BLOCK", chosen)
        return Launches((Launch("kernel", (-(-numel // block),), arguments, {"BLOCK": block}),), {})

    return assemble(group, "pointwise", parameters, lines.used, function("kernel", parameters, body, sizes), plan)


def function(
    name: str, parameters: tuple[KernelParameter, ...], body: list[str], sizes: SizeNames | None = None
) -> str:
    """Returns the text of a jitted function, with those of ``sizes`` that it uses."""
    body = body if sizes is None else sizes.defined(body)
    texts = [f"{p.name}: tl.constexpr" if p.kind == "constant" else p.name for p in parameters]
    return "\n".join(["@triton.jit", *nested(f"def {name}({', '.join(texts)}):", body)])


def rounds_apart(used: set[str]) -> bool:
    """Returns whether no product and sum may be one operation: under strict numerics, and where floats are drawn.

    Such a number is made of products and sums, each rounded: those of the reference.
    """
    return strict_numerics() or not used.isdisjoint(function for function, dtype in DRAW.values() if dtype.is_float)


def assemble(
    group: LoopNest,
    template: str,
    parameters: tuple[KernelParameter, ...],
    used: set[str],
    functions: str,
    plan: Callable[[Target], Launches],
) -> Kernel:
    """Returns the kernel of a group."""
    body = [op for op, _ in group.ops]
    buffers = [
        KernelArgument(
            o.value, o.dtype, math.prod(n for n, has in zip(group.iteration_space, o.dims, strict=True) if has)
        )
        for o in (*group.inputs, *group.outputs)
    ]
    count = len(group.inputs)
    memory = tuple(buffers[:count]), tuple(buffers[count:])
    # The flag is read now: when the kernel is planned it may be another.
    separate = rounds_apart(used)

    def kept(target: Target) -> Launches:
        calls = uncontracted(plan(target)) if separate else plan(target)
        return replace(calls, tables={**calls.tables, DRAWS: drawing_table(group)}) if group.drawings else calls

    main = standalone_main(body, group.metas)
    return as_kernel(template, body, group.metas, functions, used, parameters, memory, kept, main, group.inplace)


def _sum_kernel(group: LoopNest) -> Kernel:
    """Writes full outputs as in a pointwise kernel, and sums over all but one run of dimensions, in a fixed order.

    A program owns ``COLUMNS`` kept positions and a strip of the summed ones; partial sums of the strips are added by a
    second kernel, so that the result does not depend on who finishes first. Where all programs have work without strips, each
    sums all that belongs to its positions, and there is no second kernel.
    """
    # In memory the data is ``[outer, kept, inner]``, in which ``kept`` stays and one of the others may be 1.
    dims = group.summed[0].dims
    runs = [d for d in range(len(dims)) if dims[d]]
    kept = inner = 1
    for d, size in enumerate(group.iteration_space):
        if dims[d]:
            kept *= size
        elif not runs or d > runs[-1]:
            inner *= size
    outer = group.numel // (kept * inner)
    rows = outer * inner
    direct = inner == 1 and (rows <= _FEW or kept >= _MANY_SUMS)
    split = _STRICT_SPLIT if strict_numerics() else _SPLIT

    sizes = SizeNames()
    named_kept = sizes("KEPT", kept, "columns, each with a sum of its own")
    named_inner = sizes("INNER", inner, "neighbours in memory that belong to one column")

    def index(operand: Operand) -> tuple[str, str]:
        # What has one element for each sum (a bias) is read once, and not with each tile.
        if operand.dims == dims:
            return "columns[None, :]", f"columns[None, :] < {named_kept}"
        return coordinates(group.iteration_space, operand, "offsets", sizes), "mask"

    run = run_of(group, kept) if inner == 1 else 0
    named_run = sizes("RUN", run, "neighbours whose random numbers are drawn together")
    drawn = (
        [f"rows * {named_kept} + runs[None, :], columns[None, :], {named_run}, False"] * len(group.drawings)
        if run
        else []
    )
    loads, lines = loaded(group, index, drawn_runs=drawn)
    once = [line for line, operand in zip(loads, group.inputs, strict=True) if operand.dims == dims]
    loads = [line for line in loads if line not in once]
    totals, stores, writes = [], [], []
    for operand in group.outputs:
        value = lines.done[operand.value]
        if operand.full:
            stores.append(f"tl.store({operand.name} + offsets, {stored(value, operand.dtype, lines.used)}, mask=mask)")
            continue
        total, cleared = sums.running(operand, value, "(ROWS, COLUMNS)")
        totals.append(cleared)
        stores.append(f"{total} += tl.where(mask, {value.text}, 0.0)")
        if direct:
            whole = stored(Typed(f"tl.sum({total}, 0)", operand.dtype.compute), operand.dtype, lines.used)
            writes.append(f"tl.store({operand.name} + columns, {whole}, mask=columns < {named_kept})")
            continue
        place = f"p_{operand.name} + tl.program_id(1) * {named_kept} + columns"
        writes.append(f"tl.store({place}, tl.sum({total}, 0), mask=columns < {named_kept})")
    parameters = (*pointers_of(group, direct), *sums.STRIP)
    position = f"rows * {named_kept} + columns"
    if inner > 1:
        position = f"(rows // {named_inner} * {named_kept} + columns) * {named_inner} + rows % {named_inner}"
    terms = sizes("TERMS", rows, "terms of each sum")
    tile = [
        f"mask = (inside[:, None] < strip) & (rows < {terms}) & (columns[None, :] < {named_kept})",
        f"offsets = {position.replace('columns', 'columns[None, :]')}",
    ]
    first = f"tl.program_id(0).to({offset_type(group)}) * COLUMNS"
    body = [
        f"columns = {first} + tl.arange(0, COLUMNS)",
        *(
            [f"runs = {first} + {named_run} * tl.arange(0, COLUMNS // {named_run})"]
            if "_half_runs" in lines.used
            else []
        ),
        *once,
        *totals,
        *sums.over_strip(1, offset_type(group), [*tile, *loads, *lines.lines, *stores]),
        *writes,
    ]
    text = function("kernel", parameters, body, sizes)
    if not direct:
        # The text of `finish` names it for every type; the compiler drops the branch that is not taken.
        lines.used.add("to_bf16")
    pointers = operands(parameters)

    def plan(target: Target) -> Launches:
        if target.large_programs:
            # About two strips of two blocks: tests in the interpreter see borders between programs and partial tiles.
            wide = target.block("COLUMNS", power_of_two(-(-kept // 2), 1, 1 << 14))
            tall = target.block("ROWS", power_of_two(-(-rows // 3), 1, max(1, (1 << 16) // wide)), beside=wide)
            strips = min(2, -(-rows // tall))
        elif inner > 1:
            # A column is contiguous: one for each program, and so many programs for each multiprocessor.
            wide = target.block("COLUMNS", 1)
            tall = target.block("ROWS", power_of_two(rows, 32, 1024), beside=wide)
            strips = max(1, min(-(-rows // tall), split * target.multiprocessors // max(1, -(-kept // wide))))
        else:
            # Rows are contiguous: a warp reads 32 neighbouring columns at once.
            wide = target.block("COLUMNS", power_of_two(kept, 32, 128))
            tall = target.block("ROWS", 8, beside=wide)
            strips = max(1, min(-(-rows // tall), split * target.multiprocessors // max(1, -(-kept // wide))))
        if direct:
            strips = 1
        # Whole tiles, of which the last strip may have fewer.
        strip = math.ceil(math.ceil(rows / strips) / tall) * tall
        strips = -(-rows // strip)
        main = Launch("kernel", (-(-kept // wide), strips), (*pointers, strip), {"ROWS": tall, "COLUMNS": wide})
        return Launches((main,), {}) if direct else sums.finished(main, group.summed, strips, kept, target)

    code = text if direct else f"{text}\n\n\n{sums.text(len(group.summed))}"
    return assemble(group, "sum", parameters, lines.used, code, plan)
