"""Saves the programs of described calls, or runs saved ones: ``python -m tests.parity.saved.calls save paddle calls.json out 0``.

The first word is ``save`` or ``read``, the second the module under test, the last the number of the call to begin at: a line is
written for each call, so that the caller knows which one ended the process. Lines of ``save`` hold pickles of this test.
"""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity import runner


def wide(array: Any) -> Any:
    """An array that both sides' numpy can hold."""
    found = np.asarray(array)
    return found.astype(np.float32) if "bfloat16" in str(found.dtype) else found


def _values(program: Any, scope: Any) -> dict[str, Any]:
    """Copies of the values that a scope holds of a program's variables."""
    names = [v.name for v in program.list_vars() if v.persistable and v.name not in ("feed", "fetch")]
    tensors = {name: found.get_tensor() for name in names if (found := scope.find_var(name)) is not None}
    return {name: wide(np.array(tensor)) for name, tensor in tensors.items() if tensor._is_initialized()}


def save(paddle: Any, call: dict[str, Any]) -> dict[str, Any]:
    """The program of a call as bytes in Paddle's format, with its values, feeds and results; or why there is none."""
    static = paddle.static
    with runner.fresh(paddle) as (main, startup):
        try:
            result, builder = runner.build(paddle, call, False)
            variables = [v for v in runner.flat(paddle, result) if isinstance(v, static.Variable)]
            exe = static.Executor(paddle.CPUPlace())
            runner.start(paddle, exe, main, startup)
            used = {name for block in main.blocks for op in block.ops for name in op.input_arg_names}
            used |= {var.name for var in variables}  # a call may return what it is given
            fed = [var for var in builder.fed if var.name in used]
            program = static.normalize_program(main, fed, variables) if variables else None
            scope = static.global_scope()
            before = {} if program is None else _values(program, scope)  # the run may change them: auc counts
            results = [wide(v) for v in exe.run(main, feed=builder.feed, fetch_list=variables)]
        except Exception as error:  # what a call refuses is compared elsewhere
            return {"id": call["id"], "left": f"{type(error).__name__}: {str(error)[-200:]}"}
        if program is None:
            return {"id": call["id"], "left": "no variables"}
        if hasattr(program.desc, "get_feed_target_names"):
            model = program.desc.serialize_to_string()
        else:
            from tstatic.errors import ProgramError
            from tstatic.formats import paddle_writing

            try:
                model = paddle_writing.write(program)
            except ProgramError as error:
                return {"id": call["id"], "refused": str(error)}
        values = {**_values(program, scope), **before}
        feed = {var.name: builder.feed[var.name] for var in fed}
        return {"id": call["id"], "model": model, "values": values, "feed": feed, "results": results}


def read(paddle: Any, row: dict[str, Any]) -> str:
    """What differs where the other side runs a saved program; an empty text where nothing does."""
    static = paddle.static
    if "refused" in row:
        return str(row["refused"])
    try:
        with static.scope_guard(static.Scope()):
            program = static.Program.parse_from_string(row["model"])
            for name, value in row["values"].items():
                static.global_scope().var(name).get_tensor().set(value, paddle.CPUPlace())
            block = program.global_block()
            names = getattr(program, "fetch_names", None) or [
                op.input("X")[0] for op in block.ops if op.type == "fetch"
            ]
            exe = static.Executor(paddle.CPUPlace())
            results = exe.run(program, feed=row["feed"], fetch_list=[block.var(name) for name in names])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return next(filter(None, map(_differs, map(wide, results), row["results"])), "")


def _differs(a: Any, b: Any) -> str:
    if a.size != b.size:
        return f"shape {a.shape} instead of {b.shape}"
    wide = "complex128" if "c" in (a.dtype.kind, b.dtype.kind) else "float64"
    close = np.allclose(a.astype(wide).ravel(), b.astype(wide).ravel(), rtol=1e-4, atol=1e-4, equal_nan=True)
    return "" if close else "other values"


def packed(row: dict[str, Any]) -> str:
    """A row of :func:`save` as text."""
    return base64.b64encode(pickle.dumps(row, protocol=4)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """The row of :func:`packed`."""
    row: dict[str, Any] = pickle.loads(base64.b64decode(text))
    return row


def main(task: str, module: str, source: str, target: str, first: str) -> None:
    """Saves or reads."""
    warnings.simplefilter("ignore")
    paddle = importlib.import_module(module)
    paddle.enable_static()
    given = json.loads(Path(source).read_text())
    with open(target, "a") as file:
        for number, one in enumerate(given[int(first) :], int(first)):
            found = packed(save(paddle, one)) if task == "save" else read(paddle, unpacked(one["row"]))
            file.write(json.dumps([number, found]) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
