"""Complex values: dtypes, programs, files, gradients as torch has them, kernels that leave them alone, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import errors, fluid, static

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0, dtype: Any = np.complex64) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def run(fetches: list[Any], **feed: Array) -> list[Array]:
    return static.Executor().run(feed=feed, fetch_list=fetches)


# ------------------------------------------------------------------------------------------------------------------ types
@pytest.mark.parametrize(("name", "number", "part"), [("complex64", 23, "float32"), ("complex128", 24, "float64")])
def test_a_complex_type_has_paddles_number_and_parts(name: str, number: int, part: str) -> None:
    dtype = getattr(paddle, name)
    assert (dtype.name, int(dtype), dtype.real, dtype.complex, dtype.itemsize) == (
        name, number, getattr(paddle, part), dtype, 8 if number == 23 else 16,
    )  # fmt: skip
    assert dtype == getattr(fluid.core.VarDesc.VarType, name.upper()) == name
    assert dtype == number
    x = static.data("x", [2], name)
    assert (paddle.is_complex(x), paddle.is_floating_point(x), paddle.is_integer(x)) == (True, False, False)


def test_numbers_and_dtypes_meet_in_a_complex_type() -> None:
    x, y = static.data("x", [2], "float32"), static.data("y", [2], "float64")
    z, n = static.data("z", [2], "complex64"), static.data("n", [2], "int64")
    kinds = [v.dtype.name for v in (x + z, y * z, z - n, x * 1j, y + 1j, z / 2, n * 2j, x + paddle.full([2], 1j))]
    assert kinds == [
        "complex64", "complex128", "complex64", "complex64", "complex128", "complex64", "complex64", "complex64",
    ]  # fmt: skip


def test_a_product_of_mixed_types_and_python_numbers_has_numpys_values() -> None:
    x, z = static.data("x", [3], "float32"), static.data("z", [3], "complex64")
    values = {"x": np.float32([1, -2, 3]), "z": numbers(3)}
    found = run([x * z, (2 - 1j) * z, z / (1 + 1j), 3 / z, z - 0.5, -z, z**2, z == z], **values)
    a, c = values["x"], values["z"]
    wanted = [a * c, (2 - 1j) * c, c / (1 + 1j), 3 / c, c - 0.5, -c, c**2, c == c]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6)


# ---------------------------------------------------------------------------------------------------------------- programs
def test_constants_feeds_and_fetches_keep_complex_values() -> None:
    x = static.data("x", [None, 2], "complex128")
    made = [
        paddle.to_tensor([1 + 2j, 3.0]), paddle.full([2], 1 - 1j, "complex128"), paddle.zeros([1], "complex64"),
        paddle.ones_like(x), paddle.assign(np.array([1j])), paddle.cast(x, "complex64"),
    ]  # fmt: skip
    value = numbers(3, 2, dtype=np.complex128)
    found = run([x, *made], x=value)
    assert [f.dtype.name for f in found] == [
        "complex128", "complex64", "complex128", "complex64", "complex128", "complex128", "complex64",
    ]  # fmt: skip
    assert np.array_equal(found[0], value)
    assert found[1].tolist() == [1 + 2j, 3]
    assert found[2].tolist() == [1 - 1j] * 2
    assert found[4].tolist() == [[1, 1]] * 3


def test_a_complex_list_may_be_fed_where_the_input_is_complex() -> None:
    x, y = static.data("x", [2], "complex64"), static.data("y", [2], "float32")
    assert run([x * 2], x=[1j, 2])[0].tolist() == [2j, 4]  # type: ignore[arg-type]
    with pytest.raises(errors.FeedTypeError, match="complex numbers was fed for 'y'"):
        run([y * 2], y=[1j, 2])  # type: ignore[arg-type]
    with pytest.raises(errors.FeedTypeError, match="must be 'complex64', but received 'complex128'"):
        run([x * 2], x=np.array([1j, 2]))


def test_shapes_and_loops_work_on_complex_values() -> None:
    x = static.data("x", [2, 3], "complex64")
    value = numbers(2, 3)
    i = paddle.zeros([1], "int64")
    _, looped = static.nn.while_loop(lambda i, v: i < 3, lambda i, v: [i + 1, v * 1j], [i, x])
    chosen = static.nn.cond(paddle.sum(paddle.abs(x)) > 0, lambda: paddle.conj(x), lambda: x)
    found = run(
        [
            paddle.transpose(x, [1, 0]), paddle.reshape(x, [-1]), paddle.concat([x, x], 1), x[1, ::2], paddle.stack([x, x]),
            paddle.mean(x, 0), paddle.sum(x), paddle.prod(x, 1), paddle.matmul(x, x, transpose_y=True), paddle.tile(x, [2, 1]),
            paddle.gather(x, paddle.to_tensor([1])), paddle.where(paddle.real(x) > 0, x, -x), paddle.tril(x), looped, chosen,
            paddle.nn.functional.pad(paddle.reshape(x, [1, 2, 3]), [1, 0], data_format="NCL"),
        ],
        x=value,
    )  # fmt: skip
    wanted = [
        value.T, value.ravel(), np.concatenate([value, value], 1), value[1, ::2], np.stack([value, value]), value.mean(0),
        value.sum(), value.prod(1), value @ value.T, np.tile(value, (2, 1)), value[1:], np.where(value.real > 0, value, -value),
        np.tril(value), value * 1j**3, value.conj(), np.pad(value[None], ((0, 0), (0, 0), (1, 0))),
    ]  # fmt: skip
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("format", ["tstatic", "paddle"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_parameters_and_programs_are_saved(dtype: str, format: str, tmp_path: Path) -> None:
    x = static.data("x", [2, 2], dtype)
    w = paddle.create_parameter(
        [2, 2], dtype, name="w", default_initializer=paddle.nn.initializer.Assign(numbers(2, 2))
    )
    y = paddle.abs(paddle.matmul(x, w) * (1 + 1j))
    exe, value = static.Executor(), numbers(2, 2, seed=1, dtype=dtype)
    exe.run(static.default_startup_program())
    (before,) = exe.run(feed={"x": value}, fetch_list=[y])
    options = {} if format == "tstatic" else {"format": "paddle"}
    static.save_inference_model(str(tmp_path / "m"), [x], [y], exe, **options)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "m"), exe)
        assert np.array_equal(exe.run(program, feed={feeds[0]: value}, fetch_list=fetches)[0], before)
    static.save(static.default_main_program(), str(tmp_path / "all"))
    exe.run(static.default_startup_program())
    static.load(static.default_main_program(), str(tmp_path / "all"))
    assert np.array_equal(exe.run(feed={"x": value}, fetch_list=[y])[0], before)


# --------------------------------------------------------------------------------------------------------------- gradients
def against_torch(function: Callable[[Any, Any, Any], Any], *values: Array, tolerance: float = 1e-9) -> None:
    """The gradients of a real loss, written once for both libraries, are torch's."""
    inputs = [static.data(f"x{i}", v.shape, v.dtype) for i, v in enumerate(values)]
    for x in inputs:
        x.stop_gradient = False
    loss = function(paddle, *inputs) if len(inputs) == 2 else function(paddle, inputs[0], None)
    grads = paddle.grad(loss, inputs)
    found = run([loss, *grads], **{f"x{i}": v for i, v in enumerate(values)})
    tensors = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    total = function(torch, *tensors) if len(inputs) == 2 else function(torch, tensors[0], None)
    wanted = torch.autograd.grad(total, tensors)
    np.testing.assert_allclose(found[0], total.item(), rtol=tolerance)
    for got, want in zip(found[1:], wanted, strict=True):
        want = want.detach().resolve_conj().numpy()
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


