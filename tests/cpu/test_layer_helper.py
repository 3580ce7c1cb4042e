"""Layers of one's own, written with ``LayerHelper`` as in Paddle 1.x; names and answers are those of Paddle 2.6.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_layer, sample
from tstatic import static
from tstatic.errors import DTypeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.fluid.layer_helper import LayerHelper
from tstatic.nn.initializer import Constant

torch = pytest.importorskip("torch")


def affine(
    input: Any, size: int, param_attr: Any = None, bias_attr: Any = None, act: Any = None, name: str | None = None
) -> Any:
    """``fluid.layers.fc`` as Paddle 1.8 writes it."""
    helper = LayerHelper("affine", **locals())
    products = []
    for x, attr in helper.iter_inputs_and_params():
        w = helper.create_parameter(attr=attr, shape=[x.shape[1], size], dtype=helper.input_dtype(), is_bias=False)
        product = helper.create_variable_for_type_inference(helper.input_dtype())
        helper.append_op(
            type="mul", inputs={"X": x, "Y": w}, outputs={"Out": product}, attrs={"x_num_col_dims": 1, "y_num_col_dims": 1}
        )  # fmt: skip
        products.append(product)
    out = products[0]
    if len(products) > 1:
        out = helper.create_variable_for_type_inference(helper.input_dtype())
        helper.append_op(type="sum", inputs={"X": products}, outputs={"Out": out})
    return helper.append_activation(helper.append_bias_op(out, dim_start=1))


def test_a_layer_of_ones_own() -> None:
    run = check_layer(
        lambda x, y: affine([x, y], 4, act="tanh"),
        lambda p, x, y: torch.tanh(x @ p["affine_0.w_0"] + y @ p["affine_0.w_1"] + p["affine_0.b_0"]),
        {"x": sample(5, 3), "y": sample(5, 2)},
        parameters=["affine_0.w_0", "affine_0.w_1", "affine_0.b_0"],
        result="affine_0.tmp_4",
    )
    assert run.ops() == ["mul", "mul", "sum", "elementwise_add", "tanh"]


def test_a_layer_of_ones_own_without_bias_and_activation() -> None:
    run = check_layer(
        lambda x: affine(x, 4, param_attr="w", bias_attr=False, name="mine"),
        lambda p, x: x @ p["w"],
        {"x": sample(5, 3)},
        parameters=["w"],
        result="mine.tmp_0",
    )
    assert run.ops() == ["mul"]


def test_state_of_ones_own() -> None:
    helper = LayerHelper("counter")
    count = helper.create_global_variable(persistable=True, dtype="float32", shape=[1], name="count")
    assert helper.create_or_get_global_variable("count", dtype="float32", shape=[1]) == (count, False)
    made, new = helper.create_or_get_global_variable("other", dtype="float32", shape=[1], persistable=True)
    assert (made.name, new, made.persistable) == ("other", True, True)
    helper.set_variable_initializer(count, Constant(3.0))
    helper.append_op(type="increment", inputs={"X": [count]}, outputs={"Out": [count]}, attrs={"step": 1.0})
    exe = static.Executor()
    exe.run(static.default_startup_program())
    assert [exe.run(fetch_list=[count])[0].tolist() for _ in range(2)] == [[4.0], [5.0]]


# -------------------------------------------------------------------------------------------------------------- names
def test_helpers_are_counted_when_they_are_made() -> None:
    first, second = LayerHelper("mine"), LayerHelper("mine")
    assert (second.name, first.name, first.layer_type) == ("mine_1", "mine_0", "mine")
    assert first.kwargs == {"name": "mine_0"}
    assert LayerHelper("mine", name="given").name == "given"
    assert (first.main_program, first.startup_program) == (
        static.default_main_program(), static.default_startup_program(),
    )  # fmt: skip


def test_names_of_parameters_made_alone() -> None:
    attr = paddle.ParamAttr(initializer=Constant(1.0))
    made = [
        paddle.create_parameter([2], "float32", attr="a"),
        paddle.create_parameter([2], "float32"),
        paddle.create_parameter([2], "float32", name="n", attr=attr),
        paddle.create_parameter([2], "float32", name="m"),
    ]
    assert [p.name for p in made] == ["a", "create_parameter_1.w_0", "n.w_0", "m"]
    assert paddle.create_parameter([2], "float32", attr=False) is None


@pytest.mark.parametrize(
    ("other", "error", "told"),
    [
        ({"shape": [3]}, ShapeError, "shape=(3,)"),
        ({"shape": [-1, 3]}, ShapeError, "shape=(-1, 3)"),
        ({"dtype": "int64"}, DTypeError, "dtype=tstatic.int64"),
        ({"lod_level": 1}, ProgramError, "lod_level=1"),
        ({"persistable": True}, ProgramError, "persistable=True"),
    ],
)
def test_a_variable_is_not_declared_again_as_another(other: dict[str, Any], error: type[Exception], told: str) -> None:
    """As in Paddle; a declaration that says less, or the same, gives the variable that is there."""
    program = static.default_main_program()
    block = program.global_block()
    made = block.create_var(name="made", shape=[2, 3], dtype="float32")
    for same in ({}, {"shape": (2, 3)}, {"dtype": np.float32, "lod_level": 0, "persistable": False}):
        assert block.create_var(name="made", **same) is made
    text = program.to_string(with_details=True)
    with pytest.raises(error, match="exists already") as raised:
        block.create_var(name="made", **other)
    assert raised.value.received == told  # type: ignore[attr-defined]
    assert program.to_string(with_details=True) == text
    open_one = block.create_var(name="open")
    assert block.create_var(name="open", shape=[4], dtype="int64") is open_one


def test_a_variable_takes_the_shapes_that_data_takes() -> None:
    block = static.default_main_program().global_block()
    for shape, sizes in (([None, 3], (-1, 3)), ((np.int64(2), -1), (2, -1)), (4, (4,)), ([], ()), (None, ())):
        var = block.create_var(name="v", shape=shape)
        assert var.shape == sizes
        assert block.create_var(name="v", shape=shape) is var
        block._remove_var("v")


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ([1.5, 2], ProgramTypeError),
        ([True, 2], ShapeError),
        ("23", ProgramTypeError),
        ({2: 3}, ProgramTypeError),
        ([[1], 2], ProgramTypeError),
        ([-2, 3], ShapeError),
        ([1 << 40, 1 << 40], ShapeError),
    ],
)
def test_a_shape_that_is_none_is_refused_and_changes_nothing(shape: Any, error: type[Exception]) -> None:
    program = static.default_main_program()
    block = program.global_block()
    var = block.create_var(name="there", shape=[2, 3], dtype="float32")
    text = program.to_string(with_details=True)

    def assign() -> None:
        var.shape = shape

    for call in (
        lambda: block.create_var(name="new", shape=shape),
        lambda: block.create_var(name="there", shape=shape),
        assign,
    ):
        with pytest.raises(error, match=r"'(item of )?shape'|the shape") as raised:
            call()
        assert raised.value.fix  # type: ignore[attr-defined]
    assert program.to_string(with_details=True) == text


def test_names_of_variables() -> None:
    helper = LayerHelper("mine")
    assert helper.create_variable(shape=[2], dtype="float32").name == "_generated_var_0"
    assert helper.create_variable(name="v", shape=[2], dtype="float32").name == "v"
    assert [helper.create_variable_for_type_inference("float32").name for _ in range(2)] == [
        "mine_0.tmp_0", "mine_0.tmp_1",
    ]  # fmt: skip
    assert [helper.create_parameter(None, [2]).name, helper.create_parameter(None, [2], is_bias=True).name] == [
        "mine_0.w_0", "mine_0.b_0",
    ]  # fmt: skip
    assert helper.get_parameter("mine_0.w_0").shape == (2,)
    with pytest.raises(ProgramTypeError, match="must be Parameter"):
        helper.get_parameter("v")


# ---------------------------------------------------------------------------------------------------------- what ops infer
def test_an_op_may_change_the_dtype_that_was_expected() -> None:
    x = static.data("x", [-1, 3])
    helper = LayerHelper("mine")
    out = helper.create_variable_for_type_inference(x.dtype)
    assert (out.dtype.name, out.shape, out.stop_gradient) == ("float32", (), False)
    helper.append_op(type="equal", inputs={"X": x, "Y": x}, outputs={"Out": out})
    assert (out.dtype.name, out.shape, out.stop_gradient) == ("bool", (-1, 3), True)
    # Once an op has written it, its dtype is fixed.
    with pytest.raises(TypeError, match="another dtype"):
        helper.append_op(type="scale", inputs={"X": x}, outputs={"Out": out})
    assert out.dtype.name == "bool"
    fixed = helper.create_variable_for_type_inference(None, stop_gradient=True, shape=[1])
    assert (fixed.dtype.name, fixed.shape, fixed.stop_gradient) == ("float32", (1,), True)


def test_a_variable_that_is_declared_keeps_its_dtype() -> None:
    x = static.data("x", [-1, 3])
    out = LayerHelper("mine").create_variable(name="out", dtype="float32")
    with pytest.raises(TypeError, match="another dtype"):
        LayerHelper("mine").append_op(type="equal", inputs={"X": x, "Y": x}, outputs={"Out": out})


@pytest.mark.parametrize(
    ("given", "shape", "axis"), [({}, (3, 4), 1), ({"dim_start": 2}, (4,), 2), ({"dim_end": 2}, (3,), 1)]
)
def test_bias(given: dict[str, int], shape: tuple[int, ...], axis: int) -> None:
    x = static.data("x", [-1, 3, 4])
    out = LayerHelper("mine").append_bias_op(x, **given)
    assert out.name == "mine_0.tmp_0"
    assert static.default_main_program().global_block().var("mine_0.b_0").shape == shape
    assert static.default_main_program().global_block().ops[-1].attr("axis") == axis
    value = np.arange(12, dtype="float32").reshape(1, 3, 4)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    assert exe.run(feed={"x": value}, fetch_list=[out])[0].tolist() == value.tolist()


def test_no_bias_for_an_unknown_size() -> None:
    with pytest.raises(ShapeError, match="must be greater than 0"):
        LayerHelper("mine").append_bias_op(static.data("x", [-1, 3]), dim_start=0)


def test_ops_take_the_attributes_that_choose_a_library() -> None:
    x = static.data("x", [-1, 3])
    helper = LayerHelper("mine")
    out = helper.create_variable_for_type_inference(x.dtype)
    op = helper.append_op("relu", {"X": [x]}, {"Out": [out]}, {"use_cudnn": True, "use_mkldnn": False})
    assert "use_cudnn" not in op.attr_names
    with pytest.raises(ProgramError, match="has no attribute 'use_cudn'"):
        helper.append_op("relu", {"X": [x]}, {"Out": [out]}, {"use_cudn": True})


# ------------------------------------------------------------------------------------------------------------- arguments
def test_inputs() -> None:
    x, y = static.data("x", [-1, 3]), static.data("y", [-1, 3], "int64")
    helper = LayerHelper("mine", input=x, both=[x, y], same=(x, x))
    assert helper.multiple_input() == [x]
    assert helper.input() is x
    assert helper.input_dtype() is x.dtype
    assert helper.multiple_input("both") == [x, y]
    assert helper.input_dtype("same") is x.dtype
    assert (helper.multiple_input("absent"), helper.input_dtype("absent")) == ([], None)
    with pytest.raises(ValueError, match="Data Type mismatch: float32 to int64") as caught:
        helper.input_dtype("both")
    assert isinstance(caught.value, ProgramError)
    with pytest.raises(TypeError):
        helper.input("same")
    with pytest.raises(TypeError, match="must be Variable"):
        LayerHelper("mine", input=3).multiple_input()


def test_attributes_of_parameters() -> None:
    helper = LayerHelper("mine", param_attr="w", bias_attr=False)
    assert (helper.param_attr.name, helper.bias_attr) == ("w", False)
    assert LayerHelper("mine").param_attr.name is None
    one, other = helper.multiple_param_attr(2)
    assert one is not other
    assert [one.name, other.name] == ["w", "w"]
    assert [a.name for a in LayerHelper("mine", param_attr=[None, "w"]).multiple_param_attr(2)] == [None, "w"]
    with pytest.raises(ValueError, match="param_attr"):
        LayerHelper("mine", param_attr=[None, None]).multiple_param_attr(3)
    assert helper.create_parameter(False, [2, 3]) is None


def test_activations() -> None:
    x = static.data("x", [-1, 3])
    assert LayerHelper("mine").append_activation(x) is x
    assert LayerHelper("mine", act="relu").append_activation(x).name == "mine_1.tmp_0"
    with pytest.raises(TypeError, match="act"):
        LayerHelper("mine", act=3).append_activation(x)
    with pytest.raises(NotFoundError, match="has not been registered"):
        LayerHelper("mine", act="nope").append_activation(x)
    with pytest.raises(ValueError, match="has not been registered"):
        LayerHelper("mine", act="nope").append_activation(x)


@pytest.mark.parametrize("made", ["block", "helper"])
def test_a_variable_is_filled_by_the_initializer_that_it_is_made_with(made: str) -> None:
    block = static.default_main_program().global_block()
    given: dict[str, Any] = {"name": "filled", "shape": [2, 3], "dtype": "float32", "initializer": Constant(2.5)}
    var = block.create_var(**given) if made == "block" else LayerHelper("mine").create_variable(**given)
    assert [op.type for op in block.ops] == ["fill_constant"]
    assert static.Executor().run(fetch_list=[var])[0].tolist() == [[2.5] * 3] * 2
    # One that is there is filled, too.
    assert block.create_var(name="filled", initializer=Constant(1.0)) is var
    assert static.Executor().run(fetch_list=[var])[0].tolist() == [[1.0] * 3] * 2
