"""Drawn programs of matrix products with what may follow them, in sizes whose kernels have two blocks along each axis."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tstatic import testing
from tstatic.ir.opdef import ValueRange, op_def
from tstatic.testing.program_builder import ProgramBuilder

ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("relu", {}), ("gelu", {"approximate": False}), ("gelu", {"approximate": True}), ("silu", {}), ("tanh", {}),
    ("sigmoid", {}), ("leaky_relu", {"alpha": 0.2}),
)  # fmt: skip
ROWS: tuple[tuple[int, ...], ...] = ((17,), (32,), (2, 9), (29,), (3, 7), (2, 3, 5), (50,))
SIZES = (17, 20, 31, 32)
DEEP = 70
"""A depth at which a product is cut along it."""
DROPOUT = {"dropout_prob": 0.25, "dropout_implementation": "upscale_in_train", "seed": 11}
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


class LayerDraw:
    """Appends ops to a program as a random generator says; drawn programs of layers share it."""

    def __init__(self, number: int, kind: str) -> None:
        self.random = random.Random(number)
        trained = kind == "training"
        self.builder = ProgramBuilder(kind != "forward", trained, 10_000)
        self.dtype = "float32" if trained else self.random.choice(DTYPES)

    def often(self, chance: float) -> bool:
        return self.random.random() < chance

    def emit(self, type: str, inputs: dict[str, Any], attrs: dict[str, Any], value: str) -> str:
        """Returns the first result of a step, or the value if the step is refused."""
        made = self.builder.emit(type, inputs, attrs)
        return made[0] if made else value

    def dropout(self, value: str) -> str:
        """Appends a dropout; what it draws is known when the program runs, so for the builder all elements are kept."""
        kept = self.builder.values[value]
        mask = np.ones(kept.shape, np.uint8)
        outs = [kept.own, mask], [kept.wide, mask]
        made = self.builder._append(op_def("dropout"), {"X": value}, DROPOUT, *outs, kept.gain)
        self.builder.pool = [n for n in self.builder.pool if n == made[0] or n not in made]
        return made[0]


class _Draw(LayerDraw):
    """Appends products with what follows them."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self.weights: dict[tuple[int, int], str] = {}

    def fresh(self, shape: tuple[int, ...], size: float = 1.0) -> str:
        return self.builder.fresh(shape, self.dtype, ValueRange(-size, size), self.random.randrange(256))

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.values[value].shape

    def product(self, x: str, columns: int) -> str:
        depth, rank = self.shape(x)[-1], len(self.shape(x))
        trans_y = self.often(0.3)
        shape = (columns, depth) if trans_y else (depth, columns)
        # The same weight again: its gradients are accumulated.
        weight = self.weights.get(shape)
        if weight is None:
            weight = self.weights[shape] = self.fresh(shape, 0.3)
        if self.often(0.35) and not trans_y:
            return self.emit("mul", {"X": x, "Y": weight}, {"x_num_col_dims": rank - 1, "y_num_col_dims": 1}, x)
        trans_x = rank == 2 and self.often(0.2)
        if trans_x:
            x = self.emit("transpose2", {"X": x}, {"axis": (1, 0)}, x)
        return self.emit("matmul_v2", {"X": x, "Y": weight}, {"trans_x": trans_x, "trans_y": trans_y}, x)

    def layer(self, x: str) -> str:
        # The builder bounds the derivative along a path by the product of bounds, which are far too high for products.
        self.builder.values[x] = replace(self.builder.values[x], gain=1.0)
        depth = self.shape(x)[-1]
        columns = depth if self.often(0.4) and depth != DEEP else self.random.choice(SIZES)
        value = self.product(x, columns)
        shape = self.shape(value)
        if self.often(0.8):
            bias = self.fresh(shape[-1:])
            pair = {"X": bias, "Y": value} if self.often(0.2) else {"X": value, "Y": bias}
            value = self.emit("elementwise_add", pair, {"axis": -1}, value)
        if self.often(0.75):
            type, attrs = self.random.choice(ACTIVATIONS)
            value = self.emit(type, {"X": value}, attrs, value)
        if self.often(0.15):
            value = self.emit("scale", {"X": value}, {"scale": 0.5, "bias": 0.25}, value)
        if self.often(0.25):
            value = self.dropout(value)
        if self.often(0.3):
            residual = x if self.shape(x) == shape else self.fresh(shape)
            value = self.emit("elementwise_add", {"X": value, "Y": residual}, {"axis": -1}, value)
        return value


Drawn = TypeVar("Drawn", bound=LayerDraw)


def draw_until(
    build: Callable[[Drawn], testing.Recipe | None],
    draws: Callable[[int, str], Drawn],
    number: int,
    kind: str,
    runs: int,
) -> testing.Recipe:
    """Returns the first program that ``build`` makes of draws, the same ones for a number; with ``training`` one that trains.

    Args:
        build: ``draw -> recipe``, or ``None`` where something else is to be drawn.
        draws: Makes a draw of a seed and a kind.
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """
    for salt in range(100):
        draw = draws(number + 1_000_003 * salt, kind)
        made = build(draw)
        if made is None:
            continue
        if kind != "training":
            return made
        trained = draw.builder.trained(made, draw.random.choice(("SGD", "Momentum", "AdamW")), runs)
        if trained is not None:
            return trained
    raise AssertionError("no program could be drawn")


def epilogue_recipe(number: int, kind: str = "forward", runs: int = 5) -> testing.Recipe:
    """Returns a program of one or two layers; the same one for a number.

    Args:
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """

    def build(draw: _Draw) -> testing.Recipe | None:
        value = draw.fresh((*draw.random.choice(ROWS), DEEP if draw.often(0.15) else draw.random.choice(SIZES)))
        for _ in range(1 if kind == "forward" else 2):
            value = draw.layer(value)
        if kind == "training":
            value = draw.emit("scale", {"X": value}, {"scale": 0.5}, value)
        made = draw.builder.recipe()
        if not any(s.type in ("mul", "matmul_v2") for s in made.steps):
            return None
        return made

    return draw_until(build, _Draw, number, kind, runs)
