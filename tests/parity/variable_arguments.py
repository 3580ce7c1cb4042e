"""Recorded calls in which a number, or a list of numbers, is a Variable, and which of them Paddle 2.6.2 accepts.

``python -m tests.parity.variable_arguments`` records its answers.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import tstatic
from tests.parity import record, runner

Call = dict[str, Any]
RECORDED = record.RECORDED.with_name("variables.json.xz")

NOT_ARGUMENTS = ("name", "x", "y", "input", "label", "dtype")
"""Parameters that are tensors anyway, or no numbers."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _items(value: Any) -> list[Any] | None:
    """The numbers of a list or tuple; ``None`` for anything else."""
    found = value["tuple"] if isinstance(value, dict) and list(value) == ["tuple"] else value
    return found if isinstance(found, list) and found and all(_is_number(item) for item in found) else None


def _variable(how: str, value: Any, dtype: str) -> dict[str, Any]:
    content = {"values": value, "dtype": dtype, "fixed": True, "stop": True}
    return {"feed": content} if how == "fed" else {"assigned": content}


def spellings(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields how an argument can be said by Variables: a word for it, and the plain data."""
    for how in ("fed", "constant"):
        if _is_number(value):
            for dtype in ("int32", "int64") if isinstance(value, int) else ("float32",):
                yield f"{how} {dtype}[]", _variable(how, value, dtype)
                yield f"{how} {dtype}[1]", _variable(how, [value], dtype)
        elif (items := _items(value)) is not None:
            for dtype in ("int32", "int64") if all(isinstance(item, int) for item in items) else ("float32",):
                yield f"{how} {dtype}[{len(items)}]", _variable(how, items, dtype)
                first = [_variable(how, items[0], dtype), *items[1:]]
                yield f"{how} {dtype}[] in a list", first
                yield f"{how} {dtype}[1] in a list", [_variable(how, [items[0]], dtype), *items[1:]]


def _signature(call: Call) -> dict[str, inspect.Parameter]:
    """The parameters that a call's numbers are arguments of."""
    try:
        found = inspect.signature(runner.find(tstatic, call["path"]))
    except (AttributeError, TypeError, ValueError):
        return {}
    return {n: p for n, p in found.parameters.items() if p.kind == p.POSITIONAL_OR_KEYWORD and n != "self"}


def _arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call by name, those of a layer for its constructor; defaults that are numbers or lists of them, too."""
    where = ("init", "init_kwargs") if "init" in call else ("args", "kwargs")
    parameters = _signature(call)
    given = dict(zip(parameters, call.get(where[0], []), strict=False)) | call.get(where[1], {})
    rest = {n: p.default for n, p in parameters.items() if n not in given}
    return {
        n: v for n, v in (given | rest).items() if n not in NOT_ARGUMENTS and (_is_number(v) or _items(v) is not None)
    }


def _with(call: Call, name: str, value: Any) -> Call:
    """The call with another value of one argument."""
    args, kwargs = ("init", "init_kwargs") if "init" in call else ("args", "kwargs")
    place = list(_signature(call)).index(name)
    if place < len(call.get(args, [])):
        return {**call, args: [*call[args][:place], value, *call[args][place + 1 :]]}
    return {**call, kwargs: {**call.get(kwargs, {}), name: value}}


def calls() -> list[Call]:
    """One call for each spelling of each argument, from the first recorded call that has a value for it."""
    recorded = record.load()
    fine = [
        c
        for c, a in zip(recorded["calls"], recorded["answers"], strict=True)
        if "raised" not in a.get("fixed", {"raised": ""})
        and not c["path"].startswith(("Variable.", "programs."))
        and c["path"] not in ("training", "network", "schedule")
    ]
    # A value that was given says more than a default.
    given: dict[tuple[str, str], tuple[bool, Call, Any]] = {}
    for call in fine:
        said = {**call.get("kwargs", {}), **call.get("init_kwargs", {})}
        positional = len(call.get("init" if "init" in call else "args", []))
        names = list(_signature(call))
        for name, value in _arguments(call).items():
            explicit = name in said or names.index(name) < positional
            key = call["path"], name
            if key not in given or (explicit and not given[key][0]):
                given[key] = explicit, call, value
    return [
        {
            **{k: v for k, v in _with(call, name, data).items() if k != "given"},
            "id": f"{call['path']}({name}: {word})",
            "plain": f"{path}({name})",
        }
        for (path, name), (_, call, value) in given.items()
        for word, data in spellings(value)
    ]


def main() -> int:
    """Records Paddle's answers to those calls that it accepts; returns the exit code."""
    if not record.PADDLE.exists():
        print(f"{record.PADDLE} is missing: python bench/paddle_env.py makes it", file=sys.stderr)
        return 1
    asked = calls()
    answers = record.answers(str(record.PADDLE), "paddle", asked)
    kept = [(c, a) for c, a in zip(asked, answers, strict=True) if "raised" not in a["fixed"]]
    record.save({"calls": [c for c, _ in kept], "answers": [record.slim(a) for _, a in kept]}, RECORDED)
    print(f"Paddle accepts {len(kept)} of {len(asked)} calls; {RECORDED.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
