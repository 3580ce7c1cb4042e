"""The hierarchical sigmoid, margins between angles, samples of class centers and the transducer loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import tstatic as paddle
from tests.cpu.layer_check import check_error
from tstatic import fluid, nn, static
from tstatic.errors import IndexRangeError, ProgramError, ShapeError

HERE = "tests/cpu/test_margin_and_tree_losses.py"
F = nn.functional
RNG = np.random.default_rng(3)


def _gradient(build: Any, x: np.ndarray[Any, Any], **feeds: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Returns what ``build`` makes of ``x`` and other feeds, and the gradient of its sum by ``x``."""
    given = {name: static.data(name, a.shape, a.dtype.name) for name, a in {"x": x, **feeds}.items()}
    given["x"].stop_gradient = False
    out = build(**given)
    (dx,) = static.gradients([paddle.sum(out)], [given["x"]])
    found: list[np.ndarray[Any, Any]] = static.Executor().run(feed={"x": x, **feeds}, fetch_list=[out, dx])
    return found


@pytest.mark.parametrize("margins", [(1.0, 0.5, 0.0), (1.0, 0.0, 0.35), (1.3, 0.2, 0.1)])
@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_margins_between_angles(margins: tuple[float, float, float], shape: tuple[int, ...]) -> None:
    x, label = RNG.uniform(-0.9, 0.9, (6, 5)), RNG.integers(0, 5, shape)
    found, dx = _gradient(lambda x, y: F.margin_cross_entropy(x, y, *margins, 16.0, reduction="none"), x, y=label)
    tx, ty = torch.tensor(x, requires_grad=True), torch.tensor(label.reshape(-1))
    own = torch.nn.functional.one_hot(ty, 5).bool()
    moved = torch.cos(margins[0] * torch.acos(tx) + margins[1]) - margins[2]
    wanted = torch.nn.functional.cross_entropy(16.0 * torch.where(own, moved, tx), ty, reduction="none")
    wanted.sum().backward()
    assert found.shape == (6, 1)
    np.testing.assert_allclose(found[:, 0], wanted.detach(), rtol=1e-10)
    np.testing.assert_allclose(dx, tx.grad, rtol=1e-9, atol=1e-12)


def test_margins_return_probabilities_and_reductions() -> None:
    x, y = static.data("x", [2, 3]), static.data("y", [2], "int64")
    loss, p = F.margin_cross_entropy(x, y, return_softmax=True)
    rows = F.margin_cross_entropy(x, y, reduction=None)
    feed = {"x": RNG.uniform(-1, 1, (2, 3)).astype("float32"), "y": np.array([0, 2])}
    one, probabilities, each = static.Executor().run(feed=feed, fetch_list=[loss, p, rows])
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(one, each.mean(), rtol=1e-6)
    np.testing.assert_allclose(each[:, 0], -np.log(probabilities[[0, 1], [0, 2]]), rtol=1e-3, atol=1e-5)
    check_error(lambda: F.margin_cross_entropy(y, x), TypeError, words="logits", file=HERE)
    wide = static.data("z", [2, 2], "int64")
    check_error(lambda: F.margin_cross_entropy(x, wide), ShapeError, words="label", file=HERE)


@pytest.mark.parametrize("samples", [2, 4, 9, 20])
def test_a_sample_of_class_centers_has_the_classes_of_the_batch(samples: int) -> None:
    label = np.array([11, 5, 1, 5, 19])
    mapped, sampled = F.class_center_sample(static.data("y", [None], "int64"), 20, samples)
    exe, drawn = static.Executor(), set()
    for _ in range(6):
        places, classes = exe.run(feed={"y": label}, fetch_list=[mapped, sampled])
        assert (classes[places] == label).all()
        assert classes[:4].tolist() == [1, 5, 11, 19]
        assert len(set(classes.tolist())) == len(classes) == max(4, samples)
        assert classes.max() < 20
        drawn.add(tuple(classes.tolist()))
    assert (len(drawn) > 1) == (samples > 4)
    check_error(lambda: F.class_center_sample(mapped, 20, 21), ShapeError, words="num_samples", file=HERE)
    with pytest.raises(IndexRangeError, match="Label"):
        exe.run(feed={"y": np.array([20])}, fetch_list=[mapped])


# --------------------------------------------------------------------------------------------------- hierarchical sigmoid
def test_the_probabilities_of_all_classes_add_up() -> None:
    """exp(-loss) of all leaves of a complete tree, whose paths are equally long, is 1."""
    x = np.tile(RNG.normal(size=(1, 3)), (8, 1))
    label = np.arange(8).reshape(8, 1)
    w, b = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 1))
    loss, _ = _gradient(lambda x, y, w, b: F.hsigmoid_loss(x, y, 8, w, b), x, y=label, w=w, b=b)
    assert math.isclose(np.exp(-loss).sum(), 1, rel_tol=1e-9)


