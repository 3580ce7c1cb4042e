"""Runs one op on arrays: infer, allocate, ``ref``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.flags import fill_byte
from tstatic.forks import computing
from tstatic.ir.indices import index_checks
from tstatic.ir.opdef import OpDef
from tstatic.ir.types import Meta, Shape, dtype_of

Array = np.ndarray[Any, Any]


# Binding a plan asks several times for each array; most arrays of a net have one of a few shapes.
@lru_cache(maxsize=1 << 12)
def _meta(shape: Shape, dtype: Any) -> Meta:
    return Meta(shape, dtype_of(dtype))


def meta_of(array: Array) -> Meta:
    """Returns the shape and dtype of an array."""
    return _meta(array.shape, array.dtype)


def metas_of(values: Sequence[Any]) -> list[Any]:
    """Returns the metadata per slot: ``None`` stays, a list of arrays becomes a list of metas (holes stay ``None``).

    A list of Python objects has none: ``None``.
    """
    return [
        _meta(v.shape, v.dtype)
        if type(v) is np.ndarray
        else None
        if v is None
        else meta_of(v)
        if not isinstance(v, list | tuple)
        else [None if a is None else meta_of(a) for a in v]
        if all(isinstance(a, np.ndarray | None) for a in v)
        else None
        for v in values
    ]


MOST_AXES = 64
"""How many axes arrays of numpy and torch have at most."""


def infer_outputs(definition: OpDef, metas: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    """Calls the op definition's ``infer``; returns one Meta (or list of them, or ``None``) per output slot.

    Raises:
        TstaticError: What ``infer`` refuses, and DTypeError for complex values where the op takes none.
    """
    assert definition.infer is not None, f"{definition.type} has no infer"
    # The shape rule of an op on complex values is that of their parts.
    parts = _holds_complex(metas) and definition.complex != "own"
    if parts:
        _check_takes_complex(definition, metas)
        metas = [_each(_part, m) for m in metas]
    result = definition.infer(*metas, **definition.pick(definition.infer, attrs))
    # Rules may return a single output bare, and a list for a slot of several.
    if isinstance(result, Meta) or (len(definition.outputs) == 1 and not isinstance(result, tuple)):
        result = (result,)
    for one in result:
        if isinstance(one, Meta) and len(one.shape) > MOST_AXES:
            raise ShapeError(
                f"the result of {definition.type} has more axes than an array can have",
                expected=f"at most {MOST_AXES} axes",
                received=f"{one.rank} axes",
                fix="leave axes of size 1 away",
                op=definition.type,
            )
    # Floats were parts, and are complex again; integers, such as indices, stay.
    return [_each(_whole, m) for m in result] if parts else list(result)


def infer_with_unchecked(
    definition: OpDef, metas: list[Any], unchecked: Sequence[bool], attrs: Mapping[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Infers an op whose inputs may take any fed dtype; returns the metadata of its inputs and outputs.

    Scripts declare labels without a dtype, float32, and feed integers: an unchecked input that must hold integers is taken to
    hold some, and its dtype is looked at in the run.

    Args:
        definition: The op.
        metas: Metadata per input slot, as declared.
        unchecked: Per input slot, whether feeds of its variable are not compared with the declaration.
        attrs: The attributes.

    Raises:
        DTypeError, ShapeError: As the op's shape rule does.
    """
    try:
        return metas, infer_outputs(definition, metas, attrs)
    except DTypeError:
        integers = dtype_of("int64")
        loose = [free and isinstance(m, Meta) and m.dtype.is_float for m, free in zip(metas, unchecked, strict=True)]
        assumed = [m.with_dtype(integers) if free else m for m, free in zip(metas, loose, strict=True)]
        try:
            if any(loose):
                return assumed, infer_outputs(definition, assumed, attrs)
        except DTypeError:
            pass  # the error of what is declared says more
        raise


def _holds_complex(metas: Sequence[Any]) -> bool:
    for meta in metas:
        if meta is None:
            continue
        if meta.dtype.is_complex if type(meta) is Meta else _holds_complex(meta):
            return True
    return False


