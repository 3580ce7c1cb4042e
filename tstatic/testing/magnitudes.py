"""How large the terms are that an op adds up: inside an expression, along rows and over broadcast axes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tstatic.fusion.codegen.define import Formula, define
from tstatic.ir import expr
from tstatic.ir.evaluate import meta_of
from tstatic.ir.expr import FUNCTIONS, Function, Node
from tstatic.ir.frozen import freeze
from tstatic.ir.pointwise import ALONG, COLUMN
from tstatic.ir.program import Program
from tstatic.testing.feeds import data_variables
from tstatic.testing.parts import Array

DELTA = 1e-6
"""Relative step of the difference by which a function's derivative is taken."""


def magnitudes(program: Program, values: Mapping[str, Array]) -> dict[str, Array]:
    """Sums of magnitudes, ``sum|x|`` where a value is ``sum x``.

    Args:
        program: Any.
        values: Of the float64 twin, by variable.

    Returns:
        Variable -> an array of its shape, for what ops make that state expressions, per element or along rows.
    """
    frozen = freeze(program, [v.name for v in data_variables(program)], [])
    metas = {n: meta_of(a) for n, a in values.items()}
    found: dict[str, Array] = {}
    for op in frozen.ops:
        if op.definition.update or not all(v in values for v in (*op.reads(), *op.writes())):
            continue
        formula = define(op, metas)
        if formula is None or 0 in formula.full:
            continue
        with np.errstate(all="ignore"):
            environment = _environment(formula, values)
            for position, node in formula.nodes.items():
                entry = op.outputs[position]
                if isinstance(entry, str) and entry in values:
                    _, size = _sized(node, environment, formula, {})
                    target = formula.targets[position]
                    if position in formula.per_row:
                        found[entry] = np.broadcast_to(size, target).reshape(values[entry].shape)
                        continue
                    whole = np.broadcast_to(size, formula.full)
                    axes = tuple(i for i, (n, m) in enumerate(zip(formula.full, target, strict=True)) if n != m)
                    found[entry] = np.asarray(whole.sum(axes)).reshape(values[entry].shape)
    return found


def _environment(formula: Formula, values: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    done = {}
    for name, position in formula.inputs.items():
        entry, shape = formula.entries[position], formula.aligned[position]
        assert entry is not None
        assert shape is not None
        array = values[entry].reshape(shape)
        done[name] = array, np.abs(array) if array.dtype == np.float64 else np.zeros(shape)
    if formula.inner is not None:
        row = formula.full[formula.inner :]
        places = np.arange(math.prod(row), dtype=np.float64).reshape((1,) * formula.inner + row)
        done[COLUMN] = places, np.zeros(places.shape)
    return done


def _sized(
    node: Node,
    environment: Mapping[str, tuple[Array, Array]],
    formula: Formula,
    known: dict[Node, tuple[Array, Array]],
) -> tuple[Array, Array]:
    """An expression's value, and the magnitude whose rounding its error is like."""
    if node.op == "const":
        value = np.asarray(node.value)
        return value, np.abs(value.astype(np.float64))
    if node.op == "var":
        return environment[node.value]
    if node in known:
        return known[node]
    pairs = [_sized(a, environment, formula, known) for a in node.args]
    function = FUNCTIONS[node.op]
    if node.op == "where":
        (condition, _), (yes, large), (no, small) = pairs
        done = np.where(condition, yes, no), np.where(condition, large, small)
    elif node.op in ALONG:
        axes = tuple(range(formula.inner or 0, len(formula.full)))
        value, size = (np.broadcast_to(a, formula.full) for a in pairs[0])
        if node.op == "rmax":
            done = value.max(axes, keepdims=True), size.max(axes, keepdims=True)
        else:
            done = value.sum(axes, keepdims=True), size.sum(axes, keepdims=True)
    elif function.numpy is None:
        body = expr.substitute(expr.parse(function.expand), dict(zip("abc", node.args, strict=False)))
        done = _sized(body, environment, formula, known)
    else:
        arrays = [value for value, _ in pairs]
        value = _applied(function, arrays)
        size = np.zeros(value.shape)
        if function.kind != "bool":
            if node.op in ("add", "sub"):
                size = pairs[0][1] + pairs[1][1]
            else:
                size = np.abs(value.astype(np.float64))
                for i, (array, magnitude) in enumerate(pairs):
                    # What the argument's own error does to the result.
                    moved = _applied(function, [*arrays[:i], array + DELTA * magnitude, *arrays[i + 1 :]])
                    size = np.fmax(size, np.abs(moved - value) / DELTA)
        done = value, size
    known[node] = done
    return done


def _applied(function: Function, arrays: list[Array]) -> Array:
    assert function.numpy is not None
    out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), bool if function.kind == "bool" else np.float64)
    if isinstance(function.numpy, np.ufunc):
        function.numpy(*arrays, out=out)
    else:
        function.numpy(*arrays, out)
    return out


__all__ = ["magnitudes"]
