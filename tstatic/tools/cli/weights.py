"""The command ``convert``: weights and models of Paddle, torch and tstatic, each into the others' files, and models into ONNX."""

from __future__ import annotations

import fnmatch
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tstatic import static
from tstatic.display import size
from tstatic.errors import needed_for, reason
from tstatic.formats import checkpoint, files
from tstatic.formats.checkpoint import Checkpoint
from tstatic.formats.objects import dump_object
from tstatic.formats.report_files import make_folder, save_report
from tstatic.ir.budget import FLAG, most_unpacked
from tstatic.regular import require
from tstatic.runtime.scope import Scope
from tstatic.static.files import variable_files
from tstatic.static.files.onnx_export import SUFFIX, export_onnx
from tstatic.tools.cli.outcome import CommandError, Outcome, Table
from tstatic.tools.cli.targets import MODEL, STATE, VALUES

Array = np.ndarray[Any, Any]
TORCH = (".pt", ".pth", ".bin")
FORMATS = ("tstatic", "paddle", "torch", "safetensors", "npz")
SUFFIXES = {
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".onnx": "onnx",
    STATE: "tstatic",
    VALUES: "tstatic",
    "": "tstatic",
}
"""Suffix of a file -> its format, beside ``TORCH``."""
OF_MODELS = ("tstatic", "paddle", "onnx")


def convert(
    source: str, destination: str, to: str = "", transpose: Sequence[str] = (), rename: Sequence[str] = (),
    bfloat16: Sequence[str] = (),
) -> Outcome:  # fmt: skip
    """Reads weights, or an inference model, and writes them in another format."""
    if to and to not in (*FORMATS, *OF_MODELS):
        raise CommandError(f"--to takes one of {', '.join((*FORMATS, 'onnx'))}, and not {to!r}")
    model = _model(Path(source))
    chosen = to or _format_of(Path(destination), model is not None)
    if chosen == "onnx" and model is None:
        raise CommandError(
            f"--to onnx is for inference models, and '{source}' is none: static.save_inference_model writes one"
        )
    if model is not None and chosen in OF_MODELS:
        if transpose or rename:
            raise CommandError(
                "--transpose and --rename are for weights; a model's program knows its variables by name"
            )
        return _convert_model(model, destination, chosen)
    found = read(Path(source))
    _check_bfloat16(found, bfloat16)
    arrays = {name: _as_bfloat16(name, a, bfloat16) for name, a in found.items()}
    if chosen == "npz":
        # numpy alone cannot read bfloat16.
        arrays = {name: a.astype(np.float32) if a.dtype.name == "bfloat16" else a for name, a in arrays.items()}
    arrays = _renamed(_transposed(arrays, transpose), rename)
    path = write(arrays, Path(destination), chosen)
    total = sum(a.nbytes for a in arrays.values())
    data = {
        "source": source,
        "destination": str(path),
        "format": chosen,
        "bytes": total,
        "arrays": {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in arrays.items()},
    }
    rows = [(name, list(a.shape), a.dtype.name) for name, a in arrays.items()]
    head = f"{path}: {len(arrays)} arrays, {size(total)}, in the format of {chosen}"
    return Outcome(data, (head, Table("", ("name", "shape", "type"), rows)))


# ----------------------------------------------------------------------------------------------------------------- models
def _model(path: Path) -> tuple[str, bool] | None:
    """Returns the prefix or folder of an inference model, and whether it is a folder of 1.x; ``None`` for weights."""
    if path.is_dir():
        return (str(path), True) if (path / "__model__").is_file() else None
    prefix = str(path)
    for suffix in (MODEL, VALUES):
        prefix = prefix.removesuffix(suffix)
    both = all(Path(prefix + suffix).is_file() for suffix in (MODEL, VALUES))
    return (prefix, False) if both else None


