"""A kernel of several parts: one module with the functions of each part's own template, launched one part after the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from tstatic.fusion.codegen.define import define, works_on_rows
from tstatic.fusion.codegen.kernel import (
    Kernel,
    KernelArgument,
    KernelLocal,
    Launch,
    Launches,
    LibraryProduct,
    Table,
)
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.products import multiplies
from tstatic.fusion.codegen.text.emit import helpers, module, named, prelude_functions
from tstatic.fusion.codegen.text.reference import Rule
from tstatic.fusion.codegen.text.script import Fitting, standalone_main
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.locks import parse_module
from tstatic.target import Target


def compose(
    parts: Sequence[Kernel],
    body: Sequence[FrozenOp],
    metas: Mapping[str, Meta],
    needed: Sequence[str],
    rule: Rule | None = None,
    fitting: Fitting | None = None,
) -> Kernel:
    """Returns the kernel that runs kernels one after the other.

    A value that one part writes and another reads, and that nobody else needs, lies in a buffer that the launches share; the
    plan gives it memory only while they run.

    Args:
        parts: In order: each reads what was there before, or what earlier ones write.
        body: The ops that they compute together.
        metas: Metadata of all values.
        needed: Values that are written to memory.
        rule: Writes ops that state no expressions, for the check of a module that runs alone.
        fitting: Inputs that are made of the others there.
    """
    used: set[str] = set()
    functions: list[str] = []
    for number, part in enumerate(parts):
        text, called = _renamed(part.code, number)
        functions.append(text)
        used |= called
    text = module(helpers(used), "\n\n\n".join(functions))
    written = {b.value: b for part in parts for b in part.outputs}
    assert {*needed} <= written.keys(), "no part writes what is needed"
    between = {v: b for v, b in written.items() if v not in needed}
    names: dict[str, KernelLocal] = {v: KernelLocal(f"between:{i}") for i, v in enumerate(between)}

    def joined(chosen: Sequence[Launches]) -> Launches:
        launches: list[Launch | LibraryProduct] = []
        tables: dict[KernelLocal, Table] = {}
        partials = {names[v]: (b.count, b.dtype) for v, b in between.items()}
        for number, (part, calls) in enumerate(zip(parts, chosen, strict=True)):
            local: dict[str, KernelLocal] = {
                n: KernelLocal(f"part{number}:{n}") for n in (*calls.partials, *calls.tables)
            }
            place = {**names, **local}
            launches += [_placed(one, part, number, place) for one in calls.launches]
            partials.update((local[n], entry) for n, entry in calls.partials.items())
            tables.update(
                (local[n], replace(table, values=tuple(place.get(v, v) for v in table.values)))
                for n, table in calls.tables.items()
            )
        ways = dict.fromkeys(calls.name for calls in chosen)
        return Launches(tuple(launches), partials, tables, " + ".join(ways))

    def plan(target: Target) -> Launches:
        return joined([part.plan(target) for part in parts])

    def alternatives(target: Target) -> tuple[Launches, ...]:
        first = [part.plan(target) for part in parts]
        # One part is changed at a time: all combinations would be the product of the parts' numbers.
        return tuple(
            replace(joined([*first[:number], other, *first[number + 1 :]]), name=f"part {number}: {other.name}")
            for number, part in enumerate(parts)
            for other in part.alternatives(target)
        )

    read: dict[str, KernelArgument] = {}
    for part in parts:
        for buffer in part.inputs:
            known = read.get(buffer.value)
            if buffer.value not in written and (known is None or known.count < buffer.count):
                read[buffer.value] = buffer
    return Kernel(
        named(text, "composite"), text, "composite", (), tuple(read.values()),
        tuple(written[v] for v in needed), plan, standalone_main(body, metas, rule, fitting), _inplace(parts, read, needed),
        alternatives, tuple(parts), joined, tuple(replace(b, value=names[v]) for v, b in between.items()),
        ops=tuple(body), metas=metas,
    )  # fmt: skip


@lru_cache(64)  # a net's layers have the same parts, and the tree of a module takes milliseconds
def _renamed(code: str, number: int) -> tuple[str, frozenset[str]]:
    """Returns the functions of a part's module under names of its own, and the functions of the prelude that they call."""
    tree = parse_module(code)
    shared = prelude_functions()
    defined = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    own = {n.name for n in defined} - shared
    lines = code.splitlines()
    # By line and column, from the last to the first, so that those before it stay where they are.
    for row, column in sorted((place for node in defined for place in _uses(node, own)), reverse=True):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}part{number}_{line[column:]}"
    done: list[str] = []
    called: set[str] = set()
    for node in defined:
        if node.name not in own:
            continue
        first = min(d.lineno for d in node.decorator_list)
        at = node.lineno - 1
        lines[at] = re.sub(rf"^def {node.name}\b", f"def part{number}_{node.name}", lines[at])
        done.append("\n".join(lines[first - 1 : node.end_lineno]))
        called |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & shared
    return "\n\n\n".join(done), frozenset(called)


