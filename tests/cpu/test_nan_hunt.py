"""The first NaN of a run: the message says whether the feed, a variable or an operator made it, and shows the ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import devices, nn, static
from tstatic.devices import HOST
from tstatic.errors import NumericsError
from tstatic.ir.types import Meta, float32
from tstatic.runtime import finite
from tstatic.static.compile import compile_program


@pytest.fixture(autouse=True)
def _flag() -> Iterator[None]:
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    yield
    paddle.set_flags({"FLAGS_check_nan_inf": False})


def caught(feed: dict[str, Any], fetch: Any) -> NumericsError:
    with pytest.raises(NumericsError) as raised:
        static.Executor("cpu").run(feed=feed, fetch_list=[fetch])
    return raised.value


def test_a_nan_in_a_feed_is_the_feeds() -> None:
    image = static.data("image", [None, 1, 6, 6])
    out = static.nn.conv2d(image, 2, 3)
    static.Executor("cpu").run(static.default_startup_program())
    x = np.ones((2, 1, 6, 6), np.float32)
    x[1, 0, 2, 3] = np.nan
    error = caught({"image": x}, out)
    assert "the fed 'image' holds 1 NaN or infinite values" in str(error)
    assert "1 NaN of 72 elements, first at [1, 0, 2, 3]; else from 1 to 1" in str(error)
    assert (error.var, error.op) == ("image", "conv2d")


def test_a_nan_that_a_view_passes_on_is_the_feeds() -> None:
    x = static.data("x", [2, 3])
    out = paddle.reshape(x, [3, 2]) * 2.0
    error = caught({"x": np.array([[1, np.inf, 2], [3, -np.inf, np.nan]], "float32")}, out)
    assert error.var == "x"
    assert "1 NaN and 2 infinite of 6 elements, first at [0, 1]; else from 1 to 3" in str(error)


def test_a_nan_in_a_variable_is_the_variables() -> None:
    weight = paddle.create_parameter([2], "float32", "w", default_initializer=nn.initializer.Constant(float("nan")))
    startup = static.default_startup_program()
    paddle.set_flags({"FLAGS_check_nan_inf": False})
    static.Executor("cpu").run(startup)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    error = caught({"x": np.ones(2, "float32")}, static.data("x", [2]) * weight)
    assert "the variable 'w' holds 2 NaN or infinite values before this step" in str(error)


def test_an_operator_that_makes_one_is_shown_with_its_inputs() -> None:
    x, y = static.data("x", [3]), static.data("y", [3])
    out = paddle.exp(x / y) * 2.0
    error = caught({"x": np.array([1, -2, 3], "float32"), "y": np.array([1, 0, 4], "float32")}, out)
    assert error.op == "elementwise_div"
    assert "no value before it does" in str(error)
    assert "1 infinite of 3 elements, first at [1]; else from 0.75 to 1" in str(error)
    assert "'x' from -2 to 3; 'y' from 0 to 4" in str(error)
    assert "test_nan_hunt.py" in str(error)


def test_a_nan_that_nothing_reads_on_is_no_finding() -> None:
    x = static.data("x", [2])
    out = paddle.where(paddle.isnan(x), paddle.ones([2]), x)
    (found,) = static.Executor("cpu").run(feed={"x": np.array([np.nan, 2], "float32")}, fetch_list=[out])
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("in_place", [False, True])
def test_ranges_are_those_before_the_operator(in_place: bool) -> None:
    """An op may overwrite its input: not while NaN is looked for."""
    x = static.data("x", [4])
    out = paddle.sqrt(x - 3.0)
    build = static.BuildStrategy()
    build.enable_inplace = in_place
    compiled = static.CompiledProgram(static.default_main_program(), build_strategy=build)
    with pytest.raises(NumericsError) as raised:
        static.Executor("cpu").run(compiled, feed={"x": np.array([1, 2, 3, 4], "float32")}, fetch_list=[out])
    assert "from -2 to 1" in str(raised.value)


@pytest.mark.parametrize("device", ["fake", "torch"])
def test_other_devices_say_the_same(device: str) -> None:
    if device == "torch":
        pytest.importorskip("torch")
    x = static.data("x", [3])
    out = paddle.log(x)
    feeds = [{"x": np.array([1, -1, 2], "float32")}, {"x": np.array([1, np.nan, 2], "float32")}]
    here = [str(caught(feed, out)) for feed in feeds]
    with devices.use(device):
        there = [str(caught(feed, out)) for feed in feeds]
    assert here == there
    assert "'x' from -1 to 2" in here[0]
    assert "the fed 'x'" in here[1]


def test_a_fused_operator_names_the_one_inside() -> None:
    x = static.data("x", [3])
    out = paddle.tanh(paddle.log(x * 2.0) + 1.0)
    build = static.BuildStrategy()
    build.enable_auto_fusion = True
    main, scope = static.default_main_program(), static.Scope()
    made = compile_program(main, build, [{"x": Meta((3,), float32)}], [out.name], scope, device=devices.DEVICES["fake"])
    one = made.first
    (op,) = (op for op in one.after.ops if op.body)
    given = {"x": np.array([1, -1, 2], "float32")}
    result = np.array([1, np.nan, 1], "float32")
    arrays = {**given, next(iter(op.writes())): result}
    with pytest.raises(NumericsError) as raised:
        finite.check_finite(HOST, op, arrays, HOST.stream(), one.plan)
    assert raised.value.op == "log"
    assert "from -2 to 4" in str(raised.value)


def test_contents_of_other_types() -> None:
    found = finite.contents_of(np.array([[3, 1], [2, 7]]))
    assert (found.bad, found.low, found.high) == (0, 1, 7)
    assert finite.contents_of(np.array([True, False])).text() == "from 0 to 1"
    assert (
        finite.contents_of(np.array([3 + 4j, np.nan])).text() == "1 NaN of 2 elements, first at [1]; else from 5 to 5"
    )
    assert finite.contents_of(np.full(2, np.nan, "float32")).text().endswith("else no finite element")
    assert finite.contents_of(np.empty(0, "float32")).text() == "no finite element"
