"""The best path of a linear-chain CRF."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.structured._sequences import Array, TimeMajor, starts_and_lengths
from tstatic.extras.structured.linear_chain_crf import CASES, FLOATS, VALUES, check_crf, sequences
from tstatic.ir.opdef import Case, Domain, Index, OpDef, register
from tstatic.ir.types import Meta, int64
from tstatic.ops.base.host import READS_LENGTHS


def _infer(emission: Meta, transition: Meta, label: Meta | None, length: Meta | None, offsets: Meta | None) -> Meta:
    check_crf(emission, transition, label, length, offsets)
    return Meta(emission.shape[:-1] if length is not None else (emission.shape[0], 1), int64)


def best_path(order: TimeMajor, x: Array, start: Array, end: Array, w: Array) -> tuple[Array, Array]:
    """Returns the score of the best path of each sequence that is not empty, in order, and its tag in each row.

    Of paths with the same score it is the one whose tags, read from the end, are the lowest.

    Args:
        order: The rows.
        x: Scores ``[rows, tags]`` in that order.
        start, end: Scores ``[tags]`` of the first and the last tag.
        w: Scores ``[from, to]`` of one tag after another.
    """
    best = x.copy()
    best[: order.count] += start
    candidates = np.empty((order.count, *w.shape))
    for step in range(1, order.steps):
        now = order.rows(step)
        ways = np.add(best[order.before(step), :, None], w, out=candidates[: now.stop - now.start])
        best[now] += ways.max(axis=1)
    ends = best[order.last] + end
    path = np.zeros(len(x), np.int64)
    path[order.last] = ends.argmax(axis=1)
    # Where the best path came from is asked of its own tags only, which is cheaper than of all.
    into = np.ascontiguousarray(w.T)
    for step in range(order.steps - 1, 0, -1):
        before = order.before(step)
        path[before] = (best[before] + into[path[order.rows(step)]]).argmax(axis=1)
    return ends.max(axis=1), path


def _ref(
    emission: Array, transition: Array, label: Array | None, length: Array | None, offsets: Array | None, out: Array
) -> None:
    order = TimeMajor(*starts_and_lengths(emission, length, offsets))
    tags = emission.shape[-1]
    flat = np.zeros(emission.size // tags, np.int64)
    if order.count:
        w = transition.astype(np.float64)
        _, path = best_path(order, emission.reshape(-1, tags)[order.index].astype(np.float64), w[0], w[1], w[2:])
        flat[order.index] = path if label is None else path == label.reshape(-1)[order.index]
    out[...] = flat.reshape(out.shape)


def _lower(torch: Any, emission: Any, transition: Any, label: Any, length: Any, offsets: Any) -> Any:
    found = torch.zeros(emission.shape[:-1], dtype=torch.int64)
    start, end, w = transition[0], transition[1], transition[2:]
    for x, y in sequences(emission.double(), found, length, offsets):
        if not len(x):
            continue
        best, origins = x[0] + start, []
        for row in x[1:]:
            best, origin = (best[:, None] + w).max(0)
            best = best + row
            origins.append(origin)
        y[-1] = (best + end).argmax()
        for t in range(len(origins) - 1, -1, -1):
            y[t] = origins[t][y[t + 1]]
    if label is not None:
        right = found == label.reshape(found.shape)
        found.zero_()
        for a, b in sequences(found, right, length, offsets):
            a[...] = b
    return found if length is not None else found[:, None]


register(OpDef(
    "crf_decoding", "Emission, Transition, Label?, Length?, Emission@LOD? -> ViterbiPath", infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="Emission", amp="black",
    indices=(Index("Length", lambda emission, *rest: emission.shape[1] + 1, some=True),),
    domain=Domain(
        cases=(*(Case((*c.shapes[:2], None, *c.shapes[3:])) for c in CASES), CASES[0]), values=VALUES, floats=FLOATS,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip
