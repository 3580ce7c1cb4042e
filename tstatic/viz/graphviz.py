"""Graphviz, where it is installed, orders the rows of graphs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SECONDS = 20.0
"""Most time for all graphs; then the order of our own is taken."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in rows from top to bottom, and links between them."""

    rows: Sequence[Sequence[int]]
    links: Sequence[tuple[int, int]]


def rows_by_dot(graphs: Sequence[Graph]) -> list[list[list[int]]] | None:
    """Returns the nodes of each graph in rows, ordered from left to right; ``None`` if ``dot`` is missing, fails or is slow."""
    program = shutil.which("dot")
    if program is None or not graphs:
        return None
    text = "\n".join(_dot(graph) for graph in graphs)
    try:
        # A list of arguments: no shell reads them. Nodes have numbers, so nothing of the user's is in the text.
        done = subprocess.run(
            [program, "-Tplain"], input=text, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        found = list(_read(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    whole = len(found) == len(graphs) and all(
        sorted(n for row in rows for n in row) == sorted(n for row in graph.rows for n in row)
        for rows, graph in zip(found, graphs, strict=True)
    )
    return found if whole else None


def _dot(graph: Graph) -> str:
    nodes = " ".join(f"n{n};" for row in graph.rows for n in row)
    links = " ".join(f"n{a}->n{b};" for a, b in graph.links)
    return f'digraph g {{ node [shape=box, label="", width=1.4, height=0.5, fixedsize=true]; {nodes} {links} }}'


def _read(text: str) -> Iterator[list[list[int]]]:
    """Yields the rows of each graph of dot's plain output; its y grows upwards."""
    places: list[tuple[float, float, int]] = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "node":
            places.append((-float(words[3]), float(words[2]), int(words[1].removeprefix("n"))))
        elif words and words[0] == "stop":
            rows: dict[float, list[int]] = {}
            for y, _, number in sorted(places):
                rows.setdefault(round(y, 2), []).append(number)
            yield list(rows.values())
            places = []
