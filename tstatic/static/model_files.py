"""Saves models as Paddle 1.x does: a folder with the program in one file, and the values in others or in one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir import serial
from tstatic.ir.opdef import export
from tstatic.ir.program import Program, Variable
from tstatic.no_effect import no_effect
from tstatic.runtime import checkpoint, files
from tstatic.static.executor import Executor
from tstatic.static.inference import answer, bytes_of, check_executor, load_values, normalize_program, read_model
from tstatic.static.io import path_of, persistables
from tstatic.static.loading import origin_of
from tstatic.static.variable_files import (
    AnyProgram,
    _get_valid_program,
    file_name,
    folder_of,
    load_files,
    paths_of,
    write,
)

MODEL_FILE = "__model__"


@export("fluid.io.save_inference_model")
def save_inference_model(
    dirname: str,
    feeded_var_names: str | Sequence[str],
    target_vars: Any,
    executor: Executor | None,
    main_program: AnyProgram = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Saves what leads from the inputs to the targets to a folder.

    Args:
        dirname: The folder; created if it is missing.
        feeded_var_names: Names of the inputs.
        target_vars: A Variable or a list of them: the results.
        executor: Accepted as in Paddle; values are those of the global scope.
        main_program: The program; the default main program if ``None``.
        model_filename: File of the program; ``__model__`` by default.
        params_filename: One file for all values; by default one per variable.
        export_for_deployment: ``False`` saves the whole program, with training, to ``<model_filename>.main_program``.
        program_only: Save no values.

    Returns:
        Names of the targets.

    Raises:
        ProgramTypeError: If an argument is of the wrong type.
        ProgramError: If inputs and results do not fit.
        FeedError: If a variable has no value.
        CheckpointError: If a file cannot be written.

    Example:
        >>> x = fluid.layers.data("x", shape=[3])
        >>> y = fluid.layers.fc(x, size=2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> _ = exe.run(fluid.default_startup_program())
        >>> _ = fluid.io.save_inference_model("model", ["x"], [y], exe)
        >>> program, feeds, fetches = fluid.io.load_inference_model("model", exe)
        >>> feeds, [v.shape for v in fetches]
        (['x'], [(-1, 2)])
    """
    function = "fluid.io.save_inference_model"
    check_executor(executor, function)
    folder = folder_of(dirname, function)
    source = _get_valid_program(main_program)
    targets = list(target_vars) if isinstance(target_vars, list | tuple) else [target_vars]
    feeds = _inputs(source, feeded_var_names, function)
    made = normalize_program(source, feeds, targets)
    name = model_filename or MODEL_FILE
    if export_for_deployment:
        path, data = path_of(folder / name, function), serial.encode(made)
    else:
        made, path = source, path_of(folder / f"{name}.main_program", function)
        data = serial.encode(source)
    taken = [params_filename] if params_filename else [file_name(v.name) for v in persistables(made)]
    if not program_only and path.name in taken:
        raise ProgramError(
            f"the program and a value would be written to the same file, '{path.name}'",
            expected="different file names",
            received=f"model_filename {name!r} and params_filename {params_filename!r}",
            fix="choose another model_filename",
            op=function,
        )
    values = [] if program_only else persistables(made)
    write(folder, None if program_only else params_filename, values, function, (path, data))
    return [target.name for target in targets]


def _inputs(program: Program, names: Any, function: str) -> list[Variable]:
    rows = [names] if isinstance(names, str) else list(names) if isinstance(names, list | tuple) else [names]
    if not all(isinstance(name, str) for name in rows):
        raise ProgramTypeError(
            "The type of feeded_var_names should be str or a list of str",
            expected="names of inputs",
            received=repr(names)[:120],
            fix="pass [x.name]",
            op=function,
            var="feeded_var_names",
        )
    return [program.global_block().var(name) for name in rows]


@no_effect(pserver_endpoints="there are no parameter servers")
@export("fluid.io.load_inference_model")
def load_inference_model(
    dirname: str | None,
    executor: Executor | None,
    model_filename: Any = None,
    params_filename: Any = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Loads what :func:`save_inference_model` saved; values go to the global scope.

    Args:
        dirname: The folder; ``None`` when the other two are the contents of the files.
        executor: Accepted as in Paddle.
        model_filename: File of the program; ``__model__`` by default.
        params_filename: The one file of all values; by default there is one per variable.

    Returns:
        ``[program, names of the inputs, Variables of the results]``.

    Raises:
        CheckpointError: If a file is missing, damaged, or not an inference model.
        ShapeError: If a value does not have its variable's shape or dtype.

    Example:
        >>> y = fluid.layers.scale(fluid.layers.data("x", shape=[2]), scale=3.0)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> _ = fluid.io.save_inference_model("model", ["x"], [y], exe)
        >>> program, feeds, fetches = fluid.io.load_inference_model("model", exe)
        >>> exe.run(program, feed={feeds[0]: np.array([[1, 2]], "float32")}, fetch_list=fetches)
        [array([[3., 6.]], dtype=float32)]
    """
    function = "fluid.io.load_inference_model"
    check_executor(executor, function)
    if dirname is None:
        program = read_model(bytes_of(model_filename, function), "these bytes")
        if persistables(program):
            load_values(program, params_filename, "these bytes", function)
        return answer(program)
    folder = folder_of(dirname, function)
    path = path_of(folder / (model_filename or MODEL_FILE), function)
    data: dict[Path, bytes] = {}
    while True:
        content = checkpoint.read(path)
        program = read_model(content, path)
        wanted = persistables(program)
        paths = paths_of(folder, params_filename, wanted, function) if wanted else []
        data = files.read([path, *paths])
        if data.pop(path) == content:  # otherwise another process has saved another program meanwhile
            break
    if wanted:
        beside = [path, *paths]
        model = {path: origin_of(content)}
        load_files(
            folder, data, wanted, function, lambda: beside if params_filename else files.listed(folder), model=model
        )
    return answer(program)
