"""Saves and loads inference models: a program pruned to its results, with its parameters; as files, or as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from tstatic.errors import CheckpointError, ProgramError, ProgramTypeError, near
from tstatic.formats import checkpoint, files, paddle_tensors, paddle_writing, serial
from tstatic.formats.checkpoint import Checkpoint
from tstatic.ir import edit
from tstatic.ir.build import append_op
from tstatic.ir.checks import check_type
from tstatic.ir.opdef import EMPTY, export
from tstatic.ir.program import Program, Variable
from tstatic.ir.traits import MayLack
from tstatic.logs import warn_once
from tstatic.runtime.assign import assign
from tstatic.runtime.scope import global_scope
from tstatic.static.files.loading import read_values
from tstatic.static.files.saving import (
    MODEL_SUFFIX,
    PARAMETERS_SUFFIX,
    VALUES_SUFFIX,
    encode_save,
    for_paddle,
    path_of,
    persistables,
    program_of,
    state_of,
    values_of_variables,
    with_suffix,
)
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.run.executor import Executor
from tstatic.where import show


# ------------------------------------------------------------------------------------------------------------ arguments
def check_executor(executor: Any, function: str) -> None:
    """Checks that an argument is an Executor or ``None``; it is not used, as values are those of the global scope.

    Raises:
        ProgramTypeError: If it is neither.
    """
    expected, fix = "a static.Executor", "pass the Executor that ran the startup program"
    check_type(executor, (Executor, NoneType), "executor", function, expected=expected, fix=fix)


def variables_of(value: Any, argument: str, function: str, least: int) -> list[Variable]:
    """Returns a list of Variables, from one Variable or a list of at least ``least``.

    Raises:
        ProgramTypeError: If it is neither.
    """
    items = list(value) if isinstance(value, list | tuple) else [value]
    if len(items) < least or not all(isinstance(item, Variable) for item in items):
        raise ProgramTypeError(
            f"'{argument}' should be a Variable or a list of Variable.",
            expected="a Variable of the program, or a list of them",
            received=", ".join(f"{item!r}" for item in items if not isinstance(item, Variable))[:120]
            or "an empty list",
            fix="pass the Variables themselves, not their names or values",
            op=function,
            var=argument,
        )
    return items


def bytes_of(content: Any, function: str) -> bytes:
    """Checks that the content of a file is bytes, and returns it.

    Raises:
        ProgramTypeError: If it is not bytes.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ProgramTypeError(
            "'content' type should be bytes.",
            expected="bytes",
            received=f"{type(content).__name__}",
            fix="pass what serialize_program or serialize_persistables gave",
            op=function,
        )
    return bytes(content)


