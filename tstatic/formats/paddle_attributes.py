"""How slots and attributes of Paddle's operators become those of the definitions here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tstatic.formats import paddle_proto as proto
from tstatic.formats.schema import OpDesc
from tstatic.ir.attrs import Attr
from tstatic.ir.composed import Composed
from tstatic.ir.opdef import OPS, OpDef, OpSpec
from tstatic.ir.paddle_form import PaddleOp
from tstatic.ir.types import DTYPES, DType

PADDLE_DTYPES = {number: DTYPES[name] for name, number in proto.DTYPE_NUMBERS.items()}
_IGNORED = {
    "op_callstack", "op_namescope", "with_quant_attr", "use_cudnn", "use_mkldnn", "use_quantizer", "mkldnn_data_type",
    "workspace_size_MB", "exhaustive_search", "deterministic", "is_test", "force_fp32_output", "fuse_alpha", "fuse_beta",
    "fuse_brelu_threshold", "x_data_format", "y_data_format", "use_global_beta_pow", "trainer_id", "force_cpu",
    "use_calc_stream", "place_type", "skip_eager_deletion_vars", "remote_prefetch",
}  # fmt: skip
"""Attributes that choose a kernel or belong to Paddle's own passes, whatever their value is."""
_SAY_NOTHING: tuple[Any, ...] = (None, False, 0, 0.0, "", (), "AnyLayout", "NCHW", 1.0, (1.0,))
"""Values of attributes that an op does not have which change nothing: what is off, empty, or a scale of one."""


