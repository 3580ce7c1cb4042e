"""Which public functions have recorded calls and gradients of Paddle; `make parity` prints the others with their reasons."""

from __future__ import annotations

import inspect
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tstatic
from tests.api import surface
from tests.parity import record, runner
from tests.parity.attributes import find
from tests.parity.reasons import ELSEWHERE, NO_CALL, NO_GRADIENT, OF_PROGRAMS, OTHER_MODULES
from tstatic.ir.opdef import OPS

TESTS = Path(__file__).resolve().parent.parent


@dataclass
class Facts:
    """What the records say of one public function.

    Attributes:
        calls: The described calls that Paddle answers.
        gradient: Whether one of the answers holds a gradient.
    """

    calls: list[dict[str, Any]] = field(default_factory=list)
    gradient: bool = False


@cache
def every() -> dict[str, Any]:
    """Public functions and classes by the first path that each has, below `tstatic`."""
    found: dict[int, tuple[str, Any]] = {}
    for path, value in surface.walk():
        if callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException)):
            found.setdefault(id(value), (path.removeprefix("tstatic."), value))
    return dict(found.values())


@cache
def public() -> dict[str, Any]:
    """Those whose results are numbers of programs: they need a recorded call."""
    return {path: value for path, value in every().items() if not _module(path).startswith(tuple(OTHER_MODULES))}


def _module(path: str) -> str:
    return path.rpartition(".")[0] + "."


def facts(recorded: list[dict[str, Any]]) -> dict[int, Facts]:
    """Identity of a public object -> what the records say of it.

    Args:
        recorded: Records, as `record.load` returns them.
    """
    found: dict[int, Facts] = defaultdict(Facts)
    for one in recorded:
        for call, answer in zip(one["calls"], one["answers"], strict=True):
            if "raised" in answer["fixed"]:
                continue
            for path in _names(call):
                entry = found[id(find(path))]
                entry.calls.append(call)
                entry.gradient |= _has_gradient(call, answer)
    return found


def _names(call: dict[str, Any]) -> list[str]:
    """Public paths that a call is a call of."""
    path = call["path"]
    if path == "training":
        kind, decay, clip, _ = call["choice"]
        more = [f"regularizer.{decay}"] if decay.endswith("Decay") else []
        return [f"optimizer.{kind.partition(' ')[0]}", *more, *([f"nn.{clip}"] if clip != "none" else [])]
    if path == "schedule":
        return [f"optimizer.lr.{call['name']}"]
    if path == "programs.initial":
        return [call["args"][1]["make"]["path"]]
    return OF_PROGRAMS.get(path, [path])


def _has_gradient(call: dict[str, Any], answer: dict[str, Any]) -> bool:
    if call["path"] in ("training", "network"):
        return True
    return any(
        any(g is not None for g in part.get("grads") or []) or any(part.get("given") or [])
        for part in answer.values()
        if isinstance(part, dict)
    )


@cache
def _elsewhere(file: str) -> tuple[Any, str]:
    """A record of another folder, and the text of the programs beside it."""
    path = TESTS / file
    sources = "".join(p.read_text(encoding="utf-8") for p in sorted(path.parent.glob("*.py")))
    return json.loads(path.read_text(encoding="utf-8")), sources


def pointed_at(path: str) -> str:
    """Why an entry of `ELSEWHERE` does not hold; an empty text if it does."""
    file, _, keys = ELSEWHERE[path].partition(": ")
    held, sources = _elsewhere(file)
    for key in keys.split(" > "):
        if not isinstance(held, dict) or not held.get(key):
            return f"{file} has no {keys!r}"
        held = held[key]
    leaf = path.rpartition(".")[2].removesuffix("Optimizer")
    return "" if re.search(rf"\b{re.escape(leaf)}", sources) else f"no program beside {file} says {leaf!r}"


def makes_gradient(calls: list[dict[str, Any]]) -> str:
    """The first operator that has a gradient and reads floats, of what the calls build; an empty text if there is none."""
    for call in calls:
        if call["path"] in ("training", "schedule", "network"):
            continue
        with runner.fresh(tstatic) as (main, _):
            try:
                runner.build(tstatic, call, False)
            except Exception:  # what tstatic refuses is a difference that test_recorded.py judges
                continue
            for op in (op for block in main.blocks for op in block.ops):
                reads = [
                    main.global_block().var(name) for name in op.input_arg_names if main.global_block().has_var(name)
                ]
                floats = any(v._dtype is not None and v.dtype.name.startswith(("float", "complex")) for v in reads)
                if floats and OPS[op.type].grad is not None:
                    return str(op.type)
    return ""


@dataclass(frozen=True)
class Census:
    """Public paths: without a call that Paddle answers, and with calls but no gradient although an operator has one."""

    uncalled: frozenset[str]
    ungraded: dict[str, str]
    both: int


def take(recorded: list[dict[str, Any]]) -> Census:
    """Counts the records over all public functions."""
    known = facts(recorded)
    uncalled, ungraded, both = set(), {}, 0
    for path, value in public().items():
        if path in ELSEWHERE:
            both += 1
        elif id(value) not in known:
            uncalled.add(path)
        elif known[id(value)].gradient:
            both += 1
        elif op := makes_gradient(known[id(value)].calls):
            ungraded[path] = op
    return Census(frozenset(uncalled), ungraded, both)


def main() -> None:
    """Prints the counts and each path without a call or a gradient, with the reason."""
    census = take([record.load(), record.load(record.FLUID)])
    print(f"{len(public())} public functions: {census.both} have a recorded gradient")
    print(f"{len(census.uncalled)} have no call that Paddle answers:")
    for path in sorted(census.uncalled):
        print(f"  {path}: {NO_CALL.get(path, 'NO REASON')}")
    print(f"{len(census.ungraded)} have an operator with a gradient, and no recorded gradient:")
    for path in sorted(census.ungraded):
        print(f"  {path} ({census.ungraded[path]}): {NO_GRADIENT.get(path, 'NO REASON')}")


if __name__ == "__main__":
    main()
