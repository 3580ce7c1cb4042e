"""Networks exported to ONNX and run by onnxruntime give what the executor gives, for batches of any size."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.examples.small import SIZES
from tests.onnx.forms import run
from tstatic import static

ROOT = Path(__file__).parents[2]
NETS: dict[str, Callable[[], Any]] = {}


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    sys.modules.setdefault("training", importlib.import_module("training"))


def exported(tmp_path: Path, program: Any, feeds: dict[str, Any], fetches: list[Any]) -> list[Any]:
    """Exports a program with initial values and checks it on two batches; returns the model's operators."""
    import onnx

    block = program.global_block()
    path = paddle.onnx.export(str(tmp_path / "net"), [block.var(n) for n in feeds], fetches, program=program)
    model = onnx.load(path)
    exe = static.Executor()
    for count in (3, 5):
        rng = np.random.default_rng(count)
        feed = {n: make(rng, count) for n, make in feeds.items()}
        wanted = exe.run(program, feed=feed, fetch_list=fetches)
        found = run(model, feed)
        assert list(found) == [v.name for v in fetches]
        for var, ours in zip(fetches, wanted, strict=True):
            theirs = found[var.name]
            assert theirs.shape == ours.shape
            assert theirs.dtype == ours.dtype
            # Of initial values results are about 1; sums over some hundreds of terms in another order.
            np.testing.assert_allclose(theirs, ours, rtol=2e-4, atol=2e-5, err_msg=f"{var.name}, batch of {count}")
    return [node.op_type for node in model.graph.node]


def images(*shape: int) -> Callable[[np.random.Generator, int], Any]:
    return lambda rng, n: rng.normal(size=(n, *shape)).astype("float32")


def numbers(high: int, *shape: int) -> Callable[[np.random.Generator, int], Any]:
    return lambda rng, n: rng.integers(0, high, (n, *shape))


def example(name: str) -> tuple[Any, Any]:
    """Returns an example's module and the sizes that its tests have."""
    module = importlib.import_module(name)
    return module, module.Sizes(**SIZES[name]) if name in SIZES else None


def test_digits(tmp_path: Path) -> None:
    module, _ = example("digits")
    _, test, startup, (loss, accuracy) = module.build()
    static.Executor().run(startup)
    ops = exported(tmp_path, test, {"image": images(1, 8, 8), "label": numbers(10, 1)}, [loss, accuracy])
    assert {"Conv", "Relu", "MaxPool", "LogSoftmax"} <= set(ops)


def test_resnet(tmp_path: Path) -> None:
    module, _ = example("resnet")
    model = module.build(10)
    static.Executor().run(model.startup)
    feeds = {"image": images(1, 8, 8), "label": numbers(10, 1)}
    ops = exported(tmp_path, model.test, feeds, [model.loss, model.logits, model.accuracy])
    assert "BatchNormalization" in ops


def test_gan(tmp_path: Path) -> None:
    module, _ = example("gan")
    model = module.build(10)
    static.Executor().run(model.startup)
    exported(tmp_path, model.draw, {"noise": images(module.NOISE), "label": numbers(10, 1)}, [model.drawn])


def test_deepfm(tmp_path: Path) -> None:
    module, _ = example("deepfm")
    fields = 6
    model = module.build(fields)
    static.Executor().run(model.startup)
    label: Any = lambda rng, n: rng.integers(0, 2, (n, 1)).astype("float32")  # noqa: E731
    exported(tmp_path, model.test, {"ids": numbers(20, fields), "label": label}, [model.loss, model.chance])


def test_word2vec(tmp_path: Path) -> None:
    module, sizes = example("word2vec")
    model = module.build(sizes, 10)
    static.Executor().run(model.startup)
    exported(tmp_path, model.test, {"word": numbers(300), "others": numbers(300, 4)}, [model.loss, model.scores])


def test_text_lstm(tmp_path: Path) -> None:
    module, sizes = example("text_lstm")
    model = module.build(sizes, 10)
    static.Executor().run(model.startup)
    feeds = {"ids": numbers(300, 12), "length": lambda rng, n: rng.integers(1, 13, n), "label": numbers(3, 1)}
    assert "LSTM" in exported(tmp_path, model.test, feeds, [model.loss, model.logits])


def test_text_transformer(tmp_path: Path) -> None:
    module, sizes = example("text_transformer")
    model = module.build(sizes, 10)
    static.Executor().run(model.startup)
    feeds = {"ids": numbers(300, 12), "label": numbers(3, 1)}
    ops = exported(tmp_path, model.test, feeds, [model.loss, model.logits])
    assert {"LayerNormalization", "Softmax", "MatMul", "Gather"} <= set(ops)


def test_bert(tmp_path: Path) -> None:
    module, sizes = example("bert_mlm")
    model = module.build(sizes, 10)
    static.Executor().run(model.startup)
    feeds = {"ids": numbers(300, 12), "place": numbers(12, 2), "label": numbers(300, 2, 1)}
    exported(tmp_path, model.test, feeds, [model.loss, model.logits])


def test_gpt(tmp_path: Path) -> None:
    module, _ = example("gpt")
    settings = module.Settings(layers=2, heads=2, width=16, tokens=8, steps=10)
    model = module.build(settings)
    static.Executor().run(model.startup)
    exported(tmp_path, model.test, {"ids": numbers(256, 8), "label": numbers(256, 8, 1)}, [model.loss, model.logits])
