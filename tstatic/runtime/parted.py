"""Variables of which each place of a process holds a part until somebody looks: sums over runs that are not complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.comm.transport.ordered_sum import add_in_order
from tstatic.devices import Array, owner_of, read
from tstatic.locks import rlock
from tstatic.shield import shield


def _nobody() -> None:
    """A reference to no scope."""


class Tensor(Protocol):
    """A variable's value on one place."""

    _array: Array | None


class Parted:
    """The variables of a tree of scopes that are in parts: the value is the sum of the parts, in the order of the places.

    Whoever reads or writes such a variable joins it before: then the first place holds the value and the others hold zeros, which
    is the same sum. While the places run, their parts are not joined, since the run reads and writes them.

    Args:
        torn: The tensors that may be half written, and why.

    Attributes:
        others: Tensor of the first place -> those of the other places, in order.
        whole: Names of variables that the last run of places used whole: what it left in parts are others.
        ran: The scope whose replicas ran last: those of others have old values.
        lock: Held by whoever joins, or begins or ends a run.
    """

    __slots__ = ("_torn", "lock", "others", "ran", "whole")

    def __init__(self, torn: dict[Any, str]) -> None:
        self.others: dict[Tensor, Sequence[Tensor]] = {}
        self.whole: frozenset[str] = frozenset()
        self.ran: Callable[[], Any] = _nobody
        self.lock = rlock()
        self._torn = torn

    def join(self, tensor: Tensor) -> None:
        """Makes a variable whole, if it is in parts.

        Raises:
            QueuedWorkError: If a device failed; the variable is in parts as before, or torn.
        """
        with self.lock:
            others = self.others.get(tensor)
            if others is None:
                return
            first, *rest = [array for one in (tensor, *others) if (array := one._array) is not None]
            total = np.array(read(first))
            with np.errstate(all="ignore"):
                for array in rest:
                    add_in_order([total, read(array)], [total])
            with shield:
                try:
                    owner_of(first).from_host(first, total)
                    for array in rest:
                        owner_of(array).fill(array, 0.0)
                except BaseException as error:
                    self._torn[tensor] = f"a join that {type(error).__name__} broke off"
                    raise
                finally:
                    del self.others[tensor]

    def begin(self, run: Mapping[Any, Sequence[Tensor]]) -> None:
        """Leaves the parts of some variables to a run; before :meth:`end`, their values are not those of the variables."""
        with self.lock:
            for tensor, others in run.items():
                # Replicas of another scope may have had the parts.
                if self.others.get(tensor, others) != others:
                    self.join(tensor)
                self.others.pop(tensor, None)

    def end(self, run: Mapping[Any, Sequence[Tensor]], whole: frozenset[str]) -> None:
        """Notes the parts that a run leaves, whatever became of it: they are those of before, or new ones, or torn."""
        with self.lock:
            self.others.update(run)
            self.whole = whole


__all__ = ["Parted"]
