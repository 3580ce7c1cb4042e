"""Loss functions and their gradients, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import compare, normal, run_function
from tests.ops.gradcheck import check_grad
from tests.ops.oracles import check_infer, check_infer_unknown, check_inplace, check_lower
from tests.ops.sampler import samples
from tstatic import fluid, static
from tstatic.errors import DTypeError, IndexRangeError, ProgramError, ShapeError
from tstatic.ir.opdef import Case, Domain, ValueRange, op_def, with_
from tstatic.nn import functional as F

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
T = torch.nn.functional
RNG = np.random.default_rng(7)


SCORES, CLASSES, WEIGHT = normal(6, 4), RNG.integers(0, 4, (6,)), RNG.random(4) + 0.5
SOFT = np.exp(normal(6, 4))
SOFT /= SOFT.sum(1, keepdims=True)
IMAGE, MASK = normal(2, 4, 3, 5), RNG.integers(0, 4, (2, 3, 5))


@pytest.mark.parametrize("unknown", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str, unknown: bool) -> None:
    def ours(x: Any, y: Any, **options: Any) -> Any:
        return F.cross_entropy(x, y, reduction=reduction, **options)

    def theirs(x: Any, y: Any, **options: Any) -> Any:
        return T.cross_entropy(x, y, reduction=reduction, **options)

    feeds = {"x": SCORES, "y": CLASSES}
    compare(ours, theirs, feeds, unknown)
    compare(lambda x, y: ours(x, y, ignore_index=2), lambda x, y: theirs(x, y, ignore_index=2), feeds, unknown)
    compare(
        lambda x, y: ours(x, y, label_smoothing=0.2), lambda x, y: theirs(x, y, label_smoothing=0.2), feeds, unknown
    )
    compare(lambda x, y: ours(x, y, axis=1), theirs, {"x": IMAGE, "y": MASK}, unknown)
    if not unknown:
        for options in ({}, {"ignore_index": 1}):
            compare(
                lambda x, y, w: ours(x, y, weight=w, **options),  # noqa: B023
                lambda x, y, w: theirs(x, y, weight=w.detach(), **options),  # noqa: B023
                {**feeds, "w": WEIGHT},
                False,
            )
        compare(
            lambda x, y, w: ours(x, y, weight=w, axis=1, ignore_index=3),
            lambda x, y, w: theirs(x, y, weight=w.detach(), ignore_index=3),
            {"x": IMAGE, "y": MASK, "w": WEIGHT},
            False,
        )
    compare(
        lambda x, y: ours(x, y, soft_label=True),
        lambda x, y: T.cross_entropy(x, y.detach(), reduction=reduction),
        {"x": SCORES, "y": SOFT},
        unknown,
    )


def test_cross_entropy_of_soft_labels_with_weights_divides_by_their_sum() -> None:
    feeds = {"x": SCORES, "y": SOFT, "w": WEIGHT}

    def theirs(x: Any, y: Any, w: Any) -> Any:
        factor = y.detach() @ w.detach()
        return -(y.detach() * x.log_softmax(1)).sum(1).mul(factor).sum() / factor.sum()

    compare(lambda x, y, w: F.cross_entropy(x, y, w, soft_label=True), theirs, feeds, False)
    moved = {"x": SCORES.T.copy(), "y": SOFT.T.copy(), "w": WEIGHT}
    compare(
        lambda x, y, w: F.cross_entropy(x, y, w, soft_label=True, axis=0),
        lambda x, y, w: theirs(x.T, y.T, w),
        moved,
        False,
    )


def test_the_mean_counts_ignored_rows_where_the_ignored_number_is_negative() -> None:
    """Paddle 2.6.2 prints these means of four rows, of which one is ignored; torch, and ``nll_loss``, divide by three."""
    scores = np.arange(12).reshape(4, 3).astype("float32") % 5 / 5
    numbers = np.array([0, -1, 2, 1])
    x, y = static.data("x", [4, 3]), static.data("y", [4], "int64")
    means = [F.cross_entropy(x, y, ignore_index=-1), F.nll_loss(F.log_softmax(x), y, ignore_index=-1)]
    theirs = T.cross_entropy(torch.from_numpy(scores.copy()), torch.from_numpy(numbers.copy()), ignore_index=-1)
    got = static.Executor().run(feed={"x": scores, "y": numbers}, fetch_list=means)
    np.testing.assert_allclose(got, [0.9290050268173218, 1.2386733293533325], rtol=1e-6)
    np.testing.assert_allclose(got[1], theirs.item(), rtol=1e-6)
    # Of a number of 0 or more all three divide by the rows that count.
    numbers[1] = 1
    got = static.Executor().run(
        feed={"x": scores, "y": numbers},
        fetch_list=[F.cross_entropy(x, y, ignore_index=1), F.nll_loss(F.log_softmax(x), y, ignore_index=1)],
    )
    np.testing.assert_allclose(got, [1.1119015216827393] * 2, rtol=1e-6)


def test_cross_entropy_of_probabilities() -> None:
    feeds = {"x": SOFT, "y": CLASSES}
    compare(lambda x, y: F.cross_entropy(x, y, use_softmax=False), lambda x, y: T.nll_loss(x.log(), y), feeds)


def test_cross_entropy_where_everything_is_ignored_is_0() -> None:
    feeds = {"x": SCORES, "y": np.full((6,), 2)}
    loss, dx = run_function(lambda x, y: F.cross_entropy(x, y, ignore_index=2), feeds, grads=True)
    assert loss == 0
    assert (dx == 0).all()


def test_cross_entropy_refuses() -> None:
    feeds = {"x": SCORES, "y": CLASSES}
    with pytest.raises(ProgramError, match="reduction"):
        run_function(lambda x, y: F.cross_entropy(x, y, reduction="avg"), feeds)
    with pytest.raises(ShapeError, match="rank"):
        run_function(F.cross_entropy, {"x": IMAGE, "y": CLASSES})
    with pytest.raises(ShapeError, match="weight"):
        run_function(lambda x, y, w: F.cross_entropy(x, y, w), {**feeds, "w": normal(5)}, unknown=False)
    with pytest.raises(DTypeError, match="class numbers"):
        run_function(F.cross_entropy, {"x": SCORES, "y": normal(6)})
    with pytest.raises(ProgramError, match="ignored"):
        run_function(lambda x, y: F.cross_entropy(x, y, soft_label=True, ignore_index=1), {"x": SCORES, "y": SOFT})


@pytest.mark.parametrize(
    "build",
    [
        F.cross_entropy,
        lambda x, y: F.nll_loss(F.log_softmax(x), y),
        lambda x, y: fluid.layers.cross_entropy(F.softmax(x), paddle.unsqueeze(y, 1)),
        lambda x, y: F.softmax_with_cross_entropy(x, paddle.unsqueeze(y, 1)),
    ],
)
@pytest.mark.parametrize("bad", [4, -1, -101, 2**62])
def test_a_class_out_of_range_is_an_error(build: Any, bad: int) -> None:
    with pytest.raises(IndexRangeError, match="out of range") as caught:
        run_function(build, {"x": SCORES, "y": np.array([0, 1, 2, bad, 0, 1])})
    assert str(bad) in str(caught.value)
    assert ".py:" in str(caught.value)


def test_softmax_with_cross_entropy_and_the_gradient_through_its_softmax() -> None:
    label = CLASSES[:, None]

    def ours(x: Any, y: Any) -> Any:
        loss, softmax = F.softmax_with_cross_entropy(x, y, return_softmax=True)
        return paddle.sum(loss) + paddle.sum(paddle.square(softmax))

    def theirs(x: Any, y: Any) -> Any:
        return T.cross_entropy(x, y[:, 0], reduction="sum") + x.softmax(1).square().sum()

    compare(ours, theirs, {"x": SCORES, "y": label})
    compare(
        lambda x, y: paddle.sum(paddle.square(F.softmax_with_cross_entropy(x, y, return_softmax=True)[1])),
        lambda x, y: x.softmax(1).square().sum(),
        {"x": SCORES, "y": label},
    )


@pytest.mark.parametrize("use_softmax", [True, False])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_soft_labels_by_the_generic_oracles(use_softmax: bool, axis: int) -> None:
    """The op's domain has class numbers; distributions are sampled here."""
    shapes = (
        ((3, 4), (2, 4, 3), (5,), (0, 4), (1, 1), (6, 30)) if axis < 0 else ((3, 4), (2, 4, 3), (4, 2), (1, 1), (2, 0))
    )
    attrs = {"soft_label": True, "axis": axis, "use_softmax": use_softmax}
    definition = op_def("softmax_with_cross_entropy")
    soft = with_(
        definition,
        domain=Domain(
            cases=tuple(Case((s, s), attrs) for s in shapes),
            values={
                "Logits": ValueRange(-2.0, 2.0) if use_softmax else ValueRange(0.25, 1.0),
                "Label": ValueRange(0.0, 1.0),
            },
            ulps=24.0,
        ),
    )
    for sample in samples(soft, 40):
        check_infer(soft, sample)
        check_infer_unknown(soft, sample)
        check_lower(soft, sample)
        check_inplace(soft, sample)
    for sample in samples(soft, 12, ("float64",)):
        check_grad(soft, sample)


