"""Patterns: ordinary functions that name ops and the values between them, and the matcher that finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tstatic.errors import ProgramTypeError, shown
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.ir.traits import Activation


class Value:
    """A value of a pattern: an input of the whole pattern, or an output of one of its ops."""

    __slots__ = ("name", "op", "slot")

    def __init__(self, name: str, op: Op | None = None, slot: str = "") -> None:
        self.name = name
        self.op = op
        self.slot = slot


class Op:
    """An op of a pattern; attribute access gives its outputs: ``add.Out`` (``X_GRAD`` means ``X@GRAD``)."""

    def __init__(self, name: str, types: tuple[str, ...], inputs: Mapping[str, Value]) -> None:
        self.name = name
        self.types = types
        self.inputs = dict(inputs)
        self.outputs: dict[str, Value] = {}

    def __getattr__(self, slot: str) -> Value:
        # Python itself asks for names such as `__deepcopy__`, and no slot begins so.
        if slot.startswith("_"):
            raise AttributeError(slot)
        spelled = slot.replace("_GRAD", "@GRAD")
        # An output is one value, however often the pattern names it.
        return self.outputs.setdefault(spelled, Value(f"{self.name}.{spelled}", self, spelled))


class Pattern:
    """Collects the ops and values that a pattern function names.

    Raises:
        ProgramTypeError: If the function does not return its last op, or an output of it.
    """

    def __init__(self, function: PatternFunction) -> None:
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self.function = function
        result = function(self)
        assert self.ops, "a pattern names at least one op"
        if (result.op if isinstance(result, Value) else result) is not self.anchor:
            raise ProgramTypeError(
                f"pattern '{function.__name__}' does not return what its last op gives",
                expected=f"an output of '{self.anchor.name}', or that op",
                received=shown(result),
                fix=f"end it with `return {self.anchor.name}.Out`, or with the op's other output",
            )

    def value(self, name: str) -> Value:
        """Returns the input of that name; one name is one value."""
        return self.values.setdefault(name, Value(name))

    def op(self, name: str, types: str | Sequence[str], **inputs: Value) -> Op:
        """Adds an op of one of the types; the search starts from the op that was added last.

        Args:
            name: The op's name in the match.
            types: Op types that fit.
            **inputs: Slot -> value; other slots may hold anything (``X_GRAD`` means ``X@GRAD``).
        """
        kinds = (types,) if isinstance(types, str) else tuple(types)
        made = Op(name, kinds, {s.replace("_GRAD", "@GRAD"): v for s, v in inputs.items()})
        self.ops.append(made)
        return made

    @property
    def anchor(self) -> Op:
        return self.ops[-1]


def one(entry: object) -> str | None:
    """Returns the value of a slot that holds exactly one, else ``None``."""
    return entry if isinstance(entry, str) else None


def activations() -> tuple[str, ...]:
    """Returns the types of the ops that are loaded and whose definitions say that they are activations."""
    # Those of a program are loaded; to load all takes half a second.
    return OPS.loaded_with(Activation)


def activation_grads() -> tuple[str, ...]:
    """Returns the types of their gradients."""
    return tuple(f"{type}_grad" for type in activations())


PatternFunction = Callable[[Pattern], Value | Op]
"""Names ops and the values between them; returns an output of the last one, or that op where any of its outputs may be missing."""


@dataclass(frozen=True)
class Match:
    """A place where a pattern fits.

    Attributes:
        ops: Name in the pattern -> index of the op in the program.
        values: Name in the pattern -> value of the program.
    """

    ops: Mapping[str, int]
    values: Mapping[str, str]
    view: View = field(repr=False, compare=False)

    def op(self, name: str) -> FrozenOp:
        return self.view.ops[self.ops[name]]

    @property
    def indices(self) -> tuple[int, ...]:
        """Indices of the ops, in program order."""
        return tuple(sorted(self.ops.values()))


MisfitReason = Literal["type", "twice", "missing", "value", "maker"]
"""``type``: the op is of another type. ``twice``: it is another op of the pattern already. ``missing``: a slot does not have one
value. ``value``: it has another one than the pattern. ``maker``: what makes it is of another type."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why an op of the program is not one of a pattern.

    Attributes:
        why: What does not fit.
        index: The op.
        slot, entry: The slot, and the value in it.
        wanted: Types of the op that should make it.
    """

    why: MisfitReason
    index: int
    slot: str = ""
    entry: str = ""
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """How far the search for a pattern came at a place: the ops found, and what stopped it; ``None``: the pattern fits."""

    ops: Mapping[str, int]
    values: Mapping[str, str]
    misfit: Misfit | None


def find(pattern: Pattern, view: View) -> Iterator[Match]:
    """Yields the matches of a pattern, by the position of its anchor; each op of the pattern is one op of the program."""
    for one in attempts(pattern, view):
        if one.misfit is None:
            yield Match(one.ops, one.values, view)


def attempts(pattern: Pattern, view: View) -> Iterator[Attempt]:
    """Yields the searches for a pattern, by the position of its anchor, whether it fits there or not."""
    for kind in pattern.anchor.types:
        for index in view.of_type(kind):
            yield from _attempts(pattern, view, index)


def _attempts(pattern: Pattern, view: View, anchor: int) -> Iterator[Attempt]:
    # A state: ops found, values bound, ops still to check. Iterative, because a pattern may be long.
    stack: list[tuple[dict[str, int], dict[str, str], list[tuple[Op, int]]]] = [({}, {}, [(pattern.anchor, anchor)])]
    while stack:
        ops, values, todo = stack.pop()
        if not todo:
            if len(ops) == len(pattern.ops):
                yield Attempt(ops, values, None)
            continue
        op, index = todo[-1]
        rest = todo[:-1]
        step = _bind(op, index, view, ops, values)
        if isinstance(step, Misfit):
            yield Attempt(ops, values, step)
            continue
        new_ops, new_values, more = step
        stack.append((new_ops, new_values, rest + more))


def _bind(
    op: Op, index: int, view: View, ops: Mapping[str, int], values: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str], list[tuple[Op, int]]] | Misfit:
    found = view.ops[index]
    # An op of the pattern is the same op of the program on every way that leads to it.
    if found.type not in op.types or ops.get(op.name, index) != index:
        return Misfit("type", index)
    if op.name in ops:
        return dict(ops), dict(values), []
    if index in ops.values():
        return Misfit("twice", index)
    new_values = dict(values)
    more: list[tuple[Op, int]] = []
    slots = {s.name: e for s, e in zip(found.definition.inputs, found.inputs, strict=True)}
    for slot, value in op.inputs.items():
        entry = slots.get(slot)
        if not isinstance(entry, str):
            return Misfit("missing", index, slot)
        if new_values.setdefault(value.name, entry) != entry:
            return Misfit("value", index, slot, entry)
        if value.op is not None:
            maker = view.maker.get(entry)
            if maker is None or view.ops[maker].type not in value.op.types:
                return Misfit("maker", index, slot, entry, value.op.types)
            if view.ops[maker].output(value.slot) != entry:
                return Misfit("value", index, slot, entry)
            more.append((value.op, maker))
    # A gradient that nobody wants is absent, and a pattern that names it does not fit.
    made = {s.name: e for s, e in zip(found.definition.outputs, found.outputs, strict=True)}
    for slot, value in op.outputs.items():
        entry = made.get(slot)
        if not isinstance(entry, str):
            return Misfit("missing", index, slot)
        if new_values.setdefault(value.name, entry) != entry:
            return Misfit("value", index, slot, entry)
    return {**ops, op.name: index}, new_values, more
