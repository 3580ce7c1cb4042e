"""Saving and loading the state of programs: ``static.save``, ``static.load``, program state, variable values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError, FeedError, NotFoundError, ProgramError, ProgramTypeError, ShapeError, near
from tstatic.ir import serial
from tstatic.ir.opdef import spelled
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.types import dtype_of
from tstatic.ir.where import show, user_line
from tstatic.logs import warn_once
from tstatic.runtime import checkpoint, random
from tstatic.runtime.checkpoint import Checkpoint
from tstatic.runtime.scope import LoDTensor, Scope, global_scope
from tstatic.static.compiled_program import CompiledProgram

Array = np.ndarray[Any, Any]
PARAMETERS_SUFFIX = ".pdparams"
MODEL_SUFFIX = ".pdmodel"


def program_of(program: Any, function: str) -> Program:
    """The Program, also of a CompiledProgram.

    Raises:
        ProgramTypeError: If it is neither.
    """
    if isinstance(program, CompiledProgram):
        return program._program
    if not isinstance(program, Program):
        raise ProgramTypeError(
            f"The type of 'program' in {function} must be Program",
            expected="a static.Program or CompiledProgram",
            received=f"{program!r} of type {type(program).__name__}",
            fix="pass the program, for example static.default_main_program()",
            op=function,
            where=show(user_line()),
        )
    return program


def path_of(model_path: Any, function: str) -> Path:
    """A path that ends in a file name.

    Raises:
        ProgramError: If it does not.
    """
    text = str(model_path)
    if not isinstance(model_path, str | Path) or not text or text.endswith(("/", "\\")) or "\0" in text:
        raise ProgramError(
            f"the path given to {function} must end in a file name",
            expected="folder/name, without a suffix",
            received=repr(model_path),
            fix="pass for example 'checkpoints/model'",
            op=function,
            where=show(user_line()),
        )
    return Path(text)


def with_suffix(path: Path, suffix: str) -> Path:
    """Adds a suffix to the last part, also when it holds dots."""
    return path if path.name.endswith(suffix) else path.with_name(path.name + suffix)


def persistables(program: Program) -> list[Variable]:
    """Persistable variables of all blocks, in order."""
    return [v for v in program.list_vars() if v.persistable]


def state_of(program: Program, scope: Scope, function: str) -> tuple[dict[str, Array], dict[str, str]]:
    """Values and kinds of a program's persistable variables.

    Raises:
        FeedError: If one has no value.
    """
    return values_of_variables(persistables(program), scope, function)


def values_of_variables(
    variables: Sequence[Variable], scope: Scope, function: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """Values of variables in a scope, and the kind of each: ``"parameter"`` or ``"state"``.

    Raises:
        FeedError: If one has no value.
    """
    values: dict[str, Array] = {}
    kinds: dict[str, str] = {}
    for var in variables:
        array = scope.array(var.name)
        if array is None:
            raise FeedError(
                f"Can not find Variable '{var.name}' in the scope. Make sure it is initialized",
                expected="a value for every persistable variable",
                received="none",
                fix="run the startup program first: exe.run(static.default_startup_program())",
                op=function,
                var=var.name,
                where=show(var.made_at),
            )
        values[var.name] = array
        kinds[var.name] = "parameter" if isinstance(var, Parameter) else "state"
    return values, kinds


@spelled("static.save", "fluid.save", "fluid.io.save")
def save(program: Any, model_path: str, protocol: int = 4, **configs: Any) -> None:
    """Saves parameters and all other persistable variables of a program, with its run count, to ``<model_path>.pdparams``.

    The file is in the safetensors format with checksums. The program itself goes to ``<model_path>.pdmodel``, for
    ``Program.parse_from_string``. Both are staged, fsynced and renamed: a crash leaves the old file or the new one.
    ``protocol`` is accepted as in Paddle; nothing is pickled.

    Args:
        program: A Program or CompiledProgram whose startup program has run.
        model_path: Folder and name.

    Raises:
        FeedError: If a persistable variable has no value.
        CheckpointError: If a file cannot be written; an old one is untouched.
        ProgramError: If the program cannot be written (see :func:`tstatic.ir.serial.encode`); no file is touched.
    """
    source = program_of(program, "static.save")
    path = with_suffix(path_of(model_path, "static.save"), PARAMETERS_SUFFIX)
    scope = global_scope()
    with scope.lock:
        values, kinds = state_of(source, scope, "save")
        epoch, count = scope.runs.get(source.uid, (random.epoch(), 0))
        facts = {"run_count": count if epoch == random.epoch() else 0}
        data = checkpoint.encode(Checkpoint(values, kinds, facts))
    model = serial.encode(source)
    checkpoint.write_atomically(path, data)
    checkpoint.write_atomically(path.with_name(path.name.removesuffix(PARAMETERS_SUFFIX) + MODEL_SUFFIX), model)


@spelled("static.load", "fluid.load", "fluid.io.load")
def load(program: Any, model_path: str, executor: Any = None, var_list: Sequence[Variable] | None = None) -> None:
    """Loads what :func:`save` wrote into the global scope.

    Everything is checked before anything is written.

    Args:
        program: The program whose variables are loaded.
        model_path: As given to ``save``.
        executor: Accepted as in Paddle.
        var_list: Only these variables.

    Raises:
        CheckpointError: If the file is missing or damaged, or lacks a variable of the program.
        ShapeError: If shape or dtype of a variable differ.
    """
    target = program_of(program, "static.load")
    path = with_suffix(path_of(model_path, "static.load"), PARAMETERS_SUFFIX)
    found = checkpoint.decode(checkpoint.read(path), path)
    wanted = list(var_list) if var_list is not None else persistables(target)
    check_values(wanted, found.tensors, path, "load")
    unexpected = [n for n in found.tensors if n not in {v.name for v in wanted}] if var_list is None else []
    if unexpected:
        warn_once(
            ("load", str(path)),
            f"{path} also holds values that the program has no variable for: {', '.join(unexpected[:8])}",
        )
    scope = global_scope()
    with scope.lock:
        for var in wanted:
            store(scope, var.name, found.tensors[var.name])
        count = found.facts.get("run_count")
        if isinstance(count, int) and count >= 0:
            scope.runs[target.uid] = (random.epoch(), count)


def check_values(wanted: Sequence[Variable], values: Mapping[str, Array], source: object, function: str) -> None:
    """Checks that each variable has a value that fits.

    Raises:
        CheckpointError: If a value is missing.
        ShapeError: If a shape or dtype differs.
    """
    missing = [v.name for v in wanted if v.name not in values]
    if missing:
        raise CheckpointError(
            f"{source} lacks {len(missing)} variables of the program: {', '.join(missing[:8])}",
            expected=f"values for {len(wanted)} variables",
            received=f"values for {len(values)}: {', '.join(list(values)[:8])}",
            fix=near(missing[0], values) or "load into the program that was saved, or name the variables to load",
            var=missing[0],
            op=function,
            where=show(user_line()),
        )
    for var in wanted:
        check_value(var, values[var.name], function)


def check_value(var: Variable, array: Array, function: str) -> None:
    """Checks a value against a variable.

    Raises:
        ShapeError: If shape or dtype differ.
    """
    if tuple(array.shape) != var.shape and not (array.size == 1 and _numel(var.shape) == 1):
        raise ShapeError(
            f"{var.name} expected a shape {list(var.shape)}, but the received shape is {list(array.shape)}.",
            expected=list(var.shape),
            received=list(array.shape),
            fix="load a value of the variable's shape",
            op=function,
            var=var.name,
            where=show(user_line()),
        )
    if dtype_of(array.dtype) is not var.dtype:
        raise ShapeError(
            f"the value for '{var.name}' has another dtype",
            expected=var.dtype.name,
            received=dtype_of(array.dtype).name,
            fix=f"convert it: value.astype('{var.dtype.name}')",
            op=function,
            var=var.name,
            where=show(user_line()),
        )


def _numel(shape: Sequence[int]) -> int:
    total = 1
    for s in shape:
        total *= s
    return total


def store(scope: Scope, name: str, array: Array) -> None:
    """Writes a value through to the scope's storage, or publishes new storage."""
    old = scope.array(name)
    if old is not None and old.shape == array.shape and old.dtype == array.dtype:
        np.copyto(old, array)
        found = scope.find_var(name)
        assert found is not None
        found.scope.touched()
    else:
        scope.publish(name, array.copy())


@spelled("static.load_program_state", "fluid.load_program_state", "fluid.io.load_program_state")
def load_program_state(model_path: str, var_list: Sequence[Variable] | None = None) -> dict[str, Array]:
    """Reads a saved file into a dict name -> array."""
    path = with_suffix(path_of(model_path, "load_program_state"), PARAMETERS_SUFFIX)
    found = checkpoint.decode(checkpoint.read(path), path)
    names = {v.name for v in var_list} if var_list is not None else set(found.tensors)
    return {n: a for n, a in found.tensors.items() if n in names}


@spelled("static.set_program_state", "fluid.set_program_state", "fluid.io.set_program_state")
def set_program_state(program: Any, state_dict: Mapping[str, Any]) -> None:
    """Writes values into the global scope; names that the program lacks are named in one warning.

    Raises:
        ShapeError: If shape or dtype of a value differ; nothing is written then.
    """
    target = program_of(program, "set_program_state")
    known = {v.name: v for v in persistables(target)}
    arrays = {n: np.asarray(v) for n, v in state_dict.items()}
    for name, array in arrays.items():
        if name in known:
            check_value(known[name], array, "set_program_state")
    unused = [n for n in arrays if n not in known]
    if unused:
        warn_once(
            ("set_program_state", target.uid, tuple(unused)),
            f"values without a variable in the program: {', '.join(unused[:8])}",
        )
    for name, array in arrays.items():
        if name in known:
            store(global_scope(), name, array)


@spelled("Program.state_dict")
def state_dict(self: Program, mode: str = "all", scope: Scope | None = None) -> OrderedDict[str, LoDTensor]:
    """Values of persistable variables: ``"param"``, ``"opt"`` (all others) or ``"all"``.

    Raises:
        ProgramError: For another mode.
        FeedError: If a variable has no value.
    """
    if mode not in ("all", "param", "opt"):
        raise ProgramError(
            f"`mode` string should be 'param', 'opt' or 'all', but received {mode}.",
            expected="'param', 'opt' or 'all'",
            received=repr(mode),
            fix="choose one of these",
            op="state_dict",
            where=show(user_line()),
        )
    where = scope if scope is not None else global_scope()
    values, kinds = state_of(self, where, "state_dict")
    done: OrderedDict[str, LoDTensor] = OrderedDict()
    for name in values:
        if mode == "all" or (kinds[name] == "parameter") == (mode == "param"):
            found = where.find_var(name)
            assert found is not None
            done[name] = found.get_tensor()
    return done


@spelled("Program.set_state_dict")
def set_state_dict(self: Program, state: Mapping[str, Any], scope: Scope | None = None) -> None:
    """Writes values of matching names; names that the program lacks are named in one warning."""
    where = scope if scope is not None else global_scope()
    known = {v.name: v for v in persistables(self)}
    unused = [n for n in state if n not in known]
    if unused:
        warn_once(
            ("set_state_dict", self.uid, tuple(unused)),
            f"values without a variable in the program: {', '.join(unused[:8])}",
        )
    pairs = [(n, np.asarray(v)) for n, v in state.items() if n in known]
    for name, array in pairs:
        check_value(known[name], array, "set_state_dict")
    for name, array in pairs:
        store(where, name, array)


@spelled("Variable.get_value")
def get_value(self: Variable, scope: Scope | None = None) -> LoDTensor:
    """The variable's tensor in a scope.

    Raises:
        NotFoundError: If the scope has none.
    """
    found = (scope if scope is not None else global_scope()).find_var(self.name)
    if found is None or not found.get_tensor()._is_initialized():
        raise NotFoundError(
            f"Can not find Variable '{self.name}' in the Scope.",
            expected="a variable with a value in the scope",
            received="none",
            fix="run the startup program first, or pass the scope that holds it",
            op="get_value",
            var=self.name,
            where=show(user_line()),
        )
    return found.get_tensor()


@spelled("Variable.set_value")
def set_value(self: Variable, value: Any, scope: Scope | None = None) -> None:
    """Writes the variable's value in a scope.

    Raises:
        ProgramTypeError: If the value is no array.
        NotFoundError: If the scope has no such variable.
        ShapeError: If shape or dtype differ.
    """
    if not isinstance(value, np.ndarray | LoDTensor | list | tuple) and not hasattr(value, "__array__"):
        raise ProgramTypeError(
            "`value` should be an array or a LoDTensor",
            expected="numpy.ndarray or LoDTensor",
            received=f"{value!r} of type {type(value).__name__}",
            fix="pass an array",
            op="set_value",
            var=self.name,
            where=show(user_line()),
        )
    tensor = get_value(self, scope)
    array = np.asarray(value)
    check_value(self, array, "set_value")
    tensor.set(array)
