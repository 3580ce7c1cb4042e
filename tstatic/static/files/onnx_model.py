"""Writes a graph as a model in ONNX's own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic import version
from tstatic.errors import needed_for
from tstatic.ir.onnx_graph import OPSET, Graph, Value
from tstatic.ir.types import UNKNOWN, DType

IR_VERSION = 8
"""The version of the file format that came with operators of version 18; older runtimes refuse newer ones."""


def model_of(
    g: Graph, inputs: Sequence[Value], outputs: Sequence[Value], name: str, rename: Mapping[str, str] | None = None
) -> Any:
    """Returns an ``onnx.ModelProto`` that the package's own checker accepts.

    Args:
        g: The nodes and constants.
        inputs, outputs: With types and sizes; an unknown size gets the name ``<value>_<axis>``.
        name: Of the model.
        rename: Name in the graph -> name in the model.

    Raises:
        MissingPackageError: If the package ``onnx`` is not installed.
    """
    with needed_for("export to ONNX"):
        import onnx
        from onnx import helper, numpy_helper
    names = rename or {}

    def number(dtype: DType) -> int:
        return int(helper.np_dtype_to_tensor_dtype(dtype.np))

    def attribute(value: Any) -> Any:
        if isinstance(value, DType):
            return number(value)
        return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value

    def info(value: Value) -> Any:
        called = names.get(value.name, value.name)
        sizes = [f"{called}_{i}" if s == UNKNOWN else s for i, s in enumerate(value.shape)]
        return helper.make_tensor_value_info(called, number(value.dtype), sizes)

    nodes = []
    for i, node in enumerate(g.nodes):
        made = helper.make_node(
            node.op,
            [names.get(n, n) for n in node.inputs],
            [names.get(n, n) for n in node.outputs],
            name=f"{node.op}_{i}",
        )
        # By name: make_attribute leaves out an empty list, whose type it cannot tell.
        made.attribute.extend(helper.make_attribute(n, attribute(v)) for n, v in sorted(node.attrs.items()))
        nodes.append(made)
    used = {n for node in g.nodes for n in node.inputs}
    constants = [
        # `ascontiguousarray` gives a number one axis, which `reshape` takes away.
        numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), names.get(n, n))
        for n, a in g.constants.items()
        if n in used
    ]
    graph = helper.make_graph(nodes, name, [info(v) for v in inputs], [info(v) for v in outputs], constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="tstatic",
        producer_version=version.__version__,
    )
    # Raises here what a runtime would refuse later.
    onnx.checker.check_model(model)
    return model
