"""Tells the ranks of a job which of them ended before they met: the launcher that started it knows first."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.comm.rendezvous import depart, launch, listen
from tstatic.comm.rendezvous.links import Answers

_AGAIN = 0.25
"""Seconds between attempts to reach a rank 0 that does not listen yet."""
_BEFORE = "before it met the others"


def how_it_ended(code: int) -> str:
    """Returns an exit code in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else "ended its program"


class Departures:
    """The ranks of one launcher that have ended, of which the others are told.

    Rank 0 hears of the others at its port. In place of rank 0 the launcher answers there: a rank that comes learns at once
    that nobody will meet it. Ranks that have met already know by their own connections, and are not disturbed.

    Args:
        environs: What each process was told, in the order of their ranks.
    """

    def __init__(self, environs: Sequence[Mapping[str, str]]) -> None:
        self._ranks = [launch.read(one) for one in environs]
        self._told: set[int] = set()
        self._next = 0.0
        self._answers: Answers | None = None

    def tell(self, codes: Sequence[int | None]) -> None:
        """Passes on which processes have ended; call it again and again, as rank 0 may start to listen later.

        Args:
            codes: Exit codes in the order of the processes, ``None`` of those that run.
        """
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _AGAIN
        gone = [(one, code) for one, code in zip(self._ranks, codes, strict=False) if code is not None]
        for one, code in gone:
            if one.rank in self._told or one.size == 1:
                continue
            text = f"{how_it_ended(code)} {_BEFORE}"
            if one.rank == 0:
                self._stand_in(one.port, {"failed": 0, "text": text})
                self._told.add(0)
            elif depart(one, text):
                self._told.add(one.rank)

    def _stand_in(self, port: int, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # whoever has the port already will answer
            self._answers = Answers(listen(port, len(self._ranks)), lambda _: answer)
            self._answers.start()

    def close(self) -> None:
        """Frees rank 0's port if it was taken."""
        if self._answers is not None:
            self._answers.close()


__all__ = ["Departures", "how_it_ended"]
