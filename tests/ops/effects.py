"""Which attributes of an op change something: each is set to other legal values, and results are compared."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.helpers import source
from tests.ops.sampler import Sample, backward_sample, has_backward_op, map_arrays, run, samples, sites
from tstatic.errors import TstaticError
from tstatic.ir.opdef import OPS, REQUIRED, OpDef, op_def

Array = np.ndarray[Any, Any]
Digest = tuple[Any, ...]

MOST_SITES = 12
MOST_VALUES = 8


def loaded(function: Callable[..., Any]) -> frozenset[str]:
    """Parameters whose value the function's code reads; one that a nested function reads counts."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return frozenset()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + _stars(code)]
    read = {
        name
        for one in _codes(code)
        for op in dis.get_instructions(one)
        if op.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF"))
        for name in (op.argval if isinstance(op.argval, tuple) else (op.argval,))
        # A nested function may have a variable of the same name.
        if one is code or name in one.co_freevars
    }
    return frozenset(names) & read


def _stars(code: types.CodeType) -> int:
    return bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


# --------------------------------------------------------------------------------------------------------------- values
def _stated() -> dict[str, list[Any]]:
    """Attribute name -> values that domains try, over all ops: what choices there are is said nowhere else."""
    found: dict[str, list[Any]] = {}
    for definition in OPS.values():
        if definition.domain is not None:
            for attrs in (*(c.attrs for c in definition.domain.cases), *definition.domain.attrs):
                for name, value in attrs.items():
                    if value not in found.setdefault(name, []):
                        found[name].append(value)
    return found


