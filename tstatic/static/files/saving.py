"""Saves and loads the state of programs: ``static.save``, ``static.load``, program state, variable values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from tstatic.errors import CheckpointError, FeedError, NotFoundError, ProgramError, ProgramTypeError, shown
from tstatic.formats import checkpoint, files, paddle_tensors, paddle_writing, serial
from tstatic.formats.checkpoint import Checkpoint
from tstatic.formats.files import new_stamp
from tstatic.formats.objects import dump_object
from tstatic.formats.paddle_program import is_paddle_program
from tstatic.ir.checks import check_type
from tstatic.ir.export import export
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.logs import get_logger, warn_once
from tstatic.no_effect import PLACE, no_effect
from tstatic.runtime import random
from tstatic.runtime.assign import assign
from tstatic.runtime.interrupt import check_whole
from tstatic.runtime.scope import LoDTensor, Scope, global_scope
from tstatic.static.files.loading import (
    array_of,
    check_one_save,
    check_value,
    decode_values,
    digest,
    file_name,
    is_pickle,
    origin_of_values,
    read_values,
)
from tstatic.static.run.compiled_program import CompiledProgram, settings_of
from tstatic.where import show

Array = np.ndarray[Any, Any]
PARAMETERS_SUFFIX = ".pdparams"
OPTIMIZER_SUFFIX = ".pdopt"
MODEL_SUFFIX = ".pdmodel"
VALUES_SUFFIX = ".pdiparams"


def program_of(program: Any, function: str) -> Program:
    """Returns a Program, or that of a CompiledProgram.

    Raises:
        ProgramTypeError: If it is neither.
    """
    if isinstance(program, CompiledProgram):
        return settings_of(program)[0]
    expected, fix = "a static.Program or CompiledProgram", "pass the program, for example static.default_main_program()"
    return check_type(program, Program, "program", function, expected=expected, fix=fix)


def path_of(model_path: Any, function: str) -> Path:
    """Returns a path that ends in a file name.

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
        )
    return Path(text)


def with_suffix(path: Path, suffix: str) -> Path:
    """Adds a suffix to the last part, even if that has dots."""
    return path if path.name.endswith(suffix) else path.with_name(path.name + suffix)


def persistables(program: Program) -> list[Variable]:
    """Returns the persistable variables of all blocks, in order."""
    return [v for v in program.list_vars() if v.persistable]


def state_of(program: Program, scope: Scope, function: str) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the values and kinds of a program's persistable variables.

    Raises:
        FeedError: If one has no value.
    """
    return values_of_variables(persistables(program), scope, function)


def values_of_variables(
    variables: Sequence[Variable], scope: Scope, function: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the values of variables in a scope, and the kind of each: ``"parameter"`` or ``"state"``.

    Raises:
        FeedError: If one has no value.
        DeviceError: If an interrupted step left one half written.
    """
    # Before any is read: one half-written value spoils the save.
    check_whole(scope, [var.name for var in variables], function)
    values: dict[str, Array] = {}
    kinds: dict[str, str] = {}
    for var in variables:
        array = scope._value(var.name)
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


