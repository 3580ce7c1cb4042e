"""A net that is trained while it is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static


class Net:
    """A training whose large matrices are cut into tiles."""

    def __init__(self, width: int = 256, threads: int = 1, places: int = 1) -> None:
        self.main, startup, self.scope = static.Program(), static.Program(), static.Scope()
        self.main.random_seed = startup.random_seed = 2
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            x = static.data("x", [None, width])
            hidden = paddle.nn.functional.gelu(static.nn.fc(x, width))
            self.loss = paddle.mean(paddle.square(static.nn.fc(hidden, width)))
            paddle.optimizer.Momentum(0.1).minimize(self.loss)
        execution = static.ExecutionStrategy()
        execution.num_threads = threads
        self.program: Any = static.CompiledProgram(self.main)
        if places > 1 or threads > 1:
            self.program = self.program.with_data_parallel(
                self.loss.name, exec_strategy=execution, places=static.cpu_places(places)
            )
        self.exe = static.Executor(paddle.CPUPlace())
        with static.scope_guard(self.scope):
            self.exe.run(startup)
        self.feed = {"x": np.linspace(-1, 1, 512 * width, dtype=np.float32).reshape(512, width)}

    def run(self) -> Any:
        with static.scope_guard(self.scope):
            return self.exe.run(self.program, feed=self.feed, fetch_list=[self.loss])[0]
