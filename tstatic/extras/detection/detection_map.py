"""Mean average precision of detected boxes, over one batch or all so far."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tstatic.extras.detection._boxes import Array, on_host, overlaps
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import check_dtype, check_index, check_rank, check_size
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import LOD, Attr, Case, Domain, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.types import UNKNOWN, Meta, float32, int32

VERSIONS = ("integral", "11point")


def _infer(
    found: Meta, truth: Meta, found_offsets: Meta, truth_offsets: Meta, has_state: Meta | None, counts: Meta | None,
    hits: Meta | None, *, class_num: int,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    for x, slot, sizes in ((found, "DetectRes", (6,)), (truth, "Label", (5, 6))):
        check_dtype(x, ("float32",), slot)
        check_rank(x, 2, slot, layout="[boxes, numbers of a box]")
        if x.shape[1] not in (UNKNOWN, *sizes):
            check_size(x, 1, sizes[-1], slot, why="class, score or difficulty, and four sides")
    return Meta((1,), float32), Meta((class_num,), int32), Meta((UNKNOWN, 3), float32)


def _hits(found: Array, truth: Array, hard: Array, threshold: float) -> Iterator[tuple[float, float, float]]:
    """Yields (class, score, whether it is right) of the boxes found in one image; those on a ``hard`` true box do not count.

    Each takes the true box of its class that it overlaps most. Of several on one, the one with the highest score is right.
    """
    found_class, true_class = found[:, 0].astype(np.int64), truth[:, 0].astype(np.int64)
    for label in np.unique(found_class):
        boxes = found[found_class == label]
        boxes = boxes[np.argsort(-boxes[:, 1], kind="stable")]
        wanted, skipped = truth[true_class == label, -4:], hard[true_class == label]
        if not len(wanted):
            yield from ((label, score, 0.0) for score in boxes[:, 1])
            continue
        shares = overlaps(np, np.clip(boxes[:, None, 2:], 0, 1), wanted[None])
        taken: set[int] = set()
        for score, row in zip(boxes[:, 1], shares, strict=True):
            best = int(row.argmax())
            if row[best] <= threshold:
                yield label, score, 0.0
            elif not skipped[best]:
                yield label, score, float(best not in taken)
                taken.add(best)


def mean_average_precision(hits: Array, counts: Array, version: str) -> float:
    """Returns the mean over the classes of the area under precision over recall; 0 without a true box.

    Args:
        hits: ``[boxes, 3]``: class, score, and whether it is right.
        counts: True boxes of each class; classes without any do not count.
        version: ``"integral"``: precision at each right box; ``"11point"``: the best precision from each tenth of recall on.
    """
    areas = []
    for label in np.flatnonzero(counts):
        mine = hits[hits[:, 0] == label]
        right = np.cumsum(mine[np.argsort(-mine[:, 1], kind="stable"), 2], dtype=np.float64)
        precision, recall = right / np.arange(1, len(right) + 1), right / counts[label]
        if version == "integral":
            areas.append(float(np.sum(precision * np.diff(recall, prepend=0.0))))
        else:
            best = [precision[recall >= tenth / 10.0] for tenth in range(11)]
            areas.append(float(np.mean([values.max(initial=0.0) for values in best])))
    return float(np.mean(areas)) if areas else 0.0


def _ref(
    found: Array, truth: Array, found_offsets: Array, truth_offsets: Array, has_state: Array | None,
    counts: Array | None, hits: Array | None, mean: None, counts_out: None, hits_out: None, *, class_num: int,
    overlap_threshold: float, evaluate_difficult: bool, ap_type: str,
) -> list[Array]:  # fmt: skip
    hard = np.zeros(len(truth), bool)
    if truth.shape[1] == 6 and not evaluate_difficult:
        hard = truth[:, 1] != 0
    new = [
        hit
        for a, b, c, d in zip(found_offsets, found_offsets[1:], truth_offsets, truth_offsets[1:], strict=False)
        for hit in _hits(found[a:b], truth[c:d], hard[c:d], overlap_threshold)
    ]
    every = np.asarray(new, np.float32).reshape(-1, 3)
    labels = truth[:, 0].astype(np.int64)
    check_index(labels, class_num, "Label", fix="pass class_num, the background counted")
    number = np.bincount(labels[~hard], minlength=class_num).astype(np.int32)
    if has_state is not None and has_state.any():
        assert counts is not None
        assert hits is not None
        every, number = np.concatenate([hits, every]), counts + number
    return [np.array([mean_average_precision(every, number, ap_type)], np.float32), number, every]


register(OpDef(
    "detection_map",
    f"DetectRes, Label, DetectRes{LOD}, Label{LOD}, HasState?, PosCount?, Hits? -> MAP, AccumPosCount, AccumHits",
    attrs={
        "class_num": Attr(kind="int"), "overlap_threshold": 0.3, "evaluate_difficult": True,
        "ap_type": Attr("integral", "str", one_of(*VERSIONS)),
    },
    infer=_infer, ref=_ref, lower=on_host(_ref, 3), dynamic=Dynamic("the matches that are found"), paddle=ABSENT,
    state=(("PosCount", "AccumPosCount"), ("Hits", "AccumHits")),
    domain=Domain(
        cases=(
            Case(((40, 6), (30, 6), (3,), (3,)), {"class_num": 4, "evaluate_difficult": False}),
            Case(((40, 6), (30, 5), (3,), (3,)), {"class_num": 4, "ap_type": "11point"}),
            Case(((0, 6), (0, 5), (1,), (1,)), {"class_num": 2}),
        ),
        values={
            "DetectRes": ValueRange(0.0, 1.0), "Label": ValueRange(0.0, 1.0),
            f"DetectRes{LOD}": ValueRange(dtype="int64", offsets="DetectRes.0"),
            f"Label{LOD}": ValueRange(dtype="int64", offsets="Label.0"),
        },
        floats=("float32",), ulps=0,
    ),
))  # fmt: skip
