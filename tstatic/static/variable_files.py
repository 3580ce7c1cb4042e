"""The 1.x way of saving: folders with one file per variable, or one file for all, and models of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError, near
from tstatic.ir import serial
from tstatic.ir.opdef import spelled
from tstatic.ir.program import Parameter, Program, Variable, default_main_program
from tstatic.ir.where import show, user_line
from tstatic.runtime import checkpoint
from tstatic.runtime.checkpoint import Checkpoint
from tstatic.runtime.scope import global_scope
from tstatic.static.compiled_program import CompiledProgram
from tstatic.static.executor import Executor
from tstatic.static.inference import (
    answer,
    bytes_of,
    check_executor,
    digest,
    load_values,
    normalize_program,
    read_model,
)
from tstatic.static.io import check_values, path_of, persistables, program_of, store, values_of_variables

Array = np.ndarray[Any, Any]
MODEL_FILE = "__model__"
AnyProgram = Program | CompiledProgram | None


# ------------------------------------------------------------------------------------------------------- kinds of variables
@spelled("static.io.is_persistable", "fluid.io.is_persistable")
def is_persistable(var: Variable) -> bool:
    """Whether a variable lives in the scope between runs."""
    return var.persistable


@spelled("static.io.is_parameter", "fluid.io.is_parameter")
def is_parameter(var: Variable) -> bool:
    """Whether a variable is a parameter."""
    return isinstance(var, Parameter)


@spelled("static.io.is_belong_to_optimizer", "fluid.io.is_belong_to_optimizer")
def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether a variable is persistable and no parameter: a moment, a learning rate, a counter."""
    return var.persistable and not isinstance(var, Parameter) and not var.need_check_feed


@spelled("fluid.io.get_program_persistable_vars", "static.io.get_program_persistable_vars")
def get_program_persistable_vars(program: AnyProgram) -> list[Variable]:
    """The persistable variables of a program."""
    return persistables(_get_valid_program(program))


@spelled("fluid.io.get_program_parameter", "static.io.get_program_parameter")
def get_program_parameter(program: AnyProgram) -> list[Variable]:
    """The parameters of a program."""
    return list(_get_valid_program(program).all_parameters())


@spelled("static.io._get_valid_program", "fluid.io._get_valid_program")
def _get_valid_program(program: AnyProgram = None) -> Program:
    """The program itself, that of a CompiledProgram, or the default main program for ``None``."""
    return default_main_program() if program is None else program_of(program, "fluid.io")


@spelled("fluid.io.get_parameter_value")
def get_parameter_value(para: Parameter, executor: Executor | None = None) -> Array:
    """A parameter's value in the global scope, as a copy.

    Raises:
        FeedError: If it has none.
    """
    check_executor(executor, "get_parameter_value")
    return values_of_variables([para], global_scope(), "get_parameter_value")[0][para.name].copy()


@spelled("fluid.io.get_parameter_value_by_name")
def get_parameter_value_by_name(name: str, executor: Executor | None = None, program: AnyProgram = None) -> Array:
    """The value of the parameter of that name in the global scope, as a copy.

    Raises:
        NotFoundError: If the program has no such parameter.
        FeedError: If it has no value.
    """
    names = {p.name: p for p in _get_valid_program(program).all_parameters()}
    if name not in names:
        raise NotFoundError(
            f"the program has no parameter '{name}'",
            expected=f"one of {', '.join(list(names)[:8]) or 'none'}",
            received=repr(name),
            fix=near(str(name), names) or "see program.all_parameters()",
            op="get_parameter_value_by_name",
            where=show(user_line()),
        )
    return get_parameter_value(names[name], executor)


# ------------------------------------------------------------------------------------------------------------------ files
def file_name(name: str) -> str:
    """The file of a variable: its name, with escapes where a file system would see more than a name."""
    safe = quote(name, safe="@ -_+=,~()[]{}", errors="surrogatepass")
    return "%2E" + safe[1:] if safe.startswith(".") else safe


def _folder(dirname: Any, function: str) -> Path:
    if not isinstance(dirname, str | Path) or not str(dirname) or "\0" in str(dirname):
        raise ProgramError(
            f"'dirname' of {function} must be a folder",
            expected="a path",
            received=repr(dirname),
            fix="pass for example './model'",
            op=function,
            where=show(user_line()),
        )
    return Path(dirname)


def _chosen(
    program: AnyProgram, variables: Any, predicate: Callable[[Variable], bool] | None, function: str
) -> list[Variable]:
    if variables is not None:
        found = list(variables)
        for var in found:
            if not isinstance(var, Variable):
                raise ProgramTypeError(
                    f"'vars' of {function} should be a list of Variable",
                    expected="Variables",
                    received=f"{var!r} of type {type(var).__name__}",
                    fix="pass [program.global_block().var(name)]",
                    op=function,
                    where=show(user_line()),
                )
        return found
    source = _get_valid_program(program)
    return [v for v in source.list_vars() if v.type == "dense_tensor" and (predicate is None or predicate(v))]


