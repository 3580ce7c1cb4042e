"""Builds a layer in float64, runs it with random parameters, and compares values and gradients with torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import TstaticError

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


@contextmanager
def default_dtype(name: str) -> Iterator[None]:
    """Changes the default float type for a while."""
    old = paddle.get_default_dtype()
    paddle.set_default_dtype(name)
    try:
        yield
    finally:
        paddle.set_default_dtype(old)


@dataclass
class Run:
    """What a check leaves behind for further questions."""

    main: Any
    startup: Any
    scope: Any
    out: Array
    names: list[str]
    result: str

    def value(self, name: str) -> Array:
        """A variable's value in the scope."""
        return np.array(self.scope.find_var(name).get_tensor())

    def ops(self) -> list[str]:
        """Types of the forward ops."""
        return [op.type for op in self.main.global_block().ops if op.attr("op_role") == 0]


def sample(*shape: int, seed: int = 0, low: float = -1.5, high: float = 1.5) -> Array:
    """Floats clear of 0, where activations have their kinks."""
    draw = np.random.default_rng([seed, *shape]).uniform(low, high, shape)
    return np.where(np.abs(draw) < 0.02, 0.1, draw)


def randomise(main: Any, scope: Any, seed: int = 7) -> dict[str, Array]:
    """Gives every trainable parameter random values; returns the values of all parameters."""
    found = {}
    for i, p in enumerate(main.all_parameters()):
        tensor = scope.find_var(p.name).get_tensor()
        if p.trainable:
            tensor.set(sample(*p.shape, seed=seed + i).astype(p.dtype.np))
        found[p.name] = np.array(tensor)
    return found


def check_layer(
    build: Callable[..., Any],
    reference: Callable[..., Any],
    feeds: Mapping[str, Array],
    *,
    parameters: list[str] | None = None,
    result: str | None = None,
    fixed: Mapping[str, Array] | None = None,
    unknown: bool = True,
    constant: tuple[str, ...] = (),
) -> Run:
    """Runs a layer and compares its result and all gradients with torch in float64.

    Args:
        build: Takes one Variable per feed; answers with the layer's result.
        reference: Takes ``p`` (parameter name -> torch tensor) and one tensor per feed; answers with a tensor.
        feeds: Name -> array.
        parameters: The names that the parameters must have, in order.
        result: The name that the result must have.
        fixed: Values of some parameters, instead of random ones.
        unknown: Whether the first size of each input is declared unknown.
        constant: Inputs that no gradient is asked of.
    """
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard(), default_dtype("float64"):
        ins = []
        for name, array in feeds.items():
            var = static.data(name, [None, *array.shape[1:]] if unknown else list(array.shape), str(array.dtype))
            var.stop_gradient = name in constant
            ins.append(var)
        out = build(*ins)
        names = [p.name for p in main.all_parameters()]
        seed = static.data("seed", list(out.shape), "float64")
        targets = [
            v
            for v in (*ins, *(p for p in main.all_parameters() if p.trainable))
            if v.dtype.is_float and not v.stop_gradient
        ]
        grads = static.gradients([out], targets, target_gradients=[seed])
    if parameters is not None:
        assert names == parameters
    if result is not None:
        assert out.name == result
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    for name, value in (fixed or {}).items():
        scope.find_var(name).get_tensor().set(value)
    values = {**randomise(main, scope), **(fixed or {})}
    for name, value in (fixed or {}).items():
        scope.find_var(name).get_tensor().set(value)

    leaves = {name: torch.tensor(value) for name, value in values.items()}
    inputs = [torch.tensor(a) for a in feeds.values()]
    for var, leaf in zip((*ins, *main.all_parameters()), (*inputs, *leaves.values()), strict=True):
        leaf.requires_grad_(var.dtype.is_float and not var.stop_gradient)
    expected = reference(leaves, *inputs)
    weight = np.cos(np.arange(expected.numel(), dtype=np.float64)).reshape(tuple(expected.shape))
    expected.backward(torch.tensor(weight))

    live = [(v, g) for v, g in zip(targets, grads, strict=True) if g is not None]
    got = exe.run(main, feed={**feeds, "seed": weight}, fetch_list=[out, *(g for _, g in live)], scope=scope)
    np.testing.assert_allclose(got[0], expected.detach().numpy(), **TOLERANCE)
    by_name = dict(zip(feeds, inputs, strict=True)) | leaves
    for (var, _), value in zip(live, got[1:], strict=True):
        wanted = by_name[var.name].grad
        assert wanted is not None, f"torch has no gradient of {var.name}"
        np.testing.assert_allclose(value, wanted.numpy(), err_msg=f"gradient of {var.name}", **TOLERANCE)
    for var, g in zip(targets, grads, strict=True):
        if g is None:
            other = by_name[var.name].grad
            assert other is None or not other.abs().max(), f"no gradient of {var.name}"
    return Run(main, startup, scope, got[0], names, out.name)


def check_error(call: Callable[[], Any], kind: type[Exception], *, words: str = "", file: str) -> TstaticError:
    """Asserts that a call is refused with a whole message and leaves the default programs as they were."""
    main, startup = static.default_main_program(), static.default_startup_program()
    before = (len(main.global_block().ops), set(main.global_block().vars), set(startup.global_block().vars))
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, TstaticError)
    text = str(error)
    assert len(error.what) >= 20, text
    assert error.op or error.var, text
    assert error.expected is not None, text
    assert error.received is not None, text
    assert error.fix, text
    assert file in (error.where or ""), text
    assert words in text, text
    after = (len(main.global_block().ops), set(main.global_block().vars), set(startup.global_block().vars))
    assert after == before, f"the program changed: {text}"
    return error
