"""The loss at O2 is 16 bits wide, as in Paddle; what the documentation, the examples and the benches print is not."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.bench.scripts import script
from tstatic import static

ROOT = Path(__file__).parents[2]


def _trained(black: list[str] | None, mean: Any = paddle.mean) -> tuple[Any, np.ndarray]:
    """The loss of a classifier at O2, as a variable and as fetched."""
    x, y = static.data("x", [None, 8]), static.data("y", [None, 1], "int64")
    start = paddle.nn.initializer.Constant(0.3)
    scores = static.nn.fc(x, 4, weight_attr=start) * paddle.to_tensor(np.arange(4, dtype="float32"))
    loss = mean(paddle.nn.functional.cross_entropy(scores, y, reduction="none"))
    lists = static.amp.AutoMixedPrecisionLists(custom_black_list=black, dtype="bfloat16")
    optimizer = static.amp.decorate(paddle.optimizer.SGD(0.1), lists, level="O2", dtype="bfloat16")
    optimizer.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    optimizer.amp_init(paddle.CPUPlace())
    rows = np.random.default_rng(3)
    feed = {"x": rows.normal(size=(64, 8)).astype("float32"), "y": rows.integers(0, 4, (64, 1))}
    return loss, exe.run(feed=feed, fetch_list=[loss])[0]


def test_a_loss_at_o2_has_16_bits_as_in_paddle() -> None:
    loss, value = _trained(None)
    assert loss.dtype == "bfloat16"
    assert value.dtype.name == "bfloat16"


@pytest.mark.parametrize(
    ("op", "mean"),
    [("reduce_mean", paddle.mean), ("reduce_sum", paddle.sum), ("mean", paddle.fluid.layers.mean)],
)  # fmt: skip
def test_the_black_list_keeps_a_loss_in_float32(op: str, mean: Any) -> None:
    """Of each op that the page names for it: the mean has bits that bfloat16 has not."""
    loss, value = _trained([op], mean)
    assert loss.dtype == "float32"
    assert value.dtype == np.float32
    assert int(value.view(np.int32).item()) & 0xFFFF, "no bit below those of bfloat16 is set"
    page = (ROOT / "docs" / "mixed_precision.md").read_text(encoding="utf-8")
    assert re.search(rf"`{op}` for\s+`(paddle|fluid\.layers)\.\w+`", page)


def test_a_sum_of_losses_stays_in_float32_by_its_name() -> None:
    x = static.data("x", [None, 8])
    first, second = (paddle.mean(static.nn.fc(x, 4)) for _ in range(2))
    loss = first + second
    lists = static.amp.AutoMixedPrecisionLists(
        custom_black_list=["reduce_mean"], custom_black_varnames=[loss.name], dtype="bfloat16"
    )
    static.amp.decorate(paddle.optimizer.SGD(0.1), lists, level="O2", dtype="bfloat16").minimize(loss)
    assert (first.dtype, second.dtype, loss.dtype) == ("float32",) * 3


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_the_example_of_gpt_prints_float32(amp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    gpt = importlib.import_module("gpt")
    model = gpt.build(gpt.Settings(amp=amp, layers=1, width=16, heads=2, tokens=8))
    assert model.loss.dtype == "float32"


@pytest.mark.parametrize("model", ["GPT", "BERT"])
def test_models_of_the_benches_print_float32(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = script("models")
    for sizes in (models.GPT, models.BERT):
        for name, value in (("layers", 1), ("width", 96), ("tokens", 16), ("vocabulary", 64), ("batch", 1)):
            monkeypatch.setitem(sizes, name, value)
    low = [one for name, one in models.MODELS.items() if name.startswith(model.lower()) and "bf" in name]
    assert low
    for one in low:
        with static.program_guard(static.Program(), static.Program()):
            loss = one.build(paddle)
            assert loss.block.program.mixed_precision
            assert loss.dtype == "float32"


def test_no_script_asks_for_o2_without_a_black_list() -> None:
    """A new example or bench that trains at O2 says how its loss stays in float32."""
    sources = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    asking = [p for p in sources if '"O2"' in p.read_text(encoding="utf-8")]
    assert asking
    assert [p.name for p in asking if "custom_black_list" not in p.read_text(encoding="utf-8")] == []