@spelled("fluid.io.save_vars", "static.io.save_vars")
def save_vars(
    executor: Executor | None,
    dirname: str,
    main_program: AnyProgram = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Saves values of the global scope to a folder.

    Each file is a checkpoint of its own: safetensors with a checksum, staged, fsynced and renamed. One file for all
    (``filename``) is the old one or the new one after a crash; with one file per variable a crash may leave some of each.

    Args:
        executor: Accepted as in Paddle.
        dirname: The folder, made if need be.
        main_program: Whose variables; the default main program if ``None``.
        vars: These variables only.
        predicate: Those of the program's variables for which it is true.
        filename: One file for all; by default one per variable.

    Raises:
        FeedError: If a variable has no value; nothing is written then.
        CheckpointError: If a file cannot be written.
    """
    check_executor(executor, "save_vars")
    folder = _folder(dirname, "save_vars")
    _write(folder, filename, _chosen(main_program, vars, predicate, "save_vars"), "save_vars", {})


def _write(
    folder: Path, filename: str | None, variables: Sequence[Variable], function: str, facts: Mapping[str, Any]
) -> None:
    scope = global_scope()
    with scope.lock:
        values, kinds = values_of_variables(variables, scope, function)
        if filename is not None:
            files = {path_of(folder / filename, function): checkpoint.encode(Checkpoint(values, kinds, facts))}
        else:
            files = {folder / file_name(n): checkpoint.encode(Checkpoint({n: a}, kinds)) for n, a in values.items()}
    for path, data in files.items():
        checkpoint.write_atomically(path, data)


@spelled("fluid.io.load_vars", "static.io.load_vars")
def load_vars(
    executor: Executor | None,
    dirname: str,
    main_program: AnyProgram = None,
    vars: Sequence[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Loads what :func:`save_vars` saved into the global scope; everything is checked before anything is written.

    Args:
        executor: Accepted as in Paddle.
        dirname: The folder.
        main_program: Whose variables; the default main program if ``None``.
        vars: These variables only.
        predicate: Those of the program's variables for which it is true.
        filename: The one file; by default there is one per variable.

    Raises:
        CheckpointError: If a file is missing or damaged, or lacks a variable.
        ShapeError: If a shape or dtype differs.
    """
    check_executor(executor, "load_vars")
    _read(_folder(dirname, "load_vars"), filename, _chosen(main_program, vars, predicate, "load_vars"), "load_vars")


def _read(folder: Path, filename: str | None, variables: Sequence[Variable], function: str) -> None:
    if filename is not None:
        path = path_of(folder / filename, function)
        values = dict(checkpoint.decode(checkpoint.read(path), path).tensors)
    else:
        values = {}
        for var in variables:
            path = folder / file_name(var.name)
            values.update(checkpoint.decode(checkpoint.read(path), path).tensors)
    check_values(variables, values, folder, function)
    scope = global_scope()
    with scope.lock:
        for var in variables:
            store(scope, var.name, values[var.name])


@spelled("fluid.io.save_params", "static.io.save_params")
def save_params(
    executor: Executor | None, dirname: str, main_program: AnyProgram = None, filename: str | None = None
) -> None:
    """Saves the parameters of a program to a folder (see :func:`save_vars`)."""
    save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@spelled("fluid.io.load_params", "static.io.load_params")
def load_params(
    executor: Executor | None, dirname: str, main_program: AnyProgram = None, filename: str | None = None
) -> None:
    """Loads what :func:`save_params` saved."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@spelled("fluid.io.save_persistables", "static.io.save_persistables")
def save_persistables(
    executor: Executor | None, dirname: str, main_program: AnyProgram = None, filename: str | None = None
) -> None:
    """Saves all persistable variables of a program to a folder (see :func:`save_vars`)."""
    save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


@spelled("fluid.io.load_persistables", "static.io.load_persistables")
def load_persistables(
    executor: Executor | None, dirname: str, main_program: AnyProgram = None, filename: str | None = None
) -> None:
    """Loads what :func:`save_persistables` saved."""
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


# ----------------------------------------------------------------------------------------------------------------- models
@spelled("fluid.io.save_inference_model")
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
        dirname: The folder, made if need be.
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
    """
    function = "fluid.io.save_inference_model"
    check_executor(executor, function)
    folder = _folder(dirname, function)
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
            where=show(user_line()),
        )
    if not program_only:
        _write(folder, params_filename, persistables(made), function, {"program": digest(data)})
    checkpoint.write_atomically(path, data)
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
            where=show(user_line()),
        )
    return [program.global_block().var(name) for name in rows]


@spelled("fluid.io.load_inference_model")
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
        pserver_endpoints: Accepted as in Paddle, for parameter servers, which tstatic does not have.

    Returns:
        ``[program, names of the inputs, Variables of the results]``.

    Raises:
        CheckpointError: If a file is missing, damaged, or not an inference model.
        ShapeError: If a value does not have its variable's shape or dtype.
    """
    function = "fluid.io.load_inference_model"
    check_executor(executor, function)
    if dirname is None:
        program = read_model(bytes_of(model_filename, function), "these bytes")
        if persistables(program):
            load_values(program, params_filename, "these bytes", function)
        return answer(program)
    folder = _folder(dirname, function)
    path = path_of(folder / (model_filename or MODEL_FILE), function)
    program = read_model(checkpoint.read(path), path)
    _read(folder, params_filename, persistables(program), function)
    return answer(program)
