"""Saves and loads values and inference models as Paddle 1.x does: in folders, or with one file for all values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.formats import files, serial
from tstatic.ir.checks import check_known, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import export
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.no_effect import no_effect
from tstatic.runtime.assign import assign
from tstatic.runtime.fetched import converting
from tstatic.runtime.scope import global_scope
from tstatic.static.files.inference import check_executor, load_model_bytes, load_model_files, normalize_program
from tstatic.static.files.loading import file_name, read_values
from tstatic.static.files.saving import EACH_WRITER, encode_save, path_of, persistables, program_of, values_of_variables
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.run.executor import Executor

Array = np.ndarray[Any, Any]
AnyProgram = Program | CompiledProgram | None


# ------------------------------------------------------------------------------------------------------- kinds of variables
@export(
    "static.is_persistable",
    "static.io.is_persistable",
    "fluid.io.is_persistable",
    "framework.is_persistable",
    "framework.io_utils.is_persistable",
)
def is_persistable(var: Variable) -> bool:
    """Returns whether a variable keeps its value in the scope between runs.

    Example:
        >>> x = static.data("x", [2])
        >>> w = paddle.create_parameter([2], "float32")
        >>> static.io.is_persistable(x), static.io.is_persistable(w)
        (False, True)
    """
    return var.persistable


@export("static.io.is_parameter", "fluid.io.is_parameter", "framework.is_parameter", "framework.io_utils.is_parameter")
def is_parameter(var: Variable) -> bool:
    """Returns whether a variable is a parameter."""
    return isinstance(var, Parameter)


@export(
    "static.io.is_belong_to_optimizer", "fluid.io.is_belong_to_optimizer", "framework.is_belong_to_optimizer",
    "framework.io_utils.is_belong_to_optimizer",
)  # fmt: skip
def is_belong_to_optimizer(var: Variable) -> bool:
    """Returns whether a variable is persistable and not a parameter: a moment, a learning rate, a counter."""
    # Inputs check what they are fed; what an optimizer keeps does not.
    return var.persistable and not isinstance(var, Parameter) and not var.need_check_feed


@export("fluid.io.get_program_persistable_vars", "static.io.get_program_persistable_vars")
def get_program_persistable_vars(program: AnyProgram) -> list[Variable]:
    """Returns the persistable variables of a program."""
    return persistables(_get_valid_program(program))


@export("fluid.io.get_program_parameter", "static.io.get_program_parameter")
def get_program_parameter(program: AnyProgram) -> list[Variable]:
    """Returns the parameters of a program."""
    return list(_get_valid_program(program).all_parameters())


@export("static.io._get_valid_program", "fluid.io._get_valid_program")
def _get_valid_program(program: AnyProgram = None) -> Program:
    """Returns the program itself, that of a CompiledProgram, or the default main program for ``None``."""
    return default_main_program() if program is None else program_of(program, "fluid.io")


@export("fluid.io.get_parameter_value")
def get_parameter_value(para: Parameter, executor: Executor | None = None) -> Array:
    """Returns a copy of a parameter's value in the global scope.

    Args:
        para: A Parameter.
        executor: Accepted as in Paddle.

    Raises:
        FeedError: If it has no value.
    """
    check_executor(executor, "get_parameter_value")
    # A copy, as runs change the array in place.
    value: Array = converting(values_of_variables([para], global_scope(), "get_parameter_value")[0][para.name].copy())
    return value


@export("fluid.io.get_parameter_value_by_name")
def get_parameter_value_by_name(name: str, executor: Executor | None = None, program: AnyProgram = None) -> Array:
    """Returns a copy of the value of the parameter of that name in the global scope.

    Args:
        name: The parameter's name.
        executor: Accepted as in Paddle.
        program: Where the name is looked up; the default main program if ``None``.

    Raises:
        NotFoundError: If the program has no such parameter.
        FeedError: If it has no value.
    """
    names = {p.name: p for p in _get_valid_program(program).all_parameters()}
    fix, op = "see program.all_parameters()", "get_parameter_value_by_name"
    check_known(name, names, "the program has no parameter", fix=fix, op=op)
    return get_parameter_value(names[name], executor)


# ------------------------------------------------------------------------------------------------------------------ files
IN_MEMORY = Path("the values' bytes")
"""Names a file that is not on a disk, in messages."""


def folder_of(dirname: Any, function: str) -> Path:
    """Returns the path of a folder.

    Raises:
        ProgramError: If the argument is not a path.
    """
    if not isinstance(dirname, str | Path) or not str(dirname) or "\0" in str(dirname):
        raise ProgramError(
            f"'dirname' of {function} must be a folder",
            expected="a path",
            received=repr(dirname),
            fix="pass for example './model'",
            op=function,
        )
    return Path(dirname)


def _chosen(
    program: AnyProgram, variables: Any, predicate: Callable[[Variable], bool] | None, function: str
) -> list[Variable]:
    if variables is not None:
        fix = "pass [program.global_block().var(name)]"
        return [
            check_type(var, Variable, "vars", function, expected="a list of Variable", fix=fix) for var in variables
        ]
    source = _get_valid_program(program)
    # Arrays of tensors have no form in these files.
    return [v for v in source.list_vars() if v.type == "dense_tensor" and (predicate is None or predicate(v))]


@export("static.save_vars", "static.io.save_vars", "fluid.io.save_vars")
def save_vars(
    executor: Executor | None,
    dirname: str | None,
    main_program: AnyProgram = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Saves values of the global scope to a folder, or returns them as bytes.

    Each file is a complete checkpoint: safetensors with a checksum. All change at one point: after a crash or an error,
    :func:`load_vars` finds the old files or the new ones, even with one file per variable.

    Args:
        executor: Accepted as in Paddle.
        dirname: The folder; created if it is missing. ``None`` writes nothing.
        main_program: The program with the variables; the default main program if ``None``.
        vars: These variables only.
        predicate: Those of the program's variables for which it is true.
        filename: One file for all; by default one per variable.

    Returns:
        ``None``; without a folder, the file that would hold all values, which :func:`load_vars` takes as ``filename``.

    Raises:
        FeedError: If a variable has no value; nothing is written then.
        CheckpointError: If a file cannot be written.

    Example:
        >>> import os
        >>> w = paddle.create_parameter([2], "float32", name="w")
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.io.save_vars(exe, "folder", vars=[w])
        >>> os.listdir("folder")
        ['w']
    """
    check_executor(executor, "save_vars")
    if dirname is None and filename is None:
        # Without a folder all values are in one file, which only messages name.
        return encode_save({IN_MEMORY: _chosen(main_program, vars, predicate, "save_vars")}, "save_vars")[IN_MEMORY]
    folder = folder_of(dirname, "save_vars")
    write(folder, filename, _chosen(main_program, vars, predicate, "save_vars"), "save_vars")
    return None


