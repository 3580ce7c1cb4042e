"""Triton's interpreter without work that it repeats: tests launch thousands of small kernels."""

from __future__ import annotations

from functools import cache
from typing import Any


class _Stays:
    """What is patched stays patched: a process that interprets never compiles."""

    def restore(self) -> None:
        pass


def interpret_quickly() -> None:
    """Makes Triton patch its language once per process, instead of before every launch and every call of a device function.

    To look through the members of the language takes 1.3 ms each time, a fifth of what the launch of a small kernel takes.
    The patched functions are the same each time. Other versions of Triton than those with these functions are left alone.
    """
    try:
        from triton.runtime import interpreter
    except ImportError:
        return
    patch = getattr(interpreter, "_patch_lang", None)
    if patch is None or not hasattr(interpreter, "_LangPatchScope"):
        return
    language = (interpreter.tl, interpreter.tl.core)
    patched: set[frozenset[int]] = set()

    def once(function: Any) -> _Stays:
        seen = frozenset(i for i, part in enumerate(language) if any(v is part for v in function.__globals__.values()))
        if seen not in patched:
            patch(function)
            patched.add(seen)
        return _Stays()

    types, of_scalar = interpreter.tl.core, cache(interpreter._get_np_dtype)

    def numpy_type(dtype: Any) -> Any:
        # It makes a table of all types for each question.
        scalar = dtype.element_ty if isinstance(dtype, types.block_type) else dtype
        return pointer if isinstance(scalar, types.pointer_type) else of_scalar(scalar)

    pointer = interpreter._get_np_dtype(types.pointer_type(types.float32))
    interpreter._patch_lang, interpreter._get_np_dtype = once, numpy_type
