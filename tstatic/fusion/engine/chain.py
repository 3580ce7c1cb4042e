"""What a fusion without patterns looks for, in words: kinds of operators, each behind the one before; only for explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tstatic.fusion.codegen.define import is_elementwise, works_on_rows
from tstatic.fusion.codegen.matrix.products import is_product
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.traits import Activation


@dataclass(frozen=True)
class Link:
    """One kind of operator.

    Attributes:
        words: What it is called: "a matrix product".
        fits: Whether an op is one.
    """

    words: str
    fits: Callable[[FrozenOp], bool]


@dataclass(frozen=True)
class Chain:
    """Operators that a fusion joins at least, in order; between two of them may be others that work per element or only view.

    Attributes:
        links: Their kinds.
        rule: What must hold besides, as an explanation says it.
    """

    links: tuple[Link, ...]
    rule: str


PRODUCT = Link("a matrix product", lambda op: is_product(op.definition))
SOFTMAX = Link("a softmax", lambda op: op.type == "softmax")
ACTIVATION = Link("an activation", lambda op: op.definition.has(Activation))
ELEMENTWISE = Link("an operator per element", lambda op: is_elementwise(op.definition))
ALONG_ROWS = Link("a loss or another operator along rows", lambda op: works_on_rows(op.definition))
ANY = Link(
    "an operator per element or along rows", lambda op: is_elementwise(op.definition) or works_on_rows(op.definition)
)

__all__ = ["ACTIVATION", "ALONG_ROWS", "ANY", "ELEMENTWISE", "PRODUCT", "SOFTMAX", "Chain", "Link"]
