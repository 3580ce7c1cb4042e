"""Groups along rows: a program holds whole rows, so that each is read once however often it is summed."""

from __future__ import annotations

import math
from dataclasses import replace

from tstatic.fusion.codegen.kernel import Kernel, KernelParameter, Launch, Launches, operands, power_of_two
from tstatic.fusion.codegen.loops import row_blocks, sums
from tstatic.fusion.codegen.loops.lines import Lines
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand
from tstatic.fusion.codegen.text.emit import (
    assemble,
    coordinates,
    function,
    loaded,
    offset_type,
    pointers_of,
    run_of,
    stored,
)
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.target import Target

LONGEST = 16384
"""Elements of a row that one program's registers hold without spilling (32 values a thread)."""

LONGEST_SUMS = 16384
"""Sums over rows, one per column and output, that a program's registers hold beside a row."""

BLOCK = 4096
"""Columns of a longer row that a program of 16 warps works on at a time: 8 values a thread, which leaves registers for
long chains. Four programs fit a multiprocessor: 528 rows on an H200, and of 50,304 16-bit columns 53 MB, about its L2 cache,
where the next pass finds what it reads again."""

_SPLIT = 2
"""Programs for each multiprocessor that share the rows when columns are summed."""

_LEAST = 8
"""The fewest rows of each of them: the sums that it leaves are written and read once, like two more rows of float32."""


def _index(group: LoopNest, operand: Operand, sizes: SizeNames) -> tuple[str, str]:
    """Returns offset and mask of an operand's elements."""
    assert group.inner is not None
    # Four cases: each element; one per row; one per column; any other broadcast, whose offset takes divisions.
    if operand.full:
        return "offsets", "mask"
    outer, inside = operand.dims[: group.inner], operand.dims[group.inner :]
    if not any(inside):
        return coordinates(
            group.iteration_space[: group.inner], replace(operand, dims=outer), "rows", sizes
        ), "row_mask"
    if all(inside) and not any(outer):
        return "columns", f"columns < {_length(group, sizes)}"
    return f"({coordinates(group.iteration_space, operand, 'offsets', sizes)})", "mask"


def _length(group: LoopNest, sizes: SizeNames) -> str:
    return sizes("LENGTH", math.prod(group.iteration_space[group.inner :]), "elements of a row")


def _count(group: LoopNest, sizes: SizeNames) -> str:
    return sizes("COUNT", group.rows, "how many rows there are")


def check_sums(group: LoopNest) -> None:
    """Raises CodegenUnsupported if a group along rows sums more columns than a program holds."""
    if group.inner is None or not group.summed:
        return
    length = math.prod(group.iteration_space[group.inner :])
    if length > LONGEST or len(group.summed) * power_of_two(length, 1, LONGEST) > LONGEST_SUMS:
        raise CodegenUnsupported(
            "LONG_ROW",
            f"{len(group.summed)} times columns are summed over rows of {length} elements, a program holds {LONGEST_SUMS} sums",
        )


