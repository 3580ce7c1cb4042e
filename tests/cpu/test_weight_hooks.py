"""``nn.utils.weight_norm`` and ``spectral_norm``: torch's outputs and steps with the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tstatic as paddle
from tests.cpu.layer_check import check_error
from tstatic import nn, static
from tstatic.errors import NotFoundError, ProgramError, UnsupportedError

HERE = "tests/cpu/test_weight_hooks.py"
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Layers of float64, so that three steps stay as close as rounding allows."""
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


def _value(var: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(var.get_value()), dtype=torch.float64)


def _steps(layer: Any, feed: np.ndarray[Any, Any], watched: list[Any], count: int = 3) -> Any:
    """Trains on the sum of squares; yields before each step what the layer and the watched variables hold."""
    y = layer(static.data("x", feed.shape, "float64"))
    loss = paddle.sum(y * y)
    paddle.optimizer.SGD(0.0625).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    yield [_value(v) for v in watched]
    for _ in range(count):
        (out,) = exe.run(feed={"x": feed}, fetch_list=[y])
        yield torch.tensor(out, dtype=torch.float64)


def _inferred(y: Any, feed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Runs what ``y`` needs, without the training around it."""
    program = static.default_main_program().clone(for_test=True)
    found: list[Any] = static.Executor().run(program, feed={"x": feed}, fetch_list=[y], use_prune=True)
    return np.asarray(found[0])


@pytest.mark.parametrize("dim", [0, 1, 3, -3, None])
def test_weight_norm_trains_as_torch(dim: int | None) -> None:
    layer = nn.utils.weight_norm(nn.Conv2D(3, 2, 3), dim=dim)
    feed = RNG.normal(size=(2, 3, 5, 5))
    run = _steps(layer, feed, [layer.weight_v, layer.weight_g, layer.bias])
    v, g, b = next(run)
    axes = [a for a in range(4) if dim is None or a != dim % 4]
    length = v.square().sum(axes, keepdim=True).sqrt()
    torch.testing.assert_close(g.reshape(length.shape), length, rtol=1e-9, atol=0)
    v, g, b = (t.requires_grad_() for t in (v, length.detach().clone(), b))
    for out in run:
        weight = v * (g / v.square().sum(axes, keepdim=True).sqrt())
        wanted = torch.nn.functional.conv2d(torch.tensor(feed).double(), weight, b)
        torch.testing.assert_close(out, wanted.detach(), rtol=1e-9, atol=1e-12)
        grads = torch.autograd.grad(wanted.square().sum(), (v, g, b))
        v, g, b = ((t - 0.0625 * d).detach().requires_grad_() for t, d in zip((v, g, b), grads, strict=True))


def test_a_weight_that_is_normalised_no_more_keeps_its_value() -> None:
    layer = nn.utils.weight_norm(nn.Linear(4, 3))
    feed = np.ones((1, 4))
    for _ in _steps(layer, feed, []):
        pass
    trained = _value(layer.weight_v)
    wanted = trained * (_value(layer.weight_g)[:, None] / trained.square().sum(1, keepdim=True).sqrt())
    assert nn.utils.remove_weight_norm(layer) is layer
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
    torch.testing.assert_close(_value(layer.weight), wanted, rtol=1e-9, atol=1e-12)
    out = _inferred(layer(static.default_main_program().global_block().var("x")), feed)
    torch.testing.assert_close(torch.tensor(out[0]).double(), wanted.sum(0) + _value(layer.bias), rtol=1e-9, atol=1e-12)
    check_error(lambda: nn.utils.remove_weight_norm(layer), NotFoundError, words="weight_norm of", file=HERE)


def test_spectral_norm_trains_as_torch() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(4, 3, bias_attr=False), n_power_iterations=2)
    feed = RNG.normal(size=(2, 4))
    run = _steps(layer, feed, [layer.weight_orig, layer.weight_u])
    w, u = next(run)
    assert np.isclose(u.norm(), 1)
    # The rows of Paddle's matrix are the columns of a linear layer's weight, as those of torch's weight.
    torch_layer = torch.nn.Linear(4, 3, bias=False).double()
    torch_layer.weight.data = w.T.contiguous()
    torch_layer = torch.nn.utils.spectral_norm(torch_layer, n_power_iterations=2)
    torch_layer.weight_u.data = u
    sgd = torch.optim.SGD(torch_layer.parameters(), 0.0625)
    for out in run:
        wanted = torch_layer(torch.tensor(feed).double())
        torch.testing.assert_close(out, wanted.detach(), rtol=1e-9, atol=1e-12)
        sgd.zero_grad()
        wanted.square().sum().backward()
        sgd.step()
    torch.testing.assert_close(_value(layer.weight_u), torch_layer.weight_u, rtol=1e-9, atol=1e-12)


def test_spectral_norm_only_reads_its_vectors_in_inference() -> None:
    layer = nn.utils.spectral_norm(nn.Conv2DTranspose(4, 3, 2, bias_attr=False))
    layer.eval()
    feed = RNG.normal(size=(1, 4, 3, 3))
    y = layer(static.data("x", feed.shape, "float64"))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    w, u, v = map(_value, (layer.weight_orig, layer.weight_u, layer.weight_v))
    sigma = u @ w.transpose(0, 1).reshape(3, -1) @ v
    wanted = torch.nn.functional.conv_transpose2d(torch.tensor(feed), w / sigma)
    for _ in range(2):
        torch.testing.assert_close(torch.tensor(_inferred(y, feed)), wanted, rtol=1e-9, atol=1e-12)


def test_what_cannot_be_normalised_is_refused() -> None:
    layer, plain = nn.utils.weight_norm(nn.Linear(4, 3)), nn.Linear(4, 3)
    check_error(lambda: nn.utils.spectral_norm(layer), ProgramError, words="weight_norm", file=HERE)
    check_error(lambda: nn.utils.weight_norm(plain, "filters"), NotFoundError, words="filters", file=HERE)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        with pytest.raises(UnsupportedError, match="grad_clip"):
            getattr(nn.utils, name)(layer.parameters(), 1.0)
