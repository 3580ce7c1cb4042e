"""Names of the tensor namespace that the generic tests do not reach: against torch, and by numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tstatic as paddle
from tstatic import errors, fluid, static
from tstatic.nn import functional as F


def run(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Builds a function of fed values whose first size is unknown, and runs it."""
    given = [np.asarray(a) for a in arrays]
    fed = [static.data(f"x{i}", [-1, *a.shape[1:]] if a.ndim else [], str(a.dtype)) for i, a in enumerate(given)]
    made = function(*fed)
    feed = {f"x{i}": a for i, a in enumerate(given)}
    return static.Executor().run(feed=feed, fetch_list=list(made) if isinstance(made, list | tuple) else [made])


X = np.random.default_rng(5).normal(size=(4, 6)).astype("float32")
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "quantile": (
        lambda x: paddle.quantile(x, [0.2, 0.7], axis=0),
        lambda x: torch.quantile(x, torch.tensor([0.2, 0.7]), 0),
    ),
    "median": (lambda x: paddle.median(x, axis=1), lambda x: torch.quantile(x, 0.5, 1)),
    "nanmedian": (lambda x: paddle.nanmedian(x, axis=0), lambda x: torch.nanquantile(x, 0.5, 0)),
    "cummax": (lambda x: paddle.cummax(x, axis=0), lambda x: torch.cummax(x, 0)),
    "logcumsumexp": (lambda x: paddle.logcumsumexp(x * 90, axis=0), lambda x: torch.logcumsumexp(x * 90, 0)),
    "diff": (lambda x: paddle.diff(x, 2, 0), lambda x: torch.diff(x, 2, 0)),
    "trapezoid": (lambda x: paddle.trapezoid(x, axis=0), lambda x: torch.trapezoid(x, dim=0)),
    "unfold": (lambda x: paddle.unfold(x, 1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "vander": (lambda x: paddle.vander(x[:, 0], 3, True), lambda x: torch.vander(x[:, 0], 3, True)),
    "take": (lambda x: paddle.take(x, paddle.to_tensor([0, -1, 5])), lambda x: torch.take(x, torch.tensor([0, -1, 5]))),
    "renorm": (lambda x: paddle.renorm(x, 2.0, 0, 1.0), lambda x: torch.renorm(x, 2, 0, 1.0)),
    "cdist": (lambda x: paddle.cdist(x, x * 2, p=3.0), lambda x: torch.cdist(x, x * 2, p=3.0)),
    "logaddexp": (lambda x: paddle.logaddexp(x * 90, x), lambda x: torch.logaddexp(x * 90, x)),
    "frexp": (paddle.frexp, torch.frexp),
    "trace": (lambda x: paddle.trace(x, 1), lambda x: torch.diagonal(x, 1).sum()),
    "index_fill": (
        lambda x: paddle.index_fill(x, paddle.to_tensor([0, 2]), 0, 3.0),
        lambda x: x.index_fill(0, torch.tensor([0, 2]), 3.0),
    ),
    "cov": (lambda x: paddle.linalg.cov(x, False), lambda x: torch.cov(x.T)),
    "svd values": (lambda x: paddle.linalg.svd(x)[1], torch.linalg.svdvals),
    "pinv": (paddle.linalg.pinv, torch.linalg.pinv),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_torch_gives(name: str) -> None:
    ours, theirs = CASES[name]
    expected = theirs(torch.from_numpy(X))
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for got, want in zip(run(ours, X), expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-5, atol=1e-5)


SETTING: dict[str, tuple[Any, Any]] = {
    "row": (1, np.arange(6, dtype="float32")),
    "column": ((slice(None), -1), 2.5),
    "steps": ((slice(None, None, 2), slice(5, 1, -2)), np.float32([[1.0], [2.0]])),
    "ellipsis": ((..., 2), -1.0),
    "list": ([0, 2], 7.0),
}


@pytest.mark.parametrize("name", SETTING)
def test_setitem_writes_what_numpy_writes(name: str) -> None:
    index, value = SETTING[name]
    expected = X.copy()
    # Paddle's slices with a negative step are numpy's.
    expected[index] = value
    (got,) = run(lambda x: static.setitem(x, index, value), X)
    np.testing.assert_array_equal(got, expected)


def test_setitem_takes_masks_and_variables_and_has_gradients() -> None:
    x, v = static.data("x", [-1, 6]), static.data("v", [6])
    x.stop_gradient = v.stop_gradient = False
    y = static.setitem(static.setitem(x, x > 1.0, 0.0), paddle.to_tensor([1]), v)
    gradients = static.gradients([paddle.sum(y * 3.0)], [x, v])
    given = {"x": X, "v": np.ones(6, "float32")}
    out, dx, dv = static.Executor().run(feed=given, fetch_list=[y, *gradients])
    expected = np.where(X > 1, 0, X)
    expected[1] = 1
    np.testing.assert_array_equal(out, expected)
    kept = np.where(X > 1, 0.0, 3.0)
    kept[1] = 0
    np.testing.assert_array_equal(dx, kept)
    np.testing.assert_array_equal(dv, np.full(6, 3.0))


def test_in_place_names_are_the_functions_themselves() -> None:
    assert paddle.exp_ is paddle.exp
    x = static.data("x", [2])
    assert x.sigmoid_().name != x.name
    assert paddle.tensor.add_ is paddle.add


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_torchs(causal: bool) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, 5, 3, 4)).astype("float32") for _ in range(3))
    (got,) = run(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)
    there = [torch.from_numpy(a).transpose(1, 2) for a in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*there, is_causal=causal).transpose(1, 2)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_attention_takes_masks_of_both_kinds() -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(size=(1, 3, 1, 4)).astype("float32")
    allowed = np.array([[[[True, False, True]] * 3]])
    by_truth, by_number = run(
        lambda q, m: [
            F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            F.scaled_dot_product_attention(q, q, q, attn_mask=(1.0 - paddle.cast(m, "float32")) * -1e9),
        ],
        q, allowed,
    )  # fmt: skip
    np.testing.assert_allclose(by_truth, by_number, rtol=1e-5)
    x = static.data("x", [1, 2, 1, 4])
    with pytest.raises(errors.ShapeError, match="either a mask or is_causal"):
        F.scaled_dot_product_attention(x, x, x, attn_mask=x, is_causal=True)


