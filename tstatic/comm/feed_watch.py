"""Looks whether processes are fed the same: a script that forgets to split its data."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.logs import warn_once

_ALIKE = 3
"""Steps in a row with bitwise equal feeds after which ranks are told so."""

_WATCHED = 32
"""Steps in which feeds are compared: a script that splits its data does so from the start."""


class FeedWatch:
    """What one process has seen of the feeds of all.

    Args:
        rank: This process.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._own = ""
        self._alike: dict[tuple[int, ...], int] = {}
        self._steps = 0

    @property
    def watching(self) -> bool:
        """Whether feeds are still compared: only a run's first steps are."""
        return self._steps < _WATCHED

    def note(self, digest: str) -> None:
        """What this process feeds in this step."""
        if self.watching:
            self._own = digest

    def take(self) -> str:
        """What was noted since the last call."""
        own, self._own = self._own, ""
        return own

    def compare(self, feeds: Sequence[str]) -> None:
        """Warns once where some of the processes, by rank, fed the same for several steps."""
        if not all(feeds):
            return
        self._steps += 1
        alike: dict[str, list[int]] = {}
        for rank, feed in enumerate(feeds):
            alike.setdefault(feed, []).append(rank)
        ranks = {tuple(group) for group in alike.values() if len(group) > 1}
        self._alike = {group: self._alike.get(group, 0) + 1 for group in ranks}
        if _ALIKE in self._alike.values():
            group = min(g for g, steps in self._alike.items() if steps == _ALIKE)
            if self._rank == group[0]:
                warn_once(
                    "equal feeds",
                    f"ranks {', '.join(map(str, group))} fed bitwise equal data in {_ALIKE} steps: a feed is each process's "
                    "own batch; take this rank's part with distributed.local(array) or io.DistributedBatchSampler",
                    topic="dist",
                )
            self._steps = _WATCHED
