"""Small programs that draw random numbers between operators that round once: fused and unfused, they agree in all bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import static

F = paddle.nn.functional
Step = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Recipe:
    """A chain of steps.

    Attributes:
        dtype, shape: Of all values.
        steps: Name and parameters.
        kind: ``"forward"``, ``"gradients"`` (with the result), ``"gradients alone"`` or ``"training"`` (of a parameter, by SGD).
        seed: The program's.
    """

    dtype: str
    shape: tuple[int, ...]
    steps: tuple[Step, ...]
    kind: str
    seed: int


def _step(draw: st.DrawFn, rank: int) -> Step:
    chance = st.sampled_from([0.1, 0.25, 0.5, 0.9, 0.005])
    name = draw(st.sampled_from(["dropout", "dropout", "slices", "uniform", "scale", "add", "multiply", "relu"]))
    if name == "dropout":
        mode = draw(st.sampled_from(["upscale_in_train", "downscale_in_infer"]))
        return name, (draw(st.one_of(chance, st.sampled_from([0.0, 1.0]))), mode, draw(st.sampled_from([0, 0, 5, -3])))
    if name == "slices":
        axes = draw(st.sets(st.integers(0, rank - 1), min_size=1))
        return name, (draw(chance), sorted(axes))
    if name == "uniform":
        return name, draw(st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (0.25, 3.0)]))
    return name, (draw(st.sampled_from([0.5, -1.25, 3.0])),) if name == "scale" else ()


@st.composite
def recipes(draw: st.DrawFn, dtypes: tuple[str, ...] = ("float32", "float64")) -> Recipe:
    """Programs with one to seven steps, at least one of which draws."""
    shape = tuple(draw(st.lists(st.one_of(st.integers(1, 7), st.sampled_from([8, 16])), min_size=1, max_size=3)))
    steps = [_step(draw, len(shape)) for _ in range(draw(st.integers(1, 6)))]
    steps.insert(draw(st.integers(0, len(steps))), ("dropout", (0.4, "upscale_in_train", 0)))
    kind = draw(st.sampled_from(["forward", "gradients", "gradients alone", "training"]))
    return Recipe(draw(st.sampled_from(dtypes)), shape, tuple(steps), kind, draw(st.integers(1, 2**64 - 1)))


def _applied(step: Step, value: Any, x: Any) -> Any:
    name, given = step
    if name == "dropout":
        p, mode, seed = given
        mode = {"downscale_in_infer": "downgrade_in_infer"}.get(mode, mode)
        return paddle.fluid.layers.dropout(value, p, seed=seed, dropout_implementation=mode)
    if name == "slices":
        return F.dropout(value, given[0], axis=given[1])
    if name == "uniform":
        return value * paddle.uniform(value.shape, dtype=value.dtype, min=given[0], max=given[1])
    if name == "scale":
        return value * given[0] + 0.5
    return {"add": lambda: value + x, "multiply": lambda: value * x, "relu": lambda: F.relu(value)}[name]()


def run(
    recipe: Recipe, strategy: static.BuildStrategy | None, runs: int = 2
) -> tuple[list[Any], static.CompiledProgram]:
    """Builds and runs a program; returns all that it computes, run by run, and the parameter at the end."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = recipe.seed
    shape = list(recipe.shape)
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", shape, recipe.dtype)
        x.stop_gradient = False
        value: Any = x
        if recipe.kind == "training":
            value = static.create_parameter(shape, recipe.dtype, name="w") * x
        for step in recipe.steps:
            value = _applied(step, value, x)
        fetches = [value]
        if recipe.kind.startswith("gradients"):
            given = static.data("given", shape, recipe.dtype)
            gradients = static.gradients([value], [x], [given])
            fetches = gradients if recipe.kind == "gradients alone" else [*fetches, *gradients]
        elif recipe.kind == "training":
            paddle.optimizer.SGD(0.1).minimize(paddle.mean(value))
    rng = np.random.default_rng(len(recipe.steps))
    feed = {
        v.name: (rng.integers(-8, 9, recipe.shape) / 4).astype(value.dtype.np) for v in main.list_vars() if v.is_data
    }
    compiled = static.CompiledProgram(main, strategy or static.BuildStrategy())
    scope, executor = static.Scope(), static.Executor("cpu")
    executor.run(startup, scope=scope)
    found = [a for _ in range(runs) for a in executor.run(compiled, feed=feed, fetch_list=fetches, scope=scope)]
    if recipe.kind == "training":
        found.append(np.array(scope.find_var("w").get_tensor()))
    return found, compiled


def same_bits(a: Any, b: Any) -> bool:
    """Whether two lists of arrays are equal in every bit."""
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)
    )
