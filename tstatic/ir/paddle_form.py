"""How an op stands in Paddle's files where that differs from its form here; part of its definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstatic.ir.attrs import OpSpec
from tstatic.ir.types import DType, Meta, broadcast_shapes, dtype_of, normalize_axis

MOST_NUMBERS = 4096
"""Numbers that the inputs of an op may have together: an op may name one long constant thousands of times."""


@dataclass(frozen=True, slots=True)
class PaddleOp:
    """An op in one of the two forms.

    Attributes:
        type, inputs, outputs, attrs: As in the file, or in the program; slots without variables are left out.
        shapes: Output variable -> its declared sizes; when a file is written, those of inputs, too.
        dtypes: Variable -> its dtype.
        constants: Variable -> the numbers that the program fills it with (when a file is read).
        fresh: Declares a variable and returns its name (when a file is written).
    """

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any]
    shapes: Mapping[str, Sequence[int] | None] = field(default_factory=dict)
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    constants: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fresh: Callable[[Meta], str] | None = None

    def constants_of(self, *slots: str) -> list[Any] | None:
        """Returns the numbers that the program fills inputs with; ``None`` if one of them is computed."""
        known = [self.constants.get(name) for slot in slots for name in self.inputs.get(slot, ())]
        if None in known:
            return None
        rows = [row for row in known if row is not None]
        # One variable's numbers are in the file once, so that its size bounds them.
        if len(rows) > 1 and sum(map(len, rows)) > MOST_NUMBERS:
            raise ValueError(f"more than {MOST_NUMBERS:,} numbers in {', '.join(slots)}, of several variables")
        return [number for row in rows for number in row]

    def converted(self, slots: Sequence[str], dtype: DType) -> tuple[list[OpSpec], dict[str, Sequence[str]]]:
        """Returns casts of some inputs, and all inputs by slot, these converted (when a file is written)."""
        assert self.fresh is not None
        ops, inputs = [], dict(self.inputs)
        for slot in slots:
            (name,) = inputs[slot]
            if (known := self.dtypes[name]) is not dtype:
                inputs[slot] = [self.fresh(Meta(tuple(self.shapes[name] or ()), dtype))]
                ops.append(
                    OpSpec("cast", {"X": [name]}, {"Out": inputs[slot]}, {"in_dtype": known, "out_dtype": dtype})
                )
        return ops, inputs

    def grown(self, slots: Sequence[str]) -> tuple[list[OpSpec], dict[str, Sequence[str]]]:
        """Returns an op that gives some inputs the shape of the result, and all inputs by slot (when a file is written)."""
        assert self.fresh is not None
        names = [self.inputs[slot][0] for slot in slots]
        if len({tuple(self.shapes[name] or ()) for name in names}) == 1:
            return [], dict(self.inputs)
        shape = broadcast_shapes(*(tuple(self.shapes[name] or ()) for name in names))
        made = [self.fresh(Meta(shape, self.dtypes[name])) for name in names]
        changed = {slot: [name] for slot, name in zip(slots, made, strict=True)}
        return [OpSpec("broadcast_tensors", {"X": names}, {"Out": made}, {})], {**self.inputs, **changed}

    @property
    def result(self) -> str:
        """The one variable in slot ``Out``."""
        (name,) = self.outputs["Out"]
        return name

    def filled(
        self, values: Mapping[str, Any], dtypes: Mapping[str, DType]
    ) -> tuple[list[OpSpec], dict[str, list[str]]]:
        """Returns ops that fill new variables of one element with numbers, and these variables by slot (when a file is written)."""
        assert self.fresh is not None
        ops, slots = [], {}
        for slot, value in values.items():
            slots[slot] = [self.fresh(Meta((1,), dtypes[slot]))]
            # Paddle reads `str_value` first: `value` is a float32 in its files.
            attrs = {"shape": (1,), "dtype": dtypes[slot], "value": float(value), "str_value": repr(value)}
            ops.append(OpSpec("fill_constant", {}, {"Out": slots[slot]}, attrs))
        return ops, slots

    def made(self, type: str = "", **changes: Any) -> OpSpec:
        """Returns the op with another type, other ``inputs``, ``outputs`` or ``attrs``."""
        given = {"inputs": self.inputs, "outputs": self.outputs, "attrs": self.attrs, **changes}
        return OpSpec(type or self.type, **given)

    def without(self, *names: str, **added: Any) -> dict[str, Any]:
        """Returns the attributes without some, and with others."""
        return {name: value for name, value in self.attrs.items() if name not in names} | added


@dataclass(frozen=True, slots=True)
class PaddleForm:
    """How an op is read from Paddle's files and written to them.

    Attributes:
        read: Turns the op of a file into one that is here; ``None`` if it is the same.
        write: Turns the op into those of a file; ``None`` if it is the same.
        absent: Paddle has no such op and none that it could be written as.
        wide: What Paddle's kernel converts whole numbers to, where the op here takes floats only.
        whole: Attributes that are whole numbers in Paddle, and any numbers here.
        lacks: Attributes that neither Paddle's op nor its gradient has; ``write`` refuses values that need them.
    """

    read: Callable[[PaddleOp], OpSpec] | None = None
    write: Callable[[PaddleOp], list[OpSpec]] | None = None
    absent: bool = False
    wide: DType | None = None
    whole: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


def respelled(*, notes: Mapping[str, str] | None = None, **slots: str) -> PaddleForm:
    """Returns the form of an op that is written with other slots.

    Args:
        notes: Outputs that Paddle's kernel leaves for its gradient and that the op lacks -> their dtype.
        slots: Slot -> its name in Paddle's files.
    """

    def write(op: PaddleOp) -> list[OpSpec]:
        assert op.fresh is not None
        inputs, outputs = (
            {slots.get(slot, slot): row for slot, row in side.items()} for side in (op.inputs, op.outputs)
        )
        # Paddle's kernel writes these, though nothing but its own gradient reads them.
        left = {slot: [op.fresh(Meta((-1,), dtype_of(kind)))] for slot, kind in (notes or {}).items()}
        return [op.made(inputs=inputs, outputs={**outputs, **left})]

    return PaddleForm(write=write)


def from_the_front(name: str) -> PaddleForm:
    """Returns the form of an op whose kernel in Paddle takes a negative axis for another place: it is written from 0 on.

    Args:
        name: The attribute that holds the axis of ``X``.
    """

    def write(op: PaddleOp) -> list[OpSpec]:
        rank = len(op.shapes[op.inputs["X"][0]] or ())
        return [op.made(attrs={**op.attrs, name: normalize_axis(op.attrs[name], rank)})]

    return PaddleForm(write=write)


LOWER = respelled(X="x", Out="out")
"""Of ops that Paddle added late."""
SAME = PaddleForm()
ABSENT = PaddleForm(absent=True)
