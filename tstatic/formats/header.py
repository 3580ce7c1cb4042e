"""Reads the header of a checkpoint from untrusted bytes (needs msgspec, so it is imported only where a file is read).

A safetensors file begins with the length of a JSON object in eight bytes, then that object: per tensor its dtype, shape and
offsets, and texts under ``__metadata__``, one of which is our manifest. The keys are counted before anything is decoded:
this bounds the cost of decoding, and finds duplicate keys.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from tstatic.errors import CheckpointError

# As numpy has them: sizes of 64 bits, and 64 axes. What is refused here is never built.
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


FORMAT = 1  # the newest that is read: a newer file is refused as such, and not as damaged
AGAIN = "take an older copy of the file"
MANY = 32_768
"""The number of tensors that a file of any size may have."""
LEAST_BYTES = 210
"""The bytes of a file per tensor above that number: its row in the header and its row in the manifest."""
MAX_FACTS = 65_536
"""Bytes of the facts: a run count, a stamp and what a script adds. More would be work for a parser that builds Python objects."""
# Possessive repeats: a string of a million escapes must not keep a million positions to backtrack to.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# JSON's own: Python's ``\s`` has others, too.
_SPACE = rb"[ \t\n\r]*+"
_KEY = re.compile(_TEXT + rb"(" + _SPACE + rb":)?+", re.DOTALL)
_PAIR = _TEXT + _SPACE + rb":" + _SPACE + _TEXT + _SPACE
_METADATA = re.compile(
    rb'"__metadata__"' + _SPACE + rb":" + _SPACE
    + rb"(\{" + _SPACE + rb"(?:" + _PAIR + rb"(?:," + _SPACE + _PAIR + rb")*+)?+\})", re.DOTALL
)  # fmt: skip
_NO_TENSOR = b'"__metadata__":{"dtype":"","shape":[],"data_offsets":[0,0]}'
# A list of 64 sizes has less than 2000 characters: 19 digits and a comma each. Longer ones are refused before they are decoded.
_LONG_LIST = re.compile(rb"\[[\s\d,]{2000}")


@dataclass(frozen=True)
class Header:
    """A decoded header. ``start``: where the tensors' bytes begin; ``manifest``: ``None`` if another program wrote the file."""

    entries: Mapping[str, Entry]
    manifest: Manifest | None
    start: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def broken(path: object, what: str, expected: str, received: str, fix: str) -> CheckpointError:
    """Returns an error whose message ends with the file's path."""
    return CheckpointError(f"{what}: {path}", expected=expected, received=received, fix=fix)


def _damaged(path: object, expected: str, received: str) -> CheckpointError:
    return broken(path, "the file is damaged", expected, received, AGAIN)


def _malformed(path: object, expected: str, received: str) -> CheckpointError:
    return broken(path, "the manifest does not follow the format", expected, received, AGAIN)


def short(name: str) -> str:
    """Returns a name in quotes, shortened if it is longer than 200 characters."""
    # A name from a file may have any length, and an error must stay readable.
    return f"'{name}'" if len(name) <= 200 else f"'{name[:200]}...' ({len(name):,} characters)"


def parse(data: bytes, path: object, strict: bool = True) -> Header:
    """Reads and checks the header, and the number of the tensors' bytes but not their values.

    Args:
        data: The whole file.
        path: The file's path, for messages.
        strict: ``False`` accepts a file whose end is missing.

    Raises:
        CheckpointError: If the file is not a safetensors file, or its header or manifest is damaged, too large, newer, or has
            a duplicate key.
    """
    # A pickle begins with its protocol; a safetensors file has its JSON header at byte 8.
    if data[:1] == b"\x80" and data[8:9] != b"{":
        raise broken(
            path, "this is a pickle file, which is never opened", "a safetensors file", "pickle data",
            "convert it with the framework that wrote it: save the arrays with safetensors.numpy.save_file",
        )  # fmt: skip
    size = int.from_bytes(data[:8], "little")
    if len(data) < 10 or data[8:9] != b"{" or size > len(data) - 8:
        received = f"{len(data):,} bytes that do not begin with a whole header"
        raise _damaged(path, "a complete safetensors file", received)
    try:
        entries, metadata = _split(data[8 : 8 + size], len(data), path)
        _check_offsets(entries, len(data) - 8 - size, path, strict)
        if not any(key.startswith("tstatic.") for key in metadata):
            # Another program wrote it: readable, but there is no checksum to compare with.
            return Header(entries, None, 8 + size)
        manifest = _manifest(metadata, entries, path)
        return Header(entries, manifest, 8 + size, _facts(bytes(manifest.facts), path))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _damaged(path, "a complete safetensors file", str(error)[:200]) from None


