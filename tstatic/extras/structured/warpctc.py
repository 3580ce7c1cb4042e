"""The CTC loss: minus the logarithm of the probability of all alignments of a label sequence with the steps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.extras.sequence._offsets import spans
from tstatic.extras.structured._sequences import Array, TimeMajor, check_form, count_of, starts_and_lengths
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_choice, check_dtype, check_index, check_int, check_rank, check_type
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.logs import warn_once
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.labels import REDUCTIONS, reduced
from tstatic.ops.base.shapes import emit_one

_FLOATS = ("float32", "float64")
_NEVER = -1e30
"""In the place of the logarithm of 0: differences of two of these are numbers, and no sum of scores comes near."""
LEAST_SEEN = 1e-100
"""Probabilities of classes below this are added up as logarithms."""
LEAST_MET = 1e-200
"""Likewise where of all ways to a step and all ways on from it less than this meet."""


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
    """What the recursions over one batch share. The states of a sequence are its labels with a blank around each.

    Attributes:
        order: The rows of the scores, by time step.
        p: ``[rows, classes + 1]``: the softmax, and a class that is never seen.
        labels: ``[sequences, most labels]``: the labels; behind them the class that is never seen.
        backwards: The same from the last label to the first.
        ends: ``[sequences]``: the last state.
        possible: ``[sequences]``: whether there are steps enough.
    """

    def __init__(self, logits: Array, order: TimeMajor, label: Array, starts: Array, counts: Array, blank: int) -> None:
        self.order, self.blank = order, blank
        classes = logits.shape[-1]
        self.x = logits.reshape(-1, classes)[order.index].astype(np.float64)
        self.x -= self.x.max(axis=1, keepdims=True)
        self.p = np.zeros((len(self.x), classes + 1))
        p = np.exp(self.x, out=self.p[:, :-1])
        self.totals = p.sum(axis=1, keepdims=True)
        p /= self.totals
        starts, counts = starts[order.order], counts[order.order]
        self.ends = 2 * counts
        self.labels, self.backwards = np.full((2, len(counts), int(counts.max(initial=0))), classes)
        sequence = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
        given = label.reshape(-1)[spans(starts, counts)]
        _check_labels(given, classes, blank)
        self.labels[sequence, place] = given
        self.backwards[sequence, counts[sequence] - 1 - place] = given
        # Equal neighbours need a blank between them, so one step more.
        repeats = ((self.labels[:, 1:] == self.labels[:, :-1]) & (self.labels[:, 1:] < classes)).sum(axis=1)
        self.lengths = np.bincount(order.rank, minlength=len(counts))
        self.possible = (counts + repeats <= self.lengths) & (self.lengths > 0)

    @property
    def states(self) -> int:
        """The number of states of the longest sequence of labels."""
        return 2 * int(self.labels.shape[1]) + 1

    def gradient(self, occupied: Array) -> Array:
        """Returns the gradient of each loss by the scores, ``[rows, classes]``; 0 for sequences without alignment.

        Args:
            occupied: ``[rows, states]``: how probable each state is at each step, given the labels.
        """
        rows, classes = self.x.shape
        place = self.labels[self.order.rank] + (classes + 1) * np.arange(rows)[:, None]
        weights = np.ascontiguousarray(occupied[:, 1::2])
        by_class = np.bincount(place.reshape(-1), weights.reshape(-1), rows * (classes + 1))
        difference: Array = self.p[:, :-1] - by_class.reshape(rows, classes + 1)[:, :-1]
        difference[:, self.blank] -= occupied[:, ::2].sum(axis=1)
        if not self.possible.all():
            difference[~self.possible[self.order.rank]] = 0
        return difference


# ------------------------------------------------------------------------------------------------- sums of probabilities
def _scaled(all_: _Alignments) -> tuple[Array, Array] | None:
    """Returns the logarithm of the probability of each sequence that is not empty, and how probable each state is.

    The way back, seen from the last state, looks like the way forth, so that one recursion goes both ways at once: it works on
    probabilities, which are divided by their sum after each step (Rabiner, 1989). ``None`` if that may have lost something that
    counts: if a probability is tiny, or at some step the ways there and the ways on from there hardly meet. What is lost at a
    step is below 1e-300 of all ways to it, so that it does not count beside 1e-200 of them.
    """
    order, labels, rows = all_.order, (all_.labels, all_.backwards), np.arange(len(all_.p))
    step = np.repeat(np.arange(order.steps), order.active)
    mirrored = order.bounds[all_.lengths[order.rank] - 1 - step] + order.rank
    # Two columns in front of the states, where nothing is: shifts by one and two states then work on flat arrays.
    width = all_.states + 2
    seen = np.zeros((len(rows), 2, width))
    skips = np.zeros((len(all_.labels), 2, width))
    flat, classes = all_.p.reshape(-1), all_.p.shape[1]
    for way, row in enumerate((rows, mirrored)):
        seen[:, way, 2::2] = all_.p[row, all_.blank, None]
        seen[:, way, 3::2] = flat.take(labels[way][order.rank] + classes * row[:, None])
        # A label that is the blank is entered from the state before it alone; the second way is seen from the end.
        entered = labels[way][:, :-1] if way else labels[way][:, 1:]
        skips[:, way, 5::2] = (labels[way][:, 1:] != labels[way][:, :-1]) & (entered != all_.blank)
    unlikely = seen[:, 0, 2:] < LEAST_SEEN
    if unlikely.any() and (unlikely & (np.arange(all_.states) <= all_.ends[order.rank, None])).any():
        return None
    come = np.zeros(seen.shape)
    come[: order.count, :, 2:4] = 1
    now, skipped = np.zeros((order.count, 2, width)), np.zeros((order.count, 2, width))
    totals = np.empty((len(rows), 2, 1))
    for at in map(order.rows, range(order.steps)):
        n = at.stop - at.start
        here, to = now[:n], come[at]
        if at.start:
            x, y, z = here.reshape(-1), to.reshape(-1), skipped[:n].reshape(-1)
            np.multiply(x[:-2], skips[:n].reshape(-1)[2:], out=z[2:])
            np.add(x[1:], x[:-1], out=y[1:])
            np.add(y, z, out=y)
        np.multiply(to, seen[at], out=here)
        np.divide(here, np.add.reduce(here, axis=2, keepdims=True, out=totals[at]), out=here)
    ends, count = all_.ends[: order.count], np.arange(order.count)
    # ``now`` still has the last step of each sequence. One without labels ends in its only state, and nothing is before that.
    last = now[count, 0, ends + 2] + now[count, 0, ends + 1]
    # The same state, seen from the last one. Beyond that nothing has come, so that it does not matter what is taken.
    back = ((2 * mirrored + 1) * width + all_.ends[order.rank] + 2)[:, None] - np.arange(all_.states)
    occupied = come.reshape(-1).take(back, mode="clip")
    np.multiply(occupied, come[:, 0, 2:], out=occupied)
    np.multiply(occupied, seen[:, 0, 2:], out=occupied)
    met, total, possible = occupied.sum(axis=1), totals[:, 0, 0], all_.possible[order.rank]
    if (met < LEAST_MET * total)[possible].any():
        return None
    np.divide(occupied, np.where(possible, met, 1.0)[:, None], out=occupied)
    with np.errstate(divide="ignore"):
        return np.bincount(order.rank, np.log(total), order.count) + np.log(last), occupied


# --------------------------------------------------------------------------------------------------- sums of logarithms
def _logarithms(all_: _Alignments) -> tuple[Array, Array]:
    """Returns what :func:`_scaled` does, of probabilities of any size."""
    order, blank, count = all_.order, all_.blank, all_.order.count
    states = np.full((len(all_.labels), all_.states), blank)
    states[:, 1::2] = np.where(all_.labels < all_.x.shape[1], all_.labels, blank)
    free = np.where((states[:, 2:] == states[:, :-2]) | (states[:, 2:] == blank), _NEVER, 0.0)
    skips, skips_back = (np.pad(one, ((0, 0), (min(2, all_.states), 0))) for one in (free, free[:, ::-1]))
    # A class of probability 0 has the logarithm of something instead, so that no infinities meet.
    scores = np.take_along_axis(all_.x - np.log(all_.totals), states[order.rank], axis=1)
    np.maximum(scores, _NEVER, out=scores)
    alpha, beta = np.full((2, len(scores), all_.states + 2), _NEVER)
    alpha[:count, 2:4] = scores[:count, :2]
    for step in range(1, order.steps):
        now, before = order.rows(step), alpha[order.before(step)]
        np.add(scores[now], _log_add(before, skips[: len(before)]), out=alpha[now, 2:])
    # Seen from the last state, the way back looks like the way forth.
    mirrored = scores[:, ::-1]
    end = beta.shape[1] - 1 - all_.ends[:count]
    beta[order.last, end] = 0
    beta[order.last, np.minimum(end + 1, beta.shape[1] - 1)] = 0
    for step in range(order.steps - 1, 0, -1):
        now = order.rows(step)
        after = beta[now].copy()
        after[:, 2:] += mirrored[now]
        beta[order.before(step), 2:] = _log_add(after, skips_back[: len(after)])
    ends, last = all_.ends[:count], alpha[order.last, 2:]
    rows = np.arange(count)
    before = np.where(ends > 0, last[rows, np.maximum(ends - 1, 0)], _NEVER)
    total = np.logaddexp(last[rows, ends], before)
    log_p = np.where(total > _NEVER / 2, total, -np.inf)
    share = alpha[:, 2:] + beta[:, :1:-1]
    np.subtract(share, np.where(np.isfinite(log_p), log_p, 0)[order.rank, None], out=share)
    return log_p, np.exp(share, out=share)


def _log_add(x: Array, skips: Array) -> Array:
    """Returns the logarithm of the sum of the ways to each state: from itself, from the one before, and from that before.

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
        warn_once(
            ("warpctc", "blank"),
            f"labels of a CTC loss hold the blank ({blank}), which no path spells as a label: leave blanks out, pass label_length "
            "so that padding is not read, or choose another blank. The loss is finite, as in Paddle, and of little use",
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
    log_p, occupied = _scaled(all_) or _logarithms(all_)
    possible = all_.possible[: order.count]
    if loss is not None:
        loss.fill(0)
        # As in Paddle, a sequence that has no alignment costs nothing.
        loss[order.order[: order.count], 0] = np.where(possible, -log_p, 0)
    if grad is not None:
        flat = np.zeros((int(np.prod(logits.shape[:-1])), logits.shape[-1]))
        flat[order.index] = all_.gradient(occupied)
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
        # Torch reads labels one after the other, whatever the strides are.
        label = label.reshape(-1).contiguous()
    if not logits.shape[0] or not logits.shape[1]:
        return logits.new_zeros((logits.shape[1], 1)), None
    ins, labels = logits_length.reshape(-1), label_length.reshape(-1)
    if (label == blank).any():
        return _with_blanks(torch, logits.log_softmax(-1), label, ins, labels, blank), None
    # Without a step torch reads what is in front of its sums, so that such a sequence gets a step and then its result.
    loss = torch.nn.functional.ctc_loss(
        logits.log_softmax(-1), label.long(), ins.long().clamp(min=1), labels.long(), blank, "none", zero_infinity=True
    )
    return loss.masked_fill(ins == 0, 0)[:, None], None


def _with_blanks(torch: Any, logs: Any, label: Any, ins: Any, counts: Any, blank: int) -> Any:
    """Computes the loss of labels that hold the blank: no path skips into one, as in Paddle; torch's call lets it."""
    if label.dim() == 1:
        label = torch.nn.utils.rnn.pad_sequence(label.split(counts.tolist()), True)
    states = logs.new_full((len(label), 2 * label.shape[1] + 1), blank, dtype=torch.int64)
    states[:, 1::2] = label
    scores = logs.gather(2, states.expand(len(logs), -1, -1))
    skips = (states[:, 2:] != states[:, :-2]) & (states[:, 2:] != blank)
    ways = torch.full_like(scores[0], -torch.inf)
    ways[:, :2] = scores[0, :, :2]
    for step in range(1, len(scores)):
        one = torch.nn.functional.pad(ways[:, :-1], (1, 0), value=-torch.inf)
        two = torch.nn.functional.pad(ways[:, :-2].masked_fill(~skips, -torch.inf), (2, 0), value=-torch.inf)
        later = torch.stack([ways, one, two]).logsumexp(0) + scores[step]
        ways = torch.where((step < ins)[:, None], later, ways)
    ends = 2 * counts[:, None]
    before = ways.gather(1, (ends - 1).clamp(min=0)).masked_fill(ends == 0, -torch.inf)
    loss = -torch.logaddexp(ways.gather(1, ends), before)
    # A sequence that has no alignment costs nothing.
    return loss.masked_fill(loss.isinf() | (ins == 0)[:, None], 0)


def _grad_lower(
    torch: Any, grad: Any, logits_length: Any, logits_offsets: Any, dloss: Any, *, norm_by_times: bool
) -> Any:
    lengths = logits_length.reshape(-1) if logits_length is not None else logits_offsets.diff()
    each = dloss.reshape(-1) / lengths.clamp(min=1) if norm_by_times else dloss.reshape(-1)
    each = each.to(grad.dtype)
    if logits_length is None:
        each = each.repeat_interleave(lengths, output_size=len(grad))
    return grad * each[:, None]


register(OpDef(
    "warpctc", "Logits, Label, LogitsLength?, LabelLength?, Logits@LOD?, Label@LOD? -> Loss, WarpCTCGrad~",
    attrs={"blank": 0, "norm_by_times": False}, infer=_infer, ref=_ref, traits=(READS_LENGTHS,), lower=_lower, amp="black",
    indices=(Index("Label", lambda logits, *rest: logits.shape[-1], some=True),),
    grad=GradOp(
        "WarpCTCGrad, LogitsLength?, Logits@LOD?, Loss@GRAD -> Logits@GRAD", ref=_grad_ref, lower=_grad_lower,
        infer=lambda grad, length, offsets, dloss: grad, linear_in=("Loss@GRAD",),
        instead="pad the sequences and write the recursion over the steps with exp, log and sums in a Python loop",
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
    ), onnx="no composition of ONNX's operators is written for it",
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
        IndexRangeError: At run time, if a label is not a class. Of a label that is the blank a warning tells once.

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
        IndexRangeError: At run time, if a label is not a class. Of a label that is the blank a warning tells once.

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
