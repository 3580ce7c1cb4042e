"""What follows from a pointwise expression (numpy reference, torch lowering, gradient), and expressions along rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.ir import expr, expr_numpy
from tstatic.ir.expr_torch import run_torch
from tstatic.ir.ref import Attrs, Calls, ExpressionRef, Expressions, Metas, Ref, Slots
from tstatic.ir.types import Meta, Shape, dtype_of, numel

Prepare = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]


class PointwiseRef(ExpressionRef):
    """A reference made of pointwise expressions; it binds to single ufunc calls, so that a step costs no Python frame of ours.

    Args:
        inputs: Names of the input slots inside the expressions, in order.
        outputs: Output position -> expression text.
        attrs: Names of attributes that expressions may use.
        prepare: Maps ``(input arrays, attributes)`` to input arrays that broadcast by numpy's rule.
    """

    elementwise = True

    def __init__(
        self, inputs: Sequence[str], outputs: Mapping[int, str], attrs: Sequence[str], prepare: Prepare | None = None
    ) -> None:
        self.inputs = tuple(inputs)
        self.nodes = {i: expr.parse(text) for i, text in outputs.items()}
        self.attrs: frozenset[str] = frozenset(attrs)
        self.prepare = prepare
        self._codes: dict[Any, expr_numpy.Code] = {}
        # For inputs that `prepare` has aligned: they broadcast by numpy's rule.
        self._aligned = self if prepare is None else PointwiseRef(inputs, outputs, attrs)

    def _code(
        self, ins: Sequence[np.dtype[Any] | None], outs: Sequence[np.dtype[Any] | None], attrs: Mapping[str, Any]
    ) -> expr_numpy.Code:
        """Returns the code for these dtypes, wanted outputs and attribute values."""
        used: dict[str, Any] = {}
        if self.attrs:
            used = {n: v for n, v in attrs.items() if n in self.attrs and isinstance(v, bool | int | float)}
        # By their text: 0.0 and -0.0, or 1 and True, are equal but not the same constant.
        key = (tuple(outs), tuple(ins), repr(used) if used else "")
        found = self._codes.get(key)
        if found is None:
            wanted = tuple((i, d) for i in self.nodes if (d := outs[i]) is not None)
            values = {n: expr.const(v) for n, v in used.items()}
            found = expr_numpy.compile_numpy(
                {i: expr.substitute(self.nodes[i], values) for i, _ in wanted},
                {n: (i, d) for i, (n, d) in enumerate(zip(self.inputs, ins, strict=True)) if d is not None},
                dict(wanted),
                {},
            )
            self._codes[key] = found
        return found

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        dtypes = [None if m is None else m.dtype.np for m in ins], [None if m is None else m.dtype.np for m in outs]
        code = self._code(*dtypes, attrs)
        shape = next(m.shape for m in outs if m is not None)
        return tuple(Meta(shape, dtype_of(d)) for d in code.registers)

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        dtypes = [None if a is None else a.dtype for a in ins], [None if a is None else a.dtype for a in outs]
        code = self._code(*dtypes, attrs)
        shaped = ins if self.prepare is None else self.prepare(ins, attrs)
        return code.bind_operands(shaped, outs, scratch)

    def aligned(self, ins: Slots, attrs: Attrs) -> tuple[Ref, Slots]:
        return self._aligned, ins if self.prepare is None else self.prepare(ins, attrs)

    def expressions(self, ins: Slots, attrs: Attrs) -> Expressions | None:
        if any(isinstance(m, list | tuple) for m in ins):
            return None
        shapes: Sequence[Any] = [None if m is None else _Shaped(m.shape) for m in ins]
        if self.prepare is not None:
            shapes = self.prepare(shapes, attrs)
        return Expressions(self.nodes, self.inputs, [None if s is None else tuple(s.shape) for s in shapes], {})


class _Shaped:
    """In the place of an array while inputs are aligned: only shapes are asked for and changed."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ndim = len(shape)

    def reshape(self, *shape: Any) -> _Shaped:
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return _Shaped(tuple(int(s) for s in sizes))