def _convert_model(model: tuple[str, bool], destination: str, to: str) -> Outcome:
    name, folder = model
    prefix = destination.removesuffix(SUFFIX if to == "onnx" else MODEL)
    exe = static.Executor("cpu")
    with static.scope_guard(Scope()):
        load = variable_files.load_inference_model if folder else static.load_inference_model
        program, feeds, fetches = load(name, exe)
        inputs = [program.global_block().var(feed) for feed in feeds]
        written = f"{prefix}{MODEL} and {prefix}{VALUES}"
        if to == "onnx":
            written = export_onnx(prefix, inputs, fetches, program=program)
        options = {"format": "paddle"} if to == "paddle" else {}
        if to != "onnx":
            static.save_inference_model(prefix, inputs, fetches, exe, program=program, **options)
    data = {"source": name, "destination": prefix, "format": to, "inputs": feeds, "results": [v.name for v in fetches]}
    return Outcome(data, (f"{written}, in the format of {to}: {program!r}",))


# ---------------------------------------------------------------------------------------------------------------- weights
def read(path: Path) -> dict[str, Array]:
    """Returns the arrays of a file by their names.

    Raises:
        CommandError: If there is no such file, or it holds anything else.
        CheckpointError: If it is damaged.
    """
    if not path.exists() and not Path(f"{path}{STATE}").exists():
        raise CommandError(f"there is no file '{path}'")
    if path.suffix in (".npz", *TORCH):
        # Packages open what is there, and wait for the writer of a FIFO.
        try:
            require(path)
        except OSError as error:
            raise CommandError(f"cannot read '{path}': {reason(error)}") from error
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix in TORCH:
        return _read_torch(path)
    return dict(static.load_program_state(str(path)))


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as package:
            _check_unpacked(package, path)
            return {one.filename.removesuffix(".npy"): _read_npy(package, one) for one in package.infolist()}
    except (
        zipfile.BadZipFile, zlib.error, ValueError, EOFError, LookupError, NotImplementedError, RuntimeError, SyntaxError,
        tokenize.TokenError,  # of numpy's own parser of headers
    ) as error:  # fmt: skip
        raise CommandError(f"numpy cannot read '{path}' as arrays: {error}") from error


def _read_npy(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Returns the array in a member; unlike numpy's own reader, takes memory only for bytes that are there."""
    with package.open(member) as file:
        major, _ = np.lib.format.read_magic(file)
        if major not in (1, 2):
            raise ValueError(f"'{member.filename}' is in version {major} of the format")
        read_header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        left = member.file_size - file.tell()
        if (
            dtype.hasobject
            or not dtype.itemsize
            or min(shape, default=0) < 0
            or math.prod(shape) * dtype.itemsize != left
        ):
            raise ValueError(f"'{member.filename}' has {left:,} bytes for {dtype}{list(shape)}"[:200])
        flat = np.frombuffer(file.read(), dtype)
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _check_unpacked(package: zipfile.ZipFile, path: Path) -> None:
    """Refuses an archive that unpacks to more than weights do: zip keeps a billion zeros in a million bytes."""
    total, most = sum(one.file_size for one in package.infolist()), most_unpacked(path.stat().st_size)
    if total > most:
        raise CommandError(
            f"'{path}' unpacks to {total:,} bytes, and a file of its size may to {most:,}: do not use it, unless you know who made "
            f"it; then raise {FLAG}"
        )


def _read_torch(path: Path) -> dict[str, Array]:
    with needed_for("reading weights of torch"):
        import torch
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as package:
                _check_unpacked(package, path)
        # Plain data only: no code of the file runs.
        found = torch.load(path, map_location="cpu", weights_only=True)
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(f"torch cannot read '{path}' as weights: {error}") from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    tensors = {n: t for n, t in found.items() if isinstance(t, torch.Tensor)} if isinstance(found, Mapping) else {}
    if not tensors:
        raise CommandError(f"'{path}' holds no dict of tensors, which torch.save(module.state_dict(), path) writes")
    return {name: _as_array(tensor.detach().contiguous()) for name, tensor in tensors.items()}


def _as_array(tensor: Any) -> Array:
    import torch

    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())


