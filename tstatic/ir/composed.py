"""Op types that are built from ordinary ops: what registers them, and when they are built so."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tstatic.ir.opdef import OPS
from tstatic.ir.program import Variable
from tstatic.ir.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Composed:
    """An op type that is built from ordinary ops.

    Attributes:
        build: Takes Variables by input slot and attributes by name, and returns slot -> result, or a list of results. One with a
            parameter ``outputs`` gets the Variables to write by slot instead, and returns nothing.
        slots: Input slots.
        many: Those that hold lists.
        attrs: Attributes.
        needed: Slots and attributes that have no default.
        writes: Whether it gets the outputs.
        in_files: Whether a program that is read from a file may have it.
    """

    build: Callable[..., Mapping[str, Variable | Sequence[Variable]]]
    slots: tuple[str, ...]
    many: frozenset[str]
    attrs: tuple[str, ...]
    needed: frozenset[str]
    writes: bool = False
    in_files: bool = True


COMPOSED: Registry[Composed] = Registry()
"""``"raw "`` and an op type that has no definition, or lacks slots or attributes that Paddle's has -> how it is built."""


def composed(*types: str, in_files: bool = True) -> Callable[[F], F]:
    """Registers a function as what raw ``append_op``, and the reader of Paddle's files, build for op types.

    Its parameters before ``*`` are the input slots, those behind are the attributes; it returns slot -> result.

    Args:
        types: The op types.
        in_files: ``False`` for what a file that somebody sent must not do.
    """

    def add(function: F) -> F:
        listed = inspect.signature(function).parameters
        row = [p for p in listed.values() if p.name != "outputs"]
        # Annotations are texts: modules postpone their evaluation.
        slots = {p.name: "Sequence" in str(p.annotation) for p in row if p.kind is not p.KEYWORD_ONLY}
        attrs = tuple(p.name for p in row if p.kind is p.KEYWORD_ONLY)
        many = frozenset(name for name, listed in slots.items() if listed)
        needed = frozenset(p.name for p in row if p.default is p.empty)
        for type in types:
            made = Composed(function, tuple(slots), many, attrs, needed, "outputs" in listed, in_files)
            # One index serves all registries: with the prefix these are not taken for op definitions.
            COMPOSED.add(f"raw {type}", made)
        return function

    return add


def composed_op(type: str, inputs: Collection[str], attrs: Collection[str]) -> Composed | None:
    """Returns how an op is built from others.

    ``None`` if it has a definition, unless that lacks one of the slots and attributes that are given.
    """
    found = COMPOSED.find(f"raw {type}")
    if found is None or (definition := OPS.find(type)) is None:
        return found
    # What the function lacks, too, is an error either way: the definition names it.
    lacking = ({*inputs} - {*definition.input_slots}) & {*found.slots} | ({*attrs} - {*definition.attrs}) & {
        *found.attrs
    }
    return found if lacking else None
