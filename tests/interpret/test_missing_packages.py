"""What generated kernels say without the packages that they need."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static, testing
from tstatic.errors import MissingPackageError


@pytest.mark.parametrize("package", ["triton", "torch"])
def test_generated_kernels_name_the_package_that_they_need(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factor = {"triton": 1.2345, "torch": 1.3456}[package]  # a kernel that was not loaded before
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [8])
        y = paddle.tanh(paddle.exp(x * factor) + 1.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    feed = {"x": np.ones(8, "float32")}

    def run() -> Any:
        return static.Executor("cpu").run(static.CompiledProgram(main, strategy), feed=feed, fetch_list=[y])

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        for call in (run, lambda: testing.assert_equivalent(main, [strategy], [feed], [y])):
            with pytest.raises(MissingPackageError, match=f"needs the package '{package}'") as caught:
                call()
            assert f"pip install {package}" in str(caught.value)
    run()
