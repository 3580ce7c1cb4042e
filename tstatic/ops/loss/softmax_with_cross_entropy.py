"""``softmax_with_cross_entropy``: softmax and its cross entropy in one op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.ir.attrs import Attr
from tstatic.ir.build import emit
from tstatic.ir.checks import ANY_RANK, check_rank
from tstatic.ir.opdef import GRAD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.pointwise import Rows
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.split import FREE, ROWS, Split
from tstatic.ir.traits import Softmax
from tstatic.ir.types import Meta
from tstatic.ops.base import labels
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.rows import by_rows, row_axis, rows_scratch_metas, vector
from tstatic.ops.loss import _loss_onnx as _onnx
from tstatic.tuned import softmax as kernels


def _infer(logits: Meta, label: Meta, source: Meta | None, soft_label: bool, axis: int) -> tuple[Meta, Meta]:
    infer_float(logits)
    check_rank(logits, range(1, ANY_RANK), "Logits", layout="one of classes", fix="reshape Logits to [1, classes]")
    at = row_axis(logits.rank, axis)
    labels.check_labels(label, logits, soft_label, "Logits")
    one = tuple(1 if i == at else s for i, s in enumerate(logits.shape))
    full = labels.check_fitting(label, logits.shape if soft_label else one, logits, "Logits")
    # Labels know sizes that scores may not; along the classes they have size 1.
    full = tuple(logits.shape[i] if i == at else s for i, s in enumerate(full))
    return logits.with_shape(full), logits.with_shape(1 if i == at else s for i, s in enumerate(full))


# ------------------------------------------------------------------------------------------------------------- forward
def _scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Any], *, axis: int, soft_label: bool, use_softmax: bool
) -> tuple[Meta, ...]:
    rows = rows_scratch_metas(ins[0], axis, 3)
    # Logarithms of given probabilities need a place of their own: the softmax may share the buffer of the logits.
    return (float_scratch(ins[0], ins[0].shape), *rows) if soft_label and not use_softmax else rows


def _calls(
    ins: Sequence[Any],
    outs: Sequence[Any],
    scratch: Sequence[Any],
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    use_softmax: bool,
    given: Sequence[Meta],
) -> Calls:
    logits, label, _ = ins
    probabilities, loss = outs
    floor = labels.floor_of(given[0].dtype)
    if soft_label:
        return _soft_calls(logits, label, probabilities, loss, axis, None if use_softmax else floor, scratch)
    classes, load, _ = vector(label)
    values, _, store = vector(loss) if loss is not None else (None, [], [])

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        if not use_softmax:
            copied: Calls = [] if written[0] is None else [(np.copyto, (written[0], read[0]))]
            if values is None:
                return copied
            return [*copied, (labels.pick_loss, (read[0], classes, None, values, ignore_index, floor))]
        if values is None:
            return [(kernels.softmax, (read[0], written[0], own))]
        return [(kernels.cross_entropy, (read[0], classes, written[0], values, ignore_index, own))]

    return [*load, *by_rows((logits,), (probabilities,), axis, scratch, run), *store]


def _soft_calls(
    logits: Any, label: Any, probabilities: Any, loss: Any, axis: int, floor: float | None, scratch: Sequence[Any]
) -> Calls:
    """Returns the calls for distributions; ``floor`` is ``None`` where a softmax is taken."""
    values, _, store = vector(loss) if loss is not None else (None, [], [])
    work: Any = None
    if floor is not None:
        work, *scratch = scratch

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        if floor is None:
            if values is None:
                return [(kernels.softmax, (read[0], written[0], own))]
            return [(kernels.soft_cross_entropy, (read[0], read[1], written[0], values, own))]
        calls: Calls = (
            [(labels.soft_loss, (read[0], read[1], work.reshape(read[0].shape), values, floor))]
            if values is not None
            else []
        )
        return calls if written[0] is None else [*calls, (np.copyto, (written[0], read[0]))]

    return [*by_rows((logits, label), (probabilities,), axis, scratch, run), *store]


# ------------------------------------------------------------------------------------------------------------ gradient
def _grad_scratch_metas(ins: Sequence[Any], outs: Sequence[Meta], *, axis: int) -> tuple[Meta, ...]:
    extra = () if ins[2] is None else (float_scratch(ins[1], ins[1].shape),)
    return (*extra, *rows_scratch_metas(ins[1], axis, 5))


def _grad_calls(
    ins: Sequence[Any],
    outs: Sequence[Any],
    scratch: Sequence[Any],
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    use_softmax: bool,
    given: Sequence[Meta],
) -> Calls:
    label, probabilities, dsoftmax, dloss = ins
    dlogits, floor = outs[0], labels.floor_of(given[1].dtype)
    through: Any = None
    if dsoftmax is not None:
        # A place of its own: the result may share the buffer of the probabilities, which are read twice then.
        through, *rest = scratch
        through, scratch = through.reshape(probabilities.shape), rest
    values, load_loss, _ = vector(dloss) if dloss is not None else (None, [], [])
    classes, load, _ = (None, [], []) if soft_label else vector(label)

    def run(read: Sequence[Any], written: Sequence[Any], own: Sequence[Any]) -> Calls:
        p, weights, ds = read
        target, extra = written
        calls: Calls = []
        if ds is not None:
            # First, since it reads the probabilities, whose buffer the loss's part may overwrite.
            calls.append((kernels.softmax_grad, (p, ds, extra, own)) if use_softmax else (np.copyto, (extra, ds)))
            if values is None:
                calls.append((np.copyto, (target, extra)))
        # By the logits it is softmax - label, without going through 1 / softmax, which is lost where that is 0.
        if values is not None:
            if soft_label:
                function = kernels.soft_cross_entropy_grad if use_softmax else labels.soft_loss_grad
                calls.append((function, (p, weights, values, target, own if use_softmax else floor)))
            elif use_softmax:
                calls.append((kernels.cross_entropy_grad, (p, classes, values, target, ignore_index, own)))
            else:
                calls.append((labels.picked_grad, (p, classes, values, target, ignore_index, floor)))
            if ds is not None:
                calls.append((np.add, (target, extra, target)))
        return calls

    full = (probabilities, label if soft_label else None, dsoftmax)
    return [*load, *load_loss, *by_rows(full, (dlogits, through), axis, scratch, run)]


# --------------------------------------------------------------------------------------------------------------- torch
_PART = 1 << 24
"""Elements of the rows that are widened at a time: what is in 32 bits takes 64 MiB each, and not twice the logits."""


def _in_parts(axis: int, *tensors: Any) -> Iterator[Sequence[Any]]:
    """Yields tensors some rows at a time, if the first one is large and its rows lie one behind the other; ``None`` stays."""
    first, rows = tensors[0], [t for t in tensors if t is not None]
    if (
        first.numel() <= _PART
        or axis % first.dim() != first.dim() - 1
        or not all(t.is_contiguous() and t.shape[:-1] == first.shape[:-1] for t in rows)
    ):
        yield tensors
        return
    count = max(1, _PART // first.shape[-1])
    flat = [None if t is None else t.view(-1, t.shape[-1]).split(count) for t in tensors]
    for number in range(-(-(first.numel() // first.shape[-1]) // count)):
        yield [None if t is None else t[number] for t in flat]


def _differentiable(
    torch: Any, logits: Any, label: Any, soft_label: bool, ignore_index: int, axis: int, use_softmax: bool
) -> tuple[Any, Any]:
    """Computes what :func:`_lower` does for torch's autograd, which follows no writes into memory that is there."""
    tiny = torch.finfo(logits.dtype).tiny
    logs = torch.log_softmax(logits, axis) if use_softmax else logits.clamp(min=tiny).log()
    if soft_label:
        loss = -(logs * label).sum(axis, keepdim=True)
    else:
        ignored = label == ignore_index
        loss = torch.where(ignored, 0, -logs.gather(axis, torch.where(ignored, 0, label).long()))
    return (logs.exp() if use_softmax else logits), loss


