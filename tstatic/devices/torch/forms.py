"""Binds the torch forms of op definitions to tensors: results are written where they are told, or their own memory becomes theirs.

A form that takes ``out`` writes there. What any other returns takes the place of the value's memory, if the plan let it: the
tensor's memory is then a foreign block, which lives until its last reader (:class:`ForeignBlock`). Otherwise it is copied.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tstatic.forks import taken_by_forks
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ir.recording import Call
from tstatic.ir.torch_tables import Tables
from tstatic.locks import rlock

_NUMBERS = itertools.count()

_operators: list[Any] = []
"""torch's objects of its operators, once they have been made."""
_making = taken_by_forks(rlock())


class ForeignBlock:
    """The memory of a value that torch allocated: bound calls hold the same tensors in every run, and find other memory in them.

    Args:
        torch: The module.
        tensor: A tensor of the value's shape; whatever memory it has is dropped by the first :meth:`take`.

    Attributes:
        fixed: Whether the memory is what a captured graph writes in every launch.
        start: An address in the place of the block's own, which differs from run to run: no memory has it, nor another block.
    """

    def __init__(self, torch: Any, tensor: Any) -> None:
        self.tensor = tensor
        self.fixed = self._there = False
        self.start = (1 << 64) + (next(_NUMBERS) << 48)
        self.shape, self.dtype, self.nbytes = tensor.shape, tensor.dtype, tensor.nbytes
        self._torch = torch
        # Made once: freeing in every run must not allocate.
        self._nothing = tensor.new_empty(0)
        self._views: list[tuple[Any, int, tuple[int, ...], tuple[int, ...]]] = []

    def view_of(self, tensor: Any, view: Callable[[Any], Any]) -> Any:
        """Returns a view of the tensor, or of one of its views, that a function makes; it follows the tensor from now on."""
        memory = tensor.untyped_storage()
        lacks = memory.nbytes() < self.nbytes
        if lacks:
            # torch takes no views of memory that is too small for them.
            memory.resize_(self.nbytes)
        made = view(tensor)
        if lacks:
            memory.resize_(0)
        self._views.append((made, made.storage_offset(), tuple(made.shape), made.stride()))
        return made

    def take(self, made: Any, others: set[int]) -> None:
        """Makes the memory of a result the value's; copies a result whose memory is shared, or larger than the value.

        Args:
            made: The result.
            others: Addresses of the memory that inputs and other results have; this result's is added.
        """
        memory = made.untyped_storage()
        at = memory.data_ptr()
        if (
            at in others
            or made.dtype is not self.dtype
            or made.shape != self.shape
            or memory.nbytes() != self.nbytes
            or not made.is_contiguous()
        ):
            made = self.copied(made)
        others.add(at)
        self.fixed = False
        self._set(made)

    def _set(self, made: Any) -> None:
        self._there = True
        self.tensor.set_(made)
        for view, offset, shape, strides in self._views:
            # Bound calls hold the views, too: one that is left behind would read the last run's memory.
            view.set_(made.untyped_storage(), offset, shape, strides)

    def hold(self) -> Any:
        """Returns a tensor that keeps the memory; ``None`` while there is none."""
        return self.tensor.detach() if self._there else None

    def put_back(self, held: Any) -> None:
        """Gives the block the memory of a tensor that :meth:`hold` returned, which a captured graph wrote."""
        self.fixed = True
        self._set(held)

    def copied(self, made: Any) -> Any:
        """Returns a copy of a result in memory of its own, of the value's shape and dtype."""
        return self.empty().copy_(made)

    def empty(self) -> Any:
        """Returns new memory of the value's shape and dtype."""
        return self._torch.empty(self.shape, dtype=self.dtype, device=self._nothing.device)

    def free(self) -> None:
        """Drops the memory, under this name and those of its views; the next run brings new memory."""
        self.fixed = self._there = False
        self.tensor.set_(self._nothing)
        for view, *_ in self._views:
            view.set_(self._nothing)


class Blocks(NamedTuple):
    """The blocks of an op: those that it reads, and per output slot what it fills (lists of them, ``None``)."""

    read: Sequence[ForeignBlock]
    filled: Sequence[Any]


NO_BLOCKS = Blocks((), ())  # for devices whose arrays have one place for all runs


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


