"""Fourier transforms: values and gradients as torch and numpy have them, sizes, norms, short-time transforms, and refusals."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tstatic as paddle
from tests.numbers.test_complex import numbers, run
from tstatic import errors, static

Array = np.ndarray[Any, Any]
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = tuple(f"{name}{end}" for name in ONE for end in ("2", "n"))


def values_for(name: str, *shape: int, dtype: Any = np.complex128) -> Array:
    value = numbers(*shape, dtype=dtype)
    return np.ascontiguousarray(value.real) if name.startswith(("rfft", "ihfft")) else value


def compared(name: str, value: Array, mine: dict[str, Any], theirs: dict[str, Any], tolerance: float = 1e-10) -> None:
    """A transform and the gradient of a function of it are torch's."""
    x = static.data("x", value.shape, value.dtype)
    x.stop_gradient = False
    y = getattr(paddle.fft, name)(x, **mine)
    weights = numbers(*(y.shape), seed=5, dtype=np.complex128)
    w = weights.real if not y.dtype.is_complex else weights
    (dx,) = paddle.grad(y, x, paddle.assign(np.ascontiguousarray(w.astype(y.dtype.np))))
    found = run([y, dx], x=value)
    tensor = torch.from_numpy(value.copy()).requires_grad_()
    out = getattr(torch.fft, name)(tensor, **theirs)
    (wanted,) = torch.autograd.grad(out, tensor, torch.from_numpy(w.astype(y.dtype.np)))
    for got, want in zip(found, (out.detach(), wanted), strict=True):
        want = want.resolve_conj().numpy()
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ONE)
def test_a_transform_along_an_axis_and_its_gradient_are_torchs(name: str, norm: str) -> None:
    for n in (None, 3, 8, 7):
        for axis in (-1, 0):
            with static.program_guard(static.Program(), static.Program()):
                given = {"n": n, "norm": norm}
                compared(name, values_for(name, 5, 6), {**given, "axis": axis}, {**given, "dim": axis})


@pytest.mark.parametrize("name", MANY)
def test_a_transform_along_axes_and_its_gradient_are_torchs(name: str) -> None:
    for s, axes in ((None, (-2, -1)), ((4, 5), (0, 2)), ((3, 2), (1, 0))):
        with static.program_guard(static.Program(), static.Program()):
            compared(name, values_for(name, 3, 4, 4), {"s": s, "axes": axes}, {"s": s, "dim": axes})
    if name.endswith("n"):
        for s in (None, (2, 6)):
            with static.program_guard(static.Program(), static.Program()):
                compared(name, values_for(name, 3, 4, 4), {"s": s, "norm": "ortho"}, {"s": s, "norm": "ortho"})


@given(st.sampled_from(ONE), st.lists(st.integers(2, 6), min_size=1, max_size=3), st.integers(1, 9), st.data())
def test_transforms_of_any_shape_are_torchs(name: str, shape: list[int], n: int, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    with static.program_guard(static.Program(), static.Program()):
        compared(name, values_for(name, *shape), {"n": n, "axis": axis}, {"n": n, "dim": axis})


def test_float32_stays_float32_and_integers_become_floats() -> None:
    x, n = static.data("x", [8], "float32"), static.data("n", [8], "int64")
    fetched = [paddle.fft.fft(x), paddle.fft.rfft(n), paddle.fft.irfft(paddle.fft.rfft(x)), paddle.fft.hfft(x)]
    value = np.arange(8)
    found = run(fetched, x=value.astype(np.float32), n=value)
    assert [f.dtype.name for f in found] == ["complex64", "complex64", "float32", "float32"]
    for got, want in zip(found, [np.fft.fft(value), np.fft.rfft(value), value, np.fft.hfft(value)], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_transforms_run_where_the_batch_is_fed() -> None:
    x = static.data("x", [None, None], "float32")
    y = paddle.fft.irfft(paddle.fft.rfft(x))
    for rows, columns in ((2, 6), (3, 4)):
        value = numbers(rows, columns).real.copy()
        np.testing.assert_allclose(run([y], x=value)[0], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 7), (5, 4), (1, 1)])
