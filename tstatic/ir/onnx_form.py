"""The form of an operator in ONNX: the one that its definition states, the one that follows from its expressions, or why none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import UnsupportedError
from tstatic.ir import expr
from tstatic.ir.onnx_expr import lacking, translate
from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.opdef import OpDef
from tstatic.ir.types import UNKNOWN, Meta


def reason_of(definition: OpDef) -> str:
    """Returns why an operator has no form in ONNX; empty if it has one, and ``"?"`` if its definition states neither."""
    if definition.onnx is not None:
        return definition.onnx if isinstance(definition.onnx, str) else ""
    slots = [*definition.inputs, *definition.outputs]
    for why, holds in (
        ("it is a backward operator, and the forward part is what is exported", bool(definition.of)),
        ("it updates state in training", definition.update or bool(definition.state)),
        ("the replicas meet in it", definition.collective),
        ("it prints, calls Python or raises, which a model cannot", definition.effects),
        ("it works on Python objects", bool(definition.objects)),
        ("it runs a block of operators", any(a.kind == "block" for a in definition.attrs.values())),
        ("ONNX cannot draw its random numbers", definition.random),
        ("tensors of ONNX have no row offsets", any(s.name.endswith("@LOD") and not s.optional for s in slots)),
    ):
        if holds:
            return why
    if definition.expression is None or definition.pointwise is None:
        return "?"
    function = lacking(list(definition.expression.nodes.values()))
    return f"ONNX has no operator for the function '{function}'" if function else ""


def emit(
    g: Graph, definition: OpDef, ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any], name: str
) -> list[Any]:
    """Adds the nodes of an operator.

    Args:
        g: Where to.
        definition: What the operator is.
        ins: Per input slot a :class:`Value`, a list of them, or ``None``.
        attrs: Its complete attributes.
        outs: The metadata of what it makes, per output slot; ``None`` where nobody reads it.
        name: Of its first result; names of the nodes' results begin with it.

    Returns:
        Per output slot a value, a list of them, or ``None`` where the form has none.

    Raises:
        UnsupportedError: If it has no form, or none for these attributes and sizes.
    """
    reason = reason_of(definition)
    if reason:
        raise UnsupportedError(
            f"operator '{definition.type}' cannot be exported to ONNX",
            expected="operators with a form in ONNX",
            received=reason,
            fix="leave it out of what you export: feed what it makes, or fetch what it reads",
            op=definition.type,
        )
    for slot, given in zip(definition.inputs, ins, strict=True):
        for value in given if isinstance(given, list) else [given]:
            if value is not None and value.dtype.is_complex:
                raise g.refuse(f"for complex values, as in '{slot.name}'")
    # Forms read `outs`; names of what they make begin with `prefix`.
    g.outs, g.prefix = outs, name
    if definition.onnx is None:
        return _pointwise(g, definition, ins, attrs, outs)
    assert callable(definition.onnx)
    result = definition.onnx(g, *ins, **definition.pick(definition.onnx, attrs))
    found = list(result) if isinstance(result, tuple) else [result]
    # What only the backward op reads stands last, and forms need not make it.
    found += [None] * (len(definition.outputs) - len(found))
    return [_typed(g, v, m) for v, m in zip(found, outs, strict=True)]


def _typed(g: Graph, value: Any, meta: Any) -> Any:
    """Returns a result with its metadata's type and sizes."""
    if value is None or meta is None:
        return None
    if isinstance(meta, list | tuple):
        return [_typed(g, v, m) for v, m in zip(value, meta, strict=True)]
    value = g.cast(value, meta.dtype)
    # The op's shape rule knows sizes that nodes of ONNX did not keep.
    return Value(value.name, value.dtype, meta.shape, value.number)


def _pointwise(
    g: Graph, definition: OpDef, ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any]
) -> list[Any]:
    ref = definition.expression
    assert ref is not None
    metas = [None if v is None else Meta(v.shape, v.dtype) for v in ins]
    found = ref.expressions(metas, attrs)
    assert found is not None
    numbers = {n: expr.const(v) for n, v in attrs.items() if isinstance(v, bool | int | float)}
    named = {
        param: _aligned(g, value, shape)
        for param, value, shape in zip(found.params, ins, found.shapes, strict=True)
        if value is not None
    }
    results: list[Any] = []
    for i, meta in enumerate(outs):
        if meta is None or i not in found.nodes:
            results.append(None)
            continue
        node = expr.substitute(found.nodes[i], numbers)
        made = translate(g, node, named, meta.dtype)
        # An expression without variables: the same number for all elements.
        if not isinstance(made, Value):
            like = next(v for v in ins if v is not None)
            made = g.full(g.sizes(like), made, meta.dtype)
        results.append(_typed(g, made, meta))
    return results


def _aligned(g: Graph, value: Value, shape: Sequence[int] | None) -> Value:
    """Returns an input with the sizes that meet the others; sizes of 1 in front need no node."""
    assert shape is not None
    wanted = list(shape)
    while len(wanted) > value.rank and wanted and wanted[0] == 1:
        wanted.pop(0)
    if tuple(wanted) == value.shape:
        return value
    # Dimensions that meet the other operand's inner ones: sizes of 1 follow.
    own = len(value.shape)
    if tuple(wanted[:own]) == value.shape and all(s == 1 for s in wanted[own:]):
        return g.unsqueeze(value, range(own, len(wanted)))
    if wanted.count(UNKNOWN) > 1:
        raise g.unknown(value, "the sizes")
    return g.reshape(value, wanted)