def _each(function: Callable[[Meta], Meta], value: Any) -> Any:
    """Applies a function to a Meta, or to each of a list; ``None`` stays."""
    if isinstance(value, list | tuple):
        return [_each(function, v) for v in value]
    return value if value is None else function(value)


def _part(meta: Meta) -> Meta:
    return meta.with_dtype(meta.dtype.real)


def _whole(meta: Meta) -> Meta:
    return meta.with_dtype(meta.dtype.complex) if meta.dtype.is_float else meta


def _check_takes_complex(definition: OpDef, metas: Sequence[Any]) -> None:
    """Refuses complex values where the op takes none.

    Raises:
        DTypeError: Names the slot.
    """
    if definition.complex:
        return
    slot, meta = next((s.name, m) for s, m in zip(definition.inputs, metas, strict=True) if _holds_complex([m]))
    raise DTypeError(
        f"operator '{definition.type}' does not take complex values",
        expected=f"floats or integers in {slot}",
        received=repr(meta),
        fix="work on paddle.real(x) and paddle.imag(x), or on paddle.abs(x) and paddle.angle(x)",
    )


def allocate(metas: Sequence[Any]) -> list[Any]:
    """Allocates arrays for metas, uninitialised unless memory is filled to find what is left unwritten."""
    byte = fill_byte()

    def one(meta: Meta) -> Array:
        array: Array = np.empty(meta.shape, meta.dtype.np)
        if byte is not None:
            # Flat first: an array without axes cannot be viewed as bytes.
            array.reshape(-1).view(np.uint8)[...] = byte
        return array

    return [None if m is None else [one(each) for each in m] if isinstance(m, list | tuple) else one(m) for m in metas]


def check_place(place: Array, shape: Shape, op: str) -> None:
    """Checks that a result fits the place that was planned for it.

    Raises:
        ShapeError: If it has another shape: a function of the user returned something else than a gradient of its input.
    """
    if place.shape != shape:
        raise ShapeError(
            f"a result of {op} has another shape than was inferred before the run",
            expected=f"shape {list(place.shape)}",
            received=f"shape {list(shape)}",
            fix="if a function of yours makes this value, let it return an array of the expected shape",
            op=op,
        )


def settle(place: Array, result: Array, op: str) -> None:
    """Copies a result to the place that was planned for it; see :func:`check_place`."""
    check_place(place, result.shape, op)
    np.copyto(place, result)


def call_ref(
    definition: OpDef, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any], **reserved: Any
) -> None:
    """Checks positions, then runs the reference once on arrays, with scratch of its own and the reserved values that it takes."""
    scratch = allocate(definition.ref.scratch(metas_of(ins), metas_of(outs), attrs))
    for function, args in [
        *index_checks(definition, ins, attrs),
        *definition.ref.bind_arrays(ins, outs, attrs, scratch, reserved),
    ]:
        function(*args)


def evaluate(
    definition: OpDef,
    ins: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    wanted: Sequence[bool] | None = None,
    **reserved: Any,
) -> list[Any]:
    """Runs an op on arrays and returns its outputs, one entry per output slot.

    Args:
        definition: The op.
        ins: One array, list of arrays, or ``None`` per input slot.
        attrs: Attributes; defaults are filled in.
        wanted: Which output slots to compute (all by default).
        **reserved: ``rng`` or ``run_block``, for op definitions that take them.
    """
    done = definition.complete(attrs or {})
    # Sizes follow from values: the reference allocates its results.
    if definition.dynamic:
        return definition.ref.compute(ins, [None] * len(definition.outputs), done, reserved)
    metas = infer_outputs(definition, metas_of(ins), done)
    if wanted is not None:
        metas = [m if w else None for m, w in zip(metas, wanted, strict=True)]
    outs = allocate(metas)
    # Infinities and NaN are results here, which need no warning.
    with computing(), np.errstate(all="ignore"):
        call_ref(definition, ins, outs, done, **reserved)
    return outs
