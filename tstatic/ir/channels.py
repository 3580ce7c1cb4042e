"""Expressions over data with channels: sums, statistics and parameters have one value per channel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tstatic.ir import expr
from tstatic.ir.attrs import Slot
from tstatic.ir.expr import Node, parse, substitute, variables
from tstatic.ir.types import Shape, numel

CHANNEL_SUMS = ("csum", "cmean", "cvar")
"""Functions of all values of a channel: their sum, their mean, their biased variance."""


def _terms_only(*args: object) -> object:
    raise AssertionError("functions of a channel are computed where the terms are, not in an expression")


for _name in CHANNEL_SUMS:
    expr.define(_name, None, _terms_only)


@dataclass(frozen=True, slots=True)
class Channels:
    """An op on channels: one dimension of its data numbers the channels; parameters have one value per channel.

    A function of a channel is a term of its own. Among data, what has one value per channel stands by its name: the part of
    an expression that is the same for a whole channel is a term.

    Attributes:
        texts: Output slot or name -> expression over the slots' names inside expressions, attributes, terms before it and
            ``n`` (values of a channel). Other names than output slots are of terms that several others share.
        shape: Of the data.
        axis: The dimension of the channels.
        data: Input slots that hold data; others hold one value per channel,
        numbers: or one number.
    """

    texts: Mapping[str, str]
    shape: Shape
    axis: int
    data: tuple[str, ...]
    numbers: tuple[str, ...] = ()

    @property
    def per_channel(self) -> Shape:
        """The data's shape with ones for all dimensions but that of the channels."""
        return tuple(n if i == self.axis else 1 for i, n in enumerate(self.shape))

    def bind_attributes(self, attrs: Mapping[str, Any], wanted: Collection[str]) -> ChannelTerms:
        """Returns the terms that some output slots need, with attributes as numbers.

        Args:
            attrs: Complete attributes.
            wanted: Output slots.
        """
        known = {n: expr.const(v) for n, v in attrs.items() if isinstance(v, bool | int | float)}
        # What a channel's mean divides by.
        known["n"] = expr.const(numel(self.shape) // self.shape[self.axis])
        nodes = {Slot(n).param: substitute(parse(text), known) for n, text in self.texts.items()}
        data = {Slot(n).param for n in self.data}
        late: set[str] = set()
        for name, node in nodes.items():
            read = variables(node)
            # These need a sum over the whole channel first, so that a second pass computes them.
            if node.op in CHANNEL_SUMS or not read.isdisjoint(late):
                late.add(name)
            if node.op not in CHANNEL_SUMS and not read.isdisjoint(data):
                data.add(name)
        outputs = {n: Slot(n).param for n in self.texts if n in wanted}
        every = ChannelTerms(nodes, outputs, frozenset(data), frozenset(late))
        needed = every.needs(outputs.values())
        return ChannelTerms(
            {n: node for n, node in nodes.items() if n in needed}, outputs, every.data & set(needed), every.late
        )


@dataclass(frozen=True, slots=True)
class ChannelTerms:
    """The terms of an op on channels whose attributes are numbers.

    Attributes:
        nodes: Name -> expression over inputs and terms before it.
        outputs: Output slot -> name of its term.
        data: Names of inputs and terms with all elements; any other has one value per channel.
        late: Names of terms that depend on a function of a channel.
    """

    nodes: Mapping[str, Node]
    outputs: Mapping[str, str]
    data: frozenset[str]
    late: frozenset[str]

    @property
    def sums(self) -> dict[str, Node]:
        """The terms that are functions of a channel."""
        return {n: node for n, node in self.nodes.items() if node.op in CHANNEL_SUMS}

    def needs(self, wanted: Iterable[str], known: Collection[str] = ()) -> tuple[str, ...]:
        """Returns what some names depend on, themselves included: inputs by name, then terms in order.

        Args:
            wanted: Names of inputs and terms.
            known: Terms whose values are there already: what they are made of is not needed for them.
        """
        reached = set(wanted)
        # From the last term on, since terms read earlier ones only: one pass reaches all.
        for name in reversed(list(self.nodes)):
            if name in reached and name not in known:
                reached |= variables(self.nodes[name])
        return (*sorted(reached - self.nodes.keys()), *(n for n in self.nodes if n in reached))

    def inlined(self) -> dict[str, Node]:
        """Returns each output slot's expression over inputs alone."""
        done: dict[str, Node] = {}
        for name, node in self.nodes.items():
            done[name] = substitute(node, done)
        return {slot: done[name] for slot, name in self.outputs.items()}


__all__ = ["CHANNEL_SUMS", "ChannelTerms", "Channels"]
