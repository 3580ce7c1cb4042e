"""Compares two results row by row: better, worse, the same, or in one of them only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tstatic.errors import ProgramError, near
from tstatic.tools.benchlib import results, statistics
from tstatic.tools.benchlib.statistics import FLOOR, Judgement

PARTS = ("machine", "device")
"""What must agree for times to be compared; versions and commits may differ: that is what is compared."""


@dataclass(frozen=True)
class Change:
    """One peer of one row in two results.

    Attributes:
        row, peer: Names.
        before, after: Median seconds.
        judgement: How the second compares with the first: ``slower`` is a regression.
    """

    row: str
    peer: str
    before: float
    after: float
    judgement: Judgement

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        own: dict[str, Any] = asdict(self)
        judgement: dict[str, Any] = own.pop("judgement")
        return own | judgement


@dataclass(frozen=True)
class Comparison:
    """Two results.

    Attributes:
        changes: Rows in both, for each peer that both timed.
        only_before, only_after: Names of rows that one of them lacks.
        lost: Rows and peers that were timed before and are wrong or fail now, with what they say.
        different: What differs between machines, if that was allowed.
    """

    changes: Sequence[Change]
    only_before: Sequence[str]
    only_after: Sequence[str]
    lost: Sequence[tuple[str, str, str]]
    different: Sequence[str]

    def of(self, finding: str) -> list[Change]:
        """Returns the changes with a finding."""
        return [one for one in self.changes if one.judgement.finding == finding]

    @property
    def regressed(self) -> bool:
        """Whether anything became slower, wrong or an error."""
        return bool(self.of("slower") or self.lost)


def compare(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    peers: Sequence[str] = ("tstatic",),
    threshold: float = FLOOR,
    relative_to: str = "",
    force: bool = False,
) -> Comparison:
    """Compares two results.

    Args:
        before, after: Results, as :func:`tstatic.benchlib.results.read` returns them.
        peers: Peers whose times are compared.
        threshold: Smallest relative difference that counts; the controls of both runs may ask for more.
        relative_to: A peer that both timed, by whose times those of the others are divided turn by turn: what makes the whole
            machine slower then cancels.
        force: Compare results of different machines.

    Raises:
        ProgramError: If the machines differ, or the results have no times of a peer in common.
    """
    different = results.differences(before, after, PARTS)
    if different and not force:
        raise ProgramError(
            "these results are of different machines", expected="the same processor, memory, system and device",
            received="; ".join(different), fix="measure both on one machine, or compare with --force",
        )  # fmt: skip
    first, second = ({row["name"]: row for row in one["rows"]} for one in (before, after))
    changes, lost = [], []
    for name, old in first.items():
        new = second.get(name)
        if new is None:
            continue
        for peer in peers:
            a, b = (_samples(row, peer, relative_to) for row in (old, new))
            if a and b:
                control = max(results.control_of(old), results.control_of(new))
                judged = statistics.unpaired(b, a, control, threshold)
                changes.append(Change(name, peer, results.middle(a), results.middle(b), judged))
            elif a and new["peers"].get(peer, {}).get("state") in ("wrong", "error"):
                entry = new["peers"][peer]
                lost.append((name, peer, f"{entry['state']}: {entry['detail']}"))
    for peer in peers:
        if not any(one.peer == peer for one in changes) and not any(one == peer for _, one, _ in lost):
            known = [sorted({p for row in one.values() for p in row["peers"]}) for one in (first, second)]
            both = f" that both time '{relative_to}', too" if relative_to else ""
            raise ProgramError(
                f"there is nothing to compare for peer '{peer}': no row has its times in both results",
                expected=f"a peer of both, and rows of the same names{both}",
                received=f"{', '.join(known[0]) or 'no peers'} before, {', '.join(known[1]) or 'no peers'} after",
                fix=near(peer, {*known[0], *known[1]}) or "name peers that both results have",
            )
    return Comparison(
        changes, [n for n in first if n not in second], [n for n in second if n not in first], lost, different
    )  # fmt: skip


def _samples(row: Mapping[str, Any], peer: str, relative_to: str) -> list[float]:
    own = results.samples(row, peer)
    if not relative_to or peer == relative_to:
        return own
    other = results.samples(row, relative_to)
    return [a / b for a, b in zip(own, other, strict=True)] if len(own) == len(other) else []
