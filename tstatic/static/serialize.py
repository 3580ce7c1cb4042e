"""Converts the parts of an inference model to and from bytes, and writes and reads files of bytes."""

from __future__ import annotations

from typing import Any

from tstatic.ir import serial
from tstatic.ir.opdef import export
from tstatic.ir.program import Program
from tstatic.runtime import checkpoint
from tstatic.static.executor import Executor
from tstatic.static.inference import (
    bytes_of,
    check_executor,
    known_options,
    load_values,
    normalize_program,
    source_of,
    values_of,
    variables_of,
)
from tstatic.static.io import path_of, persistables, program_of


@export("static.serialize_program", "static.io.serialize_program")
def serialize_program(feed_vars: Any, fetch_vars: Any, **kwargs: Any) -> bytes:
    """Returns the inference program as bytes, for :func:`deserialize_program`.

    Args:
        feed_vars: A Variable or a list of them: the inputs.
        fetch_vars: A Variable or a list of them: the results.
        **kwargs: ``program``: that of the fetched variables by default.
    """
    options = known_options("serialize_program", kwargs, ("program",))
    fetches = variables_of(fetch_vars, "fetch_vars", "serialize_program", 1)
    source = source_of(options.get("program"), fetches, "serialize_program")
    return serial.encode(normalize_program(source, feed_vars, fetches))


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
    options = known_options("serialize_persistables", kwargs, ("program",))
    check_executor(executor, "serialize_persistables")
    fetches = variables_of(fetch_vars, "fetch_vars", "serialize_persistables", 1)
    source = source_of(options.get("program"), fetches, "serialize_persistables")
    return _values_or_none(normalize_program(source, feed_vars, fetches))


@export("static.io._serialize_persistables")
def _serialize_persistables(program: Program, executor: Executor | None) -> bytes | None:
    """Returns the values of a program's persistable variables as bytes; ``None`` if it has none."""
    check_executor(executor, "serialize_persistables")
    return _values_or_none(program_of(program, "serialize_persistables"))


def _values_or_none(program: Program) -> bytes | None:
    return values_of(program, "serialize_persistables") if persistables(program) else None


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
    check_executor(executor, "deserialize_persistables")
    if data is None and not persistables(program_of(program, "deserialize_persistables")):
        return
    load_values(program_of(program, "deserialize_persistables"), data, "these bytes", "deserialize_persistables")


@export("static.save_to_file", "static.io.save_to_file")
def save_to_file(path: str, content: bytes) -> None:
    """Writes bytes to a file: staged, fsynced and renamed.

    Raises:
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
    return checkpoint.read(path_of(path, "load_from_file"))
