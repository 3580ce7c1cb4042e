"""Launches a generated kernel by its handle: what Triton looks up for each launch, it looks up for the first one."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Allocate = Callable[[int, int, "int | None"], Any]
"""``(bytes, alignment, stream) -> memory``, as Triton asks for it."""


class KernelLaunching:
    """One launch of a kernel, on arguments that do not change.

    Triton's own call takes microseconds before the driver is reached: it binds and specializes the arguments, makes a key of them
    and searches its cache. Here they are known, so that the compiled kernel's launcher can be called with them.

    Args:
        kernel: Triton's function.
        grid: Programs along up to three axes.
        values: Its first arguments: tensors and numbers.
        named: The others, and options of the compiler.
        queue: torch's stream.
        allocate: Gives memory to kernels that ask for it: for descriptors that they make.
    """

    def __init__(
        self,
        kernel: Any,
        grid: Sequence[int],
        values: Sequence[Any],
        named: Mapping[str, Any],
        queue: Any,
        allocate: Allocate,
    ) -> None:
        self._kernel, self._values, self._named = kernel, tuple(values), dict(named)
        self._grid = (*grid, 1, 1)[:3]
        self._shape = tuple(grid)
        self._queue = queue
        self._allocate = allocate
        self._launcher: Callable[..., Any] | None = None
        self._arguments: tuple[Any, ...] = ()
        self._knobs: Any = None

    def __call__(self) -> None:
        """Launches the kernel in the stream, which must be torch's current one."""
        launcher = self._launcher
        if launcher is None or self._is_watched():
            # Triton's setting is one of the context, so the user's own, and that of other threads, stays as it is.
            contextvars.copy_context().run(self._look_up)
        else:
            launcher(*self._arguments)

    def prepare(self) -> str:
        """Compiles the kernel and loads it, in torch's current device; returns what the chip has too little of, empty if nothing.

        Kernels that choose their own blocks are left to their first launch.
        """
        from triton.runtime import errors, jit  # heavy, and optional

        if not isinstance(self._kernel, jit.JITFunction):
            return ""
        try:
            made = self._kernel.warmup(*self._values, grid=self._shape, **self._named)
            if made is not None:
                # What its first launch would do.
                made._init_handles()
        except errors.OutOfResources as error:
            return f"{error.name}: {error.required:,} are needed, and there are {error.limit:,}"
        return ""

    def _is_watched(self) -> bool:
        """Returns whether somebody watches launches by Triton's hooks, who must see them all."""
        hooks = self._knobs.launch_enter_hook, self._knobs.launch_exit_hook
        # A chain of hooks is there in any case, and empty; a function in its place is a hook.
        return any(getattr(one, "calls", one) for one in hooks)

    def _look_up(self) -> None:
        import triton  # heavy, and optional

        triton.set_allocator(self._allocate)
        made = self._kernel[self._shape](*self._values, **self._named)
        names = getattr(self._kernel, "arg_names", None)
        # In the interpreter there is nothing compiled. A kernel that asks for memory needs an allocator at each launch.
        if made is None or names is None or made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
            return
        given = dict(zip(names, self._values, strict=False)) | self._named
        if any(name not in given for name in names):
            return  # a default of the function, which only Triton knows
        from triton import knobs

        self._knobs = knobs.runtime
        fixed = (*self._grid, self._queue.cuda_stream, made.function, made.packed_metadata, None, None, None)
        self._arguments = (*fixed, *(given[name] for name in names))
        self._launcher = made.run


__all__ = ["KernelLaunching"]
