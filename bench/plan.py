"""What a training step launches and moves, fused and unfused, counted without a GPU: `python bench/plan.py --help`."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import report
from models import MODELS, Model
from nets import TINY_SIZE, tiny_ops
from plan_count import (
    FUSIONS,
    Meta,
    Row,
    Scope,
    against_formulas,
    built,
    compile_program,
    dtype_of,
    fused_kernels,
    launches_by_kind,
    moved,
    paddle,
    pipeline,
    planned,
    rewritten,
    second_launches,
    second_passes,
    static,
    strategy,
)
from plan_floors import floors
from plan_page import LARGE_SECONDS, failures, markdown

HERE = Path(__file__).resolve().parent
LARGE_OPS = 100_000
LARGE_DEPTH = 200
"""Python frames that compiling may stack up, whatever the length of the program."""


def model(name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """A training step: launches, bytes, what acted, and how the kernels stand to their formulas."""
    one: Model = MODELS[name]
    with one.flags(paddle):
        return _model(name, one, say)


def _model(name: str, one: Model, say: Callable[[str], None]) -> dict[str, Any]:
    start = time.perf_counter()
    main, loss = built(one.build)
    built_s = time.perf_counter() - start
    learned = sum(math.prod(p.shape) for p in main.all_parameters() if not p.stop_gradient)
    assert learned == one.parameters, f"{name} learns {learned} numbers and not {one.parameters}"
    chosen = strategy()
    start = time.perf_counter()
    explained = static.CompiledProgram(main, chosen).explain([loss], one.feeds)
    explain_s = time.perf_counter() - start
    alone = {}
    for switch in dict.fromkeys(f.switch for f in FUSIONS):
        say(f"{name}: {switch} alone")
        told = static.CompiledProgram(main, strategy(switch)).explain([loss], one.feeds)
        t = told.traffic
        alone[switch] = {
            "applied": len(told.applied), "refused": dict(Counter(r.code for r in told.refused)),
            "launches": t.launches_after, "bytes": t.bytes_after,
        }  # fmt: skip
    kernels = fused_kernels(main, chosen, one.feeds, [loss.name])
    extra_bytes = sum(max(0, moved(k) - k.nbytes) for _, k, _ in kernels)
    t = explained.traffic
    plan = planned(main, chosen, one.feeds, [loss.name])
    before, after, metas = rewritten(main, chosen, one.feeds, [loss.name])
    kinds = launches_by_kind(plan)
    unfused_bytes = t.bytes_before + second_passes(before, metas)
    fused_bytes = t.bytes_after + extra_bytes + second_passes(after, metas)
    return {
        "title": one.title,
        "lacks": one.lacks,
        "parameters": learned,
        "build_s": built_s,
        "explain_s": explain_s,
        "launches": {
            "unfused": t.launches_before + second_launches(before),
            "fused": t.launches_after + second_launches(after),
            "ops": sum(row["ops"] for row in kinds),
        },
        "bytes": {"unfused": unfused_bytes, "fused": fused_bytes},
        "arena": {
            "unfused": planned(main, strategy("-"), one.feeds, [loss.name]).arena_bytes,
            "fused": plan.arena_bytes,
        },
        "kinds": kinds,
        "applied": dict(Counter(a.switch for a in explained.applied)),
        "refused": {s: dict(Counter(r.code for r in explained.refused if r.switch == s)) for s in alone},
        "alone": alone,
        "kernels": against_formulas(kernels),
    }


# ------------------------------------------------------------------------------------------------------ a large program
def compile_large(count: int, profile: bool) -> Row:
    """Rewrites, fuses and plans a chain of small ops within a shallow stack; seconds of each part."""
    from cProfile import Profile  # here: only this part profiles

    main, last = built(lambda p: tiny_ops(p, count))
    chosen = static.BuildStrategy()
    chosen.enable_auto_fusion = chosen.fuse_elewise_add_act_ops = True
    known = {n: Meta((TINY_SIZE,), dtype_of("float32")) for n in ("x", "a", "b")}
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(LARGE_DEPTH)
    watched = Profile()
    seconds = {}
    try:
        if profile:
            watched.enable()
        start = time.perf_counter()
        pipeline.simplify(main, chosen, list(known), [last.name])
        seconds["rewrite"] = time.perf_counter() - start
        # Rewrites once more: what that takes is known now.
        start = time.perf_counter()
        made = compile_program(main, chosen, [known], [last.name], Scope()).first
        seconds["fuse"] = time.perf_counter() - start - seconds["rewrite"]
        assert made.plan.steps
        total = time.perf_counter() - start
        seconds["plan"] = total - seconds["rewrite"] - seconds["fuse"]
    finally:
        watched.disable()
        sys.setrecursionlimit(depth)
    row: Row = {
        "ops": count,
        "fused_ops": len(made.after.ops),
        "total_s": total,
        "seconds": seconds,
        "depth": LARGE_DEPTH,
    }
    if profile:
        row["profile"] = _hottest(watched)
    return row


def _hottest(watched: Any, most: int = 15) -> list[Row]:
    import pstats  # likewise

    stats: Any = pstats.Stats(watched)
    rows = []
    for (file, line, name), (_, calls, own, total, _) in stats.stats.items():
        where = f"{Path(file).parent.name}/{Path(file).name}:{line} {name}" if line else name
        rows.append({"where": where, "calls": calls, "own_s": own, "total_s": total})
    return sorted(rows, key=lambda r: -r["own_s"])[:most]


def large(count: int, patience_s: float, profile: bool) -> Row:
    """The same in a fresh process, which is stopped when it takes too long."""
    command = [sys.executable, str(Path(__file__).resolve()), "--large-here", str(count)]
    try:
        done = subprocess.run(
            command + ["--profile"] * profile, capture_output=True, text=True, timeout=patience_s, cwd=HERE
        )
    except subprocess.TimeoutExpired:
        return {"ops": count, "missing": f"not done after {patience_s:g} s, where {LARGE_SECONDS:g} s are wanted"}
    if done.returncode:
        return {"ops": count, "missing": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Counts, prints, writes; with ``--check`` the exit code is 1 where something is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = [*MODELS, "floors", "large"]
    parser.add_argument("--only", default="", help=f"parts, with commas: {', '.join(parts)}")
    parser.add_argument("--ops", type=int, default=LARGE_OPS, help="length of the large program")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds to wait for the large program")
    parser.add_argument("--profile", action="store_true", help="say where the large program's time goes")
    parser.add_argument("--check", action="store_true", help="fail where something is not as wanted")
    parser.add_argument("--output-json", type=Path, help="where to write; the page goes beside it")
    parser.add_argument("--large-here", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    paddle.enable_static()
    if args.large_here:
        print(json.dumps(compile_large(args.large_here, args.profile)))
        return 0
    names = args.only.split(",") if args.only else parts
    if unknown := set(names) - set(parts):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    show = sys.stderr.isatty()
    say = lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True) if show else None  # noqa: E731
    result: dict[str, Any] = {
        "date": report.today(),
        "commit": report.commit(),
        "versions": {"python": sys.version.split()[0], "tstatic": paddle.__version__},
        "models": {name: model(name, say) for name in names if name in MODELS},
        "floors": floors() if "floors" in names else [],
        "large": large(args.ops, args.patience, args.profile) if "large" in names else {},
    }
    path = args.output_json or HERE / "results" / f"plan-{result['date']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    page = path.with_suffix(".md")
    page.write_text(markdown(result))
    bad = failures(result)
    print(page.read_text())
    print("\n".join(f"not as wanted: {text}" for text in bad))
    print(f"written to {path} and {page.name}")
    return int(args.check and bool(bad))


if __name__ == "__main__":
    sys.exit(main())
