"""A generated kernel as what a compiler without a GPU takes: one source per launch, with types and known multiples."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tstatic.fusion.aot import Source
from tstatic.fusion.codegen.kernel import Kernel, Launch


def parameters(text: str, function: str) -> list[str]:
    """Names of a function's parameters, ``tl.constexpr`` ones left out."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return [a.arg for a in node.args.args if a.annotation is None]
    raise AssertionError(f"the module has no function '{function}'")


def source(kernel: Kernel, launch: Launch, small: Mapping[str, bool]) -> Source:
    """One launch.

    Args:
        kernel: Whose module it is.
        launch: With the types of its arguments.
        small: Argument -> whether it lies off the main path (broadcast, or a sum), so that narrow accesses do no harm.
    """
    names = parameters(kernel.text, launch.function)
    types = launch.types or tuple(
        f"*{p.type}" if p.kind == "pointer" else p.type for p in kernel.parameters if p.kind != "constant"
    )
    signature = dict(zip(names, types, strict=True))
    divisible = [
        name
        for name, argument in zip(names, launch.arguments, strict=True)
        if isinstance(argument, str) or (isinstance(argument, int) and argument % 16 == 0)
    ]
    off = tuple(n for n, a in zip(names, launch.arguments, strict=True) if isinstance(a, str) and small.get(a, True))
    return Source(
        kernel.text,
        launch.function,
        signature,
        launch.constants,
        tuple(divisible),
        num_warps=launch.num_warps,
        small=off,
    )


def sources(kernel: Kernel) -> list[tuple[str, Source]]:
    """All launches of a kernel on a GPU; one per function."""
    largest = max((b.count for b in (*kernel.inputs, *kernel.outputs)), default=0)
    small = {b.value: b.count < largest for b in (*kernel.inputs, *kernel.outputs)}
    found: dict[str, Source] = {}
    for launch in kernel.plan(False).launches:
        found.setdefault(launch.function, source(kernel, launch, small))
    return list(found.items())
