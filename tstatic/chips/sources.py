"""A generated kernel as what a compiler without a GPU takes: one source per launch, with types and known multiples."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from tstatic.chips.aot import Source
from tstatic.fusion.codegen.kernel import Kernel, KernelLocal, Launch, Launches, LibraryProduct, argument_types
from tstatic.locks import parse_module
from tstatic.target import DEFAULT_TARGET


def parameters(text: str, function: str) -> list[str]:
    """Names of a function's parameters, ``tl.constexpr`` ones left out."""
    for node in parse_module(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return [a.arg for a in node.args.args if a.annotation is None]
    raise AssertionError(f"the module has no function '{function}'")


@lru_cache(maxsize=1024)
def extract_function(text: str, function: str) -> str:
    """Returns the part of a module that a function needs: kernels of different programs often share it."""
    tree = parse_module(text)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    wanted: set[str] = set()
    pending = [function]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(_called(functions[name]) & set(functions))
    lines = text.splitlines()
    parts = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            first = min(d.lineno for d in node.decorator_list)
            if node.name in wanted:
                parts.append("\n".join(_uncommented(lines[first - 1 : node.end_lineno])))
        elif isinstance(node, ast.Import | ast.Assign):
            parts.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return "\n\n\n".join(parts) + "\n"


def _called(function: ast.FunctionDef) -> set[str]:
    """Names that a function takes from its module: a local variable may be called like another function."""
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    own = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in function.args.args}
    return {n.id for n in names} - own


def _uncommented(lines: list[str]) -> list[str]:
    """Removes the lines that say what the user wrote where."""
    return [line for line in lines if not line.lstrip().startswith("#")]


def source(kernel: Kernel, launch: Launch, small: Mapping[str, bool], calls: Launches) -> Source:
    """Returns one launch as a source.

    Args:
        kernel: Whose module it is.
        launch: With the types of its arguments.
        small: Argument -> whether it lies off the main path (broadcast, or a sum), so that narrow accesses do no harm.
        calls: All launches and their tables.
    """
    names = parameters(kernel.code, launch.function)
    types = launch.types or argument_types(kernel.parameters)
    signature = dict(zip(names, types, strict=True))
    divisible = [
        name
        for name, argument in zip(names, launch.arguments, strict=True)
        if isinstance(argument, str) or (isinstance(argument, int) and argument % 16 == 0)
    ]
    off = tuple(n for n, a in zip(names, launch.arguments, strict=True) if isinstance(a, str) and small.get(a, True))
    widths = {b.value: 8 * b.dtype.itemsize for b in (*kernel.inputs, *kernel.outputs)}
    tables = [calls.tables[a] for a in launch.arguments if isinstance(a, KernelLocal) and a in calls.tables]
    behind = {widths[v] for table in tables for v in table.values if v in widths}
    return Source(
        extract_function(kernel.code, launch.function),
        launch.function,
        signature,
        launch.constants,
        tuple(divisible),
        num_warps=launch.num_warps,
        **({"num_stages": launch.stages} if launch.stages else {}),
        small=off,
        contract=launch.contract,
        behind=tuple(sorted(behind)),
    )


def sources(kernel: Kernel, calls: Launches | None = None) -> list[tuple[str, Source]]:
    """Returns all launches of a kernel on a GPU: one per function, and further ones that are given other types.

    Args:
        kernel: The kernel.
        calls: One of its candidates, if not the first.
    """
    arrays = (*kernel.inputs, *kernel.outputs, *kernel.between)
    largest = max((b.count for b in arrays), default=0)
    small = {b.value: b.count < largest for b in arrays}
    found: dict[str, Source] = {}
    calls = kernel.plan(DEFAULT_TARGET) if calls is None else calls
    for launch in calls.launches:
        if isinstance(launch, LibraryProduct):
            continue
        made = source(kernel, launch, small, calls)
        same = [name for name in found if name.split(":")[0] == launch.function]
        if not any(found[name].signature == made.signature for name in same):
            found[f"{launch.function}:{len(same) + 1}" if same else launch.function] = made
    return list(found.items())
