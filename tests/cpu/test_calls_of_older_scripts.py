"""Calls that scripts for Paddle make and that stopped here: what Paddle 1.8.5, 2.4.2 and 2.6.2 do with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import DTypeError, ShapeError
from tstatic.fluid import core
from tstatic.nn import functional as F


# ---------------------------------------------------------------------------------------------------------------- files
def trained() -> tuple[Any, Any, static.Executor]:
    x = static.data("x", [-1, 4])
    y = paddle.mean(static.nn.fc(x, 2))
    paddle.optimizer.Adam(0.1).minimize(y)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    return x, y, exe


@pytest.mark.parametrize("format", ["tstatic", "paddle"])
def test_a_model_without_inputs_and_results_is_a_program_alone(tmp_path: Path, format: str) -> None:
    """Paddle 2.6.2 writes a .pdmodel, and no file of values; scripts save so on ranks that have nothing to save."""
    x, _, exe = trained()
    static.save_inference_model(str(tmp_path / "m"), [], [], exe, format=format)
    assert os.listdir(tmp_path) == ["m.pdmodel"]
    program, feeds, fetches = static.load_inference_model(str(tmp_path / "m"), exe)
    assert (list(feeds), list(fetches), program.global_block().ops) == ([], [], [])
    with pytest.raises(ValueError, match="input 'x' has no part"):
        static.save_inference_model(str(tmp_path / "n"), [x], [], exe)
    assert os.listdir(tmp_path) == ["m.pdmodel"]


@pytest.mark.parametrize("optimizer", [None, paddle.optimizer.SGD, paddle.optimizer.Adam])
def test_a_save_has_the_optimizers_state_in_a_file_of_its_own(tmp_path: Path, optimizer: Any) -> None:
    """Guards ``paddle.load(path + ".pdopt")``: Paddle writes that file for every program."""
    loss = paddle.mean(static.nn.fc(static.data("x", [-1, 4]), 2, name="fc"))
    if optimizer is not None:
        optimizer(0.1).minimize(loss)
    exe, main = static.Executor("cpu"), static.default_main_program()
    exe.run(static.default_startup_program())
    static.save(main, str(tmp_path / "m"))
    assert sorted(os.listdir(tmp_path)) == ["m.pdmodel", "m.pdopt", "m.pdparams"]
    state = paddle.load(str(tmp_path / "m.pdopt"))
    assert len(state) == {None: 0, paddle.optimizer.SGD: 1, paddle.optimizer.Adam: 9}[optimizer]
    assert sorted(paddle.load(str(tmp_path / "m.pdparams"))) == ["fc.b_0", "fc.w_0"]
    before = {name: np.array(tensor) for name, tensor in main.state_dict().items()}
    static.set_program_state(main, {name: np.zeros_like(array) for name, array in before.items()})
    static.load(main, str(tmp_path / "m"))
    for name, tensor in main.state_dict().items():
        np.testing.assert_array_equal(np.array(tensor), before[name])
    assert static.load_program_state(str(tmp_path / "m")).keys() == before.keys()


def test_a_save_of_an_earlier_version_with_all_values_in_one_file_loads(tmp_path: Path) -> None:
    _, _, exe = trained()
    main = static.default_main_program()
    static.io.save_vars(exe, str(tmp_path), main, predicate=static.io.is_persistable, filename="m.pdparams")
    before = {name: np.array(tensor) for name, tensor in main.state_dict().items()}
    static.set_program_state(main, {name: np.zeros_like(array) for name, array in before.items()})
    static.load(main, str(tmp_path / "m"))
    assert all(np.array_equal(np.array(t), before[name]) for name, t in main.state_dict().items())


@pytest.mark.parametrize("function", ["params", "persistables", "vars"])
def test_values_saved_to_no_folder_are_bytes(function: str) -> None:
    """Guards ``save_persistables(exe, None, program)``, of which Paddle 2.4.2 returns bytes."""
    _, _, exe = trained()
    main = static.default_main_program()
    more = {"vars": main.all_parameters()} if function == "vars" else {}
    content = getattr(fluid.io, f"save_{function}")(exe, None, main, **more)
    assert isinstance(content, bytes)
    weight = main.all_parameters()[0]
    before = np.array(weight.get_value())
    weight.set_value(np.zeros_like(before))
    getattr(fluid.io, f"load_{function}")(exe, None, main, filename=content, **more)
    np.testing.assert_array_equal(np.array(weight.get_value()), before)
    with pytest.raises(ValueError, match="must be a folder"):
        fluid.io.load_params(exe, None, main)


# ------------------------------------------------------------------------------------------------------------- variables
def test_a_parameter_of_a_block_takes_shape_and_dtype_by_position() -> None:
    made = static.default_main_program().global_block().create_parameter([2, 3], "float32", name="w")
    assert (made.name, made.shape, made.dtype) == ("w", (2, 3), "float32")


def test_a_tensor_is_made_with_the_lengths_of_its_sequences() -> None:
    tensor = core.LoDTensor([[2, 3]])
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([[0, 2, 5]], [[2, 3]])
    tensor.set(np.ones((5, 1), "float32"), fluid.CPUPlace())
    assert tensor.has_valid_recursive_sequence_lengths()


def test_a_variable_without_a_declared_shape_takes_that_of_each_assignment() -> None:
    """Guards ``assign`` to a persistable ``create_tensor``; a variable with a declared shape keeps it."""
    held = fluid.layers.create_tensor("float32", persistable=True)
    x, z = static.data("x", [2, 3]), static.data("z", [4])
    paddle.assign(x, held)
    assert held.shape == (2, 3)
    paddle.assign(z, held)
    assert held.shape == (4,)
    feed = {"x": np.ones((2, 3), "float32"), "z": np.arange(4, dtype="float32")}
    (found,) = static.Executor("cpu").run(feed=feed, fetch_list=[held])
    assert found.tolist() == [0, 1, 2, 3]
    kept = static.create_global_var([2], 0.0, "float32", persistable=True)
    with pytest.raises(ShapeError, match="another shape"):
        paddle.assign(z, kept)


def label_by_data() -> Any:
    return fluid.layers.data("label", [1], dtype="float32")


def label_by_hand() -> Any:
    label = static.default_main_program().global_block().create_var(name="label", shape=[-1, 1], dtype="float32")
    label.is_data = True
    return label


@pytest.mark.parametrize("declare", [label_by_data, label_by_hand])
@pytest.mark.parametrize(
    "loss", [lambda x, y: fluid.layers.cross_entropy(fluid.layers.softmax(x), y), F.softmax_with_cross_entropy]
)
def test_labels_declared_without_a_dtype_are_looked_at_in_the_run(
    declare: Callable[[], Any], loss: Callable[..., Any]
) -> None:
    """Guards scripts that declare a label as float32, which is the default, and feed int64."""
    x, label = static.data("x", [-1, 4]), declare()
    cost = paddle.mean(loss(static.nn.fc(x, 3), label))
    paddle.optimizer.SGD(0.1).minimize(cost)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    feed = {"x": np.ones((2, 4), "float32"), "label": np.array([[0], [2]])}
    first, second = (float(exe.run(feed=feed, fetch_list=[cost])[0]) for _ in range(2))
    assert second < first
    with pytest.raises(DTypeError, match="Label"):
        exe.run(feed={**feed, "label": np.zeros((2, 1), "float32")}, fetch_list=[cost])


def test_a_checked_label_of_floats_is_refused_when_the_program_is_built() -> None:
    x, label = static.data("x", [-1, 4]), static.data("label", [-1, 1])
    with pytest.raises(DTypeError, match="Label"):
        F.softmax_with_cross_entropy(x, label)


def test_a_reader_takes_the_dtype_that_its_source_gives() -> None:
    """Guards ``py_reader(dtypes=["float"])``, which declares float64: sources give float32, and Paddle takes it."""
    reader = fluid.layers.py_reader(capacity=2, shapes=[(-1, 3)], dtypes=["float"])
    x = fluid.layers.read_file(reader)
    y = x * 2
    assert x.dtype == "float64"
    for dtype in ("float32", "float64"):
        reader.decorate_tensor_provider(lambda dtype=dtype: iter([[np.ones((2, 3), dtype)]]))
        reader.start()
        assert static.Executor("cpu").run(fetch_list=[y])[0].dtype == dtype
        reader.reset()


# ------------------------------------------------------------------------------------------------------------- operators
def test_the_raw_split_takes_its_axis_and_its_sizes_from_variables() -> None:
    block = static.default_main_program().global_block()
    x = static.data("x", [2, 6])

    def split(inputs: dict[str, Any], **attrs: Any) -> list[Any]:
        outs = [block.create_var(name=paddle.utils.unique_name.generate("part"), dtype="float32") for _ in range(2)]
        block.append_op(type="split", inputs={"X": x, **inputs}, outputs={"Out": outs}, attrs=attrs)
        return outs

    axis = static.data("axis", [1], "int32")
    sizes = [paddle.full([1], n, "int32") for n in (2, 4)]
    parts = [
        *split({"AxisTensor": axis}, num=2, axis=0),
        *split({"SectionsTensorList": sizes}, sections=[-1, -1], axis=1),
        *split({"AxisTensor": axis}, num=0, sections=[1, 5]),
    ]
    feed = {"x": np.arange(12, dtype="float32").reshape(2, 6), "axis": np.array([1], "int32")}
    found = static.Executor("cpu").run(feed=feed, fetch_list=parts)
    for got, at in zip(found, (slice(3), slice(3, 6), slice(2), slice(2, 6), slice(1), slice(1, 6)), strict=True):
        np.testing.assert_array_equal(got, feed["x"][:, at])


@pytest.mark.parametrize("rows", [4, 6, 2])
def test_weights_of_sampled_losses_fit_the_rows_or_are_refused(rows: int) -> None:
    """Paddle reads behind the end of too few weights, and the first of too many."""
    x, label = static.data("x", [4, 8]), static.data("label", [4, 1], "int64")
    weight = static.data("weight", [-1, 1])
    x.stop_gradient = False
    costs = [
        static.nn.nce(x, label, 10, sample_weight=w, seed=3, param_attr="w", bias_attr="b") for w in (weight, None)
    ]
    fetches = [*costs, *static.gradients([costs[0]], [x])]
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    given = np.arange(rows, dtype="float32").reshape(-1, 1)
    feed = {"x": np.ones((4, 8), "float32"), "label": np.zeros((4, 1), "int64"), "weight": given}
    if rows < 4:
        with pytest.raises(ShapeError, match="SampleWeight has fewer"):
            exe.run(feed=feed, fetch_list=fetches)
        return
    weighted, plain, gradient = exe.run(feed=feed, fetch_list=fetches)
    assert weighted.shape == plain.shape
    assert weighted[0] == 0
    assert (weighted[1:] > 0).all()
    assert not gradient[0].any()
    assert gradient[1:].any(axis=1).all()


# ----------------------------------------------------------------------------------------------------------------- names
def test_functions_are_reached_by_the_modules_that_paddle_has_them_in() -> None:
    """Guards ``F.loss.edit_distance``, and the other modules of ``nn.functional`` and ``tensor``."""
    assert F.loss.edit_distance is fluid.layers.edit_distance
    assert F.loss.cross_entropy is F.cross_entropy
    for name in ("activation", "common", "conv", "distance", "extension", "input", "norm", "pooling", "vision"):
        assert getattr(F, name).relu is F.relu
    assert paddle.nn.layer.distance.PairwiseDistance is paddle.nn.PairwiseDistance
    assert paddle.tensor.ops.exp is paddle.exp
    assert F.normalize is not F.norm  # the module


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("nn.functional.loss.edit_distanc", "'edit_distance'"),
        ("tensor.math.ad", "'add'"),
        ("nn.functional.common.dropou", "'dropout'"),
    ],
)
def test_the_advice_for_a_missing_name_is_of_the_module_that_was_asked(path: str, hint: str) -> None:
    module: Any = paddle
    *names, last = path.split(".")
    for name in names:
        module = getattr(module, name)
    with pytest.raises(AttributeError, match=f"module 'tstatic.{'.'.join(names)}'.*{hint}"):
        getattr(module, last)
