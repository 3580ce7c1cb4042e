"""Drawn programs of linear layers with a cross entropy behind them, of a few rows that are cut in chunks of three and more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.epilogue_programs import LayerDraw, draw_until
from tstatic import testing
from tstatic.fusion import FUSIONS
from tstatic.fusion.engine import Fusion
from tstatic.fusion.patterns import linear_cross_entropy
from tstatic.ir.opdef import ValueRange
from tstatic.static.compile import pipeline

SWITCH = linear_cross_entropy.FUSION.switch
LEAST = 3
ROWS: tuple[tuple[int, ...], ...] = ((6,), (7,), (13,), (2, 3), (3, 7), (2, 2, 5))
CLASSES = (5, 8, 17)
DEPTHS = (3, 8)


def of_short_chunks(least: int = LEAST) -> tuple[Fusion, ...]:
    """All fusions, with chunks of as few rows as this: a program of thousands takes an interpreter minutes."""
    name = linear_cross_entropy.FUSION.name
    return tuple(linear_cross_entropy.fusion_of(least) if f.name == name else f for f in FUSIONS)


def with_short_chunks(patch: pytest.MonkeyPatch, least: int = LEAST) -> None:
    """Lets programs be compiled with these."""
    patch.setattr(pipeline, "FUSIONS", of_short_chunks(least))


@contextmanager
def short_chunks(least: int = LEAST) -> Iterator[None]:
    """The same for a block of code."""
    with pytest.MonkeyPatch.context() as patch:
        with_short_chunks(patch, least)
        yield


class _Draw(LayerDraw):
    """Appends a layer and its loss."""

    def fresh(self, shape: tuple[int, ...], size: float = 1.0) -> str:
        return self.builder.fresh(shape, self.dtype, ValueRange(-size, size), self.random.randrange(256))

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.values[value].shape

    def logits(self) -> str:
        rows, depth, classes = self.random.choice(ROWS), self.random.choice(DEPTHS), self.random.choice(CLASSES)
        x = self.fresh((*rows, depth))
        if self.often(0.3):
            x = self.emit("scale", {"X": x}, {"scale": 0.5}, x)
        if self.often(0.5):
            weight = self.fresh((depth, classes), 0.5)
            value = self.emit("mul", {"X": x, "Y": weight}, {"x_num_col_dims": len(rows), "y_num_col_dims": 1}, x)
        else:
            turned = self.often(0.5)
            weight = self.fresh((classes, depth) if turned else (depth, classes), 0.5)
            value = self.emit("matmul_v2", {"X": x, "Y": weight}, {"trans_x": False, "trans_y": turned}, x)
        if self.often(0.5):
            axis = self.random.choice((-1, len(rows)))
            value = self.emit("elementwise_add", {"X": value, "Y": self.fresh((classes,))}, {"axis": axis}, value)
        if self.often(0.3):
            value = self.emit("scale", {"X": value}, {"scale": 2.0, "bias": 0.25}, value)
        if self.often(0.2):
            value = self.emit("tanh", {"X": value}, {}, value)
        if len(rows) > 1 and self.often(0.3):
            value = self.emit("reshape2", {"X": value}, {"shape": (-1, classes)}, value)
        if self.dtype != "float32" and self.often(0.5):
            value = self.emit("cast", {"X": value}, {"in_dtype": self.dtype, "out_dtype": "float32"}, value)
        return value

    def losses(self, logits: str) -> str | None:
        shape = self.shape(logits)
        label = self.builder.index((*shape[:-1], 1), shape[-1], self.random.randrange(256))
        ignore = 1 if self.often(0.4) else -100
        if self.often(0.25):
            softmax = self.emit("softmax", {"X": logits}, {"axis": -1}, "")
            attrs = {"ignore_index": ignore}
            made = softmax and self.builder.emit("cross_entropy2", {"X": softmax, "Label": label}, attrs)
            if softmax:
                self._hide(softmax)
            return made[0] if made else None
        attrs = {"ignore_index": ignore, "axis": self.random.choice((-1, len(shape) - 1))}
        made = self.builder.emit("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, attrs)
        if not made:
            return None
        self._hide(made[0])
        return made[1]

    def _hide(self, value: str) -> None:
        """No later step reads a value, and nobody fetches it: a program of the kind that is looked for does not."""
        self.builder.pool = [n for n in self.builder.pool if n != value]

    def reduced(self, losses: str) -> str:
        if self.often(0.3):
            dtype = self.builder.values[losses].dtype
            weights = self.builder.untrained(
                self.shape(losses), dtype, ValueRange(0.5, 2.0), self.random.randrange(256)
            )
            losses = self.emit("elementwise_mul", {"X": losses, "Y": weights}, {"axis": -1}, losses)
        if self.often(0.25):
            # The gradient of a square waits for the losses.
            losses = self.emit("square", {"X": losses}, {}, losses)
        kind = self.random.choice(("reduce_mean", "reduce_sum", ""))
        if not kind:
            return losses
        return self.emit(kind, {"X": losses}, {"dim": (0,), "reduce_all": True, "keep_dim": False}, losses)


def linear_loss_recipe(number: int, kind: str = "forward", runs: int = 3) -> testing.Recipe:
    """Returns a program of a linear layer and its loss; the same one for a number.

    Args:
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """

    def build(draw: _Draw) -> testing.Recipe | None:
        losses = draw.losses(draw.logits())
        if losses is None:
            return None
        value = draw.reduced(losses)
        if kind == "training":
            draw.emit("scale", {"X": value}, {"scale": 0.25}, value)
        made = draw.builder.recipe()
        if not any("cross_entropy" in s.type for s in made.steps):
            return None
        return made

    return draw_until(build, _Draw, number, kind, runs)