class TorchForm:
    """How an op definition runs in torch.

    Args:
        definition: One with a torch form.
    """

    def __init__(self, definition: OpDef) -> None:
        assert definition.lower is not None
        self.function = definition.lower
        self.writes = definition.torch_run == "out"
        self.wants_device = "device" in inspect.signature(definition.lower).parameters
        self.chooses = "wanted" in inspect.signature(definition.lower).parameters
        self.has_tables = "tables" in inspect.signature(definition.lower).parameters
        self.single = len(definition.outputs) == 1
        self.listed = any(slot.many for slot in definition.outputs)

    def bind_tensors(
        self,
        torch: Any,
        place: str,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reference: Callable[[], Sequence[Call]],
        blocks: Blocks = NO_BLOCKS,
        skip: Any = None,
    ) -> Call | None:
        """Returns the call that runs an op; ``None`` where there is nothing that it writes.

        Args:
            torch: The module.
            place: torch's name of the device.
            op: The op.
            ins, outs: Tensors per slot.
            reference: Makes the calls of the op's reference, for a form that lacks a wanted result.
            blocks: The blocks in which some of them lie.
            skip: A truth value: where it holds, ``outs`` keep what they hold.
        """
        attrs = op.definition.pick(self.function, op.attrs)
        if self.wants_device:
            attrs = {**attrs, "device": place}
        if self.chooses:
            attrs = {**attrs, "wanted": tuple(out is not None for out in outs)}
        if self.has_tables:
            attrs = {**attrs, "tables": Tables()}
        run = partial(self.function, torch, *ins, **attrs)
        if skip is not None:
            return _select_results, (
                torch,
                skip,
                partial(self._run_apart, torch, run, outs) if self.writes else run,
                outs,
            )
        if self.writes:
            out = outs[0] if self.single else tuple(outs)
            return (partial(run, out=out), ()) if out is not None else None
        if self.single and not self.listed and outs[0] is None:
            return None
        # Some forms leave out what only a backward op of their own would read, such as the gates of an LSTM.
        may_lack = any(
            slot.intermediate and out is not None for slot, out in zip(op.definition.outputs, outs, strict=True)
        )
        if any(_flat(blocks.filled)):
            return Taking(torch, run, ins, outs, blocks, reference if may_lack else None), ()
        if may_lack:
            return _UnlessLacking(run, outs, reference), ()
        if self.single and not self.listed:
            return _copy_result, (run, outs[0])
        return _copy_results, (run, outs)

    def _run_apart(self, torch: Any, run: Callable[..., Any], outs: Sequence[Any]) -> Any:
        """Runs a form that writes its results, in new memory: with the calls, and so the bits, that it has otherwise."""
        made = [
            [None if one is None else torch.empty_like(one) for one in out]
            if isinstance(out, list)
            else None
            if out is None
            else torch.empty_like(out)
            for out in outs
        ]
        run(out=made[0] if self.single else tuple(made))
        return tuple(made)


_FORMS: dict[int, tuple[OpDef, TorchForm | None]] = {}
"""By the identity of a definition, which is kept beside its form: definitions are not hashable."""


def torch_form(definition: OpDef) -> TorchForm | None:
    """Returns how an op runs in torch; ``None`` where its reference runs.

    The op definition says so, and why (:attr:`OpDef.host_reason`).
    """
    if id(definition) not in _FORMS:
        _FORMS[id(definition)] = definition, None if definition.host_reason else TorchForm(definition)
    return _FORMS[id(definition)][1]


def _copy_result(run: Callable[[], Any], out: Any) -> None:
    made = run()
    out.copy_(made[0] if isinstance(made, tuple) else made)


def _copy_results(run: Callable[[], Any], outs: Sequence[Any]) -> None:
    made = run()
    if not isinstance(made, tuple):
        made = (made,)
    # All results are there before the first is written: several may be computed from a value that one of them replaces.
    for out, result in zip(outs, made, strict=True):
        if isinstance(out, list):
            for one, part in zip(out, result, strict=True):
                if one is not None and part is not None:
                    one.copy_(part)
        elif out is not None and result is not None:
            out.copy_(result)


def _select_results(torch: Any, skip: Any, run: Callable[[], Any], outs: Sequence[Any]) -> None:
    made = run()
    # Results may be inputs of others, so all are there before the first is written.
    pairs = list(zip(outs, made if isinstance(made, tuple) else (made,), strict=True))
    while pairs:
        out, result = pairs.pop()
        if isinstance(out, list):
            pairs += zip(out, result, strict=True)
        elif out is not None:
            assert result is not None, "an update has all of its results"
            torch.where(skip, out, result.to(out.dtype).reshape(out.shape), out=out)


class _UnlessLacking:
    """Runs an op in torch; from the first run on as its reference, if its form then lacks a wanted result."""

    def __init__(self, run: Callable[[], Any], outs: Sequence[Any], reference: Callable[[], Sequence[Call]]) -> None:
        self._run = run
        self._outs = outs
        self._reference = reference
        self._calls: Sequence[Call] | None = None

    def __call__(self) -> None:
        if self._calls is None:
            made = self._run()
            if all(out is None or result is not None for out, result in zip(self._outs, made, strict=True)):
                _copy_results(lambda: made, self._outs)
                return
            # Bound at the first run that needs it: most forms never lack a result, and binding takes memory.
            self._calls = self._reference()
        for function, args in self._calls:
            function(*args)


