"""Bounds rounding errors: perturbs inputs by one unit, and sums the magnitudes of what an op adds."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tstatic.fusion.codegen.define import LoopBody, define
from tstatic.fusion.codegen.matrix.products import is_product, is_product_gradient
from tstatic.ir import expr
from tstatic.ir.evaluate import evaluate, meta_of
from tstatic.ir.expr import FUNCTIONS, Function, Node
from tstatic.ir.frozen import FrozenOp, freeze
from tstatic.ir.pointwise import ALONG, COLUMN
from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of
from tstatic.tools.testing.feeds import data_variables
from tstatic.tools.testing.parts import Array
from tstatic.tools.testing.tolerance import float64_program, ulp

SUFFIX = "@PERTURBATION"
"""Suffix of the inputs that :func:`perturbable` adds."""


def widen(array: Array) -> Array:
    """Returns a copy of an array, floats as float64."""
    return np.array(array, np.float64 if dtype_of(array.dtype).is_float else None)


def nudge(array: Array, rng: np.random.Generator) -> Array:
    """Returns an array as float64, each element perturbed by plus or minus one unit in the last place of its own dtype."""
    wide = widen(array)
    return wide + unit_step(wide, array.dtype, rng) if dtype_of(array.dtype).is_float else wide


def unit_step(wide: Array, dtype: object, rng: np.random.Generator) -> Array:
    """Returns one unit in the last place of a dtype at each value, with a random sign; 0 where the value is 0."""
    signs = rng.choice([-1.0, 1.0], wide.shape)
    return np.asarray(signs * ulp(wide, dtype_of(dtype).np) * (wide != 0))


def made_values(program: Program) -> dict[str, bool]:
    """Returns float variable -> whether an op reads it, for temporaries that exactly one op of the main block writes."""
    block = program.global_block()
    times: dict[str, int] = {}
    read = set()
    for op in block.ops:
        read.update(op.input_arg_names)
        for name in op.output_arg_names:
            times[name] = times.get(name, 0) + 1
    found = {}
    for name, count in times.items():
        var = block._find_var_recursive(name)
        # Written once: an addition behind an op in the middle of several writes would perturb only some readers.
        if count == 1 and var is not None and not var.persistable and var.type == "dense_tensor" and var.dtype.is_float:
            found[name] = name in read
    return found


def perturbable(program: Program) -> Program:
    """Returns the program in float64, where an input ``v@PERTURBATION`` is added to each temporary ``v`` that it computes."""
    wide = float64_program(program)
    block = wide.global_block()
    for name in made_values(program):
        var = block.var(name)
        index = next(op.idx for op in block.ops if name in op.output_arg_names)
        added = block.create_var(name=name + SUFFIX, shape=var.shape, dtype="float64")
        added.is_data = added.stop_gradient = True
        role = block.ops[index].role
        block._insert_op(
            index + 1, type="elementwise_add", inputs={"X": name, "Y": name + SUFFIX}, outputs={"Out": name},
            attrs={"axis": -1, "op_role": role},
        )  # fmt: skip
    wide._touch()
    return wide


DELTA = 1e-6
"""Relative step of the finite differences that approximate a function's derivative."""


def magnitudes(program: Program, values: Mapping[str, Array]) -> dict[str, Array]:
    """Computes ``sum|x|`` for values that are ``sum x``: their rounding errors are proportional to it, also if terms cancel.

    Args:
        program: Any program.
        values: Variable -> value, computed in float64.

    Returns:
        Variable -> an array of its shape, for results of ops that have expressions, per element or along rows, and of matrix
        products. What reads a product, at once or behind ops per element, counts the product's terms, not its sum: a kernel may
        add them up in another order than the op that alone would have stored them (the gradient of a softmax between products).
    """
    frozen = freeze(program, [v.name for v in data_variables(program)], [])
    metas = {n: meta_of(a) for n, a in values.items()}
    found: dict[str, Array] = {}
    products: set[str] = set()
    for op in frozen.ops:
        if op.definition.update or not all(v in values for v in (*op.reads(), *op.writes())):
            continue
        if is_product(op.definition) or is_product_gradient(op.definition):
            made = _products(op, values)
            found |= made
            products |= made.keys()
            continue
        formula = define(op, metas)
        if formula is None or 0 in formula.full:
            continue
        with np.errstate(all="ignore"):
            environment = _environment(formula, values, {n: found[n] for n in op.reads() if n in products})
            if formula.inner is None and not formula.per_row and not products.isdisjoint(op.reads()):
                products |= {e for i, e in enumerate(op.outputs) if i in formula.nodes and isinstance(e, str)}
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


def _products(op: FrozenOp, values: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the sums of the magnitudes that matrix products add up: the same products of magnitudes."""
    ins = [np.abs(values[e]) if isinstance(e, str) else None for e in op.inputs]
    results = evaluate(op.definition, ins, op.attrs, [e is not None for e in op.outputs])
    return {v: np.abs(a) for v, a in zip(op.outputs, results, strict=True) if isinstance(v, str)}


def _environment(
    formula: LoopBody, values: Mapping[str, Array], sizes: Mapping[str, Array]
) -> dict[str, tuple[Array, Array]]:
    done = {}
    for name, position in formula.inputs.items():
        entry, shape = formula.entries[position], formula.aligned[position]
        assert entry is not None
        assert shape is not None
        array = values[entry].reshape(shape)
        # Integers and truth values are exact: they add no rounding error.
        own = sizes[entry].reshape(shape) if entry in sizes else np.abs(array)
        done[name] = array, own if array.dtype == np.float64 else np.zeros(shape)
    if formula.inner is not None:
        row = formula.full[formula.inner :]
        places = np.arange(math.prod(row), dtype=np.float64).reshape((1,) * formula.inner + row)
        done[COLUMN] = places, np.zeros(places.shape)
    return done


def _sized(
    node: Node,
    environment: Mapping[str, tuple[Array, Array]],
    formula: LoopBody,
    known: dict[Node, tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Returns an expression's value, and the magnitude to which its rounding error is proportional."""
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
            # The error of the largest element, however large others are below zero (those that a mask hides).
            lead = value.shape[: formula.inner or 0]
            rows, at = size.reshape(*lead, -1), value.reshape(*lead, -1).argmax(-1)[..., None]
            done = value.max(axes, keepdims=True), np.take_along_axis(rows, at, -1).reshape(*lead, *(1 for _ in axes))
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
                # Not |a + b|: where terms cancel, the error is that of the terms.
                size = pairs[0][1] + pairs[1][1]
            else:
                size = np.abs(value.astype(np.float64))
                for i, (array, magnitude) in enumerate(pairs):
                    # First-order propagation of the argument's error: |df/da| * magnitude of a, by a forward difference.
                    moved = _applied(function, [*arrays[:i], array + DELTA * magnitude, *arrays[i + 1 :]])
                    # `fmax`, as a step out of the function's domain gives NaN.
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


__all__ = ["SUFFIX", "made_values", "magnitudes", "nudge", "perturbable", "unit_step", "widen"]
