"""Finite differences of a described call: whether the gradient that a program gives is the slope of the value that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.parity import runner

EXACT = (1e-5, 1e-5)
ROUGH = (1e-2, 2e-2)
"""Step of a difference, and largest distance of a slope from its gradient relative to the larger of them: in double precision, and
for calls that make single precision of what is fed."""


def widened(data: Any) -> Any:
    """The same call with all floats that are fed in double precision."""
    if isinstance(data, dict):
        wide = {k: widened(v) for k, v in data.items()}
        if "feed" in data and data["feed"]["dtype"] in ("float32", "complex64"):
            wide["feed"]["dtype"] = {"float32": "float64", "complex64": "complex128"}[data["feed"]["dtype"]]
        return wide
    return [widened(item) for item in data] if isinstance(data, list) else data


def far(paddle: Any, call: dict[str, Any]) -> dict[int, float]:
    """Number of an input -> distance of its gradient from the slope along one direction, for those that are not close.

    Args:
        paddle: The module under test.
        call: A call of floats, all of whose results are differentiable at its values.

    Raises:
        Exception: What the call raises in double precision.
    """
    paddle.set_default_dtype("float64")
    try:
        return _far(paddle, widened(call))
    finally:
        paddle.set_default_dtype("float32")


def _far(paddle: Any, call: dict[str, Any]) -> dict[int, float]:
    known = runner._attempt(paddle, call, False, None, False)
    with runner.fresh(paddle) as (main, startup):
        result, builder = runner.build(paddle, call, False)
        outs = [v for v in runner.flat(paddle, result) if isinstance(v, paddle.static.Variable)]
        feed = dict(builder.feed)
        step, close = EXACT if all(runner.dtype_name(v.dtype) not in runner.SINGLE for v in outs) else ROUGH
        found = runner._gradients(paddle, call, main, builder, outs, known, feed)
        weights = {int(k.removeprefix("weight")): feed[k] for k in feed if k.startswith("weight")}
        exe = paddle.static.Executor(paddle.CPUPlace())
        runner.start(paddle, exe, main, startup)
        inputs = [v for v in builder.fed if not v.stop_gradient]
        parameters = [p for p in main.all_parameters() if p.trainable and not p.stop_gradient]
        scope = paddle.static.global_scope()

        def run(fetch: list[Any]) -> list[Any]:
            return [np.array(v) for v in exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False)]

        def total() -> float:
            values = run([outs[k] for k in weights])
            return float(sum((_parts(v) * w).sum() for v, w in zip(values, weights.values(), strict=True)))

        graded = [
            (k, v, g)
            for k, (v, g) in enumerate(zip([*inputs, *parameters], found, strict=bool(found)))
            if g is not None
        ]
        gradients = run([g for _, _, g in graded])
        bad = {}
        for (number, variable, _), gradient in zip(graded, gradients, strict=True):
            held = variable.name in feed
            base = np.array(feed[variable.name]) if held else np.array(scope.find_var(variable.name).get_tensor())
            if base.dtype.kind != "f":
                continue  # of complex numbers the real parts' slopes are those of their functions of real ones

            def put(value: Any, name: str = variable.name, held: bool = held) -> None:
                if held:
                    feed[name] = value
                else:
                    scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())

            distance = _distance(base, gradient, step, put, total)
            if distance > close:
                bad[number] = distance
        return bad


def _parts(value: Any) -> Any:
    """Floats as they are; complex numbers as pairs, as they were weighed."""
    return np.stack([value.real, value.imag], -1) if value.dtype.kind == "c" else value


def _distance(base: Any, gradient: Any, step: float, put: Callable[[Any], None], total: Callable[[], float]) -> float:
    """Distance of the slope along a direction from what the gradient says, relative to the size of both."""
    way = runner.ramp(list(base.shape), str(base.dtype), -1.0, 1.0, 9)
    ends = []
    for sign in (1.0, -1.0):
        put(base + sign * step * way)
        ends.append(total())
    put(base)
    slope, said = (ends[0] - ends[1]) / (2 * step), float((gradient * way).sum())
    return abs(slope - said) / max(1.0, abs(slope), abs(said))
