"""Checkpoint files: safetensors with a checked manifest, staged, fsynced and renamed, so that a crash leaves old or new.

The manifest stands in the file's own metadata: per tensor a SHA-256 of its bytes, what kind of state it is, and facts such
as the run count. Any safetensors reader can open the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tstatic.errors import CheckpointError, TstaticError, needed_for
from tstatic.ir.types import dtype_of

if TYPE_CHECKING:
    from tstatic.runtime.manifest import Manifest

FORMAT = 1
AGAIN = "take an older copy of the file"
_FROM_ST = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
            "BF16": "bfloat16", "F32": "float32", "F64": "float64"}  # fmt: skip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a file: tensors, what kind each is (``"parameter"`` or ``"state"``), and facts."""

    tensors: Mapping[str, Array]
    kinds: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(checkpoint: Checkpoint) -> bytes:
    """The file's bytes.

    Raises:
        MissingPackageError: Without safetensors.
    """
    with needed_for("saving values"):
        import safetensors.numpy

    rows: dict[str, Any] = {}
    dense = {name: np.require(array, requirements="C") for name, array in checkpoint.tensors.items()}
    for name, array in dense.items():
        rows[name] = {
            "sha256": _digest(array.tobytes()), "kind": checkpoint.kinds.get(name, "state"),
            "dtype": dtype_of(array.dtype).name, "shape": list(array.shape),
        }  # fmt: skip
    manifest = json.dumps({"format": FORMAT, "tensors": rows, "facts": dict(checkpoint.facts)}, sort_keys=True)
    return safetensors.numpy.save(dense, {"tstatic.manifest": manifest, "tstatic.sha256": _digest(manifest.encode())})


def _broken(path: object, what: str, expected: str, received: str, fix: str) -> CheckpointError:
    return CheckpointError(f"{what}: {path}", expected=expected, received=received, fix=fix)


def decode(data: bytes, path: object) -> Checkpoint:
    """Reads a file's bytes and checks every tensor.

    Raises:
        CheckpointError: For anything that is damaged, incomplete or of another kind; it names the tensor.
    """
    # A pickle begins with its protocol; a safetensors file has its JSON header at byte 8.
    if data[:1] == b"\x80" and data[8:9] != b"{":
        raise _broken(
            path, "this is a pickle file, which is never opened", "a safetensors file", "pickle data",
            "convert it with the framework that wrote it: save the arrays with safetensors.numpy.save_file",
        )  # fmt: skip
    with needed_for("reading saved values"):
        import safetensors

    try:
        found = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
    except (safetensors.SafetensorError, ValueError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(path, "the file is damaged", "a complete safetensors file", str(error), AGAIN) from None
    metadata = header.get("__metadata__") or {}
    arrays: dict[str, Array] = {}
    raw: dict[str, bytes] = {}
    for name, view in found:
        kind = dtype_of(_FROM_ST[view["dtype"]]) if view["dtype"] in _FROM_ST else None
        if kind is None:
            raise _broken(
                path, f"tensor '{name}' has a dtype that tstatic lacks", "a known dtype", view["dtype"], "convert it"
            )
        raw[name] = bytes(view["data"])
        arrays[name] = np.frombuffer(raw[name], kind.np).reshape(view["shape"]).copy()
    if not any(key.startswith("tstatic.") for key in metadata):
        # Written by somebody else: readable, but there is nothing to check it against.
        return Checkpoint(arrays, dict.fromkeys(arrays, "parameter"))
    manifest = _manifest(metadata.get("tstatic.manifest"), metadata.get("tstatic.sha256"), path)
    rows = manifest.tensors
    for name in rows.keys() - arrays.keys():
        raise _broken(path, f"tensor '{name}' is missing", "all tensors of the manifest", "a file without it", AGAIN)
    for name, array in arrays.items():
        row = rows.get(name)
        if row is None or row.sha256 != _digest(raw[name]) or row.shape != list(array.shape):
            raise _broken(path, f"tensor '{name}' is damaged", "the bytes it was saved with", "other bytes", AGAIN)
        if dtype_of(array.dtype).name != row.dtype:
            raise _broken(path, f"tensor '{name}' is damaged", row.dtype, dtype_of(array.dtype).name, AGAIN)
    return Checkpoint(arrays, {n: r.kind for n, r in rows.items()}, manifest.facts)


def _manifest(text: str | None, digest: str | None, path: object) -> Manifest:
    """Checks and decodes the manifest.

    Raises:
        CheckpointError: If it is missing, damaged, newer, or not what a manifest is.
    """
    with needed_for("checking saved values"):
        import msgspec

        from tstatic.runtime.manifest import Manifest, Version

    try:
        data = (text or "").encode()
        if text is None or _digest(data) != digest:
            raise _broken(path, "the manifest is damaged", "the checksum it was saved with", "another one", AGAIN)
        version = msgspec.json.decode(data, type=Version).format
        if version > FORMAT:
            raise _broken(
                path, "the file is newer than this tstatic", f"format {FORMAT}", f"format {version}", "update tstatic"
            )  # fmt: skip
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _broken(path, "the manifest does not follow the format", f"format {FORMAT}", str(error), AGAIN) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Writes beside the target, fsyncs, renames over it, fsyncs the folder; an error leaves the old file.

    Raises:
        CheckpointError: With the path and the reason (disk full, no permission).
    """
    temporary: str | None = None
    renamed = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only the owner reads; a checkpoint is an ordinary file.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary, renamed = None, True
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise CheckpointError(
            f"could not write {path}",
            expected=f"{len(data):,} bytes written",
            received=f"{type(error).__name__}: {error.strerror or error}",
            fix="the new file is in its place, but a power cut now could undo that: save again"
            if renamed
            else "free space or choose another path; the old file, if any, is untouched",
        ) from error
    finally:
        if temporary is not None:
            with_suppressed_remove(temporary)


def with_suppressed_remove(path: str) -> None:
    """Removes a staged file if it is still there."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def read(path: Path) -> bytes:
    """Reads a whole file.

    Raises:
        CheckpointError: If it is not there or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        near = sorted(p.name for p in path.parent.glob(f"{path.stem}*"))[:5] if path.parent.is_dir() else []
        raise CheckpointError(
            f"could not read {path}",
            expected="a file written by static.save",
            received=f"{type(error).__name__}: {error.strerror or error}",
            fix=f"files there: {', '.join(near)}" if near else "check the path given to static.save",
        ) from error


__all__ = ["Checkpoint", "TstaticError", "decode", "encode", "read", "write_atomically"]
