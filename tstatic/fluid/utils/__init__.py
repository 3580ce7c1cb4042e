"""``paddle.utils``: unique names, version checks and an installation check.

* ``environments``  variables of the environment as values of one type
* ``dlpack``  values of tensors for other libraries, and theirs as tensors
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from tstatic.errors import MissingPackageError, ProgramError
from tstatic.fluid.utils import dlpack
from tstatic.ir import names as unique_name
from tstatic.ir.checks import check_type
from tstatic.ir.export import door, facade_module
from tstatic.no_effect import no_effect
from tstatic.ops.reduce.reduction import mean
from tstatic.places import CPUPlace
from tstatic.static import Executor, Program, Scope, data, program_guard
from tstatic.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

# Scripts ask for a Paddle version; this is the release whose static API tstatic follows last.
PADDLE_VERSION = (2, 6, 2, 0)


def _parse(text: str, name: str) -> tuple[int, ...]:
    check_type(text, str, name, "require_version", expected="a text such as '2.0.0'")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ProgramError(
            f"the value of '{name}' in require_version must be in format '\\d+(\\.\\d+){{0,3}}'",
            expected="a version such as '1.4.0'",
            received=repr(text),
            fix="pass numbers and dots only",
        )
    parts = [int(p) for p in text.split(".")]
    return (*parts, *[0] * (4 - len(parts)))


@door("utils.require_version")
def require_version(min_version: str, max_version: str | None = None) -> None:
    """Checks the Paddle version whose static API tstatic follows (2.6.2).

    Args:
        min_version, max_version: One to four numbers with dots, such as ``"2.0.0"``, both included; ``None``: any later
            one.

    Raises:
        ProgramTypeError: If one is not a str.
        ProgramError: If it is outside of the range.

    Example:
        >>> paddle.utils.require_version("2.0.0")
        >>> try:
        ...     paddle.utils.require_version("99.0")
        ... except Exception as error:
        ...     print("too old")
        too old
    """
    low = _parse(min_version, "min_version")
    high = _parse(max_version, "max_version") if max_version is not None else None
    if low > PADDLE_VERSION or (high is not None and high < PADDLE_VERSION):
        raise ProgramError(
            f"tstatic {__version__} follows the static API of Paddle {'.'.join(map(str, PADDLE_VERSION[:3]))}",
            expected=f"a version from {min_version} to {max_version or 'any later one'}",
            received=".".join(map(str, PADDLE_VERSION[:3])),
            fix="change the required range",
        )


def run_check() -> None:
    """Builds and runs a small program and says what it found.

    Raises:
        ProgramError: If the result is wrong.
    """
    program = Program()
    with program_guard(program, Program()):
        x = data("x", [None, 2])
        y = mean(x * 2.0)
    (value,) = Executor(CPUPlace()).run(program, feed={"x": [[1.0, 2.0]]}, fetch_list=[y], scope=Scope())
    if abs(float(value) - 3.0) > 1e-6:
        raise ProgramError(
            "the installation check gave a wrong result",
            expected=3.0,
            received=float(value),
            fix="pip install --force-reinstall tstatic; 'tstatic doctor' says what else may be wrong",
        )
    print(f"tstatic {__version__} works on the CPU.")


@door("utils.deprecated")
@no_effect(level="calls never warn, as in Paddle 2.6")
def deprecated(update_to: str = "", since: str = "", reason: str = "", level: int = 0) -> Callable[[F], F]:
    """Marks a function as deprecated in its docstring.

    Args:
        update_to: What to use instead.
        since: The first version in which it is deprecated.
        reason: A sentence.
    """

    def mark(function: F) -> F:
        function.__doc__ = f"Deprecated since {since}: use {update_to}. {reason}\n\n{function.__doc__ or ''}"
        return function

    return mark


facade_module("utils.profiler", "a table of how long operators take.")


@door("utils.try_import")
def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Returns a module, imported by its name.

    Args:
        module_name: Its full name.
        err_msg: What the error says instead of naming the package.

    Raises:
        MissingPackageError: If it cannot be imported (an ``ImportError``).

    Example:
        >>> paddle.utils.try_import("json").dumps([1])
        '[1]'
    """
    check_type(module_name, str, "module_name", "utils.try_import")
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise MissingPackageError(
            err_msg or f"the module '{module_name}' cannot be imported",
            received=str(error),
            fix=f"install the package that has it, perhaps with 'pip install {module_name.partition('.')[0]}'",
        ) from None


__all__ = ["deprecated", "dlpack", "profiler", "require_version", "run_check", "try_import", "unique_name"]
