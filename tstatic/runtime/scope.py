"""Scopes hold the values of persistable variables between runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from tstatic.devices import Array, Device, owner_of, read
from tstatic.devices.base import DeviceArray
from tstatic.errors import DTypeError, FeedError
from tstatic.guards import Guarded
from tstatic.ir.checks import check_type
from tstatic.ir.types import DType, dtype_of, plain
from tstatic.locks import rlock
from tstatic.no_effect import PLACE, no_effect
from tstatic.runtime.dlpack import capsule_of
from tstatic.runtime.in_flight import InFlight
from tstatic.runtime.lod_levels import divides, levels_of
from tstatic.runtime.parted import Parted
from tstatic.shortage import out_of_memory


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """One buffer that several variables of one dtype are views of.

    Attributes:
        stream: Their role: ``Param``, ``Moment1``, ...
        array: All elements, padding included.
        names: The variables, in order.
        offsets: Where each begins.
    """

    stream: str
    array: Array
    names: tuple[str, ...]
    offsets: tuple[int, ...]


class LoDTensor:
    """A value in a scope: ``np.array(t)`` reads it, ``t.set(array, place)`` writes it.

    The storage of a value is stable: writing an array of the same shape and dtype writes through to every plan bound to it.

    Args:
        recursive_sequence_lengths: The lengths of the sequences of each level, as
            :meth:`set_recursive_sequence_lengths` takes them; none by default.
        scope: The scope that the value is in.

    Example:
        >>> tensor = fluid.LoDTensor()
        >>> tensor.set(np.array([1, 2], "float32"), fluid.CPUPlace())
        >>> np.array(tensor)
        array([1., 2.], dtype=float32)
    """

    def __init__(
        self, recursive_sequence_lengths: Sequence[Sequence[int]] | None = None, *, scope: Scope | None = None
    ) -> None:
        self._array: Array | None = None
        self._scope = scope
        self._lod: list[list[int]] = []
        if recursive_sequence_lengths is not None:
            self.set_recursive_sequence_lengths(recursive_sequence_lengths)
        self.flat: Flat | None = None
        """The buffer that the storage is a view of."""

    @property
    def array(self) -> Array | None:
        """The storage itself, on any device, or ``None`` before it is set: whole, and what was queued for it is done."""
        self._settle()
        return self._array

    def _settle(self) -> None:
        """Waits for steps in flight that may write the value, and joins its parts."""
        if self._scope is not None:
            self._scope.in_flight.settle()
            if self._scope.parted.others:
                self._scope.parted.join(self)

    def hold(self, array: Array) -> None:
        """Makes ``array`` the storage."""
        self._settle()
        # Plans are notified before and after: an exception in between must not leave one bound to the old storage.
        if self._scope is not None:
            self._scope._layout_changed()
        self._array = array
        self.flat = None
        if self._scope is not None:
            self._scope.torn.pop(self, None)
            self._scope._layout_changed()

    def _write(self, array: np.ndarray[Any, Any]) -> None:
        """Copies a value into the storage, or makes a copy the new storage if shape or dtype differ."""
        self._settle()
        if self._array is not None and self._array.shape == array.shape and self._array.dtype == array.dtype:
            if self._scope is not None:
                self._scope.bump_version()
            # The version was counted before: replicas copy anew also if the write is interrupted.
            owner_of(self._array).from_host(self._array, array)
            if self._scope is not None:
                self._scope.torn.pop(self, None)
        else:
            # The caller's array stays the caller's; the scope writes into its own.
            self.hold(array.copy())

    def _move_to(self, flat: Flat, offset: int) -> None:
        """Makes the storage a view of a flat buffer, with the same value; the caller reports the change of layout."""
        old = self.array
        assert old is not None
        device = owner_of(flat.array)
        view = device.slice(flat.array, offset, old.shape)
        device.copy(view, old)  # before the switch: what fails here leaves the old storage in place
        self._array, self.flat = view, flat

    def _move(self, device: Device) -> None:
        """Moves the storage to a device, with the same value; a torn value stays torn."""
        old = self.array
        assert old is not None
        fresh = device.empty(old.shape, old.dtype)
        device.from_host(fresh, read(old))  # before the switch, likewise
        if self._scope is not None:
            self._scope._layout_changed()
        self._array, self.flat = fresh, None
        if self._scope is not None:
            self._scope._layout_changed()

    @no_effect(place=PLACE)
    def set(self, value: Any, place: Any = None) -> None:
        """Writes a value.

        Args:
            value: An array, a list, another LoDTensor, or anything with ``__array__``.
        """
        given = plain(value, "what was given to set", "set")
        try:
            array = np.array(given, copy=True, order="C")
        except MemoryError as error:
            raise out_of_memory("a copy of what was given to set", cause=error, op="set") from error
        if array.dtype == object:
            raise FeedError(
                "a tensor takes numbers of one shape",
                expected="an array of numbers",
                received=f"an object array made from {type(value).__name__}",
                fix="pass a rectangular list or a numeric array",
                op="set",
            )
        dtype_of(array.dtype)
        self._write(array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._array is None:
            raise FeedError(
                "this tensor holds no value yet",
                expected="a tensor that was set or initialised",
                received="an empty tensor",
                fix="run the startup program, or call set(array, place)",
            )
        values = read(self.array)
        if dtype is not None and values.dtype != dtype:
            return values.astype(dtype)
        # numpy's protocol: `copy=False` raises where only a copy can be given.
        if copy is False and values is not self._array:
            raise ValueError("the tensor lies on a device whose memory the host cannot read without a copy")
        return values if copy is False or values is not self._array else values.copy()

    def __dlpack__(self, **options: Any) -> Any:
        """Returns the value as a DLPack capsule, for ``torch.from_dlpack`` and ``np.from_dlpack``.

        A fetched tensor shares its memory with what is made of it. A scope's variable gives a copy: its storage changes with
        every step.

        Args:
            **options: Those of numpy's arrays.

        """
        array = self.array
        if isinstance(array, DeviceArray) and array.owner.gives_tensors:
            return self._own(array).__dlpack__(**options)  # type: ignore[attr-defined]
        values = self.__array__(copy=None if self._scope is not None else False)
        return capsule_of(values, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's kind and number of the device: of a GPU its own, else of the CPU, ``(1, 0)``."""
        array = self._array
        if isinstance(array, DeviceArray) and array.owner.gives_tensors:
            found: tuple[int, int] = array.__dlpack_device__()  # type: ignore[attr-defined]
            return found
        return 1, 0

    def _own(self, array: DeviceArray) -> DeviceArray:
        """Returns an array of a device that no step writes."""
        if self._scope is None:
            return array
        copied: DeviceArray = array.owner.empty(array.shape, array.dtype)
        array.owner.copy(copied, array)
        return copied

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns a copy of the value."""
        return self.__array__()

    def shape(self) -> list[int]:
        return [] if self._array is None else list(self._array.shape)

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _dtype(self) -> DType | None:
        return None if self._array is None else dtype_of(self._array.dtype)

    def _is_initialized(self) -> bool:
        return self._array is not None

    def lod(self) -> list[list[int]]:
        return self._lod

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Sets the offsets of each level, from the outermost inwards: ``[[0, 2, 5]]`` for sequences of 2 and 3 rows.

        They are checked where the tensor is fed.
        """
        self._lod = levels_of(lod, "lod", "LoDTensor.set_lod")

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Returns the lengths of each level: ``[[2, 3]]`` for sequences of 2 and 3 rows."""
        return [[b - a for a, b in itertools.pairwise(level)] for level in self._lod]

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Sequence[Sequence[int]]) -> None:
        """Sets the lengths of each level, from the outermost inwards, instead of the offsets."""
        op = "LoDTensor.set_recursive_sequence_lengths"
        lengths = levels_of(recursive_sequence_lengths, "recursive_sequence_lengths", op)
        self.set_lod([[0, *itertools.accumulate(level)] for level in lengths])

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Returns whether the offsets of each level rise from 0 to the number of what they divide; also without levels."""
        rows = 0 if self._array is None or not self._array.ndim else self._array.shape[0]
        return divides(self._lod, rows)

    def __repr__(self) -> str:
        if self._array is None:
            return "LoDTensor(empty)"
        lod = f", lod={self._lod}" if self._lod else ""
        return f"LoDTensor({dtype_of(self._array.dtype).name}{list(self._array.shape)}{lod})\n{read(self.array)!r}"


