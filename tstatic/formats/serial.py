"""The saved form of a program: one line that says what follows, then JSON; decoded strictly.

The line holds the word ``tstatic-program``, the version of the format, the SHA-256 of the JSON and its length; in a file that
was saved together with others also the stamp of that save, which the SHA-256 covers, too. The JSON is a
:class:`~tstatic.formats.schema.ProgramDesc`; attributes of ops are packed as :func:`pack` says. Values of variables are not part of
it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError, ProgramError, ProgramTypeError, needed_for
from tstatic.formats import paddle_program
from tstatic.formats.restore import restore
from tstatic.formats.schema import ProgramDesc, checked_form, describe
from tstatic.ir.budget import STEP, Budget, budget_of_program
from tstatic.ir.program import Program
from tstatic.ir.types import DTYPES, DType

FORMAT = 1
MAX_BYTES = 2**30
MAX_DEPTH = 32
"""Lists inside lists in an attribute."""
_VALUE = 96
"""Bytes that are counted for a value of the JSON."""
_HEADER = re.compile(rb"tstatic-program ([0-9]{1,6}) ([0-9a-f]{64}) ([0-9]{1,12})(?: ([0-9a-z-]{1,64}))?\n")


# -------------------------------------------------------------------------------------------------------------- values
class _Unpackable(Exception):  # noqa: N818 - never leaves this file
    pass


def pack(value: Any, depth: int = 0) -> Any:
    """Packs an attribute's value for JSON: a tuple as a list, and what JSON lacks as ``{"kind": ...}``.

    ``{"list": [..]}``, ``{"dtype": "float32"}``, ``{"bytes": base64}``, ``{"float": "inf"}``, ``{"int": "0x.."}``,
    ``{"dict": [[key, value], ..]}``.
    """
    if depth > MAX_DEPTH:
        raise _Unpackable(f"a value nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else {"int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, tuple):
        return [pack(item, depth + 1) for item in value]
    if isinstance(value, list):
        return {"list": [pack(item, depth + 1) for item in value]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {"dict": [[pack(k, depth + 1), pack(v, depth + 1)] for k, v in value.items()]}
    raise _Unpackable(f"a value of type {type(value).__name__}")


def unpack(value: Any, depth: int = 0) -> Any:
    """Returns the value that :func:`pack` packed.

    Raises:
        ValueError: If it is not a packed value.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"values nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return tuple([unpack(item, depth + 1) for item in value])
    if isinstance(value, dict) and len(value) == 1:
        ((kind, body),) = value.items()
        if kind == "list" and isinstance(body, list):
            return [unpack(item, depth + 1) for item in body]
        if kind == "dict" and isinstance(body, list):
            return dict(_unpack_pair(pair, depth + 1) for pair in body)
        if isinstance(body, str):
            if kind == "dtype" and body in DTYPES:
                return DTYPES[body]
            if kind == "float" and body in ("inf", "-inf", "nan"):
                return float(body)
            if kind == "int" and re.fullmatch(r"-?0x[0-9a-f]+", body):
                return int(body, 16)
            if kind == "bytes":
                return _unpack_bytes(body)
    raise ValueError(f"no packed value: {str(value)[:80]}")


def is_key(value: Any) -> bool:
    """Returns whether a value may be a key of a dict: a text, or a number so small that few can be made to collide."""
    return isinstance(value, str) or (isinstance(value, int | float) and abs(value) < 2**53)


def _unpack_pair(pair: Any, depth: int) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("a dict is packed as a list of pairs")
    key = unpack(pair[0], depth)
    if not is_key(key):
        raise ValueError("a key is a string or a number below 2**53")
    return key, unpack(pair[1], depth)


def _unpack_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"no base64: {error}") from None


# ----------------------------------------------------------------------------------------------------- encode and decode
def encode(program: Program) -> bytes:
    """Encodes a program as bytes.

    Everything survives but values, initializers, learning-rate schedulers and regularizers of your own classes.

    Raises:
        ProgramError: If an attribute or a name cannot be written.
    """
    with needed_for("saving a program"):
        import msgspec

    desc = describe(program)
    for number, block in enumerate(desc.blocks):
        for index, op in enumerate(block.ops):
            packed = {}
            for name, value in op.attrs.items():
                try:
                    packed[name] = pack(value)
                except _Unpackable as error:
                    raise ProgramError(
                        f"attribute '{name}' of operator '{op.type}' cannot be saved (block {number}, op {index})",
                        expected="numbers, texts, bytes, dtypes, and lists, tuples and dicts of them",
                        received=str(error),
                        fix="set the attribute to a plain value",
                        op=op.type,
                    ) from None
            op.attrs = packed
        for parameter in filter(None, (var.parameter for var in block.vars)):
            parameter.optimize_attr = {name: _real(value) for name, value in parameter.optimize_attr.items()}
            if parameter.regularizer is not None:
                parameter.regularizer = parameter.regularizer[0], _real(parameter.regularizer[1])
    try:
        payload = msgspec.json.encode(desc, enc_hook=_plain_text)
        # What cannot be read must not be written.
        msgspec.json.decode(payload, type=checked_form(ProgramDesc))
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError) as error:
        raise ProgramError(
            "the program cannot be saved: a name or a number in it has no place in the format",
            expected="names of Unicode text, up to 65,536 characters, sizes below 2**62, and plain numbers",
            received=str(error),
            fix="rename the variable, or correct the value",
        ) from None
    return seal(payload)


