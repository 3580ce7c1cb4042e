"""The graph that an export to ONNX writes down: nodes, constants and values as plain data, without the package ``onnx``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from tstatic.errors import UnsupportedError
from tstatic.ir.types import UNKNOWN, DType, Shape, bool_, dtype_of, int64

OPSET = 18
"""The version of ONNX's operators that forms are written in."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of the graph.

    Attributes:
        name: Its name in the graph.
        dtype: Its elements' type.
        dims: Its sizes, -1 where unknown; ``None`` inside an operator's form, where nobody asks for them.
        number: The constant that it is, if it is one.
    """

    name: str
    dtype: DType
    dims: Shape | None = None
    number: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> Shape:
        """The sizes, of a value that has them."""
        assert self.dims is not None, f"the sizes of {self.name} are not kept"
        return self.dims

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One operator of ONNX; an attribute that is a :class:`DType` is written as ONNX's number of it."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]


class Graph:
    """Collects nodes and constants; an op definition's ``onnx`` is given one and calls it to add nodes.

    ``g("Relu", x)`` adds a node and returns its result. An op's form is ``(g, *inputs, **attrs) -> value``, or a tuple of one
    per output slot: inputs are a :class:`Value`, ``None`` or a list, as the slot is.

    Attributes:
        nodes: In an order in which each value is made before it is read.
        constants: Name -> array.
        outs: What the operator being written makes: a metadata, ``None`` or a list of them per output slot.
    """

    def __init__(self) -> None:
        self.nodes: list[OnnxNode] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.outs: Sequence[Any] = ()
        self.prefix = ""
        self._known: dict[tuple[Any, ...], Value] = {}
        self._made = 0

    def fresh(self) -> str:
        """Returns a name that no other value has; it begins with the name of what the operator makes."""
        self._made += 1
        return f"{self.prefix}/{self._made}"

    # ------------------------------------------------------------------------------------------------------------ nodes
    @overload
    def __call__(
        self,
        op: str,
        *inputs: Value | None,
        dtype: DType | None = None,
        dims: Shape | None = None,
        count: Literal[0] = 0,
        **attrs: Any,
    ) -> Value: ...

    @overload
    def __call__(
        self, op: str, *inputs: Value | None, dtype: DType | None = None, count: int, **attrs: Any
    ) -> list[Value]: ...

    def __call__(
        self,
        op: str,
        *inputs: Value | None,
        dtype: DType | None = None,
        dims: Shape | None = None,
        count: int = 0,
        **attrs: Any,
    ) -> Value | list[Value]:
        """Adds a node.

        Args:
            op: Name of ONNX's operator.
            inputs: Its inputs; ``None`` for one that is left out.
            dtype: The results' type; that of the first input by default.
            dims: The result's sizes, if somebody will ask for them.
            count: Makes the answer a list of so many results.
            attrs: Its attributes; those that are ``None`` are left out.
        """
        names = [v.name if v is not None else "" for v in inputs]
        # ONNX leaves out inputs at the end; one in between has an empty name.
        while names and not names[-1]:
            names.pop()
        # Most of ONNX's operators give the type of their first input.
        kind = dtype or next(v.dtype for v in inputs if v is not None)
        results = [Value(self.fresh(), kind, dims) for _ in range(count or 1)]
        given = {n: v for n, v in attrs.items() if v is not None}
        self.nodes.append(OnnxNode(op, tuple(names), tuple(r.name for r in results), given))
        return results if count else results[0]

    def const(self, value: Any, dtype: DType | None = None) -> Value:
        """Returns a constant; equal ones are one value."""
        array = np.asarray(value, None if dtype is None else dtype.np)
        # By bytes: 0.0 equals -0.0, and NaN not even itself.
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        found = self._known.get(key)
        if found is None:
            name = f"constant/{len(self.constants)}"
            found = self._known[key] = Value(name, dtype_of(array.dtype), array.shape, array)
            self.constants[name] = array
        return found

    def ints(self, values: Iterable[int]) -> Value:
        """Returns a list of integers as ONNX takes axes, sizes and positions: a constant vector of int64."""
        return self.const(np.asarray(list(values), np.int64))

    # ---------------------------------------------------------------------------------------------------------- helpers
    def cast(self, x: Value, dtype: DType) -> Value:
        """Returns the value in another type."""
        return x if x.dtype is dtype else self("Cast", x, dtype=dtype, dims=x.dims, to=dtype)

    def wide(self, x: Value) -> Value:
        """Returns the value in the type that arithmetic on it is done in: float32 for 16 bits."""
        return self.cast(x, x.dtype.compute)

    def full(self, sizes: Value, value: Any, dtype: DType) -> Value:
        """Returns a value of given sizes (a vector of int64) with one number everywhere."""
        return self("ConstantOfShape", sizes, dtype=dtype, value=np.asarray([value], dtype.np))

    def sizes(self, x: Value, start: int = 0, end: int | None = None) -> Value:
        """Returns sizes of a value as a vector of int64: a constant if they are known, else computed when the model runs."""
        if x.dims is not None and all(s != UNKNOWN for s in x.dims[start:end]):
            return self.ints(x.dims[start:end])
        # From 0 to the end is the default of `Shape`.
        return self("Shape", x, dtype=int64, start=start or None, end=end)

    def join(self, parts: Sequence[Value]) -> Value:
        """Returns vectors in a row."""
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=0)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Returns the elements in another shape, in which at most one size may be -1: what is left.

        More sizes of -1 are possible where each stands at its own place in the value too.

        Raises:
            UnsupportedError: If a size can be found in neither way.
        """
        target = list(shape)
        if x.dims == tuple(target):
            return x
        # Without `allowzero`, a size of 0 copies the one at the same place.
        if 0 in target and UNKNOWN not in target:
            return self("Reshape", x, self.ints(target), dims=tuple(shape), allowzero=1)
        if target.count(UNKNOWN) > 1:
            # ONNX's 0 copies the size at the same place.
            for i, size in enumerate(target):
                if size == UNKNOWN and target.count(UNKNOWN) > 1 and i < x.rank and self._copies(x.shape, target, i):
                    target[i] = 0
        if target.count(UNKNOWN) > 1:
            raise self.unknown(x, f"the shape {list(shape)}")
        return self("Reshape", x, self.ints(target), dims=tuple(shape))

    @staticmethod
    def _copies(own: Shape, target: Sequence[int], i: int) -> bool:
        """Whether the sizes up to a place are the same, so that its size is the value's own."""
        return own[i] == UNKNOWN and all(
            t == s or (t == 0 and s == UNKNOWN) for t, s in zip(target[:i], own, strict=False)
        )

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Returns the value without axes of size 1."""
        if not axes:
            return x
        gone = {a % len(x.dims) for a in axes} if x.dims is not None else set()
        dims = None if x.dims is None else tuple(s for i, s in enumerate(x.dims) if i not in gone)
        return self("Squeeze", x, self.ints(axes), dims=dims)

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Returns the value with axes of size 1 at places of the result."""
        if not axes:
            return x
        dims = None
        if x.dims is not None:
            rank = len(x.dims) + len(axes)
            new, rest = {a % rank for a in axes}, iter(x.dims)
            dims = tuple(1 if i in new else next(rest) for i in range(rank))
        return self("Unsqueeze", x, self.ints(axes), dims=dims)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Returns the value with its axes in another order."""
        if list(perm) == list(range(len(perm))):
            return x
        dims = None if x.dims is None else tuple(x.dims[i] for i in perm)
        return self("Transpose", x, dims=dims, perm=list(perm))

    def reduce(self, op: str, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """Returns a reduction (``"Sum"``, ``"Mean"``, ``"Max"`` ...) over axes; over none it is the value itself."""
        # Without axes ONNX reduces over all of them.
        if not axes and op in ("Sum", "Mean", "Max", "Min", "Prod"):
            return x
        return self(f"Reduce{op}", x, self.ints(axes), keepdims=int(keep))

    def slice(self, x: Value, axis: int, start: int, end: int | None = None, step: int = 1) -> Value:
        """Returns a run of entries along an axis; ``None`` is the end in the direction of the step."""
        # Beyond every size, which `Slice` takes as the end in its direction.
        far = 2**63 - 1 if step > 0 else -(2**63) + 1
        ends = self.ints([far if end is None else end])
        return self("Slice", x, self.ints([start]), ends, self.ints([axis]), self.ints([step]))

    def number(self, value: float, like: Value) -> Value:
        """Returns a number in the type of another value."""
        return self.const(np.asarray(value, like.dtype.np))

    def add(self, a: Value, b: Value | float) -> Value:
        return self("Add", a, b if isinstance(b, Value) else self.number(b, a))

    def sub(self, a: Value, b: Value | float) -> Value:
        return self("Sub", a, b if isinstance(b, Value) else self.number(b, a))

    def mul(self, a: Value, b: Value | float) -> Value:
        return self("Mul", a, b if isinstance(b, Value) else self.number(b, a))

    def div(self, a: Value, b: Value | float) -> Value:
        return self("Div", a, b if isinstance(b, Value) else self.number(b, a))

    def equal(self, a: Value, b: Value | float) -> Value:
        return self("Equal", a, b if isinstance(b, Value) else self.number(b, a), dtype=bool_)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        return self("Where", condition, a, b, dtype=a.dtype)

    # ----------------------------------------------------------------------------------------------------------- checks
    def unknown(self, x: Value, what: str) -> UnsupportedError:
        """Returns the error that a size must be known before the model runs."""
        return UnsupportedError(
            f"its form in ONNX needs {what} of '{x.name}' before the model runs",
            expected="known sizes",
            received=f"a shape of {list(x.dims or ())}",
            fix="give these sizes to static.data in place of None, and export again",
        )

    def known(self, x: Value, axes: Iterable[int] | None = None) -> Shape:
        """Returns sizes that must be known.

        Raises:
            UnsupportedError: If one is not.
        """
        found = tuple(x.shape[i] for i in (range(x.rank) if axes is None else axes))
        if UNKNOWN in found:
            raise self.unknown(x, "the sizes")
        return found

    def refuse(self, what: str, fix: str = "compute this part outside the exported model") -> UnsupportedError:
        """Returns the error that an operator with these attributes or inputs has no form in ONNX."""
        return UnsupportedError(
            f"ONNX's operators of version {OPSET} have no form of it {what}",
            expected="attributes and inputs that ONNX has",
            received=what,
            fix=fix,
        )
