"""A short look at a GPU that gives the most knowledge first, within a budget of seconds.

``python bench/gpu/brief.py RESULTS --budget 540`` measures, in this order: ceilings of the chip; contact with kernels that changed
since the last record; a trace of a GPT-2 step; steps beside torch's; ways of attentions, norms, losses and products; memory; two
places on the GPU; sums, by NCCL of one rank and between two processes; graphs against calls; then programs, tests and rows. Each
part has a file in ``RESULTS``, which is on disk after each line, and a share of the time that is left. What fails, hangs or loses
is a line, and the next one goes on; ``RESULTS/brief.jsonl`` has a line for each. ``--dry-run`` does all of it with small models and
without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import parts  # noqa: E402 - found through the line above
import report  # noqa: E402
from contact import LIBRARIES, cache_settings, put_aside, usable_cores, version  # noqa: E402
from own_kernels import plain, restart  # noqa: E402
from packfile import LIBTRITON, Json, Lines, described  # noqa: E402
from parts import INTERPRETING, Parts  # noqa: E402
from supervisor import START_S, Claims, Supervisor, _Worker  # noqa: E402

SHARES = {
    "ceilings": 0.06, "contact": 0.18, "trace": 0.3, "twins": 0.6, "ways": 0.3, "memory": 0.25, "places": 0.2,
    "collectives": 0.2, "graphs": 0.4, "programs": 0.4, "tests": 0.5, "rows": 1.0,
}  # fmt: skip
"""Part -> what it gets at most of the time that is left when it begins; what it does not take is the next ones'."""
COMPETITORS = ("captured", "uncaptured", "torch.compile", "torch.compile reduce-overhead")
MORE = ("torch.compile autocast",)
"""Timed behind all others."""
NAMES: Mapping[str, Sequence[str]] = {
    "ceilings": ["launches"],
    "trace": ["captured", "uncaptured"],
    "twins": [
        *(f"{name} x {batch}" for names in (COMPETITORS, MORE) for batch in ("8", "1") for name in names),
        "trace of torch.compile",
    ],
    "memory": ["gpt-bf16"],
    "places": ["2"],
    "collectives": ["places", "nccl eager", "nccl captured", "abort", "processes"],
    "graphs": ["gpt-bf16", "bert-bf16", "resnet"],
}
"""Part -> what its processes measure."""
WAYS = "attention,residual-LN,softmax,cross-entropy,gemm"
"""Rows of attentions, norms, losses and products: each is timed with all its ways."""
SMALL = "elewise/relu-full-fp32,gemm/infer-768"
"""Kernels of a dry run: one of ``WAYS`` and one beside."""
SMALL_TESTS = {
    "programs": ["tests/gpu", "-k", "bad_label"],
    "tests": ["tests/interpret/test_multi_tensor.py", "-k", "sum_of_squares"],
}
NO_GPU = "torch finds no CUDA device"
START_AT_MOST_S = 60.0
"""What a process may take before it measures anything."""
ONE_THREAD = "TORCHINDUCTOR_COMPILE_THREADS"
"""torch.compile has one thread where many processes compile at once, and all cores where one does."""
SITE = HERE.parent / "out" / "site"
"""Packages of peers that travel with the pack, such as Liger: they are found, if this folder is there."""


class Watching(Supervisor):
    """Writes what ended a worker into its part's file, too."""

    def _died(self, worker: _Worker, how: str) -> None:
        super()._died(worker, how)
        if worker.test:
            part, _, what = worker.test.partition("/")
            Lines(self.lines.path.parent, part, self.lines.begun).add("error", name=what, error=how)
            self.say(f"{worker.test}: {how}")


