"""The record of what a CompiledProgram was compiled to, and of its runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from tstatic.plan.plan import Plan
from tstatic.plan.report import Seen
from tstatic.runtime.arenas import held_bytes
from tstatic.runtime.kept import plan_bytes, session_bytes
from tstatic.runtime.scope import Scope
from tstatic.runtime.session import Session
from tstatic.static.compile import Compilation
from tstatic.static.compile.ledger import MOST_RECORDS, CompileRecord, Key, PlansInUse
from tstatic.static.compile.plan_cache import Bound


@dataclass(eq=False, slots=True)
class History:
    """Records the compilations and runs of a CompiledProgram.

    Attributes:
        counted: The compilation of the last run, whose sessions are in ``sessions``.
        sessions: The sessions of all runs; weak references, so that the memory of a deleted Executor is freed.
        scope: The scope of the last data-parallel run.
        last: The key of the last run, and how many of its fetches the user named.
        records: The last compilations for runs, in all Executors.
        runs, compiled, again: How many runs there were, how many compilations for them, and how many of these for plans that had
            been removed.
    """

    _compilation: Compilation | Callable[[], Compilation] | None = None
    counted: Compilation | None = None
    sessions: WeakSet[Session] = field(default_factory=WeakSet)
    scope: Scope | None = None
    last: tuple[Key, int] | None = None
    records: deque[CompileRecord] = field(default_factory=lambda: deque(maxlen=MOST_RECORDS))
    runs: int = 0
    compiled: int = 0
    again: int = 0

    @property
    def fetched(self) -> list[str] | None:
        """What the last run fetched; ``None`` before the first one."""
        if self.last is None:
            return None
        key, count = self.last
        # After what the user fetches come the row offsets of sequences.
        return list(key.fetch_list[0][:count])  # type: ignore[index]

    @property
    def fed(self) -> dict[str, tuple[int, ...]]:
        """Input -> shape in the last run: that of the whole batch, which replicas share."""
        found: dict[str, tuple[int, ...]] = {}
        for replica in self.last[0].feed_signature if self.last is not None else ():
            for name, shape, _ in replica:
                found[name] = (found.get(name, (0,))[0] + shape[0], *shape[1:]) if shape else ()
        return found

    @property
    def kept(self) -> list[Any] | None:
        """The updates to which the last run pruned the program; ``None`` if it did not."""
        if self.last is None:
            return None
        found: Any = self.last[0].prune
        return list(found[1]) if found[0] else None

    @property
    def compilation(self) -> Compilation | None:
        """The last compilation; that of a size that shares a plan for any size is made when it is asked for."""
        if callable(self._compilation):
            self._compilation = self._compilation()
        return self._compilation

    @compilation.setter
    def compilation(self, made: Compilation | Callable[[], Compilation] | None) -> None:
        self._compilation = made

    def seen(self, plan: Plan) -> Seen | None:
        """Returns what runs of an equal plan showed of the memory beside its arena; ``None`` before the first."""
        # Plans that store values alike take the same memory, though each compilation makes its own objects.
        alike = (s.seen for s in self.sessions if s.plan.storage == plan.storage)
        return max(
            (one for one in alike if one is not None), key=lambda one: (one.outside, len(one.beside)), default=None
        )

    def note(self, record: CompileRecord) -> None:
        """Records a compilation for a run."""
        self.records.append(record)
        self.compiled += 1
        self.again += record.again

    def ran(self, entry: Bound, drop_every: int) -> None:
        """Records a run; after every ``drop_every`` runs releases the memory of temporaries."""
        self.runs += 1
        # Most runs repeat the last compilation, whose sessions are known.
        if self.counted is not entry.compilation:
            self.counted = entry.compilation
            self.sessions.update(entry.sessions)
        if drop_every:
            for session in entry.sessions:
                if session.runs % drop_every == 0:
                    session.release()

    @property
    def held_bytes(self) -> int:
        """Bytes of arenas and scratch memory that all sessions hold now."""
        return held_bytes(self.sessions)

    @property
    def in_use(self) -> PlansInUse:
        """How runs found their plans until now."""
        # A session without memory was dropped together with its plan.
        kept = [session for session in list(self.sessions) if next(session.memories(), None) is not None]
        plans = {id(session.plan): session.plan for session in kept}
        nbytes = sum(map(plan_bytes, plans.values())) + sum(map(session_bytes, kept))
        # A compilation whose run failed is counted, too.
        return PlansInUse(max(self.runs, self.compiled), self.compiled, self.again, len(plans), nbytes)


__all__ = ["History"]
