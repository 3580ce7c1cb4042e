"""Dropout of elements and of whole slices: zeroed at random in training, and scaled there or in inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_dtype, check_length, check_number, check_rank
from tstatic.ir.drawn import Drawn
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import pick
from tstatic.ir.split import ELEMENTS, FIRST, WHOLE, Split
from tstatic.ir.traits import Redrawn
from tstatic.ir.types import Meta, Shape, dtype_of, normalize_axis
from tstatic.ops.base.gradients import grad_is_op
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.random.dropout_when_run import dropout_when_run
from tstatic.tuned import draw
from tstatic.tuned.philox import CHUNK, WORD, buffers_of_thread, philox_key, torch_bits, torch_halves

Array = np.ndarray[Any, Any]

UPSCALE, DOWNGRADE = "upscale_in_train", "downgrade_in_infer"
DOWNSCALE = "downscale_in_infer"
"""What ``nn.functional.dropout`` calls the operator's ``downgrade_in_infer``."""


def _implementation(value: Any) -> str | None:
    return None if value in (UPSCALE, DOWNGRADE) else f"'{UPSCALE}' or '{DOWNGRADE}'"


def _chance(value: float) -> str | None:
    return None if 0 <= value <= 1 else "a probability from 0 to 1"


# As Paddle's operator: DOWNGRADE is its default, unlike that of nn.functional.dropout.
ATTRS = {
    "dropout_prob": Attr(0.5, "float", _chance),
    "is_test": False,
    "dropout_implementation": Attr(DOWNGRADE, "str", _implementation),
    "fix_seed": Attr.idle(False, "a seed other than 0 is used either way"),
    "seed": 0,
}


def scale_of(dropout_prob: float, is_test: bool, dropout_implementation: str) -> float:
    """Returns what the kept elements are multiplied by."""
    if is_test:
        return 1.0 if dropout_implementation == UPSCALE else 1.0 - dropout_prob
    if dropout_implementation == UPSCALE:
        # A chance of 1 keeps nothing, so the factor has nothing to act on; 0 avoids a division by 0.
        return 1.0 / (1.0 - dropout_prob) if dropout_prob < 1 else 0.0
    return 1.0


def _scaled(x: Array, mask: Array | None, out: Array, scale: float) -> None:
    """Computes ``out = x * mask * scale`` (no mask: all ones); float16 and bfloat16 in float32, rounded once."""
    if out.dtype.itemsize == 2 and scale != 1:
        value = x.astype(np.float32)
        if mask is not None:
            np.multiply(value, mask, out=value)
        # One rounding to 16 bits at the end, as kernels do it, which compute in float32.
        np.multiply(value, np.float32(scale), out=value)
        np.copyto(out, value, casting="unsafe")
        return
    if mask is None:
        np.multiply(x, out.dtype.type(scale), out=out)
        return
    if out.dtype.itemsize == 2:
        # By 0 or 1, which is exact in any type; the mask's own type would make the product a wider one.
        mask = mask.astype(out.dtype)
    np.multiply(x, mask, out=out)
    if scale != 1:
        np.multiply(out, out.dtype.type(scale), out=out)


def _key(rng: Any, seed: int, seed_input: Any) -> Any:
    """Returns the key of the random stream; a seed given as an input (an array or a tensor) replaces the attribute."""
    return philox_key(rng, seed if seed_input is None else int(seed_input.reshape(-1)[0]))


def _torch_mask(torch: Any, shape: Shape, dropout_prob: float, is_test: bool, key: Any, start: int, device: Any) -> Any:
    """Returns the mask of kept elements as uint8; in inference all are kept."""
    if is_test:
        return torch.ones(shape, dtype=torch.uint8, device=device)
    bits, threshold = draw.keep_rule(dropout_prob)
    # The rule says how many bits decide: 16 where they give the chance exactly enough, which halves the words drawn.
    numbers = (torch_halves if bits == 16 else torch_bits)(torch, math.prod(shape), key, start, device)
    return (numbers >= threshold).to(torch.uint8).reshape(shape)


def _torch_scaled(x: Any, mask: Any, factor: float) -> Any:
    """Returns ``x * mask * factor``; without a mask it is all ones. The first product is exact, so 16 bits are rounded once."""
    return (x if mask is None else x * mask) * factor


