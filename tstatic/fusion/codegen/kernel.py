"""A generated kernel as data: its text, its parameters, the memory that it touches, and how it is launched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tstatic.ir.types import DType


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in order.

    Attributes:
        name: Its name.
        kind: ``"pointer"``, ``"integer"`` or ``"constant"``.
        type: Triton's type of the element or the integer; empty for a constant.
        operand: The value that a pointer stands for; ``"partial:y0"`` for the partial sums of an output,
            ``"table:blocks"`` for a table.
    """

    name: str
    kind: str
    type: str = ""
    operand: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """One call.

    Attributes:
        function: Name in the module.
        grid: Number of programs per axis.
        arguments: Values of the program, names of partial buffers or tables, or numbers, in the order of the function's
            parameters.
        constants: ``tl.constexpr`` parameters.
        num_warps: Warps per program.
        types: Triton's types of the arguments (``*fp32``, ``i32``); empty for the main function, whose parameters say it.
    """

    function: str
    grid: tuple[int, ...]
    arguments: tuple[str | int | float, ...]
    constants: Mapping[str, int]
    num_warps: int = 4
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """64-bit integers that a kernel looks up: where values lie in memory, or fixed numbers.

    Attributes:
        values: Values whose addresses the table holds; known when memory is.
        numbers: Otherwise what it holds.
    """

    values: tuple[str, ...] = ()
    numbers: np.ndarray[Any, Any] | None = None

    def filled(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The table's content, for values that lie in these arrays; who launches the kernel keeps them alive."""
        if self.numbers is not None:
            return self.numbers
        return np.array([arrays[v].ctypes.data for v in self.values], np.int64)


@dataclass(frozen=True, slots=True)
class Calls:
    """The launches of a kernel, the buffers that they share (name -> (elements, type)), and their tables by name."""

    launches: tuple[Launch, ...]
    partials: Mapping[str, tuple[int, DType]]
    tables: Mapping[str, Table] = field(default_factory=dict)

    @property
    def programs(self) -> int:
        """Programs of all launches together."""
        return sum(math.prod(one.grid) for one in self.launches)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A value that a kernel reads or writes, and how many of its elements, each counted once."""

    value: str
    dtype: DType
    count: int

    @property
    def nbytes(self) -> int:
        return int(self.count * self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated module.

    Attributes:
        name: Template and hash of the text.
        text: The module; it imports Triton and nothing of tstatic.
        template: What made it.
        parameters: Of the function ``kernel``.
        inputs, outputs: Memory that is read and written.
        plan: ``(few) -> Calls``; ``few`` asks for few large programs, for the interpreter, where one costs about a
            millisecond whatever its size.
    """

    name: str
    text: str
    template: str
    parameters: tuple[Parameter, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    plan: Callable[[bool], Calls] = field(repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes that must be moved: every input read once, every output written once."""
        return sum(b.nbytes for b in (*self.inputs, *self.outputs))


def power_of_two(n: int, least: int, most: int) -> int:
    """The power of two that holds ``n``, within bounds that are powers of two."""
    return max(least, min(most, 1 << max(0, n - 1).bit_length()))