class Taking:
    """Runs an op in torch; the memory of its results becomes that of the values in blocks, others are copied.

    The first run is watched: how much memory torch then held beside the results (:attr:`beside`) is for the memory report. Later
    runs are not, so that they cost nothing more.

    Attributes:
        beside: Bytes, at the moment when they were most; 0 before the first run.
    """

    def __init__(
        self,
        torch: Any,
        run: Callable[[], Any],
        ins: Sequence[Any],
        outs: Sequence[Any],
        blocks: Blocks,
        reference: Callable[[], Sequence[Call]] | None,
    ) -> None:
        self._torch = torch
        self._run = run
        read = {id(block): block for block in blocks.read}
        self._read = [block.tensor for block in read.values()]
        # All other inputs lie where they lay when they were bound. What a block has now is dropped: a result may get its address.
        self._fixed = {t.untyped_storage().data_ptr() for t in _flat(ins) if isinstance(t, torch.Tensor)}
        self._fixed -= {tensor.untyped_storage().data_ptr() for tensor in self._read}
        self._outs = [
            (tensor, block, slot, index)
            for slot, (out, filled) in enumerate(zip(outs, blocks.filled, strict=True))
            for tensor, block, index in _parts(out, filled)
        ]
        self._reference = reference
        self._watched = False
        self.beside = 0

    def __call__(self) -> None:
        made = self._run() if self._watched else self._watch()
        results = made if isinstance(made, tuple) else (made,)
        if self._reference is not None and any(results[slot] is None for _, _, slot, _ in self._outs):
            self._run_reference(self._reference)
            return
        # A copy: the addresses of blocks, which join it, differ from run to run.
        others = self._fixed.copy()
        for tensor in self._read:
            others.add(tensor.untyped_storage().data_ptr())
        for out, block, slot, index in self._outs:
            result = results[slot] if index is None else results[slot][index]
            if result is None:
                continue
            if block is None:
                out.copy_(result)
            else:
                block.take(result, others)

    def _run_reference(self, reference: Callable[[], Sequence[Call]]) -> None:
        # Bound in each run, as blocks lie elsewhere in each.
        for _, block, _, _ in self._outs:
            if block is not None:
                block.take(block.empty(), set())
        for function, args in reference():
            function(*args)

    def _watch(self) -> Any:
        with watching(self._torch) as watched:
            made = self._run()
        mine = {t.untyped_storage().data_ptr(): t for t in _tensors_in(self._torch, made)}
        own = sum(t.untyped_storage().nbytes() for at, t in mine.items() if at in watched.made)
        self.beside = max(0, watched.most_bytes - own)
        self._watched = True
        return made


def _parts(out: Any, filled: Any) -> Iterator[tuple[Any, ForeignBlock | None, int | None]]:
    """Yields the wanted tensors of a slot, their blocks, and their places in a list."""
    if isinstance(out, list):
        yield from ((t, block, i) for i, (t, block) in enumerate(zip(out, filled, strict=True)) if t is not None)
    elif out is not None:
        yield out, filled, None


def _tensors_in(torch: Any, values: Any) -> Iterator[Any]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict | list | tuple):
        for one in values.values() if isinstance(values, dict) else values:
            yield from _tensors_in(torch, one)


def make_operators(torch: Any) -> None:
    """Makes torch's Python objects of all operators; call it before threads enter modes that see torch's calls.

    torch keeps the address of an operator's object, which it makes when a mode first sees a call of it. Of two that threads make at
    the same time one is freed, and may be the one whose address is kept.
    """
    with _making:
        if not _operators:
            schemas = torch._C._jit_get_all_schemas()
            names = [(one.name[6:], one.overload_name or "default") for one in schemas if one.name.startswith("aten::")]
            _operators[:] = [getattr(getattr(torch.ops.aten, name), overload) for name, overload in names]


class Watched:
    """What torch allocated while it was watched.

    Attributes:
        made: Addresses of the memory that calls returned.
        most_bytes: The most bytes of it that were alive at one time.
    """

    def __init__(self) -> None:
        self.made: set[int] = set()
        self.most_bytes = 0


@contextlib.contextmanager
def watching(torch: Any) -> Iterator[Watched]:
    """Sees the memory of all results of the calls that torch dispatches in the block, in this thread.

    What a single call allocates and frees within itself is not seen.
    """
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    found = Watched()
    alive: dict[int, tuple[Any, int]] = {}

    class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Skipping it would import it, seconds in the middle of the first step.
            return False

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            given = {t.untyped_storage()._cdata for t in _tensors_in(torch, [args, kwargs])}
            for one in _tensors_in(torch, made):
                memory = one.untyped_storage()
                # The memory of an argument is there already.
                if memory._cdata not in given:
                    alive[memory._cdata] = StorageWeakRef(memory), memory.nbytes()
                    found.made.add(memory.data_ptr())
            for key in [key for key, (memory, _) in alive.items() if memory.expired()]:
                del alive[key]
            found.most_bytes = max(found.most_bytes, sum(size for _, size in alive.values()))
            return made

    make_operators(torch)
    with Watch():
        yield found
