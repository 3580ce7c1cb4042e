"""Dropout: elements are zeroed at random in training, and either scaled up there or scaled down in inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import WHOLE, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.random._dropout import (
    ATTRS,
    DOWNGRADE,
    DOWNSCALE,
    UPSCALE,
    check_float,
    gradient,
    scale_of,
    scaled,
    torch_keep,
    wide,
)
from tstatic.tuned import draw
from tstatic.tuned.philox import CHUNK, buffers_of_thread, philox_key

Array = np.ndarray[Any, Any]


def _flat(array: Array | None) -> Array | None:
    return None if array is None else array.reshape(-1)


def _ref(
    x: Array,
    seed_input: Array | None,
    out: Array | None,
    mask: Array | None,
    *,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
    seed: int,
    rng: Any,
) -> None:
    scale = scale_of(dropout_prob, is_test, dropout_implementation)
    if is_test:
        if mask is not None:
            mask.fill(1)
        if out is not None:
            scaled(x, None, out, scale)
        return
    key = philox_key(rng, seed if seed_input is None else int(seed_input.flat[0]))
    if not all(a is None or a.flags.c_contiguous for a in (x, out, mask)):
        keep = np.empty(x.shape, np.uint8) if mask is None else mask
        draw.fill_keep(keep, dropout_prob, key, rng.start)
        if out is not None:
            scaled(x, keep, out, scale)
        return
    xs, outs, masks = x.reshape(-1), _flat(out), _flat(mask)
    for at in range(0, xs.shape[0], CHUNK):
        part = slice(at, min(at + CHUNK, xs.shape[0]))
        keep = masks[part] if masks is not None else buffers_of_thread(np.uint8)[1][: part.stop - at]
        draw.fill_keep(keep, dropout_prob, key, rng.start + at)
        if outs is not None:
            scaled(xs[part], keep, outs[part], scale)


def _infer(x: Meta, seed_input: Meta | None) -> tuple[Meta, Meta]:
    check_float(x)
    return x, x.with_dtype(dtype_of("uint8"))


def _lower(
    torch: Any, x: Any, seed_input: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str, seed: int,
    rng: Any,
) -> Any:  # fmt: skip
    scale = scale_of(dropout_prob, is_test, dropout_implementation)
    if is_test:
        return (x.to(wide(torch, x)) * scale).to(x.dtype), torch.ones_like(x, dtype=torch.uint8)
    key = philox_key(rng, seed if seed_input is None else int(seed_input.reshape(-1)[0]))
    mask = torch_keep(torch, x.shape, dropout_prob, key, rng.start, x.device)
    return (x.to(wide(torch, x)) * mask * scale).to(x.dtype), mask


_MODES = tuple(
    {"dropout_prob": p, "is_test": t, "dropout_implementation": i}
    for t in (False, True)
    for i in (UPSCALE, DOWNGRADE)
    for p in (0.3, 0.0, 1.0)
)

register(
    OpDef(
        "dropout",
        "X, Seed? -> Out, Mask~",
        attrs=ATTRS,
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=Split(ELEMENTS, FIRST, WHOLE, FIRST, FIRST, multiple=4),
        inplace=(("X", "Out"),),
        grad=gradient("dropout_grad"),
        random=True,
        amp="gray",
        domain=Domain(
            "unary",
            attrs=_MODES,
            cases=(
                Case(((300, 7),), {"dropout_prob": 0.9, "dropout_implementation": UPSCALE}),
                Case(((5, 7), (1,)), {"seed": 3}),
            ),
            values={"Seed": ValueRange(1, 100, dtype="int32")},
            ulps=1,
        ),
    )
)


# ---------------------------------------------------------------------------------------------------- public functions
@export("fluid.layers.dropout", "fluid.layers.nn.dropout", op="dropout")
def fluid_dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool | None = None,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = DOWNGRADE,
) -> Variable:
    """Zeroes each element with chance ``dropout_prob``; scales by ``1 - dropout_prob`` in inference by default.

    Args:
        x: A float Variable.
        dropout_prob: Chance of an element to become 0.
        is_test: Whether this is inference; ``program.clone(for_test=True)`` sets it.
        seed: Replaces the program's seed when it is not 0; masks still differ from run to run.
        name: Name of the layer.
        dropout_implementation: ``"downgrade_in_infer"`` or ``"upscale_in_train"``.

    Example:
        >>> x = paddle.ones([1000])
        >>> train, test = fluid.layers.dropout(x, 0.5), fluid.layers.dropout(x, 0.5, is_test=True)
        >>> a, b = static.Executor().run(fetch_list=[train, test])
        >>> np.unique(a), np.unique(b)
        (array([0., 1.], dtype=float32), array([0.5], dtype=float32))
    """
    check_variable(x, "x", "dropout")
    attrs = {"dropout_prob": dropout_prob, "is_test": bool(is_test), "dropout_implementation": dropout_implementation,
             "seed": seed or 0, "fix_seed": bool(seed)}  # fmt: skip
    return emit("dropout", {"X": x}, attrs, name=name)  # type: ignore[no-any-return]


@export("nn.functional.dropout", op="dropout")
def dropout(
    x: Variable,
    p: float = 0.5,
    axis: Any = None,
    training: bool = True,
    mode: str = UPSCALE,
    name: str | None = None,
) -> Variable:
    """Zeroes each element with chance ``p`` in training, and scales so that the mean stays; ``x`` itself when p is 0.

    Args:
        x: A float Variable.
        p: Chance of an element to become 0.
        axis: An axis or a list of axes along which elements are drawn apart; along all others they share one draw.
        training: ``False`` for inference.
        mode: ``"upscale_in_train"`` scales by ``1 / (1 - p)`` in training, ``"downscale_in_infer"`` by ``1 - p`` in
            inference (the operator's own word, ``"downgrade_in_infer"``, is taken, too).
        name: Name of the layer.

    Raises:
        ProgramTypeError, ProgramError, ShapeError: For a bad probability, mode or axis.

    Example:
        >>> x = paddle.ones([1000])
        >>> y = paddle.nn.functional.dropout(x, p=0.75)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value)
        array([0., 4.], dtype=float32)
    """
    check_variable(x, "x", "dropout")
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise ProgramTypeError(
            "p argument should be a number",
            expected="a float from 0 to 1",
            received=repr(p),
            fix="pass p=0.5",
            op="dropout",
        )
    if not 0 <= p <= 1:
        raise ProgramError(
            "p argument should between 0 and 1",
            expected="0 <= p <= 1",
            received=p,
            fix="pass a probability",
            op="dropout",
        )
    if mode not in (UPSCALE, DOWNSCALE, DOWNGRADE):
        raise ProgramError(
            "mode argument should be 'downscale_in_infer' or 'upscale_in_train'",
            expected=f"'{UPSCALE}' or '{DOWNSCALE}'",
            received=repr(mode),
            fix="pass one of these words",
            op="dropout",
        )
    mode = UPSCALE if mode == UPSCALE else DOWNGRADE
    if p == 0:
        return x
    attrs: dict[str, Any] = {"dropout_prob": p, "is_test": not training, "dropout_implementation": mode}
    if axis is None:
        return emit("dropout", {"X": x}, attrs, name=name)  # type: ignore[no-any-return]
    axes = [axis] if isinstance(axis, int) else list(axis)
    if not axes or len(axes) > x.ndim:
        raise ShapeError(
            "the axes of dropout must be some of the input's",
            expected=f"1 to {x.ndim} axes",
            received=axes,
            fix="leave axis out to draw every element apart",
            op="dropout",
            var=x.name,
        )
    return emit("dropout_nd", {"X": x}, {**attrs, "axis": axes}, name=name, prefix="dropout")  # type: ignore[no-any-return]
