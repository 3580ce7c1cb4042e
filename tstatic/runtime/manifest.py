"""What stands in the header and in the manifest of a checkpoint (needs msgspec, so it is imported where one is read)."""

from __future__ import annotations

from typing import Annotated

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Shape = Annotated[list[Size], msgspec.Meta(max_length=64)]


class Entry(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor in the header of a safetensors file; the offsets count from the header's end."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Size, Size]


class Version(msgspec.Struct):
    """The format alone, which is looked at first."""

    format: int


class Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor: what its bytes must be, and what kind of state it is."""

    sha256: str
    kind: str
    dtype: str
    shape: Shape


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """All tensors by name, and facts such as the run count, as JSON."""

    format: int
    tensors: dict[str, Row]
    facts: msgspec.Raw