def test_limits_of_dtypes() -> None:
    limits = paddle.finfo("float64")
    assert (limits.eps, limits.tiny, limits.bits) == (2.220446049250313e-16, 2.2250738585072014e-308, 64)
    assert (paddle.iinfo("uint8").max, paddle.iinfo(paddle.int64).bits) == (255, 64)
    for function, wrong in ((paddle.finfo, "int8"), (paddle.iinfo, "float32")):
        with pytest.raises(errors.DTypeError):
            function(wrong)


def test_devices_that_are_not_there_refuse_and_say_so() -> None:
    assert paddle.device.get_all_device_type()[0] == "cpu"
    assert paddle.device.get_available_custom_device() == paddle.device.get_all_custom_device_type() == []
    if paddle.device.cuda.device_count() == 0:
        with pytest.raises(ValueError, match="needs a GPU"):
            paddle.device.cuda.memory_allocated()
    with pytest.raises(ValueError, match="needs an IPU"):
        static.IpuStrategy()
    assert paddle.version.cuda() == paddle.version.cudnn() == paddle.version.xpu() == "False"


def test_one_x_names_of_this_release() -> None:
    x = paddle.ones([2, 3])
    assert fluid.layers.assign(input=x).shape == (2, 3)
    assert fluid.memory_optimize(static.default_main_program()) is None
    clip = fluid.clip.GradientClipByValue(max=0.1, need_clip=lambda p: p.name == "clipped")
    parameters = [
        paddle.create_parameter([1], "float32", name=n, default_initializer=paddle.nn.initializer.Constant(0.0))
        for n in ("clipped", "free")
    ]
    loss = paddle.sum(parameters[0] * 5.0 + parameters[1] * 5.0)
    paddle.optimizer.SGD(learning_rate=1.0, grad_clip=clip).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    found = exe.run(fetch_list=parameters)
    np.testing.assert_allclose([v.item() for v in found], [-0.1, -5.0])


def test_draws_shaped_like_a_value() -> None:
    x = static.data("x", [-1, 100])
    drawn = [
        x.uniform_(0.0, 2.0),
        x.normal_(1.0, 2.0),
        paddle.tensor.exponential_(x, 4.0),
        x.geometric_(0.3),
        x.cauchy_(3.0),
    ]
    found = static.Executor().run(feed={"x": np.zeros((200, 100), "float32")}, fetch_list=drawn)
    assert [v.shape for v in found] == [(200, 100)] * 5
    assert abs(found[0].mean() - 1.0) < 0.02
    assert abs(found[1].std() - 2.0) < 0.05
    assert abs(found[2].mean() - 0.25) < 0.01
    assert abs(np.ceil(found[3]).mean() - 1 / 0.3) < 0.1
    assert abs(np.median(found[4]) - 3.0) < 0.05


def test_no_grad_marks_what_an_exception_leaves_and_nothing_after_it() -> None:
    w = paddle.create_parameter([2], "float32")
    made = []

    def failing() -> None:
        made.append(w * 2)
        raise KeyError("within")

    def block() -> None:
        with paddle.no_grad():
            failing()

    for call in (block, paddle.no_grad(failing), paddle.no_grad()(failing)):
        with pytest.raises(KeyError):
            call()
        assert made[-1].stop_gradient
        assert not (w * 3).stop_gradient


@pytest.mark.parametrize("kind", [paddle.no_grad, paddle.enable_grad])
def test_a_gradient_mode_may_be_entered_within_itself(kind: Any) -> None:
    w = paddle.create_parameter([2], "float32")
    mode = kind()
    with mode:
        with mode:
            inner = w * 2
        outer = w * 3
    stopped = kind is paddle.no_grad
    assert (inner.stop_gradient, outer.stop_gradient, (w * 4).stop_gradient) == (stopped, stopped, False)