def torch_lowering(
    inputs: Sequence[str], outputs: Mapping[int, str], count: int, attrs: Sequence[str], prepare: Prepare | None = None
) -> Callable[..., Any]:
    """Returns a ``lower`` that evaluates the expressions with torch and rounds once to the inputs' float type."""
    nodes = {i: expr.parse(text) for i, text in outputs.items()}
    known: dict[str, dict[int, expr.Node]] = {}

    def lower(torch: Any, *tensors: Any, out: Any = None, **values: Any) -> Any:
        if prepare is not None:
            tensors = tuple(prepare(tensors, values))
        named = {n: t for n, t in zip(inputs, tensors, strict=True) if t is not None}
        # By their text: 0.0 and -0.0, or 1 and True, are equal but not the same constant.
        key = repr(values)
        if key not in known:
            constants = {n: expr.const(v) for n, v in values.items() if isinstance(v, bool | int | float)}
            known[key] = {i: expr.substitute(node, constants) for i, node in nodes.items()}
        like = next(t for t in named.values())
        places: Sequence[Any] = (out,) if count == 1 else out or (None,) * count
        results: list[Any] = [None] * count
        # The first output is computed last: it may be the tensor of an input that the others read.
        for i in reversed(range(count)):
            if i not in nodes or (out is not None and places[i] is None):
                continue
            result = run_torch(torch, known[key][i], named, {}, places[i])
            if not hasattr(result, "dtype"):
                result = torch.full_like(like, result) if places[i] is None else places[i].fill_(result)
            if result is not places[i]:
                if result.dtype.is_floating_point and like.dtype.is_floating_point:
                    # Low precision was computed in float32: this is the one rounding.
                    result = result.to(like.dtype)
                if places[i] is not None:
                    result = places[i].copy_(result)
            results[i] = result
        return results[0] if count == 1 else tuple(results)

    return lower


def same_as_first(*metas: Any) -> Meta:
    """``infer`` of an op whose result has the first input's shape and dtype."""
    first: Meta = metas[0]
    return first


def as_bool(*metas: Any) -> Meta:
    """``infer`` of a predicate on one input."""
    return Meta(metas[0].shape, dtype_of("bool"))


def derive_gradient(inputs: Sequence[str], outputs: Mapping[str, str], floats: Sequence[str]) -> dict[str, str]:
    """Differentiates pointwise outputs: returns variable name -> gradient text, over ``d<output>`` as incoming gradients.

    ``outputs`` maps the output's name inside expressions to its text; an output that no gradient reaches is left out by
    the caller.
    """
    gradients = {}
    for name in floats:
        total = expr.ZERO
        for out, text in outputs.items():
            inner = expr.diff(expr.parse(text), name)
            seed = expr.Node("var", value=f"d{out}")
            # The incoming gradient inside the choice: outside, infinity times 0 would be NaN.
            if inner.op == "where" and inner.args[2] == expr.ZERO:
                term = expr.make("where", inner.args[0], expr.make_term("mul", seed, inner.args[1]), expr.ZERO)
            else:
                term = expr.make_term("mul", seed, inner)
            total = expr.make("add", total, term)
        gradients[name] = expr.to_text(total)
    return gradients


# -------------------------------------------------------------------------------------------------------------- rows
def _kernels_only(torch: object, *args: object) -> object:
    raise AssertionError("row functions are for generated kernels; op definitions state their own torch lowering")


# ``mask`` is true for the elements of the row; what is beyond must not count.
expr.define("rsum", None, _kernels_only, triton="tl.sum(tl.where(mask, {a}, 0.0), 1)[:, None]")
expr.define("rmax", None, _kernels_only, triton='_row_max(tl.where(mask, {a}, float("-inf")))')

ALONG = ("rsum", "rmax")
"""Functions of a whole row."""

COLUMN = "column"
"""Name of the place of an element in its row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An op on rows: the trailing dimensions of one shape, from an axis on, are a row.

    Attributes:
        texts: Output slot -> expression over the slots' lower-case names, attributes, ``n`` (elements of a row), ``column``
            (0 to n - 1), ``nan``, ``rsum`` and ``rmax`` (of a row; one value per row).
        shape: Of the operands that have all elements.
        axis: Where a row's dimensions begin; 0 where all elements are one row, and then for texts without ``rsum`` and
            ``rmax`` only.
        columns: Slots with one element per column: inputs are broadcast over the rows, outputs are summed over them. Any
            other slot that is smaller has one element per row.
    """

    texts: Mapping[str, str]
    shape: Shape
    axis: int
    columns: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Elements of a row."""
        return numel(self.shape[self.axis :])

    @property
    def per_row(self) -> Shape:
        """The full shape with ones for the row's dimensions."""
        return self.shape[: self.axis] + (1,) * (len(self.shape) - self.axis)

    @property
    def per_column(self) -> Shape:
        """The full shape with ones for the other dimensions."""
        return (1,) * self.axis + self.shape[self.axis :]


def trailing(shape: Shape, axes: tuple[int, ...]) -> int | None:
    """Returns where a row begins if exactly these sorted axes are its dimensions; ``None`` if they are not the last ones."""
    rank = len(shape)
    first = rank - len(axes)
    return first if axes and first > 0 and axes == tuple(range(first, rank)) else None
