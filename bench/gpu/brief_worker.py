"""A process of ``brief.py`` that measures: ``brief_worker.py FOLDER NUMBER``.

``FOLDER/job.json`` names what is to be done, in its order, as ``part/what``; a worker takes what no other has taken. Each part has
a file of results, which gets a line (``row``) for each thing that is known, or ``error`` with the traceback.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from own_kernels import restart  # noqa: E402 - found through the line above
from packfile import Json, Lines, described  # noqa: E402
from supervisor import LOST, Claims  # noqa: E402

JOB = "job.json"
GRACE_S = 15.0
"""What something may take beyond its part's time before it is ended."""
TIMED = 20
MODEL = "gpt-bf16"
OURS = "captured"
"""What the others are compared with."""
GRAPHS = {OURS: "auto", "uncaptured": "off"}
"""Competitor of ours -> ``FLAGS_cuda_graph``."""
PEERS = {
    "torch.compile": ("default", "lowered"),
    "torch.compile reduce-overhead": ("reduce-overhead", "lowered"),
    "torch.compile autocast": ("default", "autocast"),
}
"""Competitor of torch's -> its mode and precision."""
TRACED_PEER = "torch.compile"
"""A competitor whose kernels stand beside ours in the trace; traced when all others of its process are timed."""
OF_PEER = f"trace of {TRACED_PEER}"
ALONE = ("trace",)
"""Parts of which each measurement has a process of its own: a profiler that was on may leave launches slower."""


class Measuring:
    """What the parts share: the GPU, and steps that a part made and another one measures, too.

    Args:
        results: The folder of results.
        begun: When the seconds of ``at`` began.
        dry: Whether small models run without a GPU.
    """

    def __init__(self, results: Path, begun: float, dry: bool) -> None:
        self.results, self.begun, self.dry = results, begun, dry
        self.gpu: Any = None
        self._steps: dict[tuple[str, str], Any] = {}

    def lines(self, part: str) -> Lines:
        """A part's file."""
        return Lines(self.results, part, self.begun)

    # ------------------------------------------------------------------------------------------------------------ parts
    def ceilings(self, what: str, lines: Lines) -> None:
        """What the device can do: copies, matrix products, and launches in a row."""
        from device import Cuda, DryRun

        device = DryRun() if self.dry else Cuda()
        lines.add("facts", **device.facts())
        lines.add("ceilings", **device.ceilings())
        lines.add("row", name=what, **device.gaps())

    def _step(self, name: str, batch: str) -> Any:
        """A step by the name of its competitor, behind the steps whose losses are compared; made once in a process."""
        import checks
        import twins

        key = (name, batch)
        if key not in self._steps:
            more = {} if self.dry and batch == "8" else {"batch": int(batch)}
            with checks.sized(MODEL, self.dry, **more) as sizes:
                if name in GRAPHS:
                    feed = twins.feed_of(sizes)
                    self._steps[key] = twins.Program(self.gpu, MODEL, feed, GRAPHS[name]).step()
                else:
                    weights = twins.first_weights(MODEL)
                    self._steps[key] = twins.torch_step(self.gpu, weights, *PEERS[name])
        return self._steps[key].warmed(self.compared)

    @property
    def compared(self) -> int:
        """Steps whose losses are compared."""
        import twins

        return twins.COMPARED_DRY if self.dry else twins.COMPARED

    def trace(self, what: str, lines: Lines) -> None:
        """A trace of a GPT-2 step."""
        import tracing

        step = self._step(what, "8")
        # Before the profiler is on.
        timed = step.timed(2 if self.dry else TIMED)
        path = self.results / f"trace-{what.replace(' ', '-')}.json"
        found = tracing.trace(self.gpu, step, path, 1 if self.dry else tracing.TRACED)
        lines.add("row", name=what, median_s=timed["median_s"], facts=step.facts, **found)
        with (self.results / "trace.txt").open("a") as file:
            file.write(tracing.table(what, found) + "\n\n")
        last = found["steps"][-1]
        print(
            f"trace {what:12} {last['wall_us'] / 1e3:8.2f} ms, {last['kernels']} kernels of {last['kernel_us'] / 1e3:.2f} ms,"
            f" gaps {last['gap_us'] / 1e3:.2f} ms, host {(last['host_us'] or 0.0) / 1e3:.2f} ms",
            flush=True,
        )

    def twins(self, what: str, lines: Lines) -> None:
        """A competitor's step, and whether it is the same training as ours."""
        import twins

        if what == OF_PEER:
            self.trace(TRACED_PEER, self.lines("trace"))
            return
        name, _, batch = what.rpartition(" x ")
        step = self._step(name, batch)
        row: Json = {"name": name, "batch": int(batch), **step.timed(2 if self.dry else TIMED), **step.facts}
        row["losses"] = step.losses[: self.compared]
        known = [one for one in lines.read() if one["what"] == "row" and one["batch"] == row["batch"]]
        base = next((one for one in known if one["name"] == OURS), None)
        text = f"{name:28} batch {batch} {row['median_s'] * 1e3:9.2f} ms"
        if base is not None:
            row |= {"over_captured": row["median_s"] / base["median_s"]}
            row |= twins.compared(base["losses"], row["losses"], self.compared)
            text += f"  x{row['over_captured']:.2f}"
            text += "" if row["twin"] else f"  NOT A TWIN: losses differ by {row['worst_loss_difference']:.3g}"
        lines.add("row", **row)
        print(text, flush=True)
        if (name, batch) != (TRACED_PEER, "8"):
            # The next ones may need its memory.
            del self._steps[name, batch], step
            gc.collect()

    def memory(self, what: str, lines: Lines) -> None:
        """Memory that was held, beside the report."""
        import checks

        row = checks.memory(self.gpu, what)
        lines.add("row", name=what, **row)
        print(f"memory {what}: held {row['most_bytes']} bytes, reported {row['reported_bytes']}", flush=True)

    def places(self, what: str, lines: Lines) -> None:
        """Several places on one GPU."""
        import checks

        row = checks.places(self.gpu, int(what))
        lines.add("row", name=what, **row)
        print(f"{what} places: right: {row['right']}, {row['several']['median_s'] * 1e3:.2f} ms", flush=True)

    def collectives(self, what: str, lines: Lines) -> None:
        """Sums between places, by NCCL of one rank, and between processes that share the GPU."""
        import collectives

        row = collectives.CASES[what](self.gpu)
        lines.add("row", name=what, **row)
        print(f"collectives, {what}: right: {row['right']}", flush=True)

    def graphs(self, what: str, lines: Lines) -> None:
        """Bits of calls and of the graph."""
        import checks

        row = checks.graph(self.gpu, what)
        lines.add("row", name=what, **row)
        print(f"graph of {what}: same bits: {row['same_bits']} {'; '.join(row['refused'])[:200]}", flush=True)


