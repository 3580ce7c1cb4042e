"""Raw operators of Paddle that save and load values while a program runs, and those that name its inputs and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError, ProgramError
from tstatic.formats import files, paddle_tensors
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int
from tstatic.ir.composed import composed
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.control.py_func import py_func
from tstatic.static.files.saving import path_of

Array = np.ndarray[Any, Any]
Targets = Mapping[str, Sequence[Variable]]
PARTS = "a file is read as a whole"


# -------------------------------------------------------------------------------------------------------- inputs and results
def _noted(names: tuple[str, ...], col: int, name: str) -> tuple[str, ...]:
    """Returns the names with one more at its place; columns are named in their order."""
    if not 0 <= check_int(col, "col", "feed and fetch", 0) <= len(names):
        raise ProgramError(
            "columns of feed and fetch operators are named in their order",
            expected=f"column {len(names)}",
            received=str(col),
            fix="append the operators by rising col",
        )
    # A column that has a name already gets the new one.
    return (*names[:col], name, *names[col + 1 :])


@composed("feed", in_files=False)
def _feed(X: Variable | None = None, *, col: int = 0, outputs: Targets) -> None:
    """Names an input of the program: ``Out`` is fed under its own name, and the program's ``feed_names`` have it at ``col``."""
    (out,) = outputs["Out"]
    program = out.block.program
    program.feed_names = _noted(program.feed_names, col, out.name)
    out.is_data = True


@composed("fetch", in_files=False)
def _fetch(X: Variable, *, col: int = 0, outputs: Targets) -> None:
    """Names a result of the program: its ``fetch_names`` have ``X`` at ``col``."""
    program = X.block.program
    program.fetch_names = _noted(program.fetch_names, col, X.name)


# --------------------------------------------------------------------------------------------------------------------- files
class _Writer:
    """Writes arrays to a file of Paddle."""

    def __init__(self, path: Path, overwrite: bool, half: bool) -> None:
        self.path, self.overwrite, self.half = path, overwrite, half

    def __call__(self, *arrays: Array) -> None:
        if not self.overwrite and files.exists(self.path):
            raise CheckpointError(
                f"{self.path} exists, and the operator says overwrite=False",
                expected="a new file",
                received="one that is there",
                fix="set overwrite=True, or choose another file_path",
            )
        if self.half:
            # Integers stay: float16 holds them exactly only up to 2048.
            arrays = tuple(a.astype(np.float16) if a.dtype.kind == "f" else a for a in arrays)
        files.write({self.path: paddle_tensors.encode([np.asarray(a) for a in arrays])})


class _Reader:
    """Reads arrays from a file of Paddle, in the dtypes of the variables."""

    def __init__(self, path: Path, targets: Sequence[Variable]) -> None:
        self.path = path
        self.dtypes = [v.dtype.np for v in targets]

    def __call__(self) -> Any:
        content = files.read([self.path], writer="an operator 'save' or 'save_combine'")[self.path]
        found = paddle_tensors.decode(content, len(self.dtypes), self.path)
        # A file that `save_as_fp16` wrote feeds variables of 32 bits.
        done = [array.astype(dtype, copy=False) for array, dtype in zip(found, self.dtypes, strict=True)]
        # `py_func` takes the one array itself where it has one output.
        return done[0] if len(done) == 1 else done


@composed("save", "save_combine", in_files=False)
@no_effect(save_to_memory="files are files")
def _save(
    X: Sequence[Variable], *, file_path: str, overwrite: bool = True, save_as_fp16: bool = False,
    save_to_memory: bool = False, outputs: Targets,
) -> None:  # fmt: skip
    """Writes X to a file in Paddle's format, whenever the program runs."""
    # Through `py_func`, whose function runs in every step: results of other ops depend on their inputs alone.
    py_func(_Writer(path_of(file_path, "save"), overwrite, save_as_fp16), list(X), None)


@composed("load", "load_combine", in_files=False)
@no_effect(
    load_as_fp16="a variable says of which dtype it is", seek=PARTS, shape=PARTS, model_from_memory="files are files",
)  # fmt: skip
def _load(
    *, file_path: str, load_as_fp16: bool = False, seek: int = -1, shape: Sequence[int] = (), model_from_memory: bool = False,
    outputs: Targets,
) -> None:  # fmt: skip
    """Reads variables of known shapes from a file in Paddle's format, whenever the program runs."""
    py_func(_Reader(path_of(file_path, "load"), outputs["Out"]), None, list(outputs["Out"]))


@no_effect(load_as_fp16="a variable says of which dtype it is")
@export("fluid.layers.load", "fluid.layers.io.load")
def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Appends an op that reads a variable from a file in Paddle's format, whenever the program runs.

    Args:
        out: Is written; its shape and dtype must be those of the file.
        file_path: A file of one variable, as ``fluid.io.save_vars`` of Paddle writes it.

    Raises:
        ProgramTypeError: If ``out`` is not a Variable, or ``file_path`` not a path.
    """
    check_variable(out, "out", "load")
    py_func(_Reader(path_of(file_path, "load"), [out]), None, [out])
