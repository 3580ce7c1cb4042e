"""The negative log likelihood of labels under a linear-chain CRF."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tstatic.extras.structured._sequences import Array, TimeMajor, check_form, count_of, starts_and_lengths
from tstatic.ir.checks import (
    INDICES,
    check_dtype,
    check_has_shape,
    check_index,
    check_rank,
    check_same_dtype,
    same_shape,
)
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, register
from tstatic.ir.paddle_form import respelled
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.host import READS_LENGTHS

FLOATS = ("float32", "float64")
TINY = 1e-280
"""Sums of scaled exponentials below this have lost terms: those steps are computed again, term by term."""


# -------------------------------------------------------------------------------------------------------------- shapes
def check_crf(emission: Meta, transition: Meta, label: Meta | None, length: Meta | None, offsets: Meta | None) -> int:
    """Returns the number of sequences.

    Raises:
        ShapeError, DTypeError, ProgramError: If scores, transitions, labels and lengths do not fit together.
    """
    check_form(length, offsets, "input", "length")
    check_dtype(emission, FLOATS, "Emission")
    layout = "[batch, steps, tags]" if length is not None else "[rows, tags]"
    check_rank(emission, 3 if length is not None else 2, "Emission", layout=layout)
    tags = emission.shape[-1]
    check_same_dtype((emission, transition), ("Emission", "Transition"))
    check_has_shape(
        transition, (UNKNOWN if tags == UNKNOWN else tags + 2, tags), "Transition",
        why="a row of scores to start with, one to end with, and one for each tag that is left",
    )  # fmt: skip
    if label is not None:
        check_dtype(label, INDICES, "Label", fix="convert the labels with paddle.cast(label, 'int64')")
        rows = emission.shape[:-1]
        check_fit(
            any(same_shape(label.shape, shape) for shape in (rows, (*rows, 1))), (emission, label),
            ("Emission", "Label"), "there must be one label for each row of scores",
            f"Label of shape {list(rows)} or {[*rows, 1]}", "reshape the labels",
        )  # fmt: skip
    return count_of(emission, length, offsets)


def _infer(emission: Meta, transition: Meta, label: Meta, length: Meta | None, offsets: Meta | None) -> Meta:
    return emission.with_shape((check_crf(emission, transition, label, length, offsets), 1))


# ----------------------------------------------------------------------------------------------------------- recursion
def _log_sum(x: Array) -> Array:
    """Returns ``log(sum(exp(x)))`` along axis 1, which holds a finite number in each row."""
    most = x.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(x - most).sum(axis=1)) + most[:, 0])


class _Moves:
    """Scores ``w[i, j]`` of going from tag ``i`` to tag ``j``, as factors of a matrix product."""

    def __init__(self, w: Array) -> None:
        self.w = w
        self.most = w.max(axis=1)
        self.factors = np.exp(w - self.most[:, None])

    def scaled(self, alpha: Array) -> tuple[Array, Array, Array]:
        """Returns ``e``, its products with the factors, and the logarithm that both were divided by, per sequence."""
        shifted = alpha + self.most
        scale = shifted.max(axis=1, keepdims=True)
        e = np.exp(shifted - scale)
        return e, e @ self.factors, scale

    def forward(self, alpha: Array) -> Array:
        """Returns ``log(sum_i exp(alpha[:, i] + w[i, j]))``."""
        _, sums, scale = self.scaled(alpha)
        if sums.min() >= TINY:
            return np.asarray(np.log(sums) + scale)
        terms = alpha[:, :, None] + self.w
        most = terms.max(axis=1)
        return np.asarray(np.log(np.exp(terms - most[:, None]).sum(axis=1)) + most)

    def backward(self, alpha: Array, reached: Array, grad: Array) -> tuple[Array, Array]:
        """Returns the gradients by ``alpha`` and by ``w`` of what :meth:`forward` gave as ``reached``."""
        e, sums, _ = self.scaled(alpha)
        if sums.min() >= TINY:
            share = grad / sums
            return e * (share @ self.factors.T), (e.T @ share) * self.factors
        each = np.exp(alpha[:, :, None] + self.w - reached[:, None]) * grad[:, None]
        return each.sum(axis=2), each.sum(axis=0)


def _prepare(
    emission: Array, transition: Array, label: Array, length: Array | None, offsets: Array | None
) -> tuple[TimeMajor, Array, Array, Array]:
    """Returns the order of rows, and scores and labels in it; the parameter in float64.

    Raises:
        IndexRangeError: If a label is not a tag; what stands behind a padded sequence is not looked at.
    """
    tags = emission.shape[-1]
    order = TimeMajor(*starts_and_lengths(emission, length, offsets))
    x = emission.reshape(-1, tags)[order.index].astype(np.float64)
    y = label.reshape(-1)[order.index]
    check_index(y, tags, "Label", fix=f"check the labels that are fed, or the number of tags ({tags})")
    return order, x, y, transition.astype(np.float64)


def _log_sums(order: TimeMajor, x: Array, moves: _Moves, start: Array) -> Array:
    """Returns ``alpha``: the logarithm of the sum over all paths to each row and tag."""
    alpha = x.copy()
    alpha[: order.count] += start
    for step in range(1, order.steps):
        alpha[order.rows(step)] += moves.forward(alpha[order.before(step)])
    return alpha


def _ref(
    emission: Array, transition: Array, label: Array, length: Array | None, offsets: Array | None, out: Array | None
) -> None:
    order, x, y, w = _prepare(emission, transition, label, length, offsets)
    if out is None:
        return
    out.fill(0)
    if not order.count:
        return
    first = order.count
    alpha = _log_sums(order, x, _Moves(w[2:]), w[0])
    path = x[np.arange(len(y)), y]
    path[first:] += w[2:][y[order.previous], y[first:]]
    path[:first] += w[0, y[:first]]
    path[order.last] += w[1, y[order.last]]
    loss = -order.sums(path)
    loss[order.order[:first]] += _log_sum(alpha[order.last] + w[1])
    out[:, 0] = loss


def _grad_ref(
    emission: Array,
    transition: Array,
    label: Array,
    length: Array | None,
    offsets: Array | None,
    dout: Array,
    demission: Array | None,
    dtransition: Array | None,
) -> None:
    order, x, y, w = _prepare(emission, transition, label, length, offsets)
    dw = np.zeros_like(w)
    tags = x.shape[1]
    flat = np.zeros((emission.size // tags, tags))
    if order.count:
        first, moves = order.count, _Moves(w[2:])
        alpha = _log_sums(order, x, moves, w[0])
        each = dout.reshape(-1)[order.order].astype(np.float64)
        # The recursion backwards: the gradient by alpha is the probability of each tag, times that of the loss.
        dx = np.zeros_like(x)
        ends = alpha[order.last] + w[1]
        dends = np.exp(ends - _log_sum(ends)[:, None]) * each[:first, None]
        dx[order.last] = dends
        dw[1] = dends.sum(axis=0)
        for step in range(order.steps - 1, 0, -1):
            now, before = order.rows(step), order.before(step)
            by_alpha, by_w = moves.backward(alpha[before], alpha[now] - x[now], dx[now])
            dx[before] += by_alpha
            dw[2:] += by_w
        dw[0] = dx[:first].sum(axis=0)
        # Then what the path of the labels takes off.
        row = each[order.rank]
        dx[np.arange(len(y)), y] -= row
        np.subtract.at(dw[0], y[:first], row[:first])
        np.subtract.at(dw[1], y[order.last], row[order.last])
        np.subtract.at(dw, (y[order.previous] + 2, y[first:]), row[first:])
        flat[order.index] = dx
    if demission is not None:
        demission[...] = flat.reshape(emission.shape)
    if dtransition is not None:
        dtransition[...] = dw


# ---------------------------------------------------------------------------------------------------------------- torch
def _lower(torch: Any, emission: Any, transition: Any, label: Any, length: Any, offsets: Any) -> Any:
    losses = []
    scores = transition.double()
    start, end, w = scores[0], scores[1], scores[2:]
    for x, y in sequences(emission.double(), label.reshape(emission.shape[:-1]), length, offsets):
        if not len(x):
            losses.append(x.sum())
            continue
        alpha = x[0] + start
        for row in x[1:]:
            alpha = torch.logsumexp(alpha[:, None] + w, 0) + row
        path = x.gather(1, y[:, None]).sum() + start[y[0]] + end[y[-1]] + w[y[:-1], y[1:]].sum()
        losses.append(torch.logsumexp(alpha + end, 0) - path)
    return torch.stack(losses)[:, None].to(emission.dtype) if losses else emission.new_zeros((0, 1))


def _grad_lower(
    torch: Any, emission: Any, transition: Any, label: Any, length: Any, offsets: Any, dout: Any
) -> tuple[Any, Any]:
    x, w = (t.detach().requires_grad_() for t in (emission, transition))
    with torch.enable_grad():
        loss = _lower(torch, x, w, label, length, offsets)
    if not loss.requires_grad:
        return torch.zeros_like(x), torch.zeros_like(w)
    dx, dw = torch.autograd.grad(loss, (x, w), dout.reshape(loss.shape), allow_unused=True)
    return dx, torch.zeros_like(w) if dw is None else dw


def sequences(x: Any, y: Any, length: Any, offsets: Any) -> Any:
    """Yields the rows of ``x`` and ``y`` that belong to each sequence; arrays or tensors."""
    if length is not None:
        yield from ((a[:n], b[:n]) for a, b, n in zip(x, y, length.reshape(-1).tolist(), strict=True))
    else:
        at = offsets.tolist()
        yield from ((x[i:j], y[i:j]) for i, j in itertools.pairwise(at))


CASES = (
    Case(((2, 3, 4), (6, 4), (2, 3), (2,), None)),
    Case(((2, 2, 2), (4, 2), (2, 2, 1), (2, 1), None)),
    Case(((1, 4, 1), (3, 1), (1, 4), (1,), None)),
    Case(((0, 4, 3), (5, 3), (0, 4), (0,), None)),
    Case(((7, 3), (5, 3), (7, 1), None, (4,))),
    Case(((0, 2), (4, 2), (0,), None, (1,))),
)
"""Scores, transitions, labels, and lengths or offsets that fit together."""
VALUES = {
    "Label": ValueRange(0, "Emission.-1", dtype="int64"),
    "Length": ValueRange(0, "Emission.1", dtype="int64"),
    "Emission@LOD": ValueRange(dtype="int64", offsets="Emission.0"),
}

_INDICES = (Index("Label", lambda emission, *rest: emission.shape[-1], some=True),)

register(OpDef(
    "linear_chain_crf", "Emission, Transition, Label, Length?, Emission@LOD? -> LogLikelihood", infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, amp="black", uses_blas=True, indices=_INDICES,
    paddle=respelled(notes=dict.fromkeys(("Alpha", "EmissionExps", "TransitionExps"), "float32")),
    grad=GradOp(
        "Emission, Transition, Label, Length?, Emission@LOD?, LogLikelihood@GRAD -> Emission@GRAD, Transition@GRAD",
        ref=_grad_ref, traits=(READS_LENGTHS,), lower=_grad_lower, indices=_INDICES,
        instead="pad the sequences and write the recursion over the steps with exp, log and sums in a Python loop",
    ),
    domain=Domain(cases=CASES, values=VALUES, floats=FLOATS), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip
