"""Saves and loads any nest of plain data: ``paddle.save``, ``paddle.load``, and the dicts of ``fluid.save_dygraph``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError, shown
from tstatic.formats import checkpoint, files, paddle_program, paddle_tensors, paddle_writing, serial
from tstatic.formats.objects import dump_object, load_object
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import export
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.regular import names_there
from tstatic.runtime.scope import LoDTensor, tensor_of
from tstatic.static.files.loading import LAYER_NAMES, is_pickle
from tstatic.static.files.saving import OPTIMIZER_SUFFIX, PARAMETERS_SUFFIX, for_paddle, with_suffix

Array = np.ndarray[Any, Any]


@export("save", "framework.save")
def save(obj: Any, path: Any, protocol: int = 4, **configs: Any) -> None:
    """Saves a nest of dicts, lists and tuples of tensors, arrays, numbers and texts; or one Program.

    The file is a pickle that Paddle and Python read, with a checksum behind its end. Tensors come back as tensors, bfloat16 ones as
    their bits in uint16, as numpy has no such type. Missing folders are made; after an error the old file is untouched.

    Args:
        obj: What to save: the result of ``Program.state_dict()``, for example.
        path: A path that ends in a file name, or an object with ``write``, such as a ``BytesIO``.
        protocol: Of the pickle: 2, 3 or 4.
        **configs: ``format="paddle"`` leaves the checksum away, and writes a Program as Paddle 2.6 does;
            ``use_binary_format=True`` writes one tensor as Paddle's inference models have it.

    Raises:
        ProgramTypeError: If a part is a Variable (save its value: ``x.get_value()``), or another object.
        ProgramError: If the file name is empty, the protocol is unknown, or Paddle lacks an operator of the Program.
        CheckpointError: If the file cannot be written.

    Example:
        >>> paddle.save({"w": np.array([1, 2], "float32"), "epoch": 3}, "folder/state")
        >>> paddle.load("folder/state", return_numpy=True)
        {'w': array([1., 2.], dtype=float32), 'epoch': 3}
    """
    unknown = sorted(configs.keys() - {"format", "use_binary_format", "pickle_protocol"})
    if unknown:
        raise TypeError(f"save() got an unexpected keyword argument '{unknown[0]}'")
    if type(protocol) is not int or not 1 < protocol < 5:
        raise ProgramError(
            f"Expected 1<'protocol'<5, but received protocol={protocol}",
            expected="2, 3 or 4",
            received=shown(protocol),
            fix="leave protocol out, or pass 2, 3 or 4",
            op="save",
        )
    paddles = for_paddle(configs.get("format"), "save")
    write = getattr(path, "write", None)
    target = None if callable(write) else _file(path, "save")
    if isinstance(obj, Program):
        data = paddle_writing.write(obj) if paddles else serial.encode(obj)
    elif configs.get("use_binary_format"):
        data = paddle_tensors.encode([np.asarray(_plain(obj))])
    else:
        data = dump_object(_plain(obj), protocol, checksum=not paddles)
    if target is None:
        path.write(data)
    else:
        files.write({target: data})


def _file(path: Any, function: str) -> Path:
    """Returns a path that ends in a file name.

    Raises:
        ProgramError: If it does not.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not os.path.basename(text) or "\0" in text:
        raise ProgramError(
            "The input path MUST be format of dirname/filename, but received filename is empty string.",
            expected="folder/name, or an object with 'write' and 'read'",
            received=shown(path),
            fix="pass for example 'checkpoints/state.pdparams'",
            op=function,
        )
    return Path(text)


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns a nest with arrays in the places of tensors; the writer refuses what is left."""
    if isinstance(value, Variable):
        raise ProgramTypeError(
            f"'{value.name}' is a Variable, which has no value of its own",
            expected="a value: an array or a tensor",
            received=repr(value),
            fix=f"pass the value in the scope, {value.name}.get_value(), or one that exe.run fetched",
            op="save",
            var=value.name,
        )
    # The writer names containers that are nested deeper, or in themselves.
    if depth <= 100 and isinstance(value, dict):
        return (
            # An OrderedDict stays one.
            type(value)((key, _plain(item, depth + 1)) for key, item in value.items())
            if type(value) is not dict
            else {key: _plain(item, depth + 1) for key, item in value.items()}
        )
    if depth <= 100 and isinstance(value, list | tuple):
        rows = [_plain(item, depth + 1) for item in value]
        return rows if isinstance(value, list) else tuple(rows)
    # Tensors of other libraries become arrays; numpy's own are left as they are.
    if isinstance(value, LoDTensor) or (hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic)):
        return np.asarray(value)
    return value


@export("load", "framework.load")
def load(path: Any, return_numpy: bool = False, **configs: Any) -> Any:
    """Loads what :func:`save` saved, here or in Paddle; runs no code of the file.

    Reads also what ``static.save`` wrote, as a dict, and a saved Program.

    Args:
        path: As given to ``save``; or an object with ``read``.
        return_numpy: Arrays in the places of tensors.
        **configs: ``keep_name_table=True`` keeps the table of names that Paddle's layers put beside their values.

    Raises:
        NotFoundError: If the path does not exist (also a ``ValueError``).
        CheckpointError: If the file is damaged, or holds anything but plain data.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> paddle.save([np.ones(2, "float32"), "text"], file)
        >>> tensor, text = paddle.load(io.BytesIO(file.getvalue()))
        >>> np.array(tensor), text
        (array([1., 1.], dtype=float32), 'text')
    """
    unknown = sorted(configs.keys() - {"keep_name_table", "model_filename", "params_filename"})
    if unknown:
        raise TypeError(f"load() got an unexpected keyword argument '{unknown[0]}'")
    read = getattr(path, "read", None)
    if callable(read):
        source: object = "these bytes"
        data = bytes(read())
    else:
        source, data = path, _content(path)
    if data.startswith(b"tstatic-program") or paddle_program.is_paddle_program(data):
        return serial.decode(data, source)
    return _loaded(data, source, return_numpy, bool(configs.get("keep_name_table")))


def _content(path: Any) -> bytes:
    """Returns the bytes of a file.

    Raises:
        NotFoundError: If there is none.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not text or not files.exists(Path(text)) or Path(text).is_dir():
        raise NotFoundError(
            f"The ``path`` ({path}) to load model not exists.",
            expected="the path that was given to save, or an object with 'read'",
            received=shown(path),
            fix=f"pass the whole name, suffix included; {names_there(Path(text))}" if text else "pass a path",
            op="load",
        )
    return checkpoint.read(Path(text), "paddle.save")


