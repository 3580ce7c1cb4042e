"""One step of a beam search: the best candidates of each source, in the order of the rows that they go on from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import LOD, Attr
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INTEGERS,
    check_dtype,
    check_has_shape,
    check_int,
    check_rank,
    check_same_shape,
    check_type,
)
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int32, int64
from tstatic.ops.base.shapes import Array

_FLOATS = ("float32", "float64")


def _infer(
    pre_ids: Meta, pre_scores: Meta, ids: Meta | None, scores: Meta, lod: Sequence[Meta]
) -> tuple[Meta, Meta, Meta, list[Meta], list[Meta]]:
    check_rank(scores, 2, "scores", layout="[rows, candidates]")
    check_dtype(scores, _FLOATS, "scores")
    for name, meta in (("pre_ids", pre_ids), ("ids", ids)):
        if meta is not None:
            check_dtype(meta, INTEGERS, name)
    if ids is not None:
        check_same_shape((scores, ids), ("scores", "ids"))
    for name, meta in (("pre_ids", pre_ids), ("pre_scores", pre_scores)):
        check_has_shape(meta, (scores.shape[0], 1), name, why="one value for each row of scores")
    rows = scores.shape[0]
    levels = [Meta((UNKNOWN,), int64), Meta((UNKNOWN if rows == UNKNOWN else rows + 1,), int64)]
    found = Meta((UNKNOWN, 1), pre_ids.dtype)
    return found, scores.with_shape((UNKNOWN, 1)), Meta((UNKNOWN,), int32), levels, levels


def rows_of(lod: Sequence[Any], level: int) -> Any:
    """Returns the rows at which the groups of a level begin, and the end of the last."""
    starts = lod[level]
    for inner in lod[level + 1 :]:
        starts = inner[starts]
    return starts


def _settle_tie(ranked: Array, score: Array, row: Array, beam_size: int) -> None:
    """Chooses, in place, among candidates of one row with one score where the beam has room for some of them only.

    Paddle inserts the candidates in order, each behind all that are not worse, and drops the last one of a full beam. So the
    first of equal candidates stay, except that each later one takes over the last place.

    Args:
        ranked: Numbers of the candidates of one source, more than ``beam_size``, the best first.
        score, row: Of each candidate.
        beam_size: How many are kept.
    """
    last = ranked[beam_size - 1]
    equal = (score[ranked] == score[last]) & (row[ranked] == row[last])
    if not equal[beam_size]:
        return
    better = int(equal.argmax())
    kept: list[int] = []
    room = beam_size
    for number in np.sort(ranked[: better + np.count_nonzero(equal)]).tolist():
        if score[number] != score[last] or row[number] != row[last]:
            room -= 1
            del kept[room:]
        elif len(kept) < room:
            kept.append(number)
        else:
            kept[-1] = number
    ranked[better:beam_size] = kept


def _ref(
    pre_ids: Array, pre_scores: Array, ids: Array | None, scores: Array, lod: Sequence[Array], *outs: Any,
    beam_size: int, end_id: int, level: int, is_accumulated: bool,
) -> tuple[Array, Array, Array, list[Array], list[Array]]:  # fmt: skip
    starts = rows_of(lod, level)
    rows, candidates = scores.shape
    if starts[-1] != rows:
        raise ShapeError(
            "the LoD of the scores of beam_search does not fit their rows",
            expected=f"offsets that end at {rows}, the number of rows",
            received=starts.tolist(),
            fix="give the scores the LoD of pre_ids with lod_reset",
        )
    ended = pre_ids[:, 0] == end_id
    word = np.broadcast_to(np.arange(candidates), scores.shape) if ids is None else ids
    with np.errstate(divide="ignore"):
        score = scores if is_accumulated else pre_scores + np.log(scores)
    # A row that has ended goes on as itself: one candidate, with the score that it has.
    kept = np.ones(scores.shape, bool)
    kept[ended, 1:] = False
    word, score = np.where(ended[:, None], end_id, word)[kept], np.where(ended[:, None], pre_scores, score)[kept]
    row = np.nonzero(kept)[0]
    source = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[row]
    # The best of each source; of equal scores the later row.
    best = np.lexsort((-row, -score, source))
    first = np.searchsorted(source[best], np.arange(len(starts)))
    for s in np.flatnonzero(np.diff(first) > beam_size):
        _settle_tie(best[first[s] : first[s + 1]], score, row, beam_size)
    best = best[np.arange(len(best)) - first[source[best]] < beam_size]
    # A source is done when all that it keeps has ended before.
    going = np.zeros(len(starts) - 1, bool)
    going[source[best][~(ended[row[best]] & (word[best] == end_id))]] = True
    best = best[going[source[best]]]
    best = best[np.argsort(row[best], kind="stable")]
    counts = np.bincount(row[best], minlength=rows)
    levels = [starts.astype(np.int64), np.concatenate(([0], np.cumsum(counts)))]
    selected = word[best][:, None].astype(pre_ids.dtype), score[best][:, None].astype(scores.dtype)
    return *selected, row[best].astype(np.int32), levels, [one.copy() for one in levels]


def _lower(
    torch: Any, pre_ids: Any, pre_scores: Any, ids: Any, scores: Any, lod: Any, *, beam_size: int, end_id: int,
    level: int, is_accumulated: bool,
) -> Any:  # fmt: skip
    starts = rows_of(lod, level).tolist()
    every = torch.arange(scores.shape[1]).expand(scores.shape) if ids is None else ids
    total = scores if is_accumulated else pre_scores + scores.log()
    per_row: list[list[tuple[Any, Any]]] = [[] for _ in range(len(scores))]
    for at, to in itertools.pairwise(starts):
        found = []
        for r in range(at, to):
            if pre_ids[r, 0] == end_id:
                found.append((float(pre_scores[r, 0]), r, end_id))
            else:
                found += [(s, r, w) for s, w in zip(total[r].tolist(), every[r].tolist(), strict=True)]
        beam: list[tuple[Any, int, int]] = []
        for one in found:
            ahead = [other[:2] >= one[:2] for other in beam]
            if len(beam) == beam_size:
                if beam[-1][:2] > one[:2]:
                    continue
                del beam[-1], ahead[-1]
            beam.insert(sum(ahead), one)
        if any(w != end_id or pre_ids[r, 0] != end_id for _, r, w in beam):
            for s, r, w in beam:
                per_row[r].append((s, w))
    flat = [(r, s, w) for r, group in enumerate(per_row) for s, w in group]
    selected = torch.tensor([w for *_, w in flat], dtype=pre_ids.dtype)[:, None]
    kept = torch.tensor([float(s) for _, s, _ in flat], dtype=scores.dtype)[:, None]
    parents = torch.tensor([r for r, *_ in flat], dtype=torch.int32)
    counts = torch.tensor([0, *map(len, per_row)], dtype=torch.int64).cumsum(0)
    levels = [torch.tensor(starts, dtype=torch.int64), counts]
    return selected, kept, parents, levels, levels


register(OpDef(
    "beam_search",
    "pre_ids, pre_scores, ids?, scores, scores@LOD* -> selected_ids, selected_scores, parent_idx, selected_ids@LOD*, "
    "selected_scores@LOD*",
    attrs={"beam_size": Attr(kind="int"), "end_id": Attr(kind="int"), "level": 0, "is_accumulated": True},
    infer=_infer, ref=_ref, lower=_lower, dynamic=Dynamic("the candidates that are kept"),
    domain=Domain(
        cases=(
            Case(((6, 1), (6, 1), (6, 3), (6, 3), [(4,)]), {"beam_size": 2, "end_id": 1}),
            Case(((6, 1), (6, 1), None, (6, 4), [(3,)]), {"beam_size": 3, "end_id": 0, "is_accumulated": False}),
            Case(((0, 1), (0, 1), (0, 2), (0, 2), [(3,)]), {"beam_size": 2, "end_id": 1}),
        ),
        values={
            "pre_ids": ValueRange(0, 3, dtype="int64"), "ids": ValueRange(0, 3, dtype="int64"),
            "scores": ValueRange(0.05, 1.0, distinct=True), "pre_scores": ValueRange(1.5, 3.0),
            "scores@LOD": ValueRange(dtype="int64", offsets="scores.0"),
        },
        floats=_FLOATS, ulps=2,
    ),
))  # fmt: skip


@export("fluid.layers.beam_search", op="beam_search")
def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> Any:
    """Takes one step of a beam search: chooses the ``beam_size`` best candidates of each source.

    A row that ended in an earlier step, its last word being ``end_id``, stays as it is, with its score. A source whose rows have
    all ended leaves the beam.

    Args:
        pre_ids: The last word of each row, ``[rows, 1]``; its LoD, or that of ``scores``, says which rows belong to which source.
        pre_scores: The score of each row, ``[rows, 1]``.
        ids: Words to go on with, ``[rows, candidates]``; ``None``: the numbers of the columns of ``scores``.
        scores: Scores of the candidates, ``[rows, candidates]``, float32 or float64.
        beam_size: How many are chosen for each source.
        end_id: The word that ends a sentence.
        level: The level of the LoD that divides the rows into sources.
        is_accumulated: Whether ``scores`` are those of the whole sentences; if not, they are probabilities of the words, and
            their logarithms are added to ``pre_scores``.
        name: Name of the layer.
        return_parent_idx: Whether the rows that the chosen ones go on from are returned, too.

    Returns:
        The chosen words and scores, ``[chosen, 1]``, ordered by the row that they go on from and then by score. Their LoD has the
        rows of each source, and what was chosen for each row. With ``return_parent_idx`` those rows as well, ``[chosen]``, int32.

    Raises:
        ProgramError: If neither ``scores`` nor ``pre_ids`` have a LoD.
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> kinds = {"last": (1, "int64"), "score": (1, "float32"), "ids": (3, "int64"), "scores": (3, "float32")}
        >>> x = [fluid.data(name, [None, width], dtype, lod_level=2) for name, (width, dtype) in kinds.items()]
        >>> words, best = fluid.layers.beam_search(*x, beam_size=2, end_id=1)
        >>> rows = {"last": [[2], [3]], "score": [[0], [0]], "ids": [[2, 3, 4], [5, 6, 7]]}
        >>> rows["scores"] = [[0.9, 0.5, 0.1], [0.8, 0.7, 0.6]]
        >>> feed = {n: fluid.create_lod_tensor(np.array(v, kinds[n][1]), [[2], [1, 1]], None) for n, v in rows.items()}
        >>> done = static.Executor().run(feed=feed, fetch_list=[words], return_numpy=False)[0]
        >>> np.array(done).tolist(), done.lod()
        ([[2], [5]], [[0, 2], [0, 1, 2]])
    """
    function = "beam_search"
    for arg, value, dtypes in (
        ("pre_ids", pre_ids, INTEGERS), ("pre_scores", pre_scores, _FLOATS), ("ids", ids, INTEGERS),
        ("scores", scores, _FLOATS),
    ):  # fmt: skip
        if arg != "ids" or value is not None:
            check_variable(value, arg, function, dtypes)
    attrs = {
        "beam_size": check_int(beam_size, "beam_size", function, 1),
        "end_id": check_int(end_id, "end_id", function),
        "is_accumulated": check_type(is_accumulated, bool, "is_accumulated", function),
        "level": check_int(level, "level", function, 0, max(len(scores.lod or pre_ids.lod) - 1, 0)),
    }
    ins: dict[str, Any] = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    if not scores.lod and pre_ids.lod:
        ins[f"scores{LOD}"] = list(pre_ids.lod)
    words, best, parents = emit("beam_search", ins, attrs, name=name)
    return (words, best, parents) if return_parent_idx else (words, best)
