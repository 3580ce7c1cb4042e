"""CPU speed against torch eager and Paddle 2.6.2, measured in turns within one run: `python bench/cpu.py --help`."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from nets import NETS
from own_kernels import restart
from workers import HERE, Peer, Worker, WorkerError, import_seconds, measure, paddle_python, torch_missing

TINY_OPS = 500
LARGE_OPS = 100_000
SIZED = ("bert", "sampled")
# Ratios that the project wants on two cores (medians, two threads).
TARGETS = {
    "mlp": {"torch": 1.0, "paddle": 0.5, "on torch": 1.1},
    "cnn": {"torch": 1.0, "paddle": 0.5, "on torch": 1.1},
    "gpt": {"torch": 1.2},
    "residual": {"torch": 1.1, "on torch": 1.1},
    "depthwise": {"torch": 1.1, "on torch": 1.1},
    "recommender": {"torch": 1.0},
    "small": {"torch": 1.0, "paddle": 0.5},
    "infer": {"torch": 1.2},
    "tiny": {"paddle": 0.2, "bare": 2.0},
    "bert": {"paddle": 1.2, "fed": 1.1},
    "sampled": {"paddle": 1.2, "fed": 1.1},
}


@dataclass(frozen=True)
class Setting:
    """What the command line asks for."""

    rounds: int
    turn_s: float
    patience_s: float
    threads: tuple[int, ...]
    quick: bool
    say: Callable[[str], None]


def _tstatic(threads: int, case: str, name: str = "tstatic") -> Peer:
    return Peer(name, threads, case, (sys.executable, "peer_static.py", ("tstatic",)))


def _on_torch(threads: int, case: str, missing: str) -> Peer:
    return Peer("tstatic on torch", threads, case, (sys.executable, "peer_static.py", ("tstatic", "torch")), missing)


def _paddle(threads: int, case: str) -> Peer:
    python, missing = paddle_python()
    return Peer("paddle", threads, case, (python, "peer_static.py", ("paddle",)), missing)


def _torch(threads: int, case: str, name: str, missing: str) -> Peer:
    return Peer(name, threads, case, (sys.executable, "peer_torch.py", ()), missing)


def _finish(title: str, peers: Sequence[Peer], targets: dict[str, float], setting: Setting) -> dict[str, Any]:
    measure(peers, setting.rounds, setting.turn_s, setting.patience_s, setting.say)
    rows = [peer.summary() for peer in peers]
    versions = {peer.name: peer.versions["version"] for peer in peers if peer.versions and peer.name != "bare"}
    result = {
        "title": title,
        "rows": rows,
        "ratios": report.ratios(rows, targets, setting.threads),
        "versions": versions,
    }
    firsts = [row["values"][0] for row in rows if row.get("values") and row["name"] != "null"]
    if len(firsts) > 1:
        spread = (max(firsts) - min(firsts)) / max(abs(v) for v in firsts)
        result["notes"] = [f"first values of all peers agree to {spread:.1e} (relative): they compute the same"]
        if spread > 1e-3:
            result["notes"] = [f"**first values differ by {spread:.1e} (relative): the peers do not compute the same**"]
    return result


# ----------------------------------------------------------------------------------------------------------------- cases
def net(name: str, setting: Setting) -> dict[str, Any]:
    """A step of one net in all peers."""
    missing = torch_missing()
    peers: list[Peer] = []
    for threads in setting.threads:
        peers.append(_tstatic(threads, name))
        peers.append(_torch(threads, name, "torch", missing))
        peers.append(_on_torch(threads, name, missing))
        if NETS[name].trained and not setting.quick:
            peers.append(_torch(threads, f"{name}+fused", "torch fused", missing))
        peers.append(_paddle(threads, name))
    return _finish(NETS[name].title, peers, TARGETS[name], setting)


def sized(name: str, setting: Setting) -> dict[str, Any]:
    """A step of a net in which values decide sizes, beside Paddle's, and beside the same net that is fed what decides them."""
    peers: list[Peer] = []
    for threads in setting.threads:
        peers += [_tstatic(threads, name), _tstatic(threads, f"{name} fed", "fed"), _paddle(threads, name)]
    result = _finish(NETS[name].title, peers, TARGETS[name], setting)
    # Of small steps beside other jobs, processor time says more than the clock.
    used = {(row["name"], row["threads"]): row["cpu_s_per_step"] for row in result["rows"] if "missing" not in row}
    for (peer, threads), seconds in used.items():
        ratio = used[("tstatic", threads)] / seconds
        result.setdefault("notes", []).append(
            f"processor time of a step, {peer}@{threads}: {seconds * 1e3:.2f} ms, tstatic@{threads} takes {ratio:.2f} of it"
        )
    return result


def tiny(setting: Setting) -> dict[str, Any]:
    """Host overhead: a program of tiny operators against Paddle's Executor and against a bare loop of ufuncs."""
    case = f"tiny:{TINY_OPS}"
    peers = [_tstatic(t, case) for t in setting.threads] + [_paddle(t, case) for t in setting.threads]
    peers.append(_tstatic(1, f"bare:{TINY_OPS}", "bare"))
    result = _finish(f"Host overhead: {TINY_OPS} operators on 8 values", peers, TARGETS["tiny"], setting)
    for row in result["rows"]:
        if "missing" not in row:
            result.setdefault("notes", []).append(
                f"{row['name']}, {row['threads']} threads: {row['median_s'] / TINY_OPS * 1e9:.0f} ns an operator"
            )
    return result


