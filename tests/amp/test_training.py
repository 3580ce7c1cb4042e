"""Training in mixed precision follows float32, at every level and in both types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import Net, build, gpt, gpt_feeds, lstm, mlp, mlp_feed, resnet, resnet_feeds

STEPS = 50
NETS: dict[str, tuple[Callable[[], Any], Callable[[int], Any], Callable[[], Any]]] = {
    "gpt": (gpt, gpt_feeds, lambda: paddle.optimizer.AdamW(3e-3)),
    "resnet": (resnet, resnet_feeds, lambda: paddle.optimizer.Momentum(0.05, 0.9)),
    "lstm": (lstm, gpt_feeds, lambda: paddle.optimizer.Adam(3e-3)),
}


@cache
def trained(name: str, level: str, dtype: str) -> tuple[Net, float]:
    """Returns a network after 50 steps, and the mean loss of the last 10; level "" is float32."""
    model, feeds, rule = NETS[name]
    how = {"level": level, "dtype": dtype, "init_loss_scaling": 1024.0} if level else {}
    net = build(model, rule(), **how)
    return net, float(net.losses(feeds(STEPS))[-10:].mean())


CASES = [
    ("gpt", "O1", "bfloat16"), ("gpt", "O2", "bfloat16"), ("gpt", "OD", "bfloat16"), ("gpt", "O2", "float16"),
    ("resnet", "O1", "bfloat16"), ("resnet", "O2", "bfloat16"), ("resnet", "O1", "float16"),
    ("lstm", "O1", "bfloat16"), ("lstm", "O2", "bfloat16"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level", "dtype"), CASES)
def test_the_last_losses_are_those_of_float32(name: str, level: str, dtype: str) -> None:
    # A CPU rounds float16 of O1 only if it is asked to.
    paddle.set_flags({"FLAGS_numerics": "strict"})
    net, loss = trained(name, level, dtype)
    _, exact = trained(name, "", "")
    assert abs(loss - exact) < 1e-2
    # It rounds, and the clone for tests reads the same parameters.
    assert loss != exact
    feed = next(iter(NETS[name][1](1)))
    assert abs(float(np.mean(net.run(feed, net.test))) - exact) < 1.0
    assert {dtype, "float32"} <= {v.dtype.name for v in net.main.list_vars()}
    parameters = {p.name: p.dtype.name for p in net.main.all_parameters()}
    assert {n: str(net.value(n).dtype) for n in parameters} == parameters
    norms = {n for n in parameters if n.startswith(("batch_norm", "layer_norm"))}
    low = {n for n, d in parameters.items() if d == dtype}
    assert low == (parameters.keys() - norms if level == "O2" else set())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_masters_move_where_the_rounded_parameters_cannot(dtype: str) -> None:
    tiny = 1e-6
    with_masters = build(mlp, paddle.optimizer.SGD(tiny), level="O2", dtype=dtype)
    without = build(mlp, paddle.optimizer.SGD(tiny), level="O2", dtype=dtype, master_weight=False)
    assert not [v for v in without.main.list_vars() if "master" in v.name]
    masters = [v.name for v in with_masters.main.list_vars() if v.name.endswith("_fp32_master_0")]
    assert sorted(masters) == [f"fc_{i}.{n}_0_fp32_master_0" for i in (0, 1) for n in "bw"]
    start = {n: with_masters.value(n).copy() for n in masters}
    weight = without.value("fc_0.w_0").copy()
    for step in range(3):
        with_masters.run(mlp_feed(step))
        without.run(mlp_feed(step))
    assert all((with_masters.value(n) != start[n]).any() for n in masters)
    assert (without.value("fc_0.w_0") == weight).mean() > 0.9
    for name in masters:
        low = with_masters.value(name.removesuffix("_fp32_master_0"))
        np.testing.assert_array_equal(low, with_masters.value(name).astype(low.dtype))
