"""Finds the ops and variables that gradients flow through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tstatic.ir.program import Block, Operator, Variable


def requirements(
    block: Block, ops: Sequence[Operator], roots: set[str], no_grad: set[str], all_leaves: bool
) -> set[str]:
    """Returns the names that need a gradient: those that depend on a root and are not cut off by ``stop_gradient``."""
    needed = set(roots)
    produced: set[str] = set()
    cache: dict[str, Variable | None] = {}

    def var(name: str) -> Variable | None:
        if name not in cache:
            cache[name] = block._find_var_recursive(name)
        return cache[name]

    def open_(name: str) -> bool:
        v = var(name)
        return v is not None and not v.stop_gradient and v.dtype.is_inexact and name not in no_grad

    for op in ops:
        if all_leaves:
            for name in op.input_arg_names:
                if name not in produced and name not in needed and open_(name):
                    needed.add(name)
        source = not op.inputs and all_leaves
        depends = any(n in needed for n in op.input_arg_names)
        for name in op.output_arg_names:
            produced.add(name)
            if (depends or source) and open_(name):
                needed.add(name)
    return needed


def path_to(ops: Sequence[Operator], targets: Iterable[str]) -> list[int]:
    """Returns the positions of the ops that the targets depend on, in program order."""
    wanted = set(targets)
    found = []
    for i in range(len(ops) - 1, -1, -1):
        op = ops[i]
        if any(n in wanted for n in op.output_arg_names):
            found.append(i)
            wanted.update(op.input_arg_names)
    return found[::-1]


def last_writers(ops: Sequence[Operator]) -> dict[str, int]:
    """Returns name -> position of the last op that writes it."""
    last: dict[str, int] = {}
    for i, op in enumerate(ops):
        for name in op.output_arg_names:
            last[name] = i
    return last
