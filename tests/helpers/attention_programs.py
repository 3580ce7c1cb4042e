"""Drawn programs of attentions: products, ops per element on the scores, softmax, dropout; two blocks along each axis."""

from __future__ import annotations

from dataclasses import replace

from tests.helpers.epilogue_programs import LayerDraw
from tstatic import testing
from tstatic.ir.opdef import ValueRange

BATCHES: tuple[tuple[int, ...], ...] = ((), (2,), (1, 2), (2, 1))
LENGTHS = (17, 20, 33, 40)
HEADS = (5, 16, 17, 24)


class _Draw(LayerDraw):
    """Appends an attention."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self.masks: list[str] = []

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
