"""A graph of torch's calls on tensors of the CPU: captured calls do nothing, a launch makes them at the captured addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tstatic.devices.torch.forms import make_operators

make_operators(torch)  # replicas capture at the same time

REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero")
"""What waits for the device to know a value or a size."""
_BY_THE_HOST = ("aten::set_", "aten::record_stream")
_START = 256


@dataclass
class _Part:
    """Memory of a pool, and whether a tensor has it."""

    bytes: np.ndarray[Any, Any]
    user: StorageWeakRef | None = None

    @property
    def is_free(self) -> bool:
        return self.user is None or self.user.expired()


class Pool:
    """The memory of the graphs that were captured into it: what one of them no longer holds is given again.

    Attributes:
        graphs: How many there are; ``None`` before the first.
    """

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.graphs: int | None = None

    def give(self, nbytes: int, byte: int) -> torch.UntypedStorage:
        """Returns memory that no tensor has, filled with a byte."""
        free = [one for one in self.parts if one.is_free and one.bytes.nbytes >= nbytes]
        part = min(free, key=lambda one: one.bytes.nbytes, default=None)
        if part is None:
            whole = np.empty(nbytes + _START, np.uint8)
            start = -whole.ctypes.data % _START
            part = _Part(whole[start : start + nbytes])
            self.parts.append(part)
        part.bytes[...] = byte
        storage = torch.from_numpy(part.bytes[:nbytes]).untyped_storage()
        part.user = StorageWeakRef(storage)
        return storage

    def part_of(self, storage: torch.UntypedStorage) -> _Part | None:
        at = storage.data_ptr()
        return next((one for one in self.parts if one.bytes.ctypes.data == at and not one.is_free), None)

    @property
    def nbytes(self) -> int:
        return sum(one.bytes.nbytes for one in self.parts)


class _Tensor:
    """Where a tensor lay when it was recorded."""

    def __init__(self, tensor: torch.Tensor, pool: Pool) -> None:
        storage = tensor.untyped_storage()
        part = pool.part_of(storage) if storage.nbytes() else None
        # The pool keeps its own; what else is freed before a launch is not there any more.
        self._bytes = None if part is None else part.bytes[: storage.nbytes()]
        self._storage = None if part is not None else StorageWeakRef(storage)
        self._dtype, self._offset = tensor.dtype, tensor.storage_offset()
        self._shape, self._strides = tuple(tensor.shape), tensor.stride()
        self._keep = storage if not storage.nbytes() else None

    def there(self) -> torch.Tensor:
        """Returns a tensor at the same address.

        Raises:
            RuntimeError: If the memory was freed.
        """
        if self._bytes is not None:
            storage = torch.from_numpy(self._bytes).untyped_storage()
        else:
            assert self._storage is not None
            storage = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)  # type: ignore[assignment]
            if storage is None:
                raise RuntimeError(f"a graph uses memory that was freed behind its capture, of {self._shape}")
        return torch.empty(0, dtype=self._dtype).set_(storage, self._offset, self._shape, self._strides)


def mapped(kind: type, function: Callable[[Any], Any], values: Any) -> Any:
    """Returns values of a call with a function applied to those of a kind, in lists, tuples and dictionaries, too.

    torch's ``tree_map_only`` does it for any container, which takes longer than the calls that are recorded.
    """
    if isinstance(values, kind):
        return function(values)
    form = type(values)
    if form is tuple or form is list:
        return form([mapped(kind, function, one) for one in values])
    if form is dict:
        return {name: mapped(kind, function, one) for name, one in values.items()}
    assert form is torch.Size or not isinstance(values, tuple | list | dict), form
    return values


class Recording(TorchDispatchMode):
    """Records the calls that torch dispatches in its block, in this thread, as those of a stream that captures.

    Attributes:
        work: What a launch does.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool
        self.work: list[Callable[[], None]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema = kwargs or {}, function._schema
        name = schema.name.removeprefix("aten::")
        if name in REFUSED:
            raise RuntimeError(f"operation not permitted when stream is capturing: {schema.name}")
        if schema.name in _BY_THE_HOST:
            return function(*args, **kwargs)
        if schema.is_mutable:
            return self._writes(function, args, kwargs)
        made = function(*args, **kwargs)
        given: set[int] = set()
        mapped(torch.Tensor, lambda t: given.add(t.untyped_storage()._cdata), (args, kwargs))
        moved = mapped(torch.Tensor, lambda t: t if t.untyped_storage()._cdata in given else self._moved(t), made)
        if "empty" not in name:
            self._record(function, args, kwargs, made, moved)
        return moved

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return tensor
        place = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
        # NaN, as nothing is computed before a launch; 0 where later calls might take them for positions.
        byte = 0xFF if tensor.is_floating_point() else 0
        return torch.empty(0, dtype=tensor.dtype).set_(self._pool.give(storage.nbytes(), byte), *place)

    def _frozen(self, values: Any) -> Any:
        return mapped(torch.Tensor, lambda t: _Tensor(t, self._pool), values)

    def _record(self, function: Any, args: Any, kwargs: Any, made: Any, moved: Any) -> None:
        olds, news = _tensors(made), _tensors(moved)
        fresh = [i for i, (a, b) in enumerate(zip(olds, news, strict=True)) if a is not b]
        if not fresh:
            return
        call, outs = self._frozen((args, kwargs)), self._frozen([news[i] for i in fresh])

        def work() -> None:
            there, named = mapped(_Tensor, _Tensor.there, call)
            results = _tensors(function(*there, **named))
            for out, i in zip(outs, fresh, strict=True):
                out.there().copy_(results[i])

        self.work.append(work)

    def _writes(self, function: Any, args: Any, kwargs: Any) -> Any:
        call = self._frozen((args, kwargs))

        def work() -> None:
            there, named = mapped(_Tensor, _Tensor.there, call)
            function(*there, **named)

        self.work.append(work)
        given: dict[str, Any] = {}
        for i, argument in enumerate(function._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                given.update(dict.fromkeys(argument.alias_info.after_set, value))
        returned = [next(given[one] for one in result.alias_info.after_set) for result in function._schema.returns]
        return tuple(returned) if len(returned) > 1 else returned[0] if returned else None


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(torch.Tensor, found.append, values)
    return found