def test_soft_labels_of_the_1x_cross_entropy_by_the_generic_oracles() -> None:
    definition = op_def("cross_entropy")
    soft = with_(
        definition,
        domain=Domain(
            cases=tuple(Case((s, s), {"soft_label": True}) for s in ((3, 4), (2, 3, 4), (5,), (0, 4), (1, 1))),
            values={"X": ValueRange(0.25, 1.0), "Label": ValueRange(0.0, 1.0)},
            ulps=24.0,
        ),
    )
    for sample in samples(soft, 40):
        check_infer(soft, sample)
        check_lower(soft, sample)
    for sample in samples(soft, 12, ("float64",)):
        check_grad(soft, sample)


def test_1x_cross_entropy() -> None:
    feeds = {"x": SOFT, "y": CLASSES[:, None]}
    compare(fluid.layers.cross_entropy, lambda x, y: T.nll_loss(x.log(), y[:, 0], reduction="none")[:, None], feeds)
    compare(
        lambda x, y: fluid.layers.cross_entropy(x, y, soft_label=True),
        lambda x, y: -(y.detach() * x.log()).sum(1, keepdim=True),
        {"x": SOFT, "y": np.roll(SOFT, 1, 0).copy()},
    )


ENTROPIES = {
    "functional": lambda p, y, **how: F.cross_entropy(p, y, reduction="none", use_softmax=False, **how),
    "1.x": lambda p, y, **how: fluid.layers.cross_entropy(p, y, **how),
}
ENTROPY = pytest.mark.parametrize("entropy", ENTROPIES.values(), ids=ENTROPIES)
FAR = np.array([[0, -800, 0.5, 1], [3, 0.5, -900, 2], [1, 2, 3, -1], [-1500, 0, 1, 2]])
FAR_CLASSES, FAR_SOFT = np.array([[1], [2], [0], [3]]), np.roll(np.eye(4), 1, 1) * 0.75 + 0.25 / 3
FLOORS = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}


