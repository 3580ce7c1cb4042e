"""Print, Assert and py_func in programs that run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import DTypeError, FeedError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.ops.control import debug, py_func

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 10


def executor() -> Any:
    return static.Executor(paddle.CPUPlace())


def data() -> Any:
    x = static.data("x", [None, 3])
    x.stop_gradient = False
    return x


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What Print ops say."""
    texts: list[str] = []
    before = debug.set_print_sink(texts.append)
    yield texts
    debug.set_print_sink(before)


# --------------------------------------------------------------------------------------------------------------- print
def test_print_says_value_and_gradient(said: list[str]) -> None:
    x = data()
    y = static.Print(x, message="look", summarize=4)
    static.append_backward(paddle.sum(y * y))
    out, grad = executor().run(feed={"x": X}, fetch_list=[y, "x@GRAD"])
    assert np.array_equal(out, X)
    assert np.allclose(grad, 2 * X)
    assert len(said) == 2
    assert said[0].splitlines() == [
        "Variable: x",
        "  - message: look",
        "  - lod: {}",
        "  - shape: [2, 3]",
        "  - layout: NCHW",
        "  - dtype: float32",
        "  - data: [0 0.1 0.2 0.3 ...]",
    ]
    assert said[1].startswith("Variable: x@GRAD\n")
    assert "0.2 0.4 0.6" in said[1]


@pytest.mark.parametrize(("phase", "names"), [("forward", ["x"]), ("BACKWARD", ["x@GRAD"]), ("both", ["x", "x@GRAD"])])
def test_print_phase(said: list[str], phase: str, names: list[str]) -> None:
    static.append_backward(paddle.sum(static.Print(data(), print_phase=phase)))
    executor().run(feed={"x": X})
    assert [t.splitlines()[0].removeprefix("Variable: ") for t in said] == names


def test_print_first_n(said: list[str]) -> None:
    x = data()
    static.append_backward(
        paddle.sum(static.Print(x, first_n=2, message="a") + static.Print(x, first_n=1, message="b"))
    )
    exe = executor()
    for _ in range(4):
        exe.run(feed={"x": X})
    messages = [t.splitlines()[1].split()[-1] for t in said]
    assert (messages.count("a"), messages.count("b")) == (4, 2)


def test_print_leaves_parts_out(said: list[str]) -> None:
    static.Print(
        paddle.full([2], 3, "int64"), summarize=-1, print_tensor_name=False, print_tensor_type=False,
        print_tensor_shape=False, print_tensor_layout=False, print_tensor_lod=False,
    )  # fmt: skip
    executor().run()
    assert said == ["Variable\n  - data: [3 3]\n"]


def test_print_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    static.Print(paddle.full([1], 2.5))
    executor().run()
    assert "data: [2.5]" in capsys.readouterr().out


def test_a_constant_is_printed_by_every_run(said: list[str]) -> None:
    static.Print(paddle.full([1], 2.5))
    exe = executor()
    for _ in range(2):
        exe.run()
    assert len(said) == 2


def test_a_branch_and_a_loop_print_though_nobody_reads_their_results(said: list[str]) -> None:
    x = data()

    def shown(message: str) -> Any:
        return static.Print(paddle.scale(x, 2.0), message=message)

    def loop(i: Any) -> Any:
        static.nn.cond(paddle.less_than(i, paddle.full([1], 1, "int64")), lambda: shown("loop"), lambda: x)
        return [paddle.scale(i, 1.0, 1.0)]

    static.nn.cond(paddle.all(x < paddle.full([1], 9.0)), lambda: shown("yes"), lambda: shown("no"))
    static.nn.while_loop(
        lambda i: paddle.less_than(i, paddle.full([1], 2, "int64")), loop, [paddle.zeros([1], "int64")]
    )
    assert executor().run(feed={"x": X}, fetch_list=[x])[0].tolist() == X.tolist()
    assert [text.splitlines()[1] for text in said] == ["  - message: yes", "  - message: loop"]


def test_print_refuses() -> None:
    with pytest.raises(ProgramError, match="print_phase"):
        static.Print(data(), print_phase="sideways")
    with pytest.raises(ProgramTypeError):
        static.Print(3)


# -------------------------------------------------------------------------------------------------------------- assert
def test_assert_stops_a_run() -> None:
    x = data()
    static.nn.Assert(paddle.max(x) < 1, [x])
    exe = executor()
    exe.run(feed={"x": X})
    with pytest.raises(FeedError, match="Assert") as caught:
        exe.run(feed={"x": X + 5})
    assert "5.1" in str(caught.value)
    assert "test_debug.py" in str(caught.value)
    exe.run(feed={"x": X})
    with pytest.raises(DTypeError):
        static.nn.Assert(x)
    with pytest.raises(ShapeError, match="one element"):
        static.nn.Assert(paddle.stack([paddle.max(x) < 1, paddle.max(x) < 2]))


# ------------------------------------------------------------------------------------------------------------- py_func
def out_like(name: str = "out", shape: Any = (-1, 3), dtype: str = "float32") -> Any:
    return static.default_main_program().current_block().create_var(name=name, shape=list(shape), dtype=dtype)


