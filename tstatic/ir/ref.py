"""The reference of an op: what computes its results on numpy arrays and so defines them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tstatic.ir.expr import Node
from tstatic.ir.recording import Call, Recording
from tstatic.ir.types import Meta, Shape

Calls = list[Call]
"""Functions with their arguments, to be called in order."""
Metas = tuple[Meta, ...]
Slots = Sequence[Any]
"""What stands in an op's slots, one entry each: an array, a list of arrays, ``None``; or the metadata of those."""
Attrs = Mapping[str, Any]
"""An op's complete attributes, or reserved values, by name."""

RESERVED = ("rng", "run_block", "group")
"""What a device hands to a reference beside arrays and attributes: random numbers, the op's body, the other replicas."""


class Ref(ABC):
    """Computes an op's outputs from its inputs; whoever runs an op on arrays does it through these methods.

    Inputs and outputs are given per slot: an array, a list of arrays, or ``None`` where the slot is empty. ``attrs`` are the
    op's complete attributes.

    Attributes:
        attrs: Names of the attributes that it may read; ``None`` where it takes them all.
        takes: Which values of :data:`RESERVED` it wants.
        functions: The functions that it is made of, for tools that read their text.
        only_queues: Of a collective: whether its calls only put work into streams, where those that move its values do.
    """

    only_queues = False
    attrs: frozenset[str] | None = frozenset()
    takes: frozenset[str] = frozenset()
    functions: tuple[Callable[..., Any], ...] = ()

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        """Returns the metadata of the buffers that :meth:`bind_arrays` needs, from that of inputs and outputs."""
        return ()

    @abstractmethod
    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        """Returns calls that write every output that is not ``None``; runs once per plan and never looks at values."""

    def compute(self, ins: Slots, outs: Slots, attrs: Attrs, reserved: Attrs) -> list[Any]:
        """Returns one result per output slot, in memory that it allocates: for sizes that depend on values.

        Args:
            ins: Arrays by slot.
            outs: ``None`` per slot, or an empty list for a slot that holds Python objects.
            attrs: Complete attributes.
            reserved: Values for :attr:`takes`.
        """
        raise AssertionError("the sizes of this operator's results follow from its inputs' sizes")

    @property
    def expression(self) -> ExpressionRef | None:
        """Itself, if it is made of expressions."""
        return None

    def aligned(self, ins: Slots, attrs: Attrs) -> tuple[Ref, Slots] | None:
        """Returns, for work that may be cut anywhere, inputs that broadcast by numpy's rule, and the reference for those.

        ``None`` for any other work: how that is cut, the op definition's ``split`` says.
        """
        return None

    def constant(self, attrs: Attrs) -> bool | int | float | None:
        """Returns the number that every element of the result is, if the attributes alone give it."""
        return None


@dataclass(frozen=True, slots=True)
class Expressions:
    """What an op computes, element by element, for known sizes.

    Attributes:
        nodes: Output position -> expression over ``params`` and attributes.
        params: Name inside the expressions per input value; a list slot has one for each value.
        shapes: Per input value its shape, aligned so that all broadcast by numpy's rule; ``None`` where it is absent.
        like: Output position -> position of the input value to whose shape the result is summed.
    """

    nodes: Mapping[int, Node]
    params: Sequence[str]
    shapes: Sequence[Shape | None]
    like: Mapping[int, int]


class ExpressionRef(Ref):
    """A reference made of expressions, from which kernels are generated too.

    Attributes:
        nodes: Output position -> expression; for a fold the expression of one step.
        elementwise: Whether an element of a result depends on elements of the inputs at its own place only: nothing is summed.
    """

    nodes: dict[int, Node]
    elementwise: bool

    @property
    def expression(self) -> ExpressionRef:
        """Itself."""
        return self

    @abstractmethod
    def expressions(self, ins: Slots, attrs: Attrs) -> Expressions | None:
        """Returns the expressions for inputs of known sizes (metadata per slot); ``None`` if these have none."""


# ------------------------------------------------------------------------------------------------------ bare functions
# `inspect.signature` takes some 40 us, and binding a plan asks for each of its ops.
@lru_cache(maxsize=1 << 14)
def _parameters(function: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    found = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in found), any(p.kind is p.VAR_KEYWORD for p in found)


def pick(function: Callable[..., Any], attrs: Mapping[str, Any], known: Container[str] | None = None) -> dict[str, Any]:
    """Returns those attributes that a function names in its signature (all of them if it takes ``**attrs``), of the known ones."""
    names, everything = _parameters(function)
    if known is None:
        return dict(attrs) if everything else {n: v for n, v in attrs.items() if n in names}
    return {n: v for n, v in attrs.items() if n in known and (everything or n in names)}


def keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of a function's keyword-only parameters: the attributes that it uses."""
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)


class PlainRef(Ref):
    """A bare function of arrays as a reference.

    Args:
        function: ``(*inputs, *outputs, **attrs)``: writes the outputs. It names the attributes, the reserved values and
            ``scratch`` that it wants. For :meth:`compute` it gets no output arrays and returns the results.
        scratch_metas: ``(*input metas, *output metas, **attrs) -> metas`` of the buffers that it gets as ``scratch``.
        recorded: Later runs make the function's numpy calls only: for one that makes many, and does not look at values.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        scratch_metas: Callable[..., Metas] | None = None,
        recorded: bool = False,
    ) -> None:
        names, everything = _parameters(function)
        self.function = function
        self.scratch_metas = scratch_metas
        self.attrs = None if everything else names
        self.takes = names & frozenset(RESERVED)
        self.functions = (function,) if scratch_metas is None else (function, scratch_metas)
        self._takes_scratch = "scratch" in names
        # What is handed to it beside arrays differs from run to run, which recorded calls would not notice.
        self._recorded = recorded and not self.takes

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        if self.scratch_metas is None:
            return ()
        return self.scratch_metas(*ins, *outs, **pick(self.scratch_metas, attrs))

    def _keywords(self, attrs: Attrs, reserved: Attrs) -> dict[str, Any]:
        names = self.attrs
        given = dict(attrs) if names is None else {n: v for n, v in attrs.items() if n in names}
        return given | {n: v for n, v in reserved.items() if n in self.takes} if self.takes else given

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        given = self._keywords(attrs, reserved)
        if self._takes_scratch:
            given["scratch"] = tuple(scratch)
        if self._recorded:
            # The first run records its numpy calls.
            return [(Recording(self.function, (*ins, *outs), given), ())]
        # Bound once, so that runs pass no keywords.
        function = partial(self.function, **given) if given else self.function
        return [(function, (*ins, *outs))]

    def compute(self, ins: Slots, outs: Slots, attrs: Attrs, reserved: Attrs) -> list[Any]:
        results = self.function(*ins, *outs, **self._keywords(attrs, reserved))
        return list(results) if isinstance(results, tuple | list) else [results]


def plain(
    function: Callable[..., Any], scratch_metas: Callable[..., Metas] | None = None, recorded: bool = False
) -> PlainRef:
    """Returns the reference that a bare function is; an op definition does it itself where there is no scratch."""
    return PlainRef(function, scratch_metas, recorded)


class _NoRef(Ref):
    """In the place of the reference of an op that has none: a fused op, which runs as its members or as a kernel."""

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        raise AssertionError("this operator has no reference")


NO_REF = _NoRef()
"""The reference of an op definition that states none."""


def as_ref(given: Ref | Callable[..., Any] | None) -> Ref:
    """Makes a :class:`Ref` of what an op definition states: a reference, a bare function, or nothing."""
    if given is None:
        return NO_REF
    return given if isinstance(given, Ref) else PlainRef(given)
