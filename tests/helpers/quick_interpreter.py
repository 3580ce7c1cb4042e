"""Triton's interpreter without work that it repeats: tests launch thousands of small kernels."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

KNOWN = ("3.6.0", "3.7.1")
"""Versions of Triton whose tensors are made of what is set here, and nothing else."""


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
        import triton
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
    if triton.__version__ in KNOWN:
        _make_types_once(types)


def _make_types_once(core: Any) -> None:
    """Makes Triton construct each type of a block, and the shape of its tensors, once instead of for every operation."""
    block_type = core.block_type

    known: dict[tuple[str, tuple[int, ...]], Any] = {}

    def with_element_type(self: Any, element: Any) -> Any:
        shape = tuple(self.shape.values)
        if isinstance(element, core.pointer_type):
            return block_type(element, [*shape])
        key = element.name, shape
        if key not in known:
            known[key] = block_type(element, [*shape])
        return known[key]

    @cache
    def sizes(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return core.constexpr(math.prod(shape)), core.tuple([core.constexpr(n) for n in shape])

    def initialise(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = sizes(tuple(type.shape.values) if isinstance(type, block_type) else ())

    block_type.with_element_ty, core.tensor.__init__ = with_element_type, initialise