def _real(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain_text(value: Any) -> str:
    """Returns a name that is of a class of its own, such as numpy's, as JSON's own kind of text."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError


def seal(payload: bytes, version: int = FORMAT, stamp: str = "") -> bytes:
    """Puts the first line before a payload."""
    return b"tstatic-program %d %s %d%s\n" % (
        version, _digest(payload, stamp).encode(), len(payload), f" {stamp}".rstrip().encode(),
    ) + payload  # fmt: skip


def _digest(payload: bytes, stamp: str) -> str:
    # With the stamp: else a file could be given to another save by editing its first line.
    return hashlib.sha256(payload + stamp.encode()).hexdigest()


def stamped(program: bytes, stamp: str) -> bytes:
    """Puts the stamp of a save into the first line of an encoded program."""
    return seal(program.partition(b"\n")[2], stamp=stamp)


def unstamped(data: bytes) -> tuple[bytes, str] | None:
    """Returns an encoded program without its stamp, and the stamp or an empty text; ``None`` if it is damaged or not a program."""
    head = _HEADER.match(data)
    if head is None:
        return None
    payload, stamp = data[head.end() :], (head[4] or b"").decode()
    return (seal(payload, int(head[1])), stamp) if _digest(payload, stamp) == head[2].decode() else None


def decode(data: bytes, path: object = None) -> Program:
    """Reads a program; nothing in the bytes is trusted.

    Args:
        data: What :func:`encode` gave.
        path: The file that they come from, for messages.

    Raises:
        ProgramTypeError: If ``data`` is not bytes.
        CheckpointError: If it is damaged, cut off, newer than this version, or holds what no program could.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProgramTypeError(
            "a program is read from bytes",
            expected="bytes, as program.desc.serialize_to_string() gives them",
            received=f"{type(data).__name__}",
            fix="read the file with open(path, 'rb'), or use Program.parse_from_text for a text",
        )
    source = "these bytes" if path is None else str(path)
    data = bytes(data)
    if paddle_program.is_paddle_program(data):
        return paddle_program.read(data, source)
    budget = budget_of_program(len(data), source)
    desc = _payload(data, source, budget)
    place = ("block", 0, 0)  # of the op that is being read, for the message
    try:
        for number, block in enumerate(desc.blocks):
            for index, op in enumerate(block.ops):
                place = ("op", number, index)
                op.attrs = {name: unpack(value) for name, value in op.attrs.items()}
    except ValueError as error:
        raise _refused(f"{source}: {_locate(*place)}: an attribute is not packed as it should be", "a packed value",
                       str(error)) from None  # fmt: skip
    return restore(desc, lambda *where: f"{source}: {_locate(*where)}", budget, CheckpointError)


def _locate(kind: str, block: int, index: int) -> str:
    return {"program": "the program", "block": f"block {block}"}.get(kind, f"block {block}, {kind} {index}")


def _refused(
    what: str, expected: str, received: str, fix: str = "save it again, or take an older copy"
) -> CheckpointError:
    return CheckpointError(what, expected=expected, received=received, fix=fix)


def _payload(data: bytes, source: str, budget: Budget) -> ProgramDesc:
    """Checks the first line and the JSON.

    Raises:
        CheckpointError: If either is not what it should be.
        LoadLimitError: If the JSON has more values than a file of its size may.
    """
    head = _HEADER.match(data)
    if head is None:
        # The first bytes of a pickle, and of other frameworks' programs.
        if data[:1] == b"\x80":
            fix = "a pickle holds values: load them with paddle.load or static.load"
        else:
            fix = "pass what program.desc.serialize_to_string() or static.save gave"
        raise _refused(
            f"{source}: this is not a saved program", "bytes that begin with 'tstatic-program'", repr(data[:24]), fix
        )
    # In the order of what the user can do about it: update, copy the whole file again, take another copy. Nothing is decoded
    # before the digest fits, so that damage is never reported as a fault of the format.
    version, digest, length, stamp = int(head[1]), head[2].decode(), int(head[3]), (head[4] or b"").decode()
    if version != FORMAT:
        raise _refused(
            f"{source}: the program was saved in another version of the format", f"version {FORMAT}", f"version {version}",
            "update tstatic" if version > FORMAT else "save it again",
        )  # fmt: skip
    payload = data[head.end() :]
    if len(payload) != length or length > MAX_BYTES:
        raise _refused(
            f"{source}: the program is cut off or has something behind it", f"{min(length, MAX_BYTES):,} bytes",
            f"{len(payload):,} bytes",
        )  # fmt: skip
    if _digest(payload, stamp) != digest:
        raise _refused(f"{source}: the program is damaged", "the checksum that it was saved with", "another one")
    with needed_for("reading a saved program"):
        import msgspec

    # Before anything is decoded: each value has one of these before it, and those in texts do not matter.
    values = payload.count(b",") + payload.count(b"[") + payload.count(b"{")
    budget.spend(_VALUE * values)
    budget.work(STEP * values + len(payload))
    try:
        found: ProgramDesc = msgspec.json.decode(payload, type=checked_form(ProgramDesc))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(
            f"{source}: the program does not follow the format", f"JSON of version {FORMAT}", str(error)
        ) from None
    return found


__all__ = ["FORMAT", "decode", "encode", "pack", "seal", "stamped", "unpack", "unstamped"]
