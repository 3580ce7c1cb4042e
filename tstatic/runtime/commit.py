"""Writes what a run commits to its variables, behind all work that may fail (docs/design/0002)."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.devices import Array
from tstatic.errors import FeedError, IndexRangeError
from tstatic.runtime.binding import Binding, Setting
from tstatic.runtime.fetch import StagedFetches

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
            done.append((var, source, None if fits else self._setting.device.empty(source.shape, source.dtype)))
        return done

    def write(
        self, pending: Pending, binding: Binding, runs: int = 0, fetched: StagedFetches | None = None
    ) -> IndexRangeError | FeedError | None:
        """Copies values to their variables, after the updates; new storage is published once the device has written it.

        Args:
            pending: What :meth:`pending` said.
            binding: What the plan is bound to.
            runs: How many runs came before, where the update was queued before the host knew of its checks.
            fetched: What is fetched behind the updates: it arrives with the same wait.

        Returns:
            The error that a check found; then no variable was changed.

        Raises:
            QueuedWorkError: If work failed that was queued before.
        """
        setting = self._setting
        device, scope, stream = setting.device, setting.scope, setting.streams[0]
        asked = binding.checks if binding.undecided else None
        # All copies are queued before the host waits, once for all of them.
        for var, source, fresh in pending:
            target = scope.array(var) if fresh is None else fresh
            assert target is not None
            # New storage needs no question: it is published only if no check failed.
            if asked is not None and asked.bad is not None and fresh is None:
                device.copy_unless(asked.bad, target, source, stream)
            else:
                device.copy(target, source, stream)
        if fetched is not None:
            fetched.send()
        if device.deferred:
            for function, args in setting.waiting():
                function(*args)
        found = asked.error(runs) if asked is not None else None
        # Behind the wait: whoever reads the variable next must find values, and none of a run that failed.
        for var, _, fresh in pending if found is None else ():
            if fresh is not None:
                scope.publish(var, fresh)
        return found
