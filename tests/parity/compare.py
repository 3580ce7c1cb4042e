"""Compares two answers of one call, and reads the page that lists which differences are chosen."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "paddle_differences.md"

RELATIVE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "complex128": 1e-12, "complex64": 1e-5}
"""Both sides sum and call the mathematical functions in orders of their own: a few rounding steps per result."""

TRAINED = 2e-4
"""Losses and parameters after steps: a rounding difference grows with each, and Adam divides by small moments."""

MOMENTS = 0.1
"""Random values: mean and deviation of thousands of draws, relative to the deviation."""


@dataclass(frozen=True)
class Difference:
    """One way in which an answer differs from Paddle's.

    Attributes:
        call: The call's identifier.
        unknown: Whether the first size was declared unknown.
        aspect: What differs, in the words of the page's second column.
        detail: Paddle's and our answer.
    """

    call: str
    unknown: bool
    aspect: str
    detail: str

    def __str__(self) -> str:
        size = ", first size unknown" if self.unknown else ""
        return f"{self.call}{size}\n    {self.aspect}: {self.detail}"


@dataclass(frozen=True)
class Row:
    """A line of the page: which calls may differ in what (patterns, aspects joined by ``" + "``), and why."""

    calls: str
    aspect: str
    why: str

    def covers(self, difference: Difference) -> bool:
        """Whether the row lists a difference."""
        aspects = self.aspect.split(" + ")
        return matches(difference.call, self.calls) and any(matches(difference.aspect, a) for a in aspects)


def matches(text: str, pattern: str) -> bool:
    """Whether a text fits a row's pattern."""
    # Brackets belong to the calls' names: only * and ? are patterns.
    return fnmatch.fnmatchcase(text.replace("[", "\x01"), pattern.replace("[", "\x01"))


def rows(text: str) -> list[Row]:
    """The rows of the page's tables: a first and a second cell in backticks, then the reason."""
    found = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (.+?) \|$", text, re.MULTILINE)
    return [Row(*f) for f in found]