def _uses(function: ast.FunctionDef, own: set[str]) -> set[tuple[int, int]]:
    """Returns the lines and columns at which a function names functions of its module."""
    found = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    # A variable may have the name of a function.
    local = {a.arg for a in function.args.args} | {n.id for n in found if isinstance(n.ctx, ast.Store)}
    return {(n.lineno, n.col_offset) for n in found if n.id in own - local}


def _placed(
    one: Launch | LibraryProduct, part: Kernel, number: int, place: Mapping[str, KernelLocal]
) -> Launch | LibraryProduct:
    """Returns a part's launch with the module's names of functions and memory, and with types of its own."""
    if isinstance(one, LibraryProduct):
        a, b, addend, out = (place.get(v, v) for v in (one.a, one.b, one.addend, one.out))
        return replace(one, a=a, b=b, addend=addend, out=out)
    arguments = tuple(place.get(a, a) if isinstance(a, str) else a for a in one.arguments)
    types = one.types or tuple(
        f"*{p.type}" if p.kind == "pointer" else p.type for p in part.parameters if p.kind != "constant"
    )
    return replace(one, function=f"part{number}_{one.function}", arguments=arguments, types=types)


def _inplace(parts: Sequence[Kernel], read: Iterable[str], needed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Returns the (input, output) pairs that may lie in the same memory: pairs of the part that reads the input last."""
    last = {b.value: number for number, part in enumerate(parts) for b in part.inputs}
    inputs, outputs = {*read}, {*needed}
    return tuple(
        (source, result)
        for number, part in enumerate(parts)
        for source, result in part.inplace
        # A later part would find the result in the place of the input.
        if source in inputs and result in outputs and last[source] == number
    )


def parts_of(body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> list[list[FrozenOp]]:
    """Returns the ops part by part: what comes before a product, the product and the ops per element behind it, what follows.

    What a kernel along rows reads last, it computes itself: adding a residual there costs no pass of its own.
    """
    stage_of: dict[str, int] = {}
    stages: list[int] = []
    products = 0
    for op in body:
        stage = max((stage_of.get(v, 0) for v in op.reads()), default=0)
        if multiplies(op):
            products += 1
            stage = 2 * products - 1
        elif stage % 2 and works_on_rows(op.definition):
            stage += 1
        stages.append(stage)
        stage_of |= dict.fromkeys(op.writes(), stage)
    maker = {v: i for i, op in enumerate(body) for v in op.writes()}
    for index, op in enumerate(body):
        if stages[index] and works_on_rows(op.definition):
            _move_to_rows(body, metas, stages, maker, index)
    return [
        found
        for stage in range(2 * products + 1)
        if (found := [o for o, s in zip(body, stages, strict=True) if s == stage])
    ]


def sums_apart(ops: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> list[list[FrozenOp]]:
    """Returns the ops of a part, and behind them each op by itself that sums over rows on its way: it adds as it does alone.

    What strict numerics ask for: a kernel along rows, and the tail of a product, would add in the order of their own tiles.

    Args:
        ops: A part with an operator along rows or a product.
        metas: Metadata of all values.

    Raises:
        CodegenUnsupported: If an op of the part needs what such an op makes, which comes after the part here.
    """
    summing = [op for op in ops if not multiplies(op) and _sums(op, metas)]
    made = {v for op in summing for v in op.writes()}
    rest = [op for op in ops if op not in summing]
    for op in (*rest, *summing):
        if not made.isdisjoint(op.reads()):
            raise CodegenUnsupported("NUM_STRICT", f"{op.type} reads what is made together with a sum", op)
    return [found for found in (rest, *([op] for op in summing)) if found]


def _sums(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether an op per element adds up some of its results."""
    formula = define(op, metas)
    if formula is None or formula.inner is not None:
        return False
    return any(shape != formula.full for shape in formula.targets.values())


def _move_to_rows(
    body: Sequence[FrozenOp], metas: Mapping[str, Meta], stages: list[int], maker: Mapping[str, int], index: int
) -> None:
    """Moves a residual's add, and a dropout straight before it, to the op along rows that reads it."""
    # The library multiplies wide types: all that follows would be one more pass over its product.
    wide = not metas[next(iter(body[index].writes()))].dtype.is_low
    movable = {"elementwise_add", "dropout"} if wide else {"dropout"}
    pending = [maker[v] for v in body[index].contents() if v in maker]
    while pending:
        at = pending.pop()
        op = body[at]
        residual = op.type == "elementwise_add" and len({metas[v].shape for v in op.contents()}) == 1
        if stages[at] == stages[index] - 1 and (residual or op.type in movable):
            stages[at] = stages[index]
            pending += [maker[v] for v in op.contents() if v in maker]
