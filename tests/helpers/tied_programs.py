"""Drawn programs of tables that are looked up and used otherwise, too: multiplied by, summed, or looked up again."""

from __future__ import annotations

from tests.helpers.epilogue_programs import LayerDraw, draw_until
from tstatic import testing
from tstatic.fusion.patterns import embedding_grad_add
from tstatic.ir.opdef import ValueRange

SWITCH = embedding_grad_add.FUSION.switch
ROWS = (5, 8, 17)
WIDTHS = (3, 8)
IDS: tuple[tuple[int, ...], ...] = ((6,), (2, 3), (13,), (30,), (), (0,))


class _Draw(LayerDraw):
    """Appends a table and what reads it."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number, kind)
        self.rows, self.width = self.random.choice(ROWS), self.random.choice(WIDTHS)
        self.table = self.builder.fresh(
            (self.rows, self.width), self.dtype, ValueRange(-1, 1), self.random.randrange(256)
        )

    def lookup(self) -> str | None:
        column = self.often(0.25)
        shape = self.random.choice(IDS)
        ids = self.builder.index((*shape, 1) if column else shape, self.rows, self.random.randrange(256))
        padding = self.random.randrange(self.rows) if self.often(0.4) else -1
        inputs = {"Ids": ids, "W": self.table}
        made = self.builder.emit("lookup_table" if column else "lookup_table_v2", inputs, {"padding_idx": padding})
        return made[0] if made else None

    def product(self) -> None:
        shape = (self.random.choice((4, 7)), self.width)
        x = self.builder.fresh(shape, self.dtype, ValueRange(-1, 1), self.random.randrange(256))
        self.emit("matmul_v2", {"X": x, "Y": self.table}, {"trans_x": False, "trans_y": True}, "")

    def use(self) -> None:
        self.emit("tanh" if self.often(0.5) else "square", {"X": self.table}, {}, "")


def tied_recipe(number: int, kind: str = "forward", runs: int = 3) -> testing.Recipe:
    """Returns a program of a table with several readers; the same one for a number.

    Args:
        number: Decides everything that is drawn.
        kind: ``forward``, ``gradients`` (those of all inputs) or ``training``.
        runs: Steps of a training.
    """

    def build(draw: _Draw) -> testing.Recipe | None:
        found = [draw.lookup() for _ in range(draw.random.choice((1, 1, 2)))]
        if None in found:
            return None
        for value in found:
            if value and draw.often(0.5):
                draw.emit("scale", {"X": value}, {"scale": 0.5}, value)
        if len(found) == 1 or draw.often(0.7):
            draw.product() if draw.often(0.6) else draw.use()
        if draw.often(0.2):
            draw.use()
        made = draw.builder.recipe()
        return made

    return draw_until(build, _Draw, number, kind, runs)
