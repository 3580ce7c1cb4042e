"""Trials of ranks that fail at random: every survivor names the same first failed rank in time, and everything ends.

``python -m tests.comm.soak --trials 200`` prints a line per trial and fails when one promise is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.comm.pool import Pool, Trial
from tests.helpers.patience import pace

STEP_TIMEOUT = 1.0 * pace()
GRACE = 1.0 * pace()
"""Seconds, as flags; the promises below follow from them. Shorter ones would take a busy machine for a rank that stopped."""


@dataclass(frozen=True)
class Fault:
    """A way to fail, and what is promised about it.

    Attributes:
        name: As in ``cases.suffer``; ``sent`` faults are signals from outside.
        kind: What survivors say; ``None``: every rank refuses to start.
        codes: Exit codes that the failed rank may have.
        limit: Seconds in which survivors name it.
        sent: The signal.
    """

    name: str
    kind: str | None
    codes: tuple[int, ...]
    limit: float = 5.0
    sent: int = 0


FAULTS = (
    Fault("kill", "died", (-9,)),
    Fault("exit", "died", (0,)),
    Fault("raise", "raised", (1,)),
    Fault("interrupt", "raised", (1,)),
    Fault("terminate", "ended", (-15,)),
    Fault("leave", "left", (0,)),
    Fault("stop", "stopped", (1,), STEP_TIMEOUT + 2),
    Fault("slow", "late", (1,), STEP_TIMEOUT + 2),
    Fault("diverge", "diverged", (1,)),
    Fault("program", None, (1,)),
    Fault("killed", "died", (-9,), sent=signal.SIGKILL),
    Fault("stopped", "stopped", (1,), STEP_TIMEOUT + 2, sent=signal.SIGSTOP),
    Fault("terminated", "ended", (-15,), sent=signal.SIGTERM),
)


def run(pool: Pool, rng: random.Random, slack: float, fault: Fault) -> dict[str, Any]:
    """Runs one trial; what was promised and did not come is in ``broken``."""
    size = rng.choice([2, 3, 4])
    many = size > 2 and fault.name in ("kill", "exit", "killed", "raise") and rng.random() < 0.3
    victims = sorted(rng.sample(range(size), 2 if many else 1))
    if fault.name in ("program", "diverge") and size == 2:
        victims = [1]  # of two, nobody can say which one is odd: rank 0 is what the other is compared with
    arguments = {
        "fault": fault.name,
        "at": -1 if fault.sent else rng.randrange(20),
        "victims": victims,
        "pause": rng.choice([0.0, 0.0, 0.01]),
        "count": rng.choice([10, 1000, 300_000]),
    }
    flags = {"FLAGS_step_timeout_s": f"{STEP_TIMEOUT:g}", "FLAGS_failure_grace_s": f"{GRACE:g}"}
    flags["FLAGS_numerics"] = rng.choice(["strict", "default"])
    survivors = [rank for rank in range(size) if rank not in victims]
    told = survivors if fault.kind is not None else [*range(size)]
    result = {"fault": fault.name, "size": size, "victims": victims, **arguments, **flags}
    broken: list[str] = []
    start = time.time()
    with pool.trial("train", size, flags, **arguments) as trial:
        try:
            if fault.sent:
                for victim in victims:
                    trial.until(victim, 1, 10.0 * slack)
                time.sleep(rng.random() * 0.3)
                start = time.time()
                for victim in victims:
                    trial.send(victim, fault.sent)
            trial.wait((20.0 + fault.limit) * slack, told)
            if fault.kind == "stopped":
                for victim in victims:
                    with contextlib.suppress(ProcessLookupError):
                        trial.send(victim, signal.SIGCONT)
            trial.wait((20.0 + GRACE + 5.0) * slack)
        except TimeoutError as error:
            broken.append(str(error))
        if not broken:
            broken += _check(trial, fault, victims, told, start, slack, result)
        if broken:
            result["said"] = [trial.out(r) + trial.err(r) for r in range(size)]
    result["broken"] = broken
    return result


def _check(
    trial: Trial, fault: Fault, victims: list[int], told: list[int], start: float, slack: float, result: dict[str, Any]
) -> list[str]:
    broken = []
    size = result["size"]
    begun = min([line[1] for v in victims for line in trial.said(v) if line[0] == "fault"], default=start)
    named, times = set(), []
    for rank in told:
        line = next((one for one in trial.said(rank) if one[0] == "error"), None)
        if line is None:
            broken.append(f"rank {rank} saw nothing")
            continue
        _, when, text, who, kind = line
        times.append(when - begun)
        named.add(who)
        if fault.kind is None:
            if f"rank {victims[0]} of {size} has another program" not in text:
                broken.append(f"rank {rank} says: {text}")
        elif kind != fault.kind or not text.startswith(f"rank {who} of {size}"):
            broken.append(f"rank {rank} says '{kind}' instead of '{fault.kind}': {text}")
        if trial.codes[rank] == 0 and rank not in victims:
            broken.append(f"rank {rank} ended with 0")
        # The verdict is printed at once, not only as an error that a script may swallow.
        if fault.kind is not None and f"tstatic: rank {rank} of {size}: rank {who}" not in trial.err(rank):
            broken.append(f"rank {rank} did not print its verdict")
    if len(named) > 1 or (fault.kind is not None and not named <= set(victims)):
        broken.append(f"{sorted(map(str, named))} were named, not one of {victims}")
    result["seconds"] = round(max(times, default=0.0), 2)
    if result["seconds"] > fault.limit * slack:
        broken.append(f"named after {result['seconds']} s")
    # With two victims the second may have noticed the first before its own turn came.
    for victim in victims if len(victims) == 1 else []:
        if trial.codes[victim] not in fault.codes:
            broken.append(f"rank {victim} ended with {trial.codes[victim]} instead of {fault.codes}")
    return broken


def soak(pool: Pool, trials: int, seed: int, slack: float, report: Any = None) -> list[dict[str, Any]]:
    """Runs trials that go round all faults; returns those that broke a promise."""
    rng = random.Random(seed)
    bad = []
    for i in range(trials):
        result = {"trial": i, **run(pool, rng, slack, FAULTS[i % len(FAULTS)])}
        if report is not None:
            report(result)
        if result["broken"]:
            bad.append(result)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slack", type=float, default=pace(), help="times the promised deadlines")
    options = parser.parse_args()
    slowest: Counter[str] = Counter()

    def report(result: dict[str, Any]) -> None:
        slowest[result["fault"]] = max(slowest[result["fault"]], result.get("seconds", 0.0))
        shown = {k: v for k, v in result.items() if k != "said"}
        print(json.dumps(shown), *result.get("said", ()), sep="\n", flush=True)

    with Pool() as pool:
        start = time.time()
        bad = soak(pool, options.trials, options.seed, options.slack, report)
    print(f"{options.trials} trials in {time.time() - start:.0f} s, {len(bad)} broke a promise")
    print("slowest verdict in seconds:", dict(sorted(slowest.items())))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