def _lower(
    torch: Any, logits: Any, label: Any, source: Any, soft_label: bool, ignore_index: int, axis: int,
    use_softmax: bool, *, out: Any = None,
) -> Any:  # fmt: skip
    # torch's autograd follows no writes into given memory; a plan has the gradient op instead.
    if logits.requires_grad:
        return _differentiable(torch, logits, label, soft_label, ignore_index, axis, use_softmax)
    if out is None:
        shape = [1 if i == axis % logits.dim() else n for i, n in enumerate(logits.shape)]
        out = torch.empty_like(logits), logits.new_empty(shape)
    for x, y, probabilities, loss in _in_parts(axis, logits, label, *out):
        picked: Any = None
        if loss is not None and not soft_label:
            # Ignored labels may lie out of range, so they gather class 0.
            ignored = y == ignore_index
            picked = torch_wide(x.gather(axis, torch.where(ignored, 0, y).long()) if x.numel() else loss)
        if use_softmax and x.numel():
            # In the place of the result, which may be that of the logits, too; of 16 bits in 32 until it is rounded.
            highest = torch_wide(x.amax(axis, keepdim=True))
            place = probabilities if probabilities is not None and probabilities.dtype == highest.dtype else None
            near = torch.sub(x, highest) if place is None else torch.sub(x, highest, out=place)
            wanted = (near * y).sum(axis, keepdim=True) if loss is not None and soft_label else None
            powers = near.exp_()
            total = powers.sum(axis, keepdim=True)
            if probabilities is not None:
                torch.div(powers, total, out=probabilities)
            if wanted is not None:
                found = total.log() * y.sum(axis, keepdim=True) - wanted
            elif picked is not None:
                found = total.log() - (picked - highest)
        elif picked is not None:
            found = picked.clamp(min=torch.finfo(x.dtype).tiny).log().neg_()
        elif loss is not None:
            found = (torch_wide(x).clamp(min=torch.finfo(x.dtype).tiny).log_() * y).sum(axis, keepdim=True).neg_()
        if not use_softmax and probabilities is not None:
            probabilities.copy_(x)
        if loss is not None:
            loss.copy_(found if soft_label else torch.where(ignored, 0, found))
    return out