@export("static.save", "static.io.save", "fluid.save", "fluid.io.save")
@no_effect(protocol="nothing is pickled", pickle_protocol="nothing is pickled")
def save(program: Any, model_path: str, protocol: int = 4, **configs: Any) -> None:
    """Saves a program's parameters and run count to ``<model_path>.pdparams``, and all other state to ``<model_path>.pdopt``.

    These files are in the safetensors format with checksums; ``.pdopt`` is written even if there is no other state. The program
    itself goes to ``<model_path>.pdmodel``, for ``Program.parse_from_string``. All change at one point: after a crash or an error,
    :func:`load` finds the old files or the new ones. Links are followed, and a file that is replaced keeps its mode.

    Args:
        program: A Program or CompiledProgram whose startup program has run.
        model_path: Folder and name.
        **configs: ``format="paddle"`` writes what Paddle 2.6 loads: parameters as ``.pdparams``, all other values as ``.pdopt``,
            the program as ``.pdmodel``. These files change at one point, too, but have no place for checksums and the run count.

    Raises:
        FeedError: If a persistable variable has no value.
        CheckpointError: If a file cannot be written or the disk has no room; old ones are untouched.
        ProgramError: If the program cannot be written (see :func:`tstatic.formats.serial.encode`); no file is touched.

    Example:
        >>> w = paddle.create_parameter([2], "float32", name="w")
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.save(static.default_main_program(), "model")
        >>> sorted(static.load_program_state("model"))
        ['w']
        >>> paddle.load("model.pdopt")
        {}
    """
    unknown = sorted(configs.keys() - {"pickle_protocol", "format"})
    if unknown:
        raise TypeError(f"save() got an unexpected keyword argument '{unknown[0]}'")
    source = program_of(program, "static.save")
    path = with_suffix(path_of(model_path, "static.save"), PARAMETERS_SUFFIX)
    if for_paddle(configs.get("format"), "static.save"):
        files.write(_encode_for_paddle(source, path))
        return
    # Held for all values, which are then those of one step.
    with global_scope().lock:
        parts: tuple[list[Variable], list[Variable]] = [], []
        for var in persistables(source):
            # A truth value as the index: parameters in the first list, all else in the second.
            parts[not isinstance(var, Parameter)].append(var)
        values = {path: parts[0], _beside(path, OPTIMIZER_SUFFIX): parts[1]}
        data = encode_save(values, "save", (_beside(path, MODEL_SUFFIX), serial.encode(source)), source)
    # After the lock: runs need not wait for a disk.
    files.write(data)


def for_paddle(format: Any, function: str) -> bool:
    """Returns whether files are written for Paddle, which the log says once: they carry no checksums.

    Raises:
        ProgramError: If the format is neither ``None``, ``"tstatic"`` nor ``"paddle"``.
    """
    if format not in (None, "tstatic", "paddle"):
        raise ProgramError(
            f"{function} does not know the format {format!r}",
            expected="'tstatic' or 'paddle'",
            received=shown(format),
            fix="leave it out, or pass format='paddle' for files that Paddle loads",
            op=function,
        )
    if format == "paddle":
        warn_once(
            ("format", "paddle"),
            "format='paddle': these files have no place for checksums, so damage to them is not noticed when they are loaded",
        )
    return bool(format == "paddle")


def _encode_for_paddle(program: Program, path: Path) -> dict[Path, bytes]:
    """Returns the files of ``static.save`` as Paddle writes them."""
    scope = global_scope()
    with scope.lock:
        values, kinds = state_of(program, scope, "static.save")
        parts: dict[str, dict[str, Array]] = {"parameter": {}, "state": {}}
        for name, array in values.items():
            parts[kinds[name]][name] = array
        made = {path: dump_object(parts["parameter"], checksum=False)}
        made[_beside(path, OPTIMIZER_SUFFIX)] = dump_object(parts["state"], checksum=False)
    return made | {_beside(path, MODEL_SUFFIX): paddle_writing.write(program)}


def encode_save(
    values: Mapping[Path, Sequence[Variable]],
    function: str,
    model: tuple[Path, bytes] | None = None,
    counted: Program | None = None,
) -> dict[Path, bytes]:
    """Returns the files of one save: values of the global scope, and the program that they belong to.

    All files carry the save's stamp, and those of values the program's digest, so that loading finds mixtures of two saves.

    Args:
        values: Path -> the variables that the file holds.
        function: The function that saves, for errors.
        model: Path and bytes of the program.
        counted: The program whose run count is saved.

    Raises:
        FeedError: If a variable has no value.
    """
    scope = global_scope()
    stamp = str(new_stamp(len(values) + (model is not None)))
    facts: dict[str, Any] = {"save": stamp} | ({} if model is None else {"program": digest(model[1])})
    with scope.lock:
        held, kinds = values_of_variables([var for row in values.values() for var in row], scope, function)
        if counted is not None:
            # `paddle.seed` begins an epoch in which programs count their runs from 0 again.
            epoch, count = scope.runs.get(counted.uid, (random.epoch(), 0))
            facts["run_count"] = count if epoch == random.epoch() else 0
        made = {
            path: checkpoint.encode(Checkpoint({var.name: held[var.name] for var in row}, kinds, facts))
            for path, row in values.items()
        }
    return made if model is None else made | {model[0]: serial.stamped(model[1], stamp)}