# ------------------------------------------------------------------------------------------------------------- gradient
def _grad_ref(
    mask: Array, dout: Array, dx: Array, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> None:
    _scaled(dout, None if is_test else mask, dx, scale_of(dropout_prob, is_test, dropout_implementation))


def _grad_lower(
    torch: Any, mask: Any, dout: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> Any:
    return _torch_scaled(dout, None if is_test else mask, scale_of(dropout_prob, is_test, dropout_implementation))


def _drawn(x: Meta, shape: Shape, dropout_prob: float, is_test: bool, dropout_implementation: str) -> Drawn:
    """Returns what kernels compute; ``x`` is scaled as :func:`_scaled` does it, where ``shape`` is that of the mask."""
    scale = scale_of(dropout_prob, is_test, dropout_implementation)
    bits, threshold = (32, 0) if is_test else draw.keep_rule(dropout_prob)
    # Constants instead of draws where all or nothing is kept.
    if threshold == 0:
        kept = "1"
    elif threshold > WORD:
        kept = "0"
    else:
        kept = "(half >= threshold)" if bits == 16 else "(drawn >= threshold)"
    # A dropped element is multiplied by 0, not replaced: NaN stays, and zeros keep their sign. The bits are those of two products,
    # and the inner one is a choice between two numbers.
    texts = {"Out": f"x * ({kept} * scale)", "Mask": kept}
    # Words are drawn as signed numbers.
    return Drawn(texts, shape, {"threshold": threshold - (1 << 31) * (bits == 32), "scale": scale})


def _drawn_forward(
    x: Meta, seed_input: Meta | None, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> Drawn | None:
    # A seed in a tensor is known to the device only.
    return None if seed_input is not None else _drawn(x, x.shape, dropout_prob, is_test, dropout_implementation)


def _redrawn(
    type: str, ref: Callable[..., None], lower: Callable[..., Any], drawn: Callable[..., Drawn | None],
    attrs: Mapping[str, Any], split: Split | None = None,
) -> OpDef:  # fmt: skip
    """Returns the backward op that draws the mask again: as the forward op does, on the gradient in the place of ``X``."""

    def back(dout: Array, dx: Array, *, rng: Any, **attrs: Any) -> None:
        ref(dout, None, dx, None, rng=rng, **pick(ref, attrs))

    def lower_back(torch: Any, dout: Any, *, rng: Any, **attrs: Any) -> Any:
        return lower(torch, dout, None, rng=rng, **pick(lower, attrs))[0]

    def drawn_back(dout: Meta, **attrs: Any) -> Drawn | None:
        found = drawn(dout, None, **pick(drawn, attrs))
        return found and replace(found, texts={f"X{GRAD}": found.texts["Out"].replace("x", "dout", 1)})

    return OpDef(
        type, f"Out{GRAD} -> X{GRAD}?", attrs=attrs, infer=lambda dout: dout, ref=back, lower=lower_back, split=split,
        inplace=(("Out" + GRAD, "X" + GRAD),), random=True, drawn=drawn_back, of=type.removesuffix("_grad"),
    )  # fmt: skip


def _gradient(type: str, redrawn: OpDef) -> GradOp:
    """Returns the backward op of that type."""
    return GradOp(
        f"Mask, Out{GRAD} -> X{GRAD}",
        ref=_grad_ref,
        lower=_grad_lower,
        infer=lambda mask, dout: dout,
        split=Split(ELEMENTS, FIRST),
        inplace=(("Out" + GRAD, "X" + GRAD),),
        # Linear in the incoming gradient, so the gradient of the backward op is the same op.
        grad=grad_is_op(type, lambda ctx: ctx.attrs, "Out" + GRAD, "X" + GRAD, keep=("Mask",)),
        traits=(Redrawn(redrawn),),
    )


# --------------------------------------------------------------------------------------------------------------- dropout
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
            _scaled(x, None, out, scale)
        return
    key = _key(rng, seed, seed_input)
    if not all(a is None or a.flags.c_contiguous for a in (x, out, mask)):
        # Strides forbid a flat view, so positions cannot be walked in parts: the mask is drawn as a whole.
        keep = np.empty(x.shape, np.uint8) if mask is None else mask
        draw.fill_keep(keep, dropout_prob, key, rng.start)
        if out is not None:
            _scaled(x, keep, out, scale)
        return
    xs, outs, masks = x.reshape(-1), _flat(out), _flat(mask)
    for at in range(0, xs.shape[0], CHUNK):
        part = slice(at, min(at + CHUNK, xs.shape[0]))
        # Part by part in a buffer of the thread: a mask that nobody reads takes no memory of the whole size.
        keep = masks[part] if masks is not None else buffers_of_thread(np.uint8)[1][: part.stop - at]
        draw.fill_keep(keep, dropout_prob, key, rng.start + at)
        if outs is not None:
            _scaled(xs[part], keep, outs[part], scale)


def _infer(x: Meta, seed_input: Meta | None) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    return x, x.with_dtype(dtype_of("uint8"))


def _lower(
    torch: Any, x: Any, seed_input: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str, seed: int,
    rng: Any,
) -> Any:  # fmt: skip
    mask = _torch_mask(torch, x.shape, dropout_prob, is_test, _key(rng, seed, seed_input), rng.start, x.device)
    return _torch_scaled(x, mask, scale_of(dropout_prob, is_test, dropout_implementation)), mask


# The ends 0 and 1 draw nothing; 0.3 lies between two thresholds.
_MODES = tuple(
    {"dropout_prob": p, "is_test": t, "dropout_implementation": i}
    for t in (False, True)
    for i in (UPSCALE, DOWNGRADE)
    for p in (0.3, 0.0, 1.0)
)

# Drawing again saves a byte for each element between the forward and the backward pass.
_REDRAWN = _redrawn("dropout_grad", _ref, _lower, _drawn_forward, ATTRS, Split(ELEMENTS, FIRST, FIRST, multiple=8))


def _onnx_form(g: Any, x: Any, tensor: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str) -> Any:
    if not is_test:
        raise g.refuse("in training", "export a program cloned with for_test=True")
    scale = scale_of(dropout_prob, is_test, dropout_implementation)
    return x if scale == 1 else g.mul(g.wide(x), scale)


register(OpDef(
    "dropout", "X, Seed? -> Out, Mask~", lod="X", attrs=ATTRS, infer=_infer, ref=_ref, lower=_lower,
    split=Split(ELEMENTS, FIRST, WHOLE, FIRST, FIRST, multiple=8), inplace=(("X", "Out"),),
    grad=_gradient("dropout_grad", _REDRAWN),
    random=True, drawn=_drawn_forward, amp="gray",
    domain=Domain(
        "unary",
        attrs=_MODES,
        cases=(
            Case(((300, 7),), {"dropout_prob": 0.9, "dropout_implementation": UPSCALE}),
            Case(((5, 7), (1,)), {"seed": 3}),
        ),
        values={"Seed": ValueRange(1, 100, dtype="int32")},
        ulps=1,
    ), onnx=_onnx_form,
))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- whole slices
def _mask_shape(x: Shape, axis: tuple[int, ...]) -> Shape:
    kept = {normalize_axis(a, len(x)) for a in axis}
    return tuple(s if i in kept else 1 for i, s in enumerate(x))


def _infer_nd(x: Meta, seed_input: Meta | None, axis: tuple[int, ...]) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    return x, Meta(_mask_shape(x.shape, axis), dtype_of("uint8"))


def _ref_nd(
    x: Array,
    seed_input: Array | None,
    out: Array | None,
    mask: Array | None,
    *,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
    seed: int,
    axis: tuple[int, ...],
    rng: Any,
) -> None:
    keep = np.empty(_mask_shape(x.shape, axis), np.uint8) if mask is None else mask
    if is_test:
        keep.fill(1)
    else:
        draw.fill_keep(keep, dropout_prob, _key(rng, seed, seed_input), rng.start)
    if out is not None:
        _scaled(x, None if is_test else keep, out, scale_of(dropout_prob, is_test, dropout_implementation))


def _drawn_nd(
    x: Meta,
    seed_input: Meta | None,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
    axis: tuple[int, ...],
) -> Drawn | None:
    if seed_input is not None:
        return None
    return _drawn(x, _mask_shape(x.shape, axis), dropout_prob, is_test, dropout_implementation)


def _lower_nd(
    torch: Any, x: Any, seed_input: Any, *, dropout_prob: float, is_test: bool, dropout_implementation: str, seed: int,
    axis: tuple[int, ...], rng: Any,
) -> Any:  # fmt: skip
    shape, key = _mask_shape(tuple(x.shape), axis), _key(rng, seed, seed_input)
    mask = _torch_mask(torch, shape, dropout_prob, is_test, key, rng.start, x.device)
    return _torch_scaled(x, mask, scale_of(dropout_prob, is_test, dropout_implementation)), mask


# The axes that keep masks of their own; along all others one draw serves.
_ATTRS_ND = {**ATTRS, "axis": Attr((0,), "ints")}
_REDRAWN_ND = _redrawn("dropout_nd_grad", _ref_nd, _lower_nd, _drawn_nd, _ATTRS_ND)

register(OpDef(
    "dropout_nd", "X, Seed? -> Out, Mask~", lod="X", attrs=_ATTRS_ND, infer=_infer_nd, ref=_ref_nd, lower=_lower_nd,
    inplace=(("X", "Out"),), grad=_gradient("dropout_nd_grad", _REDRAWN_ND),
    random=True, drawn=_drawn_nd, amp="gray",
    domain=Domain(
        cases=(
            Case(((40, 3),), {"axis": (0,), "dropout_implementation": UPSCALE}),
            Case(((4, 30),), {"axis": (1,)}),
            Case(((4, 6, 3, 2),), {"axis": (0, 1), "dropout_implementation": UPSCALE}),
            Case(((4, 6, 3, 2),), {"axis": (0, -1), "is_test": True}),
            Case(((0, 6),), {"axis": (1,)}),
        ),
        ulps=1,
    ), onnx=_onnx_form,
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------ public functions
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
    return emit_one("dropout", {"X": x}, attrs, name=name)


@export("nn.functional.dropout", op="dropout")
def dropout(
    x: Variable,
    p: Any = 0.5,
    axis: Any = None,
    training: bool = True,
    mode: str = UPSCALE,
    name: str | None = None,
) -> Variable:
    """Zeroes each element with chance ``p`` in training, and scales so that the mean stays; ``x`` itself when p is 0.

    Args:
        x: A float Variable.
        p: Chance of an element to become 0; a number, or a Variable with one element.
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
    check_choice(mode, (UPSCALE, DOWNSCALE, DOWNGRADE), "mode", "dropout")
    # Two spellings of one: the function says downscale, the operator downgrade.
    mode = UPSCALE if mode == UPSCALE else DOWNGRADE
    if not isinstance(p, Variable):
        check_number(p, "p", "dropout", least=0, most=1)
        # As Paddle: no operator at all, so nothing is drawn.
        if p == 0:
            return x
    attrs: dict[str, Any] = {"dropout_prob": p, "is_test": not training, "dropout_implementation": mode}
    if axis is None:
        if isinstance(p, Variable):
            return dropout_when_run(x, p, None, training, mode, "dropout", name)
        return emit_one("dropout", {"X": x}, attrs, name=name)
    axes = [axis] if isinstance(axis, int) else list(axis)
    check_length(
        axes,
        range(1, x.ndim + 1),
        "axis",
        "dropout",
        why="some of the axes of x",
        fix="leave axis out to draw every element apart",
    )
    if isinstance(p, Variable):
        return dropout_when_run(x, p, axes, training, mode, "dropout", name)
    return emit_one("dropout_nd", {"X": x}, {**attrs, "axis": axes}, name=name, prefix="dropout")


def _per_channel(
    x: Variable, p: Any, training: bool, data_format: str, formats: tuple[str, str], name: str | None, function: str
) -> Variable:
    check_variable(x, "x", function)
    check_choice(data_format, formats, "data_format", function)
    check_rank(x, len(formats[0]), "x", function, layout=data_format)
    # One draw for each sample and channel, whatever the layout.
    axes = (0, data_format.index("C"))
    if isinstance(p, Variable):
        return dropout_when_run(x, p, axes, training, UPSCALE, function, name)
    if p == 0:
        return x
    attrs = {"dropout_prob": p, "is_test": not training, "dropout_implementation": UPSCALE, "axis": axes}
    return emit_one("dropout_nd", {"X": x}, attrs, name=name, prefix="dropout")


@export("nn.functional.dropout2d", op="dropout_nd")
def dropout2d(
    x: Variable, p: Any = 0.5, training: bool = True, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Zeroes whole channels of ``x`` ([N, C, H, W], or [N, H, W, C]) with chance ``p``.

    Args:
        x: Floats.
        p: Chance of a channel to become 0; a number, or a Variable with one element.
        training: ``False`` for inference, which changes nothing.
        data_format: ``"NCHW"`` or ``"NHWC"``.
        name: Name of the layer.

    Example:
        >>> x = paddle.ones([50, 2, 3, 3])
        >>> y = paddle.nn.functional.dropout2d(x, p=0.75)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value), bool((value == value[:, :, :1, :1]).all())
        (array([0., 4.], dtype=float32), True)
    """
    return _per_channel(x, p, training, data_format, ("NCHW", "NHWC"), name, "dropout2d")


@export("nn.functional.dropout3d", op="dropout_nd")
def dropout3d(
    x: Variable, p: Any = 0.5, training: bool = True, data_format: str = "NCDHW", name: str | None = None
) -> Variable:
    """Zeroes whole channels of ``x`` ([N, C, D, H, W], or [N, D, H, W, C]) with chance ``p``.

    Args:
        x: Floats.
        p: Chance of a channel to become 0; a number, or a Variable with one element.
        training: ``False`` for inference, which changes nothing.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.
        name: Name of the layer.

    Example:
        >>> x = paddle.ones([50, 2, 3, 3, 3])
        >>> y = paddle.nn.functional.dropout3d(x, p=0.75)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value), bool((value == value[:, :, :1, :1, :1]).all())
        (array([0., 4.], dtype=float32), True)
    """
    return _per_channel(x, p, training, data_format, ("NCDHW", "NDHWC"), name, "dropout3d")
