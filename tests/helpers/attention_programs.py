"""Drawn programs of attentions: products, ops per element on the scores, softmax, dropout; two blocks along each axis."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic import testing
from tstatic.ir.opdef import ValueRange, op_def
from tstatic.testing.program_builder import ProgramBuilder

BATCHES: tuple[tuple[int, ...], ...] = ((), (2,), (1, 2), (2, 1))
LENGTHS = (17, 20, 33, 40)
HEADS = (5, 16, 17, 24)
DROPOUT = {"dropout_prob": 0.25, "dropout_implementation": "upscale_in_train", "seed": 11}
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


class _Draw:
    """Appends an attention to a program as a random generator says."""

    def __init__(self, number: int, kind: str) -> None:
        self.random = random.Random(number)
        trained = kind == "training"
        self.builder = ProgramBuilder(kind != "forward", trained, 10_000)
        self.dtype = "float32" if trained else self.random.choice(DTYPES)
        self.masks: list[str] = []

    def often(self, chance: float) -> bool:
        return self.random.random() < chance

    def fresh(self, shape: tuple[int, ...]) -> str:
        # Small where parameters are trained: their products must not grow from step to step.
        size = 0.2 if self.builder.parameters else 1.0
        return self.builder.fresh(shape, self.dtype, ValueRange(-size, size), self.random.randrange(256))

    def emit(self, type: str, inputs: dict[str, Any], attrs: dict[str, Any], value: str) -> str:
        """Returns the first result of a step, or the value if the step is refused."""
        made = self.builder.emit(type, inputs, attrs)
        return made[0] if made else value

    def mask(self, shape: tuple[int, ...]) -> str:
        """Returns a number per score, per pair of places, or per key."""
        kept = self.random.choice((0, max(0, len(shape) - 2), len(shape) - 1))
        own = tuple(n if i >= kept else 1 for i, n in enumerate(shape))
        shape = own if self.often(0.5) else own[kept:]
        # No parameter, and nobody asks for its gradient: that would be all scores' gradients in memory.
        self.masks.append(self.builder.untrained(shape, self.dtype, ValueRange(-30.0, 2.0), self.random.randrange(256)))
        return self.masks[-1]

    def attention(self) -> str:
        batch, head = self.random.choice(BATCHES), self.random.choice(HEADS)
        rows, columns = self.random.choice(LENGTHS), self.random.choice(LENGTHS)
        shared = tuple(1 if self.often(0.25) else n for n in batch)
        q, k = self.fresh((*batch, rows, head)), self.fresh((*shared, columns, head))
        v = self.fresh((*shared, columns, self.random.choice(HEADS)))
        if self.often(0.2):
            q = self.emit("scale", {"X": q}, {"scale": 0.5}, q)
        scores = self.emit("matmul_v2", {"X": q, "Y": k}, {"trans_x": False, "trans_y": True}, q)
        if self.often(0.8):
            scores = self.emit("scale", {"X": scores}, {"scale": head**-0.5}, scores)
        if self.often(0.6):
            mask = self.mask((*batch, rows, columns))
            scores = self.emit("elementwise_add", {"X": scores, "Y": mask}, {"axis": -1}, scores)
        weights = self.emit("softmax", {"X": scores}, {"axis": -1}, scores)
        if self.often(0.4):
            weights = self.dropout(weights)
        mixed = self.emit("matmul_v2", {"X": weights, "Y": v}, {"trans_x": False, "trans_y": False}, weights)
        if self.often(0.3):
            mixed = self.emit("relu", {"X": mixed}, {}, mixed)
        return mixed

    def dropout(self, value: str) -> str:
        """Appends a dropout; what it draws is known when the program runs, so for the builder all elements are kept."""
        kept = self.builder.values[value]
        mask = np.ones(kept.shape, np.uint8)
        outs = [kept.own, mask], [kept.wide, mask]
        made = self.builder._append(op_def("dropout"), {"X": value}, DROPOUT, *outs, kept.gain)
        self.builder.pool = [n for n in self.builder.pool if n == made[0] or n not in made]
        return made[0]


def attention_recipe(number: int, kind: str = "forward", runs: int = 5) -> testing.Recipe:
    """Returns a program with an attention; the same one for a number.

    Args:
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """
    for salt in range(100):
        draw = _Draw(number + 1_000_003 * salt, kind)
        value = draw.attention()
        if kind == "training":
            draw.emit("scale", {"X": value}, {"scale": 0.25}, value)
        made = draw.builder.recipe()
        made = replace(made, gradients=tuple(n for n in made.gradients if n not in draw.masks))
        if sum(s.type == "matmul_v2" for s in made.steps) != 2:
            continue
        if kind != "training":
            return made
        trained = draw.builder.trained(made, draw.random.choice(("SGD", "Momentum", "AdamW")), runs)
        if trained is not None:
            return trained
    raise AssertionError("no program could be drawn")
