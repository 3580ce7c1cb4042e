"""Exports what leads from inputs to results as a model in ONNX, from the unfused program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, TstaticError, UnsupportedError, needed_for
from tstatic.formats import files
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, freeze
from tstatic.ir.onnx_form import emit, reason_of
from tstatic.ir.onnx_graph import OPSET, Graph, OnnxNode, Value
from tstatic.ir.opdef import EMPTY, export
from tstatic.ir.program import Program
from tstatic.passes.dce import dce
from tstatic.runtime.scope import Scope, global_scope
from tstatic.static.files.inference import normalize_program, source_of, variables_of
from tstatic.static.files.onnx_model import model_of
from tstatic.static.files.saving import path_of, persistables, values_of_variables, with_suffix
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.where import show

SUFFIX = ".onnx"
FUNCTION = "onnx.export"
MOST_BYTES = 2**31 - 1
"""The largest message that protobuf reads."""


@export("onnx.export")
def export_onnx(
    path_prefix: str,
    feed_vars: Any = None,
    fetch_vars: Any = None,
    program: Program | CompiledProgram | None = None,
    opset_version: int = OPSET,
    **kwargs: Any,
) -> str:
    """Exports what leads from ``feed_vars`` to ``fetch_vars`` to the file ``<path_prefix>.onnx``.

    The model has the inputs' and results' names, types and shapes (a size of ``None`` stays open), and the values that
    parameters have in the global scope. As in :func:`normalize_program`, dropout and statistics are frozen and training ops left
    out. Fusions have no part in it: operators are written one by one.

    Args:
        path_prefix: Folder and name.
        feed_vars: A Variable or a list of them: the inputs.
        fetch_vars: A Variable or a list of them: the results.
        program: Their program; by default that of the results.
        opset_version: Version of ONNX's operators; there is one, 18.
        **kwargs: There are none; the error for ``path`` and ``input_spec``, which Paddle's function for Layers takes, says how
            a program is exported.

    Returns:
        The file's path.

    Raises:
        ProgramTypeError: If an argument is of the wrong type, as a Layer is.
        ProgramError: If inputs and results do not fit (see :func:`normalize_program`), or for another ``opset_version``.
        UnsupportedError: If an operator has no form in ONNX (its line and the reason are named), or needs a size that is
            not known; or if the model would have 2 GiB.
        FeedError: If a parameter has no value.
        MissingPackageError: If the package ``onnx`` is not installed.
        CheckpointError: If the file cannot be written.

    Example:
        >>> x = static.data("x", [None, 4])
        >>> y = static.nn.fc(x, 3, activation="relu")
        >>> exe = static.Executor()
        >>> exe.run(static.default_startup_program())
        []
        >>> paddle.onnx.export("net", [x], [y])
        'net.onnx'
    """
    _check_arguments(path_prefix, opset_version, kwargs)
    path = path_of(path_prefix, FUNCTION)
    feeds = [v.name for v in variables_of(feed_vars, "feed_vars", FUNCTION, 0)]
    fetches = variables_of(fetch_vars, "fetch_vars", FUNCTION, 1)
    # What is fetched twice is one result of the model.
    names = list(dict.fromkeys(v.name for v in fetches))
    pruned = normalize_program(source_of(program, fetches, FUNCTION), feed_vars, fetches)
    model = build_model(pruned, feeds, names, global_scope(), path.name)
    target = with_suffix(path, SUFFIX)
    with needed_for("export to ONNX"):
        from google.protobuf.message import EncodeError
    try:
        content = model.SerializeToString()
    # Which of them a message above 2 GiB raises depends on how protobuf is implemented.
    except (EncodeError, ValueError):
        # Told below, together with a message that protobuf writes and could not read.
        content = None
    if content is None or len(content) > MOST_BYTES:
        raise UnsupportedError(
            f"the model '{target.name}' is too large for one file of ONNX",
            expected=f"at most {MOST_BYTES} bytes, parameters included",
            received="more",
            fix="export parts of the network as models of their own",
            op=FUNCTION,
        )
    files.write({Path(target): content})
    return str(target)


def _check_arguments(path_prefix: Any, opset_version: Any, others: Mapping[str, Any]) -> None:
    if others or not isinstance(path_prefix, str | Path):
        raise ProgramTypeError(
            f"{FUNCTION} exports static programs, and its first argument is the path",
            expected="a path such as 'models/net', then the inputs and the results",
            received=", ".join(
                [type(path_prefix).__name__, *(f"{name}={value!r:.40}" for name, value in others.items())]
            ),
            fix="call paddle.onnx.export(path_prefix, feed_vars, fetch_vars); a Layer is exported by the Variables it gives",
            op=FUNCTION,
            var="path_prefix",
        )
    if isinstance(opset_version, bool) or opset_version != OPSET:
        raise ProgramError(
            f"{FUNCTION} writes operators of version {OPSET}",
            expected=f"opset_version={OPSET}",
            received=repr(opset_version),
            fix=f"leave opset_version out; onnx.version_converter makes other versions of a model of {OPSET}",
            op=FUNCTION,
            var="opset_version",
        )


def build_model(program: Program, feeds: Sequence[str], fetches: Sequence[str], scope: Scope, name: str) -> Any:
    """Returns the ``onnx.ModelProto`` of a program without training ops.

    Raises:
        UnsupportedError: If an operator has no form in ONNX.
        FeedError: If a parameter has no value in the scope.
    """
    frozen = freeze(program, feeds, fetches)
    # What a run would write to state (running statistics) does not belong to the model.
    frozen = dce(frozen.edit(writes={}))
    _check_forms(frozen)
    wanted = set(frozen.reads)
    with scope.lock:
        given, _ = values_of_variables([v for v in persistables(program) if v.name in wanted], scope, FUNCTION)
        # Copies: once the lock is free, runs change the scope's arrays in place.
        values = {n: np.array(v) for n, v in given.items()}
    g = Graph()
    known = {n: Value(n, frozen.metas[n].dtype, frozen.metas[n].shape) for n in frozen.feeds}
    for variable, value in frozen.reads.items():
        array = values[variable]
        g.constants[variable] = array
        meta = frozen.metas.get(value)
        assert meta is not None
        known[value] = Value(variable, meta.dtype, array.shape, array)
    for op in frozen.ops:
        _add(g, op, frozen, known)
    outputs, rename = _results(g, frozen, known)
    return model_of(g, [known[n] for n in frozen.feeds], outputs, name, rename)


def _results(g: Graph, frozen: FrozenProgram, known: Mapping[str, Value]) -> tuple[list[Value], dict[str, str]]:
    """Returns the model's results, and the new names of values that are results."""
    made = {n for node in g.nodes for n in node.outputs}
    outputs: list[Value] = []
    rename: dict[str, str] = {}
    for asked, value in frozen.fetches:
        found = known[value]
        # A new name for a value is free; a second one takes an Identity.
        if found.name in made and found.name not in rename:
            rename[found.name] = asked
        elif found.name != asked or asked in frozen.feeds:
            # An input, a parameter or another result: it keeps its name.
            asked = asked if asked not in frozen.feeds and asked not in g.constants else f"{asked}/out"
            g.nodes.append(OnnxNode("Identity", (found.name,), (asked,), {}))
        outputs.append(Value(asked, found.dtype, found.dims))
    return outputs, rename


