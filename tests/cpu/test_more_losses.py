"""Losses on distances, margins and likelihoods, and their gradients, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.run_function import compare, run_function
from tstatic import nn
from tstatic.errors import DTypeError, IndexRangeError, ProgramError, ProgramTypeError, ShapeError
from tstatic.nn import functional as F

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
T = torch.nn.functional
RNG = np.random.default_rng(11)
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


A, B, C = normal(5, 4), normal(5, 4), normal(5, 4)
SIGN = RNG.choice([-1.0, 1.0], (5, 4))
CLASSES = RNG.integers(0, 4, (5,))


@pytest.mark.parametrize("p", [1, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("keepdim", [False, True])
def test_pairwise_distance(p: float, keepdim: bool) -> None:
    feeds = {"x": A, "y": B}
    compare(
        lambda x, y: F.pairwise_distance(x, y, p, 0.01, keepdim),
        lambda x, y: T.pairwise_distance(x, y, p, 0.01, keepdim),
        feeds,
    )
    compare(
        lambda x, y: nn.PairwiseDistance(p, keepdim=keepdim)(x, y),
        lambda x, y: T.pairwise_distance(x, y, p, keepdim=keepdim),
        {"x": normal(2, 3, 4), "y": normal(4)},
    )


@REDUCTIONS
@pytest.mark.parametrize("swap", [False, True])
def test_triplet_margin_loss(swap: bool, reduction: str) -> None:
    feeds = {"x": A, "y": B, "z": C}
    for options in ({}, {"p": 1, "margin": 0.25}, {"p": 3, "eps": 0.1}):
        renamed = {("epsilon" if k == "eps" else k): v for k, v in options.items()}
        compare(
            lambda *v: F.triplet_margin_loss(*v, swap=swap, reduction=reduction, **renamed),  # noqa: B023
            lambda *v: T.triplet_margin_loss(*v, swap=swap, reduction=reduction, **options),  # noqa: B023
            feeds,
        )
    compare(
        lambda *v: nn.TripletMarginWithDistanceLoss(
            lambda a, b: F.cosine_similarity(a, b), 0.5, swap=swap, reduction=reduction
        )(*v),
        lambda *v: T.triplet_margin_with_distance_loss(
            *v, distance_function=T.cosine_similarity, margin=0.5, swap=swap, reduction=reduction
        ),
        feeds,
    )
    compare(
        lambda *v: F.triplet_margin_with_distance_loss(*v, swap=swap, reduction=reduction),
        lambda *v: T.triplet_margin_with_distance_loss(*v, swap=swap, reduction=reduction),
        feeds,
    )


def test_triplet_margin_loss_refuses() -> None:
    feeds = {"x": A, "y": B, "z": C}
    with pytest.raises(ProgramError, match="margin"):
        run_function(lambda *v: F.triplet_margin_loss(*v, margin=-1.0), feeds)
    with pytest.raises(ProgramError, match="reduction"):
        run_function(lambda *v: F.triplet_margin_loss(*v, reduction="avg"), feeds)
    with pytest.raises(ShapeError, match="different shapes"):
        run_function(F.triplet_margin_loss, {**feeds, "z": normal(5, 3)})
    with pytest.raises(ProgramTypeError, match="distance_function"):
        run_function(lambda *v: F.triplet_margin_with_distance_loss(*v, distance_function=2), feeds)


@REDUCTIONS
def test_cosine_embedding_loss(reduction: str) -> None:
    for margin in (0, 0.3, -0.5):
        for a, b, sign in ((A, B, np.array([1, -1, 1, -1, -1])), (A, B, np.array([1.0, -1, 1, 1, -1]))):
            compare(
                lambda x, y, s: nn.CosineEmbeddingLoss(margin, reduction)(x, y, s),  # noqa: B023
                lambda x, y, s: T.cosine_embedding_loss(x, y, s.detach(), margin, reduction=reduction),  # noqa: B023
                {"x": a, "y": b, "s": sign},
            )


def test_cosine_embedding_loss_of_zeros_is_finite() -> None:
    loss, dx = run_function(
        lambda x, y, s: F.cosine_embedding_loss(x, y, s),
        {"x": np.zeros((2, 3)), "y": np.ones((2, 3)), "s": np.array([1, -1])},
        grads=True,
    )[:2]
    assert loss == 0.5
    assert np.isfinite(dx).all()


def test_cosine_embedding_loss_refuses() -> None:
    with pytest.raises(ShapeError, match="do not fit"):
        run_function(F.cosine_embedding_loss, {"x": A, "y": B, "s": np.ones((5, 1))})
    with pytest.raises(ShapeError, match="different shapes"):
        run_function(F.cosine_embedding_loss, {"x": A, "y": normal(5, 3), "s": np.ones(5)})
    with pytest.raises(DTypeError, match="input1"):
        run_function(F.cosine_embedding_loss, {"x": CLASSES, "y": CLASSES, "s": np.ones(5)})


@REDUCTIONS
def test_hinge_embedding_loss(reduction: str) -> None:
    for margin in (1.0, 0.2):
        compare(
            lambda x, y: nn.HingeEmbeddingLoss(margin, reduction)(x, y),  # noqa: B023
            lambda x, y: T.hinge_embedding_loss(x, y.detach(), margin, reduction=reduction),  # noqa: B023
            {"x": A, "y": SIGN},
        )
    with pytest.raises(DTypeError, match="label"):
        run_function(F.hinge_embedding_loss, {"x": A, "y": SIGN.astype("int64")})


@REDUCTIONS
def test_soft_margin_loss(reduction: str) -> None:
    for sign in (SIGN, SIGN.astype("int64")):
        compare(
            lambda x, y: nn.SoftMarginLoss(reduction)(x, y),
            lambda x, y: T.soft_margin_loss(x, y.detach(), reduction=reduction),
            {"x": A, "y": sign},
        )
    with pytest.raises(ShapeError, match="different shapes"):
        run_function(F.soft_margin_loss, {"x": A, "y": normal(5, 3)})


def test_soft_margin_loss_of_large_scores_is_finite() -> None:
    (loss,) = run_function(
        lambda x, y: F.soft_margin_loss(x, y, "none"), {"x": np.array([1e4, 1e4]), "y": np.array([-1.0, 1.0])}
    )
    np.testing.assert_array_equal(loss, [1e4, 0.0])


@REDUCTIONS
def test_multi_label_soft_margin_loss(reduction: str) -> None:
    hot, weight = (SIGN + 1) / 2, RNG.random(4) + 0.5
    compare(
        lambda x, y: F.multi_label_soft_margin_loss(x, y, reduction=reduction),
        lambda x, y: T.multilabel_soft_margin_loss(x, y.detach(), reduction=reduction),
        {"x": A, "y": hot},
    )
    compare(
        lambda x, y, w: nn.MultiLabelSoftMarginLoss(w, reduction)(x, y),
        lambda x, y, w: T.multilabel_soft_margin_loss(x, y.detach(), w.detach(), reduction=reduction),
        {"x": A, "y": hot, "w": weight},
        False,
    )
    with pytest.raises(ShapeError, match="different shapes"):
        run_function(F.multi_label_soft_margin_loss, {"x": A, "y": normal(5, 3)})


@REDUCTIONS
def test_multi_margin_loss(reduction: str) -> None:
    for p, margin in ((1, 1.0), (2, 0.7)):
        compare(
            lambda x, y: nn.MultiMarginLoss(p, margin, reduction=reduction)(x, y),  # noqa: B023
            lambda x, y: T.multi_margin_loss(x, y, p, margin, reduction=reduction),  # noqa: B023
            {"x": A, "y": CLASSES},
        )
    compare(
        lambda x, y, w: F.multi_margin_loss(x, y, weight=w, reduction=reduction),
        lambda x, y, w: T.multi_margin_loss(x, y, weight=w.detach(), reduction=reduction),
        {"x": A, "y": CLASSES, "w": RNG.random(4) + 0.5},
        False,
    )


def test_multi_margin_loss_refuses() -> None:
    with pytest.raises(ShapeError, match="do not fit"):
        run_function(F.multi_margin_loss, {"x": A, "y": CLASSES[:, None]})
    with pytest.raises(DTypeError, match="label"):
        run_function(F.multi_margin_loss, {"x": A, "y": normal(5)})
    with pytest.raises(ShapeError, match="weight"):
        run_function(
            lambda x, y, w: F.multi_margin_loss(x, y, weight=w), {"x": A, "y": CLASSES, "w": normal(3)}, unknown=False
        )
    with pytest.raises(IndexRangeError):
        run_function(F.multi_margin_loss, {"x": A, "y": CLASSES + 4})


@REDUCTIONS
@pytest.mark.parametrize("full", [False, True])
def test_poisson_nll_loss(full: bool, reduction: str) -> None:
    counts = RNG.integers(0, 6, (5, 4)).astype("float64")
    for log_input in (True, False):
        compare(
            lambda x, y: nn.PoissonNLLLoss(log_input, full, 1e-3, reduction)(x, y),  # noqa: B023
            lambda x, y: T.poisson_nll_loss(x, y.detach(), log_input, full, eps=1e-3, reduction=reduction),  # noqa: B023
            {"x": np.abs(A) + 0.1, "y": counts},
        )


def test_poisson_nll_loss_has_a_finite_gradient_by_its_counts() -> None:
    results = run_function(
        lambda x, y: F.poisson_nll_loss(x, y, full=True), {"x": A[0], "y": np.array([0.0, 1, 2, 3])}, grads=True
    )
    assert all(np.isfinite(value).all() for value in results)
    with pytest.raises(ProgramError, match="epsilon"):
        run_function(lambda x, y: F.poisson_nll_loss(x, y, epsilon=0.0), {"x": A, "y": B})


@REDUCTIONS
@pytest.mark.parametrize("full", [False, True])
def test_gaussian_nll_loss(full: bool, reduction: str) -> None:
    for spread in (np.abs(C) + 0.1, np.abs(C[:, :1]) + 0.1, np.abs(C[:, 0]) + 0.1):
        compare(
            lambda x, y, v: nn.GaussianNLLLoss(full, reduction=reduction)(x, y, v),
            lambda x, y, v: T.gaussian_nll_loss(x, y, v, full, reduction=reduction),
            {"x": A, "y": B, "v": spread},
        )


def test_gaussian_nll_loss_refuses() -> None:
    for shape in ((5, 3), (4, 4, 5), (4,)):
        with pytest.raises(ShapeError, match="do not fit"):
            run_function(F.gaussian_nll_loss, {"x": A, "y": B, "v": np.ones(shape)}, unknown=False)


def test_npair_loss() -> None:
    kinds = np.array([0, 1, 0, 2, 1])

    def theirs(x: Any, y: Any, k: Any) -> Any:
        target = (k[:, None] == k[None]).double()
        decay = x.square().sum(1).mean() + y.square().sum(1).mean()
        return T.cross_entropy(x @ y.T, target / target.sum(1, keepdim=True)) + 0.25 * 0.01 * decay

    compare(lambda x, y, k: F.npair_loss(x, y, k, 0.01), theirs, {"x": A, "y": B, "k": kinds})
    with pytest.raises(ShapeError, match="different shapes"):
        run_function(F.npair_loss, {"x": A, "y": normal(5, 3), "k": kinds})
    with pytest.raises(ShapeError, match="do not fit"):
        run_function(F.npair_loss, {"x": A, "y": B, "k": kinds[:, None]})


@REDUCTIONS
def test_layers_of_triplets_take_their_settings_in_the_order_of_paddle(reduction: str) -> None:
    compare(
        lambda *v: nn.TripletMarginLoss(0.5, 3.0, 1e-5, True, reduction)(*v),
        lambda *v: T.triplet_margin_loss(*v, 0.5, 3.0, 1e-5, True, reduction=reduction),
        {"x": A, "y": B, "z": C},
    )
