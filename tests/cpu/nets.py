"""Small programs that several tests use."""

from __future__ import annotations

from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static
from tstatic.nn.param import LayerHelper


def dense(x: Any, size: int, act: str | None = "relu", bias: bool = True) -> Any:
    """A dense layer from ops alone."""
    helper = LayerHelper("fc")
    w = helper.create_parameter(None, [x.shape[-1], size])
    y = helper.emit("mul", {"X": x, "Y": w})
    if bias:
        b = helper.create_parameter(None, [size], is_bias=True)
        y = helper.emit("elementwise_add", {"X": y, "Y": b}, {"axis": 1})
    return helper.emit(act, {"X": y}) if act else y


def regression(optimizer: Any = None, width: int = 8) -> tuple[Any, Any, Any]:
    """x [n, 3] -> two dense layers -> mean of squares; returns (main, startup, loss)."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        loss = paddle.mean(paddle.square(dense(dense(x, width, "tanh"), 1, None)))
        if optimizer is not None:
            optimizer.minimize(loss)
    return main, startup, loss


def rows(n: int, width: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((n, width)).astype("float32")


def state(scope: Any, program: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Copies of all persistable values."""
    return {v.name: np.array(scope.find_var(v.name).get_tensor()) for v in program.list_vars() if v.persistable}
