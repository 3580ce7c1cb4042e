"""What optimizers do around loss scaling: float32 gradients, decay, clips, lazy updates of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import build, mlp, mlp_feed
from tstatic import static

CLIPS = {
    "none": None, "norm": paddle.nn.ClipGradByNorm(0.1), "global norm": paddle.nn.ClipGradByGlobalNorm(0.1),
    "value": paddle.nn.ClipGradByValue(0.01),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("master_grad", [False, True])
@pytest.mark.parametrize("clip", CLIPS)
def test_decay_and_clips_follow_float32_at_o2(clip: str, master_grad: bool, dtype: str) -> None:
    def rule() -> Any:
        return paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L2Decay(0.05), grad_clip=CLIPS[clip])

    plain = build(mlp, rule())
    low = build(mlp, rule(), level="O2", dtype=dtype, master_grad=master_grad, init_loss_scaling=64.0)
    for step in range(3):
        plain.run(mlp_feed(step))
        low.run(mlp_feed(step))
    name = "fc_0.w_0"
    np.testing.assert_allclose(low.value(f"{name}_fp32_master_0"), plain.value(name), atol=5e-3)
    wide = [v.name for v in low.main.list_vars() if v.name.endswith("@GRAD_fp32")]
    assert len(wide) == (4 if master_grad else 0)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_rows_that_were_not_looked_up_stay_in_lazy_mode(level: str) -> None:
    def table() -> Any:
        ids = static.data("ids", [None], "int64")
        return paddle.mean(paddle.square(static.nn.embedding(ids, [6, 4], is_sparse=True)))

    net = build(table, paddle.optimizer.Adam(0.1, lazy_mode=True), level=level, init_loss_scaling=8.0)
    name = "embedding_0.w_0"
    assert [op.input("RowMask") for op in net.main.global_block().ops if op.type == "adam"] == [[f"{name}_rows_0"]]
    net.run({"ids": np.array([0, 1, 2])})
    before = net.value(name).copy()
    net.run({"ids": np.array([1, 4])})
    changed = (net.value(name) != before).any(axis=1)
    assert changed.tolist() == [False, True, False, False, True, False]


RULES = ["SGD", "Momentum", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "RMSProp", "Lamb"]
FLUID_RULES = ["Ftrl", "DecayedAdagrad", "Dpsgd"]


@pytest.mark.parametrize("rule", [*RULES, *FLUID_RULES])
def test_every_rule_keeps_float32_copies_and_accumulators(rule: str) -> None:
    rules = paddle.optimizer if rule in RULES else paddle.fluid.optimizer
    net = build(mlp, getattr(rules, rule)(learning_rate=0.01), level="O2", dtype="bfloat16")
    state = {v.name: v.dtype.name for v in net.main.list_vars() if v.persistable and v.name.startswith("fc_0.w_0")}
    assert state.pop("fc_0.w_0") == "bfloat16"
    assert "fc_0.w_0_fp32_master_0" in state
    narrow = {n for n, d in state.items() if d != "float32"}
    assert not narrow
    for step in range(2):
        net.run(mlp_feed(step))
    master = net.value("fc_0.w_0_fp32_master_0")
    np.testing.assert_array_equal(net.value("fc_0.w_0"), master.astype(net.value("fc_0.w_0").dtype))
