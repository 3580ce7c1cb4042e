"""Reads saves of every form: decodes the files of values, and checks them against each other, their program and variables.

A save is read in three steps. :func:`tstatic.formats.files.read` reads its files as one save left them, :func:`read_values` checks
everything, and :func:`tstatic.runtime.assign.assign` writes all values at one point. So an error in any file changes no variable.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tstatic.errors import CheckpointError, ShapeError, near
from tstatic.formats import checkpoint, files, paddle_tensors, serial
from tstatic.formats.checkpoint import Checkpoint
from tstatic.formats.files import Stamp, older, parse_stamp
from tstatic.formats.objects import load_object
from tstatic.ir.program import Variable
from tstatic.ir.types import bfloat16, dtype_of, plain
from tstatic.logs import get_logger

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------------------------------------------- values
@dataclass(frozen=True)
class Values:
    """Arrays that fit the wanted variables, by name; the names of all values in the files; and the facts of the files."""

    arrays: dict[str, Array]
    names: Collection[str]
    facts: Mapping[str, Any]


def read_values(
    data: Mapping[Path, bytes],
    wanted: Sequence[Variable],
    function: str,
    source: Path,
    *,
    strict: bool = True,
    model: tuple[Path, bytes] | None = None,
    beside: Callable[[], Iterable[Path]] = tuple,
) -> Values:
    """Decodes and checks the files of values of one save.

    Args:
        data: Path -> content of the files of values.
        wanted: The variables to load.
        function: The function that loads them, for errors.
        source: The file or folder that messages name.
        strict: ``False`` leaves out values that are missing or damaged, and files that are damaged or older than others; a warning
            names the variables that get no value.
        model: Path and content of the program's file, if it is loaded with the values.
        beside: Returns all files that may belong to the same saves; called only if there is doubt.

    Raises:
        CheckpointError: If a file is damaged, the files are of two saves, or a variable has no value.
        ShapeError: If a shape or dtype differs.
    """
    # What damages or dates the only file leaves no value to go on with.
    strict_files = strict or len(data) == 1
    found: dict[Path, Checkpoint] = {}
    for path, content in data.items():
        try:
            found[path] = decode_values(content, path, wanted, len(data) > 1, strict)
        except CheckpointError:
            if strict_files:
                raise
    origins: dict[Path, Origin | None] = {path: origin_of_values(read.facts) for path, read in found.items()}
    if model is not None:
        origins[model[0]] = origin_of(model[1])
    # Without `strict`, files of an older save count as if they lacked their values.
    old = [] if strict_files else check_one_save(origins, beside, function, strict=False)
    values = {name: array for path, read in found.items() if path not in old for name, array in read.tensors.items()}
    fitting = _available(wanted, values, source, function, strict)
    if strict_files:
        # Last, because a value that does not fit says more than that its file is of another save.
        check_one_save(origins, beside, function)
    facts = {name: fact for read in found.values() for name, fact in read.facts.items()}
    return Values({var.name: values[var.name] for var in fitting}, values.keys(), facts)


def file_name(name: str) -> str:
    """Returns the file name of a variable: its name, with characters escaped that mean something in paths."""
    safe = quote(name, safe="@ -_+=,~()[]{}", errors="surrogatepass")
    # Files that begin with a dot are hidden, and `..` is another folder.
    return "%2E" + safe[1:] if safe.startswith(".") else safe


LAYER_NAMES = "StructuredToParameterName@@"
"""In a pickle of Paddle: the key under which the names of parameters stand, by the keys of their layers."""


def is_pickle(content: bytes) -> bool:
    """Returns whether a file of values is a pickle; one in the safetensors format has its header at byte 8."""
    # The length with which a safetensors file begins may have 0x80 as its lowest byte.
    return content[:1] == b"\x80" and content[8:9] != b"{"


def decode_values(
    content: bytes, path: Path, wanted: Sequence[Variable] = (), one_each: bool = False, strict: bool = True
) -> Checkpoint:
    """Returns what a file of values holds, whether tstatic or Paddle wrote it.

    Args:
        content: The file.
        path: Its path, for messages.
        wanted: The variables that Paddle's files without names hold: all of them in the order of their names, or one.
        one_each: Whether the file is one of several, each named as the variable that it holds.
        strict: ``False`` leaves out damaged values of a file that has checksums.

    Raises:
        CheckpointError: If the file is damaged.
    """
    if paddle_tensors.is_tensors(content):
        # Paddle's files of tensors have no names: values lie in the order of the sorted names.
        names = sorted(var.name for var in wanted)
        if one_each:
            names = [name for name in names if file_name(name) == path.name]
        return Checkpoint(dict(zip(names, paddle_tensors.decode(content, len(names), path), strict=True)))
    if is_pickle(content):
        return _of_pickle(load_object(content, path), path, wanted)
    return checkpoint.decode(content, path, strict)


def _of_pickle(found: Any, path: Path, wanted: Sequence[Variable]) -> Checkpoint:
    """Returns the arrays in a pickle that Paddle wrote, by the names of variables."""
    if not isinstance(found, dict):
        raise CheckpointError(
            f"the file holds no values of variables: {path}",
            expected="a dict name -> array",
            received=type(found).__name__,
            fix="read it with paddle.load",
        )
    renamed = found.get(LAYER_NAMES)
    names = renamed if isinstance(renamed, dict) else {}
    dtypes = {var.name: var.dtype for var in wanted}
    tensors = {}
    for key, value in found.items():
        name = names.get(key, key)
        if isinstance(name, str) and isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            # Pickles of numpy have no bfloat16: Paddle writes its bits.
            is_bits = array.dtype == np.uint16 and dtypes.get(name) is bfloat16
            tensors[name] = array.view(bfloat16.np) if is_bits else array
    return Checkpoint(tensors)


def _available(
    wanted: Sequence[Variable], values: Mapping[str, Array], source: Path, function: str, strict: bool
) -> Sequence[Variable]:
    """Returns the variables that have a value, and checks that it fits.

    Raises:
        CheckpointError: If a value is missing; with ``strict=False``, only if all are, and a warning names those missing.
        ShapeError: If a shape or dtype differs.
    """
    lost = [var.name for var in wanted if var.name not in values]
    if lost and strict:
        raise CheckpointError(
            f"{source} lacks {len(lost)} variables of the program: {', '.join(lost[:8])}",
            expected=f"values for {len(wanted)} variables",
            received=f"values for {len(values)}: {', '.join(list(values)[:8])[:400]}",
            fix=f"{near(lost[0], values)} {_without(lost[0], function)}".lstrip(),
            var=lost[0],
            op=function,
        )
    if lost and len(lost) == len(wanted):
        raise CheckpointError(
            f"{source} has no whole value of any variable",
            expected=f"values for {len(wanted)} variables",
            received=f"values for {len(values)}: {', '.join(list(values)[:8])}",
            fix="load an older copy, or run the startup program",
            op=function,
        )
    if lost:
        get_logger().warning(
            "%s: %d of %d values are missing or damaged, and their variables stay as they are: %s",
            source, len(lost), len(wanted), ", ".join(lost),
        )  # fmt: skip
    found = [var for var in wanted if var.name in values]
    for var in found:
        check_value(var, values[var.name], function)
    return found


def array_of(value: Any, name: str, function: str) -> Array:
    """Returns a copy of a value as an array.

    Raises:
        FeedTypeError: If it is not an array and cannot become one.
        DTypeError: If it is a masked array.
    """
    return np.array(plain(value, f"the value of '{name}'", function), order="C")


def check_value(var: Variable, array: Array, function: str) -> None:
    """Checks a value against a variable.

    Raises:
        ShapeError: If shape or dtype differ.
    """
    # Paddle before 2.5 saves shape [1] where a scalar has [] now.
    if tuple(array.shape) != var.shape and not (array.size == 1 and math.prod(var.shape) == 1):
        raise ShapeError(
            f"{var.name} expected a shape {list(var.shape)}, but the received shape is {list(array.shape)}.",
            expected=list(var.shape),
            received=list(array.shape),
            fix=_anew(var.name, function),
            op=function,
            var=var.name,
        )
    if dtype_of(array.dtype) is not var.dtype:
        raise ShapeError(
            f"the value for '{var.name}' has another dtype",
            expected=var.dtype.name,
            received=dtype_of(array.dtype).name,
            fix="convert it and set it: " + _set_state(f"{{'{var.name}': value.astype('{var.dtype.name}')}}"),
            op=function,
            var=var.name,
        )


def _set_state(state: str) -> str:
    return f"static.set_program_state(program, {state})"


def _anew(name: str, function: str) -> str:
    """Returns how to load all values but those of one layer, for example of a head with another number of classes."""
    if function.endswith("load_inference_model"):
        return "take both files from one save"
    if function == "set_value":
        return "set an array of the variable's shape"
    layer, dot, _ = name.rpartition(".")
    kept = _set_state(f"{{n: v for n, v in state.items() if not n.startswith('{layer + dot if dot else name}')}}")
    read = "" if function == "set_program_state" else "state = static.load_program_state(path), then "
    return f"load the program that was saved; or leave this layer as the startup program made it: {read}{kept}"


def _without(name: str, function: str) -> str:
    """Returns how to load where a variable has no value."""
    if function.endswith("load_inference_model"):
        return "take both files from one save"
    if function == "load_program_state":
        return f"leave '{name}' out of var_list"
    return "load into the program that was saved, or pass strict=False: variables without a value stay as they are"


# -------------------------------------------------------------------------------------------------------------- one save
@dataclass(frozen=True)
class Origin:
    """The save that wrote a file, and the digest of the saved program (that of the file itself, if it is the program's)."""

    stamp: Stamp | None
    program: str
    has_values: bool


def digest(model: bytes) -> str:
    """Returns the digest of a program's file; files of values carry that of the program that they were saved with."""
    return hashlib.sha256(model).hexdigest()


def origin_of_values(facts: Mapping[str, Any]) -> Origin:
    """Returns the origin of a file of values, from its facts."""
    return Origin(parse_stamp(facts.get("save")), str(facts.get("program", "")), True)


def origin_of(data: bytes) -> Origin | None:
    """Returns the origin of a file; ``None`` if it is damaged, or another program wrote it."""
    program = serial.unstamped(data)
    if program is not None:
        return Origin(parse_stamp(program[1]), digest(program[0]), False)
    try:
        return origin_of_values(checkpoint.facts_of(data))
    except CheckpointError:
        return None


def check_one_save(
    found: Mapping[Path, Origin | None], beside: Callable[[], Iterable[Path]], function: str, strict: bool = True
) -> list[Path]:
    """Checks that files are not a mixture of two saves.

    Values may come from a later save of the same program, and a later save may have replaced a part of an earlier one's
    files (see :func:`tstatic.formats.files.older`).

    Args:
        found: The files that are loaded.
        beside: Returns all files that may belong to the same saves; called only if there is doubt.
        function: The function that loads them, for the error.
        strict: ``False`` returns the older files of values instead of raising an error.

    Returns:
        The files of values that are older than the others.

    Raises:
        CheckpointError: If there are two saves; the message names the older files.
    """
    known = {path: origin for path, origin in found.items() if origin is not None}
    programs = {origin.program for origin in known.values() if origin.program}
    saves = {origin.stamp for origin in known.values() if origin.stamp is not None and origin.has_values}
    if len(programs) <= 1 and len(saves) <= 1:
        return []
    # Only now, in doubt, other files of the folder are read: they tell which save the older files belong to.
    stamps = {path: origin.stamp for path, origin in known.items() if origin.stamp is not None}
    every = stamps | _stamps(path for path in beside() if path not in stamps)
    names = older({str(path): stamp for path, stamp in every.items()})
    old = [path for path in stamps if str(path) in names]
    if not strict and old and all(known[path].has_values for path in old):
        return old
    # Where a stamp is missing nothing tells which file is older: that programs differ is enough.
    if old or (len(programs) > 1 and len(stamps) < len(known)):
        new = [path for path in known if path not in old]
        raise CheckpointError(
            f"these files are not of one save: {_listed(old or new, stamps)}",
            expected="files that were saved together",
            received=f"older files beside {_listed(new, stamps)}"
            if old
            else "values that were saved with another program",
            fix="take all files from one save, or save again",
            op=function,
        )
    return []


def _listed(paths: Sequence[Path], stamps: Mapping[Path, Stamp]) -> str:
    rows = [f"{path} (saved {stamps[path].when})" if path in stamps else str(path) for path in paths[:8]]
    return ", ".join(rows) + (f" and {len(paths) - 8} more" if len(paths) > 8 else "")


def _stamps(paths: Iterable[Path]) -> dict[Path, Stamp]:
    done: dict[Path, Stamp] = {}
    for path in paths:
        try:
            origin = origin_of(files.read([path])[path])
        # A damaged file beside those that are loaded proves nothing.
        except CheckpointError:
            continue
        if origin is not None and origin.stamp is not None:
            done[path] = origin.stamp
    return done
