"""Detects processes that are fed the same data, as by a script that does not split it."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.logs import warn_once

_ALIKE = 3
"""Consecutive steps with bitwise equal feeds after which a warning is logged: one may be a constant input, or chance."""

_WATCHED = 32
"""The number of first steps in which feeds are compared: a script that splits its data does so from the start."""


class FeedWatch:
    """Compares the feeds of all processes, on one of them.

    Args:
        rank: Rank of this process.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._own = ""
        self._alike: dict[tuple[int, ...], int] = {}
        self._steps = 0

    @property
    def watching(self) -> bool:
        """Whether feeds are still compared: only in the first steps."""
        return self._steps < _WATCHED

    def note(self, digest: str) -> None:
        """Records a digest of this process's feed for this step."""
        if self.watching:
            self._own = digest

    def take(self) -> str:
        """Returns and clears the recorded digest."""
        own, self._own = self._own, ""
        return own

    def compare(self, feeds: Sequence[str]) -> None:
        """Warns once if some ranks fed the same data in several steps; ``feeds`` are digests by rank."""
        # Without a digest of every rank, as in a step that is fed nothing, there is nothing to compare.
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