def test_sizes_that_are_fed_are_cut_padded_and_shifted(rows: int, columns: int) -> None:
    """Guards lengths and shifts along axes of unknown size: they were refused, and Paddle pads as if the size were -1."""
    x = static.data("x", [None, None], "float64")
    fft = paddle.fft
    fetched = [fft.fft(x, n=4), fft.fftn(x, [3, 5]), fft.fftshift(x), fft.ifftshift(x, 0), fft.fftshift(x, [1])]
    value = numbers(rows, columns, dtype=np.complex128).real.copy()
    wanted = [
        np.fft.fft(value, 4), np.fft.fftn(value, [3, 5], [0, 1]), np.fft.fftshift(value), np.fft.ifftshift(value, 0),
        np.fft.fftshift(value, 1),
    ]  # fmt: skip
    for got, want in zip(run(fetched, x=value), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_second_gradients_of_transforms_are_torchs() -> None:
    value = numbers(4, dtype=np.complex128)
    x = static.data("x", [4], "complex128")
    x.stop_gradient = False
    y = paddle.fft.irfft(paddle.exp(paddle.fft.fft(x)))
    (dx,) = paddle.grad(paddle.sum(y * y), x)
    (again,) = paddle.grad(paddle.sum(paddle.abs(dx)), x)
    (found,) = run([again], x=value)
    t = torch.from_numpy(value).requires_grad_()
    out = torch.fft.irfft(torch.exp(torch.fft.fft(t)))
    (first,) = torch.autograd.grad((out * out).sum(), t, create_graph=True)
    (wanted,) = torch.autograd.grad(first.abs().sum(), t)
    np.testing.assert_allclose(found, wanted.resolve_conj().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies_and_shifts_are_numpys(n: int) -> None:
    x = static.data("x", [n, 3], "float64")
    value = np.arange(3.0 * n).reshape(n, 3)
    found = run(
        [
            paddle.fft.fftfreq(n, 0.5, "float64"), paddle.fft.rfftfreq(n, 2.0, "float64"), paddle.fft.fftshift(x),
            paddle.fft.ifftshift(x, 0), paddle.fft.ifftshift(paddle.fft.fftshift(x, [0, 1]), [0, 1]),
        ],
        x=value,
    )  # fmt: skip
    wanted = [
        np.fft.fftfreq(n, 0.5), np.fft.rfftfreq(n, 2.0), np.fft.fftshift(value), np.fft.ifftshift(value, 0), value,
    ]  # fmt: skip
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------------------------------------------ short-time transforms
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_short_time_transforms_and_their_gradients_are_torchs(center: bool, normalized: bool, onesided: bool) -> None:
    value, window = numbers(2, 21, dtype=np.complex128).real.copy(), np.hanning(8)[1:-1].copy()
    x = static.data("x", [2, 21], "float64")
    x.stop_gradient = False
    options = {"center": center, "normalized": normalized, "onesided": onesided}
    y = paddle.signal.stft(x, 8, 3, 6, paddle.assign(window), **options)
    (dx,) = paddle.grad(paddle.sum(paddle.abs(y)), x)
    found = run([y, dx], x=value)
    t = torch.from_numpy(value).requires_grad_()
    out = torch.stft(t, 8, 3, 6, torch.from_numpy(window), return_complex=True, **options)
    (wanted,) = torch.autograd.grad(out.abs().sum(), t)
    np.testing.assert_allclose(found[0], out.detach().numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[1], wanted.numpy(), rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
@pytest.mark.parametrize("length", [None, 10, 30])
@pytest.mark.parametrize("onesided", [True, False])
def test_inverse_short_time_transforms_are_torchs(length: int | None, onesided: bool) -> None:
    value, window = numbers(2, 5 if onesided else 8, 6, dtype=np.complex128), np.hamming(8)
    x = static.data("x", value.shape, "complex128")
    options = {"length": length, "onesided": onesided}
    y = paddle.signal.istft(x, 8, 4, window=paddle.assign(window), **options)
    (found,) = run([y], x=value)
    wanted = torch.istft(torch.from_numpy(value), 8, 4, window=torch.from_numpy(window), **options).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert found.shape == y.shape


def test_a_signal_comes_back_from_its_transforms() -> None:
    value = numbers(40).real.copy()
    x = static.data("x", [40], "float32")
    window = paddle.assign(np.hanning(17)[:-1].astype(np.float32))
    y = paddle.signal.istft(x.stft(16, 4, window=window), 16, 4, window=window, length=40)
    np.testing.assert_allclose(run([y], x=value)[0], value, rtol=1e-4, atol=1e-5)
    z = paddle.to_tensor(numbers(2, 24))
    back = paddle.signal.istft(
        paddle.signal.stft(z, 8, onesided=False), 8, onesided=False, return_complex=True, length=24
    )
    found, wanted = run([back, z], x=value)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_what_a_transform_cannot_do_is_refused() -> None:
    x, z = static.data("x", [8], "float32"), static.data("z", [5, 3], "complex64")
    for call, error in (
        (lambda: paddle.fft.fft(x, norm="half"), errors.ProgramError),
        (lambda: paddle.fft.fft(x, axis=1), errors.ShapeError),
        (lambda: paddle.fft.fft(x, n=0), errors.ShapeError),
        (lambda: paddle.fft.rfft(z), errors.DTypeError),
        (lambda: paddle.fft.fftn(z, axes=[0, 0]), errors.ShapeError),
        (lambda: paddle.fft.fft(paddle.cast(x, "bool")), errors.DTypeError),
        (lambda: paddle.signal.stft(x, 16, center=False), errors.ShapeError),
        (lambda: paddle.signal.stft(z, 3), errors.ProgramError),
        (lambda: paddle.signal.stft(x, 4, window=paddle.ones([3])), errors.ShapeError),
        (lambda: paddle.signal.istft(z, 4), errors.ShapeError),
        (lambda: paddle.signal.istft(z, 8, return_complex=True), errors.ProgramError),
    ):
        with pytest.raises(error):
            call()


def test_functions_have_paddles_parameters() -> None:
    for name in ONE:
        assert str(inspect.signature(getattr(paddle.fft, name))).startswith("(x: 'Variable', n: 'int | None' = None")
