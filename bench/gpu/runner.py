"""Checks and times the kernels of a pack on a device, one after the other: the part of first contact that a kernel may kill.

``contact.py`` starts it, and starts it again behind the kernel that ended it. Needs torch, triton and numpy alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import compiling  # noqa: E402 - found through the line above
import packfile  # noqa: E402
from packfile import Json, Lines, described  # noqa: E402

COPY_SHARE = 0.93
"""Part of a copy's speed that a streaming kernel reaches."""
MATRIX_SHARE = 0.86
LAUNCH_S = 2.0e-6
"""What a launch in a graph costs."""
ROTATE = 4
"""What is timed works on so many times the cache."""
USUAL = {"bytes_per_s": 3.0e12, "flops_per_s": 8.0e14}
"""What an H100 reached, for predictions where the ceilings could not be measured."""
SUMS = 16 * 2.0**-23
"""How far sums of 32 bits may be off beyond what smaller ones are: at the timed sizes they are thousands of times longer."""

LOST, NO_DEVICE = 4, 5
"""Exit codes: the device was lost in a case; there is none, or a library is missing."""


def predicted(variant: Mapping[str, Any], ceilings: Mapping[str, Any]) -> float:
    """Seconds of a run: bytes or operations, whichever take longer, and the launches."""
    memory = variant["bytes"] / (COPY_SHARE * ceilings["bytes_per_s"])
    arithmetic = variant["flops"] / (MATRIX_SHARE * ceilings["flops_per_s"])
    return float(max(memory, arithmetic) + LAUNCH_S * len(variant["launches"]))


def peer_of(case: Mapping[str, Any]) -> Any:
    """How torch does what a case's kernel does, or ``None``."""
    from peers import PEERS  # torch may be absent

    return PEERS.get(case["name"].rpartition(".")[0])


