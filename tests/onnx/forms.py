"""Runs an op definition's form in ONNX on a sample: the package's own evaluator, and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.sampler import Array, Sample
from tstatic.errors import UnsupportedError
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.onnx_form import emit
from tstatic.ir.onnx_graph import Graph, OnnxNode, Value
from tstatic.ir.opdef import OpDef
from tstatic.ir.types import dtype_of
from tstatic.static.files.onnx_model import model_of


def build(definition: OpDef, sample: Sample, constants: bool = False) -> tuple[Any, dict[str, Array], list[Any]]:
    """Returns the model of one operator, its feed, and per output slot names (a list where the slot is one), or ``None``.

    Args:
        definition: The operator.
        sample: Inputs and attributes.
        constants: Inputs of integers are constants of the model, as sizes and positions mostly are.
    """
    g = Graph()
    feed: dict[str, Array] = {}
    inputs: list[Value] = []

    def value(name: str, array: Array) -> Value:
        if constants and array.dtype.kind == "i":
            return g.const(np.ascontiguousarray(array).reshape(array.shape))
        feed[name] = np.ascontiguousarray(array).reshape(array.shape)
        inputs.append(Value(name, dtype_of(array.dtype), array.shape))
        return inputs[-1]

    ins = [
        [value(f"{slot.name}_{i}", a) for i, a in enumerate(given)]
        if isinstance(given, list)
        else None
        if given is None
        else value(slot.name, given)
        for slot, given in zip(definition.inputs, sample.ins, strict=True)
    ]
    attrs = definition.complete(sample.attrs)
    metas = infer_outputs(definition, metas_of(sample.ins), attrs)
    made = emit(g, definition, ins, attrs, metas, "out")
    outputs: list[Value] = []

    def result(v: Value) -> str:
        name = f"result_{len(outputs)}"
        g.nodes.append(OnnxNode("Identity", (v.name,), (name,), {}))
        outputs.append(Value(name, v.dtype, v.dims))
        return name

    names = [None if v is None else [result(x) for x in v] if isinstance(v, list) else result(v) for v in made]
    return model_of(g, inputs, outputs, "one"), feed, names


def build_any(definition: OpDef, sample: Sample) -> tuple[Any, dict[str, Array], list[Any]]:
    """Returns what :func:`build` does, with constants where positions and sizes have a form only as such.

    Raises:
        UnsupportedError: If the sample has no form either way.
    """
    try:
        return build(definition, sample)
    except UnsupportedError:
        return build(definition, sample, constants=True)


def evaluate(model: Any, feed: dict[str, Array]) -> dict[str, Array]:
    """Returns results by name, from the evaluator of the package ``onnx``."""
    from onnx.reference import ReferenceEvaluator

    found = ReferenceEvaluator(model).run(None, feed)
    return dict(zip([o.name for o in model.graph.output], map(np.asarray, found), strict=True))


def run(model: Any, feed: dict[str, Array]) -> dict[str, Array]:
    """Returns results by name, from onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in model.graph.output], session.run(None, feed), strict=True))
