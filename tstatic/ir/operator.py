"""What an op is by itself, without its block: its role, slots and attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from tstatic.errors import NotFoundError, ProgramError, TstaticError, near
from tstatic.ir.opdef import OpDef, op_def
from tstatic.undo import ABSENT, HERE, put_back
from tstatic.where import Where, show


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


# ------------------------------------------------------------------------------------------------ attributes and slots
class _Owned(dict[str, Any]):
    """A dict that belongs to an op; copies of it are plain dicts."""

    __slots__ = ("op",)

    def __init__(self, op: OperatorBase, values: Any) -> None:
        super().__init__(values)
        self.op = op

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

    def __reduce__(self) -> Any:
        # Pickled without the op, and so without its program.
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return dict(self)

    # dict's own `|=`, `setdefault` and `update` would write past `__setitem__` and its checks.
    def __ior__(self, other: Any) -> _Owned:  # type: ignore[override,misc]
        self.update(other)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __delitem__(self, key: str) -> None:
        self._refuse()

    def pop(self, *args: Any) -> Any:
        self._refuse()

    def popitem(self) -> Any:
        self._refuse()

    def clear(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError


class OpAttrs(_Owned):
    """Attributes of an op: ``op.attrs["scale"] = 2.0`` is checked as ``op._set_attr("scale", 2.0)`` is.

    Raises:
        ProgramError: If an attribute is taken out: an operator has all that its definition names.
        NotFoundError, ProgramTypeError: For a name that the operator does not have, or a value that does not fit.
    """

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        self.op._set_attr(key, value)

    def put(self, key: str, value: Any) -> None:
        """Stores a value that is checked already."""
        journal = HERE.journal
        if journal is not None:
            journal.append((put_back, self, key, self.get(key, ABSENT)))
        super().__setitem__(key, value)

    def _refuse(self) -> NoReturn:
        raise ProgramError(
            f"an attribute of operator '{self.op.type}' cannot be removed",
            expected="another value for it",
            received="a call that removes it",
            fix="write the default value instead: op.attrs[name] = value",
            op=self.op.type,
        )


class OpSlots(_Owned):
    """Slots of an op with the names of its variables; read-only.

    Raises:
        ProgramError: If it is written to.
    """

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ProgramError(
            f"the variables of operator '{self.op.type}' cannot be changed in this dict",
            expected="op._rename_input(old, new) or op._rename_output(old, new)",
            received="a write to op.inputs or op.outputs",
            fix="rename, or build the operator again with block.append_op",
            op=self.op.type,
        )


# ------------------------------------------------------------------------------------------------------------------- ops
def unknown(error: type[TstaticError], type: str, kind: str, name: str, known: Iterable[str], fix: str) -> TstaticError:
    """Returns the error for a slot or an attribute (``kind``) that an op of this type does not have."""
    return error(
        f"operator '{type}' has no {kind} '{name}'",
        expected=f"one of {', '.join(known) or 'none'}",
        received=repr(name),
        fix=near(name, known) or fix,
        op=type,
    )


class OperatorBase:
    """The part of :class:`~tstatic.ir.program.Operator` that only keeps its block."""

    # Without a dict each: a program has thousands of ops.
    __slots__ = (
        "_attrs",
        "_inputs",
        "_outputs",
        "block",
        "device",
        "namescope",
        "position",
        "role",
        "role_var",
        "type",
        "updates",
        "where",
    )

    _attrs: OpAttrs
    _inputs: OpSlots
    _outputs: OpSlots
    block: Any
    device: str
    namescope: str
    position: int
    role: int
    role_var: tuple[str, ...]
    type: str
    updates: tuple[int, ...]
    """Numbers of the ``minimize`` calls that the op trains for: it runs in the runs that make one of their updates."""
    where: Where | None

    def __init__(
        self,
        block: Any,
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
        updates: tuple[int, ...] = (),
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
        self.updates = updates

    def _touch(self) -> None:
        """Records that the program has changed."""
        raise NotImplementedError

    def _note(self, *fields: str) -> None:
        """Notes what fields are before they change, so that a refused call puts them back."""
        journal = HERE.journal
        if journal is not None:
            # With the values as they are now.
            journal.extend((setattr, self, field, getattr(self, field)) for field in fields)

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Slot -> names of the variables that the op reads."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: dict[str, tuple[str, ...]]) -> None:
        self._note("_inputs")
        # In a dict of the op's own: the caller may change the given one later.
        self._inputs = OpSlots(self, inputs)
        self._touch()

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """Slot -> names of the variables that the op writes."""
        return self._outputs

    @outputs.setter
    def outputs(self, outputs: dict[str, tuple[str, ...]]) -> None:
        self._note("_outputs")
        self._outputs = OpSlots(self, outputs)
        self._touch()

    @property
    def attrs(self) -> dict[str, Any]:
        """Name -> value; a write is checked, and later runs see it."""
        return self._attrs

    @attrs.setter
    def attrs(self, attrs: dict[str, Any]) -> None:
        # Checked first, so that a refused write changes nothing.
        complete = self.definition.complete(attrs)
        self._note("_attrs")
        self._attrs = OpAttrs(self, complete)
        self._touch()

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

    def input(self, name: str) -> list[str]:
        """Returns the names in the input slot ``name``; empty when the slot is absent."""
        return list(self.inputs.get(name, ()))

    def output(self, name: str) -> list[str]:
        """Returns the names in the output slot ``name``; empty when the slot is absent."""
        return list(self.outputs.get(name, ()))

    def _automatic(self) -> dict[str, Any]:
        return {
            "op_role": self.role,
            "op_role_var": list(self.role_var),
            # Paddle writes name scopes from the root on.
            "op_namescope": f"/{self.namescope}",
            "op_callstack": [f"at {show(self.where)}"] if self.where else [],
            "op_device": self.device,
            # Only Paddle's quantization sets it.
            "with_quant_attr": False,
        }

    @property
    def attr_names(self) -> list[str]:
        return [*self.attrs, *self._automatic()]

    def attr(self, name: str) -> Any:
        """Returns the value of an attribute.

        Raises:
            NotFoundError: If the op has no such attribute.
        """
        if name in self.attrs:
            value = self.attrs[name]
            # Lists, as Paddle gives them.
            return list(value) if isinstance(value, tuple) else value
        automatic = self._automatic()
        if name in automatic:
            return automatic[name]
        error = unknown(NotFoundError, self.type, "attribute", name, self.attrs, "see op.attr_names")
        raise error.add_context(where=show(self.where))

    def has_attr(self, name: str) -> bool:
        return name in self.attrs or name in self._automatic()

    def attr_type(self, name: str) -> str:
        return type(self.attr(name)).__name__

    def all_attrs(self) -> dict[str, Any]:
        return {**{n: self.attr(n) for n in self.attrs}, **self._automatic()}

    def _set_attr(self, name: str, value: Any) -> None:
        # All four: which of them the name means is found below.
        self._note("role", "role_var", "device", "namescope")
        if name == "op_role":
            self.role = int(value)
        elif name == "op_role_var":
            self.role_var = tuple(value)
        elif name == "op_device":
            self.device = str(value)
        elif name == "op_namescope":
            # As `_automatic` gives it, with the slash of the root.
            self.namescope = str(value).lstrip("/")
        else:
            spec = self.definition.attrs.get(name)
            if spec is None:
                raise unknown(NotFoundError, self.type, "attribute", name, self.definition.attrs, "see op.attr_names")
            self._attrs.put(name, spec.clean(self.type, name, value))
        # Whatever the name was: plans are kept by the program's version.
        self._touch()

    def _rename_input(self, old: str, new: str) -> None:
        # Through the setter, which notes the old names and touches the program.
        self.inputs = {s: tuple(new if n == old else n for n in names) for s, names in self.inputs.items()}

    def _rename_output(self, old: str, new: str) -> None:
        self.outputs = {s: tuple(new if n == old else n for n in names) for s, names in self.outputs.items()}

    def __repr__(self) -> str:
        return f"Operator {self.type}({', '.join(self.input_arg_names)}) @ {show(self.where)}"
