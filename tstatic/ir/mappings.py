"""The dicts of an op: attributes, whose writes are checked and seen by later runs, and slots, which are read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tstatic.errors import ProgramError

if TYPE_CHECKING:
    from tstatic.ir.operator import Operator


class _Owned(dict[str, Any]):
    """A dict that belongs to an op; copies of it are plain dicts."""

    __slots__ = ("op",)

    def __init__(self, op: Operator, values: Any) -> None:
        super().__init__(values)
        self.op = op

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return dict(self)

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