class Brief(Parts):
    """One short look.

    Args:
        results: The folder of results.
        pack: The file of ``pack.py``.
        budget: Seconds for everything.
        dry_run: Small models, no GPU.
        only: Parts to run; all of them by default.
    """

    def __init__(self, results: Path, pack: Path, budget: float, dry_run: bool, only: Sequence[str] = ()) -> None:
        self.only = tuple(only) or tuple(SHARES)
        for name in ("brief", *self.only):
            put_aside(results / f"{name}.jsonl")
            put_aside(results / f"{name}.txt")
        super().__init__(results, "brief", budget, dry_run)
        self.pack = pack

    def run(self) -> int:
        """Runs the parts; 0 if all went well, 1 if one did not, 2 if there is no GPU."""
        self.lines.add(
            "start", date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), commit=report.commit(),
            python=sys.version.split()[0], cores=usable_cores(), dry_run=self.dry_run, budget=self.left,
            libraries={name: version(name) for name in LIBRARIES},
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="brief-", ignore_cleanup_errors=True) as made:
            caches = Path(made)
            with _environment(cache_settings(caches)):
                self._all(caches)
        known = self.lines.read()
        if any(line.get("error") == NO_GPU for line in known):
            print(f"no look at a GPU: {NO_GPU}", file=sys.stderr)
            return 2
        counts = {what: sum(one.get("outcome") == what for one in known) for what in ("passed", "failed", "skipped")}
        codes = {one["part"]: one.get("code") for one in known if one["what"] == "part"}
        self.lines.add("end", **counts, codes=codes, seconds=time.time() - self.begun)
        print(f"{counts}, exit codes {codes}; all is in {self.results}", flush=True)
        return int(bool(counts["failed"] or counts["skipped"] or any(codes.values()) or None in codes.values()))

    def _all(self, caches: Path) -> None:
        if self.dry_run and {"contact", "ways", "rows"} & {*self.only}:
            self.pack = caches / "pack.npz"
            make = [sys.executable, str(HERE / "pack.py"), str(self.pack), "--tiny", "--only", SMALL]
            subprocess.run(make, stdout=subprocess.DEVNULL, env=os.environ | {"CPU_NUM": "1"})
        self._measured(caches, "ceilings", interpret=self.dry_run)
        for line in Lines(self.results, "ceilings", self.begun).read():
            if line["what"] == "facts":
                os.environ[LIBTRITON] = line["libtriton_sha256"]
            if NO_GPU in line.get("error", ""):
                self.lines.add("error", stage="device", error=NO_GPU)
                return
        self._script("contact", "contact.py", "--pack", str(self.pack), "--caches", str(caches),
                     "--ceilings", str(self.results / "ceilings.jsonl"), *self._since("contact"),
                     *(["--compile-most", "0"] if self.dry_run else []))  # fmt: skip
        self._measured(caches, "trace", "twins")
        self._rows("ways", "--name", "ways", "--only", WAYS)
        self._measured(caches, "memory", "places", "collectives", "graphs")
        for name, more in (("programs", ["--programs"]), ("tests", [])):
            self._script(name, "ring.py", *self._since(name), *more, last=SMALL_TESTS[name] if self.dry_run else ())
        self._rows("rows", "--done", str(self.results / "ways.jsonl"))

    def _since(self, name: str) -> list[str]:
        """The last record of a part, before this run, as an option: what changed since then comes first."""
        found = parts.last_record(f"{name}.jsonl", self.results)
        return [] if found is None else ["--since", str(found)]

    def _script(self, name: str, script: str, *arguments: str, last: Sequence[str] = ()) -> None:
        """Runs a script with its share of the time."""
        if name not in self.only:
            return
        limit = SHARES[name] * (self.left - parts.GRACE_S)
        self.part(name, limit, script, "--limit", f"{limit:.0f}", *arguments, last=last)

    def _rows(self, name: str, *arguments: str) -> None:
        """Times rows, and goes on behind one that ends the process or hangs."""
        if name not in self.only:
            return
        until = time.time() + SHARES[name] * (self.left - parts.GRACE_S)
        rounds = ["--rounds", "1"] if self.dry_run else []
        # Without a GPU a busy machine may take minutes for what is a second there.
        watched = "" if self.dry_run else f"{name}.jsonl"
        given = ("--pack", str(self.pack), *self._since("contact"), *rounds, *arguments)
        self.repeated(name, until, "rows.py", *given, watched=watched)

    def _measured(self, caches: Path, *names: str, interpret: bool = False) -> None:
        """Has a process measure some parts, and another one go on behind what ends it."""
        wanted = [f"{name}/{what}" for name in names if name in self.only for what in NAMES[name]]
        if not wanted:
            return
        print(f"== {', '.join(name for name in names if name in self.only)}, {self.left:.0f} s left", flush=True)
        folder = caches / f"job-{names[0]}"
        folder.mkdir()
        job: Json = {
            "results": str(self.results), "begun": self.begun, "end": self.end - parts.GRACE_S, "names": wanted,
            "shares": SHARES, "dry_run": self.dry_run, "interpret": interpret,
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        start = START_S if self.dry_run else START_AT_MOST_S
        watching = Watching(
            lambda number: [sys.executable, str(HERE / "brief_worker.py"), str(folder), str(number)],
            self.lines, Claims(folder), count=1, end=self.end - parts.GRACE_S, patience=start,
            environment={k: v for k, v in os.environ.items() if k not in (*INTERPRETING, ONE_THREAD)},
            say=lambda text: print(text, flush=True), unit="entry", start=start,
        )  # fmt: skip
        try:
            watching.run()
        except Exception as error:
            self.lines.add("error", stage="supervisor", error=described(error))


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """What all processes of a run see: caches of their own, packages of peers, and Python's word on where a fault was."""
    before = dict(os.environ)
    found = [str(SITE)] if SITE.is_dir() else []
    path = os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    os.environ.clear()
    os.environ.update(plain(before) | dict(more) | {"PYTHONFAULTHANDLER": "1"} | ({"PYTHONPATH": path} if path else {}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Looks at the first GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    default = HERE.parent / "results" / f"gpu-{today}"
    parser.add_argument(
        "results", nargs="?", type=Path, help=f"folder of results ({default.name}; with --dry-run, build/gpu-dry-run)"
    )
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for all parts (540)")
    parser.add_argument("--pack", type=Path, default=HERE.parent / "out" / "gpu-pack.npz", help="file of pack.py")
    parser.add_argument("--only", default="", help=f"parts (a,b) of {', '.join(SHARES)}")
    parser.add_argument("--dry-run", action="store_true", help="small models on what stands in for a GPU")
    args = parser.parse_args(arguments)
    only = [name for name in args.only.split(",") if name]
    if unknown := sorted({*only} - SHARES.keys()):
        parser.error(f"--only: expected some of {', '.join(SHARES)}, received {', '.join(unknown)}")
    if args.dry_run and hasattr(os, "sched_setaffinity"):
        # Small models gain nothing by several cores, and lose much where others use them, too.
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})
    results = args.results or (ROOT / "build" / "gpu-dry-run" if args.dry_run else default)
    return Brief(results.resolve(), args.pack.resolve(), args.budget, args.dry_run, only).run()


if __name__ == "__main__":
    restart()
    # The processes end with this one, also if it alone is told to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
