"""Functions that switch between static and eager mode in Paddle: tstatic is always static."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tstatic.ir.declare import default_main_program
from tstatic.ir.export import door, export
from tstatic.logs import warn_user
from tstatic.no_effect import no_effect

REUSED = "the memory plan of every run reuses dead buffers"
FETCHED = "fetched values are numpy arrays, which np.set_printoptions is for"


def enable_static() -> None:
    """Does nothing: programs are always static here.

    Example:
        >>> paddle.enable_static()
        >>> y = paddle.tanh(static.data("x", [None, 2]))
        >>> y.shape, paddle.in_dynamic_mode()
        ((-1, 2), False)
    """


@export(
    "framework.in_pir_mode",
    "fluid.framework.in_pir_mode",
    "framework.use_pir_api",
    "fluid.framework.use_pir_api",
    "framework.in_dynamic_or_pir_mode",
    "fluid.framework.in_dynamic_or_pir_mode",
)
def in_pir_mode() -> bool:
    """Returns ``False``: programs have one form here."""
    return False


@door("disable_static")
@no_effect(place="there is no eager mode that would run there")
def disable_static(place: Any = None) -> None:
    """Changes nothing, because eager mode does not exist; the first eager use afterwards is an error.

    Warns:
        UserWarning: Always, at the caller's line.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     paddle.disable_static()
        >>> paddle.in_dynamic_mode(), len(caught)
        (False, 1)
    """
    warn_user(
        "tstatic has only static mode: disable_static() changes nothing, and programs go on as before. Remove the call; eager "
        "code needs another framework"
    )


def in_dynamic_mode() -> bool:
    """Returns ``False``: there is no eager mode.

    Example:
        >>> paddle.enable_static()
        >>> mode = "dynamic" if paddle.in_dynamic_mode() else "static"
        >>> mode
        'static'
    """
    return False


class no_grad(contextlib.ContextDecorator):
    """Returns a context manager or decorator in which new variables get ``stop_gradient = True``.

    Example:
        >>> w = paddle.create_parameter([2], "float32")
        >>> with paddle.no_grad():
        ...     y = w * 2
        >>> y.stop_gradient, (w * 2).stop_gradient
        (True, False)
    """

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function
        # One per block that is open: an object may be entered within its own block, as a decorated function calls itself.
        self._contexts: list[contextlib.AbstractContextManager[None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As in Paddle, `no_grad(f)(x)` calls f, and `no_grad()(f)` decorates it.
        if self._function is not None:
            with _stopped():
                return self._function(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __enter__(self) -> None:
        self._enter(_stopped())

    def __exit__(self, *error: Any) -> None:
        self._contexts.pop().__exit__(*error)

    def _enter(self, context: contextlib.AbstractContextManager[None]) -> None:
        context.__enter__()
        self._contexts.append(context)


@contextlib.contextmanager
def _stopped() -> Iterator[None]:
    block = default_main_program().current_block()
    before = set(block.vars)
    try:
        yield
    finally:
        # At the end, as layers make variables in many places; what an exception leaves is marked, too.
        for name, var in block.vars.items():
            if name not in before:
                var.stop_gradient = True


class enable_grad(no_grad):
    """Returns a context manager or decorator that changes nothing: gradients are taken of whatever is asked for.

    Example:
        >>> x = paddle.create_parameter([2], "float32")
        >>> with paddle.enable_grad():
        ...     y = x * 2
        >>> y.stop_gradient
        False
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Without the context of the base class, which stops gradients.
        return self._function(*args, **kwargs) if self._function is not None else super().__call__(*args, **kwargs)

    def __enter__(self) -> None:
        self._enter(contextlib.nullcontext())


def set_grad_enabled(mode: bool) -> no_grad:
    """Returns :class:`enable_grad` or, for False, :class:`no_grad`.

    Args:
        mode: Whether new variables may have gradients.
    """
    return enable_grad() if mode else no_grad()


def is_grad_enabled() -> bool:
    """Returns False, as in Paddle's static mode: nothing is differentiated while a program is built."""
    return False


def disable_signal_handler() -> None:
    """Does nothing: no signal handler is installed outside of a run."""


@no_effect(
    precision=FETCHED, threshold=FETCHED, edgeitems=FETCHED, sci_mode=FETCHED, linewidth=FETCHED,
)  # fmt: skip
@door("set_printoptions")
def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sci_mode: bool | None = None,
    linewidth: int | None = None,
) -> None:
    """Does nothing: fetched values are numpy arrays."""


@export("fluid.memory_optimize", "fluid.transpiler.memory_optimize")
@no_effect(input_program=REUSED, skip_opt_set=REUSED, print_log=REUSED, level=REUSED, skip_grads=REUSED)
def memory_optimize(
    input_program: Any, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = True
) -> None:
    """Does nothing: every plan reuses dead buffers."""


@export("fluid.release_memory", "fluid.transpiler.release_memory")
@no_effect(input_program=REUSED, skip_opt_set=REUSED)
def release_memory(input_program: Any, skip_opt_set: Any = None) -> None:
    """Does nothing: every plan reuses dead buffers."""
