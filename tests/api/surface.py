"""What is public: the modules that users import from, their names, and the names' signatures."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from tstatic.aliases import public_of
from tstatic.ir.export import namespace
from tstatic.ir.program import Variable

# Where users find names, in the order in which an object that has several is listed; the 1.x modules are found by walking.
ROOTS = (
    "tstatic", "tstatic.static", "tstatic.static.nn", "tstatic.static.io", "tstatic.static.amp",
    "tstatic.static.amp.bf16", "tstatic.static.amp.bf16.amp_lists", "tstatic.static.amp.bf16.amp_utils",
    "tstatic.static.amp.bf16.decorator", "tstatic.static.amp.decorator", "tstatic.static.amp.fp16_lists",
    "tstatic.static.amp.fp16_utils", "tstatic.nn",
    "tstatic.nn.functional", "tstatic.nn.initializer", "tstatic.nn.utils", "tstatic.optimizer", "tstatic.optimizer.lr",
    "tstatic.onnx", "tstatic.regularizer", "tstatic.metric", "tstatic.utils", "tstatic.device", "tstatic.distributed",
    "tstatic.framework", "tstatic.framework.io_utils", "tstatic.framework.random",
    "tstatic.version", "tstatic.errors", "tstatic.tensor",
    "tstatic.distributed.fleet", "tstatic.distributed.fleet.base.role_maker", "tstatic.distributed.fleet.metrics",
    "tstatic.distributed.fleet.utils", "tstatic.distributed.fleet.meta_optimizers.common", "tstatic.distributed.io",
    "tstatic.io", "tstatic.inference", "tstatic.linalg", "tstatic.fft", "tstatic.signal",
    "tstatic.geometric", "tstatic.distribution",
    "tstatic.compat", "tstatic.incubate.nn.functional",
    "tstatic.reader", "tstatic.amp", "tstatic.text", "tstatic.callbacks", "tstatic.incubate",
    "tstatic.incubate.optimizer", "tstatic.profiler", "tstatic.profiler.profiler", "tstatic.utils.profiler", "tstatic.utils.dlpack",
    "tstatic.vision.datasets", "tstatic.vision", "tstatic.vision.models", "tstatic.vision.models.resnet",
    "tstatic.vision.ops", "tstatic.vision.transforms",
)  # fmt: skip


def modules() -> list[ModuleType]:
    """Returns the public modules: the roots, then everything below ``tstatic.fluid``."""
    names = [*ROOTS, "tstatic.fluid"]
    importlib.import_module("tstatic.fluid.core")  # the only one that is not loaded with its package
    names += sorted(name for name in sys.modules if name.startswith("tstatic.fluid.") and public_of(name) == name)
    return [importlib.import_module(name) for name in names]


def names(module: ModuleType) -> list[str]:
    """Returns a module's public names: ``__all__`` (else what it defines) and what is spelled there; no modules."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    exported = namespace(public_of(module.__name__).partition(".")[2])
    found = {n for n in listed if not n.startswith("_")} | exported.keys()
    return sorted(n for n in found if not isinstance(getattr(module, n), ModuleType))


@cache
def walk() -> tuple[tuple[str, Any], ...]:
    """Returns every public path and what it leads to, methods of Variables last."""
    return tuple(_walk())


def _walk() -> Iterator[tuple[str, Any]]:
    for module in modules():
        for name in names(module):
            yield f"{public_of(module.__name__)}.{name}", getattr(module, name)
    for name, value in sorted(own(Variable).items()):
        if public(name):
            yield f"Variable.{name}", value


def own(cls: type) -> dict[str, Any]:
    """Returns what a class itself adds, by name; the part of it that has a file of its own (``VariableBase``) included."""
    parts = (c for c in reversed(cls.__mro__) if c is cls or c.__name__ == f"{cls.__name__}Base")
    return {**{name: value for part in parts for name, value in vars(part).items()}, **namespace(cls.__name__)}


def public(name: str) -> bool:
    """Whether a member is for users: no leading underscore, or an operator."""
    return not name.startswith("_") or (name.startswith("__") and name in OPERATORS)


OPERATORS = frozenset(
    f"__{side}{n}__"
    for n in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "neg", "invert", "eq", "ne",
        "lt", "le", "gt", "ge", "getitem", "setitem", "abs",
    )
    for side in ("", "r")
)  # fmt: skip


class _Shown:
    """Takes the place of a default whose ``repr`` would name its module or its address."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, default: Any) -> Any:
        named = isinstance(default, type) or inspect.isroutine(default)
        return cls(default.__qualname__) if named and default is not inspect.Parameter.empty else default


def signature(value: Any) -> str:
    """Returns parameter names and defaults, without annotations: ``(x, axis=None)``."""
    # What Python's own classes say of their arguments differs between versions.
    if inspect.isclass(value) and issubclass(value, BaseException) and not inspect.isfunction(value.__init__):
        return "(...)"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return "(value)"  # what the constructor takes beside it depends on the version of Python
    given = inspect.signature(value)
    plain = [p.replace(annotation=p.empty, default=_Shown.of(p.default)) for p in given.parameters.values()]
    return str(given.replace(parameters=plain, return_annotation=given.empty))


def members(cls: type) -> Iterator[str]:
    """Yields what a class itself adds: its methods with signatures, its properties by name."""
    if issubclass(cls, enum.Enum):
        yield from (member.name for member in cls)
        return
    for name, value in sorted(own(cls).items()):
        if not public(name):
            continue
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if inspect.isfunction(inner):
            yield name + signature(inner)
        elif isinstance(value, property) or hasattr(type(value), "__get__"):
            yield name


def lines() -> list[str]:
    """Returns one line for each public path and member; a second path of one object names the first."""
    done: list[str] = []
    first: dict[int, str] = {}
    for path, value in walk():
        shared = inspect.isroutine(value) or inspect.isclass(value)
        if shared and first.setdefault(id(value), path) != path:
            done.append(f"{path} = {first[id(value)]}")
        elif inspect.isclass(value):
            done.append(f"{path} class{signature(value)}")
            if value is not Variable:
                done += [f"{path}.{member}" for member in members(value)]
        elif inspect.isroutine(value):
            done.append(path + signature(value))
        else:
            done.append(f"{path} {type(value).__name__}")
    return done
