"""Squared distances to the centres of classes, which move towards their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import (
    INTEGERS,
    check_dtype,
    check_has_shape,
    check_one_element,
    check_rank,
    check_same_dtype,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, Index, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.types import Meta

Array = np.ndarray[Any, Any]


def _infer(x: Meta, label: Meta, centers: Meta, rate: Meta, *, cluster_num: int) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, ("float32", "float64"), "X")
    check_rank(x, 2, "X", layout="[batch, features]")
    check_dtype(label, INTEGERS, "Label")
    check_has_shape(label, (x.shape[0], 1)[: len(label.shape) or 1], "Label", why="a class per row")
    check_same_dtype((x, centers), ("X", "Centers"))
    check_has_shape(centers, (cluster_num, x.shape[1]), "Centers", why="a row per class")
    check_one_element(rate, "CenterUpdateRate")
    return x, x.with_shape((x.shape[0], 1)), centers


def _ref(
    x: Array,
    label: Array,
    centers: Array,
    rate: Array,
    away: Array | None,
    loss: Array | None,
    moved: Array | None,
    *,
    cluster_num: int,
    need_update: bool,
) -> None:
    classes = label.reshape(-1)
    difference = x - centers[classes]
    if away is not None:
        away[...] = difference
    if loss is not None:
        np.einsum("nd,nd->n", difference, difference, out=loss[:, 0])
        loss *= 0.5
    if moved is not None:
        if moved is not centers:
            np.copyto(moved, centers)
        if need_update:
            total = np.zeros(centers.shape, centers.dtype)
            # Not `total[classes] += difference`, which keeps only one of several rows of a class.
            np.add.at(total, classes, difference)
            count = np.bincount(classes, minlength=cluster_num).astype(centers.dtype)
            # 1 + count, as in the paper (Wen et al., 2016): a class without rows stays, without 0 / 0.
            moved += rate.reshape(()).astype(centers.dtype) * total / (1 + count)[:, None]


def _lower(
    torch: Any, x: Any, label: Any, centers: Any, rate: Any, *, cluster_num: int, need_update: bool
) -> Any:  # fmt: skip
    classes = label.reshape(-1).long()
    away = x - centers[classes]
    moved = centers.clone()
    if need_update:
        total = torch.zeros_like(centers).index_add(0, classes, away)
        count = torch.zeros_like(centers[:, 0]).index_add(0, classes, torch.ones_like(away[:, 0]))
        moved = centers + rate.reshape(()).to(centers.dtype) * total / (1 + count)[:, None]
    return away, 0.5 * (away * away).sum(1, keepdim=True), moved


register(OpDef(
    "center_loss", "X, Label, Centers, CenterUpdateRate -> SampleCenterDiff~, Loss, CentersOut",
    attrs={"cluster_num": Attr(kind="int"), "need_update": True},
    indices=(Index(
        "Label", lambda x, label, centers, rate, *, cluster_num: cluster_num, fix="feed classes below num_classes={size}"
    ),),
    infer=_infer, ref=_ref, lower=_lower, state=(("Centers", "CentersOut"),), uses_blas=True, amp="black", paddle=ABSENT,
    grad=GradOp(
        # Half the squared distance, so the gradient by X is the distance itself; the centres get none.
        "SampleCenterDiff, Loss@GRAD -> X@GRAD", infer=lambda away, dloss: away,
        ref=lambda away, dloss, dx: np.multiply(away, dloss, out=dx),
        lower=lambda torch, away, dloss: away * dloss,
    ),
    domain=Domain(
        cases=(
            Case(((4, 3), (4, 1), (5, 3), (1,)), {"cluster_num": 5}),
            Case(((3, 2), (3,), (2, 2), (1,)), {"cluster_num": 2, "need_update": False}),
            Case(((0, 2), (0, 1), (2, 2), (1,)), {"cluster_num": 2}),
        ),
        values={"Label": ValueRange(0, "Centers.0", dtype="int64")}, floats=("float32", "float64"), ulps=32.0,
    ),
))  # fmt: skip