@ENTROPY
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("dtype", FLOORS)
def test_the_gradient_through_a_softmax_that_is_0_is_that_of_the_joint_operator(
    entropy: Any, soft: bool, dtype: str
) -> None:
    """The probability of rows 0 and 1's label is 0: its logarithm stops at the smallest normal number."""
    how = {"soft_label": soft}

    def both(x: Any, y: Any) -> Any:
        z = paddle.cast(x, dtype)
        label = paddle.cast(y, dtype) if soft else y
        p = F.softmax(z)
        ours = entropy(p, label, **how)
        joint = F.softmax_with_cross_entropy(z, label, **how)
        grads = [paddle.cast(static.gradients([v], [x])[0], "float64") for v in (ours, joint)]
        return *(paddle.cast(v, "float64") for v in (ours, p)), *grads

    loss, p, found, expected = run_function(both, {"x": FAR, "y": FAR_SOFT if soft else FAR_CLASSES})
    weights = FAR_SOFT if soft else np.eye(4)[FAR_CLASSES[:, 0]]
    floored = -(weights * np.log(np.maximum(p, FLOORS[dtype]))).sum(1, keepdims=True)
    assert p.min() == 0
    eps = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(loss, floored, rtol=eps, atol=eps)
    np.testing.assert_allclose(found, expected, rtol=eps)


@ENTROPY
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_gradient_of_given_probabilities_stops_at_the_smallest_normal_number(
    entropy: Any, soft: bool, dtype: str
) -> None:
    p, tiny = np.array([[0.5, 0.5, 0], [0, 1e-310, 1], [np.nan, 0.5, 0.5]]).astype(dtype), FLOORS[dtype]
    label = np.array([[2], [1], [0]])
    hot = np.eye(3)[label[:, 0]].astype(dtype)
    feeds = {"p": p, "y": hot if soft else label}

    def both(p: Any, y: Any) -> Any:
        loss = entropy(p, y, soft_label=soft)
        return loss, static.gradients([loss], [p])[0]

    loss, dp = run_function(both, feeds)
    np.testing.assert_allclose(loss, [[-np.log(tiny)], [-np.log(tiny)], [np.nan]], rtol=1e-6)
    np.testing.assert_allclose(dp[:2], -hot[:2] / tiny, rtol=1e-6)
    assert np.isnan(dp[2, 0])


