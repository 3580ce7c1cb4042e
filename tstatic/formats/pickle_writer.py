"""Writes pickles of plain data and arrays that Paddle reads, and Python with any version of numpy."""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown
from tstatic.formats.pickles import KINDS, MAX_DEPTH, MAX_INTEGER


def dump_pickle(value: Any, protocol: int = 4) -> bytes:
    """Returns plain data as a pickle that Paddle 2.6 reads, and any Python with numpy.

    Args:
        value: Numbers, texts, bytes, arrays, and lists, tuples and dicts of them.
        protocol: 2, 3 or 4.

    Raises:
        ProgramTypeError: If a part is of another type, contains itself or is nested too deep.
    """
    parts = [b"\x80", bytes([protocol])]
    _Writer(parts, protocol).write(value, 0)
    parts.append(b".")
    return b"".join(parts)


class _Writer:
    def __init__(self, parts: list[bytes], protocol: int) -> None:
        self.parts = parts
        self.protocol = protocol

    def write(self, value: Any, depth: int) -> None:
        out = self.parts.append
        if depth > MAX_DEPTH:
            raise _not_plain("containers inside each other, or in themselves", f"more than {MAX_DEPTH} levels")
        if value is None or isinstance(value, bool):
            out(b"N" if value is None else b"\x88" if value else b"\x89")
        # Before Python's own numbers: np.float64 is a float, too, and would lose its type. A bool is an int, so it comes first.
        elif isinstance(value, np.generic | np.ndarray):
            self.array(value)
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            out(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
            out(b"X" + len(raw).to_bytes(4, "little") + raw)
        elif isinstance(value, bytes | bytearray):
            self.raw(bytes(value))
        elif isinstance(value, dict):
            out(b"ccollections\nOrderedDict\n)R" if isinstance(value, OrderedDict) else b"}")
            out(b"(")
            for key, item in value.items():
                if not isinstance(key, str | bytes | int | float | bool | None):
                    raise _not_plain("texts and numbers as keys", shown(key))
                self.write(key, depth + 1)
                self.write(item, depth + 1)
            out(b"u")
        elif isinstance(value, list | tuple):
            out(b"](" if isinstance(value, list) else b"(")
            for item in value:
                self.write(item, depth + 1)
            out(b"e" if isinstance(value, list) else b"t")
        else:
            raise _not_plain(
                "numbers, texts, bytes, arrays, tensors, Programs, and dicts, lists and tuples of them", shown(value)
            )

    def integer(self, value: int) -> None:
        # The opcode for four bytes, which all protocols have; a larger number says how long it is, in one byte or four.
        if -(2**31) <= value < 2**31:
            self.parts.append(b"J" + struct.pack("<i", value))
            return
        # One bit more than it has, for the sign.
        raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
        if len(raw) > MAX_INTEGER:
            raise _not_plain(f"integers of up to {8 * MAX_INTEGER} bits", f"one of {value.bit_length()}")
        self.parts.append(
            (b"\x8a" + bytes([len(raw)]) if len(raw) < 256 else b"\x8b" + struct.pack("<i", len(raw))) + raw
        )

    def raw(self, value: bytes) -> None:
        """Writes bytes, which protocol 2 has as an encoded text."""
        if self.protocol == 2:
            text = value.decode("latin1").encode()
            parts = b"c_codecs\nencode\nX", len(text).to_bytes(4, "little"), text, b"X\x06\x00\x00\x00latin1\x86R"
            self.parts.extend(parts)
        elif self.protocol == 3 or len(value) < 2**32:
            self.parts.extend((b"B", len(value).to_bytes(4, "little"), value))
        else:
            self.parts.extend((b"\x8e", len(value).to_bytes(8, "little"), value))

    def array(self, value: Any) -> None:
        """Writes an array, or a number with numpy's type, under the names that numpy 1 and 2 know."""
        dtype = value.dtype
        # numpy alone reads the file: bfloat16 goes as Paddle has it, as the bits in uint16.
        array = value.view(np.uint16) if dtype.name == "bfloat16" else value
        if array.dtype.kind not in KINDS:
            raise _not_plain("arrays of numbers or texts", f"one of dtype {dtype}")
        # In one order on all machines, so that equal values are equal files.
        little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        alone = isinstance(value, np.generic)
        out = self.parts.append
        out(b"cnumpy.core.multiarray\n" + (b"scalar\n" if alone else b"_reconstruct\ncnumpy\nndarray\nK\x00\x85"))
        if not alone:
            self.raw(b"b")
            out(b"\x87R(K\x01(")
            for size in little.shape:
                self.integer(size)
            out(b"t")
        code = little.dtype.str.lstrip("<|=>").encode()
        out(b"cnumpy\ndtype\nX" + len(code).to_bytes(4, "little") + code + b"\x89\x88\x87R")
        item = little.dtype.itemsize if little.dtype.kind in "SU" else -1
        order = b"|" if little.dtype.byteorder == "|" else b"<"
        align = -1 if item < 0 else 4 if little.dtype.kind == "U" else 1
        out(
            b"(K\x03X\x01\x00\x00\x00"
            + order
            + b"NNNJ"
            + struct.pack("<i", item)
            + b"J"
            + struct.pack("<i", align)
            + b"K\x00tb"
        )
        if not alone:
            out(b"\x89")
        self.raw(little.tobytes())
        out(b"\x86R" if alone else b"tb")


def _not_plain(expected: str, received: str) -> ProgramTypeError:
    return ProgramTypeError(
        "only plain data can be saved",
        expected=expected,
        received=received,
        fix="save arrays, and dicts and lists of them",
        op="save",
    )