FORMULAS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "product": lambda p, x, y: p.sum(p.abs(x * y)),
    "quotient": lambda p, x, y: p.sum(p.real(x / y)) + p.sum(p.imag(y)),
    "matrix product": lambda p, x, y: p.sum(p.abs(p.matmul(x, y))),
    "sum and difference": lambda p, x, y: p.sum(p.abs(x - 2 * y + 1)),
    "power": lambda p, x, y: p.sum(p.real(p.pow(x, 3) + p.square(y))),
    "power of a power": lambda p, x, y: p.sum(p.imag(p.pow(x, y))),
    "exponentials": lambda p, x, y: p.sum(p.real(p.exp(x) * p.log(y))),
    "circular functions": lambda p, x, y: p.sum(p.imag(p.sin(x) * p.cos(y) + p.tan(x) + p.tanh(y))),
    "hyperbolic functions": lambda p, x, y: p.sum(p.real(p.sinh(x) + p.cosh(y) + p.asinh(x) + p.atan(y))),
    "roots": lambda p, x, y: p.sum(p.real(p.sqrt(x) + p.rsqrt(y) + p.reciprocal(x) + p.tanh(y))),
    "means and products": lambda p, x, y: p.abs(p.mean(x)) + p.real(p.sum(p.prod(y, 1))),
    "conjugates and angles": lambda p, x, y: p.sum(p.angle(p.conj(x) * y)) + p.real(p.sum(x * p.conj(x))),
    "pieces": lambda p, x, y: p.sum(p.abs(p.concat([x[0:1], y[1:2] * 1j], 0) * p.reshape(y, [9])[0:3])),
    "pairs": lambda p, x, y: p.sum((p.view_as_real if p is torch else p.as_real)(x * y) ** 3),
    "a value that is read twice": lambda p, x, y: p.real(p.sum(x * x * y + x)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_are_those_of_torch(name: str) -> None:
    against_torch(FORMULAS[name], numbers(3, 3, dtype=np.complex128), numbers(3, 3, seed=1, dtype=np.complex128))


def test_gradients_of_real_values_through_complex_ones_are_real() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(3,))
    against_torch(lambda p, x, y: p.sum(p.abs(p.exp(p.complex(x, x * y)))), x, y)