def test_the_old_function_has_the_parameters_of_the_layer() -> None:
    x, y = static.data("x", [None, 3]), static.data("y", [None, 1], "int64")
    start = paddle.nn.initializer.Constant(0.05)
    old = fluid.layers.hsigmoid(x, y, 6, param_attr=start, bias_attr=start)
    new = nn.HSigmoidLoss(3, 6, weight_attr=start, bias_attr=start)(x, y)
    shapes = [p.shape for p in static.default_main_program().all_parameters()]
    assert shapes == [(5, 3), (5, 1)] * 2
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": RNG.normal(size=(4, 3)).astype("float32"), "y": np.array([[0], [1], [4], [5]])}
    one, other = exe.run(feed=feed, fetch_list=[old, new])
    np.testing.assert_array_equal(one, other)
    table = static.data("t", [None, 2], "int64")
    check_error(lambda: fluid.layers.hsigmoid(x, y, 6, path_table=table), ProgramError, words="is_custom", file=HERE)
    check_error(lambda: fluid.layers.hsigmoid(x, y, 6, is_custom=True), ProgramError, words="is_custom", file=HERE)
    small = static.data("w", [3, 3])
    check_error(lambda: F.hsigmoid_loss(x, y, 6, small), ShapeError, words="5 rows", file=HERE)


# ------------------------------------------------------------------------------------------------------------ transducer
def test_a_transducer_loss_of_long_sequences_is_finite() -> None:
    batch, steps, labels, classes = 3, 40, 12, 7
    x = RNG.normal(size=(batch, steps, labels + 1, classes)) * 4
    feeds = {
        "y": RNG.integers(1, classes, (batch, labels)), "a": np.array([40, 23, 1]), "b": np.array([12, 0, 5]),
    }  # fmt: skip

    def build(x: Any, y: Any, a: Any, b: Any) -> Any:
        return F.rnnt_loss(F.log_softmax(x), y, a, b, fastemit_lambda=0.0, reduction="none")

    loss, dx = _gradient(build, x, **feeds)
    wanted = torch_rnnt(x, feeds["y"], feeds["a"], feeds["b"])
    np.testing.assert_allclose(loss, wanted[0], rtol=1e-9)
    np.testing.assert_allclose(dx, wanted[1], rtol=1e-7, atol=1e-10)


def torch_rnnt(x: Any, label: Any, steps: Any, counts: Any) -> tuple[Any, Any]:
    """The recursion of the paper, place by place, differentiated by torch."""
    tx = torch.tensor(x, requires_grad=True)
    scores = tx.log_softmax(-1)
    losses = []
    for b, (last, count) in enumerate(zip(steps, counts, strict=True)):
        alpha: dict[tuple[int, int], Any] = {(0, 0): scores.new_zeros(())}
        for t in range(last):
            for u in range(count + 1):
                ways = [alpha[t - 1, u] + scores[b, t - 1, u, 0]] if t else []
                ways += [alpha[t, u - 1] + scores[b, t, u - 1, label[b, u - 1]]] if u else []
                if ways:
                    alpha[t, u] = torch.logsumexp(torch.stack(ways), 0)
        losses.append(-(alpha[last - 1, count] + scores[b, last - 1, count, 0]))
    torch.stack(losses).sum().backward()
    return torch.stack(losses).detach().numpy(), tx.grad.numpy()


def test_fast_emission_scales_the_gradients_of_labels_only() -> None:
    x = np.log(RNG.dirichlet(np.ones(4), (2, 3, 3)))
    feeds = {"y": np.array([[1, 2], [3, 3]]), "a": np.array([3, 2]), "b": np.array([2, 1])}
    found = []
    for value in (0.0, 0.5):
        with static.program_guard(static.Program(), static.Program()):
            found.append(
                _gradient(lambda x, y, a, b, v=value: F.rnnt_loss(x, y, a, b, 0, v, reduction="none"), x, **feeds)
            )
    (loss, plain), (same, more) = found
    np.testing.assert_array_equal(loss, same)
    np.testing.assert_array_equal(plain[..., 0], more[..., 0])
    np.testing.assert_allclose(1.5 * plain[..., 1:], more[..., 1:], rtol=1e-12)


def test_lengths_and_labels_of_a_transducer_are_checked() -> None:
    x, y = static.data("x", [1, 2, 2, 3]), static.data("y", [1, 1], "int64")
    a, b = static.data("a", [1], "int64"), static.data("b", [1], "int64")
    loss, layer = F.rnnt_loss(x, y, a, b), nn.RNNTLoss(reduction="sum")(x, y, a, b)
    feed = {"x": np.zeros((1, 2, 2, 3), "float32"), "y": [[1]], "a": [2], "b": [1]}
    exe = static.Executor()
    feed |= {k: np.array(v) for k, v in feed.items()}
    np.testing.assert_allclose(exe.run(feed=feed, fetch_list=[loss, layer]), [-math.log(2)] * 2, rtol=1e-6)
    for wrong in ({"y": [[3]]}, {"a": [0]}, {"a": [3]}, {"b": [2]}):
        with pytest.raises(IndexRangeError, match=r"label|lengths"):
            exe.run(feed=feed | {k: np.array(v) for k, v in wrong.items()}, fetch_list=[loss])
    check_error(lambda: F.rnnt_loss(x, y, a, b, blank=3), ProgramError, words="blank", file=HERE)