@ENTROPY
def test_ignored_rows_and_weights_of_a_softmax_that_is_0(entropy: Any) -> None:
    def both(x: Any, y: Any, w: Any) -> Any:
        ours, joint = entropy(F.softmax(x), y, ignore_index=2), F.softmax_with_cross_entropy(x, y, ignore_index=2)
        return [static.gradients([paddle.sum(v * w)], [x])[0] for v in (ours, joint)]

    found, expected = run_function(both, {"x": FAR, "y": FAR_CLASSES, "w": np.array([[2.0], [3], [4], [5]])})
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert (found[1] == 0).all()
    assert found[0, 1] == -2


@pytest.mark.parametrize("axis", [0, 1])
def test_the_joint_gradient_needs_a_softmax_along_the_same_axis(axis: int) -> None:
    """Along the other axis the classes' probabilities do not add up to 1: the two gradients are multiplied."""
    feeds = {"x": IMAGE, "y": np.expand_dims(MASK, 1)}
    theirs = lambda x, y: -x.softmax(axis + 1).log().gather(1, y)  # noqa: E731
    compare(
        lambda x, y: F.cross_entropy(F.softmax(x, axis + 1), y, axis=1, use_softmax=False, reduction="none"),
        theirs,
        feeds,
    )


def test_the_joint_gradient_survives_copies_and_files() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = static.data("x", [None, 4], "float64"), static.data("y", [None, 1], "int64")
        x.stop_gradient = False
        loss = paddle.sum(fluid.layers.cross_entropy(F.softmax(x * 1.0), y))
    program = static.Program.parse_from_string(main.clone()._prune([loss]).desc.serialize_to_string())
    with static.program_guard(program, static.Program()):
        block = program.global_block()
        (grad,) = static.gradients([block.var(loss.name)], [block.var("x")])
    (found,) = static.Executor().run(program, feed={"x": FAR, "y": FAR_CLASSES}, fetch_list=[grad])
    np.testing.assert_array_equal(found[[0, 1], [1, 2]], [-1, -1])


def test_probabilities_have_their_own_gradient_and_may_stop_it() -> None:
    def given(x: Any, y: Any) -> Any:
        p = F.softmax(x)
        loss = fluid.layers.cross_entropy(p, y)
        (dp,) = static.gradients([loss], [p])
        p.stop_gradient = True
        assert static.gradients([loss], [x]) == [None]
        return dp

    (dp,) = run_function(given, {"x": SCORES, "y": CLASSES[:, None]})
    p = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    np.testing.assert_allclose(dp, -np.eye(4)[CLASSES] / p, rtol=1e-12)


def test_a_gradient_of_the_probabilities_that_is_asked_for_beside_that_of_the_scores_is_whole() -> None:
    def both(x: Any, y: Any) -> Any:
        p = F.softmax(x)
        loss = F.cross_entropy(p, y, use_softmax=False)
        return static.gradients([loss], [x, p])

    dx, dp = run_function(both, {"x": SCORES, "y": CLASSES[:, None]})
    p = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    hot = np.eye(4)[CLASSES]
    np.testing.assert_allclose(dx, (p - hot) / len(p), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dp, -hot / p / len(p), rtol=1e-12)


