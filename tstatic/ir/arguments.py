"""Calls that do not fit a public function: what it takes, and which keyword is like the misspelt one."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from tstatic.errors import near

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])

_MISSPELT = re.compile(r"unexpected keyword argument '(\w+)'")


def notes_signature(function: F, name: str) -> F:
    """Makes a function or class note what it takes when it is called with arguments that do not fit.

    Python names the inner function and, before version 3.13, no keyword like the misspelt one.

    Args:
        function: A function, which is wrapped, or a class, whose own ``__init__`` is.
        name: What users call it: ``"fluid.layers.fc"``.

    Returns:
        What to call in place of ``function``; a class itself.

    Example:
        >>> import tstatic.fluid as fluid
        >>> fluid.layers.fc(input=None, sise=10)
        Traceback (most recent call last):
        TypeError: fluid_fc() got an unexpected keyword argument 'sise'
        did you mean 'size'? fluid.layers.fc(input, size, num_flatten_dims=1, ...)
    """
    if inspect.isfunction(function):
        return _noting(function, function, name)
    if inspect.isclass(function) and inspect.isfunction(vars(function).get("__init__")):
        function.__init__ = _noting(function.__init__, function, name)
    return function


def notes_signatures(cls: type[C]) -> type[C]:
    """Makes a class and its public methods do what :func:`notes_signature` says; a class decorator."""
    notes_signature(cls, cls.__name__)
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(cls, name, _noting(method, method, f"{cls.__name__}.{name}"))
    return cls


def _noting(call: Any, shown: Any, name: str) -> Any:
    @functools.wraps(call)
    def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except TypeError as error:
            # Raised by the call itself, not inside of it: there is no frame below this one.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                error.add_note(_note(str(error), inspect.signature(shown), name))
            raise

    return noting


def _note(message: str, signature: inspect.Signature, name: str) -> str:
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    misspelt = _MISSPELT.search(message)
    keywords = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    close = near(misspelt[1], keywords) if misspelt else ""
    takes = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return f"{close} {name}{takes}".lstrip()
