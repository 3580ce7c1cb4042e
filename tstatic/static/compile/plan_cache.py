"""Keeps the compilations of an Executor by key, within a number of bytes; the least recently used ones go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from logging import INFO

from tstatic import flags
from tstatic.comm.group import Group
from tstatic.devices import Device
from tstatic.display import size
from tstatic.ir.recording import LATE
from tstatic.logs import get_logger, warn_once
from tstatic.runtime.arenas import Arenas, held_bytes
from tstatic.runtime.kept import plan_bytes, session_bytes
from tstatic.runtime.scope import Scope
from tstatic.runtime.session import Session
from tstatic.shield import shield
from tstatic.static.compile import Compilation, Family
from tstatic.static.compile.ledger import OWN, CompileRecord, Key, Ledger, PlansInUse

_log = get_logger("recompiles")

MOST_FAMILIES = 32
"""The most programs, counted with strategies, fetch lists and scopes, of which an Executor keeps plans: each keeps a program and
a scope alive, whose bytes nobody can attribute to a plan."""
MOST_REMOVED = 1 << 14
"""Of how many removed plans an Executor remembers that it had them: a number each."""
MOST_AGAIN = 8
"""So many plans are compiled again before a warning says so: a few of them cost less than reading it."""
OWN_PLAN = 64
"""Runs of a size with a plan for any size, after which it gets one of its own: by then, what its steps take longer has cost about
as much (`bench/results/feed-sizes-*`: 0 to 0.1 ms a step, 4 to 35 ms a plan)."""
SIZE_BYTES = 2_500
"""What a size keeps beside what is bound to it: its key and its places in the tables."""
SETTLED = 4
"""Runs after which a session keeps nothing new: functions record their calls in their second."""


@dataclass(frozen=True)
class Bound:
    """A compilation and its sessions.

    Attributes:
        compilation: The compilation that they run.
        sessions: One per replica.
        group: The group in which the replicas communicate.
        kept: Fed persistable variables that the program does not write: after the run the scope has what was fed.
        exact: Of a plan for any size, which other entries share: compiles the program for the sizes of this entry.
    """

    compilation: Compilation
    sessions: tuple[Session, ...]
    group: Group | None
    kept: tuple[str, ...] = ()
    exact: Callable[[], Compilation] | None = None

    def drop(self) -> None:
        """Frees the memory of all sessions."""
        for session in self.sessions:
            session.drop()


def kept_bytes(entry: Bound) -> int:
    """Returns about how many bytes a compilation and its sessions keep, beside the arenas that they share with others."""
    plans = {id(session.plan): session.plan for session in entry.sessions}
    return sum(map(plan_bytes, plans.values())) + sum(map(session_bytes, entry.sessions))


@dataclass(eq=False, slots=True)
class _Relatives:
    """The plans of one family: a program with its settings and scope, for feeds of all sizes.

    Attributes:
        key, family: What they have in common.
        plans: Their keys.
        any_size: The plan that serves sizes without a plan of their own, and its session; ``None`` until there are any.
        nbytes: What it keeps, beside what is bound to single sizes.
        sizes: How many entries share it.
        refuses: Whether the program cannot be planned without sizes.
    """

    key: Hashable
    family: Family
    plans: dict[Key, None] = field(default_factory=dict)
    any_size: Bound | None = None
    nbytes: int = 0
    sizes: int = 0
    refuses: bool = False


@dataclass(eq=False, slots=True)
class _Kept:
    """An entry, with the bytes that it kept after so many runs.

    ``served``: How often it was found.
    """

    key: Key
    bound: Bound
    relatives: _Relatives
    nbytes: int = 0
    runs: int = -1
    served: int = 0


class CompileCache:
    """Keeps the compilations of one Executor, with their sessions, by key.

    Calls of one cache do not overlap: the Executor's lock sees to it.

    Args:
        ledger: Where compilations are recorded; an own one if ``None``.

    Attributes:
        warns: Whether plans that are compiled again draw a warning; checks make them on purpose.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.warns = True
        self.ledger = Ledger() if ledger is None else ledger
        self._entries: OrderedDict[Key, _Kept] = OrderedDict()
        self._families: OrderedDict[_Relatives, None] = OrderedDict()
        self._relatives: dict[Hashable, _Relatives] = {}
        self._arenas: dict[tuple[int, Device, int], Arenas] = {}
        self._kept_bytes = 0
        self._hits = 0
        self._compiled = 0
        self._again = 0
        self._removed: OrderedDict[int, None] = OrderedDict()
        self._runs_at_removal = 0
        self._asked: tuple[Key | None, Hashable] = (None, None)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key, scope: Scope) -> Bound | None:
        """Returns the entry of a key, if the scope's values still fit it."""
        # Most runs repeat the last one, whose entry is at the end; comparing two keys takes a fifth of hashing one twice.
        newest, found = next(reversed(self._entries.items()), (None, None))
        last = found
        repeated = key == newest
        if not repeated:
            found = self._entries.get(key)
        # Compared for equality, so that other runs do not pay for the look at the flags.
        if found is None or (found.served == OWN_PLAN and self.deserves_own_plan(key)):
            return None
        for session in found.bound.sessions:
            if session.stale():
                # Other storage of the same shapes is only bound anew; other shapes need another plan.
                if not found.bound.compilation.fits(scope):
                    return None
                break
        self._hits += 1
        found.served += 1
        if not repeated:
            if found.bound.exact is not None:
                found.bound.sessions[0].feed_sizes = key
            self._entries.move_to_end(key)
            self._families.move_to_end(found.relatives)
            # It grew in the runs since it was weighed, until its functions have recorded their calls.
            if last is not None and last.runs < SETTLED:
                self._weigh(last)
                self._trim()
        return found.bound

    def _family_key(self, key: Key) -> Hashable:
        """Returns what the keys for all sizes and types of the same feeds have in common."""
        asked, answer = self._asked
        if asked is not key:
            # A new size asks four times.
            answer = key._replace(feed_signature=()), tuple([part[0] for part in key.feed_signature[0]])
            self._asked = key, answer
        return answer

    def family(self, key: Key) -> Family | None:
        """Returns what compilations for other sizes than a key's have in common with it, if there was one."""
        relatives = self._relatives.get(self._family_key(key))
        return None if relatives is None else relatives.family

    def any_size(self, key: Key) -> Bound | None:
        """Returns the plan of a key's family that serves sizes without a plan of their own, with its session."""
        relatives = self._relatives.get(self._family_key(key))
        return None if relatives is None else relatives.any_size

    def deserves_own_plan(self, key: Key) -> bool:
        """Returns whether a size ran so often with a plan for any size that one of its own pays."""
        found = self._entries.get(key)
        return found is not None and self._deserves(found)

    @staticmethod
    def _deserves(found: _Kept) -> bool:
        shares = found.bound.exact is not None and found.served >= OWN_PLAN
        # Under a bound on recompilations it never does: the plan would count as one more.
        return shares and not flags.flag("FLAGS_max_recompiles")

    def refuse_any_size(self, key: Key) -> None:
        """Records that the program cannot be planned without sizes."""
        self._relatives[self._family_key(key)].refuses = True

    def refuses_any_size(self, key: Key) -> bool:
        """Returns whether that was recorded."""
        return self._relatives[self._family_key(key)].refuses

    def arenas(self, devices: Sequence[Device], group: Group | None) -> list[Arenas]:
        """Returns the memory that the plans of each replica share, one on each of the devices."""
        # The id does not keep the group alive; `forget` removes its arenas before another group can have that id.
        return [self._arenas.setdefault((id(group), one, i), Arenas(one)) for i, one in enumerate(devices)]

    def add(self, key: Key, entry: Bound, seconds: float) -> CompileRecord:
        """Adds an entry, logs and records the time of the compilation and the parts of the key that differ from the nearest one."""
        count = len(entry.sessions)
        program = entry.compilation.program
        # Signals wait, so that entries, families and bytes always agree.
        with shield:
            again = bool(self._removed) and hash(key) in self._removed
            if again:
                del self._removed[hash(key)]
            self._again += again
            self._compiled += 1
            before = self._entries.get(key)
            own = before is not None and self._deserves(before)
            record = self.ledger.add(key, repr(program), seconds, again, OWN if own else "")
            last = next(reversed(self._entries.values()), None)
            if before is not None:
                self._remove(key)
            shared = self._family_key(key)
            relatives = self._relatives.get(shared)
            if relatives is None:
                relatives = self._relatives[shared] = _Relatives(shared, entry.compilation.family)
            self._families[relatives] = None
            self._families.move_to_end(relatives)
            relatives.plans[key] = None
            if entry.exact is not None:
                self._share(relatives, entry)
            kept = self._entries[key] = _Kept(key, entry, relatives)
            for session in entry.sessions:
                session.on_growth = partial(self._grow, None if entry.exact is not None else key)
            if entry.exact is not None:
                relatives.sizes += 1
                entry.sessions[0].feed_sizes = key
            # The entry of the last run, too: it grew since it was weighed.
            for one in (last, kept):
                if one is not None:
                    self._weigh(one)
            self._trim()
        if _log.isEnabledFor(INFO):
            where = f" for {count} places" if count > 1 else ""
            _log.info("compiled %r%s in %.1f ms: %s", program, where, seconds * 1e3, record.reason)
        if self.warns and again and self._again == MOST_AGAIN:
            self._warn(entry)
        return record

    def _warn(self, entry: Bound) -> None:
        """Says that plans are compiled again that were there before."""
        program = entry.compilation.program
        limit = int(flags.flag("FLAGS_plan_cache_bytes"))
        runs = self._hits + self._compiled - self._runs_at_removal
        each = self._kept_bytes / max(1, len(self._entries))
        warn_once(
            ("compiled again", program.uid),
            f"{self._again} of the last {runs} runs ({self._again / max(1, runs):.0%}), the last of them of {program!r}, compiled "
            f"a plan again that had been removed: the {len(self._entries)} plans that an Executor keeps in FLAGS_plan_cache_bytes "
            f"= {limit} ({size(limit)}; a plan takes about {size(each)}) are fewer than the sizes that are fed in turn. Raise the "
            "flag, or feed arrays of fewer different shapes (pad them). Executor.compilations has all reasons",
            topic="recompiles",
        )

    def _share(self, relatives: _Relatives, entry: Bound) -> None:
        """Makes the plan of an entry, which has no place yet, that of all sizes of its family; sizes of another one go."""
        before = relatives.any_size
        if before is not None and before.sessions is entry.sessions:
            return
        # A list: `_remove` changes the family's plans.
        known = [self._entries[key] for key in relatives.plans if key in self._entries]
        for kept in known:
            if kept.bound.exact is not None:
                self._remove(kept.key)
        relatives.any_size = replace(entry, exact=None)

    def _weigh(self, kept: _Kept) -> None:
        """Finds again how much an entry keeps, which grows in its first runs."""
        if kept.bound.exact is None:
            kept.runs = max(session.runs for session in kept.bound.sessions)
            self._set_bytes(kept, kept_bytes(kept.bound))
            return
        (session,) = kept.bound.sessions
        if not kept.nbytes:
            self._set_bytes(kept, SIZE_BYTES)
        if kept.served > LATE:
            # Functions have recorded their calls.
            kept.runs = SETTLED
            if session.sections is not None:
                session.sections.measure(kept.key)
        if session.runs <= SETTLED and kept.relatives.sizes:
            bound = 0 if session.sections is None else session.sections.kept_bytes
            self._set_bytes(kept.relatives, kept_bytes(kept.bound) - bound)

    def _set_bytes(self, kept: _Kept | _Relatives, nbytes: int) -> None:
        self._kept_bytes += nbytes - kept.nbytes
        kept.nbytes = nbytes

    def _grow(self, key: Key | None, sizes: Hashable, nbytes: int) -> None:
        """Adds bytes that a session bound, or forgot, for some sizes."""
        with shield:
            kept = self._entries.get(key if key is not None else sizes)  # type: ignore[call-overload]
            if kept is not None:
                self._set_bytes(kept, kept.nbytes + nbytes)
                if nbytes > 0:
                    self._trim()

    def _trim(self) -> None:
        """Removes the entries that were not used for longest while there are too many bytes or families; the newest stays."""
        limit = int(flags.flag("FLAGS_plan_cache_bytes"))
        with shield:
            # The newest is about to run, however large it is.
            while self._kept_bytes > limit and len(self._entries) > 1:
                self._evict(next(iter(self._entries)))
            while len(self._families) > MOST_FAMILIES:
                # A copy: removing its last plan removes the family.
                for key in list(next(iter(self._families)).plans):
                    self._evict(key)

    def _evict(self, key: Key) -> None:
        """Removes an entry that might be needed again."""
        if not self._removed:
            self._runs_at_removal = self._hits + self._compiled
        self._removed[hash(key)] = None
        if len(self._removed) > MOST_REMOVED:
            self._removed.popitem(last=False)
        self._remove(key)

    def _remove(self, key: Key) -> None:
        """Removes an entry and frees what it holds, if there is one; its family goes with its last plan."""
        kept = self._entries.pop(key, None)
        if kept is None:
            return
        self._kept_bytes -= kept.nbytes
        relatives = kept.relatives
        relatives.plans.pop(key, None)
        if not relatives.plans:
            del self._families[relatives], self._relatives[relatives.key]
        if kept.bound.exact is None:
            kept.bound.drop()
            return
        (session,) = kept.bound.sessions
        if session.sections is not None:
            session.sections.forget(key)
        relatives.sizes -= 1
        if not relatives.sizes:
            # The last size that it served.
            self._kept_bytes -= relatives.nbytes
            relatives.any_size, relatives.nbytes = None, 0
            kept.bound.drop()

    def forget(self, group: Group) -> None:
        """Removes the entries of replicas whose group has ended, and their memory."""
        with shield:
            # Lists, as the dicts change in the loops.
            for key in [key for key, kept in self._entries.items() if kept.bound.group is group]:
                self._remove(key)
            for place in [place for place in self._arenas if place[0] == id(group)]:
                del self._arenas[place]

    def close(self) -> None:
        """Frees the memory of all sessions and removes all entries."""
        with shield:
            for key in list(self._entries):
                self._remove(key)
            self._arenas.clear()

    @property
    def held_bytes(self) -> int:
        """Bytes that the arenas of all sessions hold now."""
        return held_bytes(session for kept in list(self._entries.values()) for session in kept.bound.sessions)

    @property
    def in_use(self) -> PlansInUse:
        """How runs found their plans until now."""
        return PlansInUse(
            self._hits + self._compiled, self._compiled, self._again, len(self._entries), self._kept_bytes
        )


__all__ = ["Bound", "CompileCache", "kept_bytes"]