def write(
    folder: Path,
    filename: str | None,
    variables: Sequence[Variable],
    function: str,
    model: tuple[Path, bytes] | None = None,
) -> None:
    """Writes values, and the program that they belong to, as one save."""
    held: dict[Path, list[Variable]] = {}
    if filename is not None:
        held[path_of(folder / filename, function)] = list(variables)
    else:
        held = {folder / file_name(var.name): [var] for var in variables}
    files.write(encode_save(held, function, model))


@export("static.load_vars", "static.io.load_vars", "fluid.io.load_vars")
def load_vars(
    executor: Executor | None,
    dirname: str | None,
    main_program: AnyProgram = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
    *,
    strict: bool = True,
) -> None:
    """Loads what :func:`save_vars` saved into the global scope.

    Everything is checked before anything is written, and all values are written at one point.

    Args:
        executor: Accepted as in Paddle.
        dirname: The folder; ``None`` if ``filename`` is what :func:`save_vars` returned.
        main_program: Whose variables; the default main program if ``None``.
        vars: These variables only.
        predicate: Those of the program's variables for which it is true.
        filename: The one file; by default there is one per variable.
        strict: ``False`` loads what is there, whole and not of an older save than the rest; a warning names the variables
            that stay as they are.

    Raises:
        CheckpointError: If a file is missing or damaged, lacks a variable, or is of an older save than the others.
        ShapeError: If a shape or dtype differs.

    Example:
        >>> three = paddle.nn.initializer.Constant(3.0)
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=three)
        >>> y, exe, main = w * 2, static.Executor(), static.default_main_program()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.io.save_vars(exe, "folder", vars=[w])
        >>> static.set_program_state(main, {"w": np.zeros(2, "float32")})
        >>> static.io.load_vars(exe, "folder", vars=[w])
        >>> exe.run(fetch_list=[y])[0]
        array([6., 6.], dtype=float32)
    """
    function = "load_vars"
    check_executor(executor, function)
    if dirname is None and isinstance(filename, bytes | bytearray):
        wanted = _chosen(main_program, vars, predicate, function)
        data = {IN_MEMORY: bytes(filename)}
        assign(global_scope(), read_values(data, wanted, function, IN_MEMORY, strict=strict).arrays)
        return
    if isinstance(filename, bytes | bytearray):
        # Bytes beside a folder: which of the two to read cannot be told.
        filename = check_type(filename, str, "filename", function, fix="pass dirname=None with bytes")
    folder, variables = folder_of(dirname, function), _chosen(main_program, vars, predicate, function)
    paths = paths_of(folder, filename, variables, function)
    writer = EACH_WRITER
    if filename is not None:
        writer = f"static.io.save_persistables, save_params or save_vars with filename={filename!r}"
    # Without `strict` every one of the files may be missing.
    data = files.read(paths, writer=writer) if strict else files.read([], paths)
    # A folder is listed only if its files contradict each other.
    beside = lambda: paths if filename else files.listed(folder)  # noqa: E731
    assign(global_scope(), read_values(data, variables, function, folder, strict=strict, beside=beside).arrays)


