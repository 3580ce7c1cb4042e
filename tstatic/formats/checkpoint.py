"""Encodes and decodes checkpoint files: safetensors with a checked manifest.

The manifest is part of the file's metadata: per tensor the SHA-256 of its bytes and the kind of state that it holds, and
facts such as the run count. Any safetensors reader can open the file. Nothing in a file is trusted;
:mod:`tstatic.formats.header` explains what bounds the cost of reading one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tstatic.errors import CheckpointError, TstaticError, needed_for
from tstatic.formats import files
from tstatic.ir.types import dtype_of

if TYPE_CHECKING:
    from tstatic.formats.header import Entry, Row

# What is written. `header.FORMAT` is the newest that is read: it lies apart, as reading needs msgspec and saving does not.
FORMAT = 1
# By safetensors' names. The format has others (F8, for one), which numpy has not.
_FROM_ST = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
            "BF16": "bfloat16", "F32": "float32", "F64": "float64"}  # fmt: skip

Array = np.ndarray[Any, Any]


def _parts(array: Array) -> Array:
    """Returns complex numbers as pairs of floats along a last axis: not every version of safetensors has complex types."""
    part = dtype_of(array.dtype).real.np
    return array if array.dtype.kind != "c" else array.reshape(*array.shape, 1).view(part)


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a file: tensors, the kind of each (``"parameter"`` or ``"state"``), facts, and names of damaged tensors."""

    tensors: Mapping[str, Array]
    kinds: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(checkpoint: Checkpoint) -> bytes:
    """Returns the file's bytes.

    Raises:
        MissingPackageError: If safetensors is not installed.
    """
    with needed_for("saving values"):
        import safetensors.numpy

    rows: dict[str, Any] = {}
    # Digests, header and file must describe the same bytes, so arrays are made contiguous once, before all three.
    dense = {name: np.require(array, requirements="C") for name, array in checkpoint.tensors.items()}
    for name, array in dense.items():
        rows[name] = {
            "sha256": _digest(array.tobytes()), "kind": checkpoint.kinds.get(name, "state"),
            "dtype": dtype_of(array.dtype).name, "shape": list(array.shape),
        }  # fmt: skip
    manifest = json.dumps({"format": FORMAT, "tensors": rows, "facts": dict(checkpoint.facts)}, sort_keys=True)
    parts = {name: _parts(array) for name, array in dense.items()}
    return safetensors.numpy.save(parts, {"tstatic.manifest": manifest, "tstatic.sha256": _digest(manifest.encode())})


def decode(data: bytes, path: object, strict: bool = True) -> Checkpoint:
    """Reads a file's bytes and checks every tensor.

    Args:
        data: The bytes.
        path: The file they were read from, for messages.
        strict: ``False`` skips damaged tensors and names them in ``lost``; the header must be intact.

    Raises:
        CheckpointError: If the file is damaged, incomplete or of another format; the message names the tensor.
        MissingPackageError: If msgspec is not installed.
    """
    with needed_for("reading saved values"):
        from tstatic.formats import header
    read = header.parse(data, path, strict)
    # A view: the file is in memory once, and each tensor is copied out of it.
    body = np.frombuffer(data, np.uint8)[read.start :]
    rows = None if read.manifest is None else read.manifest.tensors
    tensors: dict[str, Array] = {}
    lost: dict[str, CheckpointError] = {}
    for name, entry in read.entries.items():
        try:
            row = None if rows is None else rows[name]
            tensors[name] = _tensor(name, entry, row, body, path)
        except CheckpointError as error:
            if strict:
                raise
            lost[name] = error
    kinds = dict.fromkeys(tensors, "parameter") if rows is None else {name: rows[name].kind for name in tensors}
    return Checkpoint(tensors, kinds, read.facts, tuple(lost))


def _tensor(name: str, entry: Entry, row: Row | None, body: Array, path: object) -> Array:
    """Returns a tensor as an array with its own memory.

    Raises:
        CheckpointError: If its bytes differ from the saved ones, or do not form an array.
    """
    from tstatic.formats.header import AGAIN, broken, short

    if entry.dtype not in _FROM_ST:
        what = f"tensor {short(name)} has a dtype that tstatic lacks"
        raise broken(path, what, "a known dtype", short(entry.dtype), "convert it")
    dtype, shape = dtype_of(_FROM_ST[entry.dtype]), entry.shape
    if row is not None and row.dtype == dtype.complex.name and shape[-1:] == [2]:
        dtype, shape = dtype.complex, shape[:-1]
    # A file that is cut off gives a shorter slice here, which its length and digest reveal.
    begin, end = entry.data_offsets
    raw = body[begin:end]
    if row is not None and (
        len(raw) != end - begin or row.sha256 != _digest(raw.data) or row.shape != shape or row.dtype != dtype.name
    ):
        raise broken(path, f"tensor {short(name)} is damaged", "the bytes it was saved with", "other bytes", AGAIN)
    try:
        # A copy: the scope writes into what it holds, and a view would keep the whole file in memory.
        array: Array = raw.view(dtype.np).reshape(shape).copy()
        return array
    except (ValueError, TypeError, OverflowError) as error:
        expected, received = f"{dtype.name} of shape {shape}"[:200], f"{len(raw)} bytes: {error}"
        raise broken(path, f"tensor {short(name)} is not an array", expected, received, AGAIN) from None


def facts_of(data: bytes) -> Mapping[str, Any]:
    """Returns the facts of a file; empty if another program wrote the file.

    Raises:
        CheckpointError: If the header is damaged.
    """
    with needed_for("reading saved values"):
        from tstatic.formats import header
    return header.parse(data, "these bytes").facts


def write_atomically(path: Path, data: bytes) -> None:
    """Writes one file; after an error or a crash it is the old one or the new one (see :func:`tstatic.formats.files.write`)."""
    files.write({path: data})


def read(path: Path, writer: str = "static.save") -> bytes:
    """Reads one file that ``writer`` writes (see :func:`tstatic.formats.files.read`)."""
    return files.read([path], writer=writer)[path]


__all__ = ["Checkpoint", "TstaticError", "decode", "encode", "facts_of", "read", "write_atomically"]
