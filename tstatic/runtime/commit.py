"""Writes what a run commits to its variables, behind all work that may fail (docs/design/0002)."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.devices import Array
from tstatic.runtime.binding import Binding, Setting

Pending = list[tuple[str, Array, Array | None]]
"""Variable, value, and new storage if the old one does not fit."""


class Commit:
    """What a plan commits.

    Args:
        setting: What the session was made with.

    Attributes:
        late: Values that the update region makes: they are fetched and committed behind it.
        early, behind: (variable, value) pairs whose values the main region makes, and those of the update region.
    """

    def __init__(self, setting: Setting) -> None:
        plan = setting.plan
        self._setting = setting
        self.late = frozenset(v for step in plan.steps if step.region == "update" for v in step.op.writes())
        self.early = [(var, v) for var, v in plan.commits if v not in self.late]
        self.behind = [(var, v) for var, v in plan.commits if v in self.late]

    def pending(self, commits: Sequence[tuple[str, str]], binding: Binding) -> Pending:
        """Returns what :meth:`write` copies, with the storage that it needs: what may fail comes before state is written."""
        done: Pending = []
        for var, value in commits:
            source = binding.arrays[value]
            old = self._setting.scope.array(var)
            fits = old is not None and old.shape == source.shape and old.dtype == source.dtype
            if old is not None:
                binding.targets[var] = old
            done.append((var, source, None if fits else self._setting.device.empty(source.shape, source.dtype)))
        return done

    def queue(self, pending: Pending, binding: Binding) -> None:
        """Queues copies of values to their variables, behind the updates; where a check failed, they change nothing."""
        device, stream = self._setting.device, self._setting.streams[0]
        for var, source, fresh in pending:
            target = binding.targets[var] if fresh is None else fresh
            # New storage needs no question: it is published only if no check failed.
            if binding.bad is not None and fresh is None:
                device.copy_unless(binding.bad, target, source, stream)
            else:
                device.copy(target, source, stream)

    def publish(self, pending: Pending) -> None:
        """Gives variables their new storage, once the device has written it: whoever reads one next must find values."""
        for var, _, fresh in pending:
            if fresh is not None:
                self._setting.scope.publish(var, fresh)

    def write(self, pending: Pending, binding: Binding) -> None:
        """Copies values to their variables, waits for the copies, and publishes new storage.

        Raises:
            QueuedWorkError: If work failed that was queued before.
        """
        # All copies are queued before the host waits, once for all of them.
        if pending:
            self.queue(pending, binding)
        if self._setting.device.deferred:
            for function, args in self._setting.waiting():
                function(*args)
        if pending:
            self.publish(pending)
