"""What a library (Paddle's or this one) gives for complex numbers, Fourier transforms, graphs and distributions.

One text runs on both: only names that both have are used. Complex results are written as pairs of their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _numbers(*shape: int, seed: int = 0) -> Any:
    rng = np.random.RandomState(seed)
    return (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype("complex64")


Z, V = _numbers(2, 3), _numbers(2, 3, seed=1)
X = np.random.RandomState(2).uniform(0.2, 1, (3, 8)).astype("float32")
SOURCE, TARGET = np.array([0, 1, 2, 0]), np.array([1, 2, 1, 0])


def _complex(p: Any) -> dict[str, Callable[[Any, Any], Any]]:
    return {
        "product": lambda z, v: z * v, "quotient": lambda z, v: z / v, "sum": lambda z, v: z + v, "difference": lambda z, v: z - v,
        "matrix product": lambda z, v: p.matmul(z, v, transpose_y=True),
        "abs": lambda z, v: p.abs(z), "angle": lambda z, v: p.angle(z),
        "real": lambda z, v: p.real(z), "imag": lambda z, v: p.imag(z), "conj": lambda z, v: p.conj(z),
        "as_real": lambda z, v: p.as_real(z), "as_complex": lambda z, v: p.as_complex(p.as_real(z)),
        "complex": lambda z, v: p.complex(p.real(z), p.imag(v)), "total": lambda z, v: p.sum(z, axis=1),
        "transpose": lambda z, v: p.transpose(z, [1, 0]), "polar": lambda z, v: p.polar(
            p.abs(z), p.angle(v)
        ),
        "fft": lambda z, v: p.fft.fft(z), "ifft ortho": lambda z, v: p.fft.ifft(z, norm="ortho"),
        "fft of 5": lambda z, v: p.fft.fft(z, n=5),
        "irfft": lambda z, v: p.fft.irfft(z), "hfft of 5": lambda z, v: p.fft.hfft(z, n=5, norm="forward"),
        "fft2": lambda z, v: p.fft.fft2(z), "irfftn": lambda z, v: p.fft.irfftn(z),
    }  # fmt: skip


def _real(p: Any) -> dict[str, Callable[[Any], Any]]:
    source, target = p.assign(SOURCE), p.assign(TARGET)
    return {
        "rfft": lambda x: p.fft.rfft(x), "ihfft": lambda x: p.fft.ihfft(x), "rfft2": lambda x: p.fft.rfft2(x),
        "shift": lambda x: p.fft.fftshift(x), "fftfreq": lambda x: p.fft.fftfreq(5, 0.5) + 0 * p.sum(x),
        "stft": lambda x: p.signal.stft(x, 4, 2), "stft plain": lambda x: p.signal.stft(x, 4, center=False, onesided=False),
        "istft": lambda x: p.signal.istft(p.signal.stft(x, 4, 2), 4, 2),
        "send_u_recv sum": lambda x: p.geometric.send_u_recv(x, source, target, "sum"),
        "send_u_recv mean": lambda x: p.geometric.send_u_recv(x, source, target, "mean"),
        "send_u_recv max": lambda x: p.geometric.send_u_recv(x, source, target, "max"),
        "send_uv": lambda x: p.geometric.send_uv(x, x, source, target, "add"),
        "segment_mean": lambda x: p.geometric.segment_mean(x, p.assign(np.array([0, 0, 2]))),
    }  # fmt: skip


def _distributions(p: Any) -> dict[str, Callable[[Any], Any]]:
    d = p.distribution
    made: dict[str, Callable[[Any], Any]] = {
        "Normal": lambda x: d.Normal(x, x + 0.5), "Laplace": lambda x: d.Laplace(x, x + 0.5),
        "Cauchy": lambda x: d.Cauchy(x, x + 0.5), "Gumbel": lambda x: d.Gumbel(x, x + 0.5),
        "LogNormal": lambda x: d.LogNormal(x, x + 0.5), "Beta": lambda x: d.Beta(x, x + 0.5),
        "Dirichlet": lambda x: d.Dirichlet(x + 0.5), "Bernoulli": lambda x: d.Bernoulli(x * 0.9),
        "Geometric": lambda x: d.Geometric(x * 0.9),
    }  # fmt: skip
    values: dict[str, Callable[[Any], Any]] = {
        "Beta": lambda x: x * 0.9, "Dirichlet": lambda x: x / p.sum(x, axis=-1, keepdim=True), "Bernoulli": lambda x: p.round(x),
    }  # fmt: skip
    found: dict[str, Callable[[Any], Any]] = {
        "Categorical entropy": lambda x: d.Categorical(x).entropy(),
        "Categorical kl": lambda x: d.Categorical(x).kl_divergence(d.Categorical(x * 2.0)),
        "Categorical log_prob": lambda x: d.Categorical(x).log_prob(p.assign(np.array([1, 4]))),
        "Multinomial": lambda x: d.Multinomial(3, x).entropy(),
    }
    for name, make in made.items():
        value = values.get(name, lambda x: x)
        if name != "Geometric":
            found[f"{name} log_prob"] = lambda x, make=make, value=value: make(x).log_prob(value(x))  # type: ignore[misc]
        found[f"{name} entropy"] = lambda x, make=make: make(x).entropy()  # type: ignore[misc]
        if name != "Cauchy":
            found[f"{name} mean"] = lambda x, make=make: make(x).mean  # type: ignore[misc]
            found[f"{name} variance"] = lambda x, make=make: make(x).variance  # type: ignore[misc]
        # Paddle's divergence of Geometric is that of one trial, which is another distribution; it has none for Gumbel.
        if name not in ("Geometric", "Gumbel"):
            found[f"{name} kl"] = lambda x, make=make: d.kl_divergence(make(x), make(x * 0.5))  # type: ignore[misc]
    return found


def _written(value: Any) -> Any:
    array = np.asarray(value)
    parts = np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": [float(f"{v:.7g}") for v in parts.ravel()]}


def facts(p: Any) -> dict[str, Any]:
    """Returns name -> results, and gradients of the sum of their squared sizes, of a library."""
    found: dict[str, Any] = {}
    static = p.static
    for kind, functions, feeds in (("complex", _complex, {"z": Z, "v": V}), ("real", _real, {"x": X})):
        for name in functions(p) if kind == "complex" else _real_names():
            with static.program_guard(static.Program(), static.Program()):
                inputs = [static.data(n, a.shape, str(a.dtype)) for n, a in feeds.items()]
                for x in inputs:
                    x.stop_gradient = False
                out = functions(p)[name](*inputs)
                size = p.abs(out)
                grads = static.gradients(p.sum(size * size), inputs)
                fetched = [out, *(g for g in grads if g is not None)]
                found[name] = [_written(v) for v in static.Executor().run(feed=feeds, fetch_list=fetched)]
    # A program for each: Paddle mixes some of them up where they stand in one.
    for name, function in _distributions(p).items():
        with static.program_guard(static.Program(), static.Program()):
            out = function(static.data("x", X.shape, "float32"))
            found[name] = [_written(v) for v in static.Executor().run(feed={"x": X}, fetch_list=[out])]
    return found


def _real_names() -> tuple[str, ...]:
    return (
        "rfft", "ihfft", "rfft2", "shift", "fftfreq", "stft", "stft plain", "istft", "send_u_recv sum", "send_u_recv mean",
        "send_u_recv max", "send_uv", "segment_mean",
    )  # fmt: skip
