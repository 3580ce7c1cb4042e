"""Where the nodes of a layered graph stand: order within rows, then x positions without overlap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

GAP = 18.0
SWEEPS = 6

Pulls = list[tuple[int, float]]


class Layered:
    """A graph whose nodes have a row each, and whose edges go from lower to higher rows.

    Attributes:
        rows: Row -> its nodes from left to right.
        width: Node -> width; bends of long edges have width 0.
        x: Node -> centre, after :meth:`place`.
        paths: Per edge, the nodes it passes: both ends, and a bend in every row between.
    """

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.row: list[int] = []
        self.width: list[float] = []
        self.x: list[float] = []
        self.paths: list[list[int]] = []
        # Per node: (neighbour above or below, how strongly it pulls).
        self._up: list[Pulls] = []
        self._down: list[Pulls] = []

    def node(self, row: int, width: float) -> int:
        """Adds a node at the right end of a row; returns its number."""
        while len(self.rows) <= row:
            self.rows.append([])
        number = len(self.row)
        self.rows[row].append(number)
        self.row.append(row)
        self.width.append(width)
        self.x.append(0.0)
        self._up.append([])
        self._down.append([])
        return number

    def edge(self, start: int, end: int, pull: float = 1.0) -> None:
        """Adds an edge, with a bend in every row that it crosses; one that pulls weakly moves only its weaker end."""
        path = [start, *(self.node(row, 0.0) for row in range(self.row[start] + 1, self.row[end])), end]
        for a, b in itertools.pairwise(path):
            self._down[a].append((b, pull))
            self._up[b].append((a, pull))
        self.paths.append(path)

    def place(self) -> tuple[float, float]:
        """Orders the rows so that few edges cross, and sets ``x``; returns the left and right end."""
        for row in self.rows:
            self._spread(row, [0.0] * len(row), [1.0] * len(row))
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            for number in range(1, len(self.rows)) if down else range(len(self.rows) - 2, -1, -1):
                self._sort(self.rows[number], self._up if down else self._down)
        # Sorting leaves long chains aslant; they straighten fast only from rows that are centred.
        for row in self.rows:
            self._spread(row, [0.0] * len(row), [1.0] * len(row))
        for sweep in range(2 * SWEEPS):
            down = sweep % 2 == 0
            order = range(len(self.rows)) if down else range(len(self.rows) - 1, -1, -1)
            for number in order:
                self._pull(self.rows[number], self._up if down else self._down, self._down if down else self._up)
        ends = [(self.x[n] - self.width[n] / 2, self.x[n] + self.width[n] / 2) for n in range(len(self.x))]
        return min((a for a, _ in ends), default=0.0), max((b for _, b in ends), default=0.0)

    def _sort(self, row: list[int], neighbours: Sequence[Pulls]) -> None:
        """Orders a row by the mean place of each node's neighbours; nodes without any stay where they are."""
        key = {node: self.x[node] for node in row}
        for node in row:
            total = sum(w for _, w in neighbours[node])
            if total:
                key[node] = sum(w * self.x[n] for n, w in neighbours[node]) / total
        row.sort(key=key.__getitem__)
        self._spread(row, [key[node] for node in row], [1.0] * len(row))

    def _pull(self, row: list[int], first: Sequence[Pulls], second: Sequence[Pulls]) -> None:
        """Moves a row towards its neighbours: those of the row just placed count most, bends keep edges straight."""
        wanted, weights = [], []
        for node in row:
            near, far = first[node], second[node]
            total = 3.0 * sum(w for _, w in near) + sum(w for _, w in far)
            if total:
                wanted.append((3.0 * sum(w * self.x[n] for n, w in near) + sum(w * self.x[n] for n, w in far)) / total)
                weights.append(total * (3.0 if self.width[node] == 0 else 1.0))
            else:
                wanted.append(self.x[node])
                weights.append(0.1)
        self._spread(row, wanted, weights)

    def _spread(self, row: list[int], wanted: Sequence[float], weights: Sequence[float]) -> None:
        """Places the nodes nearest to the wanted positions (least squares), keeping order and distance.

        Pool adjacent violators: after each node's least distance from the first is taken off, the places must not
        decrease; neighbours that do are merged into one at their weighted mean.
        """
        offset = 0.0
        blocks: list[tuple[float, float, int]] = []
        offsets = []
        for at, node in enumerate(row):
            if at:
                before = row[at - 1]
                offset += (self.width[before] + self.width[node]) / 2 + GAP
            offsets.append(offset)
            mean, weight, count = wanted[at] - offset, weights[at], 1
            while blocks and blocks[-1][0] > mean:
                old, its, number = blocks.pop()
                mean = (old * its + mean * weight) / (its + weight)
                weight, count = weight + its, count + number
            blocks.append((mean, weight, count))
        at = 0
        for mean, _, count in blocks:
            for _ in range(count):
                self.x[row[at]] = mean + offsets[at]
                at += 1
