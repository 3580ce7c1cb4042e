"""Which optional parameters recorded calls give another value than the default; `make parity` prints the others."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import tstatic
from tests.parity import record
from tstatic.ir.program import Variable
from tstatic.no_effect import declared

Pairs = dict[str, set[str]]
"""Public path -> parameters."""


def find(path: str) -> Any:
    """The public name at a path of a record; ``None`` for programs and what is gone."""
    owner: Any = Variable if path.startswith("Variable.") else tstatic
    for part in path.removeprefix("Variable.").split("."):
        owner = getattr(owner, part, None)
    return owner


def _signatures(call: dict[str, Any]) -> Iterator[tuple[inspect.Signature, list[Any], dict[str, Any], frozenset[str]]]:
    """Each signature that a call fills in, with what it is given: of the function, or of the class and its method."""
    found = find(call["path"])
    if found is None:
        return
    if "init" in call:
        yield inspect.signature(found), call["init"], call.get("init_kwargs", {}), frozenset(declared(found))
        found = getattr(found, call.get("method", "forward"), None)
        if not inspect.isfunction(found):
            return
        own = inspect.signature(found)
        parameters = list(own.parameters.values())[1:]
        yield own.replace(parameters=parameters), call["args"], call["kwargs"], frozenset(declared(found))
    else:
        yield inspect.signature(found), call.get("args", []), call.get("kwargs", {}), frozenset(declared(found))


def optional(signature: inspect.Signature) -> dict[str, Any]:
    """Parameter -> default; without `name`, which every function has."""
    return {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty and p.name != "name"}


def _other(value: Any, default: Any) -> bool:
    """Whether a described value is not the default; a described tensor or object never is."""
    return isinstance(value, dict) or type(value) is not type(default) or value != default


def coverage(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> tuple[Pairs, Pairs]:
    """Returns path -> parameters that a call which Paddle answers gives another value, and path -> the others."""
    given: Pairs = defaultdict(set)
    every: Pairs = defaultdict(set)
    first: dict[int, str] = {}
    for call, answer in zip(calls, answers, strict=True):
        if "path" not in call or not callable(find(call["path"])):
            continue
        # One function under several names is called under each of them.
        path = first.setdefault(id(find(call["path"])), call["path"])
        for signature, args, kwargs, idle in _signatures(call):
            defaults = {k: v for k, v in optional(signature).items() if k not in idle}
            every[path] |= set(defaults)
            if "raised" in answer["fixed"]:
                continue
            try:
                bound = signature.bind(*args, **kwargs).arguments
            except TypeError:
                continue
            given[path] |= {k for k, v in defaults.items() if k in bound and _other(bound[k], v)}
    return given, {path: left for path, names in every.items() if (left := names - given[path])}


def main() -> None:
    """Prints how many parameters the records give, and which they do not."""
    for title, recorded in (("Paddle 2.6.2", record.load()), ("Paddle 1.8.5", record.load(record.FLUID))):
        given, left = coverage(recorded["calls"], recorded["answers"])
        have, lack = (sum(map(len, pairs.values())) for pairs in (given, left))
        print(f"{title}: recorded calls give {have} of {have + lack} optional parameters another value; not given:")
        for path, names in sorted(left.items()):
            print(f"  {path}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