def _grad_lower(
    torch: Any, label: Any, probabilities: Any, dsoftmax: Any, dloss: Any, soft_label: bool, ignore_index: int,
    axis: int, use_softmax: bool, *, out: Any = None,
) -> Any:  # fmt: skip
    if out is None:
        out = torch.empty_like(probabilities)
    tiny = torch.finfo(probabilities.dtype).tiny
    for p, y, ds, dl, dlogits in _in_parts(axis, probabilities, label, dsoftmax, dloss, out):
        weight: Any = None if dl is None else torch_wide(dl)
        at: Any = None
        own: Any = None
        if weight is not None and not soft_label:
            # Only the class of a label has a term of its own; what lies there is read before the result, which may share its place.
            ignored = y == ignore_index
            at, weight = torch.where(ignored, 0, y).long(), torch.where(ignored, 0, weight)
            picked = torch_wide(p.gather(axis, at)) if p.numel() else weight
            # A weight less itself is 0, or NaN if it is infinite: there the reference subtracts an infinity from another.
            own = (picked - 1) * weight + (weight - weight) if use_softmax else -weight / picked.clamp(min=tiny)
        if ds is None and at is not None:
            # One product for all classes, rounded as it is written.
            dlogits = torch.mul(p, weight, out=dlogits) if use_softmax else dlogits.zero_()
            if p.numel():
                dlogits.scatter_(axis, at, own.to(p.dtype)).masked_fill_(ignored, 0)
            continue
        wide = torch_wide(p)
        # The probabilities are read once more after the first write.
        shared = dlogits.dtype != wide.dtype or dlogits.data_ptr() == p.data_ptr()
        total: Any = torch.empty_like(wide) if shared else dlogits
        # Both outputs may have a gradient; they add up.
        if not use_softmax:
            total = total.zero_() if ds is None else total.copy_(ds)
            if soft_label and weight is not None:
                total -= y / wide.clamp(min=tiny) * weight
        elif p.numel():
            soft = soft_label and weight is not None
            if ds is not None:
                # What is the same for a whole row, times the probability.
                whole = torch.mul(wide, ds, out=total).sum(axis, keepdim=True).neg_()
                whole = whole if soft or weight is None else whole + weight
                torch.add(ds, whole, out=total).mul_(wide)
            if soft:
                # The weight comes last: infinite, it would be less infinity in each class otherwise.
                own_part = torch.mul(wide, y.sum(axis, keepdim=True), out=total if ds is None else None)
                own_part.sub_(torch_wide(y)).mul_(weight)
                total = own_part if ds is None else total.add_(own_part)
        if at is not None and p.numel():
            total.scatter_add_(axis, at, -weight if use_softmax else own)
        if shared:
            dlogits.copy_(total)
    return out