EACH_WRITER = "static.io.save_persistables, save_params or save_vars without filename"
"""What writes a folder with a file for each variable."""


def _beside(path: Path, suffix: str) -> Path:
    """Returns the path of the same save's file with another suffix."""
    return path.with_name(path.name.removesuffix(PARAMETERS_SUFFIX) + suffix)


@export("static.load", "static.io.load", "fluid.load", "fluid.io.load")
@no_effect(executor=PLACE)
def load(
    program: Any,
    model_path: str,
    executor: Any = None,
    var_list: Sequence[Variable] | None = None,
    *,
    strict: bool = True,
) -> None:
    """Loads what :func:`save` wrote, here or in Paddle, into the global scope.

    Everything is checked before anything is written, and all values are written at one point.

    Args:
        program: The program whose variables are loaded.
        model_path: As given to ``save``; the name of a safetensors file, or of one with the values of all variables that Paddle
            wrote; or a folder with a file for each variable.
        var_list: Only these variables.
        strict: ``False`` loads the values that are present and intact; a warning names the variables that are not changed.

    Raises:
        CheckpointError: If the file is missing or damaged, lacks a variable of the program, or is from another save than the
            program beside it.
        ShapeError: If shape or dtype of a variable differ.

    Example:
        >>> three = paddle.nn.initializer.Constant(3.0)
        >>> y = 2 * paddle.create_parameter([2], "float32", name="w", default_initializer=three)
        >>> exe, main = static.Executor(), static.default_main_program()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.save(main, "model")
        >>> static.set_program_state(main, {"w": np.zeros(2, "float32")})
        >>> static.load(main, "model", exe)
        >>> exe.run(fetch_list=[y])[0]
        array([6., 6.], dtype=float32)
    """
    target = program_of(program, "static.load")
    wanted = persistables(target) if var_list is None else list(var_list)
    path = _file_of_values(model_path, "static.load")
    if _is_folder(path, model_path):
        names = [path / file_name(var.name) for var in wanted]
        data = files.read(names, writer=EACH_WRITER) if strict else files.read([], names)
        assign(global_scope(), read_values(data, wanted, "load", path, strict=strict).arrays)
        return
    beside = [_beside(path, suffix) for suffix in (PARAMETERS_SUFFIX, MODEL_SUFFIX, VALUES_SUFFIX, OPTIMIZER_SUFFIX)]
    # The program's file and the optimizer's: only a save under the usual suffix has them beside it.
    data = files.read([path], beside[1::2] if path == beside[0] else ())
    values = _with_optimizer(path, data.pop(path), data.pop(beside[3], None))
    # What is left is the program's file, if there is one.
    model = next(iter(data.items()), None)
    found = read_values(values, wanted, "load", path, strict=strict, model=model, beside=lambda: beside)
    if var_list is None:
        what = f"{path} also holds values that the program has no variable for"
        _warn_unused(found.names, {var.name for var in wanted}, ("load", str(path)), what)
    count = _run_count(found.facts, path)
    # With the values, so that a resumed training draws the random numbers that come next.
    assign(global_scope(), found.arrays, None if count is None else {target.uid: (random.epoch(), count)})


def _with_optimizer(path: Path, parameters: bytes, optimizer: bytes | None) -> dict[Path, bytes]:
    """Returns the files of values of one save; a ``.pdopt`` of the other format is a leftover of another one."""
    values = {path: parameters}
    if optimizer is not None and is_pickle(optimizer) == is_pickle(parameters):
        values[_beside(path, OPTIMIZER_SUFFIX)] = optimizer
    return values


def _file_of_values(model_path: Any, function: str) -> Path:
    """Returns the file of a path: with the suffix if that file exists, else the file or folder of exactly that name."""
    given = path_of(model_path, function)
    path = with_suffix(given, PARAMETERS_SUFFIX)
    return given if given.exists() and not files.exists(path) else path


def _is_folder(path: Path, given: Any) -> bool:
    """Returns whether a user's path is that of a folder; one in the place of a file is an error that reading names."""
    return path == Path(given) and path.is_dir()


