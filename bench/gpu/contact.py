"""First contact with a GPU, in 90 seconds: versions, ceilings, and one kernel per template and fusion, right and how fast.

``python bench/gpu/contact.py RESULTS`` needs torch, triton, numpy, and the file that ``pack.py`` writes (which it makes itself
where tstatic can be imported). Processes compile all kernels first, in parallel; then another process checks and times them.
This one only watches, and needs the standard library alone: whatever goes wrong, a missing library or a kernel that hangs
too, ends as a line in ``RESULTS/contact.jsonl``, which is on disk after each case; ``RESULTS/contact.txt`` is the table.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import compiling  # noqa: E402 - found through the line above
import packfile  # noqa: E402
import report  # noqa: E402
from packfile import Json, Lines, described  # noqa: E402
from runner import LOST, NO_DEVICE, good  # noqa: E402

LIMIT_S = 80.0
COMPILE_S = 45.0
PATIENCE_S = 25.0
START_S = 75.0
"""Without a line, for imports and the device's start: they take longer than a case, however little patience there is with one."""
LIBRARIES = ("torch", "triton", "numpy", "msgspec", "platformdirs", "ml_dtypes", "scipy", "pytest", "hypothesis")


class Contact:
    """One run.

    Args:
        results: The folder of results.
        pack: The file of ``pack.py``.
        limit: Seconds after which no case is begun.
        patience: Seconds without a line after which a case is given up.
        dry_run: Interpret the kernels and invent the times.
        compile_most: How many kernels are compiled beforehand, at most.
        caches: Where what was compiled is kept for others; by default it is removed at the end.
        since: A record of first contact: only kernels that it does not have, or not as they are now, are run.
        ceilings: A file of results that has the chip's ceilings, which are then not measured again.
    """

    def __init__(
        self,
        results: Path,
        pack: Path,
        limit: float,
        patience: float,
        dry_run: bool,
        compile_most: int | None,
        caches: Path | None = None,
        since: Path | None = None,
        ceilings: Path | None = None,
    ) -> None:
        self.since = since
        self.ceilings = ceilings
        self.results = results
        self.pack = pack
        self.limit = limit
        self.patience = patience
        self.dry_run = dry_run
        self.compile_most = compile_most
        self.begun = time.time()
        self.stage = "start"
        self.lines = Lines(results, "contact", self.begun)
        self.table = results / "contact.txt"
        put_aside(self.lines.path)
        put_aside(self.table)
        self._folder = tempfile.TemporaryDirectory(prefix="contact-", ignore_cleanup_errors=True)
        self.caches = Path(self._folder.name) if caches is None else caches

    def say(self, text: str) -> None:
        """Prints a line, and keeps it in the table."""
        print(text, flush=True)
        with self.table.open("a") as file:
            file.write(text + "\n")

    def run(self) -> int:
        """All stages; an exception ends as a line, and the stages after it are tried as far as they can be."""
        try:
            self._start()
            self.stage = "pack"
            head = self._read_pack()
            self.stage = "compile"
            try:
                self._compile(head["cases"])
            except Exception as error:
                self._failed(error)
            self.stage = "cases"
            self._cases(len(head["cases"]))
        except (Exception, KeyboardInterrupt) as error:
            self._failed(error)
        finally:
            self._folder.cleanup()
        return self._end()

    def _failed(self, error: BaseException) -> None:
        self.lines.add("error", stage=self.stage, error=described(error))
        print(f"no {self.stage}: {described(error)}", file=sys.stderr, flush=True)

    # --------------------------------------------------------------------------------------------------------- stages
    def _start(self) -> None:
        self.lines.add(
            "start", date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), checkout=report.commit(),
            python=sys.version.split()[0], system=platform.platform(), cores=usable_cores(), dry_run=self.dry_run,
            libraries={name: version(name) for name in LIBRARIES}, gpu=_nvidia_smi("name,driver_version,compute_cap,clocks.sm"),
        )  # fmt: skip
        known = [] if self.ceilings is None else Lines(self.ceilings.parent, self.ceilings.stem, self.begun).read()
        for line in known:
            if line["what"] in ("facts", "ceilings"):
                self.lines.add(**{k: v for k, v in line.items() if k != "at"})

    def _read_pack(self) -> Json:
        if not self.pack.exists():
            made = subprocess.run(
                [sys.executable, str(HERE / "pack.py"), str(self.pack)],
                capture_output=True, text=True, env=os.environ | {"CPU_NUM": "1"}, timeout=60,
            )  # fmt: skip
            if made.returncode and not self.pack.exists():
                raise RuntimeError(f"there is no {self.pack}, and it cannot be made here: {made.stderr[-800:]}")
        head = packfile.read_head(self.pack)
        size, number = self.pack.stat().st_size, len(head["cases"])
        head["cases"] = packfile.changed(head["cases"], self.since)
        left = {} if self.since is None else {"since": str(self.since), "unchanged": number - len(head["cases"])}
        self.lines.add("pack", commit=head["commit"], cases=number, skipped=head["skipped"], bytes=size, **left)
        unchanged = f", {left['unchanged']} of them as in the last record" if left else ""
        self.say(f"{number} kernels of commit {head['commit']}{unchanged}")
        return head

    def _compile(self, cases: list[Json]) -> None:
        """Has processes compile all kernels and peers, until all is done or the time for it is up."""
        folder = Path(self._folder.name, "jobs")
        folder.mkdir()
        jobs = compiling.jobs_of(cases)[: self.compile_most]
        cores = usable_cores()
        peers = 0 if self.dry_run or not jobs else max(1, min(6, cores // 3))
        processes = min(2 if self.dry_run else max(1, cores - peers), len(jobs))
        plan = {
            "capability": self._capability(), "pack": str(self.pack.resolve()), "kernel_processes": processes,
            "kernels": jobs, "peers": [{"peer": case["name"]} for case in cases],
        }  # fmt: skip
        (folder / compiling.JOBS).write_text(json.dumps(plan))
        begun = time.time()
        running = []
        for number in range(processes + peers):
            with (folder / f"said-{number}").open("w") as said:
                command = [sys.executable, str(HERE / "compiling.py"), str(folder), str(number)]
                running.append(subprocess.Popen(command, stdout=said, stderr=said, env=self._environment()))
        try:
            while time.time() < self.begun + COMPILE_S and any(p.poll() is None for p in running):
                time.sleep(0.05)
        finally:
            late = [p for p in running if p.poll() is None]
            for process in late:
                process.kill()
                process.wait()
        self._compiled(folder, plan, time.time() - begun, len(late))

    def _compiled(self, folder: Path, plan: Json, seconds: float, late: int) -> None:
        """Says what was compiled: by name what failed, and what ended the process that compiled it."""
        done = [json.loads(line) for path in folder.glob("done-*.jsonl") for line in path.read_text().splitlines()]
        kernels = {line["job"]: line for line in done if not line["peers"]}
        began = {int(path.name.partition("-")[2]) for path in folder.glob("kernel-*")}
        failed = {plan["kernels"][n]["case"]: line["error"] for n, line in kernels.items() if "error" in line}
        ready = [plan["peers"][line["job"]]["peer"] for line in done if line["peers"] and "error" not in line]
        words = [text[-300:] for path in sorted(folder.glob("said-*")) if (text := path.read_text().strip())]
        unsure = sorted({plan["kernels"][n]["case"] for n in began - set(kernels)})
        self.lines.add(
            "compile", seconds=seconds, processes=plan["kernel_processes"], launches=len(plan["kernels"]),
            compiled=len(kernels) - len([k for k in kernels.values() if "error" in k]), failed=failed,
            died=[] if late else unsure, late=unsure if late else [], peers=sorted(ready), said=words[:4],
            peers_failed={plan["peers"][x["job"]]["peer"]: x["error"] for x in done if x["peers"] and "error" in x},
        )  # fmt: skip
        self.say(f"{len(kernels)} of {len(plan['kernels'])} launches compiled in {seconds:.1f} s, {len(failed)} failed")

    def _cases(self, count: int) -> None:
        """Runs the cases in a process of their own; when a case ends it, another goes on behind that case."""
        first = 0
        while first < count:
            code = self._process(first)
            if code == 0:
                return
            began = self._began(first)
            if not began:
                if code != NO_DEVICE:
                    self.lines.add("error", stage="cases", error=f"the process ended with code {code}")
                return
            first = began[-1] + 1
            if code != LOST:
                self._broken(began[-1], f"the process ended with code {code}")
            if time.time() > self.begun + self.limit:
                self.lines.add("stopped", why=f"the time was up after {first} of {count} kernels")
                return

    def _began(self, first: int) -> list[int]:
        """Numbers of the cases that were begun, from one on."""
        numbers = [line["number"] for line in self.lines.read() if line["what"] == "begin"]
        return [n for n in numbers if n >= first]

    def _broken(self, number: int, why: str) -> None:
        """Adds the row of a case that did not say its own."""
        lines = self.lines.read()
        if not any(line["what"] == "case" and line["number"] == number for line in lines):
            row = next(line for line in lines if line["what"] == "begin" and line["number"] == number)
            self.lines.add("case", **{k: v for k, v in row.items() if k not in ("what", "at")}, error=why)
            self.say(f"{row['name']:58} {row['predicted_s'] * 1e6:9.1f} FAILED: {why}")

    def _process(self, first: int) -> int:
        """Runs a process from a case on, as long as lines keep coming; returns its exit code."""
        command = [sys.executable, str(HERE / "runner.py"), str(self.results), "--pack", str(self.pack)]
        command += ["--begun", repr(self.begun), "--limit", repr(self.limit), "--first", str(first)]
        command += ["--since", str(self.since)] if self.since is not None else []
        command += ["--dry-run"] * self.dry_run
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environment())
        tell = threading.Thread(target=self._tell, args=(process,), daemon=True)
        tell.start()
        started = time.time()
        try:
            while process.poll() is None:
                time.sleep(0.05)
                quiet = time.time() - max(started, self.lines.path.stat().st_mtime)
                if quiet <= self.patience or (quiet <= START_S and not self._began(first)):
                    continue
                process.kill()
                process.wait()
                if began := self._began(first):
                    self._broken(began[-1], f"it did not return within {self.patience:g} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            tell.join(timeout=5)
        return process.returncode

    def _tell(self, process: subprocess.Popen[str]) -> None:
        for text in process.stdout or ():
            self.say(text.rstrip("\n"))

    def _end(self) -> int:
        lines = self.lines.read()
        rows = [line for line in lines if line["what"] == "case"]
        right = sum(good(row) for row in rows)
        wrong = [line for line in lines if line["what"] in ("error", "stopped")]
        self.lines.add("end", good=right, cases=len(rows), seconds=time.time() - self.begun)
        for line in wrong:
            self.say(f"{line.get('stage', 'stopped')}: {line.get('error') or line['why']}")
        self.say(f"{right} of {len(rows)} kernels are good; all is in {self.lines.path.name}")
        if not rows and not wrong and self.since is not None:
            return 0
        return 2 if not rows else int(right < len(rows) or bool(wrong))

    # -------------------------------------------------------------------------------------------------------- details
    def _capability(self) -> int:
        told = _nvidia_smi("compute_cap").splitlines()
        try:
            return int(told[0].replace(".", ""))
        except (IndexError, ValueError):
            return 90

    def _environment(self) -> dict[str, str]:
        """What all processes share: caches of this run alone, and one thread per process that compiles."""
        kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        return kept | cache_settings(self.caches) | {"PYTHONUNBUFFERED": "1"}


def cache_settings(folder: Path) -> dict[str, str]:
    """Environment in which Triton and torch.compile keep what they compile in a folder."""
    caches = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return {k: str(folder / v) for k, v in caches.items()} | {
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def put_aside(path: Path) -> None:
    """Renames what an earlier run left in the folder."""
    number = 1
    while path.exists():
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not other.exists():
            path.rename(other)
        number += 1


def usable_cores() -> int:
    """Returns how many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version(name: str) -> str:
    """The version of an installed library, which is not imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _nvidia_smi(query: str) -> str:
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def parsed(arguments: Sequence[str] | None) -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    default = HERE.parent / "results" / f"gpu-{today}"
    parser.add_argument("results", nargs="?", type=Path, default=default, help="folder of results")
    parser.add_argument("--pack", type=Path, default=HERE.parent / "out" / "gpu-pack.npz", help="file of pack.py")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which no case is begun")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, help="seconds without a line before a case is given up"
    )
    parser.add_argument("--compile-most", type=int, help="kernels compiled beforehand, at most (default: all)")
    parser.add_argument(
        "--since", type=Path, help="a contact.jsonl: only kernels that it does not have as they are now"
    )
    parser.add_argument("--ceilings", type=Path, help="a file of results that has the chip's ceilings")
    parser.add_argument("--caches", type=Path, help="keep what was compiled in this folder (default: remove it)")
    parser.add_argument(
        "--dry-run", action="store_true", help="interpret the kernels and invent the times: no GPU needed"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs on the first GPU; 1 where a kernel is not good, 2 where none was reached."""
    args = parsed(arguments)
    given = (args.results, args.pack, args.limit, args.patience, args.dry_run, args.compile_most, args.caches,
             args.since, args.ceilings)  # fmt: skip
    return Contact(*given).run()


if __name__ == "__main__":
    sys.exit(main())