# ---------------------------------------------------------------------------------------------------------------- rows
_NEAR = "(logits - rmax(logits))"
_TOTAL = f"rsum(exp{_NEAR})"


def _rows(
    logits: Meta,
    label: Meta,
    source: Meta | None,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    use_softmax: bool,
) -> Rows | None:
    """Returns the op along rows, if its axis is the last one; a class number outside of the row gives NaN."""
    if logits.rank < 2 or row_axis(logits.rank, axis) != logits.rank - 1:
        return None
    if use_softmax:
        # The sum is at least 1: its reciprocal, once per row, replaces a division per element.
        probabilities = f"exp{_NEAR} * reciprocal({_TOTAL})"
        soft = f"log({_TOTAL}) * rsum(label) - rsum(label * {_NEAR})"
        # The picked logit is found in the pass that finds the maximum.
        hard = f"log({_TOTAL}) - (rsum(where(column == label, logits, 0)) - rmax(logits))"
    else:
        probabilities = "logits"
        floor = repr(labels.floor_of(logits.dtype))
        soft = f"-rsum(log(maximum(logits, {floor})) * label)"
        hard = f"-log(maximum(rsum(where(column == label, logits, 0)), {floor}))"
    # A kernel cannot raise, so a class that does not exist gives NaN.
    hard = f"where(label == ignore_index, 0, where((label >= 0) & (label < n), {hard}, nan))"
    return Rows({"Softmax": probabilities, "Loss": soft if soft_label else hard}, logits.shape, logits.rank - 1)


def _grad_rows(
    label: Meta,
    softmax: Meta,
    dsoftmax: Meta | None,
    dloss: Meta | None,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    use_softmax: bool,
) -> Rows | None:
    if softmax.rank < 2 or row_axis(softmax.rank, axis) != softmax.rank - 1:
        return None
    terms = []
    floored = f"maximum(softmax, {labels.floor_of(softmax.dtype)!r})"
    if dloss is not None and soft_label:
        terms.append("(softmax * rsum(label) - label) * dloss" if use_softmax else f"-(label / {floored} * dloss)")
    elif dloss is not None:
        hot = "softmax * dloss - where(column == label, dloss, 0)"
        hard = hot if use_softmax else f"where(column == label, -dloss / {floored}, 0)"
        terms.append(f"where(label == ignore_index, 0, {hard})")
    if dsoftmax is not None:
        terms.append("softmax * (dsoftmax - rsum(softmax * dsoftmax))" if use_softmax else "dsoftmax")
    return Rows({f"Logits{GRAD}": " + ".join(terms)}, softmax.shape, softmax.rank - 1)


# -------------------------------------------------------------------------------------------------- op definition
def _rule(ctx: GradContext) -> list[OpSpec]:
    """Emits the backward op; if given probabilities are a softmax's result, what the loss sends goes to its input."""
    wanted, softmax = ctx.in_grads.get(ctx.inputs["Logits"][0]), ctx.outputs["Softmax"]
    grads = {f"{s}{GRAD}": [ctx.out_grads[n]] for s, (n,) in ctx.outputs.items() if n in ctx.out_grads}
    joint = None if ctx.attrs["use_softmax"] else labels.joint_gradient(ctx, "Logits", "Loss", softmax[0])
    if joint is not None:
        # The loss's gradient goes past the probabilities; only what arrives for `Softmax` still passes this op.
        grads.pop(f"Loss{GRAD}")
    if wanted is None or not grads:
        return joint or []
    ins = {"Label": ctx.inputs["Label"], "Softmax": softmax, **grads}
    return [*(joint or []), OpSpec("softmax_with_cross_entropy_grad", ins, {f"Logits{GRAD}": [wanted]}, ctx.attrs)]


# SoftmaxX only names where the gradient goes.
_REF = CallRef(_calls, _scratch_metas, unread=(2,))
_GRAD = CallRef(_grad_calls, _grad_scratch_metas)
_CLASSES = labels.class_numbers(
    lambda logits, label, source, soft_label, axis: (
        None if soft_label else logits.shape[row_axis(len(logits.shape), axis)]
    )
)