def _split(text: bytes, size: int, path: object) -> tuple[dict[str, Entry], dict[str, str]]:
    """Returns the tensors and the metadata of a header."""
    metadata: dict[str, str] = {}
    at = text.find(b'"__metadata__"')
    found = _METADATA.match(text, at) if at >= 0 else None
    if found is not None:
        # Metadata of any program has a few keys; ours has two.
        _check_keys(found[1], 1024, path)
        metadata = msgspec.json.decode(found[1], type=dict[str, str])
        _check_twice(found[1], len(metadata), path)
        # A row like all others in its place: commas and spaces around it are decoded as they are in the file.
        text = text[:at] + _NO_TENSOR + text[found.end() :]
    # Four keys for each tensor: its name, and the three of its row.
    _check_keys(text, 4 * (max(MANY, size // LEAST_BYTES) + (found is not None)), path)
    if _LONG_LIST.search(text):
        raise _damaged(path, "shapes of up to 64 sizes", "a longer one")
    entries = msgspec.json.decode(text, type=dict[str, Entry])
    _check_twice(text, 4 * len(entries), path)
    if found is not None and entries.pop("__metadata__", None) is None:
        raise _damaged(path, "metadata among the tensors", "it inside of a name")
    return entries, metadata


def _keys(text: bytes) -> int:
    """Returns the number of keys in all objects of a JSON text."""
    found = _KEY.findall(text)
    return len(found) - found.count(b"")


def _check_keys(text: bytes, most: int, path: object) -> None:
    # Cheap bounds first: each key has a colon, and at least one quote without a backslash before it.
    quotes = text.count(b'"') - text.count(b'\\"')
    if quotes > 4 * most or (text.count(b":") > most and _keys(text) > most):
        raise broken(
            path, "the file names more tensors than its size has room for", f"at most {most:,} keys in its header",
            "more", "no program saved this: do not use the file",
        )  # fmt: skip


def _check_twice(text: bytes, distinct: int, path: object) -> None:
    if _keys(text) != distinct:
        raise broken(
            path, "a name is there twice", f"{distinct:,} keys, each once", f"{_keys(text):,} keys",
            "no program saved this: do not use the file",
        )  # fmt: skip


def _check_offsets(entries: Mapping[str, Entry], size: int, path: object, strict: bool) -> None:
    """Checks that each byte belongs to exactly one tensor."""
    end = 0
    for entry in sorted(entries.values(), key=lambda e: e.data_offsets):
        begin, stop = entry.data_offsets
        if begin != end or stop < begin:
            raise _damaged(path, f"a tensor that begins at byte {end:,}", f"offsets {[begin, stop]}")
        end = stop
    if strict and end != size:
        raise _damaged(path, f"{end:,} bytes of tensors", f"{size:,}")


def _manifest(metadata: Mapping[str, str], entries: Mapping[str, Entry], path: object) -> Manifest:
    """Checks and decodes the manifest.

    Raises:
        CheckpointError: If it is missing, damaged, newer, or does not follow the format.
    """
    text = metadata.get("tstatic.manifest")
    try:
        data = (text or "").encode()
        # Before anything of it is decoded: damage is told as damage, not as what it happens to spell.
        if text is None or hashlib.sha256(data).hexdigest() != metadata.get("tstatic.sha256"):
            raise broken(path, "the manifest is damaged", "the checksum it was saved with", "another one", AGAIN)
        # Alone, before the rest: a newer format may have other fields, which the whole type would refuse.
        version = msgspec.json.decode(data, type=Version).format
        if version > FORMAT:
            raise broken(
                path, "the file is newer than this tstatic", f"format {FORMAT}", f"format {str(version)[:20]}", "update tstatic"
            )  # fmt: skip
        if version != FORMAT:
            raise _malformed(path, f"format {FORMAT}", f"format {str(version)[:20]}")
        # Three of the manifest's own, five for each tensor (its name and a row of four), and what facts of the largest size could
        # hold.
        _check_keys(data, 3 + 5 * len(entries) + MAX_FACTS // 4, path)
        manifest = msgspec.json.decode(data, type=Manifest)
        facts = bytes(manifest.facts)
        _check_twice(data, 3 + 5 * len(manifest.tensors) + _keys(facts), path)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _malformed(path, f"format {FORMAT}", str(error)[:200]) from None
    for name in manifest.tensors.keys() - entries.keys():
        raise broken(
            path, f"tensor {short(name)} is missing", "all tensors of the manifest", "a file without it", AGAIN
        )
    for name in entries.keys() - manifest.tensors.keys():
        raise broken(path, f"tensor {short(name)} is damaged", "a row in the manifest", "none", AGAIN)
    return manifest


def _facts(text: bytes, path: object) -> dict[str, Any]:
    """Decodes the facts, a small object.

    Raises:
        CheckpointError: If they are too large, not an object, or have a duplicate name.
    """
    if len(text) > MAX_FACTS:
        raise _malformed(path, f"facts of {MAX_FACTS:,} bytes", f"{len(text):,}")
    try:
        facts = json.loads(text, object_pairs_hook=lambda pairs: _distinct(pairs, path))
    except (ValueError, RecursionError) as error:
        raise _malformed(path, "facts as JSON", str(error)[:200]) from None
    if not isinstance(facts, dict):
        raise _malformed(path, "facts by name", type(facts).__name__)
    return facts


def _distinct(pairs: list[tuple[str, Any]], path: object) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise broken(path, "a name is there twice", "each fact once", f"{len(pairs):,} facts", AGAIN)
    return dict(pairs)
