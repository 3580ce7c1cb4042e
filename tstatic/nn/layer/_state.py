"""What ``Layer`` needs beside itself: generated names, checks, hooks, and values written by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.checks import check_type
from tstatic.logs import get_logger

_log = get_logger("nn")
Hook = Callable[..., Any]


def snake(name: str) -> str:
    """``BatchNorm2D`` -> ``batch_norm2d``: what the generated name of a layer begins with."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


class HookRemover:
    """A registered hook; ``handle.remove()`` takes it away again."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        hooks.append(hook)
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


def check_entry(layer: Any, name: Any, value: Any, kind: type, function: str, table: Mapping[str, Any] | None) -> None:
    """Refuses what cannot be registered; without ``table`` the name may hold dots or hide an attribute.

    Raises:
        ProgramTypeError: For a name that is not a str, or a value of another kind.
        ProgramError: For a name that is an attribute already.
    """
    owner = type(layer).__name__
    problem: tuple[str, str, str] | None = None
    if not isinstance(name, str) or not name or ("." in name and table is not None):
        problem = "the name must be a text without dots", "a non-empty str without '.'", repr(name)
    elif value is not None and not isinstance(value, kind):
        problem = (
            f"it takes a {kind.__name__} or None",
            f"a {kind.__name__}",
            f"{value!r} of type {type(value).__name__}",
        )
    if problem is not None:
        raise ProgramTypeError(
            f"{function}() of {owner}: {problem[0]}",
            expected=problem[1],
            received=problem[2],
            fix=f"call {function}('name', value)",
            op=owner,
        )
    if table is not None and name not in table and hasattr(layer, name):
        raise ProgramError(
            f"{function}() of {owner}: the name '{name}' is an attribute already",
            expected="a name that is free",
            received=repr(name),
            fix="choose another name",
            op=owner,
            var=name,
        )


def paths(layer: Any) -> Iterator[tuple[str, Any]]:
    """Every path to every layer inside, as a prefix of names; a way back to an outer layer is not followed."""
    stack: list[tuple[str, Any, tuple[Any, ...]]] = [("", layer, ())]
    while stack:
        path, found, above = stack.pop()
        yield path, found
        above = (*above, found)
        inner = [(n, child) for n, child in found.__dict__["_sub_layers"].items() if child is not None]
        stack.extend((f"{path}{n}.", child, above) for n, child in reversed(inner) if child not in above)


def write_state(owner: str, wanted: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Writes arrays to the variables ``wanted`` by name, in the global scope; all or nothing.

    Returns:
        Names that ``state`` lacks, and names that ``wanted`` lacks; a warning says how many.

    Raises:
        ProgramTypeError: If ``state`` is not a mapping.
        ShapeError, NotFoundError: If a shape differs, or a variable has no place in the scope.
    """
    check_type(
        state, Mapping, "state_dict", "set_state_dict", expected="a dict of name -> array", fix="pass what you saved"
    )
    pairs = [(key, wanted[key], np.asarray(value)) for key, value in state.items() if key in wanted]
    for key, var, array in pairs:
        if array.shape != var.shape:
            raise ShapeError(
                f"the value given for '{key}' has another shape than the layer's",
                expected=list(var.shape),
                received=list(array.shape),
                fix="load values that were saved from a layer of the same sizes",
                op="set_state_dict",
                var=var.name,
            )
    # Variables read and write the scope through methods that an upper stage gives them.
    for _, var, _ in pairs:
        var.get_value()
    for _, var, array in pairs:
        var.set_value(array.astype(var.dtype.np, copy=False))
    missing = [key for key in wanted if key not in state]
    unexpected = [key for key in state if key not in wanted]
    if missing or unexpected:
        _log.warning(
            "set_state_dict of %s: %d of its values are not given (%s), %d given ones have no place in it (%s)",
            owner, len(missing), ", ".join(missing[:4]), len(unexpected), ", ".join(unexpected[:4]),
        )  # fmt: skip
    return missing, unexpected
