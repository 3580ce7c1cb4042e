"""Weights in archives: what unpacks to far more than its size is refused before it is, and headers that lie cost nothing."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tstatic as paddle
from tstatic.cli.outcome import CommandError
from tstatic.cli.weights import read


def npy(header: str, data: bytes = b"") -> bytes:
    """An array's member with any header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in members.items():
            package.writestr(f"{name}.npy", data)
    return path


def test_arrays_are_what_numpy_saved(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.eye(2, 3, dtype="int32")),
        "s": np.float32(3),
    }
    np.savez(tmp_path / "w.npz", **arrays)  # type: ignore[arg-type]
    found = read(tmp_path / "w.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_a_bomb_is_refused_unless_its_limit_is_raised(suffix: str, tmp_path: Path) -> None:
    """Guards memory: zip keeps a billion zeros in a million bytes."""
    content = io.BytesIO()
    np.save(content, np.zeros(96 << 20, np.uint8))
    path = archive(tmp_path / f"bomb{suffix}", a=content.getvalue())
    with pytest.raises(CommandError, match="FLAGS_load_limit_factor"):
        read(path)
    if suffix == ".npz":
        paddle.set_flags({"FLAGS_load_limit_factor": 2.0})
        assert read(path)["a"].size == 96 << 20


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "{'descr': '<f8', 'fortran_order': False}", "[" * 100, "",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (0,)}",
    ],
)  # fmt: skip
def test_headers_that_lie_are_refused(header: str, tmp_path: Path) -> None:
    """Guards against an array of a trillion numbers that a header of a hundred bytes asks for."""
    with pytest.raises(CommandError, match="numpy cannot read"):
        read(archive(tmp_path / "w.npz", a=npy(header, bytes(8))))


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".pth", ".pdparams", ".safetensors"])
def test_a_fifo_in_the_place_of_weights_is_refused(suffix: str, tmp_path: Path) -> None:
    """Packages open what is there and would wait for a writer for ever."""
    path = tmp_path / f"w{suffix}"
    os.mkfifo(path)
    with pytest.raises((CommandError, paddle.errors.TstaticError), match="FIFO"):
        read(path)
