"""Says whether a call that is right for a version of Paddle means the same here, from the parameters of both."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tests.parity.signatures import Parameters

SYNONYMS = {"parameter_list": "parameters", "regularization": "weight_decay", "regularization_coeff": "coeff"}
"""Name in 1.x -> the name in 2.x of a parameter that functions of both eras take under both names."""
_TYPES = {"FP16": "'float16'", "FP32": "'float32'", "LOD_TENSOR": "None"}
"""Members of ``VarType`` and what stands for them here."""
Row = tuple[object, ...]
"""A parameter's name, and its default if it has one."""


def default(text: str) -> object:
    """Returns what a default's text stands for, so that 2 is 2.0 and a list a tuple; otherwise the text."""
    kind = re.search(r"VarType\.(\w+)", text)
    text = _TYPES.get(kind[1], text) if kind else text
    # Classes by their last name, sets as they are, whatever the module or Python's version.
    text = re.sub(r"<class '(?:[\w.]+\.)?(\w+)'>", r"\1", text).replace("frozenset()", "set()")
    text = re.sub(r"<?TracerEventType\.(\w+)(?:: \d+>)?", "None", text)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return list(value) if isinstance(value, tuple | list) else value


def rows(given: Parameters) -> list[Row]:
    """Returns the parameters that have names, with defaults as values."""
    return [(name, *map(default, rest)) for name, *rest in given if not name.startswith("*")]


def _has(given: Parameters, stars: str) -> bool:
    return any(name.startswith(stars) and not name.removeprefix(stars).startswith("*") for name, *_ in given)


def _settled(first: Sequence[Row], later: Sequence[Row]) -> int:
    """Returns how many parameters a later version has at the positions of the first, before an order that is not the first's."""
    common = 0
    for a, b in zip(first, later, strict=False):
        if a[0] != b[0]:
            break
        common += 1
    return len(later) if common == len(first) else common


def differences(theirs: Sequence[Parameters], ours: Parameters) -> Iterator[str]:
    """Yields what a legal call of Paddle could not do, or do otherwise, here.

    Args:
        theirs: The parameters in each version that has the name; where versions disagree the first one's order counts, and later
            ones' parameters are needed by keyword.
        ours: The parameters here.
    """
    if _has(ours, "*"):
        return  # Passed on, as in Paddle: what is taken is not said here.
    own = rows(ours)
    at = {row[0]: i for i, row in enumerate(own)}
    passed_on = _has(ours, "**")
    listed = [rows(one) for one in theirs if not (_has(one, "*") and len(one) <= 2)]
    for wanted in listed:
        settled = _settled(listed[0], wanted)
        for i, row in enumerate(wanted):
            name = str(row[0])
            today = SYNONYMS.get(name)
            if name not in at:
                if not passed_on:
                    yield f"lacks {name}"
                continue
            both = today in at and at[today] == i
            if i < settled and at[name] != i and not both:
                yield f"{name} is at {at[name]}, not {i}"
            defaults = [r[1:] for one in listed for r in one if r[0] == name]
            if len(row) == 2 and own[at[name]][1:] not in defaults and not both:
                yield f"{name} is {own[at[name]][1:]}, not {row[1:]}"
    known = {row[0] for wanted in listed for row in wanted} | {SYNONYMS.get(str(r[0])) for w in listed for r in w}
    if listed:
        yield from (f"needs {row[0]}" for row in own if len(row) == 1 and row[0] not in known)