def test_gradients_of_polar_coordinates_and_casts_are_those_of_torch() -> None:
    rng = np.random.default_rng(0)

    def loss(p: Any, x: Any, y: Any) -> Any:
        z = p.polar(p.abs(x), y)
        wide = (
            z.to(torch.complex64).to(torch.complex128) if p is torch else p.cast(p.cast(z, "complex64"), "complex128")
        )
        return p.sum(p.abs(wide * (2 + 1j) + y))

    against_torch(loss, rng.normal(size=(2, 3)), rng.normal(size=(3,)), tolerance=1e-6)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_gradients_of_operands_that_broadcast_have_their_shapes(shape: list[int], data: Any) -> None:
    other = [1 if data.draw(st.booleans()) else s for s in shape][data.draw(st.integers(0, len(shape))) :]
    with static.program_guard(static.Program(), static.Program()):
        against_torch(
            FORMULAS["product"], numbers(*shape, dtype=np.complex128), numbers(*other, seed=3, dtype=np.complex128)
        )


def test_second_gradients_of_complex_products_are_those_of_torch() -> None:
    def loss(p: Any, x: Any, y: Any) -> Any:
        first = p.real(p.sum(x * x * y + p.exp(x)))
        (dx,) = torch.autograd.grad(first, [x], create_graph=True) if p is torch else paddle.grad(first, [x])
        return p.sum(p.real(dx * p.conj(dx)))

    against_torch(loss, numbers(2, 3, dtype=np.complex128), numbers(2, 3, seed=1, dtype=np.complex128))


def test_a_complex_parameter_is_trained() -> None:
    x = static.data("x", [4, 2], "complex64")
    w = paddle.create_parameter(
        [2, 1], "complex64", name="w", default_initializer=paddle.nn.initializer.Assign(numbers(2, 1))
    )
    loss = paddle.mean(paddle.abs(paddle.matmul(x, w) - 1.0))
    ((_, grad),) = static.append_backward(loss)
    assert grad.dtype.name == "complex64"
    paddle.assign(w - grad * 0.1, w)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    losses = [float(exe.run(feed={"x": numbers(4, 2, seed=2)}, fetch_list=[loss])[0]) for _ in range(20)]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_eigenvalues_and_vectors_have_torchs_gradients(dtype: str) -> None:
    value = numbers(2, 4, 4, dtype=np.complex128)
    value = value if dtype == "complex128" else value.real.copy()

    def loss(p: Any, x: Any, y: Any) -> Any:
        w, v = p.linalg.eig(x)
        return p.sum(p.abs(w) ** 2 + p.real(w)) + p.sum(p.abs(v) ** 3)

    against_torch(loss, value, tolerance=1e-7)


def test_eigenvalues_rebuild_the_matrix_and_other_shapes_are_refused() -> None:
    x = static.data("x", [3, 3], "float32")
    w, v = paddle.linalg.eig(x)
    value = numbers(3, 3).real.copy()
    found, vectors, alone = run([w, v, paddle.linalg.eigvals(x)], x=value)
    np.testing.assert_allclose(value @ vectors, vectors * found, rtol=1e-4, atol=1e-5)
    assert np.array_equal(found, alone)
    with pytest.raises(errors.ShapeError, match="not square"):
        paddle.linalg.eig(x[:2])


# ----------------------------------------------------------------------------------------------------- kernels and refusals
def test_fusions_leave_complex_values_alone_and_explain_says_so() -> None:
    x = static.data("x", [8, 4], "complex64")
    h = paddle.exp(x * 0.5)
    y = paddle.tanh(h)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    explained = compiled.explain(fetch_list=[y], feed_shapes={"x": (8, 4)})
    assert not explained.applied
    assert explained.why(h, y).code == "COMPLEX"
    value = numbers(8, 4)
    (found,) = static.Executor().run(compiled, feed={"x": value}, fetch_list=[y])
    np.testing.assert_allclose(found, np.tanh(np.exp(value * np.complex64(0.5))), rtol=1e-4)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "relu": paddle.nn.functional.relu, "elementwise_max": lambda x: paddle.maximum(x, x), "less_than": lambda x: x < x,
    "softmax": paddle.nn.functional.softmax, "floor": paddle.floor, "arg_max": paddle.argmax,
    "clip": lambda x: paddle.clip(x, 0.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_that_takes_no_complex_values_says_so_and_appends_nothing(name: str) -> None:
    x = static.data("x", [2, 3], "complex64")
    before = len(static.default_main_program().global_block().ops)
    with pytest.raises(errors.DTypeError) as caught:
        REFUSED[name](x)
    assert "complex64" in str(caught.value)
    assert __file__.rpartition("/")[2] in str(caught.value)
    assert len(static.default_main_program().global_block().ops) == before


def test_parts_of_real_values_are_refused() -> None:
    x = static.data("x", [2, 3])
    for function in (paddle.real, paddle.imag, paddle.as_real):
        with pytest.raises(errors.DTypeError, match="complex64"):
            function(x)
    with pytest.raises(errors.ShapeError, match=r"\[..., 2\]"):
        paddle.as_complex(x)
    with pytest.raises(errors.DTypeError):
        paddle.full([2], 1j, "float32")
    with pytest.raises(errors.DTypeError, match="complex"):
        paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Assign([1j]))