def other_values(definition: OpDef, name: str, value: Any, stated: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Legal values of an attribute other than ``value``: what domains name, then neighbours of the value."""
    spec = definition.attrs[name]
    assert definition.domain is not None
    own = [a[name] for a in (*(c.attrs for c in definition.domain.cases), *definition.domain.attrs) if name in a]
    near: list[Any] = [] if spec.default is REQUIRED else [spec.default]
    if isinstance(value, bool):
        near += [not value]
    elif isinstance(value, int):
        near += [value + 1, value - 1, value + 2, 0, 1, -1]
    elif isinstance(value, float):
        near += [value + 0.25, 2 * value + 0.1, 0.0, 1.0]
    elif isinstance(value, tuple | list) and all(isinstance(v, int) for v in value):
        near += [tuple(v + 1 for v in value), tuple(v - 1 for v in value), tuple(value[::-1]), (0,), (1,), ()]
    elif isinstance(value, str):
        near += [f"{value}_"]
    elif spec.kind == "dtype":
        near += ["float64", "float32", "int64", "int32"]
    strange = [v for v in stated.get(name, ()) if spec.kind in ("str", "strs", "any")]
    found: list[Any] = []
    for one in (*own, *near, *strange):
        try:
            clean = spec.clean(definition.type, name, one)
        except TstaticError:
            continue
        if repr(clean) != repr(value) and all(repr(clean) != repr(f) for f in found):
            found.append(clean)
    return found[:MOST_VALUES]


# -------------------------------------------------------------------------------------------------------------- effects
def digest(definition: OpDef, sample: Sample) -> Digest:
    """All that an op and its backward op compute; an error is a result, too."""
    try:
        outs = run(definition, sample)
    except Exception as error:  # values that the op was not made for may end in any error
        return (type(error).__name__,)
    parts: list[Any] = []
    map_over(outs, parts.append)
    if has_backward_op(definition):
        backward = op_def(f"{definition.type}_grad")
        try:
            map_over(
                run(backward, backward_sample(backward, definition, sample, np.random.default_rng(0), 0)), parts.append
            )
        except Exception as error:
            parts.append(type(error).__name__)
    return tuple(parts)


def map_over(values: Sequence[Any], add: Callable[[Any], Any]) -> None:
    for value in values:
        if isinstance(value, list | tuple):
            map_over(value, add)
        else:
            add(None if value is None else (value.shape, str(value.dtype), np.ascontiguousarray(value).tobytes()))


def variants(sample: Sample, value: Any) -> Iterator[Sample]:
    """The sample, and the same with NaN, with far-off integers, and with ``value`` among the elements."""

    def first(a: Array, element: Any) -> Array:
        changed = np.array(a, copy=True)
        with np.errstate(all="ignore"):
            changed.reshape(-1)[:1] = element
        return changed

    yield sample
    yield replace(
        sample, ins=tuple(map_arrays(lambda a: first(a, np.nan) if a.dtype.kind == "f" else a, v) for v in sample.ins)
    )
    yield replace(
        sample,
        ins=tuple(map_arrays(lambda a: a + a.dtype.type(99) if a.dtype.kind == "i" else a, v) for v in sample.ins),
    )
    if isinstance(value, int | float):
        yield replace(sample, ins=tuple(map_arrays(lambda a: first(a, value), v) for v in sample.ins))


def idle_attributes(definition: OpDef) -> set[str]:
    """Attributes that could be changed without an error, or not at all, and changed nothing in any sample.

    Those that say so themselves are tried less hard: a change of a result would show that they are wrong.
    """
    if definition.domain is None:
        return {
            name for name, spec in definition.attrs.items() if spec.kind != "block" and not _named(definition, name)
        }
    if not _STATED:
        _STATED.update(_stated())
    stated = _STATED
    todo, tried = set(definition.attrs), {n for n, spec in definition.attrs.items() if spec.no_effect}
    floats = definition.domain.floats[:1] or definition.domain.others[:1]
    count = min(len(sites(definition, definition.domain)), MOST_SITES)
    drawn = [s for s in samples(definition, 1, dtypes=floats, layouts=("contiguous",), limit=count) if not _empty(s)]
    for deep in (False, True):
        for sample in drawn:
            if not todo:
                return set()
            full = definition.complete(sample.attrs)
            for name in sorted(n for n in todo if not (deep and definition.attrs[n].no_effect)):
                for base in _bases(definition, full, name, stated) if deep else [full]:
                    if _changes(definition, sample, base, name, stated, tried, deep):
                        todo.discard(name)
                        break
    return todo & tried


_STATED: dict[str, list[Any]] = {}


def _empty(sample: Sample) -> bool:
    arrays = [a for v in sample.ins for a in (v if isinstance(v, list) else [v]) if a is not None]
    return bool(arrays) and all(a.size == 0 for a in arrays)


def _bases(
    definition: OpDef, full: Mapping[str, Any], name: str, stated: Mapping[str, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    """Attributes with one other than ``name`` changed: some act only beside another."""
    yield dict(full)
    for other in definition.attrs:
        if other != name:
            for value in other_values(definition, other, full[other], stated)[:2]:
                yield {**full, other: value}


def _changes(
    definition: OpDef, sample: Sample, base: Mapping[str, Any], name: str, stated: Mapping[str, Sequence[Any]], tried: set[str],
    deep: bool,
) -> bool:  # fmt: skip
    """Whether another value of ``name`` changes a result; an error is none, because the value may not fit."""
    values = other_values(definition, name, base[name], stated)
    if not values and definition.attrs[name].check is None:
        tried.add(name)
    for value in values:
        for one in variants(sample, value) if deep else [sample]:
            before = digest(definition, replace(one, attrs=base))
            after = digest(definition, replace(one, attrs={**base, name: value}))
            failed = [len(d) == 1 and isinstance(d[0], str) for d in (before, after)]
            if failed[1] and not (failed[0] or deep):
                continue
            tried.add(name)
            if before != after:
                return True
    return False


def _named(definition: OpDef, name: str) -> bool:
    """Whether a function of an op definition without samples reads an attribute: as its parameter, or as an entry of ``attrs``."""
    backward = [OPS[f"{definition.type}_grad"]] if f"{definition.type}_grad" in OPS else []
    functions = [
        f
        for c in (definition, *backward)
        for f in (c.infer, *c.ref.functions, c.split, c.cost, c.rows, c.prepare, c.grad)
        if callable(f)
    ]
    if any(name in loaded(f) for f in functions):
        return True
    modules = {sys.modules[f.__module__] for f in functions if hasattr(f, "__module__")}
    return any(name in _entries(inspect.getsource(module)) for module in modules)


@functools.cache
def _entries(text: str) -> frozenset[str]:
    """Texts that a module looks up: ``attrs["name"]`` and ``attrs.get("name")``."""
    found = set()
    for node in source.walk(source.parsed(text)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found.add(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            found.update(node.args[:1])
    return frozenset(n.value for n in found if isinstance(n, ast.Constant) and isinstance(n.value, str))
