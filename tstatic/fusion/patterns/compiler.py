"""The general compiler: groups that may include reductions, softmax and normalisations along rows."""

from __future__ import annotations

from collections.abc import Iterator

from tstatic.fusion.engine import Fusion, Groups
from tstatic.fusion.engine.chain import ANY, Chain
from tstatic.fusion.engine.reasons import RejectedPair
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns import auto


def groups(view: View) -> Iterator[tuple[int, ...] | RejectedPair]:
    """Yields groups like :mod:`tstatic.fusion.patterns.auto`, including ops along rows."""
    return auto.groups(view, rows=True)


_CHAIN = Chain((ANY, ANY), "connected operators per element or along the same rows, of known sizes")
FUSION = Fusion("compiler", "build_cinn_pass", Groups(groups, _CHAIN), prepare=auto.ready)
