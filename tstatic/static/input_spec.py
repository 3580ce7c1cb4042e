"""``static.InputSpec``: shape, dtype and name of an input, without a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.types import dtype_of


@export("static.InputSpec")
class InputSpec:
    """Describes an input; ``static.data(spec.name, spec.shape, spec.dtype)`` declares it.

    Args:
        shape: Sizes; ``None`` for one that the batch decides is stored as -1.
        dtype: Element type.
        name: Its name.
        stop_gradient: Whether no gradient flows to it.

    Raises:
        ProgramTypeError: If the shape is not a list or tuple of ints.
        DTypeError: If there is no such dtype.

    Example:
        >>> spec = static.InputSpec([None, 3], "float32", "x")
        >>> spec
        InputSpec(shape=(-1, 3), dtype=tstatic.float32, name=x, stop_gradient=False)
        >>> spec.batch(8).shape
        (8, -1, 3)
    """

    def __init__(
        self, shape: Sequence[int | None], dtype: Any = "float32", name: str | None = None, stop_gradient: bool = False
    ) -> None:
        self.shape = _sizes(shape)
        self.dtype = dtype_of(dtype)
        self.name = name
        self.stop_gradient = stop_gradient

    @classmethod
    def from_tensor(cls, tensor: Variable, name: str | None = None) -> InputSpec:
        """Returns the spec of a Variable.

        Args:
            tensor: The Variable.
            name: Another name than its own.
        """
        var = check_variable(tensor, "tensor", "InputSpec.from_tensor")
        return cls(var.shape, var.dtype, name or var.name)

    @classmethod
    def from_numpy(cls, ndarray: Any, name: str | None = None) -> InputSpec:
        """Returns the spec of an array.

        Args:
            ndarray: The array.
            name: A name.
        """
        array = np.asarray(ndarray)
        return cls(array.shape, array.dtype, name)

    def batch(self, batch_size: Any) -> InputSpec:
        """Puts a size before the others, and returns the spec itself.

        Args:
            batch_size: The size, or a list with one.

        Raises:
            ProgramTypeError: If it is not an int.
            ProgramError: If a list has another length than one.
        """
        if isinstance(batch_size, list | tuple):
            if len(batch_size) != 1:
                raise ProgramError(
                    f"Length of batch_size: {batch_size} shall be 1, but received {len(batch_size)}.",
                    expected="one size",
                    received=shown(batch_size),
                    fix="pass the size itself",
                    op="InputSpec.batch",
                )
            batch_size = batch_size[0]
        self.shape = (*_sizes((batch_size,)), *self.shape)
        return self

    def unbatch(self) -> InputSpec:
        """Takes the first size away, and returns the spec itself.

        Raises:
            ProgramError: If there is none.
        """
        if not self.shape:
            raise ProgramError(
                "Not support to unbatch a InputSpec when len(shape) == 0.",
                expected="a shape of at least one size",
                received="[]",
                fix="do not call unbatch(): a spec without sizes has no batch axis",
                op="InputSpec.unbatch",
            )
        self.shape = self.shape[1:]
        return self

    def __repr__(self) -> str:
        return (
            f"InputSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name}, stop_gradient={self.stop_gradient})"
        )

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.name, self.stop_gradient

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        # By content, which `batch` changes: a spec must stay as it is while it is a key.
        return hash(self._key())


def _sizes(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple):
        raise ProgramTypeError(
            f"Type of `shape` in InputSpec should be one of (tuple, list), but received {type(shape).__name__}.",
            expected="a list or tuple of sizes",
            received=shown(shape),
            fix="pass [None, 3], for example",
            op="InputSpec",
        )
    for size in shape:
        # True would pass as a size of 1.
        if size is not None and (isinstance(size, bool) or not isinstance(size, int | np.integer)):
            raise ProgramTypeError(
                "a size of `shape` in InputSpec must be an int or None",
                expected="ints, None or -1",
                received=shown(size),
                fix="pass [None, 3], for example",
                op="InputSpec",
            )
    return tuple(-1 if size is None else int(size) for size in shape)