def test_logits_that_are_written_again_get_no_gradient_of_the_softmax_before() -> None:
    def rewritten(x: Any, y: Any) -> Any:
        z = x * 1.0
        p = F.softmax(z)
        paddle.assign(x * 3.0, output=z)
        loss = F.cross_entropy(p, y, use_softmax=False)
        return loss, static.gradients([loss], [x])[0]

    _, found = run_function(rewritten, {"x": SCORES, "y": CLASSES[:, None]})
    p = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
    np.testing.assert_allclose(found, (p - np.eye(4)[CLASSES]) / len(p), rtol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss(reduction: str) -> None:
    options = {"reduction": reduction, "ignore_index": 1}
    for x, y in ((SCORES, CLASSES), (IMAGE, MASK), (normal(2, 4, 3), RNG.integers(0, 4, (2, 3)))):
        compare(lambda x, y: F.nll_loss(x, y, **options), lambda x, y: T.nll_loss(x, y, **options), {"x": x, "y": y})
        compare(
            lambda x, y, w: F.nll_loss(x, y, w, **options),
            lambda x, y, w: T.nll_loss(x, y, w.detach(), **options),
            {"x": x, "y": y, "w": WEIGHT},
            False,
        )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_binary_losses(reduction: str) -> None:
    p, y = RNG.random((3, 4)) * 0.9 + 0.05, RNG.random((3, 4))
    w, pw = RNG.random((3, 4)), RNG.random(4) + 0.5
    how = {"reduction": reduction}
    compare(
        lambda p, y: F.binary_cross_entropy(p, y, **how),
        lambda p, y: T.binary_cross_entropy(p, y.detach(), **how),
        {"p": p, "y": y},
    )
    compare(
        lambda p, y, w: F.binary_cross_entropy(p, y, w, **how),
        lambda p, y, w: T.binary_cross_entropy(p, y.detach(), w.detach(), **how),
        {"p": p, "y": y, "w": w},
    )
    x = 3 * normal(3, 4)
    compare(
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, **how),
        lambda x, y: T.binary_cross_entropy_with_logits(x, y.detach(), **how),
        {"x": x, "y": y},
    )
    compare(
        lambda x, y, w, q: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=q, **how),
        lambda x, y, w, q: T.binary_cross_entropy_with_logits(x, y.detach(), w.detach(), pos_weight=q.detach(), **how),
        {"x": x, "y": y, "w": w, "q": pw},
        False,
    )
    hard = (y > 0.5).astype(float)

    def focal(x: Any, y: Any) -> Any:
        q = torch.sigmoid(x)
        right = q * y + (1 - q) * (1 - y)
        loss = T.binary_cross_entropy_with_logits(x, y, reduction="none")
        loss = (0.25 * y + 0.75 * (1 - y)) * (1 - right) ** 2 * loss
        return {"mean": loss.mean(), "sum": loss.sum(), "none": loss}[reduction]

    compare(lambda x, y: F.sigmoid_focal_loss(x, y, **how), lambda x, y: focal(x, y.detach()), {"x": x, "y": hard})


def test_sigmoid_cross_entropy_ignores_and_normalises() -> None:
    x, y = normal(3, 4), RNG.random((3, 4))
    y[0, :2] = -100
    kept = torch.from_numpy(y != -100)

    def theirs(x: Any, y: Any) -> Any:
        return torch.where(kept, T.binary_cross_entropy_with_logits(x, y.detach(), reduction="none"), 0) / kept.sum()

    compare(lambda x, y: fluid.layers.sigmoid_cross_entropy_with_logits(x, y, normalize=True), theirs, {"x": x, "y": y})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_distances(reduction: str) -> None:
    feeds = {"x": normal(3, 4), "y": normal(3, 4)}
    how = {"reduction": reduction}
    compare(lambda x, y: F.mse_loss(x, y, **how), lambda x, y: T.mse_loss(x, y, **how), feeds)
    compare(lambda x, y: F.l1_loss(x, y, **how), lambda x, y: T.l1_loss(x, y, **how), feeds)
    compare(
        lambda x, y: F.smooth_l1_loss(x, y, delta=0.7, **how), lambda x, y: T.huber_loss(x, y, delta=0.7, **how), feeds
    )

    def divergence(x: Any, y: Any) -> Any:
        losses = T.kl_div(x, y.detach(), reduction="none")
        return {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]

    compare(lambda x, y: F.kl_div(x, y, **how), divergence, {"x": SCORES, "y": SOFT})
    label = np.sign(normal(3, 4))
    compare(
        lambda x, y, s: F.margin_ranking_loss(x, y, s, margin=0.3, **how),
        lambda x, y, s: T.margin_ranking_loss(x, y, s.detach(), margin=0.3, **how),
        {**feeds, "s": label},
    )


def test_kl_div_over_a_batch() -> None:
    feeds = {"x": SCORES, "y": SOFT}
    compare(
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        lambda x, y: T.kl_div(x, y.detach(), reduction="batchmean"),
        feeds,
    )
    assert run_function(fluid.layers.kldiv_loss, feeds)[0].shape == (1,)