def attributes(definition: OpDef, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the attributes that an op has, and the names of others that say something."""
    done, lacking = {}, []
    # Backward ops carry the attributes of their forward ops in Paddle; here those that they use.
    stem = definition.type.removesuffix("_grad")
    forward = OPS[stem].attrs if stem != definition.type and stem in OPS else {}
    for name, value in given.items():
        spec = definition.attrs.get(name)
        if spec is not None:
            value = _taken(spec, value)
            if value is not None or spec.default is None:
                done[name] = value
        elif name not in forward and not _idle(name, value):
            lacking.append(name)
    return done, lacking


def _idle(name: str, value: Any) -> bool:
    """Returns whether an attribute that an op lacks changes nothing."""
    return (
        name in _IGNORED or name.startswith("op_") or _says_nothing(value) or (name.endswith("dtype") and value == -1)
    )


def composed_parts(op: PaddleOp, builder: Composed) -> tuple[dict[str, list[str]], dict[str, Any], list[str]]:
    """Returns inputs and attributes of an op that is built from others, and the names of attributes that have no meaning there."""
    inputs = {_spelled(slot, builder.slots): list(row) for slot, row in op.inputs.items()}
    attrs = {name: value for name, value in op.attrs.items() if not (name.endswith("dtype") and value == -1)}
    for slot in [slot for slot in inputs if slot not in builder.slots]:
        name, numbers = _attribute_of(slot), op.constants_of(slot)
        if name in builder.attrs and numbers is not None:
            del inputs[slot]
            attrs[name] = tuple(numbers)
    own = {name: value for name, value in attrs.items() if name in builder.attrs}
    return inputs, own, [name for name, value in attrs.items() if name not in own and not _idle(name, value)]


def _attribute_of(slot: str) -> str:
    """Returns the attribute that an input of numbers is instead of."""
    return slot.removesuffix("List").removesuffix("Tensor").lower()


def same_op(op: PaddleOp, definition: OpDef) -> OpSpec:
    """Returns an op as it is, but for the spelling of slots and two habits of Paddle.

    Many ops take an attribute as an input, too: numbers that the program fills the input ``AxisTensor`` or ``ShapeTensorList`` with
    become the attribute ``axis`` or ``shape``. And a result that is declared as one element in a list needs ``one_d``.
    """
    # Ops of several ages spell a slot ``x`` or ``X``.
    inputs, outputs = (
        {_spelled(slot, known): row for slot, row in side.items()}
        for side, known in ((op.inputs, definition.input_slots), (op.outputs, definition.output_slots))
    )
    attrs = dict(op.attrs)
    for slot in [slot for slot in inputs if slot not in definition.input_slots]:
        name, numbers = _attribute_of(slot), op.constants_of(slot)
        if name in definition.attrs and numbers is not None:
            del inputs[slot]
            attrs[name] = tuple(numbers) if definition.attrs[name].kind in ("ints", "floats") else numbers[0]
    result = op.dtypes.get(next((row[0] for row in op.outputs.values() if row), ""))
    for name, value in attrs.items():
        # Kernels of whole numbers convert their attributes.
        if result is not None and result.is_integer and isinstance(value, float) and math.isfinite(value):
            known = definition.attrs.get(name)
            attrs[name] = int(value) if known is not None and known.kind == "number" else value
    if "one_d" in definition.attrs and "one_d" not in attrs:
        first = next((row[0] for row in op.outputs.values() if row), "")
        attrs["one_d"] = list(op.shapes.get(first) or ()) == [1]
    return op.made(inputs=inputs, outputs=outputs, attrs=attrs)


def _spelled(slot: str, known: Iterable[str]) -> str:
    """Returns a slot in the spelling that the op has here."""
    same = [name for name in known if name.lower() == slot.lower()]
    return slot if slot in same or len(same) != 1 else same[0]


class Constants:
    """Numbers that a block's ops fill variables with, for ops that take as an attribute what Paddle gives as an input."""

    MOST = 64
    """Numbers in one variable."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, ...]] = {}

    def note(self, op: OpDesc) -> None:
        for name in (n for row in op.outputs.values() for n in row):
            self.values.pop(name, None)
        if op.type == "fill_constant" and not op.inputs:
            text, dtype, shape = op.attrs.get("str_value", ""), op.attrs.get("dtype"), op.attrs.get("shape", ())
            value = op.attrs.get("value", 0.0)
            if not isinstance(text, str) or not isinstance(shape, tuple | list) or not isinstance(value, int | float):
                raise ValueError(
                    f"operator 'fill_constant' without a number: {type(text).__name__} and {type(value).__name__}"
                )
            # In floats, as a file may name any sizes: too large ones are infinite, and with a 0 among them no number at all.
            with np.errstate(over="ignore", invalid="ignore"):
                product = float(np.prod(shape, dtype=float))
            count = int(max(product, 0.0)) if product <= self.MOST else self.MOST + 1
            whole = isinstance(dtype, DType) and not dtype.is_float
            if count <= self.MOST and not (whole and text and not text.lstrip("-").isdigit()):
                self.keep(op, ((int if whole else float)(text or value),) * count)
        elif op.type == "assign_value" and isinstance(op.attrs.get("values"), tuple):
            self.keep(op, op.attrs["values"])

    def keep(self, op: OpDesc, values: tuple[Any, ...]) -> None:
        """Notes the numbers of an op's result."""
        if len(op.outputs.get("Out", ())) != 1:
            raise ValueError(f"operator '{op.type}' without one result in 'Out'")
        self.values[op.outputs["Out"][0]] = values


def _says_nothing(value: Any) -> bool:
    return any(type(value) is type(nothing) and value == nothing for nothing in _SAY_NOTHING)


def _taken(spec: Attr, value: Any) -> Any:
    """Returns a value of Paddle in the kind that the attribute has here."""
    if spec.kind == "dtype":
        if type(value) is int and value != -1:
            if value not in PADDLE_DTYPES:
                raise ValueError(f"dtype {value}, which tstatic lacks")
            return PADDLE_DTYPES[value]
        return None if value == -1 else value
    if spec.kind == "bool" and type(value) is int:
        return bool(value)
    if spec.kind == "float" and isinstance(value, str):
        return float(value)
    if spec.kind == "int" and isinstance(value, float) and value == int(value):
        return int(value)
    return value