def _loaded(data: bytes, source: object, return_numpy: bool, keep_names: bool = False) -> Any:
    tensor: Callable[[Array], Any] = (lambda array: array) if return_numpy else tensor_of
    if paddle_tensors.is_tensors(data):
        return tensor(paddle_tensors.decode(data, 1, source)[0])
    if not is_pickle(data):
        return {name: tensor(array) for name, array in checkpoint.decode(data, source).tensors.items()}
    found = load_object(data, source)
    if isinstance(found, dict) and not keep_names:
        # Paddle keeps a table of names among the values.
        found.pop(LAYER_NAMES, None)
    # Paddle writes the tensors of its eager mode as pairs of name and array; arrays beside such pairs were arrays.
    arrays, named = _arrays_in(found)
    return _rebuilt(found, _is_named_array if named else _is_array, tensor) if arrays else found


def _is_named_array(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], np.ndarray)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _arrays_in(value: Any) -> tuple[bool, bool]:
    """Returns whether a nest has arrays, and whether one of them has a name; each part is looked at once, without recursion."""
    nest, seen = [value], set()
    arrays = False
    for part in nest:  # it grows while it is read
        if isinstance(part, np.ndarray):
            arrays = True
        elif isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))
            if _is_named_array(part):
                return True, True
            nest.extend(part.values() if isinstance(part, dict) else part)
    return arrays, False


