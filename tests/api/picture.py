"""Pictures of programs, names and objects that are compared before and after a call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tstatic import places, static
from tstatic.ir import declare, names
from tstatic.ir.operator import OperatorBase
from tstatic.ir.program import Block, Program, Variable
from tstatic.ir.types import DType

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    DType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
    PurePath,
)
_DEEPEST = 6


class World:
    """All that a call may change: both programs, names, defaults, and what it is given.

    Args:
        programs: The main program and the startup program.
        given: The arguments, and the function itself, which may be a method.
    """

    def __init__(self, programs: Sequence[Program], given: Sequence[Any]) -> None:
        self._programs = programs
        self._given = given

    def picture(self) -> dict[str, Any]:
        """Returns what is compared, by the name that a report has for it."""
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for name, program in zip(("main", "startup"), self._programs, strict=True):
            found |= _program(name, program, seen)
        found["names"] = {key: number for key, number in _counters().items() if number}
        found["defaults"] = (
            [id(p) for p in (static.default_main_program(), static.default_startup_program())],
            declare.default_dtype().name, places.get_device(),
            names.NAME_SCOPE.get(self._programs[0]), names.DEVICE.get(self._programs[0]), id(names._generator.get()),
        )  # fmt: skip
        for i, value in enumerate(self._given):
            if isinstance(value, MethodType):
                value = value.__self__
            found[f"argument {i}"] = _object(value, 0, seen)
        return found

    def difference(self, before: dict[str, Any]) -> str:
        """Returns what is not as in an earlier picture; empty if all is."""
        after = self.picture()
        different = [name for name in {**before, **after} if not _same(before.get(name), after.get(name))]
        return ", ".join(f"{name} {_shown(before.get(name), after.get(name))}" for name in different[:3])


def _same(a: Any, b: Any) -> bool:
    # NaN is itself: pictures of one object hold the very same numbers.
    return bool(repr(a) == repr(b))


def _shown(a: Any, b: Any) -> str:
    before, after = repr(a), repr(b)
    at = next((i for i, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), min(len(before), len(after)))
    return f"[{before[max(0, at - 30) : at + 60]} -> {after[max(0, at - 30) : at + 60]}]"


def _counters() -> dict[str, int]:
    """The next number of each key; a counter that has not counted yet is none."""
    return {key: int(re.sub(r"\D", "", str(count)) or 0) for key, count in names._generator.get().ids.items()}


def _program(name: str, program: Program, seen: set[int]) -> dict[str, Any]:
    seen.add(id(program))
    found: dict[str, Any] = {
        f"{name} attributes": [
            (k, _object(v, 0, seen)) for k, v in vars(program).items() if k not in ("blocks", "_last_version")
        ],
        f"{name} blocks": [id(block) for block in program.blocks],
    }
    for block in program.blocks:
        label = f"{name} block {block.idx}"
        seen.add(id(block))
        found[f"{label} attributes"] = [(k, v) for k, v in vars(block).items() if k not in ("program", "vars", "ops")]
        found[f"{label} ops"] = [_operator(op, seen) for op in block.ops]
        found[f"{label} variables"] = [(key, _variable(var, seen)) for key, var in block.vars.items()]
    return found


def _operator(op: OperatorBase, seen: set[int]) -> Any:
    return (
        id(op), op.type, dict(op.inputs), dict(op.outputs), [(k, _object(v, 3, seen)) for k, v in op.attrs.items()],
        op.role, op.role_var, op.where, op.position, op.namescope, op.device,
    )  # fmt: skip


def _variable(var: Variable, seen: set[int]) -> Any:
    return id(var), [(k, _object(v, 2, seen)) for k, v in vars(var).items() if k != "block"]


def _object(value: Any, depth: int, seen: set[int]) -> Any:
    """A picture of any object: its attributes and members, down to what is plain."""
    if isinstance(value, _PLAIN):
        return value if isinstance(value, int | float | complex | str | bytes | None) else id(value)
    if isinstance(value, np.ndarray):
        return id(value), value.shape, str(value.dtype), hash(value.tobytes()) if value.dtype != object else 0
    if isinstance(value, Program | Block | OperatorBase):
        return id(value), (value.version if isinstance(value, Program) else 0)
    if isinstance(value, Variable):
        return _variable(value, seen) if depth < 2 and id(value) not in seen else id(value)
    if depth >= _DEEPEST:
        return id(value)
    if isinstance(value, dict):
        return [(_object(k, depth + 1, seen), _object(v, depth + 1, seen)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_object(v, depth + 1, seen) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, (_object(v, depth + 1, seen) for v in value)))
    if id(value) in seen or inspect.isgenerator(value):
        return id(value)
    seen = seen | {id(value)}
    own = getattr(value, "__dict__", None)
    fields = list(own.items()) if isinstance(own, dict) else []
    fields += [
        (n, getattr(value, n, None))
        for c in type(value).__mro__
        for n in getattr(c, "__slots__", ())
        if n.isidentifier()
    ]
    return id(value), [(k, _object(v, depth + 1, seen)) for k, v in fields]
