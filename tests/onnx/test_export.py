"""The calls around an export: names, sizes, types, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.onnx.forms import evaluate
from tstatic import static
from tstatic.errors import FeedError, MissingPackageError, ProgramError, ProgramTypeError, UnsupportedError

onnx = pytest.importorskip("onnx")


def net() -> tuple[Any, Any]:
    x = static.data("x", [None, 4])
    return x, static.nn.fc(x, 3, activation="relu")


def started() -> None:
    static.Executor().run(static.default_startup_program())


def test_the_model_has_names_types_and_sizes(tmp_path: Path) -> None:
    x, y = net()
    started()
    path = paddle.onnx.export(str(tmp_path / "net"), [x], [y])
    assert path == str(tmp_path / "net.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    (given,), (made,) = model.graph.input, model.graph.output
    assert (given.name, made.name) == ("x", y.name)
    assert given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["x_0", 4]
    assert [(i.domain, i.version) for i in model.opset_import] == [("", 18)]
    names = {v.name for v in static.default_main_program().all_parameters()}
    assert {t.name for t in model.graph.initializer} == names
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Add", "Relu"]


def test_training_is_left_out(tmp_path: Path) -> None:
    x, y = net()
    y = paddle.nn.functional.dropout(y, 0.5)
    loss = paddle.mean(y)
    paddle.optimizer.Adam(0.1).minimize(loss)
    started()
    model = onnx.load(paddle.onnx.export(str(tmp_path / "net"), x, [y, loss]))
    feed = {"x": np.ones((2, 4), "float32")}
    wanted = static.Executor().run(static.default_main_program().clone(for_test=True), feed=feed, fetch_list=[loss])[0]
    np.testing.assert_allclose(evaluate(model, feed)[loss.name], wanted, rtol=1e-6)


def test_results_that_are_inputs_parameters_or_each_other(tmp_path: Path) -> None:
    x = static.data("x", [2, 3])
    same = paddle.assign(x)
    w = static.create_parameter([3], "float32", name="w")
    y = x + w
    again = paddle.reshape(y, [2, 3])
    started()
    model = onnx.load(paddle.onnx.export(str(tmp_path / "net"), [x], [same, w, y, again]))
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    wanted = static.Executor().run(feed=feed, fetch_list=[same, w, y, again])
    for ours, theirs in zip(wanted, evaluate(model, feed).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_low_precision_keeps_its_types(tmp_path: Path) -> None:
    x = static.data("x", [None, 4], "float16")
    y = paddle.nn.functional.gelu(x) + 1
    model = onnx.load(paddle.onnx.export(str(tmp_path / "net"), [x], [y]))
    value = np.linspace(-2, 2, 8).astype("float16").reshape(2, 4)
    found = evaluate(model, {"x": value})[y.name]
    wanted = static.Executor().run(feed={"x": value}, fetch_list=[y])[0]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_an_operator_without_a_form_is_named_with_its_line(tmp_path: Path) -> None:
    x = static.data("x", [3])
    y = paddle.lgamma(x)
    z = paddle.digamma(y)
    with pytest.raises(UnsupportedError, match=r"lgamma.*digamma") as caught:
        paddle.onnx.export(str(tmp_path / "net"), [x], [z])
    assert "test_export.py" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_form_that_needs_a_size_says_so(tmp_path: Path) -> None:
    x = static.data("x", [None, None, 4])
    y = paddle.roll(x, 1, axis=1)
    with pytest.raises(UnsupportedError, match="the size of the axis that is rolled") as caught:
        paddle.onnx.export(str(tmp_path / "net"), [x], [y])
    assert caught.value.op == "roll"
    assert "test_export.py" in str(caught.value)


def test_a_layer_another_version_and_missing_values_are_refused(tmp_path: Path) -> None:
    x, y = net()
    with pytest.raises(FeedError, match="Can not find Variable"):
        paddle.onnx.export(str(tmp_path / "net"), [x], [y])
    with pytest.raises(ProgramTypeError, match="exports static programs"):
        paddle.onnx.export(paddle.nn.Linear(4, 3), "net", [x])  # type: ignore[arg-type]
    with pytest.raises(ProgramTypeError, match="exports static programs"):
        paddle.onnx.export(paddle.nn.Linear(4, 3), path="net", input_spec=[x])
    with pytest.raises(ProgramError, match="version 18"):
        paddle.onnx.export(str(tmp_path / "net"), [x], [y], opset_version=9)
    assert not list(tmp_path.iterdir())


def test_the_package_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = net()
    started()
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingPackageError, match="onnx"):
        paddle.onnx.export(str(tmp_path / "net"), [x], [y])
