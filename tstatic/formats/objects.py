"""Encodes and decodes nests of plain data (``paddle.save``): pickles that Paddle reads, with a checksum behind their end.

A pickle ends with an opcode of its own, behind which readers do not look, so the checksum is invisible to Paddle.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tstatic.errors import CheckpointError
from tstatic.formats.pickle_writer import dump_pickle
from tstatic.formats.pickles import read_pickle

_TRAILER = re.compile(rb"\ntstatic-object 1 ([0-9a-f]{64})\n")


def dump_object(value: Any, protocol: int = 4, checksum: bool = True) -> bytes:
    """Returns plain data as the bytes of a file.

    Args:
        value: Numbers, texts, bytes, arrays, and dicts, lists and tuples of them.
        protocol: That of the pickle: 2, 3 or 4.
        checksum: Whether damage shall be found when the file is read.

    Raises:
        ProgramTypeError: If a part is of another type.
    """
    data = dump_pickle(value, protocol)
    return data + b"\ntstatic-object 1 %s\n" % hashlib.sha256(data).hexdigest().encode() if checksum else data


def load_object(data: bytes, path: object) -> Any:
    """Returns the data in a file that :func:`dump_object` or Paddle wrote; runs no code (see :mod:`tstatic.formats.pickles`).

    Raises:
        CheckpointError: If the file is damaged, or holds anything but plain data.
    """
    # 83 bytes are the trailer: 18 in front of the 64 digits, and the line's end.
    found = _TRAILER.fullmatch(data, max(0, len(data) - 83)) if len(data) > 83 else None
    end = len(data) if found is None else found.start()
    body = data[:end]
    if found is not None and hashlib.sha256(body).hexdigest().encode() != found[1]:
        raise _damaged(path, "the checksum that it was saved with", "another one")
    made, last = read_pickle(body, path)
    if last != len(body):
        raise _damaged(path, f"{last:,} bytes", f"{len(body):,}")
    return made


def _damaged(path: object, expected: str, received: str) -> CheckpointError:
    fix = "take an older copy of the file"
    return CheckpointError(f"the file is damaged: {path}", expected=expected, received=received, fix=fix)