def known_options(function: str, given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Returns the keyword arguments that a function knows; a warning names the others, which are ignored."""
    for name in given:
        if name not in known:
            warn_once(
                (function, name),
                f"{function} does not know the argument '{name}' and ignores it. {near(name, known)}".rstrip(),
            )
    return {name: value for name, value in given.items() if name in known}


def source_of(program: Any, fetches: Sequence[Variable], function: str) -> Program:
    """Returns the given program, else that of the fetched variables."""
    return program_of(fetches[0].block.program if program is None else program, function)


# -------------------------------------------------------------------------------------------------------------- program
@export("static.normalize_program", "static.io.normalize_program")
def normalize_program(program: Program | CompiledProgram, feed_vars: Any, fetch_vars: Any, **kwargs: Any) -> Program:
    """Returns a copy of a program with only what leads from ``feed_vars`` to ``fetch_vars``.

    Training ops are left out and dropout and statistics frozen, as ``clone(for_test=True)`` does. Each result gets a name of
    its own by a ``scale`` by 1: ``save_infer_model/scale_0.tmp_0``, and so on. The copy knows its inputs and results:
    ``feed_names`` and ``fetch_names``.

    Args:
        program: The program.
        feed_vars: A Variable or a list of them: the inputs. They may be values inside the program.
        fetch_vars: A Variable or a list of them: the results.
        **kwargs: ``skip_prune_program=True`` keeps all forward ops.

    Raises:
        ProgramTypeError: If an argument is of the wrong type.
        ProgramError: If a result is not made by forward ops, an input has no part in the results, or the results need an
            input that is not among ``feed_vars``.
    """
    function = "normalize_program"
    options = known_options(function, kwargs, ("skip_prune_program",))
    source = program_of(program, function)
    feeds = [v.name for v in variables_of(feed_vars, "feed_vars", function, 0)]
    fetches = [v.name for v in variables_of(fetch_vars, "fetch_vars", function, 1)]
    # For inference: without the backward part, and with dropout and norms as they are then.
    twin = edit.clone(source, for_test=True)
    block = twin.global_block()
    for name in fetches:
        if name not in block.vars:
            raise ProgramError(
                f"'{name}' cannot be a result of an inference model: no forward operator makes or reads it",
                expected="a variable of the forward part of the program",
                received=repr(name),
                fix=near(name, block.vars) or "fetch a variable that was built before minimize",
                op=function,
                var=name,
            )
    results = [_result(twin, i, name) for i, name in enumerate(fetches)]
    # What is fed for an input with sequences has their offsets with it.
    fed = [*feeds, *(level for name in feeds if name in block.vars for level in block.vars[name].lod)]
    if not options.get("skip_prune_program"):
        # Pruning leaves the blocks of dropped operators; a second clone empties them.
        twin = edit.clone(edit.prune(twin, fed, results), for_test=True)
    # From the end only: attributes refer to blocks by their indices.
    while len(twin.blocks) > 1 and twin.blocks[-1].idx not in edit.used_blocks(twin):
        del twin.blocks[-1]
    _check_inputs(twin, feeds)
    for name in fed:
        var = twin.global_block().vars[name]
        var.is_data = var.stop_gradient = True
        # As in Paddle, a saved model does not check its feeds; its operators reject values that they cannot use.
        var.need_check_feed = name not in feeds
    twin.current_block_idx = 0
    twin.feed_names, twin.fetch_names = tuple(feeds), tuple(results)
    return twin


def _result(program: Program, index: int, name: str) -> str:
    """Appends the op that gives a result a name of its own."""
    block = program.global_block()
    var = block.vars[name]
    count = 0
    # A model that was saved and loaded before has results of such names already.
    while f"save_infer_model/scale_{index}.tmp_{count}" in block.vars:
        count += 1
    out = block.create_var(name=f"save_infer_model/scale_{index}.tmp_{count}", dtype=var.dtype, stop_gradient=True)
    # `scale` does not take bool.
    if var.dtype.name == "bool":
        append_op(block, "assign", {"X": var}, {"Out": out})
    else:
        append_op(block, "scale", {"X": var}, {"Out": out}, {"scale": 1.0})
    return out.name


def _check_inputs(program: Program, feeds: Sequence[str]) -> None:
    """Checks that each input leads to a result, and that the results need no other inputs."""
    block = program.global_block()
    read = {n for op in block.ops for n in op.input_arg_names}
    for name in feeds:
        if name not in block.vars or read.isdisjoint((name, *block.vars[name].lod)):
            raise ProgramError(
                f"the input '{name}' has no part in the results",
                expected="inputs that the results are computed from",
                received=repr(name),
                fix=f"take '{name}' out of feed_vars",
                op="normalize_program",
                var=name,
            )
    made = {name for feed in feeds for name in (feed, *block.vars[feed].lod)}
    for op in block.ops:
        # A branch that does not run needs none of its inputs, so inputs that only branches read may be missing.
        lacking = op.definition.slots_of(MayLack)
        needed = [n for slot, row in op.inputs.items() if slot not in lacking for n in row]
        for name in [*needed, *(n for n in op.input_arg_names if not block.vars[n].is_data)]:
            if name not in made and name != EMPTY and not block.vars[name].persistable:
                raise ProgramError(
                    f"the results need '{name}', which is not among the inputs",
                    expected=f"inputs that are enough: {', '.join([*feeds, name])}",
                    received=f"feed_vars {', '.join(feeds) or 'that are empty'}",
                    fix=f"add '{name}' to feed_vars, or fetch what does not need it",
                    op=op.type,
                    var=name,
                    where=show(op.where),
                )
        made.update(op.output_arg_names)


def _clip_extra(program: Program) -> None:
    """Removes data that only helps debugging: the user's files and lines, name scopes, devices."""
    for block in program.blocks:
        for var in block.vars.values():
            var.made_at = None
        for op in block.ops:
            op.where = None
            op.namescope = op.device = ""
            op.role_var = ()


# --------------------------------------------------------------------------------------------------------- whole models
@export("static.save_inference_model", "static.io.save_inference_model")
def save_inference_model(
    path_prefix: str, feed_vars: Any, fetch_vars: Any, executor: Executor | None, **kwargs: Any
) -> None:
    """Saves what leads from ``feed_vars`` to ``fetch_vars``: ``<path_prefix>.pdmodel`` and ``<path_prefix>.pdiparams``.

    The first holds the program (see :func:`normalize_program`), the second the values of its parameters, as safetensors.
    Both change at one point: after a crash or an error, :func:`load_inference_model` finds the old files or the new ones.

    Args:
        path_prefix: Folder and name.
        feed_vars: A Variable or a list of them: the inputs.
        fetch_vars: A Variable or a list of them: the results. Without any input or result, only a ``.pdmodel`` is written, of a
            program without operators.
        executor: Accepted as in Paddle; values are those of the global scope.
        **kwargs: ``program`` (a Program or CompiledProgram; that of the fetched variables by default);
            ``clip_extra=False`` keeps your files and lines, name scopes and devices in the saved program;
            ``skip_prune_program=True`` keeps all forward ops; ``format="paddle"`` writes what Paddle 2.6 loads, whose files have
            no place for checksums.

    Raises:
        ProgramTypeError: If an argument is of the wrong type.
        ProgramError: If inputs and results do not fit (see :func:`normalize_program`), or Paddle lacks an operator.
        FeedError: If a parameter has no value.
        CheckpointError: If a file cannot be written.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> exe = static.Executor()
        >>> static.save_inference_model("model", [x], [x * 3], exe)
        >>> program, feeds, fetches = static.load_inference_model("model", exe)
        >>> exe.run(program, feed={feeds[0]: np.array([[1, 2]], "float32")}, fetch_list=fetches)[0]
        array([[3., 6.]], dtype=float32)
    """
    function = "save_inference_model"
    # `legacy_format` chooses between two of Paddle's formats; there is one here.
    known = ("program", "clip_extra", "skip_prune_program", "legacy_format", "format")
    options = known_options(function, kwargs, known)
    paddles = for_paddle(options.get("format"), function)
    path = path_of(path_prefix, function)
    feeds = variables_of(feed_vars, "feed_vars", function, 0)
    fetches = variables_of(fetch_vars, "fetch_vars", function, 0)
    check_executor(executor, function)
    if not fetches:
        _check_no_feeds(feeds, function)
        # Nothing leads to no result: a program without operators, and no file of values.
        model = with_suffix(path, MODEL_SUFFIX), serial.encode(Program())
        empty = {model[0]: paddle_writing.write(Program())} if paddles else encode_save({}, function, model)
        files.write(empty)
        return
    source = source_of(options.get("program"), fetches, function)
    made = normalize_program(
        source, feed_vars, fetches, skip_prune_program=bool(options.get("skip_prune_program", False))
    )
    if options.get("clip_extra", True):
        _clip_extra(made)
    if paddles:
        files.write(_encode_for_paddle(made, path))
        return
    model = with_suffix(path, MODEL_SUFFIX), serial.encode(made)
    files.write(encode_save({with_suffix(path, VALUES_SUFFIX): persistables(made)}, function, model))


def _check_no_feeds(feeds: Sequence[Variable], function: str) -> None:
    """Checks that a model without results has no inputs either.

    Raises:
        ProgramError: If it has; Paddle raises a ValueError, which this is, too.
    """
    if feeds:
        raise ProgramError(
            f"input '{feeds[0].name}' has no part in the results, since fetch_vars is empty",
            expected="at least one result, or no input",
            received=f"{len(feeds)} inputs and no result",
            fix="pass what the model computes as fetch_vars",
            op=function,
            var=feeds[0].name,
        )


def _encode_for_paddle(program: Program, path: Path) -> dict[Path, bytes]:
    """Returns the files of an inference model as Paddle writes them."""
    # Paddle's file of values has no names: it is read in the order of the sorted names.
    scope, wanted = global_scope(), sorted(persistables(program), key=lambda var: var.name)
    # So that all values are of one step.
    with scope.lock:
        values = values_of_variables(wanted, scope, "save_inference_model")[0]
        content = paddle_tensors.encode([values[var.name] for var in wanted])
    return {with_suffix(path, MODEL_SUFFIX): paddle_writing.write(program), with_suffix(path, VALUES_SUFFIX): content}


@export("static.load_inference_model", "static.io.load_inference_model")
def load_inference_model(path_prefix: str | None, executor: Executor | None, **kwargs: Any) -> list[Any]:
    """Loads what :func:`save_inference_model` saved, here or in Paddle; values go to the global scope.

    Args:
        path_prefix: As given when saving; a folder, if file names are given; ``None``, if bytes are.
        executor: Accepted as in Paddle.
        **kwargs: ``model_filename`` and ``params_filename``: names in the folder, or with ``path_prefix=None`` the contents
            of the two files.

    Returns:
        ``[program, names of the inputs, Variables of the results]``, for
        ``exe.run(program, feed={name: ...}, fetch_list=results)``.

    Raises:
        CheckpointError: If a file is missing, damaged, not an inference model, or from another save than the other file.
        ShapeError: If a value does not have its variable's shape or dtype.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> exe = static.Executor()
        >>> static.save_inference_model("model", [x], [x * 3], exe)
        >>> program, feeds, fetches = static.load_inference_model("model", exe)
        >>> feeds, [v.shape for v in fetches]
        (['x'], [(-1, 2)])
    """
    function = "load_inference_model"
    options = known_options(function, kwargs, ("model_filename", "params_filename", "pserver_endpoints"))
    check_executor(executor, function)
    model_name, values_name = options.get("model_filename"), options.get("params_filename")
    if path_prefix is None:
        return load_model_bytes(model_name, values_name, function)
    if model_name is None and values_name is None:
        path = path_of(path_prefix, function)
        model, values = with_suffix(path, MODEL_SUFFIX), with_suffix(path, VALUES_SUFFIX)
    else:
        folder = Path(path_prefix)
        model = path_of(folder / str(model_name or "__model__"), function)
        values = path_of(folder / str(values_name or "__params__"), function)
    # Saving the training program under the same name replaces only one of the two files.
    beside = [model, values, model.with_name(model.name.removesuffix(MODEL_SUFFIX) + PARAMETERS_SUFFIX)]
    return load_model_files(model, lambda wanted: [values], values, function, lambda: beside)


def load_model_files(
    path: Path,
    paths_of: Callable[[Sequence[Variable]], list[Path]],
    source: Path,
    function: str,
    beside: Callable[[], Iterable[Path]],
    writer: str = "static.save_inference_model",
) -> list[Any]:
    """Loads an inference model from the files of one save; values go to the global scope.

    Args:
        path: The file of the program.
        paths_of: Returns the files that hold the values of variables.
        source: The file or folder that messages name.
        function: The function that loads the model, for errors.
        beside: Returns all files that may belong to the same saves.
        writer: What writes such files, for errors.

    Returns:
        Program, names of inputs, Variables of results.
    """
    while True:
        content = checkpoint.read(path, writer)
        program = read_model(content, path)
        wanted = persistables(program)
        # A model without variables may have been saved without a file of values.
        data = files.read([path, *(paths_of(wanted) if wanted else ())], writer=writer)
        # The program says which files to read with it, and another process may have saved another one meanwhile.
        if data.pop(path) == content:
            return _commit(program, data, function, source, (path, content), beside)


def load_model_bytes(model: Any, values: Any, function: str) -> list[Any]:
    """Loads an inference model from the contents of its two files; ``values`` may be ``None`` if the program has no variables."""
    path, source = Path("the model's bytes"), Path("the values' bytes")
    content = bytes_of(model, function)
    program = read_model(content, path)
    data = {source: bytes_of(values, function)} if values is not None or persistables(program) else {}
    return _commit(program, data, function, source, (path, content))


def _commit(
    program: Program,
    data: Mapping[Path, bytes],
    function: str,
    source: Path,
    model: tuple[Path, bytes],
    beside: Callable[[], Iterable[Path]] = tuple,
) -> list[Any]:
    """Writes the values of a loaded program to the global scope; returns program, names of inputs, Variables of results."""
    wanted = persistables(program)
    if wanted:
        assign(global_scope(), read_values(data, wanted, function, source, model=model, beside=beside).arrays)
    names = program.global_block().vars
    return [program, list(program.feed_names), [names[n] for n in program.fetch_names]]


def read_model(data: bytes, source: object) -> Program:
    """Decodes an inference program.

    Raises:
        CheckpointError: If it is damaged, or the program has no list of results.
    """
    program = serial.decode(data, source)
    # One without operators is what a save without results wrote.
    if not program.fetch_names and program.global_block().ops:
        raise CheckpointError(
            f"{source}: the program names no inputs and results, so it is not an inference model",
            expected="what save_inference_model saved",
            received="a program that static.save or serialize_to_string wrote",
            fix="read it with Program.parse_from_string, or save it with save_inference_model",
            op="load_inference_model",
        )
    return program


# ------------------------------------------------------------------------------------------------------- parts as bytes
@export("static.serialize_program", "static.io.serialize_program")
def serialize_program(feed_vars: Any, fetch_vars: Any, **kwargs: Any) -> bytes:
    """Returns the inference program as bytes, for :func:`deserialize_program`.

    Args:
        feed_vars: A Variable or a list of them: the inputs.
        fetch_vars: A Variable or a list of them: the results.
        **kwargs: ``program``: that of the fetched variables by default.
    """
    return serial.encode(_inference_program("serialize_program", feed_vars, fetch_vars, kwargs))


@export("static.deserialize_program", "static.io.deserialize_program")
def deserialize_program(data: bytes) -> Program:
    """Returns the program that :func:`serialize_program` encoded.

    Raises:
        CheckpointError: If the bytes are damaged or not a program.
    """
    return serial.decode(data)


@export("static.serialize_persistables", "static.io.serialize_persistables")
def serialize_persistables(feed_vars: Any, fetch_vars: Any, executor: Executor | None, **kwargs: Any) -> bytes | None:
    """Returns the values that the inference program needs, from the global scope, as bytes for :func:`deserialize_persistables`.

    ``None`` if it needs none.

    Args:
        feed_vars: A Variable or a list of them: the inputs.
        fetch_vars: A Variable or a list of them: the results.
        executor: Accepted as in Paddle.
        **kwargs: ``program``: that of the fetched variables by default.

    Raises:
        FeedError: If a variable has no value.
    """
    check_executor(executor, "serialize_persistables")
    return _values_or_none(_inference_program("serialize_persistables", feed_vars, fetch_vars, kwargs))


@export("static.io._serialize_persistables")
def _serialize_persistables(program: Program, executor: Executor | None) -> bytes | None:
    """Returns the values of a program's persistable variables as bytes; ``None`` if it has none.

    Args:
        program: A Program or CompiledProgram.
        executor: Accepted as in Paddle.

    Raises:
        FeedError: If a variable has no value.
    """
    check_executor(executor, "serialize_persistables")
    return _values_or_none(program_of(program, "serialize_persistables"))


def _inference_program(function: str, feed_vars: Any, fetch_vars: Any, given: Mapping[str, Any]) -> Program:
    options = known_options(function, given, ("program",))
    fetches = variables_of(fetch_vars, "fetch_vars", function, 1)
    return normalize_program(source_of(options.get("program"), fetches, function), feed_vars, fetches)


def _values_or_none(program: Program) -> bytes | None:
    """Returns a program's persistable values in the global scope as a file's bytes; ``None`` if it has no such variables."""
    if not persistables(program):
        return None
    scope = global_scope()
    with scope.lock:
        values, kinds = state_of(program, scope, "serialize_persistables")
        return checkpoint.encode(Checkpoint(values, kinds))


@export("static.deserialize_persistables", "static.io.deserialize_persistables")
def deserialize_persistables(program: Program, data: bytes | None, executor: Executor | None) -> None:
    """Writes values into the global scope; everything is checked before anything is written.

    Args:
        program: The program whose persistable variables get values.
        data: The result of :func:`serialize_persistables`; ``None`` for a program without persistable variables.
        executor: Accepted as in Paddle.

    Raises:
        CheckpointError: If the bytes are damaged or lack a variable.
        ShapeError: If a shape or dtype differs.
    """
    function = "deserialize_persistables"
    check_executor(executor, function)
    wanted = persistables(program_of(program, function))
    if data is not None or wanted:
        source = Path("these bytes")
        assign(global_scope(), read_values({source: bytes_of(data, function)}, wanted, function, source).arrays)


@export("static.save_to_file", "static.io.save_to_file")
def save_to_file(path: str, content: bytes) -> None:
    """Writes bytes to a file: staged, fsynced and renamed.

    Args:
        path: A path that ends in a file name.
        content: The bytes.

    Raises:
        ProgramError: If ``path`` does not end in a file name.
        ProgramTypeError: If ``content`` is not bytes.
        CheckpointError: If the file cannot be written; an old one is untouched.
    """
    checkpoint.write_atomically(path_of(path, "save_to_file"), bytes_of(content, "save_to_file"))


@export("static.load_from_file", "static.io.load_from_file")
def load_from_file(path: str) -> bytes:
    """Reads the bytes of a file.

    Raises:
        CheckpointError: If the file does not exist or cannot be read.
    """
    return checkpoint.read(path_of(path, "load_from_file"), "static.save_to_file")