def test_py_func_calls_forward_and_backward() -> None:
    seen: list[Any] = []

    def backward(x: Any, y: Any, dy: Any) -> Any:
        seen.append((x, y, dy))
        return dy * (1 - y * y)

    x, out = data(), out_like()
    hidden = x * 2
    assert static.py_func(np.tanh, hidden, out, backward) is out
    static.append_backward(paddle.sum(out))
    value, grad = executor().run(feed={"x": X}, fetch_list=[out, "x@GRAD"])
    assert np.allclose(value, np.tanh(2 * X), rtol=1e-6)
    assert np.allclose(grad, 2 * (1 - np.tanh(2 * X) ** 2), rtol=1e-5)
    assert np.array_equal(seen[0][0], 2 * X)
    assert (seen[0][2] == 1).all()


def test_py_func_skips_variables_and_takes_lists() -> None:
    def backward(y: Any, dy: Any) -> Any:
        return [y * dy, None]

    x, z = data(), paddle.full([2, 3], 4.0)
    z.stop_gradient = False
    out = out_like()
    static.py_func(lambda a, b: a * b, [x, z], [out], backward, skip_vars_in_backward_input=[x, z])
    static.append_backward(paddle.sum(out))
    grads = executor().run(feed={"x": X}, fetch_list=["x@GRAD", z.name + "@GRAD"])
    assert np.allclose(grads[0], X * 4)
    assert (grads[1] == 0).all()


def test_py_func_two_results_of_which_one_is_used() -> None:
    def backward(x: Any, a: Any, b: Any, da: Any, db: Any) -> Any:
        assert (db == 0).all()
        return 3 * da

    x = data()
    a, b = out_like("a"), out_like("b", (-1,), "int64")
    static.py_func(lambda v: (3 * v, v.sum(axis=1) > 0.5), x, [a, b], backward)
    static.append_backward(paddle.sum(a))
    values = executor().run(feed={"x": X}, fetch_list=[a, b, "x@GRAD"])
    assert np.allclose(values[0], 3 * X)
    assert values[1].tolist() == [0, 1]
    assert (values[2] == 3).all()


def test_py_func_without_results_is_kept() -> None:
    calls: list[Any] = []
    x = data()
    static.py_func(calls.append, x, None)
    static.py_func(lambda: calls.append("none"), None, None)
    exe = executor()
    for _ in range(2):
        exe.run(feed={"x": X}, fetch_list=[x])
    assert len(calls) == 4
    assert np.array_equal(calls[0], X)


def test_py_func_gets_copies() -> None:
    def spoil(v: Any) -> Any:
        v[...] = 9
        return v

    x, out = data(), out_like()
    y = x + 1
    static.py_func(spoil, y, out)
    values = executor().run(feed={"x": X}, fetch_list=[y, out])
    assert np.allclose(values[0], X + 1)
    assert (values[1] == 9).all()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda v: v.astype(object), DTypeError),
        (lambda v: [v, v], ProgramError),
        (lambda v: None, ProgramError),
    ],
)
def test_py_func_checks_results(function: Any, error: type[Exception]) -> None:
    x, out = data(), out_like()
    static.py_func(function, x, out)
    with pytest.raises(error, match="py_func") as caught:
        executor().run(feed={"x": X}, fetch_list=[out])
    assert "test_debug.py" in str(caught.value)


@pytest.mark.parametrize("rows", [-1, 2])
def test_py_func_may_return_another_shape_than_was_declared(rows: int) -> None:
    x = static.data("x", [rows, 3])
    out = static.default_main_program().current_block().create_var(name="o", dtype="float32", shape=[rows, 3])
    static.py_func(lambda a: np.asarray(a)[:1], x, out)
    after = paddle.sum(out * 2.0 + 1.0, axis=0)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    got = executor().run(feed=feed, fetch_list=[out, after])
    np.testing.assert_array_equal(got[0], [[0, 1, 2]])
    np.testing.assert_array_equal(got[1], [1, 3, 5])


def test_py_func_refuses_at_build_time() -> None:
    x = data()
    with pytest.raises(TypeError, match="func"):
        static.py_func(3, x, out_like())
    with pytest.raises(TypeError, match="backward_func"):
        static.py_func(np.tanh, x, out_like(), "tanh")
    with pytest.raises(TypeError):
        static.py_func(np.tanh, "x", out_like())
    with pytest.raises(ProgramError, match="skip_vars"):
        static.py_func(np.tanh, x, out_like(), skip_vars_in_backward_input=[x * 2])
    with pytest.raises(ProgramError, match="shape"):
        static.py_func(np.tanh, x, static.default_main_program().current_block().create_var(name="n", dtype="float32"))


def test_py_func_of_another_process() -> None:
    out = out_like()
    attrs = {"forward_callable_id": 10**9, "out_shapes": ((-1, 3),), "out_dtypes": ("float32",)}
    static.default_main_program().current_block().append_op("py_func", {"X": data()}, {"Out": out}, attrs)
    with pytest.raises(NotFoundError, match="process"):
        executor().run(feed={"x": X}, fetch_list=[out])


def test_same_function_is_kept_once() -> None:
    assert py_func.function_id(np.tanh) == py_func.function_id(np.tanh)
