"""The best path of a linear-chain CRF that has one matrix of transitions, perhaps with special tags for start and end."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.structured._sequences import Array, TimeMajor, count_of, starts_and_lengths
from tstatic.extras.structured.crf_decoding import best_path
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INDICES, check_dtype, check_has_shape, check_rank, check_same_dtype, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64

_FLOATS = ("float32", "float64")


def _infer(x: Meta, transition: Meta, length: Meta) -> tuple[Meta, Meta]:
    check_dtype(x, _FLOATS, "Input")
    check_rank(x, 3, "Input", layout="[batch, steps, tags]")
    check_same_dtype((x, transition), ("Input", "Transition"))
    check_has_shape(transition, (x.shape[2], x.shape[2]), "Transition", why="a score for each pair of tags")
    batch = count_of(x, length, None)
    return x.with_shape((batch,)), Meta((batch, UNKNOWN), int64)


def _ref(
    x: Array, transition: Array, length: Array, scores: Any, path: Any, *, include_bos_eos_tag: bool
) -> tuple[Array, Array]:
    batch, steps, tags = x.shape
    order = TimeMajor(*starts_and_lengths(x, length, None))
    w = transition.astype(np.float64)
    # Ending is a row, too, as in Paddle, although what is reached is a column elsewhere.
    start, end = (w[-1], w[-2]) if include_bos_eos_tag else (np.zeros(tags), np.zeros(tags))
    best, found = np.zeros(batch, x.dtype), np.zeros((batch, order.steps), np.int64)
    if order.count:
        rows = x.reshape(-1, tags)[order.index].astype(np.float64)
        best[order.order[: order.count]], tag = best_path(order, rows, start, end, w)
        found[order.index // steps, order.index % steps] = tag
    return best, found


def _lower(torch: Any, x: Any, transition: Any, length: Any, *, include_bos_eos_tag: bool) -> Any:
    w = transition.double()
    zero = torch.zeros(w.shape[0], dtype=w.dtype)
    start, end = (w[-1], w[-2]) if include_bos_eos_tag else (zero, zero)
    counts = length.reshape(-1).tolist()
    scores = torch.zeros(len(counts), dtype=x.dtype)
    path = torch.zeros((len(counts), max(counts, default=0)), dtype=torch.int64)
    for i, (rows, n) in enumerate(zip(x.double(), counts, strict=True)):
        if not n:
            continue
        best, origins = rows[0] + start, []
        for row in rows[1:n]:
            best, origin = (best[:, None] + w).max(0)
            best = best + row
            origins.append(origin)
        best = best + end
        scores[i], path[i, n - 1] = best.max(), best.argmax()
        for t in range(n - 2, -1, -1):
            path[i, t] = origins[t][path[i, t + 1]]
    return scores, path


register(OpDef(
    "viterbi_decode", "Input, Transition, Length -> Scores, Path", attrs={"include_bos_eos_tag": True}, infer=_infer,
    ref=_ref, lower=_lower, dynamic=Dynamic("the longest sequence"), amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4, 5), (5, 5), (3,))), Case(((2, 3, 2), (2, 2), (2, 1)), {"include_bos_eos_tag": False}),
            Case(((0, 3, 4), (4, 4), (0,))),
        ),
        values={"Length": ValueRange(0, "Input.1", dtype="int64")}, floats=_FLOATS,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("text.viterbi_decode", op="viterbi_decode")
def viterbi_decode(
    potentials: Variable,
    transition_params: Variable,
    lengths: Variable,
    include_bos_eos_tag: bool = True,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Returns the best sequence of tags for each sequence of scores, and its own score.

    Args:
        potentials: Scores of each tag ``[batch, steps, tags]``, float32 or float64.
        transition_params: ``[tags, tags]``: the score of going from a tag (row) to another (column).
        lengths: ``[batch]``: steps of each sequence, int64.
        include_bos_eos_tag: The last row of ``transition_params`` holds the scores of beginning with each tag, the last but one
            those of ending with it. The two tags are special ones that sequences are taken to begin and end with.
        name: Name of the layer.

    Returns:
        The scores ``[batch]``, and the tags ``[batch, longest]``, int64, 0 behind a sequence.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.
        IndexRangeError: At run time, if a length is more than the steps.

    Example:
        >>> x = paddle.to_tensor([[[0.0, 1.0], [0.5, 0.0]]])
        >>> moves = paddle.to_tensor([[0.0, 0.0], [0.0, 2.0]])
        >>> score, path = paddle.text.viterbi_decode(x, moves, paddle.to_tensor([2]), include_bos_eos_tag=False)
        >>> static.Executor().run(fetch_list=[score, path])
        [array([3.], dtype=float32), array([[1, 1]])]
    """
    function = "viterbi_decode"
    check_variable(potentials, "potentials", function, _FLOATS)
    check_variable(transition_params, "transition_params", function, _FLOATS)
    check_variable(lengths, "lengths", function, INDICES)
    check_type(include_bos_eos_tag, bool, "include_bos_eos_tag", function)
    ins = {"Input": potentials, "Transition": transition_params, "Length": lengths}
    scores, path = emit("viterbi_decode", ins, {"include_bos_eos_tag": include_bos_eos_tag}, name=name)
    return scores, path
