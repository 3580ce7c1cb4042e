"""Makes functions and classes whose parameters are those of others: of another version of Paddle, or of another rank."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from tstatic.no_effect import ATTRIBUTE, declared

P = ParamSpec("P")
R = TypeVar("R")
ORIGIN = "__respelled__"
"""Attribute of what is made here: the original, and parameter -> the original's parameter."""
BODY = "__body__"
"""Attribute of what takes the parameters of another function: what it passes them to."""


def respelled(original: Any, name: str, takes: str, renamed: Mapping[str, str]) -> Any:
    """Returns a function, or subclass, that takes the parameters ``takes`` and passes them on to ``original``.

    The result is compiled from text, so that Python itself binds the arguments: it is as fast as a function written by hand, and a
    misspelt keyword has Python's own message.

    Args:
        original: A function or class.
        name: What the new one is called in messages.
        takes, renamed: As of ``respell`` in :mod:`tstatic.ir.export`.
    """
    called = original.__init__ if inspect.isclass(original) else original
    own = inspect.signature(original).parameters
    own_self = "self, " if inspect.isclass(original) else ""
    scope: dict[str, Any] = {"original": called, "__name__": original.__module__}
    # Without a body, only to learn the names of the parameters.
    exec(compile(f"def {name}({own_self}{takes}): pass", __file__, "exec"), scope)
    parameters = [p for p in inspect.signature(scope[name]).parameters if p != "self"]
    targets = {p: renamed.get(p, p) for p in parameters}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in own.values())
    unknown = [p for p, target in targets.items() if target not in own and not open_ended]
    assert not unknown, f"{name}: {original.__qualname__} has no parameter for {unknown}"
    passed = ", ".join(f"{target}={p}" for p, target in targets.items())
    body = f"original({own_self}{passed})" if inspect.isclass(original) else f"return original({passed})"
    exec(compile(f"def {name}({own_self}{takes}): {body}", __file__, "exec"), scope)
    function = scope[name]
    notes = getattr(inspect.unwrap(called), "__annotations__", {})
    function.__annotations__ = {p: notes[target] for p, target in targets.items() if target in notes}
    if "return" in notes:
        function.__annotations__["return"] = notes["return"]
    made = function
    if inspect.isclass(original):
        function.__name__, function.__qualname__ = "__init__", f"{original.__qualname__}.__init__"
        function.__doc__ = called.__doc__
        metaclass: Any = type(original)
        # Under the same name: users know the class by it, and `isinstance` holds.
        made = metaclass(original.__name__, (original,), {"__init__": function, "__module__": original.__module__})
        made.__qualname__ = original.__qualname__
    else:
        made.__qualname__, made.__module__ = name, original.__module__
    made.__doc__ = _doc(original.__doc__ or "", targets)
    idle = declared(original)
    setattr(made, ATTRIBUTE, {p: idle[target] for p, target in targets.items() if target in idle})
    setattr(made, ORIGIN, (original, targets))
    return made


def parameters_of(original: Callable[P, Any], **defaults: Any) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives a function the parameters of another one in its module, which it is passed by name; a decorator.

    Functions that differ in their number of axes, or in the direction, say their parameters once. As above, Python itself binds the
    arguments, and type checkers and ``setup.py`` see the parameters of ``original``.

    Args:
        original: A function without ``*``.
        defaults: Parameter -> its default here, where that is another one.

    Example:
        >>> def conv2d(x, stride=1, data_format="NCHW"): ...
        >>> @parameters_of(conv2d, data_format="NCL")
        ... def conv1d(**given):
        ...     return given
        >>> conv1d(2, stride=3)
        {'x': 2, 'stride': 3, 'data_format': 'NCL'}
    """
    parameters = inspect.signature(original).parameters
    assert not defaults.keys() - parameters.keys(), f"{original.__qualname__} has no parameter for {list(defaults)}"
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values()), "keyword-only ones are not passed on"
    given = {n: p.default for n, p in parameters.items() if p.default is not p.empty} | defaults

    def make(body: Callable[..., R]) -> Callable[P, R]:
        name = body.__name__
        # Defaults are objects, which a text cannot have: they are set below.
        takes = ", ".join(f"{n}=None" if n in given else n for n in parameters)
        passed = ", ".join(f"{n}={n}" for n in parameters)
        text = f"def closure(body):\n    def {name}({takes}): return body({passed})\n    return {name}"
        scope: dict[str, Any] = {}
        # Among the names of the body's module, to which it belongs.
        exec(compile(text, __file__, "exec"), body.__globals__, scope)
        made = scope["closure"](body)
        made.__defaults__ = tuple(given[n] for n in parameters if n in given)
        notes = {n: p.annotation for n, p in parameters.items() if p.annotation is not p.empty}
        made.__annotations__ = notes | {n: note for n, note in body.__annotations__.items() if n == "return"}
        made.__doc__, made.__qualname__ = body.__doc__, body.__qualname__
        setattr(made, BODY, body)
        return made  # type: ignore[no-any-return]

    return make


def _doc(text: str, targets: Mapping[str, str]) -> str:
    """Returns a docstring that describes the parameters under their names there, and no others."""
    names = {target: p for p, target in targets.items()}
    found: list[str] = []
    inside = kept = False
    indent = ""
    for line in inspect.cleandoc(text).splitlines():
        row = re.match(r"( +)([*\w]+(?:, [*\w]+)*)(:.*)", line) if inside else None
        if line.strip() in ("Args:", "Accepted without effect:"):
            inside, kept, indent = True, True, ""
        elif inside and not line.strip():
            inside, kept = False, True
        elif row is not None and (not indent or row[1] == indent):
            indent = row[1]
            listed = [names[one] for one in row[2].split(", ") if one in names]
            kept = bool(listed)
            line = f"{indent}{', '.join(listed)}{row[3]}"
        if kept or not inside:
            found.append(line)
    return "\n".join(found)