def test_1x_distances() -> None:
    feeds = {"x": normal(3, 4), "y": normal(3, 4)}
    compare(F.square_error_cost, lambda x, y: (x - y) ** 2, feeds)
    compare(lambda x, y: fluid.layers.mse_loss(x, y), lambda x, y: T.mse_loss(x, y)[None], feeds)
    compare(
        lambda x, y: fluid.layers.huber_loss(x, y, 0.5),
        lambda x, y: T.huber_loss(x, y, delta=0.5, reduction="none"),
        feeds,
    )

    def smooth(x: Any, y: Any, i: Any, o: Any) -> Any:
        d = (x - y) * i.detach()
        loss = torch.where(d.abs() < 0.25, 2 * d * d, d.abs() - 0.125) * o.detach()
        return loss.sum(1, keepdim=True)

    compare(
        lambda x, y, i, o: fluid.layers.smooth_l1(x, y, i, o, sigma=2.0),
        smooth,
        {**feeds, "i": RNG.random((3, 4)), "o": RNG.random((3, 4))},
    )


def test_square_error_cost_is_named_as_one_layer() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 2])
        assert F.square_error_cost(x, x).name == "square_error_cost_0.tmp_1"
        assert [op.type for op in main.global_block().ops] == ["elementwise_sub", "square"]


def test_ranking() -> None:
    left, right, y = normal(5, 1), normal(5, 1), RNG.random((5, 1))
    compare(
        lambda a, b, y: fluid.layers.rank_loss(y, a, b),
        lambda a, b, y: T.softplus(a - b) - y.detach() * (a - b),
        {"a": left, "b": right, "y": y},
    )
    label = np.sign(normal(5, 1))
    compare(
        lambda a, b, y: fluid.layers.margin_rank_loss(y, a, b, margin=0.2),
        lambda a, b, y: torch.relu(0.2 - y.detach() * (a - b)),
        {"a": left, "b": right, "y": label},
    )

    def bpr(x: Any, y: Any) -> Any:
        gaps = T.softplus(x - x.gather(1, y))
        others = torch.ones_like(x).scatter(1, y, 0.0)
        return (gaps * others).sum(1, keepdim=True) / 3

    compare(lambda x, y: fluid.layers.bpr_loss(x, y), bpr, {"x": SCORES, "y": CLASSES[:, None]})


def test_dice_and_smoothing() -> None:
    def dice(x: Any, y: Any) -> Any:
        hot = T.one_hot(y[..., 0], 4).to(x.dtype)
        inner = (x * hot).sum((1, 2))
        return (1 - 2 * inner / (x.sum((1, 2)) + hot.sum((1, 2)) + 1e-5)).mean()

    x = RNG.random((2, 3, 4))
    compare(F.dice_loss, dice, {"x": x, "y": RNG.integers(0, 4, (2, 3, 1))})
    compare(lambda x: F.label_smooth(x, epsilon=0.2), lambda x: 0.8 * x + 0.05, {"x": SOFT})
    compare(
        lambda x, p: fluid.layers.label_smooth(x, p, dtype="float64"),
        lambda x, p: 0.9 * x + 0.1 * p.detach(),
        {"x": SOFT, "p": SOFT[:1].copy()},
        False,
    )


def test_softmax_and_its_second_order() -> None:
    for axis in (-1, 0, 1):
        feeds = {"x": normal(3, 4, 2)}
        compare(lambda x: F.softmax(x, axis), lambda x: x.softmax(axis), feeds, False)  # noqa: B023
        compare(lambda x: F.log_softmax(x, axis), lambda x: x.log_softmax(axis), feeds, False)  # noqa: B023

    def ours(x: Any) -> Any:
        return paddle.square(static.gradients([paddle.sum(paddle.square(F.softmax(x)))], [x])[0])

    def theirs(x: Any) -> Any:
        return torch.autograd.grad(x.softmax(-1).square().sum(), x, create_graph=True)[0].square()

    compare(ours, theirs, {"x": SCORES})
    half = run_function(lambda x: F.softmax(x, dtype="float64"), {"x": SCORES.astype(np.float32)})[0]
    assert half.dtype == np.float64


@pytest.mark.parametrize(("reduction", "total"), [("none", 0.0), ("sum", 10.0), ("mean", 10.0)])
def test_nll_loss_counts_weights_only_where_it_adds_up(reduction: str, total: float) -> None:
    def raw(x: Any, y: Any) -> Any:
        block = x.block
        out, weight = (block.create_var(name=n, dtype="float64") for n in ("out", "weight"))
        block.append_op(
            type="nll_loss", inputs={"X": x, "Label": y}, outputs={"Out": out, "Total_weight": weight},
            attrs={"reduction": reduction},
        )  # fmt: skip
        return weight

    (found,) = run_function(raw, {"x": normal(10, 4), "y": RNG.integers(0, 4, (10,))})
    assert found == total
