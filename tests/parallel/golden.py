"""The small net whose numbers after one step are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

ROWS = np.arange(30, dtype=np.float32).reshape(10, 3) * np.float32(0.1)


@dataclass
class Net:
    """``loss = mean(square(X @ w + b))``, w 0.5 and b 0 at first, with its optimizer."""

    main: static.Program
    startup: static.Program
    loss: Any


def net(optimizer: Any = None) -> Net:
    """Builds the net; SGD with learning rate 0.1 if no optimizer is given."""
    main, startup = static.Program(), static.Program()
    constant = paddle.nn.initializer.Constant
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("X", [None, 3], "float32")
        weight = paddle.ParamAttr(name="w", initializer=constant(0.5))
        bias = paddle.ParamAttr(name="b", initializer=constant(0.0))
        loss = paddle.mean(paddle.square(static.nn.fc(x, 2, weight_attr=weight, bias_attr=bias)))
        (optimizer or paddle.optimizer.SGD(0.1)).minimize(loss)
    return Net(main, startup, loss)


def strategy(**switches: Any) -> static.BuildStrategy:
    """A BuildStrategy with these properties."""
    made = static.BuildStrategy()
    for name, value in switches.items():
        setattr(made, name, value)
    return made


class Training:
    """A net in a scope of its own, on so many CPU places."""

    def __init__(
        self, built: Net, places: int = 2, build: static.BuildStrategy | None = None, execution: Any = None
    ) -> None:
        self.net = built
        self.scope = static.Scope()
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(built.startup, scope=self.scope)
        self.compiled = static.CompiledProgram(built.main).with_data_parallel(
            built.loss.name, build, execution, places=[paddle.CPUPlace()] * places
        )

    def step(self, feed: Any, fetch: Sequence[Any] = (), **options: Any) -> list[Any]:
        """One step; the loss, and what else is fetched."""
        return self.exe.run(self.compiled, feed=feed, fetch_list=[self.net.loss, *fetch], scope=self.scope, **options)

    def value(self, name: str, replica: int = 0) -> np.ndarray[Any, Any]:
        """A variable as a replica has it."""
        found = self.scope.replica(replica).find_var(name)
        assert found is not None
        return np.array(found.get_tensor())