class Worker:
    """Does what nobody has done.

    Args:
        folder: Of the job.
        number: Of the process.
    """

    def __init__(self, folder: Path, number: int) -> None:
        job = json.loads((folder / JOB).read_text())
        self.number, self.names, self.end = number, job["names"], job["end"]
        self.shares: Mapping[str, float] = job["shares"]
        self.claims = Claims(folder)
        self.lines = Lines(Path(job["results"]), "brief", job["begun"])
        self.measuring = Measuring(Path(job["results"]), job["begun"], job["dry_run"])

    def until(self, part: str) -> float:
        """When a part's time is up: from its first entry on it has a share of what is left."""
        path = self.claims.folder / f"until-{part}"
        if not path.exists():
            path.write_text(repr(time.time() + self.shares[part] * max(0.0, self.end - time.time())))
        return float(path.read_text())

    def run(self) -> None:
        """Goes through the names."""
        for name in self.names:
            if not self.claims.take("entry", name):
                continue
            part, _, what = name.partition("/")
            left = self.until(part) - time.time()
            add = {"name": name, "worker": self.number}
            if left <= 0:
                self.lines.add("entry", outcome="skipped", seconds=0.0, why="no time was left for it", **add)
                continue
            self.lines.add("begin", patience=left + GRACE_S, **add)
            begun = time.perf_counter()
            words: Json = {"outcome": "passed"}
            lines = self.measuring.lines(part)
            try:
                self._reach(part)
                function: Callable[[str, Lines], None] = getattr(self.measuring, part)
                function(what, lines)
            except (Exception, SystemExit) as error:
                words = {"outcome": "failed", "error": described(error)}
                failed(lines, what, error)
                print(f"{name}: {described(error)[:300]}", flush=True)
            self.lines.add("entry", seconds=time.perf_counter() - begun, **words, **add)
            gpu = self.measuring.gpu
            if words["outcome"] == "failed" and gpu is not None and not gpu.alive():
                # All later ones would fail for what this one did.
                os._exit(LOST)
            if part in ALONE and not self.measuring.dry:
                os._exit(LOST)

    def _reach(self, part: str) -> None:
        """Finds the GPU before the first part that runs programs."""
        if part == "ceilings" or self.measuring.gpu is not None:
            return
        import place

        # Left open: what stands in for a GPU is there until the process ends.
        self.kept = place.first(self.measuring.dry)
        self.measuring.gpu = self.kept.__enter__()


def failed(lines: Lines, name: str, error: BaseException) -> None:
    """Adds the line of what raised an error."""
    told = "".join(traceback.format_exception(error))
    lines.add("error", name=name, error=described(error), traceback=told[-6000:])


def main(folder: Path, number: int) -> int:
    """Works until nothing is left."""
    if json.loads((folder / JOB).read_text())["interpret"]:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton's first import
    worker = Worker(folder, number)
    worker.run()
    worker.claims.done(number).touch()
    return 0


if __name__ == "__main__":
    restart()
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
