"""``static.amp``: marks for mixed precision; the pass that reads them is not part of this release."""

import contextlib
from collections.abc import Iterator

from tstatic.ir.declare import name_scope
from tstatic.unsupported import missing_in

__all__ = ["fp16_guard"]


@contextlib.contextmanager
def fp16_guard() -> Iterator[None]:
    """Marks the ops built inside as those that mixed precision may convert: ``op_namescope`` ends in ``__use_fp16__``.

    Nothing reads the mark in this release; asking this module for ``decorate`` says what to use instead.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> with static.amp.fp16_guard():
        ...     y = x * x
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 4.], dtype=float32)
    """
    with name_scope("__use_fp16__"):
        yield


__getattr__ = missing_in(__name__, __all__)
