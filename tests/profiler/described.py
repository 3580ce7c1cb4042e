"""Schedules that both sides are asked for."""

from __future__ import annotations

from typing import Any

SCHEDULES = (
    {"closed": 1, "ready": 1, "record": 2, "repeat": 2, "skip_first": 1},
    {"closed": 0, "ready": 0, "record": 1},
    {"closed": 0, "ready": 1, "record": 3, "repeat": 1},
    {"closed": 2, "ready": 0, "record": 1, "skip_first": 4},
)
PAIRS = ((0, 2), (1, 3), (2, 5), (-1, 1))


def states(profiler: Any) -> dict[str, list[str]]:
    """What schedules say about sixteen steps, and how often Profilers hand out recordings."""
    found = {str(kwargs): [profiler.make_scheduler(**kwargs)(step).name for step in range(16)] for kwargs in SCHEDULES}
    for pair in PAIRS:
        handed: list[str] = []
        one = profiler.Profiler(scheduler=pair, on_trace_ready=lambda p, h=handed: h.append(str(p.step_num)))
        one.start()
        for _ in range(7):
            one.step()
        one.stop()
        del one  # Paddle allows one at a time
        found[f"handed out {pair}"] = handed
    return found
