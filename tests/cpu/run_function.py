"""Builds a program around one function, runs it, and differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

Array = np.ndarray[Any, Any]


def run_function(
    build: Callable[..., Any], feeds: Mapping[str, Array], unknown: bool = True, grads: bool = False
) -> list[Array]:
    """Values of the function's results and, if asked for, gradients of their weighted sum by each float input.

    Args:
        build: Takes one Variable per feed; answers with a Variable or a tuple of them.
        feeds: Name -> array.
        unknown: Declare the first size of every input as unknown.
        grads: Append ``d sum(k * result) / d input`` for the first result, with ``k = cos(0, 1, 2, ...)``.
    """
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        ins = []
        for name, array in feeds.items():
            shape = [None, *array.shape[1:]] if unknown and array.ndim else list(array.shape)
            var = static.data(name, shape, str(array.dtype))
            var.stop_gradient = False
            ins.append(var)
        outs = build(*ins)
        outs = list(outs) if isinstance(outs, list | tuple) else [outs]
        exe, feed, found = static.Executor(paddle.CPUPlace()), dict(feeds), []
        if grads:
            seed = static.data("seed", list(outs[0].shape), outs[0].dtype.name)
            (value,) = exe.run(main, feed=feed, fetch_list=[outs[0]], use_prune=True)
            feed["seed"] = weights(value.shape).astype(seed.dtype.np)
            found = static.gradients([outs[0]], [v for v in ins if v.dtype.is_float], target_gradients=[seed])
    results = exe.run(main, feed=feed, fetch_list=[*outs, *[g for g in found if g is not None]])
    for var, value in zip(outs, results, strict=False):
        assert len(var.shape) == value.ndim
        assert all(s in (-1, n) for s, n in zip(var.shape, value.shape, strict=True)), (var.shape, value.shape)
    return results


def weights(shape: tuple[int, ...]) -> Array:
    """The cotangent of :func:`run_function`."""
    count = int(np.prod(shape, dtype=int))
    return np.cos(np.arange(count, dtype=np.float64)).reshape(shape)


RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    """Normally distributed numbers."""
    return RNG.standard_normal(shape)


def compare(build: Any, oracle: Any, feeds: dict[str, Array], unknown: bool = True) -> None:
    """The value, and the gradients of all float inputs that torch gives one (ours may have none for labels)."""
    import torch

    tensors = {n: torch.from_numpy(a.copy()).requires_grad_(a.dtype.kind == "f") for n, a in feeds.items()}
    expected = oracle(*tensors.values())
    found = run_function(build, feeds, unknown, grads=True)
    np.testing.assert_allclose(found[0].reshape(expected.shape), expected.detach().numpy(), rtol=1e-9, atol=1e-11)
    expected.backward(torch.from_numpy(np.asarray(weights(tuple(expected.shape)))))
    first = next(iter(tensors.values()))
    np.testing.assert_allclose(found[1], first.grad.numpy(), rtol=1e-9, atol=1e-11)
