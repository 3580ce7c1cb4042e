"""Tests on a GPU: ``python bench/gpu/ring.py [RESULTS] [--programs] [pytest arguments]``.

The interpreter's tests with every kernel launched on a GPU instead: programs, tolerances and references are those of
``tests/interpret``; only the launches go elsewhere, with the tiles and grids that a GPU gets. With ``--programs``: the tests of
``tests/gpu``, whose programs run on ``CUDAPlace(0)`` as a user's do. Needs torch, triton, pytest, hypothesis and those of tstatic's
libraries that kernels need.

Several processes (``--workers``) share the tests. This one only watches, and needs the standard library alone: a test that ends its
process, or takes longer than ``--patience``, fails, and another process goes on behind it. ``RESULTS/tests.jsonl``
(``programs.jsonl``) has a line before and behind each test; what goes wrong, a missing library too, ends as a line there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import report  # noqa: E402 - found through the line above
from contact import LIBRARIES, put_aside, usable_cores, version  # noqa: E402
from packfile import Json, Lines, described  # noqa: E402
from ring_worker import JOB  # noqa: E402
from supervisor import Claims, Supervisor  # noqa: E402

LIMIT_S = 540.0
PATIENCE_S = 120.0
MOST_WORKERS = 8
"""By default, however many cores there are: the workers share one GPU."""
MOST_FAILURES, WIDTH, NAME_WIDTH = 60, 160, 90
"""Lines of the summary, their characters, and those of a test's name."""


def parsed(arguments: Sequence[str] | None) -> tuple[Path, argparse.Namespace, list[str]]:
    """The folder of results, the options, and what is left for pytest."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        description=__doc__, usage="ring.py [RESULTS] [options] [pytest arguments]", allow_abbrev=False
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    default = ROOT / "bench" / "results" / f"gpu-{today}"
    parser.add_argument(
        "--dry-run", action="store_true", help="stay in the interpreter, with a GPU's tiles: no GPU needed"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which no test is begun (540)")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds that one test may take (120)")
    parser.add_argument(
        "--workers",
        type=int,
        help="processes that share the tests (half the cores, at most 8; 1 with --dry-run); one alone shows pytest's output",
    )
    parser.add_argument("--since", type=Path, help="a record: tests that did not pass in it come first")
    parser.add_argument("--programs", action="store_true", help="the tests of tests/gpu, on CUDAPlace(0)")
    # Only as the first: behind an option of pytest a word is that option's.
    results = Path(given.pop(0)) if given and not given[0].startswith("-") else default
    args, rest = parser.parse_known_args(given)
    if args.workers is None:
        args.workers = 1 if args.dry_run else max(1, min(MOST_WORKERS, usable_cores() // 2))
    elif args.workers < 1:
        parser.error(f"--workers: expected a number of processes, at least 1, received {args.workers}")
    return results.resolve(), args, rest


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs; 1 where a test failed or the time was up, 2 where none could be run."""
    results, args, rest = parsed(arguments)
    begun, name = time.time(), "programs" if args.programs else "tests"
    put_aside(results / f"{name}.jsonl")
    lines = Lines(results, name, begun)
    lines.add(
        "start", date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), commit=report.commit(),
        python=sys.version.split()[0], libraries={name: version(name) for name in (*LIBRARIES, "pytest-timeout")},
        workers=args.workers,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ring-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        job = {
            "results": str(results), "name": name, "begun": begun, "end": begun + args.limit, "dry_run": args.dry_run,
            "arguments": rest, "passed": _passed(args.since),
        }  # fmt: skip
        (folder / JOB).write_text(json.dumps(job))
        claims = Claims(folder)
        watching = Supervisor(
            lambda number: [sys.executable, str(HERE / "ring_worker.py"), str(folder), str(number)],
            lines, claims, count=args.workers, end=begun + args.limit, patience=args.patience,
            environment=environment(args.workers), say=lambda text: print(text, flush=True),
        )  # fmt: skip
        try:
            watching.run()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            lines.add("error", stage="supervisor", error=described(error))
        kernels = claims.count("kernel")
    return ended(lines, kernels, [code for code in watching.codes if code not in (0, 1)])


def _passed(record: Path | None) -> list[str]:
    """Names of the tests that passed in a record, and that never failed there."""
    lines = Lines(record.parent, record.stem, 0.0).read() if record is not None else []
    outcomes: dict[str, set[str]] = {}
    for line in lines:
        if line["what"] == "test":
            outcomes.setdefault(line["name"], set()).add(line["outcome"])
    return sorted(name for name, seen in outcomes.items() if "passed" in seen and "failed" not in seen)


def environment(workers: int) -> dict[str, str]:
    """Of the workers, which share the cores."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    threads = str(max(1, usable_cores() // workers))
    shared = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    return shared | kept | {"PYTHONFAULTHANDLER": "1"}


def ended(lines: Lines, kernels: int, bad_codes: Sequence[int]) -> int:
    """Adds the last line, prints the summary, and returns the exit code."""
    known = lines.read()
    tests = [line for line in known if line["what"] == "test"]
    errors = [line for line in known if line["what"] == "error"]
    stopped = next((line["why"] for line in known if line["what"] == "stopped"), "")
    count = {what: sum(t["outcome"] == what for t in tests) for what in ("passed", "skipped", "failed")}
    # A file that cannot be imported, and a process that died outside of a test, leave tests out.
    count["failed"] += sum(error["stage"] in ("collect", "worker", "supervisor") for error in errors) if tests else 0
    launched = sum(test["launched"] for test in tests)
    code = bad_codes[0] if bad_codes else int(bool(count["failed"]))
    seconds = time.time() - lines.begun
    lines.add("end", **count, kernels=kernels, launched=launched, stopped=stopped, code=code, seconds=seconds)
    for text in summary(tests, errors, stopped):
        print(text)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped in {seconds:.0f} s")
    where = f"{lines.path.parent.name}/{lines.path.name}"
    print(f"{count['passed']} tests, {kernels} kernels, {launched} calls; all is in {where}", flush=True)
    if count["failed"]:
        return 1
    if not tests and (bad_codes or errors):
        return 2
    return int(bool(bad_codes or errors or stopped))


def summary(tests: Sequence[Json], errors: Sequence[Json], stopped: str) -> list[str]:
    """A line for each failed test: its name and what was raised; then what else went wrong."""
    told = [f"{_end(t['name'], NAME_WIDTH)}: {t['error']}" for t in tests if t["outcome"] == "failed"]
    told += [
        " ".join((f"{e['stage']}:", _end(e.get("name", ""), NAME_WIDTH), _short(e))).replace("  ", " ") for e in errors
    ]
    kept = [text[:WIDTH] for text in told[:MOST_FAILURES]]
    if len(told) > len(kept):
        kept.append(f"and {len(told) - len(kept)} more")
    return [*kept, *([stopped] if stopped else [])]


def _short(error: Json) -> str:
    """What the watching process says begins with what counts; a traceback ends with it."""
    text: str = error["error"]
    return " ".join(text.split()) if error["stage"] == "worker" else text.strip().rpartition("\n")[2].strip()


def _end(name: str, most: int) -> str:
    return name if len(name) <= most else "..." + name[3 - most :]


if __name__ == "__main__":
    # The workers end with this process, also if it alone is told to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
