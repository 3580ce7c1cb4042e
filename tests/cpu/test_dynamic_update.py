"""Parameters behind a value whose size is known only when it is there are trained like any others."""

from __future__ import annotations

import numpy as np

import tstatic as paddle
from tstatic import static


def trained(open_size: bool) -> np.ndarray:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [None, 3], "float32")
        weight = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.5))
        h = static.nn.fc(x, 3, weight_attr=weight, bias_attr=False)
        out = main.current_block().create_var(name="out", dtype="float32", shape=[-1 if open_size else 4, 3])
        static.py_func(lambda a: np.array(a), h, out, lambda a, y, dy: np.array(dy))
        loss = paddle.mean(paddle.square(out))
        paddle.optimizer.Momentum(0.1).minimize(loss)
    exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    exe.run(startup, scope=scope)
    for _ in range(3):
        exe.run(main, feed={"x": np.arange(12, dtype=np.float32).reshape(4, 3)}, scope=scope)
    found = scope.find_var("w")
    assert found is not None
    return np.array(found.get_tensor())


def test_the_update_is_kept() -> None:
    known = trained(False)
    assert (known != 0.5).all()
    np.testing.assert_array_equal(trained(True), known)