class LoDTensorArray(list[LoDTensor]):
    """A list of tensors.

    Example:
        >>> tensors = fluid.LoDTensorArray()
        >>> tensors.append(fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], fluid.CPUPlace()))
        >>> len(tensors), tensors[0].lod()
        (1, [[0, 2, 3]])
    """


def tensor_of(array: np.ndarray[Any, Any]) -> LoDTensor:
    """Returns a tensor that holds an array and does not belong to a scope."""
    tensor = LoDTensor()
    tensor.hold(array)
    return tensor


class ScopeVar:
    """A variable of a scope."""

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.scope = scope
        self._tensor = LoDTensor(scope=scope)

    def get_tensor(self) -> LoDTensor:
        return self._tensor

    def set_int(self, value: int) -> None:
        self._tensor.set(np.asarray(value, np.int64))

    def get_int(self) -> int:
        return int(np.asarray(self._tensor))


class Scope:
    """Maps names to values; a child sees its parents' values.

    Attributes:
        layout: A number that changes whenever a value gets other storage, so that bound plans bind anew.
        runs: Program uid -> (seed epoch, number of runs), the counter behind random numbers.
        replicas: Scopes of the replicas after the first, with copies of the variables that each replica needs.
        ran: What the last run of several places knew in advance (``Foreseen``).
        in_flight: The steps that were queued on this scope, its parents and children, and not waited for.
        torn: Tensors of this scope, its parents and children that may be half written, and what was interrupted.
        parted: Those that replicas hold parts of.

    Example:
        >>> scope = static.Scope()
        >>> scope.var("w").get_tensor().set(np.array([1, 2], "float32"), paddle.CPUPlace())
        >>> np.array(scope.find_var("w").get_tensor())
        array([1., 2.], dtype=float32)
    """

    def __init__(self, parent: Scope | None = None) -> None:
        check_type(parent, (Scope, NoneType), "parent", "Scope")
        self.parent = parent
        self.kids: list[Scope] = []
        self.layout = 0
        self.runs: dict[int, tuple[int, int]] = {}
        self.lock = rlock()
        # One dict for a tree of scopes: a child's program writes the parent's variables.
        self.torn: dict[LoDTensor, str] = {} if parent is None else parent.torn
        self.in_flight: InFlight = InFlight() if parent is None else parent.in_flight
        self.parted: Parted = Parted(self.torn) if parent is None else parent.parted
        self.replicas: list[ReplicaScope] = []
        self.ran: Any = None
        self._writes = 0
        self._vars: dict[str, ScopeVar] = {}

    def bump_version(self) -> None:
        """Records that values changed, except by a parallel step, which changes the values of all replicas equally."""
        self._writes += 1

    @property
    def writes(self) -> int:
        """A number that changes whenever :meth:`bump_version` is called here or on a parent."""
        return self._writes + (self.parent.writes if self.parent is not None else 0)

    def _tear(self, names: Iterable[str], reason: str) -> None:
        """Marks variables as possibly half written, with the reason."""
        for name in names:
            var = self.find_var(name)
            if var is not None:
                # By tensor, not by name: names of parent and child may hide each other.
                self.torn[var.get_tensor()] = reason

    def _mend(self, names: Iterable[str]) -> None:
        """Records that variables were written completely."""
        for name in names:
            var = self.find_var(name)
            if var is not None:
                self.torn.pop(var.get_tensor(), None)

    def _torn_by(self, name: str) -> str:
        """Returns what left a variable half written; empty for an intact variable."""
        var = self.find_var(name)
        return "" if var is None else self.torn.get(var.get_tensor(), "")

    def _layout_changed(self) -> None:
        self.layout += 1
        self._writes += 1
        # Plans of children are bound to this scope's storage, too.
        for kid in (*self.kids, *self.replicas):
            kid._layout_changed()

    def var(self, name: str) -> ScopeVar:
        """Returns the variable of that name, and creates it if it does not exist."""
        check_type(name, str, "name", "Scope.var")
        found = self.find_var(name)
        if found is None:
            found = self._vars[name] = ScopeVar(name, self)
        return found

    def find_var(self, name: str) -> ScopeVar | None:
        """Returns the variable of that name here or in a parent, or ``None``."""
        scope: Scope | None = self
        try:
            while scope is not None:
                found = scope._vars.get(name)
                if found is not None:
                    return found
                scope = scope.parent
        except TypeError:
            check_type(name, str, "name", "Scope.find_var")  # it cannot be hashed
            raise
        return None

    def array(self, name: str) -> Array | None:
        """Returns the storage of a variable, on any device, or ``None``."""
        found = self.find_var(name)
        return None if found is None else found._tensor.array

    def _value(self, name: str) -> np.ndarray[Any, Any] | None:
        """Returns the value of a variable for reading: its storage if the host can read that, else a copy; or ``None``."""
        array = self.array(name)
        return None if array is None else read(array)

    def _move(self, name: str, device: Device) -> None:
        """Moves the value of a variable to a device; plans that are bound to the old storage bind anew."""
        found = self.find_var(name)
        assert found is not None
        found._tensor._move(device)

    def everywhere(self, name: str) -> list[Array]:
        """Returns the storage of a variable, and the replicas' copies of it."""
        mine = self.array(name)
        copies = [where._vars[name].get_tensor().array for where in self.replicas if name in where._vars]
        return [a for a in (mine, *copies) if a is not None]

    def publish(self, name: str, array: Array) -> None:
        """Gives a variable new storage."""
        self.var(name)._tensor.hold(array)

    def _join(self, names: Iterable[str]) -> None:
        """Makes variables whole that replicas hold parts of."""
        for name in names:
            found = self.find_var(name)
            if found is not None:
                self.parted.join(found._tensor)

    def local_var_names(self) -> list[str]:
        return list(self._vars)

    def new_scope(self) -> Scope:
        """Returns a child scope."""
        kid = Scope(self)
        self.kids.append(kid)
        return kid

    def replica(self, index: int) -> Scope:
        """Returns the scope of a replica of parallel programs: this one for the first; others are created on first use."""
        if index == 0:
            return self
        while len(self.replicas) < index:
            self.replicas.append(ReplicaScope(self))
        return self.replicas[index - 1]

    def drop_kids(self) -> None:
        self.kids.clear()

    def erase(self, names: Iterable[str]) -> None:
        """Removes variables; unknown names are ignored."""
        for name in [names] if isinstance(names, str) else names:
            gone = self._vars.pop(name, None)
            if gone is not None:
                self.torn.pop(gone.get_tensor(), None)
                self.parted.others.pop(gone.get_tensor(), None)
        self._layout_changed()  # plans that are bound to a variable that is gone must not write to it

    def held_bytes(self) -> int:
        """Returns the bytes of all values of this scope."""
        return sum(v._tensor._array.nbytes for v in self._vars.values() if v._tensor._array is not None)

    def __repr__(self) -> str:
        return f"<Scope: {len(self._vars)} variables, {len(self.kids)} children>"


