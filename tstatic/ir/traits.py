"""Traits: what few ops state about themselves, each a class of its own in the place of a field of all ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tstatic.ir.product import MatrixProduct

__all__ = [
    "Activation",
    "HostOnly",
    "ManyCalls",
    "MayLack",
    "MultipliesMatrices",
    "Numbers",
    "Pairwise",
    "Reason",
    "Recurrent",
    "Redrawn",
    "RowGradient",
    "Slots",
    "SlowOnCpu",
    "Softmax",
    "Trait",
    "Waits",
]


@dataclass(frozen=True)
class Trait:
    """Something that ``definition.trait(Class)`` answers with, or ``None`` where the op does not state it."""


# --------------------------------------------------------------------------------------------- what fusions and passes ask
@dataclass(frozen=True)
class Activation(Trait):
    """An elementwise function of one input, which fusions join with the op before or after it."""


@dataclass(frozen=True)
class Softmax(Trait):
    """The output is the softmax of the input along attribute ``axis``.

    Attributes:
        input, output: Their slots.
    """

    # Not always `X` and `Out`: softmax_with_cross_entropy has the softmax beside its loss.
    input: str
    output: str


@dataclass(frozen=True)
class MultipliesMatrices(Trait):
    """An op with slots ``X``, ``Y`` and ``Out`` that multiplies them as matrices.

    Attributes:
        of: ``(*input metas, **attrs) -> MatrixProduct``; ``None`` where they are batches of matrices, or vectors.
    """

    of: Callable[..., MatrixProduct | None]


@dataclass(frozen=True)
class Pairwise(Trait):
    """An op that folds a list, with the bits of a chain of ops of two inputs in the list's order.

    Attributes:
        op: The op type of the chain.
    """

    op: str


@dataclass(frozen=True)
class RowGradient(Trait):
    """A backward op whose result is zero but for a few rows.

    Attributes:
        makes: The op type that makes ``Rows`` and ``Values`` instead, from lists of what several such ops read; its
            ``shape_only`` slot is the table (``passes/row_gradients.py``).
        adds: The op type that adds those rows to its first input, another gradient of the same value; its other slots are slots
            of the backward op (``fusion/patterns/embedding_grad_add.py``).
    """

    # By name: both are ops of other files, which import the one that states this.
    makes: str
    adds: str


@dataclass(frozen=True)
class Redrawn(Trait):
    """A backward op that reads a value which only random bits decide.

    Attributes:
        op: The op without this input, which draws the bits again from the forward op's attributes and place.
    """

    # An OpDef: its module imports this one.
    op: Any


@dataclass(frozen=True)
class Slots(Trait):
    """A trait of some slots, which ``definition.slots_of(Class)`` answers with.

    Attributes:
        slots: Their names.
    """

    slots: tuple[str, ...]


@dataclass(frozen=True)
class Numbers(Slots):
    """State slots of an update that hold one number, whatever the shape of the parameter is."""


@dataclass(frozen=True)
class MayLack(Slots):
    """List slots in which inputs that are not fed are ``None``: only a branch that runs reads them."""


@dataclass(frozen=True)
class Recurrent(Trait):
    """An op that runs its block once per step.

    Attributes:
        stepped: Slots of which the block has one step, a part along the first axis.
        before, after: Names of the attributes that list the block's variables which hold its state before and after a step.
    """

    stepped: tuple[str, ...]
    # Attributes, because a block's variables have names that its program chooses.
    before: str
    after: str


# ------------------------------------------------------------------------------------------------------- where an op runs
@dataclass(frozen=True)
class Reason(Trait):
    """A trait with a reason, which ``definition.why(Class)`` answers with.

    Attributes:
        why: The reason, for reports.
    """

    why: str


@dataclass(frozen=True)
class HostOnly(Reason):
    """The op runs on the host on every device, as its reference: its torch form reads values there, say.

    What :attr:`OpDef.host_reason` finds by itself is not stated.

    Attributes:
        slot: The input slot without which the op runs on the device; empty where it never does.
    """

    # A recurrence without lengths is one call of torch; with them the host cuts the sequences.
    slot: str = ""

    def where(self, slot: str) -> HostOnly:
        """Returns the same reason, which holds only where a slot is given."""
        return replace(self, slot=slot)


@dataclass(frozen=True)
class Waits(Reason):
    """The host waits for the device in the middle of the torch form; other forms only queue work."""


@dataclass(frozen=True)
class SlowOnCpu(Reason):
    """The reference runs on tensors in the host's memory, although the op has a torch form."""


@dataclass(frozen=True)
class ManyCalls(Reason):
    """The torch form of an op that fusions leave alone is more than three calls of torch."""
