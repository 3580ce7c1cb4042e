"""The CTC loss: minus the logarithm of the probability of all alignments of a label sequence with the steps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ProgramError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_choice, check_dtype, check_index, check_int, check_rank, check_type
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.loss._labels import REDUCTIONS, reduced
from tstatic.ops.sequence._offsets import spans
from tstatic.ops.shape._shapes import emit_one
from tstatic.ops.structured._sequences import Array, TimeMajor, check_form, count_of, starts_and_lengths

_FLOATS = ("float32", "float64")
_NEVER = -1e30
"""In the place of the logarithm of 0: differences of two of these are numbers, and no sum of scores comes near."""


def _infer(
    logits: Meta, label: Meta, logits_length: Meta | None, label_length: Meta | None, logits_offsets: Meta | None,
    label_offsets: Meta | None, *, blank: int,
) -> tuple[Meta, Meta]:  # fmt: skip
    check_form(logits_length, logits_offsets, "input", "input_length")
    check_form(label_length, label_offsets, "label", "label_length")
    check_dtype(logits, _FLOATS, "Logits")
    layout = "[steps, batch, classes]" if logits_length is not None else "[rows, classes]"
    check_rank(logits, 3 if logits_length is not None else 2, "Logits", layout=layout)
    check_dtype(label, INDICES, "Label", fix="convert the labels with paddle.cast(label, 'int32')")
    check_rank(label, 2 if label_length is not None else (1, 2), "Label", layout="[batch, labels]")
    classes = logits.shape[-1]
    if not 0 <= blank < (classes if classes != UNKNOWN else blank + 1):
        raise ProgramError(
            "the blank of a CTC loss is not one of the classes",
            expected=f"a number from 0 to {classes - 1}",
            received=f"blank={blank}",
            fix="pass the class that means 'no label'; the classes are one more than there are labels",
        )
    count = count_of(logits, logits_length, logits_offsets, axis=1)
    labels = count_of(label, label_length, label_offsets)
    check_fit(
        UNKNOWN in (count, labels) or count == labels, (logits, label), ("Logits", "Label"),
        "there must be one label sequence for each sequence of scores", f"{count} label sequences",
        "feed as many label sequences as there are inputs",
    )  # fmt: skip
    return logits.with_shape((max(count, labels), 1)), logits


class _Alignments:
    """Everything that the recursions over one batch share.

    Attributes:
        order: The rows of the scores, by time step.
        log_p: ``[rows, classes]``: the logarithm of the softmax.
        states: ``[sequences, 2 * most labels + 1]``: the labels with a blank around each, in order.
        place: ``[rows, states]``: where ``log_p``, flattened, has the state's class.
        scores: ``[rows, states]``: what it has there.
        skips: ``[sequences, states]``: 0 where a state may follow the last but one, else ``_NEVER``.
        skips_back: The same, seen from the last state.
        ends: ``[sequences]``: the last state.
        possible: ``[sequences]``: whether there are steps enough.
    """

    def __init__(self, logits: Array, order: TimeMajor, label: Array, starts: Array, counts: Array, blank: int) -> None:
        self.order = order
        classes = logits.shape[-1]
        x = logits.reshape(-1, classes)[order.index].astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        self.log_p = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        starts, counts = starts[order.order], counts[order.order]
        self.ends = 2 * counts
        self.states = np.full((len(counts), 2 * int(counts.max(initial=0)) + 1), blank)
        sequence = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
        given = label.reshape(-1)[spans(starts, counts)]
        _check_labels(given, classes, blank)
        self.states[sequence, 2 * place + 1] = given
        same = self.states[:, 2:] == self.states[:, :-2]
        free = np.where(same, _NEVER, 0.0)
        self.skips, self.skips_back = (
            np.pad(one, ((0, 0), (min(2, self.states.shape[1]), 0))) for one in (free, free[:, ::-1])
        )
        # A class of probability 0 has the logarithm of something instead, so that no infinities meet.
        self.place = self.states[order.rank] + classes * np.arange(len(x))[:, None]
        self.scores = self.log_p.reshape(-1).take(self.place)
        np.maximum(self.scores, _NEVER, out=self.scores)
        # Equal neighbours need a blank between them, so one step more. Blanks beyond the last label do not count.
        inside = np.arange(1, self.states.shape[1], 2)[1:] < self.ends[:, None]
        repeats = (same[:, 1::2] & inside).sum(axis=1)
        self.lengths = np.bincount(order.rank, minlength=len(counts))
        self.possible = (counts + repeats <= self.lengths) & (self.lengths > 0)

    def forward(self) -> Array:
        """Returns the logarithm of the probability of all ways to each row and state."""
        alpha = self._never()
        alpha[: self.order.count, 2:4] = self.scores[: self.order.count, :2]
        for step in range(1, self.order.steps):
            now, before = self.order.rows(step), alpha[self.order.before(step)]
            np.add(self.scores[now], _log_add(before, self.skips[: len(before)]), out=alpha[now, 2:])
        return alpha[:, 2:]

    def backward(self) -> Array:
        """Returns the logarithm of the probability of all ways from each row and state to an end."""
        # Seen from the last state, the way back looks like the way forth.
        beta, scores = self._never(), self.scores[:, ::-1]
        end = beta.shape[1] - 1 - self.ends[: self.order.count]
        beta[self.order.last, end] = 0
        beta[self.order.last, np.minimum(end + 1, beta.shape[1] - 1)] = 0
        for step in range(self.order.steps - 1, 0, -1):
            now = self.order.rows(step)
            after = beta[now].copy()
            after[:, 2:] += scores[now]
            beta[self.order.before(step), 2:] = _log_add(after, self.skips_back[: len(after)])
        return beta[:, :1:-1]

    def _never(self) -> Array:
        """Returns ``_NEVER`` for each row and state, with two further columns in front."""
        return np.full((len(self.scores), self.scores.shape[1] + 2), _NEVER)

    def log_probability(self, alpha: Array) -> Array:
        """Returns the logarithm of the probability of each sequence that is not empty."""
        ends, last = self.ends[: self.order.count], alpha[self.order.last]
        rows = np.arange(len(ends))
        before = np.where(ends > 0, last[rows, np.maximum(ends - 1, 0)], _NEVER)
        total = np.logaddexp(last[rows, ends], before)
        return np.where(total > _NEVER / 2, total, -np.inf)

    def gradient(self, alpha: Array, log_p: Array) -> Array:
        """Returns the gradient of each loss by the scores, ``[rows, classes]``; 0 for sequences without alignment."""
        rows, classes = self.log_p.shape
        # How probable each state is at each step, added up by class.
        total = np.where(np.isfinite(log_p), log_p, 0)[self.order.rank, None]
        share = alpha + self.backward()
        np.subtract(share, total, out=share)
        np.exp(share, out=share)
        by_class = np.bincount(self.place.reshape(-1), share.reshape(-1), rows * classes).reshape(rows, classes)
        return np.where(self.possible[self.order.rank, None], np.exp(self.log_p) - by_class, 0)


def _log_add(x: Array, skips: Array) -> Array:
    """Returns, by state, ``log(exp(x[s]) + exp(x[s - 1]) + exp(x[s - 2] + skips[s]))``; state 0 is in column 2 of ``x``.

    Three exponentials at once are several times as fast as ``np.logaddexp`` twice.
    """
    ways = np.empty((3, *skips.shape))
    ways[0], ways[1] = x[:, 2:], x[:, 1:-1]
    np.add(x[:, :-2], skips, out=ways[2])
    most = ways.max(axis=0)
    np.subtract(ways, most, out=ways)
    np.exp(ways, out=ways)
    total: Array = ways.sum(axis=0)
    np.log(total, out=total)
    np.add(total, most, out=total)
    return total


def _check_labels(label: Array, classes: int, blank: int) -> None:
    fix = f"check the labels that are fed, or the number of classes ({classes})"
    check_index(label, classes, "Label", fix=fix)
    if (label == blank).any():
        raise IndexRangeError(
            "Label holds the blank",
            expected=f"integers from 0 to {classes - 1} other than the blank",
            received=f"{blank}, which is the blank",
            fix="leave blanks out of the labels, pass label_length so that padding is not read, or choose another blank",
        )


def _ref(
    logits: Array,
    label: Array,
    logits_length: Array | None,
    label_length: Array | None,
    logits_offsets: Array | None,
    label_offsets: Array | None,
    loss: Array | None,
    grad: Array | None,
    *,
    blank: int,
) -> None:
    stride = 1 if logits_length is None else logits.shape[1]
    starts, lengths = starts_and_lengths(logits, logits_length, logits_offsets, "LogitsLength", time_first=True)
    order = TimeMajor(starts, lengths, stride)
    all_ = _Alignments(
        logits, order, label, *starts_and_lengths(label, label_length, label_offsets, "LabelLength"), blank
    )
    alpha = all_.forward()
    log_p = all_.log_probability(alpha)
    possible = all_.possible[: order.count]
    if loss is not None:
        loss.fill(0)
        # As in Paddle, a sequence that has no alignment costs nothing.
        loss[order.order[: order.count], 0] = np.where(possible, -log_p, 0)
    if grad is not None:
        flat = np.zeros((int(np.prod(logits.shape[:-1])), logits.shape[-1]))
        flat[order.index] = all_.gradient(alpha, log_p)
        grad[...] = flat.reshape(logits.shape)


def _grad_ref(
    grad: Array,
    logits_length: Array | None,
    logits_offsets: Array | None,
    dloss: Array,
    dlogits: Array | None,
    *,
    norm_by_times: bool,
) -> None:
    if dlogits is None:
        return
    _, lengths = starts_and_lengths(grad, logits_length, logits_offsets, "LogitsLength", time_first=True)
    each = dloss.reshape(-1)
    if norm_by_times:
        each = each / np.maximum(lengths, 1)
    # Padded: time first, one factor per column of the batch.
    np.multiply(grad, each[:, None] if logits_length is not None else np.repeat(each, lengths)[:, None], out=dlogits)


# ---------------------------------------------------------------------------------------------------------------- torch
def _lower(
    torch: Any, logits: Any, label: Any, logits_length: Any, label_length: Any, logits_offsets: Any, label_offsets: Any,
    *, blank: int,
) -> Any:  # fmt: skip
    if logits_length is None:
        at, to = logits_offsets, label_offsets
        logits_length, label_length = at.diff(), to.diff()
        logits = torch.nn.utils.rnn.pad_sequence([logits[i:j] for i, j in itertools.pairwise(at)])
        label = label.reshape(-1)
    if not logits.shape[0] or not logits.shape[1]:
        return logits.new_zeros((logits.shape[1], 1)), None
    ins, labels = logits_length.reshape(-1), label_length.reshape(-1)
    loss = torch.nn.functional.ctc_loss(
        logits.log_softmax(-1), label.long(), ins.long(), labels.long(), blank, "none", zero_infinity=True
    )
    return loss[:, None], None


def _grad_lower(
    torch: Any, grad: Any, logits_length: Any, logits_offsets: Any, dloss: Any, *, norm_by_times: bool
) -> Any:
    lengths = logits_length.reshape(-1) if logits_length is not None else logits_offsets.diff()
    each = dloss.reshape(-1) / lengths.clamp(min=1) if norm_by_times else dloss.reshape(-1)
    each = each.to(grad.dtype)
    return grad * (each[:, None] if logits_length is not None else each.repeat_interleave(lengths)[:, None])


register(OpDef(
    "warpctc", "Logits, Label, LogitsLength?, LabelLength?, Logits@LOD?, Label@LOD? -> Loss, WarpCTCGrad~",
    attrs={"blank": 0, "norm_by_times": False}, infer=_infer, ref=_ref, lower=_lower, amp="black",
    grad=GradOp(
        "WarpCTCGrad, LogitsLength?, Logits@LOD?, Loss@GRAD -> Logits@GRAD", ref=_grad_ref, lower=_grad_lower,
        infer=lambda grad, length, offsets, dloss: grad, linear_in=("Loss@GRAD",),
    ),
    domain=Domain(
        cases=(
            Case(((6, 2, 4), (2, 2), (2,), (2,))),
            Case(((7, 3, 5), (3, 3), (3, 1), (3,)), {"blank": 1}),
            Case(((4, 1, 3), (1, 1), (1,), (1, 1))),
            Case(((4, 0, 3), (0, 2), (0,), (0,))),
            Case(((9, 4), (5, 1), None, None, (4,), (4,))),
        ),
        values={
            "Label": ValueRange(2, "Logits.-1", dtype="int64"), "LogitsLength": ValueRange(1, "Logits.0", dtype="int64"),
            "LabelLength": ValueRange(0, "Label.1", dtype="int64"),
            "Logits@LOD": ValueRange(dtype="int64", offsets="Logits.0"),
            "Label@LOD": ValueRange(dtype="int64", offsets="Label.0"),
        },
        floats=_FLOATS,
    ),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------- public functions
@export("fluid.layers.warpctc", op="warpctc")
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """Returns the CTC loss of each sequence: minus the logarithm of the probability of all alignments with its labels.

    Args:
        input: Raw scores, of which the softmax is taken: ``[rows, classes]`` with lod_level 1, or padded
            ``[steps, batch, classes]``; float32 or float64.
        label: Class numbers other than the blank: ``[rows, 1]`` with lod_level 1, or padded ``[batch, labels]``; int32 or int64.
        blank: The class that means "no label".
        norm_by_times: Divide the gradient of a sequence, not its loss, by the number of its steps.
        input_length, label_length: ``[batch]``, of padded sequences.

    Returns:
        ``[sequences, 1]``. A sequence that is too short for its labels costs 0 and has no gradient.

    Raises:
        ProgramError: If a value has neither a LoD nor lengths, or ``blank`` is not a class.
        ShapeError, DTypeError: If the values do not fit together.
        IndexRangeError: At run time, if a label is not a class, or is the blank.

    Example:
        >>> scores = paddle.to_tensor(np.zeros([2, 1, 3], "float32"))
        >>> label = paddle.to_tensor([[1]])
        >>> two, one = paddle.to_tensor([2]), paddle.to_tensor([1])
        >>> loss = fluid.layers.warpctc(scores, label, input_length=two, label_length=one)
        >>> static.Executor().run(fetch_list=[loss])[0]  # 3 of 9 paths: log(3)
        array([[1.0986]], dtype=float32)
    """
    return _loss("warpctc", input, label, blank, norm_by_times, input_length, label_length)


def _loss(
    function: str, x: Variable, label: Variable, blank: int, norm: bool, x_length: Any, label_length: Any
) -> Variable:
    check_variable(x, "input", function, _FLOATS)
    check_variable(label, "label", function, INDICES)
    for arg, value in (("input_length", x_length), ("label_length", label_length)):
        if value is not None:
            check_variable(value, arg, function, INDICES)
    attrs = {
        "blank": check_int(blank, "blank", function), "norm_by_times": check_type(norm, bool, "norm_by_times", function),
    }  # fmt: skip
    ins = {"Logits": x, "Label": label, "LogitsLength": x_length, "LabelLength": label_length}
    return emit_one("warpctc", ins, attrs)


@export("nn.functional.ctc_loss", op="warpctc")
def ctc_loss(
    log_probs: Variable,
    labels: Variable,
    input_lengths: Variable,
    label_lengths: Variable,
    blank: int = 0,
    reduction: str = "mean",
    norm_by_times: bool = False,
) -> Variable:
    """Returns the CTC loss of padded sequences.

    Args:
        log_probs: Scores ``[steps, batch, classes]``, float32 or float64; the softmax is taken of them, as of raw scores.
        labels: Class numbers other than the blank, ``[batch, labels]``, int32 or int64.
        input_lengths, label_lengths: ``[batch]``, int64.
        blank: The class that means "no label".
        reduction: ``"mean"`` of the losses, each divided by the length of its labels, ``"sum"`` or ``"none"``.
        norm_by_times: Divide the gradient of a sequence, not its loss, by the number of its steps.

    Returns:
        ``[]``, or ``[batch]`` without a reduction. A sequence that is too short for its labels costs 0.

    Raises:
        ShapeError, DTypeError, ProgramError: If the values do not fit together.
        IndexRangeError: At run time, if a label is not a class, or is the blank.

    Example:
        >>> scores = paddle.to_tensor(np.zeros([2, 1, 3], "float32"))
        >>> two, one = paddle.to_tensor([2]), paddle.to_tensor([1])
        >>> loss = paddle.nn.functional.ctc_loss(scores, paddle.to_tensor([[1]]), two, one)
        >>> static.Executor().run(fetch_list=[loss])[0]  # 3 of 9 paths: log(3)
        array(1.0986, dtype=float32)
    """
    function = "ctc_loss"
    check_choice(reduction, REDUCTIONS, "reduction", function)
    for arg, value in (("input_lengths", input_lengths), ("label_lengths", label_lengths)):
        check_variable(value, arg, function, INDICES)
    loss = _loss(function, log_probs, labels, blank, norm_by_times, input_lengths, label_lengths)
    loss = emit_one("squeeze2", {"X": loss}, {"axes": (-1,)})
    if reduction == "mean":
        counts = emit_one("reshape2", {"X": label_lengths}, {"shape": (-1,)})
        counts = emit_one("clip", {"X": counts}, {"min": 1, "max": 2**31 - 1})
        counts = emit_one("cast", {"X": counts}, {"in_dtype": label_lengths.dtype, "out_dtype": log_probs.dtype})
        loss = emit_one("elementwise_div", {"X": loss, "Y": counts})
    return reduced(loss, reduction)