def _rebuilt(
    value: Any, wanted: Callable[[Any], bool], tensor: Callable[[Array], Any], made: dict[int, Any] | None = None
) -> Any:
    """Returns a nest with tensors in the places of what is wanted; a part that is there twice is one part in the result, too."""
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if wanted(value):
        made[id(value)] = tensor(value[1] if isinstance(value, tuple) else value)
    elif isinstance(value, dict):
        # Before its items, one of which may be the dict itself.
        made[id(value)] = value
        for key in value:
            value[key] = _rebuilt(value[key], wanted, tensor, made)
    elif isinstance(value, list):
        made[id(value)] = value
        value[:] = [_rebuilt(item, wanted, tensor, made) for item in value]
    elif isinstance(value, tuple):
        # A tuple can hold itself only through a list or dict, which is known by then.
        made[id(value)] = tuple([_rebuilt(item, wanted, tensor, made) for item in value])
    return made.get(id(value), value)


# ------------------------------------------------------------------------------------------------------- dicts of Paddle 1.x
@export("fluid.save_dygraph", "fluid.dygraph.save_dygraph")
def save_dygraph(state_dict: Mapping[str, Any], model_path: str) -> None:
    """Saves a dict name -> tensor or array to ``<model_path>.pdparams``, as Paddle 1.x does.

    A dict that holds variables of the default main program, but none of its parameters, is an optimizer's: it goes to
    ``<model_path>.pdopt``.

    Args:
        state_dict: The values, such as ``program.state_dict()``.
        model_path: Folder and name.

    Raises:
        ProgramError: If the dict is empty, or the path does not end in a name.

    Example:
        >>> fluid.save_dygraph({"w": np.ones(2, "float32")}, "model")
        >>> parameters, optimizer = fluid.load_dygraph("model")
        >>> parameters["w"], optimizer
        (array([1., 1.], dtype=float32), None)
    """
    if not isinstance(state_dict, Mapping) or not state_dict:
        raise ProgramError(
            "state_dict is empty, no need to save",
            expected="a dict name -> value with at least one",
            received=shown(state_dict),
            fix="pass program.state_dict()",
            op="save_dygraph",
        )
    known = [var for var in default_main_program().list_vars() if var.name in state_dict]
    # As in Paddle: a dict of variables that are known, none of them a parameter, is what an optimizer keeps.
    optimizer = bool(known) and not any(isinstance(var, Parameter) for var in known)
    save(
        dict(state_dict),
        with_suffix(_file(model_path, "save_dygraph"), OPTIMIZER_SUFFIX if optimizer else PARAMETERS_SUFFIX),
    )


@export("fluid.load_dygraph", "fluid.dygraph.load_dygraph")
def load_dygraph(model_path: str, **configs: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Loads the dicts that :func:`save_dygraph` saved, here or in Paddle, as arrays.

    Args:
        model_path: As given when saving, with or without a suffix.
        **configs: As of :func:`load`.

    Returns:
        The values of ``.pdparams`` and of ``.pdopt``; ``None`` in the place of a file that does not exist.

    Raises:
        NotFoundError: If neither exists.
        CheckpointError: If one is damaged.
    """
    stem = _file(model_path, "load_dygraph")
    # Either of the two files may be named; both are looked for.
    for suffix in (PARAMETERS_SUFFIX, OPTIMIZER_SUFFIX):
        stem = stem.with_name(stem.name.removesuffix(suffix))
    paths = [with_suffix(stem, suffix) for suffix in (PARAMETERS_SUFFIX, OPTIMIZER_SUFFIX)]
    if not any(map(files.exists, paths)):
        raise NotFoundError(
            f"The ``path`` ({model_path}) to load model not exists.",
            expected=f"{paths[0]} or {paths[1]}",
            received="neither",
            fix=f"pass the path that was given to save_dygraph; {names_there(paths[0])}",
            op="load_dygraph",
        )
    first, second = (load(path, return_numpy=True, **configs) if files.exists(path) else None for path in paths)
    return first, second
