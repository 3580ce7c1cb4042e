"""Turns an error of Python's that a wrong argument ends in into one that names the function, the argument and what was expected.

Functions check their arguments themselves where a check says more. This is what stands behind those checks: it runs when an error
without a type leaves a public call that the user made, compares the arguments with the function's annotations, and otherwise looks
for the argument that the failing line was working on. Errors of the user's own functions pass as they are.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ProgramError, ProgramTypeError, TstaticError, shown
from tstatic.shortage import is_shortage, out_of_memory
from tstatic.where import is_library, is_own

CAUGHT = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError, ImportError, RecursionError)
"""What a wrong argument may end in where no check stands; other errors, such as those of files, say enough themselves."""


def refusal(
    error: BaseException,
    caller: FrameType,
    shape: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> TstaticError | None:
    """Returns the error to raise in place of one that left a public call; ``None`` if that one is to pass as it is.

    Args:
        error: What the call raised.
        caller: The frame that made the call.
        shape: What has the call's signature.
        name: What users call it.
        args, kwargs: What it was called with.
    """
    if isinstance(error, TstaticError | Warning) or not isinstance(error, CAUGHT) or is_own(caller.f_code.co_filename):
        return None
    frames = list(_frames(error.__traceback__))
    # Raised by the call itself: Python's own message names what does not fit the signature.
    if len(frames) < 2 or any(_is_users(frame) for frame, _ in frames):
        return None
    try:
        # The signature of a class does not have the new object, which its constructor is called with.
        signature = inspect.signature(shape)
        given = dict(signature.bind(*(args[1:] if inspect.isclass(shape) else args), **kwargs).arguments)
    except TypeError:
        return None
    parameters = signature.parameters
    given.pop("self", None)
    for key in [k for k, p in parameters.items() if p.kind is p.VAR_KEYWORD and k in given]:
        given |= given.pop(key)
    notes = {key: str(p.annotation).strip("'\"") for key, p in parameters.items() if p.annotation is not p.empty}
    # An argument of the wrong type explains more than the line that failed.
    misfits = [key for key, value in given.items() if not fits(value, notes.get(key, "Any"))]
    found = misfits[0] if misfits else _worked_on(frames, given)
    said = str(error) or type(error).__name__
    if is_shortage(error):
        return out_of_memory(
            f"{name}({', '.join(f'{key}={shown(value, 40)}' for key, value in given.items())})", cause=error, op=name
        )
    wrong_type = bool(misfits) or isinstance(error, TypeError | AttributeError)
    kind: type[TstaticError] = ProgramTypeError if wrong_type else ProgramError
    if isinstance(error, IndexError) and not misfits:
        kind = IndexRangeError
    if found is None:
        listed = ", ".join(f"{key}={shown(value, 40)}" for key, value in given.items())
        return kind(
            f"{name} cannot take these arguments: {said}", expected=f"arguments that fit each other, see help({name})",
            received=listed or "none", fix="change what the error names that this one was raised from", op=name,
        )  # fmt: skip
    takes = _described(shape, found)
    wanted = notes.get(found, "")
    expected = wanted if wanted not in ("", "Any") else takes or "another value"
    if takes and expected != takes:
        expected = f"{expected}: {takes}"
    return kind(
        f"the argument '{found}' of {name} cannot be used: {said}", expected=expected, received=shown(given[found]),
        fix=f"pass another '{found}'", op=name, var=found,
    )  # fmt: skip


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, TracebackType]]:
    while trace is not None:
        yield trace.tb_frame, trace
        trace = trace.tb_next


def _is_users(frame: FrameType) -> bool:
    """Whether the code is neither tstatic's, nor Python's, nor that of the packages below tstatic."""
    file = frame.f_code.co_filename
    return not (is_own(file) or is_library(file) or re.search(r"(^|[\\/])(numpy|ml_dtypes|torch|einops)[\\/]", file))


def _described(function: Callable[..., Any], argument: str) -> str:
    """Returns the line of a docstring that describes an argument; empty if there is none."""
    text = inspect.getdoc(function) or ""
    found = re.search(rf"^ +(?:\w+, )*{re.escape(argument)}(?:, \w+)*: (.*)$", text, re.MULTILINE)
    return found[1].rstrip(".") if found else ""


def _worked_on(frames: list[tuple[FrameType, TracebackType]], given: Mapping[str, Any]) -> str | None:
    """Returns the argument that tstatic's failing line names; without one, the only argument that there is.

    Lines further out name arguments, too, that the failing one may not have looked at.
    """
    trace = next(t for f, t in reversed(frames) if is_own(f.f_code.co_filename))
    words, local = _words(trace), trace.tb_frame.f_locals
    # The arguments themselves before what is inside of them.
    for exact in (True, False):
        for key, value in given.items():
            plain = value is None or isinstance(value, bool | int | str | bytes)
            for word in words:
                # Small numbers and texts are the same objects everywhere: only under their own name are they the argument.
                if word in local and (word == key or not plain) and _holds(value, local[word], exact):
                    return key
    return next(iter(given)) if len(given) == 1 else None


def _holds(value: Any, local: Any, exact: bool) -> bool:
    if exact:
        return local is value
    return isinstance(value, list | tuple) and any(local is item for item in value)


def _words(trace: TracebackType) -> list[str]:
    """Returns the names in the expression that failed, or all names of the function where the source is not at hand."""
    code = trace.tb_frame.f_code
    positions = list(code.co_positions())
    # An instruction is two bytes long.
    first, last, start, end = positions[trace.tb_lasti // 2]
    if first is None or last is None or start is None or end is None:
        return list(code.co_varnames)
    lines = [linecache.getline(code.co_filename, n) for n in range(first, last + 1)]
    # Columns are bytes of UTF-8. The end first: both cuts may be of the same line.
    lines[-1] = lines[-1].encode()[:end].decode(errors="ignore")
    lines[0] = lines[0].encode()[start:].decode(errors="ignore")
    return re.findall(r"[A-Za-z_]\w*", " ".join(lines)) or list(code.co_varnames)


# ---------------------------------------------------------------------------------------------------------- annotations
_NUMBERS = int | float | np.integer | np.floating
_KINDS: dict[str, Any] = {
    "int": int | np.integer, "float": _NUMBERS, "complex": complex | _NUMBERS, "str": str, "bytes": bytes, "None": type(None),
    "bool": bool | np.bool_, "dict": Mapping, "Mapping": Mapping,
}  # fmt: skip


def fits(value: Any, annotation: str) -> bool:
    """Returns whether a value is what an annotation says; one that names anything else than plain types says nothing."""
    return any(_fits(value, part) for part in _parts(annotation, "|"))


def _fits(value: Any, part: str) -> bool:
    name, _, inner = part.partition("[")
    if name in _KINDS:
        return isinstance(value, _KINDS[name])
    if name in ("Variable", "Tensor"):
        return any(kind.__name__ == "Variable" for kind in type(value).__mro__)
    if name == "Callable":
        return callable(value)
    if name in ("Sequence", "list", "tuple", "Iterable"):
        if name == "Iterable":
            return hasattr(value, "__iter__")
        if not isinstance(value, list | tuple):
            return False
        wanted = [p for p in _parts(inner.removesuffix("]"), ",") if p != "..."]
        return len(wanted) != 1 or all(fits(item, wanted[0]) for item in value)
    return True


def _parts(text: str, at: str) -> list[str]:
    """Splits an annotation at a sign outside of brackets."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == at and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [part.strip() for part in found]
