"""The sentences that the steps of a beam search make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.extras.sequence._offsets import spans
from tstatic.ir.build import emit
from tstatic.ir.checks import check_int
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.no_effect import no_effect
from tstatic.ops.base.shapes import Array
from tstatic.ops.control.tensor_array import check_array


def _infer(ids: Meta, scores: Meta, lod: Sequence[Meta]) -> tuple[Meta, Meta, list[Meta], list[Meta]]:
    levels = [Meta((UNKNOWN,), int64)] * 2
    return ids.with_shape((UNKNOWN,)), scores.with_shape((UNKNOWN,)), levels, levels


def _ref(
    ids: Sequence[Array], scores: Sequence[Array], lod: Sequence[Sequence[Array]], *outs: Any, end_id: int
) -> tuple[Array, Array, list[Array], list[Array]]:
    """Walks back from the last step; a source that has left the beam begins where its sentences are."""
    sources = len(lod[0][0]) - 1 if len(ids) else 0
    # Of each sentence: its source, and the row that it has in the step that is looked at.
    source, row = np.zeros(0, np.int64), np.zeros(0, np.int64)
    steps: list[tuple[Array, Array, Array]] = []
    for step in range(len(ids) - 1, -1, -1):
        of_source, of_row = lod[0][step], lod[1][step]
        starts = of_row[of_source]
        word, score = ids[step].reshape(-1), scores[step].reshape(-1)
        # An end behind the first end is the row that was kept as it is.
        kept = word[row] != end_id
        new = np.setdiff1d(np.arange(sources), source)
        counts = np.diff(starts)[new]
        row = np.concatenate([row, spans(starts[:-1][new], counts)])
        source = np.concatenate([source, np.repeat(new, counts)])
        kept = np.concatenate([kept, np.ones(len(row) - len(kept), bool)])
        sentence = np.flatnonzero(kept)
        steps.append((sentence, word[row[sentence]], score[row[sentence]]))
        # A row of this step goes on from the row of the step before whose group it is in.
        row = np.searchsorted(of_row, row, side="right") - 1
    # The best sentence of each source first: by the score of the last word, which is the first that was found.
    final = np.zeros(len(source))
    joined = [np.concatenate([step[i] for step in steps]) if steps else np.zeros(0) for i in range(3)]
    sentence, word, score = joined[0].astype(np.int64), joined[1], joined[2]
    first = np.unique(sentence, return_index=True)[1]
    final[sentence[first]] = score[first]
    place = np.empty(len(source), np.int64)
    place[np.lexsort((-final, source))] = np.arange(len(source))
    # Sentence by sentence, and each from its first word on, which was found last.
    order = np.lexsort((-np.arange(len(sentence)), place[sentence]))
    levels = [
        np.concatenate(([0], np.cumsum(np.bincount(source, minlength=sources)))),
        np.concatenate(([0], np.cumsum(np.bincount(place[sentence], minlength=len(source))))),
    ]
    dtypes = (ids[0].dtype, scores[0].dtype) if len(ids) else (np.int64, np.float32)
    return (
        word[order].astype(dtypes[0]), score[order].astype(dtypes[1]), levels, [level.copy() for level in levels],
    )  # fmt: skip


register(OpDef(
    "beam_search_decode",
    "Ids, Scores, Ids@LOD* -> SentenceIds, SentenceScores, SentenceIds@LOD*, SentenceScores@LOD*",
    attrs={
        "beam_size": Attr.idle(0, "the LoD of each step says how many sentences there are", "int"),
        "end_id": Attr(kind="int"),
    },
    infer=_infer, ref=_ref, dynamic=Dynamic("the sentences that the search found"),
))  # fmt: skip


@no_effect(beam_size="the LoD of each step says how many sentences there are")
@export("fluid.layers.beam_search_decode", op="beam_search_decode")
def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the sentences that a beam search found, walking back from its last step.

    Args:
        ids: The tensor array of chosen words: what :func:`beam_search` returned in each step, behind the first words.
        scores: The tensor array of their scores.
        beam_size: As in :func:`beam_search`.
        end_id: The word that ends a sentence; only the first one of a sentence is kept.
        name: Name of the layer.

    Returns:
        The words ``[rows]`` and, for each, the score of the sentence up to it. Their LoD has the sentences of each source, the best
        first, and the words of each sentence, the first word in front.

    Raises:
        ProgramTypeError: If ``ids`` or ``scores`` is not a tensor array.
        ProgramError: If the elements of ``ids`` have no LoD of two levels.

    Example:
        >>> zero, kinds = paddle.zeros([1], "int64"), {"words": "int64", "scores": "float32"}
        >>> steps = [fluid.data(name, [None, 1], dtype, lod_level=2) for name, dtype in kinds.items()]
        >>> arrays = [fluid.layers.array_write(x, zero) for x in steps]
        >>> sentences, _ = fluid.layers.beam_search_decode(*arrays, beam_size=2, end_id=1)
        >>> rows = {"words": [[5], [7]], "scores": [[-0.9], [-0.2]]}
        >>> feed = {n: fluid.create_lod_tensor(np.array(v, kinds[n]), [[2], [1, 1]], None) for n, v in rows.items()}
        >>> done = static.Executor().run(feed=feed, fetch_list=[sentences], return_numpy=False)[0]
        >>> np.array(done).tolist(), done.recursive_sequence_lengths()
        ([7, 5], [[2], [1, 1]])
    """
    function = "beam_search_decode"
    for arg, array in (("ids", ids), ("scores", scores)):
        check_array(array, arg, function)
    if len(ids.lod) != 2:
        raise ProgramError(
            "the elements of 'ids' of beam_search_decode do not say which sentences they belong to",
            expected="words with a LoD of two levels: the rows of each source, and what was chosen for each row",
            received=f"'{ids.name}' whose elements have {len(ids.lod)} levels",
            fix="write what beam_search returns to the array, and in front of it first words with lod_level=2",
            op=function,
            var=ids.name,
        )
    check_int(beam_size, "beam_size", function, 1)
    attrs = {"end_id": check_int(end_id, "end_id", function)}
    sentences, their_scores = emit("beam_search_decode", {"Ids": ids, "Scores": scores}, attrs, name=name)
    return sentences, their_scores
