"""What stands in the manifest of a checkpoint (needs msgspec, so it is imported where one is read)."""

from __future__ import annotations

from typing import Any

import msgspec


class Version(msgspec.Struct):
    """The format alone, which is looked at first."""

    format: int


class Row(msgspec.Struct):
    """A tensor: what its bytes must be, and what kind of state it is."""

    sha256: str
    kind: str
    dtype: str
    shape: list[int]


class Manifest(msgspec.Struct):
    """All tensors by name, and facts such as the run count."""

    format: int
    tensors: dict[str, Row]
    facts: dict[str, Any]