def _run_count(facts: Mapping[str, Any], path: Path) -> int | None:
    """Returns the run count of a file; ``None`` if it has no valid one.

    Raises:
        CheckpointError: If it is larger than any program can have run.
    """
    count = facts.get("run_count")
    # By type, as True is an int.
    if type(count) is not int or count < 0:
        return None
    if count >= 2**63:
        raise CheckpointError(
            f"the run count is not that of a program: {path}",
            expected="a number below 2**63",
            received=f"one of {count.bit_length()} bits",
            fix="take an older copy of the file",
        )
    return count


@export(
    "static.load_program_state",
    "static.io.load_program_state",
    "fluid.load_program_state",
    "fluid.io.load_program_state",
)
def load_program_state(
    model_path: str, var_list: Sequence[Variable] | None = None, *, strict: bool = True
) -> dict[str, Array]:
    """Reads a saved file into a dict name -> array.

    Args:
        model_path: As given to :func:`save`, here or in Paddle; or the name of a safetensors file, or of a folder with a file for
            each variable.
        var_list: Only these variables; needed for a file of Paddle that holds values without names.
        strict: ``False`` leaves out damaged values; a warning names them.

    Raises:
        CheckpointError: If the file is missing or damaged.

    Example:
        >>> three = paddle.nn.initializer.Constant(3.0)
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=three)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> static.save(static.default_main_program(), "model")
        >>> state = static.load_program_state("model")
        >>> state["w"]
        array([3., 3.], dtype=float32)
    """
    path = _file_of_values(model_path, "load_program_state")
    if _is_folder(path, model_path):
        return _state_of_folder(path, var_list)
    optimizer = _beside(path, OPTIMIZER_SUFFIX)
    data = files.read([path], [optimizer] if path.name.endswith(PARAMETERS_SUFFIX) else ())
    found: dict[str, Array] = {}
    read: dict[Path, Checkpoint] = {}
    for one, content in _with_optimizer(path, data[path], data.get(optimizer)).items():
        read[one] = decode_values(content, one, var_list or (), strict=strict)
        lost = read[one].lost
        if lost:
            get_logger().warning("%s: %d values are damaged: %s", one, len(lost), ", ".join(lost))
        found.update(read[one].tensors)
    origins = {one: origin_of_values(held.facts) for one, held in read.items()}
    # The program's file is read in doubt only: its stamp tells which save is older.
    check_one_save(origins, lambda: [*data, _beside(path, MODEL_SUFFIX)], "load_program_state")
    names = {v.name for v in var_list} if var_list is not None else set(found)
    return {n: a for n, a in found.items() if n in names}


@export(
    "static.set_program_state", "static.io.set_program_state", "fluid.set_program_state", "fluid.io.set_program_state"
)
def set_program_state(program: Any, state_dict: Mapping[str, Any]) -> None:
    """Writes values into the global scope; names that the program lacks are named in one warning.

    Args:
        program: A Program or CompiledProgram.
        state_dict: Name -> array, as :func:`load_program_state` returns it.

    Raises:
        ProgramTypeError: If ``program`` is neither.
        ShapeError: If shape or dtype of a value differ; nothing is written then.

    Example:
        >>> y = 2 * paddle.create_parameter([2], "float32", name="w")
        >>> exe, main = static.Executor(), static.default_main_program()
        >>> _ = exe.run(static.default_startup_program())
        >>> static.set_program_state(main, {"w": np.array([1, 2], "float32")})
        >>> exe.run(fetch_list=[y])[0]
        array([2., 4.], dtype=float32)
    """
    target = program_of(program, "set_program_state")
    _set_values(target, state_dict, global_scope(), "set_program_state")


def _set_values(program: Program, state: Mapping[str, Any], scope: Scope, function: str) -> None:
    """Checks values and writes those of the program's variables, all at one point."""
    known = {v.name: v for v in persistables(program)}
    arrays = {n: array_of(v, n, function) for n, v in state.items() if n in known}
    for name, array in arrays.items():
        check_value(known[name], array, function)
    # Once for each set of names, and not for every load in a loop.
    key = (function, program.uid, tuple(n for n in state if n not in known))
    _warn_unused(state, known, key, "values without a variable in the program")
    assign(scope, arrays)


