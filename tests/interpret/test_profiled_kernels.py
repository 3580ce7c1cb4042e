"""Generated kernels are rows of a profile, with the bytes that they read and write."""

from __future__ import annotations

import numpy as np

import tstatic as paddle
from tstatic import devices, profiler, static


def test_a_generated_kernel_has_a_row() -> None:
    x = static.data("x", [None, 64])
    out = paddle.tanh(paddle.exp(x * 0.1) + 1.0)
    build = static.BuildStrategy()
    build.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), build_strategy=build)
    with devices.use("interpret"):
        exe = static.Executor("cpu")
        with profiler.profile() as found:
            for _ in range(2):
                exe.run(compiled, feed={"x": np.ones((4, 64), "float32")}, fetch_list=[out])
    (row,) = found.by_kernel()
    (name,) = {event.kernel for event in found.ops}
    assert (row.name, row.calls, row.nbytes) == (name, 2, 2 * 2 * 4 * 64 * 4)
    assert name.startswith("pointwise_")
    assert name in found.table()
