"""Draws the plots of a report as SVG: ratios with intervals, roofline, history; nothing is loaded, and marks differ in grey.

Colours are variables of the page's style, so that the plots follow it in the dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.tools.benchlib import results
from tstatic.tools.benchlib.statistics import Judgement

WIDTH = 760
_ROW = 18
_LEFT, _RIGHT = 300, 90
SHAPES = ("circle", "square", "diamond", "triangle")
"""Marks of the peers, in order: they differ without colours."""


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis: values between ``low`` and ``high`` at pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Returns the pixel of a value; what lies outside is drawn at the edge."""
        value = min(max(value, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Returns round values: powers of ten, with others between them on a short axis."""
        span = self.high / self.low
        steps = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 9.0) if span < 4 else (1.0, 2.0, 5.0) if span < 200 else (1.0,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found = [s * 10.0**e for e in range(first, last + 1) for s in steps]
        return [v for v in found if self.low <= v * 1.0001 and v <= self.high * 1.0001]


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(title, quote=True)}">'
        f"<title>{html.escape(title)}</title>\n{body}\n</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def mark(shape: str, x: float, y: float, kind: str, title: str = "", size: float = 4.5) -> str:
    """Returns a mark with a title that shows when pointed at."""
    inner = f"<title>{html.escape(title)}</title>" if title else ""
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" class="{kind}">{inner}</circle>'
    points: list[tuple[float, float]]
    if shape == "square":
        points = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    elif shape == "diamond":
        points = [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)]
    else:
        points = [(0, -1.2), (1.2, 1), (-1.2, 1)]
    path = " ".join(f"{x + a * size:.1f},{y + b * size:.1f}" for a, b in points)
    return f'<polygon points="{path}" class="{kind}">{inner}</polygon>'


def _cut(text: str, most: int = 46) -> str:
    # Names begin with the op and end with the direction.
    return text if len(text) <= most else f"{text[: most - 17]}…{text[-16:]}"


def number(value: float) -> str:
    """Returns a number with at most two digits behind the point, or as a power."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e4 else f"{value:.0e}"


# ---------------------------------------------------------------------------------------------------------------- ratios
def ratios(record: Mapping[str, Any], peer: str, of: str = "tstatic") -> str:
    """Returns the ratio of two peers in each row with its interval; empty if no row has both. Left of 1 ``of`` is faster."""
    found: list[tuple[str, Judgement]] = [
        (row["name"], j) for row in record["rows"] for name, j in results.judgements(row, of) if name == peer
    ]
    if not found:
        return ""
    found.sort(key=lambda pair: pair[1].ratio)
    most = max(2.0, *(max(j.ratio, 1 / j.ratio) for _, j in found)) * 1.15
    top = 34
    axis = Axis(1 / most, most, _LEFT, WIDTH - _RIGHT)
    bottom = top + _ROW * len(found)
    parts = [_text(_LEFT, 14, f"{of}: time / time of {peer}, logarithmic; left of 1 it is faster", "small")]
    for value in axis.ticks():
        parts += [_line(axis.at(value), top - 6, axis.at(value), bottom, "one" if value == 1 else "grid"),
                  _text(axis.at(value), top - 9, number(value), "small", "middle")]  # fmt: skip
    for i, (name, j) in enumerate(found):
        y = top + _ROW * (i + 0.5)
        low, high = (max(j.low, axis.low), min(j.high, axis.high)) if math.isfinite(j.high) else (j.ratio, j.ratio)
        kind = {"faster": "good", "slower": "bad"}.get(j.finding, "even")
        said = f"{name}: {j.ratio:.3f} ({low:.3f} to {high:.3f}), {j.finding}"
        parts += [
            _text(_LEFT - 8, y + 4, _cut(name), "label", "end"),
            _line(axis.at(low), y, axis.at(high), y, f"bar {kind}"),
            mark({"faster": "circle", "slower": "square"}.get(j.finding, "diamond"), axis.at(j.ratio), y, kind, said),
            _text(WIDTH - _RIGHT + 8, y + 4, f"{j.ratio:.2f} {j.finding}", "small"),
        ]
    return _svg(bottom + 8, f"Time of {of} over that of {peer}, row by row", parts)


# -------------------------------------------------------------------------------------------------------------- roofline
def roofline(record: Mapping[str, Any], peers: Sequence[str]) -> tuple[str, int]:
    """Returns operations per second over operations per byte, below the machine's measured roofs, and how many rows it lacks.

    Rows without a count of operations, or with none, are not in it.
    """
    roofs = record.get("roofs")
    counted = [row for row in record["rows"] if row["flops"] and row["bytes"]]
    points: list[tuple[str, str, float, float]] = []
    for row in counted:
        for peer in peers:
            seconds = results.samples(row, peer)
            if seconds:
                middle = results.middle(seconds)
                points.append((row["name"], peer, row["flops"] / row["bytes"], row["flops"] / middle))
    missing = len(record["rows"]) - len(counted)
    if not roofs or not points:
        return "", missing
    peak, bandwidth = roofs["flops_per_s"], roofs["bytes_per_s"]
    ridge = peak / bandwidth
    height = 360
    x = Axis(min(min(p[2] for p in points), ridge) / 2, max(max(p[2] for p in points), ridge) * 2, 70, WIDTH - 130)
    y = Axis(min(p[3] for p in points) / 2, max(max(p[3] for p in points), peak) * 2, height - 40, 20)
    parts = []
    for value in x.ticks():
        parts += [_line(x.at(value), 20, x.at(value), height - 40, "grid"),
                  _text(x.at(value), height - 24, number(value), "small", "middle")]  # fmt: skip
    for value in y.ticks():
        parts += [_line(70, y.at(value), WIDTH - 130, y.at(value), "grid"),
                  _text(64, y.at(value) + 4, _rate(value), "small", "end")]  # fmt: skip
    parts += [
        _line(
            x.at(max(x.low, y.low / bandwidth)),
            y.at(max(x.low, y.low / bandwidth) * bandwidth),
            x.at(ridge),
            y.at(peak),
            "roof",
        ),
        _line(x.at(ridge), y.at(peak), x.at(x.high), y.at(peak), "roof"),
        _text(WIDTH - 126, y.at(peak) + 4, f"{_rate(peak)}, measured", "small"),
        _text(x.at(x.low) + 6, 14, f"sloped roof: {bandwidth / 1e9:.3g} GB/s of a copy, measured", "small"),
        _text((70 + WIDTH - 130) / 2, height - 6, "floating-point operations per byte", "small", "middle"),
    ]
    for name, peer, a, b in points:
        shape, number_ = _mark_of(peer, peers)
        parts.append(mark(shape, x.at(a), y.at(b), f"p{number_}", f"{name}: {peer}: {_rate(b)}"))
    return _svg(height, "Operations per second, below the roofs of this machine", [*parts, *_legend(peers)]), missing


def _rate(value: float) -> str:
    for unit, name in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g} FLOP/s"


def _mark_of(peer: str, peers: Sequence[str]) -> tuple[str, int]:
    position = list(peers).index(peer)
    return SHAPES[position % len(SHAPES)], position % 6


def _legend(peers: Sequence[str]) -> Iterator[str]:
    for i, peer in enumerate(peers):
        shape, number_ = _mark_of(peer, peers)
        yield mark(shape, WIDTH - 118, 150 + 18 * i, f"p{number_}")
        yield _text(WIDTH - 106, 154 + 18 * i, peer, "small")


# --------------------------------------------------------------------------------------------------------------- history
def history(records: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> str:
    """Returns, by result in the order of time, the geometric mean of tstatic's time over each peer's, of the rows that all have."""
    series: dict[str, list[tuple[int, float, int]]] = {}
    for peer in peers:
        by_record = [
            {row["name"]: j.ratio for row in one["rows"] for name, j in results.judgements(row) if name == peer}
            for one in records
        ]
        filled = [one for one in by_record if one]
        shared = set.intersection(*(set(one) for one in filled)) if len(filled) > 1 else set()
        if shared:
            series[peer] = [
                (i, math.exp(sum(math.log(one[name]) for name in shared) / len(shared)), len(shared))
                for i, one in enumerate(by_record)
                if one
            ]
    if not series:
        return ""
    height = 260
    every = [value for points in series.values() for _, value, _ in points]
    y = Axis(min(*every, 0.9) / 1.1, max(*every, 1.1) * 1.1, height - 46, 20)
    step = (WIDTH - 220) / max(1, len(records) - 1)
    parts = []
    for value in y.ticks():
        parts += [_line(60, y.at(value), WIDTH - 140, y.at(value), "one" if value == 1 else "grid"),
                  _text(54, y.at(value) + 4, number(value), "small", "end")]  # fmt: skip
    for i, one in enumerate(records):
        parts.append(_text(70 + step * i, height - 28, one["begun"][:10], "small", "middle"))
        parts.append(_text(70 + step * i, height - 14, str(one["commit"])[:8], "small", "middle"))
    for peer, points in series.items():
        shape, number_ = _mark_of(peer, peers)
        path = " ".join(f"{70 + step * i:.1f},{y.at(value):.1f}" for i, value, _ in points)
        parts.append(f'<polyline points="{path}" class="line p{number_}"/>')
        parts += [
            mark(shape, 70 + step * i, y.at(value), f"p{number_}", f"{peer}: {value:.3f} of {count} rows")
            for i, value, count in points
        ]
    return _svg(height, "History: tstatic's time over its peers', geometric mean", [*parts, *_legend(list(peers))])


__all__ = ["Axis", "history", "mark", "number", "ratios", "roofline"]