def _check_forms(frozen: FrozenProgram) -> None:
    """Refuses a program with operators that have no form in ONNX, all of them at once.

    Raises:
        UnsupportedError: Names the first and its line, and the others.
    """
    lacking = [op for op in frozen.ops if reason_of(op.definition)]
    if not lacking:
        return
    first = lacking[0]
    others = sorted({op.type for op in lacking} - {first.type})
    raise UnsupportedError(
        f"operator '{first.type}' cannot be exported to ONNX: {reason_of(first.definition)}"
        + (f"; nor can {', '.join(others)}" if others else ""),
        expected="operators with a form in ONNX",
        received=f"{len(lacking)} of {len(frozen.ops)} operators without one",
        fix="feed what these operators make, or fetch what they read, and compute them outside the model",
        op=first.type,
        where=show(first.where) if first.where else None,
    )


def _add(g: Graph, op: FrozenOp, frozen: FrozenProgram, known: dict[str, Value]) -> None:
    """Adds an operator's nodes, and its results to the known values."""

    def read(entry: Entry) -> Any:
        if isinstance(entry, tuple):
            return [None if n == EMPTY else known[n] for n in entry]
        return None if entry is None else known[entry]

    def meta(entry: Entry) -> Any:
        if isinstance(entry, tuple):
            return [None if n == EMPTY else frozen.metas[n] for n in entry]
        return None if entry is None else frozen.metas[entry]

    first = next(iter(op.writes()), op.type)
    try:
        made = emit(g, op.definition, [read(e) for e in op.inputs], op.attrs, [meta(e) for e in op.outputs], first)
    except TstaticError as error:
        raise error.add_context(op=op.type, where=show(op.where) if op.where else None) from None
    for entry, value in zip(op.outputs, made, strict=True):
        if entry is None or value is None:
            continue
        names, values = (entry, value) if isinstance(entry, tuple) else ((entry,), (value,))
        known.update({n: v for n, v in zip(names, values, strict=True) if v is not None and n != EMPTY})
