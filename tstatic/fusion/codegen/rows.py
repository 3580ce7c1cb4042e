"""Groups along rows: a program holds whole rows, so that each is read once however often it is summed."""

from __future__ import annotations

import math

from tstatic.fusion.codegen import sums
from tstatic.fusion.codegen.emit import (
    assemble,
    coordinates,
    function,
    load,
    offset_type,
    pointers_of,
    stored,
)
from tstatic.fusion.codegen.group import Group, NoKernel, Operand
from tstatic.fusion.codegen.kernel import Calls, Kernel, Launch, Parameter, power_of_two
from tstatic.fusion.codegen.lines import LANGUAGE, Lines, Typed

LONGEST = 16384
"""Elements of a row that one program's registers hold without spilling (32 values a thread)."""

_SPLIT = 264
"""Programs that share the rows when columns are summed: two per multiprocessor of an H100."""


def _index(group: Group, operand: Operand) -> tuple[str, str]:
    """Offset and mask of an operand's elements."""
    assert group.inner is not None
    if operand.full:
        return "offsets", "mask"
    if group.per_row(operand):
        return "rows", "row_mask"
    outer, inside = operand.dims[: group.inner], operand.dims[group.inner :]
    if all(inside) and not any(outer):
        return "columns", f"columns < {math.prod(group.space[group.inner :])}"
    return f"({coordinates(group.space, operand, 'offsets')})", "mask"


def rows_kernel(group: Group) -> Kernel:
    """The kernel of a group that works along rows.

    Raises:
        NoKernel: For rows that are too long, or a function without a form.
    """
    assert group.inner is not None
    length, count = math.prod(group.space[group.inner :]), group.rows
    if length > LONGEST:
        raise NoKernel("LONG_ROW", f"a row has {length} elements, a program holds {LONGEST}")
    loads, loaded = [], {}
    for i, operand in enumerate(group.inputs):
        text, dtype = load(operand, *_index(group, operand))
        loads.append(f"a{i} = {text}")
        loaded[i] = Typed(f"a{i}", dtype)
    lines = Lines(group, loaded)
    lines.write()
    totals, stores, writes = [], [], []
    for operand in group.outputs:
        value = lines.done[operand.value]
        if operand.full or group.per_row(operand):
            index, mask = _index(group, operand)
            stores.append(
                f"tl.store({operand.name} + {index}, {stored(value, operand.dtype, lines.used)}, mask={mask})"
            )
            continue
        if not value.dtype.is_float:
            raise NoKernel("SUM_TYPE", "a group sums floats only")
        total = f"sum_{operand.name}"
        totals.append(f"{total} = tl.zeros((COLUMNS,), {LANGUAGE[value.dtype.name]})")
        stores.append(f"{total} += tl.sum(tl.where(mask, {value.text}, 0.0), 0)")
        place = f"p_{operand.name} + tl.program_id(0) * {length} + tl.arange(0, COLUMNS)"
        writes.append(f"tl.store({place}, {total}, mask=tl.arange(0, COLUMNS) < {length})")
    parameters = (
        *pointers_of(group),
        Parameter("strip", "integer", "i32"),
        Parameter("ROWS", "constant"),
        Parameter("COLUMNS", "constant"),
    )
    body = [
        "columns = tl.arange(0, COLUMNS)[None, :]",
        *totals,
        "for start in range(0, strip, ROWS):",
        *(
            f"    {line}"
            for line in [
                "inside = start + tl.arange(0, ROWS)",
                f"rows = (tl.program_id(0).to({offset_type(group)}) * strip + inside)[:, None]",
                f"row_mask = (inside[:, None] < strip) & (rows < {count})",
                f"mask = row_mask & (columns < {length})",
                f"offsets = rows * {length} + columns",
                *loads,
                *lines.lines,
                *stores,
            ]
        ),
        *writes,
    ]
    text = function("kernel", parameters, body)
    if group.summed:
        lines.used.add("to_bf16")
        text += f"\n\n\n{sums.TEXT}"
    pointers = tuple(p.operand for p in parameters if p.kind == "pointer")

    def plan(few: bool) -> Calls:
        wide = power_of_two(length, 1, LONGEST)
        tall = power_of_two(-(-count // 2), 1, max(1, (1 << 16) // wide)) if few else max(1, min(8, 2048 // wide))
        strips = math.ceil(count / tall)
        if group.summed:
            strips = min(strips, 2 if few else _SPLIT)
        strip = math.ceil(math.ceil(count / strips) / tall) * tall
        strips = math.ceil(count / strip)
        # 16 values a thread, so that a row of 4,096 takes 8 warps.
        warps = power_of_two(tall * wide // 512, 1, 16)
        launches = [Launch("kernel", (strips,), (*pointers, strip), {"ROWS": tall, "COLUMNS": wide}, warps)]
        partials = {}
        for o in group.summed:
            name = f"partial:{o.name}"
            partials[name] = (strips * length, o.dtype.compute)
            launches.append(sums.finish(name, o.value, o.dtype, strips, length, few))
        return Calls(tuple(launches), partials)

    return assemble(group, "rows", parameters, lines.used, text, plan)