class ReplicaScope(Scope):
    """The scope of a replica after the first: it holds copies of the parent's values; for other names the parent is read."""

    def __init__(self, parent: Scope) -> None:
        super().__init__(parent)
        # All replicas share one count: they run each step together.
        self.runs = parent.runs
        self._copied = -1
        self._parts: set[str] = set()

    def _tear(self, names: Iterable[str], reason: str) -> None:
        """Marks the parent's variables: the values here are copies of theirs."""
        assert self.parent is not None
        self.parent._tear(names, reason)

    def _mend(self, names: Iterable[str]) -> None:
        """Does nothing: only a write to the parent's value makes it complete."""

    def _torn_by(self, name: str) -> str:
        """Returns what left the parent's variable half written; empty for an intact variable."""
        assert self.parent is not None
        return self.parent._torn_by(name)

    def fill(
        self,
        own: Iterable[str],
        shared: Iterable[str],
        device: Device | None = None,
        parts: frozenset[str] = frozenset(),
    ) -> None:
        """Copies the parent's values that the replica lacks, or all of them if the parent's values changed.

        Args:
            own: Variables that the replica has a copy of.
            shared: Variables that are kept in the parent, because only this replica uses them.
            device: Where the copies of values that lie on a device are to be; ``None``: where they are.
            parts: Those of ``own`` of which it has a part: zeros at first, when the parent has the whole value.
        """
        dropped = [name for name in shared if name in self._vars]
        if dropped:
            self.erase(dropped)
        assert self.parent is not None
        # The copies are current unless the user, or a program on one place, wrote to the parent since.
        fresh = self._copied == self.parent.writes
        for name in own:
            if fresh and name in self._vars and (name in parts) == (name in self._parts):
                continue
            var = self._vars.get(name)
            if var is None:
                var = self._vars[name] = ScopeVar(name, self)
            source = self.parent.array(name)
            if source is None:
                continue
            array = var.get_tensor().array
            # A value of the host stays there until a plan is bound.
            there = owner_of(source)
            to = device if device is not None and isinstance(source, DeviceArray) else there
            if to is not there:
                # The copy is ordered with the streams of the one that gets it.
                there.synchronize()
            fits = array is not None and array.shape == source.shape and array.dtype == source.dtype and to.holds(array)
            target = array if fits else to.empty(source.shape, source.dtype)
            if name in parts:
                to.fill(target, 0.0)
                self._parts.add(name)
            else:
                to.copy(target, source)
                self._parts.discard(name)
            if not fits:
                var.get_tensor().hold(target)
        if not fresh:
            # Copies that other programs made before are out of date now.
            stale = self._vars.keys() - set(own)
            if stale:
                self.erase(stale)
        self._copied = self.parent.writes  # last: copies that were broken off are made again

    def fall_behind(self) -> None:
        """Notes that other replicas run without this one, so that its copies are out of date."""
        self._copied = -1


