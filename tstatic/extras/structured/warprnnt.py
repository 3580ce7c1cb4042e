"""The transducer loss (RNN-T): minus the logarithm of the probability of all ways to emit the labels between the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    INDICES,
    check_choice,
    check_dtype,
    check_has_shape,
    check_int,
    check_number,
    check_rank,
    check_size,
)
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.nn.layer.functional_layer import functional_layer
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.labels import REDUCTIONS, reduced
from tstatic.ops.base.shapes import Array, emit_one

_FLOATS = ("float32", "float64")
_NEVER = -1e30
"""In the place of the logarithm of 0: no sum of scores comes near, and differences of two of these are numbers."""


def _infer(x: Meta, label: Meta, steps: Meta, counts: Meta, *, blank: int) -> tuple[Meta, Meta]:
    check_dtype(x, _FLOATS, "input")
    check_rank(x, 4, "input", layout="[batch, steps, labels + 1, classes]")
    check_dtype(label, INDICES, "label", fix="convert the labels with paddle.cast(label, 'int32')")
    check_rank(label, 2, "label", layout="[batch, labels]")
    check_size(label, 0, x.shape[0], "label", why="one row for each sequence")
    if UNKNOWN not in (x.shape[2], label.shape[1]):
        check_size(x, 2, label.shape[1] + 1, "input", why="one more than there are labels")
    for lengths, name in ((steps, "input_lengths"), (counts, "label_lengths")):
        check_dtype(lengths, INDICES, name)
        check_has_shape(lengths, (x.shape[0],), name, why="one length for each sequence")
    classes = x.shape[3]
    if not 0 <= blank < (classes if classes != UNKNOWN else blank + 1):
        raise ProgramError(
            "the blank of a transducer loss is not one of the classes",
            expected=f"a number from 0 to {classes - 1}",
            received=f"blank={blank}",
            fix="pass the class that means 'next step'",
        )
    return x.with_shape(x.shape[:1]), x


class _Lattice:
    """The ways through one batch: from step t with u labels emitted on to step t + 1, or to u + 1 labels.

    Places with the same ``t + u`` are a diagonal; all of them follow from the diagonal before, so that a batch takes
    ``steps + labels`` rounds of numpy's functions.

    Attributes:
        at: ``[diagonals, 1, labels + 1]``: the steps of the places; some lie outside.
        next, emit: ``[diagonals, batch, labels + 1]``: scores of going on and of emitting.
        inside: The same shape: whether the place belongs to its sequence.
        end: ``[batch]``: the diagonal behind the last place of each sequence.
    """

    def __init__(self, x: Array, label: Array, steps: Array, counts: Array, blank: int) -> None:
        batch, most, width, _ = x.shape
        u = np.arange(width)
        self.at = np.arange(most + width - 1)[:, None, None] - u
        t = np.clip(self.at, 0, most - 1)
        rows = np.arange(batch)[:, None]
        # The last column emits nothing; any class stands there.
        emitted = np.concatenate([label, np.full((batch, 1), blank, label.dtype)], axis=1)
        self.next = x[rows, t, u, blank].astype(np.float64)
        self.emit = x[rows, t, u, emitted].astype(np.float64)
        self.inside = (self.at >= 0) & (self.at < steps[:, None]) & (u <= counts[:, None])
        self.emit[..., -1] = _NEVER
        self.emitted, self.counts, self.end = emitted, counts, steps + counts

    def forward(self) -> Array:
        """Returns the logarithm of the probability of all ways to each place."""
        alpha = np.full((len(self.at) + 1, *self.next.shape[1:]), _NEVER)
        alpha[0, :, 0] = 0
        for n in range(len(self.at)):
            here = np.where(self.inside[n], alpha[n], _NEVER)
            np.add(here, self.next[n], out=alpha[n + 1])
            np.logaddexp(alpha[n + 1, :, 1:], (here + self.emit[n])[:, :-1], out=alpha[n + 1, :, 1:])
        return alpha

    def log_probability(self, alpha: Array) -> Array:
        """Returns the logarithm of the probability of each sequence: of going on behind its last place."""
        found: Array = alpha[self.end, np.arange(len(self.end)), self.counts]
        # The last way is to go on; a label behind the last one would end on the same diagonal.
        return found

    def backward(self) -> Array:
        """Returns the logarithm of the probability of all ways from each place to the end."""
        beta = np.full((len(self.at) + 1, *self.next.shape[1:]), _NEVER)
        rows = np.arange(len(self.end))
        for n in range(len(self.at), -1, -1):
            if n < len(self.at):
                ways = beta[n + 1] + self.next[n]
                np.logaddexp(ways[:, :-1], beta[n + 1, :, 1:] + self.emit[n, :, :-1], out=ways[:, :-1])
                beta[n] = np.where(self.inside[n], ways, _NEVER)
            ends = rows[self.end == n]
            beta[n, ends, self.counts[ends]] = 0
        return beta

    def gradient(self, alpha: Array, log_p: Array, shape: tuple[int, ...], blank: int, fastemit: float) -> Array:
        """Returns the gradient of each loss by the scores; that of emitting is ``1 + fastemit`` times as large."""
        beta = self.backward()
        before = np.where(self.inside, alpha[:-1], _NEVER) - log_p[:, None]
        go = np.exp(before + self.next + beta[1:])
        emit = np.zeros_like(go)
        emit[..., :-1] = np.exp(before[..., :-1] + self.emit[..., :-1] + beta[1:, :, 1:]) * (1 + fastemit)
        dx = np.zeros(shape)
        n, b, u = np.nonzero(self.inside)
        t = self.at[n, 0, u]
        dx[b, t, u, blank] -= go[n, b, u]
        dx[b, t, u, self.emitted[b, u]] -= emit[n, b, u]
        return dx


def _ref(
    x: Array, label: Array, steps: Array, counts: Array, loss: Array | None, grad: Array | None, *, blank: int,
    fastemit_lambda: float,
) -> None:  # fmt: skip
    if not x.shape[0]:
        return
    lattice = _Lattice(x, label, steps, counts, blank)
    alpha = lattice.forward()
    log_p = lattice.log_probability(alpha)
    if loss is not None:
        np.multiply(log_p, -1, out=loss, casting="same_kind")
    if grad is not None:
        grad[...] = lattice.gradient(alpha, log_p, x.shape, blank, fastemit_lambda)


def _grad_ref(grad: Array, dloss: Array, dx: Array) -> None:
    np.multiply(grad, dloss.reshape(-1, 1, 1, 1), out=dx)


# ---------------------------------------------------------------------------------------------------------------- torch
def _lower(torch: Any, x: Any, label: Any, steps: Any, counts: Any, *, blank: int) -> Any:
    if not x.shape[0]:
        return x.new_zeros((0,)), None
    losses = []
    for b, (last, count) in enumerate(zip(steps.tolist(), counts.tolist(), strict=True)):
        scores = x[b].double()
        never = scores.new_tensor(_NEVER)
        row = [scores.new_zeros(())]
        for u in range(count):
            row.append(row[-1] + scores[0, u, label[b, u]])
        for t in range(1, last):
            new: list[Any] = []
            for u in range(count + 1):
                emitted = new[u - 1] + scores[t, u - 1, label[b, u - 1]] if u else never
                new.append(torch.logaddexp(row[u] + scores[t - 1, u, blank], emitted))
            row = new
        losses.append(-(row[count] + scores[last - 1, count, blank]))
    return torch.stack(losses).to(x.dtype), None


register(OpDef(
    "warprnnt", "input, label, input_lengths, label_lengths -> loss, warprnntgrad~",
    attrs={"blank": 0, "fastemit_lambda": 0.0}, infer=_infer, ref=_ref, traits=(READS_LENGTHS,), lower=_lower, amp="black",
    indices=(
        Index("label", lambda x, *rest: x.shape[3], fix="check the labels that are fed, or the number of classes ({size})"),
        Index("input_lengths", lambda x, *rest: x.shape[1] + 1, least=1),
        Index("label_lengths", lambda x, *rest: x.shape[2]),
    ),
    grad=GradOp(
        "warprnntgrad, loss@GRAD -> input@GRAD", ref=_grad_ref,
        lower=lambda torch, grad, dloss: grad * dloss.reshape(-1, 1, 1, 1).to(grad.dtype),
        infer=lambda grad, dloss: grad, linear_in=("loss@GRAD",),
    ),
    domain=Domain(
        cases=(
            Case(((2, 4, 3, 5), (2, 2), (2,), (2,))),
            Case(((3, 1, 4, 3), (3, 3), (3,), (3,)), {"blank": 2}),
            Case(((1, 5, 1, 2), (1, 0), (1,), (1,))),
            Case(((0, 2, 2, 3), (0, 1), (0,), (0,))),
        ),
        values={
            "label": ValueRange(0, "input.3", dtype="int64"), "input_lengths": ValueRange(1, "input.1", dtype="int64"),
            "label_lengths": ValueRange(0, "label.1", dtype="int64"),
        },
        floats=_FLOATS,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("nn.functional.rnnt_loss", op="warprnnt")
def rnnt_loss(
    input: Variable,
    label: Variable,
    input_lengths: Variable,
    label_lengths: Variable,
    blank: int = 0,
    fastemit_lambda: float = 0.001,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Returns the transducer loss of padded sequences (Graves, 2012).

    Args:
        input: Logarithms of probabilities, ``[batch, steps, labels + 1, classes]``, float32 or float64: place ``[t, u]`` holds
            those after ``u`` labels at step ``t``. As Paddle's on the CPU, it is taken as it is: apply ``log_softmax`` to scores.
        label: Class numbers ``[batch, labels]``, int32 or int64.
        input_lengths, label_lengths: ``[batch]``: how many steps and labels of each sequence count.
        blank: The class that means "next step".
        fastemit_lambda: By how much larger the gradients of emitting a label are (FastEmit, Yu et al., 2021); the loss is the same.
        reduction: ``"mean"`` or ``"sum"`` of the losses (``[]``), or ``"none"``.
        name: Name of the last layer of a mean or a sum.

    Returns:
        ``[]``, or ``[batch]`` without a reduction.

    Raises:
        ShapeError, DTypeError, ProgramError: If the values do not fit together.
        IndexRangeError: At run time, if a label is not a class, or a length is out of range.

    Example:
        >>> x = paddle.nn.functional.log_softmax(paddle.zeros([1, 2, 2, 3]))
        >>> label, one, two = paddle.to_tensor([[1]]), paddle.to_tensor([1]), paddle.to_tensor([2])
        >>> loss = paddle.nn.functional.rnnt_loss(x, label, two, one)
        >>> static.Executor().run(fetch_list=[loss])[0]  # 2 ways of 3 moves with a probability of 1/3 each: log(27 / 2)
        array(2.6027, dtype=float32)
    """
    function = "rnnt_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    ins = {"input": check_variable(input, "input", function, _FLOATS)}
    for arg, value in (("label", label), ("input_lengths", input_lengths), ("label_lengths", label_lengths)):
        ins[arg] = check_variable(value, arg, function, INDICES)
    attrs = {
        "blank": check_int(blank, "blank", function),
        "fastemit_lambda": check_number(fastemit_lambda, "fastemit_lambda", function),
    }
    return reduced(emit_one("warprnnt", ins, attrs), reduction, name)


RNNTLoss = functional_layer("RNNTLoss", "rnnt_loss", inputs=4)
