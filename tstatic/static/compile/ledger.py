"""The ledger of compilations: for each, which parts of the cache key changed, from what to what, and how long it took."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from tstatic import flags
from tstatic.devices import Device
from tstatic.display import counted, size
from tstatic.errors import ProgramError
from tstatic.places import Place
from tstatic.static.compile.request import Signature
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target

MOST_RECORDS = 256
"""The most records that a ledger keeps, with their keys; older ones are only counted."""
# Characters of a value in a line of the log: the repr of a strategy or a feed list may fill a screen.
MOST_TEXT = 120
REMOVED = "its plan had been removed, to stay within FLAGS_plan_cache_bytes"
OWN = "it ran so often with a plan for any size that one of its own pays"


class Key(NamedTuple):
    """What a compilation depends on; the log calls the parts by these names."""

    program: int
    version: int
    strategy: Hashable
    execution: Hashable
    feed_signature: tuple[Signature, ...]
    """One per replica."""
    fetch_list: Hashable
    place: Place | tuple[Place, ...]
    """A data-parallel program has one for each replica."""
    device: Device
    target: Target
    """Kernels are cut for a chip, and a device learns which one it is when it is first used."""
    scope: int
    flags: Hashable
    prune: Hashable
    numerics: str | None
    """What the CompiledProgram says; ``None`` leaves it to the flag."""
    table_rows: tuple[int, ...] = ()
    """For each table whose gradient is summed as rows, the most that a process looks up; empty: what this one does."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A part of the key that differs from the nearest earlier compilation of the same program.

    Attributes:
        part: Name of the part, such as ``feed signature``.
        old, new: Its values, as text.
    """

    part: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.part}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """One compilation of a program for a run.

    Attributes:
        number: Which compilation of its program in its Executor this is, from 1.
        program: The program, in a line.
        seconds: Time that rewriting and planning took.
        reason: Why it was made: ``first run``, what differs, or that the plan was no longer kept.
        changes: The parts of the key that differ from the nearest earlier one; empty for a first run.
        again: Whether the plan had been there, and was removed to make room.
    """

    number: int
    program: str
    seconds: float
    reason: str
    changes: tuple[KeyChange, ...] = ()
    again: bool = False

    def __str__(self) -> str:
        return f"compilation {self.number} in {self.seconds * 1e3:.1f} ms: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PlansInUse:
    """How runs found their plans, in an Executor or of a CompiledProgram.

    Attributes:
        runs: Runs until now.
        compilations: How many of them compiled a program.
        again: How many of these made a plan that had been there and was removed (``FLAGS_plan_cache_bytes``).
        plans: Plans that are kept now.
        kept_bytes: About how many bytes of the host these keep, beside the arenas, which plans share.
    """

    runs: int
    compilations: int
    again: int
    plans: int
    kept_bytes: int

    @property
    def hits(self) -> int:
        """Runs that found their plan."""
        return self.runs - self.compilations

    def __str__(self) -> str:
        found = f"{self.hits:,} of {counted(self.runs, 'run')} found their plan"
        again = f"; {counted(self.again, 'plan')} removed and compiled again" if self.again else ""
        return f"{found}{again}; {counted(self.plans, 'plan')} kept, {size(self.kept_bytes)}"


class Ledger:
    """Keeps a record of each compilation of an Executor."""

    def __init__(self) -> None:
        self._rows: deque[tuple[Key, CompileRecord]] = deque()
        self._counts: dict[int, int] = {}
        # How many rows each key has: a look at all rows took 7 % of what a new feed size costs.
        self._kept: Counter[Key] = Counter()

    @property
    def records(self) -> tuple[CompileRecord, ...]:
        """The records, oldest first."""
        return tuple(record for _, record in self._rows)

    def count(self, program: int) -> int:
        """Returns how often the program of this number was compiled."""
        return self._counts.get(program, 0)

    def check(self, key: Key, program: str) -> None:
        """Checks that one more compilation stays within ``FLAGS_max_recompiles``.

        Raises:
            ProgramError: If it does not; the message has the reasons of the last ones.
        """
        most = int(flags.flag("FLAGS_max_recompiles"))
        # The first compilation does not count: the flag bounds recompilations.
        if not most or self.count(key.program) <= most:
            return
        # Six show which sizes alternate; all 256 would hide it.
        mine = [record for old, record in self._rows if old.program == key.program][-6:]
        rows = "\n".join(f"  {record}" for record in mine)
        raise ProgramError(
            f"{program} would be compiled again, beyond FLAGS_max_recompiles = {most}. Its last compilations:\n{rows}\n"
            f"  the next one: {self.explain(key)[0]}",
            expected=f"at most {most} compilations after the first",
            received=f"{self.count(key.program)} already made",
            fix="feed arrays of fewer different shapes (pad them, or drop the last batch), or raise the flag",
        )

    def add(self, key: Key, program: str, seconds: float, again: bool = False, reason: str = "") -> CompileRecord:
        """Adds a compilation that took so long, perhaps of a plan that was removed before; returns its record."""
        given = REMOVED if again else reason
        reason, changes = (given, ()) if given else self.explain(key)
        number = self._counts[key.program] = self.count(key.program) + 1
        record = CompileRecord(number, program, seconds, reason, changes, again)
        if len(self._rows) == MOST_RECORDS:
            oldest = self._rows.popleft()[0]
            self._kept[oldest] -= 1
            if not self._kept[oldest]:
                del self._kept[oldest]
        self._rows.append((key, record))
        self._kept[key] += 1
        return record

    def explain(self, key: Key) -> tuple[str, tuple[KeyChange, ...]]:
        """Returns why a compilation for this key is needed, and how the key differs from the nearest earlier one."""
        nearest: list[str] | None = None
        other = key
        same = key in self._kept
        for old, _ in reversed(self._rows):
            if old.program != key.program:
                continue
            differs = [name for name, a, b in zip(key._fields, old, key, strict=True) if a != b]
            if nearest is None or len(differs) < len(nearest):  # of equally near keys the newest
                nearest, other = differs, old
            # One difference is the least that another key can have; the same key was compiled before only if it is known.
            if len(nearest) <= (not same):
                break  # nothing is nearer
        if nearest is None:
            return "first run" if not self.count(key.program) else "the records of its earlier runs were dropped", ()
        if not nearest:
            return "the scope's values changed size, or the plan was no longer kept", ()
        reason = f"differs in {', '.join(name.replace('_', ' ') for name in nearest)}"
        if "feed_signature" in nearest:
            reason += f" ({changed_feeds(other.feed_signature, key.feed_signature)})"
        return reason, tuple(c for name in nearest for c in _changes(name, getattr(other, name), getattr(key, name)))


# --------------------------------------------------------------------------------------------------------------- changes
def _changes(part: str, old: Any, new: Any) -> Iterable[KeyChange]:
    """Returns what differs in one part of the key; a part with values of its own gives one change for each."""
    if part == "feed_signature" and len(old) == len(new):
        for replica, (a, b) in enumerate(zip(old, new, strict=True)):
            for name, before, after in _feeds(a, b):
                where = f" of replica {replica}" if len(new) > 1 else ""
                yield KeyChange(f"feed '{name}'{where}", before, after)
        return
    if part == "strategy":
        names: Sequence[str] = [f"build_strategy.{p.name}" for p in BuildStrategy.properties()]
    elif part == "flags":
        names = flags.key_names()
    elif part == "fetch_list":
        gone, came = ([n for n in a[0] if n not in b[0]] for a, b in ((old, new), (new, old)))
        yield KeyChange(
            "fetch list", _text(", ".join(gone) or "nothing else"), _text(", ".join(came) or "nothing else")
        )
        return
    else:
        names = ()
    # Strategies pair value by value with their properties, flags with their names; every other part is one text.
    if isinstance(old, tuple) and isinstance(new, tuple) and len(names) == len(old) == len(new):
        for name, a, b in zip(names, old, new, strict=True):
            if a != b:
                yield KeyChange(name, _text(a), _text(b))
        return
    # The key has its address, which tells a reader nothing.
    if part == "scope":
        yield KeyChange("scope", "one scope", "another scope")
        return
    yield KeyChange(part.replace("_", " "), _text(old), _text(new))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def _feeds(old: Signature, new: Signature) -> list[tuple[str, str, str]]:
    before, after = ({n: (shape, dtype) for n, shape, dtype in one} for one in (old, new))
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    return [(n, _fed(before.get(n)), _fed(after.get(n))) for n in names]


# A new size asks for the same few: numpy takes 5 us to put a name together.
_name = lru_cache(maxsize=256)(attrgetter("name"))


def _fed(one: tuple[Any, Any] | None) -> str:
    return "not fed" if one is None else f"{one[0]} {_name(one[1])}"


def changed_feeds(old: Sequence[Signature], new: Sequence[Signature]) -> str:
    """Describes the feeds that differ, of the first replica for which any do: ``x: (32, 8) float32 -> (16, 8) float32``."""
    if len(old) != len(new):
        return f"{len(old)} -> {len(new)} replicas"
    replica = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
    text = "; ".join(f"{n}: {a} -> {b}" for n, a, b in _feeds(old[replica], new[replica]))
    return f"replica {replica}: {text}" if len(new) > 1 else text


def ledger_lines(records: Sequence[CompileRecord], in_use: PlansInUse | None, verbose: bool = False) -> list[str]:
    """Returns what explanations say of the compilations of a program, and of its plans: a line of each, or all of them."""
    return _compiled(records, verbose) + ([f"plans: {in_use}"] if in_use is not None and in_use.runs else [])


def _compiled(records: Sequence[CompileRecord], verbose: bool) -> list[str]:
    if not records:
        return []
    total = sum(one.seconds for one in records)
    many = f"{len(records)} time{'s' * (len(records) != 1)}"
    head = f"compiled {many} in {total * 1e3:.0f} ms"
    if not verbose:
        return [f"{head}; the last one: {records[-1].reason}"]
    lines = [f"{head}:"]
    for one in records:
        lines.append(f"  {one}")
        lines += [f"    {change}" for change in one.changes]
    return lines


__all__ = ["CompileRecord", "Key", "KeyChange", "Ledger", "PlansInUse", "changed_feeds", "ledger_lines"]