_current = Guarded("scope", Scope())


def global_scope() -> Scope:
    """Returns the scope that runs use by default: that of this thread's ``scope_guard``, else one that all threads share.

    Example:
        >>> three = paddle.nn.initializer.Constant(3.0)
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=three)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([3., 3.], dtype=float32)
    """
    return _current.get()


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Makes ``scope`` the global one inside the ``with`` block, for the thread that enters it.

    Raises:
        ProgramTypeError: If it is not a Scope.

    Example:
        >>> w = paddle.create_parameter([2], "float32", name="w")
        >>> scope = static.Scope()
        >>> with static.scope_guard(scope):
        ...     _ = static.Executor().run(static.default_startup_program())
        >>> scope.find_var("w") is not None, static.global_scope().find_var("w") is None
        (True, True)
    """
    check_type(scope, Scope, "scope", "scope_guard", expected="a static.Scope")
    with _current.inside(scope):
        yield


def reset_global_scope() -> None:
    """Starts with an empty global scope (for tests)."""
    _current.switch(Scope())


def dtype_check(name: str, expected: DType, received: DType) -> None:
    """Raises DTypeError when a scope value does not have the variable's dtype."""
    if expected is not received:
        rounds = "; after the startup program of mixed precision at level O2: optimizer.amp_init(place)"
        raise DTypeError(
            f"the scope's value of '{name}' has another dtype than the program's variable",
            expected=expected.name,
            received=received.name,
            fix=f"set it as {expected.name}: tensor.set(array.astype('{expected.name}'), place){rounds * expected.is_low}",
            var=name,
        )
