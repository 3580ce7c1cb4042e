"""Types of a checkpoint's header and manifest (needs msgspec, so it is imported only where a file is read)."""

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
    """The format number alone, which is read first."""

    format: int


class Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor: the checksum of its bytes, and the kind of state that it holds."""

    sha256: str
    kind: str
    dtype: str
    shape: Shape


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """All tensors by name, and facts such as the run count, as JSON."""

    format: int
    tensors: dict[str, Row]
    facts: msgspec.Raw
