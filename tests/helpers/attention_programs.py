"""Drawn programs of attentions: products, masks that are fed or made, softmax, dropout; two blocks along each axis."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.helpers.epilogue_programs import LayerDraw, draw_until
from tstatic import testing
from tstatic.ir.opdef import ValueRange, op_def
from tstatic.ir.types import dtype_of
from tstatic.testing.program_builder import _widened

BATCHES: tuple[tuple[int, ...], ...] = ((), (2,), (1, 2), (2, 1))
LENGTHS = (17, 20, 33, 40)
HEADS = (5, 16, 17, 24)


class _Draw(LayerDraw):
    """Appends an attention."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self.masks: list[str] = []
        # Draws of their own: programs without mixed precision stay what they are.
        own = random.Random(-1 - number)
        self.mixed = self.dtype != "float32" and own.random() < 0.5
        self.cast_first = own.random() < 0.5

    def fresh(self, shape: tuple[int, ...]) -> str:
        # Small where parameters are trained: their products must not grow from step to step.
        size = 0.2 if self.builder.parameters else 1.0
        return self.builder.fresh(shape, self.dtype, ValueRange(-size, size), self.random.randrange(256))

    def mask(self, shape: tuple[int, ...]) -> str:
        """Returns a number per score, per pair of places, or per key."""
        kept = self.random.choice((0, max(0, len(shape) - 2), len(shape) - 1))
        own = tuple(n if i >= kept else 1 for i, n in enumerate(shape))
        shape = own if self.often(0.5) else own[kept:]
        # No parameter, and nobody asks for its gradient: that would be all scores' gradients in memory.
        self.masks.append(self.builder.untrained(shape, self.dtype, ValueRange(-30.0, 2.0), self.random.randrange(256)))
        return self.masks[-1]

    def cast(self, value: str, dtype: str) -> str:
        """Returns a value in another type, in which the program goes on; the value itself if it is of that type."""
        if dtype == self.dtype:
            return value
        kinds = {"in_dtype": dtype_of(self.dtype), "out_dtype": dtype_of(dtype)}
        self.dtype = dtype
        return self.plain("cast", {"X": value}, kinds)

    def plain(self, type: str, inputs: dict[str, str], attrs: dict[str, Any]) -> str:
        """Returns the first result of a step that is not asked whether its values are moderate: masks hold -inf."""
        definition = op_def(type)
        rows = [inputs.get(s.name) for s in definition.inputs]
        own = self.builder._run(definition, rows, attrs, lambda v: v.own)
        wide = self.builder._run(definition, rows, _widened(definition, attrs), lambda v: v.wide)
        assert own is not None
        assert wide is not None
        gain = max((self.builder.values[n].gain for n in inputs.values()), default=1.0)
        return self.builder._append(definition, inputs, attrs, own, wide, gain)[0]

    def triangle(self, rows: int, columns: int) -> str:
        """Returns a mask that the program makes: causal, almost so, or one whose later rows see nothing of the first keys."""
        # Rows that see a few of the last keys: see below.
        later = rows <= columns and self.often(0.25) and not (self.mixed and self.builder.backward)
        value = float("-inf") if later else self.random.choice((float("-inf"), -1e9, -1e9, -1e4))
        if self.mixed and self.builder.backward:
            value = min(value, -1e9)  # a mask of -1e4 is added like one that is fed: see below
        diagonal = -1 if later else self.random.choice((1, max(1, columns - rows + 1)))
        # Off by one: a first row that sees a key more, or none but for a finite mask.
        if not later and self.often(0.15):
            diagonal += 1
        attrs = {"shape": (rows, columns), "dtype": dtype_of(self.dtype), "value": value}
        filled = self.plain("fill_constant", {}, attrs)
        return self.plain("tril_triu", {"X": filled}, {"diagonal": diagonal, "lower": later})

    def attention(self) -> str:
        batch, head = self.random.choice(BATCHES), self.random.choice(HEADS)
        rows, columns = self.random.choice(LENGTHS), self.random.choice(LENGTHS)
        shared = tuple(1 if self.often(0.25) else n for n in batch)
        q, k = self.fresh((*batch, rows, head)), self.fresh((*shared, columns, head))
        v = self.fresh((*shared, columns, self.random.choice(HEADS)))
        if self.often(0.2):
            q = self.emit("scale", {"X": q}, {"scale": 0.5}, q)
        scores = self.emit("matmul_v2", {"X": q, "Y": k}, {"trans_x": False, "trans_y": True}, q)
        if scores == q:
            return q
        if self.often(0.8):
            scores = self.emit("scale", {"X": scores}, {"scale": head**-0.5}, scores)
        low = self.dtype
        # As mixed precision has it: products of 16 bits, and a softmax of 32.
        if self.mixed:
            scores = self.cast(scores, "float32")
        # Gradients of rows that see few keys are small differences. Where the softmax is of 32 bits, kernels give what rounding
        # the result to 16 leaves of them, but under causal masks.
        if self.often(0.4) and not (self.mixed and self.builder.backward):
            mask = self.mask((*batch, rows, columns))
            scores = self.emit("elementwise_add", {"X": scores, "Y": mask}, {"axis": -1}, scores)
        if self.often(0.5):
            mask = self.triangle(rows, columns)
            scores = self.plain("elementwise_add", {"X": scores, "Y": mask}, {"axis": -1})
        weights = self.plain("softmax", {"X": scores}, {"axis": -1})
        if self.cast_first:
            weights = self.cast(weights, low)
        if self.often(0.4):
            weights = self.dropout(weights)
        weights = self.cast(weights, low)
        mixed = self.emit("matmul_v2", {"X": weights, "Y": v}, {"trans_x": False, "trans_y": False}, weights)
        if self.often(0.3):
            mixed = self.emit("relu", {"X": mixed}, {}, mixed)
        return mixed


def attention_recipe(number: int, kind: str = "forward", runs: int = 5) -> testing.Recipe:
    """Returns a program with an attention; the same one for a number.

    Args:
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """

    def build(draw: _Draw) -> testing.Recipe | None:
        value = draw.attention()
        if kind == "training":
            draw.emit("scale", {"X": value}, {"scale": 0.25}, value)
        made = draw.builder.recipe()
        made = replace(made, gradients=tuple(n for n in made.gradients if n not in draw.masks))
        if sum(s.type == "matmul_v2" for s in made.steps) != 2:
            return None
        return made

    return draw_until(build, _Draw, number, kind, runs)
