"""Schedules that both sides are asked for."""

from __future__ import annotations

from typing import Any

SCHEDULES = (
    {"closed": 1, "ready": 1, "record": 2, "repeat": 2, "skip_first": 1},
    {"closed": 0, "ready": 0, "record": 1},
    {"closed": 0, "ready": 1, "record": 3, "repeat": 1},
    {"closed": 2, "ready": 0, "record": 1, "skip_first": 4},
)
TRACE = (
    "0a05312e302e3210001ac90108fcd701122d080010ffffffffffffffffff011a1e0a09726f6f74206e6f64651007180020ffffffffffff"
    "ffffff01280030001233080110001a2d0a0d50726f66696c65537465702330100218e2bac897cd88a5f51820f5afcf97cd88a5f51828fc"
    "d70130fcd7011233080210001a2d0a0d50726f66696c655374657023311002188990d097cd88a5f518208288d197cd88a5f51828fcd701"
    "30fcd701122a080310011a240a046d696e65100e18b7b4c997cd88a5f51820e3d1c997cd88a5f51828fcd70130fcd70122130a05323736"
    "3434120a4d61696e54687265616422230a1750726f6365737320437075205574696c697a6174696f6e1208302e30303030303022220a16"
    "53797374656d20437075205574696c697a6174696f6e1208302e303030303030"
)
"""What Paddle 2.6.2 wrote with export_protobuf about an event "mine" in the first of two steps, in hexadecimal."""
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