# ------------------------------------------------------------------------------------------------------------ comparison
def whole(answer: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The answers for fixed and for unknown first sizes; the second is recorded as changes to the first."""
    yield False, answer["fixed"]
    if "unknown" in answer:
        changed = {**answer["fixed"], **answer["unknown"]}
        yield True, {k: v for k, v in changed.items() if v is not None}


def compare(call: dict[str, Any], paddle: dict[str, Any], ours: dict[str, Any]) -> list[Difference]:
    """Lists the differences of two answers."""
    found = []
    # A call that ends Paddle's process has one answer.
    crashed = paddle["fixed"].get("raised") == "crash"
    for (unknown, theirs), (_, own) in zip(whole(paddle), whole(ours), strict=not crashed):
        found += [Difference(call["id"], unknown, aspect, detail) for aspect, detail in _parts(call, theirs, own)]
    return found


def _parts(call: dict[str, Any], paddle: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str]]:
    stages = paddle.get("raised", "none"), ours.get("raised", "none")
    if stages != ("none", "none"):
        if stages[0] != stages[1]:
            yield f"error: {stages[0]}, here {stages[1]}", _error(ours)
        elif "error_class" in call and call["error_class"] not in ours["classes"]:
            yield "error class", f"{call['error_class']}, here {_error(ours)}"
        return
    stages = paddle.get("gradient_raised", "none"), ours.get("gradient_raised", "none")
    if stages[0] != stages[1]:
        yield f"gradient error: {stages[0]}, here {stages[1]}", _error(ours)
    yield from _declared(paddle.get("declared", []), ours.get("declared", []))
    for part, names in (("outs", ("value", "shape", "dtype")), ("grads", ("gradient",) * 3), ("state", ("state",) * 3)):
        if part == "grads" and stages != ("none", "none"):
            continue
        yield from _arrays(call, part, names, paddle.get(part, []), ours.get(part, []))
    for key in ("plain", "parameters", "lods", "given"):
        if paddle.get(key) != ours.get(key):
            yield key, f"{paddle.get(key)}, here {ours.get(key)}"


def _error(ours: dict[str, Any]) -> str:
    return f"{ours.get('classes', ['nothing raised'])[0]}: {ours.get('text', '')}"


def _declared(paddle: list[Any], ours: list[Any]) -> Iterator[tuple[str, str]]:
    if len(paddle) != len(ours):
        yield "count", f"{len(paddle)} results, here {len(ours)}"
        return
    for theirs, own in zip(paddle, ours, strict=True):
        for aspect, a, o in zip(("declared shape", "declared dtype"), theirs[:2], own[:2], strict=True):
            if a != o:
                yield aspect, f"{a}, here {o}"
        if theirs[2] != own[2]:
            yield f"stop_gradient of {own[1]}: {theirs[2]}, here {own[2]}", "declared"


def _arrays(
    call: dict[str, Any], part: str, names: tuple[str, str, str], paddle: Any, ours: Any
) -> Iterator[tuple[str, str]]:
    if len(paddle) != len(ours):
        yield {"outs": "count", "grads": "gradients"}.get(part, names[0]), f"{len(paddle)} arrays, here {len(ours)}"
    # A number that is too much on one side hides no other number.
    for number, (theirs, own) in enumerate(zip(paddle, ours, strict=False)):
        if theirs is None or own is None:
            if theirs is not own:
                yield (
                    names[0],
                    f"number {number} is {'None' if theirs is None else 'there'}, here {'None' if own is None else 'there'}",
                )
        elif theirs[1] != own[1]:
            yield names[1], f"number {number}: {theirs[1]}, here {own[1]}"
        elif theirs[0] != own[0]:
            yield names[2], f"number {number}: {theirs[0]}, here {own[0]}"
        elif not close(theirs, own, trained=call["path"] in ("training", "network")):
            yield names[0], f"number {number}: {_short(theirs[2])}, here {_short(own[2])}"


def _short(values: list[Any]) -> str:
    return str([round(v, 6) if isinstance(v, float) and math.isfinite(v) else v for v in values[:10]])


def close(paddle: list[Any], ours: list[Any], *, trained: bool = False) -> bool:
    """Whether two recorded arrays agree: integers exactly, floats by the tables above, NaN and infinity in place."""
    a, b = np.asarray(paddle[2], np.float64).ravel(), np.asarray(ours[2], np.float64).ravel()
    if paddle[3:] == ["moments"]:
        scale = max(abs(a[1]), 1e-6)
        return bool(np.abs(a - b).max() <= MOMENTS * scale)
    if a.shape != b.shape:
        return False
    projected = paddle[3:] == ["projected"]
    if paddle[0] not in RELATIVE and not projected:
        return bool((a == b).all())
    odd = ~np.isfinite(a)
    if not (np.array_equal(odd, ~np.isfinite(b)) and np.array_equal(a[odd], b[odd], equal_nan=True)):
        return False
    a, b = a[~odd], b[~odd]
    if not a.size:
        return True
    # Projections of integers are sums of floats.
    relative = TRAINED if trained else RELATIVE.get(paddle[0], RELATIVE["float64"])
    # Sums that cancel keep the error of their terms, which are about 1 here: part of the tolerance is absolute.
    floor = max(0.1 * min(float(np.abs(a).max()), 1e6), 0.3)
    return bool((np.abs(a - b) <= relative * (np.abs(a) + floor)).all())


def judge(differences: list[Difference], listed: list[Row]) -> tuple[list[Difference], list[Row]]:
    """Returns the differences that no row lists, and the rows that list none."""
    unlisted = [d for d in differences if not any(row.covers(d) for row in listed)]
    stale = [row for row in listed if not any(row.covers(d) for d in differences)]
    return unlisted, stale