def rows_kernel(group: LoopNest) -> Kernel:
    """Returns the kernel of a group that works along rows.

    Raises:
        CodegenUnsupported: For sums over rows that are too long, or a function without a form.
    """
    assert group.inner is not None
    length, count = math.prod(group.iteration_space[group.inner :]), group.rows
    check_sums(group)
    run = run_of(group, length) if length <= LONGEST else 0
    sizes = SizeNames()
    named, rows, neighbours = (
        _length(group, sizes), _count(group, sizes), sizes("RUN", run, "neighbours whose random numbers are drawn together"),
    )  # fmt: skip
    runs = [f"rows * {named} + runs, columns, {neighbours}, False"] * len(group.drawings) if run else []
    loads, lines = loaded(group, lambda operand: _index(group, operand, sizes), drawn_runs=runs)
    # The row does not fit into registers: several passes in blocks, out of the cache.
    if length > LONGEST:
        return _long_rows(group, loads, lines, sizes)
    totals, stores, writes = [], [], []
    for operand in group.outputs:
        value = lines.done[operand.value]
        # Written in this launch; sums over rows are completed by a second one.
        if operand not in group.summed:
            stores.append(_store(group, operand, lines, sizes))
            continue
        total, cleared = sums.running(operand, value, "(COLUMNS,)")
        totals.append(cleared)
        stores.append(f"{total} += tl.sum(tl.where(mask, {value.text}, 0.0), 0)")
        place = f"p_{operand.name} + tl.program_id(0) * {named} + tl.arange(0, COLUMNS)"
        writes.append(f"tl.store({place}, {total}, mask=tl.arange(0, COLUMNS) < {named})")
    # The length of a row is a constant of the text: the compiler then knows which accesses are aligned.
    parameters = (*pointers_of(group), *sums.STRIP)
    tile = [
        f"row_mask = (inside[:, None] < strip) & (rows < {rows})",
        f"mask = row_mask & (columns < {named})",
        f"offsets = rows * {named} + columns",
    ]
    body = [
        "columns = tl.arange(0, COLUMNS)[None, :]",
        *(
            [f"runs = {neighbours} * tl.arange(0, COLUMNS // {neighbours})[None, :]"]
            if "_half_runs" in lines.used
            else []
        ),
        *totals,
        *sums.over_strip(0, offset_type(group), [*tile, *loads, *lines.lines, *stores]),
        *writes,
    ]
    text = function("kernel", parameters, body, sizes)
    if group.summed:
        # The text of `finish` names it, whatever the outputs' types are.
        lines.used.add("to_bf16")
        text += f"\n\n\n{sums.text(len(group.summed))}"
    pointers = operands(parameters)

    def plan(target: Target) -> Launches:
        # A tile has whole rows: as many as fill a program, one of a long row.
        wide = power_of_two(length, 1, LONGEST)
        tall = (
            power_of_two(-(-count // 2), 1, max(1, (1 << 16) // wide))
            if target.large_programs
            else max(1, min(8, 2048 // wide))
        )
        tall = target.block("ROWS", tall, beside=wide)
        # A program takes one tile, unless columns are summed: then it keeps its sums in registers over a strip of tiles.
        strips = math.ceil(count / tall)
        if group.summed:
            strips = min(
                strips, 2 if target.large_programs else min(_SPLIT * target.multiprocessors, -(-count // _LEAST))
            )
        strip = math.ceil(math.ceil(count / strips) / tall) * tall
        strips = math.ceil(count / strip)
        # 16 values a thread, so that a row of 4,096 takes 8 warps; 8 where two sums per column stay in registers, too, or
        # the words of random numbers.
        many = len(group.summed) > 1 or group.drawings
        warps = power_of_two(tall * wide // (256 if many else 512), 1, 16)
        main = Launch("kernel", (strips,), (*pointers, strip), {"ROWS": tall, "COLUMNS": wide}, warps)
        return sums.finished(main, group.summed, strips, length, target)

    return assemble(group, "rows", parameters, lines.used, text, plan)


def _store(group: LoopNest, operand: Operand, lines: Lines, sizes: SizeNames) -> str:
    """Returns the text that writes an output that is not a sum over rows."""
    index, mask = _index(group, operand, sizes)
    value = stored(lines.done[operand.value], operand.dtype, lines.used)
    return f"tl.store({operand.name} + {index}, {value}, mask={mask})"


def _long_rows(group: LoopNest, loads: list[str], lines: Lines, sizes: SizeNames) -> Kernel:
    """Returns the kernel of rows that are longer than what a program holds: it goes over them once per level of sums."""
    count = group.rows
    full = [_store(group, o, lines, sizes) for o in group.outputs if o.full]
    per_row = [_store(group, o, lines, sizes) for o in group.outputs if not o.full]
    parameters = (*pointers_of(group), KernelParameter("ROWS", "constant"), KernelParameter("COLUMNS", "constant"))
    body = [
        f"rows = (tl.program_id(0).to({offset_type(group)}) * ROWS + tl.arange(0, ROWS))[:, None]",
        f"row_mask = rows < {_count(group, sizes)}",
        *row_blocks.passes(lines, loads, full, _length(group, sizes)),
        *per_row,
    ]
    pointers = operands(parameters)

    def plan(target: Target) -> Launches:
        # About two programs, so that tests in the interpreter see a border.
        wide = target.block("COLUMNS", BLOCK)
        tall = target.block("ROWS", power_of_two(-(-count // 2), 1, 16) if target.large_programs else 1, beside=wide)
        constants = {"ROWS": tall, "COLUMNS": wide}
        return Launches((Launch("kernel", (-(-count // tall),), pointers, constants, num_warps=16),), {})

    return assemble(group, "long_rows", parameters, lines.used, function("kernel", parameters, body, sizes), plan)