def null(setting: Setting) -> dict[str, Any]:
    """The same programs on the device that computes nothing: what planning and driving a step costs."""
    cases = {"mlp": "null:mlp", "cnn": "null:cnn", "gpt": "null:gpt", f"tiny {TINY_OPS}": f"null:tiny:{TINY_OPS}"}
    rows, notes, versions = [], [], {}
    for label, case in cases.items():
        peer = _tstatic(1, case, f"null {label}")
        measure([peer], setting.rounds, min(0.3, setting.turn_s), setting.patience_s, setting.say)
        row = peer.summary()
        rows.append(row)
        versions.update({"tstatic": peer.versions["version"]} if peer.versions else {})
        if "missing" not in row:
            notes.append(f"{label}: {row['ops']} operators, {row['median_s'] * 1e6:.0f} us a step")
    return {"title": "The null device: overhead alone", "rows": rows, "notes": notes, "versions": versions}


def large(setting: Setting) -> dict[str, Any]:
    """Building and compiling a program of 100,000 operators."""
    worker = Worker(sys.executable, "peer_static.py", ("tstatic",), 1)
    try:
        version = worker.ask(do="facts")["version"]
        setting.say(f"building {LARGE_OPS} operators")
        facts = worker.ask(do="prepare", case=f"tiny:{LARGE_OPS}", threads=1)
    except WorkerError as error:
        return {"title": f"A program of {LARGE_OPS} operators", "notes": [f"not measured: {error}"], "versions": {}}
    finally:
        worker.close()
    total = facts["build_s"] + facts["first_run_s"]
    notes = [
        f"build {facts['build_s']:.2f} s, first run (compile and one step) {facts['first_run_s']:.2f} s: "
        f"**{total:.1f} s**, wanted under 60 s; peak memory {facts['peak_mib']:.0f} MiB"
    ]
    return {
        "title": f"A program of {LARGE_OPS} operators",
        "facts": facts,
        "notes": notes,
        "versions": {"tstatic": version},
    }


def imports(setting: Setting) -> dict[str, Any]:
    """Seconds that an import takes, in fresh processes."""
    python, missing = paddle_python()
    root = str(HERE.parent)
    candidates = {"nothing": sys.executable, "numpy": sys.executable, "tstatic": sys.executable}
    if not torch_missing():
        candidates["torch"] = sys.executable
    if not missing:
        candidates["paddle"] = python
    medians, notes = {}, []
    for name, interpreter in candidates.items():
        setting.say(f"importing {name}")
        statement = "pass" if name == "nothing" else f"import {name}"
        try:
            import_seconds(interpreter, statement, 1, root)
            found = import_seconds(interpreter, statement, 3 if setting.quick else 9, root)
        except OSError as error:
            notes.append(f"{name}: not measured: {error}")
            continue
        medians[name] = {"median_s": statistics.median(found), "min_s": min(found)}
    for name, times in medians.items():
        own = {k: times[k] - medians["nothing"][k] for k in times} if name != "nothing" else times
        wanted = ", wanted under 0.4 s" if name == "tstatic" else ""
        what = "an empty interpreter" if name == "nothing" else f"`import {name}` above that"
        notes.append(f"{what}: {own['median_s']:.3f} s median, {own['min_s']:.3f} s least{wanted}")
    return {"title": "Import", "facts": medians, "notes": notes, "versions": {}}


CASES: dict[str, Callable[[Setting], dict[str, Any]]] = {
    **{
        name: (lambda setting, name=name: net(name, setting))
        for name in NETS
        if name not in SIZED and "fed" not in name
    },
    **{name: (lambda setting, name=name: sized(name, setting)) for name in SIZED},
    "tiny": tiny,
    "null": null,
    "large": large,
    "import": imports,
}


def _names(text: str) -> list[str]:
    names = [n for n in text.split(",") if n]
    unknown = [n for n in names if n not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no case named {', '.join(unknown)}; there are {', '.join(CASES)}")
    return names


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=_names, default=[], help=f"cases to measure, with commas: {', '.join(CASES)}")
    parser.add_argument("--skip", type=_names, default=[], help="cases to leave out")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each peer (5)")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn (1)")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait, per case, for quiet turns (60)")
    parser.add_argument("--threads", default="2,1", help="numbers of threads (2,1)")
    parser.add_argument("--quick", action="store_true", help="two short rounds, no waiting: to see that all works")
    parser.add_argument("--output-json", type=Path, help="where to write; the page goes beside it")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; the exit code is 0 whatever the numbers are."""
    args = parse(arguments)
    show = sys.stderr.isatty()
    setting = Setting(
        rounds=2 if args.quick else args.rounds,
        turn_s=0.3 if args.quick else args.turn,
        patience_s=0.0 if args.quick else args.patience,
        threads=tuple(int(t) for t in args.threads.split(",")),
        quick=args.quick,
        say=lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True) if show else None,
    )
    names = [name for name in (args.only or CASES) if name not in args.skip]
    result: dict[str, Any] = {
        "date": report.today(),
        "commit": report.commit(),
        "machine": report.machine(),
        "versions": {"python": sys.version.split()[0]},
        "rounds": setting.rounds,
        "turn_s": setting.turn_s,
        "threads": setting.threads,
        "cases": {},
    }
    path = args.output_json or HERE / "results" / f"cpu-{result['date']}.json"
    page = report.write(result, path)
    for name in names:
        case = CASES[name](setting)
        result["versions"] |= case.pop("versions")
        result["cases"][name] = case
        # After each case: an interrupt, or a limit of the machine, costs no more than the case that runs.
        page = report.write(result, path)
    if show:
        print("\r\033[K", end="", file=sys.stderr)
    print(page.read_text())
    print(f"written to {path} and {page.name}")
    return 0


if __name__ == "__main__":
    restart()
    sys.exit(main())