def _state_of_folder(folder: Path, var_list: Sequence[Variable] | None) -> dict[str, Array]:
    """Returns the values in a folder with a file for each variable."""
    if var_list is not None:
        data = files.read([folder / file_name(var.name) for var in var_list], writer=EACH_WRITER)
        return dict(read_values(data, list(var_list), "load_program_state", folder).arrays)
    done: dict[str, Array] = {}
    # All that is there: no list says which files hold values.
    for path, content in files.read(files.listed(folder)).items():
        name = unquote(path.name)
        if paddle_tensors.is_tensors(content):
            done[name] = paddle_tensors.decode(content, 1, path)[0]
        # The folder of an inference model holds its program, too.
        elif not path.name.startswith("__") and not is_paddle_program(content):
            done.update(decode_values(content, path).tensors)
    return done


def _warn_unused(names: Iterable[Any], known: Container[str], key: Hashable, what: str) -> None:
    """Warns once of values without a variable."""
    unused = [name for name in names if name not in known]
    if unused:
        warn_once(key, f"{what}: {', '.join(map(str, unused[:8]))}")


@export("Program.state_dict")
def state_dict(self: Program, mode: str = "all", scope: Scope | None = None) -> OrderedDict[str, LoDTensor]:
    """Returns the values of persistable variables: ``"param"``, ``"opt"`` (all others) or ``"all"``.

    Args:
        mode: Which of them.
        scope: Where the values are; the global scope if ``None``.

    Raises:
        ProgramError: If the mode is another one.
        FeedError: If a variable has no value.
    """
    if mode not in ("all", "param", "opt"):
        raise ProgramError(
            f"`mode` string should be 'param', 'opt' or 'all', but received {mode}.",
            expected="'param', 'opt' or 'all'",
            received=repr(mode),
            fix="state_dict(mode='param') for parameters, 'opt' for what optimizers keep, 'all' for both",
            op="state_dict",
        )
    where = scope if scope is not None else global_scope()
    values, kinds = state_of(self, where, "state_dict")
    done: OrderedDict[str, LoDTensor] = OrderedDict()
    for name in values:
        # Whatever is not a parameter counts as the optimizer's: moments, learning rates, statistics of batch norms.
        if mode == "all" or (kinds[name] == "parameter") == (mode == "param"):
            found = where.find_var(name)
            assert found is not None
            done[name] = found.get_tensor()
    return done


@export("Program.set_state_dict")
def set_state_dict(self: Program, state_dict: Mapping[str, Any], scope: Scope | None = None) -> None:
    """Writes values of matching names; names that the program lacks are named in one warning.

    Args:
        state_dict: Name -> array or tensor.
        scope: Where the values go; the global scope if ``None``.

    Raises:
        ShapeError: If shape or dtype of a value differ; nothing is written then.
    """
    _set_values(self, state_dict, scope if scope is not None else global_scope(), "set_state_dict")


@export("Variable.get_value")
def get_value(self: Variable, scope: Scope | None = None) -> LoDTensor:
    """Returns the variable's tensor in a scope.

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
        )
    return found.get_tensor()


@export("Variable.set_value")
def set_value(self: Variable, value: Any, scope: Scope | None = None) -> None:
    """Writes the variable's value in a scope.

    Args:
        value: An array, a list or a tensor of the variable's shape and dtype.
        scope: Where the value goes; the global scope if ``None``.

    Raises:
        ProgramTypeError: If the value is not an array.
        NotFoundError: If the scope has no such variable.
        ShapeError: If shape or dtype differ.
    """
    # Tensors of other libraries convert themselves.
    if not isinstance(value, np.ndarray | LoDTensor | list | tuple) and not hasattr(value, "__array__"):
        raise ProgramTypeError(
            "`value` should be an array or a LoDTensor",
            expected="numpy.ndarray or LoDTensor",
            received=shown(value),
            fix="pass a numpy array, or a tensor of a scope",
            op="set_value",
            var=self.name,
        )
    # Refused without a first value, which the startup program makes.
    tensor = get_value(self, scope)
    array = array_of(value, self.name, "set_value")
    check_value(self, array, "set_value")
    tensor.set(array)