# -------------------------------------------------------------------------------------------------------------- a kernel
class Bench:
    """Runs the cases of a pack on a device.

    Args:
        device: Of ``device.py``.
        arrays: The pack's arrays.
        load: ``(text, name) -> module``.
        peer: Case -> a ``Peer``, or ``None``.
    """

    def __init__(
        self,
        device: Any,
        arrays: Mapping[str, Any],
        load: Callable[[str, str], ModuleType] = compiling.load,
        peer: Callable[[Mapping[str, Any]], Any] = peer_of,
    ) -> None:
        self.device = device
        self.arrays = arrays
        self.load = load
        self.peer = peer

    def tensors(self, variant: Mapping[str, Any], tables: bool = True) -> dict[str, Any]:
        """Inputs (given, or drawn), outputs and partial sums (full of NaN), and tables."""
        import numpy as np

        device = self.device
        made: dict[str, Any] = {}
        for name, entry in variant["inputs"].items():
            if "array" in entry:
                made[name] = device.put(self.arrays[f"a{entry['array']}"], entry["dtype"])
            elif entry["kind"] == packfile.MADE:
                made[name] = device.empty(_count(entry), entry["dtype"])
            else:
                made[name] = device.draw(_count(entry), entry["dtype"], entry["kind"], entry.get("below", 2))
        for name, entry in variant["outputs"].items():
            made[name] = device.empty(_count(entry), entry["dtype"])
        for name, (count, dtype) in variant["partials"].items():
            made[name] = device.empty(count, dtype)
        for name, table in variant["tables"].items() if tables else ():
            numbers = (
                np.array([made[v].data_ptr() for v in table["values"]], np.int64)
                if "values" in table
                else self.arrays[f"a{table['array']}"]
            )
            made[name] = device.put(numbers, table["dtype"])
        if tables and any(e["kind"] == packfile.MADE and "array" not in e for e in variant["inputs"].values()):
            self._go_on_from(variant["before"], made)
        return made

    def _go_on_from(self, before: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Has the kernel before make what this one reads of it, of the same inputs."""
        own = {n: made[n] for n in before["inputs"]}
        own |= {n: made.get(n, self.device.empty(_count(e), e["dtype"])) for n, e in before["outputs"].items()}
        own |= {n: self.device.empty(count, dtype) for n, (count, dtype) in before["partials"].items()}
        own |= {n: self.device.put(self.arrays[f"a{t['array']}"], t["dtype"]) for n, t in before["tables"].items()}
        self._run(self.load(before["text"], before["kernel"]), before, own)

    def check(self, variant: Mapping[str, Any]) -> Json:
        """Compares with the exact values: each output's distance, and how far it may be."""
        module = self.load(variant["text"], variant["kernel"])
        tensors = self.tensors(variant)
        start = time.perf_counter()
        self._run(module, variant, tensors)
        first = time.perf_counter() - start
        return {"first_run_s": first} | _compared(
            (name, _distance(self.device.get(tensors[name]), self.arrays[f"a{entry['array']}"]), entry["bound"])
            for name, entry in variant["outputs"].items()
        )

    def _run(self, module: ModuleType, variant: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        for call in self.device.bind_launches(module, variant["launches"], tensors):
            call()
        self.device.wait()

    def time(self, case: Mapping[str, Any], expected: float, compiled: bool) -> Json:
        """Compares what is timed with torch on the device, then times the kernel and torch in turns.

        The tensors do not fit in the cache together. Nothing is timed whose values are wrong.
        """
        variant, peer = case["time"], self.peer(case)
        module = self.load(variant["text"], variant["kernel"])
        count = min(16, max(1, -(-ROTATE * self.device.cache_bytes // max(1, variant["bytes"]))))
        start = time.perf_counter()
        sets = [self.tensors(variant) for _ in range(count)]
        self._run(module, variant, sets[0])
        found: Json = {"sets": count}
        found["unwritten"] = {n: bad for n in variant["outputs"] if (bad := int((sets[0][n] != sets[0][n]).sum()))}
        if peer is None:
            found["compared"] = {"error": "torch's version of this row is not known"}
        else:
            try:
                found["compared"] = self._against(peer, case, sets[0])
            except Exception as error:
                self.device.wait()
                found["compared"] = {"error": described(error)}
        if found["unwritten"] or not found["compared"].get("right", True):
            return found
        competitors = {"kernel": [self.device.bind_launches(module, variant["launches"], tensors) for tensors in sets]}
        failed: Json = {}
        for name in ("eager", "compiled") if peer is not None else ():
            try:
                if name == "eager":
                    competitors[name] = peer.eager_calls(variant, sets)
                elif compiled:
                    competitors[name] = peer.compiled_calls(self.device, variant, sets)
                else:
                    failed[name] = {"error": "it was not compiled in time"}
            except Exception as error:
                self.device.wait()
                failed[name] = {"error": described(error)}
        raced = self.race(competitors, failed, case, sets, expected)
        if "error" in raced["kernel"]:
            raise RuntimeError(raced["kernel"]["error"])
        found |= raced.pop("kernel")
        found["peers"] = failed | raced
        found["wall_s"] = time.perf_counter() - start
        return found

    def race(
        self,
        competitors: dict[str, Any],
        failed: Json,
        case: Mapping[str, Any],
        sets: Sequence[Mapping[str, Any]],
        expected: float,
    ) -> dict[str, Json]:
        """Times the kernel and its competitors in turns; a subclass may add some, and what keeps others from running."""
        found: dict[str, Json] = self.device.race(competitors, expected)
        return found

    def _against(self, peer: Any, case: Mapping[str, Any], tensors: Mapping[str, Any]) -> Json:
        """The outputs of the timed size against torch in 64 bits; torch in the row's own types says what rounding costs."""
        variant, checked = case["time"], case["check"]["outputs"]
        exact = peer.exact(variant, tensors)
        rounded = peer.rounded(variant, tensors)
        rows = []
        for name in variant["outputs"]:
            true = exact[name].reshape(-1).double()
            size = true.norm().clamp_min(1e-300)
            rows.append([(t.reshape(-1).double() - true).norm() / size for t in (tensors[name], rounded[name])])
        # Brought back together: hundreds of small waits take longer than the sums.
        numbers = self.device.numbers([n for pair in rows for n in pair])
        return _compared(
            (name, error, _allowed(entry["dtype"], checked[name]["bound"], loss))
            for (name, entry), error, loss in zip(variant["outputs"].items(), numbers[::2], numbers[1::2], strict=True)
        )


def _allowed(dtype: str, checked: float, rounded: float) -> float:
    """How far an output of the timed size may be off.

    What rounding to 16 bits costs does not depend on the size. Sums of 32 bits are as much longer as the tensors are larger:
    there torch's own sums say what is usual.
    """
    if dtype != "float32":
        return 2 * checked
    usual = packfile.MARGIN * rounded
    return (max(checked, usual) if usual == usual else checked) + SUMS


def _count(entry: Mapping[str, Any]) -> int:
    count = 1
    for size in entry["shape"]:
        count *= size
    return count


def _distance(got: Any, exact: Any) -> float:
    import numpy as np

    true = exact.reshape(-1).astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - true) / (np.linalg.norm(true) or 1.0))


def _compared(rows: Any) -> Json:
    """Whether all outputs are right, and the worst of them: reports stay short."""
    errors = {name: {"relative": e, "bound": bound, "right": e <= bound} for name, e, bound in rows}
    worst = sorted(errors.items(), key=lambda pair: -_badness(pair[1]))
    return {"right": all(e["right"] for e in errors.values()), "errors": dict(worst[:8])}


def _badness(error: Mapping[str, Any]) -> float:
    relative = float(error["relative"])
    return float("inf") if relative != relative else relative / (error["bound"] or 1e-12)


# ------------------------------------------------------------------------------------------------------------------ run
def run(
    bench: Bench,
    cases: Sequence[Json],
    lines: Lines,
    *,
    ceilings: Mapping[str, Any] = USUAL,
    first: int = 0,
    died: Sequence[str] = (),
    compiled: Callable[[str], bool] = lambda name: True,
    end: float = float("inf"),
    clock: Callable[[], float] = time.time,
    say: Callable[[str], None] = print,
) -> int:
    """Runs cases; a line follows each, and one with the prediction is there before anything is measured.

    Args:
        bench: What runs them.
        cases: Of the pack.
        lines: Where results go.
        ceilings: For predictions.
        first: Number of the first case to run.
        died: Cases whose kernel ended the compiler's process.
        compiled: Whether a case's peer is ready for torch.compile.
        end: When no further case is begun.
        clock: Seconds.
        say: Is told each row of the table.

    Returns:
        0, or ``LOST``.
    """
    for number, case in enumerate(cases[first:], first):
        if clock() > end:
            lines.add("stopped", why=f"the time was up after {number} of {len(cases)} kernels")
            return 0
        expected = predicted(case["time"], ceilings)
        row: Json = {
            "name": case["name"], "fusion": case["fusion"], "template": case["template"],
            "launches": len(case["time"]["launches"]), "bytes": case["time"]["bytes"], "predicted_s": expected,
            "way": case["time"].get("way", ""), "digest": packfile.digest(case),
        }  # fmt: skip
        lines.add("begin", number=number, **row)
        lost = False
        try:
            if case["name"] in died:
                raise RuntimeError("the compiler's process ended without a word")
            row["check"] = bench.check(case["check"])
            if row["check"]["right"]:
                row["time"] = bench.time(case, expected, compiled(case["name"]))
        except (Exception, SystemExit) as error:
            row["error"] = described(error)
            lost = type(error).__name__ == "DeviceLostError" or not _alive(bench.device)
        lines.add("case", number=number, **row)
        say(table_row(row))
        if lost:
            return LOST
    return 0


def _alive(device: Any) -> bool:
    try:
        device.wait()
    except Exception:
        return False
    return True


def good(row: Mapping[str, Any]) -> bool:
    """Whether a kernel compiled, is right at both sizes, wrote all that it should, and was timed."""
    timed = row.get("time", {})
    return "median_s" in timed and not timed["unwritten"] and bool(timed["compared"].get("right", True))


def served_by_peer(row: Mapping[str, Any]) -> bool:
    """Whether the library that torch multiplies with makes a row's product; what comes after it weighs little."""
    return str(row.get("way", "")).startswith("library")


def table_row(row: Mapping[str, Any]) -> str:
    """A row of the table: predicted and measured, then torch as multiples of the kernel."""
    start = f"{row['name']:58} {row['predicted_s'] * 1e6:9.1f}"
    if "error" in row:
        return f"{start} FAILED: {row['error'][:90]}"
    if not row["check"]["right"]:
        return f"{start} WRONG: {_worst(row['check'])}"
    t = row["time"]
    if t["unwritten"]:
        return f"{start} UNWRITTEN: {t['unwritten']}"
    if not t["compared"].get("right", True):
        return f"{start} WRONG at the timed size: {_worst(t['compared'])}"
    text = f"{start} {t['median_s'] * 1e6:9.1f} us  x{t['median_s'] / row['predicted_s']:.2f}"
    text += f"  {row['bytes'] / t['median_s'] / 1e12:.2f} TB/s"
    text += "  = peer" if served_by_peer(row) else ""
    for name, peer in t["peers"].items():
        text += f"  {name} " + (f"x{peer['median_s'] / t['median_s']:.2f}" if "median_s" in peer else "-")
    return text + ("" if "right" in t["compared"] else "  NOT COMPARED")


def _worst(compared: Mapping[str, Any]) -> str:
    name, worst = next(iter(compared["errors"].items()))
    return f"{name} is off by {worst['relative']:.1e}, allowed {worst['bound']:.1e}"


# -------------------------------------------------------------------------------------------------------------- process
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases from a number on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--begun", type=float, required=True, help="when first contact began, in seconds of the clock")
    parser.add_argument("--limit", type=float, required=True, help="seconds after that when no case is begun")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--since", type=Path, help="a record: only kernels that are not in it")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(arguments)
    lines = Lines(args.results, "contact", args.begun)
    if args.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton's first import

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        from device import Cuda, DryRun

        device = DryRun() if args.dry_run else Cuda()
        pack = packfile.read(args.pack)
        known = {line["what"]: line for line in lines.read()}
        if "facts" not in known:
            lines.add("facts", **device.facts())
    except (Exception, SystemExit) as error:
        lines.add("error", stage="device", error=described(error))
        print(f"no contact: {described(error)}", file=sys.stderr)
        return NO_DEVICE
    ceilings: Mapping[str, Any] = known.get("ceilings", USUAL)
    if "ceilings" not in known:
        try:
            ceilings = device.ceilings()
            lines.add("ceilings", **ceilings)
            speed = f"copy {ceilings['bytes_per_s'] / 1e12:.2f} TB/s ({ceilings['best_copy']})"
            say(f"{speed}, matrix {ceilings['flops_per_s'] / 1e12:.0f} TFLOP/s")
        except Exception as error:
            lines.add("error", stage="ceilings", error=described(error))
            say(f"no ceilings: {described(error)}")
    before = known.get("compile", {})
    ready = set(before.get("peers", ()))
    return run(
        Bench(device, pack["arrays"]), packfile.changed(pack["cases"], args.since), lines, ceilings=ceilings, first=args.first,
        died=before.get("died", ()), compiled=lambda name: args.dry_run or name in ready,
        end=args.begun + args.limit, say=say,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
