"""The worker's side: one process per peer and number of threads, driven by one JSON message a line."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], Any]


class Case:
    """Something to be timed.

    Attributes:
        step: One step; returns a number (the loss) or an array.
        facts: Whatever should stand in the report, such as seconds taken to build.
    """

    def __init__(self, step: Step, facts: dict[str, Any] | None = None) -> None:
        self.step = step
        self.facts = facts or {}


def timed_steps(step: Step, least: int, for_s: float) -> tuple[list[float], list[float]]:
    """Repeats a step for that long, but at least so often; returns seconds and result (a number) of each."""
    seconds: list[float] = []
    values: list[float] = []
    clock = time.perf_counter
    end = clock() + for_s
    while len(seconds) < least or clock() < end:
        start = clock()
        value = step()
        seconds.append(clock() - start)
        values.append(float(value.flat[0] if isinstance(value, np.ndarray) else value))
    return seconds, values


def serve(prepare: Callable[[str, int], Case], facts: Callable[[], dict[str, Any]]) -> None:
    """Answers messages until ``quit`` or the end of the input.

    Messages: ``{"do": "facts"}``; ``{"do": "prepare", "case": name, "threads": n}``; ``{"do": "run",
    "least": steps, "for_s": seconds}``.
    Replies go to the original standard output; whatever libraries print goes to standard error.
    """
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    case: Case | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if message["do"] == "quit":
                break
            if message["do"] == "facts":
                reply = facts()
            elif message["do"] == "prepare":
                case = prepare(message["case"], message["threads"])
                gc.collect()
                reply = case.facts
            else:
                assert case is not None, "prepare comes first"
                cpu = time.process_time()
                seconds, values = timed_steps(case.step, message["least"], message["for_s"])
                reply = {"seconds": seconds, "values": values, "cpu": time.process_time() - cpu}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