def write(arrays: Mapping[str, Array], path: Path, to: str) -> Path:
    """Writes arrays in one of ``FORMATS``; returns the file."""
    make_folder(path.parent, "the weights")
    if to == "torch":
        with needed_for("writing weights of torch"):
            import torch
        tensors = {
            name: torch.from_numpy(np.ascontiguousarray(a).reshape(a.shape).view(np.int16)).view(torch.bfloat16)
            if a.dtype.name == "bfloat16"
            else torch.from_numpy(np.array(a))
            for name, a in arrays.items()
        }
        save_report(path, lambda place: torch.save(tensors, place), "the weights")
    elif to == "npz":
        save_report(path, lambda place: _savez(place, arrays), "the weights")
    elif to == "paddle":
        # numpy has no bfloat16: as their bits, as Paddle writes them.
        bits = {n: a.view(np.uint16) if a.dtype.name == "bfloat16" else a for n, a in arrays.items()}
        files.write({path: dump_object(dict(bits), 4, checksum=False)})
    else:
        files.write({path: checkpoint.encode(Checkpoint(dict(arrays)))})
    return path


def _savez(path: Path, arrays: Mapping[str, Array]) -> None:
    # An open file: to a path without its suffix numpy would add one.
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _format_of(path: Path, model: bool) -> str:
    """Returns the format of a file by its suffix; a model's prefix may have any.

    Raises:
        CommandError: If a file of weights has a suffix of no format.
    """
    if path.suffix in TORCH:
        return "torch"
    if model or path.suffix in SUFFIXES:
        return SUFFIXES.get(path.suffix, "tstatic")
    known = ", ".join(one for one in (*SUFFIXES, *TORCH) if one)
    raise CommandError(f"'{path}': no format has the suffix '{path.suffix}' (known are {known}): --to says which it is")


def _check_bfloat16(arrays: Mapping[str, Array], patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) and a.dtype == np.uint16 for name, a in arrays.items()):
            raise CommandError(
                f"--bfloat16 {pattern!r} fits no array of 16-bit unsigned integers, as which Paddle has bfloat16"
            )


def _as_bfloat16(name: str, array: Array, patterns: Sequence[str]) -> Array:
    """Takes 16-bit integers whose name fits for the bits of bfloat16, as which Paddle's files have it."""
    if array.dtype == np.uint16 and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        return np.asarray(array.view(ml_dtypes.bfloat16))
    return array


def _transposed(arrays: Mapping[str, Array], patterns: Sequence[str]) -> dict[str, Array]:
    """Transposes matrices whose names fit: torch's linear layers have their weights as [out, in], Paddle's as [in, out]."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) and a.ndim == 2 for name, a in arrays.items()):
            raise CommandError(f"--transpose {pattern!r} fits no matrix; the names are {', '.join(list(arrays)[:8])}")
    return {
        name: np.ascontiguousarray(a.T)
        if a.ndim == 2 and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        else a
        for name, a in arrays.items()
    }


def _renamed(arrays: Mapping[str, Array], rules: Sequence[str]) -> dict[str, Array]:
    """Renames by rules ``pattern=text`` of regular expressions, each applied to all names in turn."""
    names = {name: name for name in arrays}
    for rule in rules:
        pattern, equals, text = rule.partition("=")
        try:
            expression = re.compile(pattern)
            if equals and pattern and not any(expression.search(name) for name in names.values()):
                raise CommandError(f"--rename {rule!r} fits no name; the names are {', '.join(list(arrays)[:8])}")
            names = {old: expression.sub(text, new) for old, new in names.items()}
        except re.error as error:
            raise CommandError(f"--rename {rule!r} cannot be read as a regular expression: {error}") from None
        if not equals or not pattern:
            raise CommandError(f"--rename takes OLD=NEW, and not {rule!r}")
    if len(set(names.values())) < len(names):
        twice = next(n for n in names.values() if list(names.values()).count(n) > 1)
        raise CommandError(f"--rename gives two arrays the name {twice!r}")
    return {names[name]: a for name, a in arrays.items()}
