"""The memory that torch's calls make and hold while something runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Collection, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402


class Held(TorchDispatchMode):
    """Counts the bytes of the memory that calls make, as long as it is there.

    Attributes:
        most: The most at one time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._alive: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        given = memories((args, kwargs))
        for key, memory in memories(made).items():
            if key not in given:
                self._alive[key] = StorageWeakRef(memory), memory.nbytes()
        self.most = max(self.most, self.bytes())
        return made

    def bytes(self, without: Collection[int] = ()) -> int:
        """What is there now, but for that of some keys of ``memories``."""
        self._alive = {key: one for key, one in self._alive.items() if not one[0].expired()}
        return sum(size for key, (_, size) in self._alive.items() if key not in without)


def memories(values: Any) -> dict[int, Any]:
    """The memory of the tensors in values, each once."""
    found = [t.untyped_storage() for t in tree_leaves(values) if isinstance(t, torch.Tensor)]
    return {one._cdata: one for one in found}


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What hangs in a cycle stays until the garbage collector finds it, which may be at any call, or gigabytes later."""
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