def paths_of(folder: Path, filename: str | None, variables: Sequence[Variable], function: str) -> list[Path]:
    """Returns the files of variables: the one called ``filename``, or one per variable."""
    if filename is not None:
        return [path_of(folder / filename, function)]
    # Each once, as a list of variables may have one twice.
    return [folder / name for name in dict.fromkeys(file_name(v.name) for v in variables)]


@export("fluid.io.save_params", "static.io.save_params")
def save_params(
    executor: Executor | None, dirname: str | None, main_program: AnyProgram = None, filename: str | None = None
) -> bytes | None:
    """Saves the parameters of a program to a folder (see :func:`save_vars`).

    Args:
        executor, dirname, main_program, filename: As in :func:`save_vars`, with its errors.
    """
    return save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@export("fluid.io.load_params", "static.io.load_params")
def load_params(
    executor: Executor | None,
    dirname: str,
    main_program: AnyProgram = None,
    filename: str | None = None,
    *,
    strict: bool = True,
) -> None:
    """Loads what :func:`save_params` saved (see :func:`load_vars`).

    Args:
        executor, dirname, main_program, filename, strict: As in :func:`load_vars`, with its errors.
    """
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename, strict=strict)


@export("fluid.io.save_persistables", "static.io.save_persistables")
def save_persistables(
    executor: Executor | None, dirname: str | None, main_program: AnyProgram = None, filename: str | None = None
) -> bytes | None:
    """Saves all persistable variables of a program to a folder (see :func:`save_vars`).

    Args:
        executor, dirname, main_program, filename: As in :func:`save_vars`, with its errors.

    Example:
        >>> import os
        >>> y = static.nn.fc(static.data("x", [None, 2]), 1)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.io.save_persistables(exe, "folder")
        >>> sorted(os.listdir("folder"))
        ['fc_0.b_0', 'fc_0.w_0']
    """
    return save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


@export("fluid.io.load_persistables", "static.io.load_persistables")
def load_persistables(
    executor: Executor | None,
    dirname: str,
    main_program: AnyProgram = None,
    filename: str | None = None,
    *,
    strict: bool = True,
) -> None:
    """Loads what :func:`save_persistables` saved (see :func:`load_vars`).

    Args:
        executor, dirname, main_program, filename, strict: As in :func:`load_vars`, with its errors.
    """
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename, strict=strict)


# ----------------------------------------------------------------------------------------------------- inference models
# The name that Paddle 1.x gives the program's file.
MODEL_FILE = "__model__"


@no_effect(clip_extra="attributes that only Paddle's own tools read are never written")
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
    clip_extra: bool = True,
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
    # Also where the whole program is saved: it checks that the inputs lead to the targets.
    made = normalize_program(source, feeds, targets)
    name = model_filename or MODEL_FILE
    if export_for_deployment:
        path, data = path_of(folder / name, function), serial.encode(made)
    else:
        # As in Paddle, a program for further training is kept whole, under another name.
        made, path = source, path_of(folder / f"{name}.main_program", function)
        data = serial.encode(source)
    # A variable may be called as the program's file is.
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
    # Without values there is no file for them, whatever its name would be.
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
        CheckpointError: If a file is missing, damaged, not an inference model, or from another save than the others.
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
        return load_model_bytes(model_filename, params_filename, function)
    folder = folder_of(dirname, function)
    path = path_of(folder / (model_filename or MODEL_FILE), function)

    def named(wanted: Sequence[Variable]) -> list[Path]:
        return paths_of(folder, params_filename, wanted, function)

    def beside() -> list[Path]:
        # Each variable has a file, any of which may be of another save.
        return [path, *named([])] if params_filename else files.listed(folder)

    writer = "fluid.io.save_inference_model"
    if params_filename:
        writer += f" with params_filename={params_filename!r}"
    return load_model_files(path, named, folder, function, beside, writer)
