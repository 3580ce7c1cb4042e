"""Saved training goes on bit for bit, with its float32 copies and the scale of the loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import build, mlp, mlp_feed
from tstatic import static


@pytest.mark.parametrize(("level", "dtype"), [("O1", "float16"), ("O2", "float16"), ("O2", "bfloat16")])
def test_training_goes_on_from_a_checkpoint(tmp_path: Path, level: str, dtype: str) -> None:
    def start() -> object:
        return build(
            mlp, paddle.optimizer.Adam(0.01), level=level, dtype=dtype, init_loss_scaling=8.0, incr_every_n_steps=2
        )

    net, other = start(), start()
    for step in range(3):
        net.run(mlp_feed(step))
    with static.scope_guard(net.scope):
        static.save(net.main, str(tmp_path / "net"))
    with static.scope_guard(other.scope):
        static.load(other.main, str(tmp_path / "net"), static.Executor())
    assert other.state() == net.state()
    for step in range(3, 6):
        assert net.run(mlp_feed(step)).tobytes() == other.run(mlp_feed(step)).tobytes()
    assert other.state() == net.state()


def test_an_inference_model_of_16_bits_gives_the_same_results(tmp_path: Path) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 6])
        out = paddle.nn.functional.softmax(static.nn.fc(x, 4))
        optimizer = static.amp.decorate(paddle.optimizer.SGD(0.1), level="O2", dtype="bfloat16")
        optimizer.minimize(paddle.mean(out))
    exe = static.Executor()
    exe.run(startup)
    optimizer.amp_init(paddle.CPUPlace())
    feed = {"x": mlp_feed()["x"]}
    wanted = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[out.name])[0]
    static.save_inference_model(str(tmp_path / "model"), [x], [out], exe, program=main)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "model"), exe)
        found = exe.run(program, feed={feeds[0]: feed["x"]}, fetch_list=fetches)[0]
    assert str(found.dtype) == "bfloat16"
    assert found.tobytes() == wanted.tobytes()


def test_a_program_reads_back_from_text_and_bytes() -> None:
    net = build(mlp, paddle.optimizer.Adam(0.01), level="O2", dtype="bfloat16")
    for again in (
        static.Program.parse_from_text(str(net.main)), static.Program.parse_from_string(net.main.desc.serialize_to_string())
    ):  # fmt: skip
        assert str(again) == str(net.main)


def test_amp_init_rounds_the_start_values_and_masters_keep_them() -> None:
    plain = build(mlp, paddle.optimizer.SGD(0.0))
    low = build(mlp, paddle.optimizer.SGD(0.0), level="O2", dtype="bfloat16")
    for p in low.main.all_parameters():
        exact = plain.value(p.name)
        np.testing.assert_array_equal(low.value(p.name), exact.astype(p.dtype.np))
        if p.dtype == "bfloat16":
            np.testing.assert_array_equal(low.value(f"{p.name}_fp32_master_0"), exact)
    with static.scope_guard(low.scope):
        low.optimizer.amp_init(paddle.CPUPlace(), rewrite_master_weight=True)
    for p in low.main.all_parameters():
        if p.dtype == "bfloat16":
            rounded = low.value(p.name).astype("float32")
            np.testing.assert_array_equal(low.value(f"{p.name}_fp32_master_0"), rounded)
