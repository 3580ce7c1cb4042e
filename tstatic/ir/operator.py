"""Operator: one op of a block, and the bits of its role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tstatic.errors import NotFoundError, ProgramError, near
from tstatic.ir import text
from tstatic.ir.mappings import OpAttrs, OpSlots
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.where import Where, show
from tstatic.no_effect import PRINTS, no_effect

if TYPE_CHECKING:
    from tstatic.ir.program import Block


class OpRole:
    """Bits of an op's role, as in Paddle's program description.

    Example:
        >>> w = paddle.create_parameter([1], "float32")
        >>> _ = paddle.optimizer.SGD(learning_rate=0.1).minimize(paddle.sum(w))
        >>> op = static.default_main_program().global_block().ops[-1]
        >>> op.type, op.attr("op_role") == fluid.framework.OpRole.Optimize
        ('sgd', True)
    """

    Forward = 0
    Backward = 1
    Optimize = 2
    RPC = 4
    Dist = 8
    LRSched = 16
    Loss = 256
    NotSpecified = 4096


class Operator:
    """One op of a block: type, slots of variable names, attributes, role and the user's line.

    Example:
        >>> y = paddle.scale(static.data("x", [2]), 3.0)
        >>> op = static.default_main_program().global_block().ops[0]
        >>> op.type, op.input("X"), op.attr("scale")
        ('scale', ['x'], 3.0)
    """

    __slots__ = ("_attrs", "_inputs", "_outputs", "block", "device", "namescope", "position", "role", "role_var", "type",
                 "where")  # fmt: skip

    def __init__(
        self,
        block: Block,
        type: str,
        inputs: dict[str, tuple[str, ...]],
        outputs: dict[str, tuple[str, ...]],
        attrs: dict[str, Any],
        *,
        role: int = 0,
        role_var: tuple[str, ...] = (),
        where: Where | None = None,
        position: int = 0,
        namescope: str = "",
        device: str = "",
    ) -> None:
        self.block = block
        self.type = type
        self._inputs = OpSlots(self, inputs)
        self._outputs = OpSlots(self, outputs)
        self._attrs = OpAttrs(self, attrs)
        self.role = role
        self.role_var = role_var
        self.where = where
        self.position = position
        self.namescope = namescope
        self.device = device

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Slot -> names of the variables that the op reads."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: dict[str, tuple[str, ...]]) -> None:
        self._inputs = OpSlots(self, inputs)
        self.block.program._touch()

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """Slot -> names of the variables that the op writes."""
        return self._outputs

    @outputs.setter
    def outputs(self, outputs: dict[str, tuple[str, ...]]) -> None:
        self._outputs = OpSlots(self, outputs)
        self.block.program._touch()

    @property
    def attrs(self) -> dict[str, Any]:
        """Name -> value; a write is checked, and later runs see it."""
        return self._attrs

    @attrs.setter
    def attrs(self, attrs: dict[str, Any]) -> None:
        self._attrs = OpAttrs(self, self.definition.complete(attrs))
        self.block.program._touch()

    @property
    def definition(self) -> OpDef:
        return op_def(self.type)

    @property
    def input_names(self) -> list[str]:
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        return [n for names in self.inputs.values() for n in names]

    @property
    def output_arg_names(self) -> list[str]:
        return [n for names in self.outputs.values() for n in names]

    def input(self, slot: str) -> list[str]:
        """Names in an input slot; empty when the slot is absent."""
        return list(self.inputs.get(slot, ()))

    def output(self, slot: str) -> list[str]:
        """Names in an output slot; empty when the slot is absent."""
        return list(self.outputs.get(slot, ()))

    def _automatic(self) -> dict[str, Any]:
        return {
            "op_role": self.role,
            "op_role_var": list(self.role_var),
            "op_namescope": f"/{self.namescope}",
            "op_callstack": [f"at {show(self.where)}"] if self.where else [],
            "op_device": self.device,
            "with_quant_attr": False,
        }

    @property
    def attr_names(self) -> list[str]:
        return [*self.attrs, *self._automatic()]

    def attr(self, name: str) -> Any:
        """Value of an attribute.

        Raises:
            NotFoundError: If the op has no such attribute.
        """
        if name in self.attrs:
            value = self.attrs[name]
            return list(value) if isinstance(value, tuple) else value
        automatic = self._automatic()
        if name in automatic:
            return automatic[name]
        raise NotFoundError(
            f"operator '{self.type}' has no attribute '{name}'",
            expected=f"one of {', '.join(self.attrs) or 'none'}",
            received=repr(name),
            fix=near(name, self.attrs) or "see op.attr_names",
            op=self.type,
            where=show(self.where),
        )

    def has_attr(self, name: str) -> bool:
        return name in self.attrs or name in self._automatic()

    def attr_type(self, name: str) -> str:
        return type(self.attr(name)).__name__

    def all_attrs(self) -> dict[str, Any]:
        return {**{n: self.attr(n) for n in self.attrs}, **self._automatic()}

    def _set_attr(self, name: str, value: Any) -> None:
        if name == "op_role":
            self.role = int(value)
        elif name == "op_role_var":
            self.role_var = tuple(value)
        elif name == "op_device":
            self.device = str(value)
        elif name == "op_namescope":
            self.namescope = str(value).lstrip("/")
        else:
            spec = self.definition.attrs.get(name)
            if spec is None:
                raise NotFoundError(
                    f"operator '{self.type}' has no attribute '{name}'",
                    expected=f"one of {', '.join(self.definition.attrs) or 'none'}",
                    received=repr(name),
                    fix=near(name, self.definition.attrs) or "see op.attr_names",
                    op=self.type,
                )
            self._attrs.put(name, spec.clean(self.type, name, value))
        self.block.program._touch()

    def _rename_input(self, old: str, new: str) -> None:
        self.inputs = {s: tuple(new if n == old else n for n in names) for s, names in self.inputs.items()}

    def _rename_output(self, old: str, new: str) -> None:
        self.outputs = {s: tuple(new if n == old else n for n in names) for s, names in self.outputs.items()}

    @property
    def idx(self) -> int:
        """Position in the block's list of ops."""
        for i, op in enumerate(self.block.ops):
            if op is self:
                return i
        raise ProgramError(
            f"operator '{self.type}' is not part of its block any more",
            expected="an op of the block",
            received="an op that was removed",
            fix="take ops from block.ops again after editing the block",
        )

    @no_effect(throw_on_error=PRINTS)
    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """The op in the text form of ``print(program)``."""
        return text.op_text(self, with_details)

    def __repr__(self) -> str:
        return f"Operator {self.type}({', '.join(self.input_arg_names)}) @ {show(self.where)}"

    __str__ = to_string
