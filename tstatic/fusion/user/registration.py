"""Writes the registration of a user's kernel as Python text: the kernel, its reference, its launch, and what it calls."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

from tstatic.errors import ProgramError
from tstatic.fusion.user.user_kernel import UserKernel, carry_names, collect, python_function
from tstatic.locks import parse_module


def registration_text(kernel: UserKernel) -> str:
    """Returns statements that register a kernel again, for a script that imports tstatic as ``paddle``.

    Kernels that compute its gradients are registered by the same text, above it.

    Raises:
        ProgramError: If a source is not available, or a function uses something that text cannot express.
    """
    # By name: a helper that several functions use is written once.
    parts: dict[str, str] = {}
    texts: list[str] = []
    _write(kernel, parts, texts)
    return "\n\n\n".join([*parts.values(), *texts])


def _write(kernel: UserKernel, parts: dict[str, str], texts: list[str]) -> str:
    """Adds a kernel's functions to ``parts`` and its own text to ``texts``; returns the name of the registered function."""
    stated = kernel.stated
    arguments = [repr(kernel.op), repr(stated["slots"])]
    arguments.append(f"reference={_function(kernel.reference, parts, f'the reference of {kernel.op!r}')}")
    arguments.append(f"launch={_function(kernel.launch, parts, f'the launch function of {kernel.op!r}')}")
    if stated["infer"] is not None:
        arguments.append(f"infer={_function(stated['infer'], parts, f'the shape rule of {kernel.op!r}')}")
    if stated["attrs"]:
        arguments.append(f"attrs={dict(stated['attrs'])!r}")
    if stated["grad"] is not None:
        arguments.append(f"grad={_gradient(stated['grad'], parts, texts, kernel.op)}")
    name = kernel.source.name
    listed = "".join(f"    {one},\n" for one in arguments)
    # Behind the kernels of its gradients, which `_gradient` has added.
    texts.append(f"{kernel.source.text}\n\n\n{name} = paddle.register_kernel(\n{listed})({name})")
    return name


def _gradient(grad: Any, parts: dict[str, str], texts: list[str], op: str) -> str:
    """Returns the text of what a registration states as ``grad``, or of one value in such a mapping."""
    registered = getattr(grad, "registered", None)
    if isinstance(registered, UserKernel):
        return _write(registered, parts, texts)
    if isinstance(grad, Mapping):
        # One function or kernel may stand under several gradients.
        values = {id(value): value for value in grad.values()}
        written = {key: _gradient(value, parts, texts, op) for key, value in values.items()}
        return f"{{{', '.join(f'{target!r}: {written[id(value)]}' for target, value in grad.items())}}}"
    return _function(grad, parts, f"the gradient of {op!r}") if callable(grad) else repr(grad)


def _function(given: Callable[..., Any], parts: dict[str, str], what: str) -> str:
    """Returns an expression for a function; adds what it needs to ``parts``."""
    function = python_function(given)
    if function is None:
        raise ProgramError(
            f"{what} cannot be written as text",
            expected="a Python function",
            received=type(given).__name__,
            fix="wrap it in a function that is defined with `def`",
        )
    if function.__name__ != "<lambda>":
        collect(function, parts, what, jit=False)
        return function.__name__
    code = function.__code__
    found = {ast.unparse(node): node for node in _lambdas(code)}
    if len(found) != 1:
        raise ProgramError(
            f"the text of {what} cannot be found",
            expected="a lambda in a file",
            received=f"{len(found)} that would fit in '{code.co_filename}'",
            fix="define it with `def`",
        )
    ((text, node),) = found.items()
    carry_names(function, ast.walk(node.body), {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}, parts, what)
    return text


def _lambdas(code: CodeType) -> Iterator[ast.Lambda]:
    """Yields the lambdas of a file that begin on a code's line and compile to it."""
    try:
        tree = parse_module("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            made = eval(compile(ast.Expression(node), code.co_filename, "eval")).__code__
            # Names of a function around it compile to other instructions in a file of their own; arguments do not.
            if made.co_varnames == code.co_varnames and _names(made) == _names(code):
                yield node


def _names(code: CodeType) -> tuple[set[str], list[Any]]:
    plain = [c for c in code.co_consts if not isinstance(c, CodeType)]
    return {*code.co_names, *code.co_freevars, *code.co_cellvars}, plain


__all__ = ["registration_text"]
