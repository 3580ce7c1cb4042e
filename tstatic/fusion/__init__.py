"""Fusions, one file each; this tuple is their order.

A new one is a file with a ``FUSION`` record, an import here and its place in the tuple.
"""

from __future__ import annotations

from tstatic.fusion import auto, elewise_add_act

FUSIONS = (
    auto.FUSION,
    elewise_add_act.FUSION,
)
"""In the order in which they are applied."""

__all__ = ["FUSIONS"]