register(
    OpDef(
        "softmax_with_cross_entropy",
        # SoftmaxX is what given probabilities are the softmax of; nothing of it is read, but the gradient goes to it.
        "Logits, Label, SoftmaxX? -> Softmax, Loss",
        lod="Logits",
        attrs={
            "soft_label": False, "use_softmax": True,
            "numeric_stable_mode": Attr.idle(True, "the maximum is always subtracted first"), "ignore_index": -100,
            "axis": -1,
        },
        infer=_infer, ref=_REF, lower=_lower, split=Split(ROWS, FREE, taken="axis"), inplace=(("Logits", "Softmax"),),
        shape_only=("SoftmaxX",), effects=True, grad=_rule, rows=_rows, amp="black", traits=(Softmax("Logits", "Softmax"),),
        indices=_CLASSES, uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 4), (3, 1), None)), Case(((2, 4, 3), (2, 1, 3), None), {"axis": 1}),
                Case(((4, 3), (1, 3), None), {"axis": 0}), Case(((3, 4), (3, 1), None), {"ignore_index": 1}),
                Case(((4,), (1,), None)), Case(((0, 4), (0, 1), None)), Case(((3, 1), (3, 1), None)),
                Case(((2, 0, 4), (2, 0, 1), None)), Case(((5, 40), (5, 1), None)),
            ),
            values={"Label": ValueRange(0, "Logits.-1", dtype="int64")}, ulps=24.0,
        ), onnx=_onnx.softmax_with_cross_entropy,
    ),
    GradOp(
        f"Label, Softmax, Softmax{GRAD}?, Loss{GRAD}? -> Logits{GRAD}", ref=_GRAD, lower=_grad_lower,
        infer=lambda label, out, dout, dloss: out, split=Split(ROWS, FREE, taken="axis"),
        inplace=(("Softmax", f"Logits{GRAD}"),), rows=_grad_rows,
        indices=labels.class_numbers(
            lambda label, p, *grads, soft_label, axis: None if soft_label else p.shape[row_axis(len(p.shape), axis)]
        ),
    ),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export(
    "nn.functional.softmax_with_cross_entropy",
    "fluid.layers.softmax_with_cross_entropy",
    op="softmax_with_cross_entropy",
)
def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Returns the cross entropy of the softmax along an axis.

    Args:
        logits: Scores; floats.
        label: Class numbers of the shape of ``logits`` with size 1 along the axis, or without it; if ``soft_label``,
            distributions of the shape and dtype of ``logits``.
        soft_label: Whether labels are distributions.
        ignore_index: Rows with this class number have loss 0 and no gradient.
        numeric_stable_mode: Both values give the stable form.
        return_softmax: Return the softmax too.
        axis: The axis of the classes.

    Returns:
        The loss, with size 1 along the axis; or ``(loss, softmax)``.

    Example:
        >>> logits = paddle.to_tensor([[0.0, 0.0], [0.0, 10.0]])
        >>> label = paddle.to_tensor(np.array([[0], [1]]))
        >>> loss = paddle.nn.functional.softmax_with_cross_entropy(logits, label)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([[0.6931],
               [0.    ]], dtype=float32)
    """
    labels.variables("softmax_with_cross_entropy", logits=logits, label=label)
    label = labels.with_class_axis(logits, label, axis, "softmax_with_cross_entropy")
    loss, softmax = softmax_entropy(logits, label, soft_label, ignore_index, axis, True, numeric_stable_mode)
    return (loss, softmax) if return_softmax else loss


def softmax_entropy(
    logits: Variable, label: Variable, soft: bool, ignore: int, axis: int, use_softmax: bool, stable: bool = True
) -> tuple[Variable, Variable]:
    """Appends the op; returns its loss and its softmax."""
    attrs = {
        "soft_label": soft,
        "ignore_index": ignore,
        "axis": axis,
        "use_softmax": use_softmax,
        "numeric_stable_mode": stable,
    }
    source = None if use_softmax else labels.softmax_input(logits, axis)
    ins = {"Logits": logits, "Label": label, "SoftmaxX": source}
    softmax, loss = emit("softmax_with_cross_entropy", ins, attrs)
    return loss, softmax
