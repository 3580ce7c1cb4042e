"""Why rows of ``tstatic bench`` lose to a peer: ``python bench/passes.py RESULT.json`` counts the numpy calls of each.

An operator of numpy is a chain of calls, each of which reads and writes whole arrays or blocks of them; a library that has the
operator as one loop touches each value once. The page gives, for each row that takes more than 1.2 times as long as torch, how many
calls of numpy a run makes, how many bytes these move over the least that the row needs, and which part of the time is matrix
products, whose speed is that of the library behind numpy. One thread; calls are taken apart by the recorder of
:mod:`tstatic.ir.recording`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from own_kernels import restart

import tstatic as paddle
from tstatic import static
from tstatic.benchlib import results
from tstatic.benchlib.cases import build
from tstatic.benchlib.peers import strategy_of
from tstatic.benchlib.rows import Row
from tstatic.benchlib.statistics import paired
from tstatic.benchlib.suite import Selection, chosen_rows
from tstatic.ir.recording import Recording, record
from tstatic.runtime.scope import Scope

LOSES = 1.2
PRODUCTS = (np.matmul, np.dot, np.vecdot, np.vecmat, np.matvec)
Call = tuple[Any, tuple[Any, ...]]


def taken_apart(function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Iterator[tuple[Call, bool]]:
    """Yields the numpy calls of a call, each with whether it is one: a function that looks at values is one call of its own."""
    if isinstance(function, Recording):
        function, args, given = function._function, tuple(function._args), dict(function._given)
    while hasattr(function, "func"):  # functools.partial
        args, given, function = (*function.args, *args), {**function.keywords, **given}, function.func
    found = None if isinstance(function, np.ufunc) or function is np.copyto else record(function, args, given)
    if found is None:
        yield (function, (*args, *given.values())), isinstance(function, np.ufunc) or function is np.copyto
    else:
        yield from ((call, True) for call in found[0])


def moved(args: Any) -> int:
    """Returns the bytes of all arrays among arguments."""
    if isinstance(args, np.ndarray):
        return args.nbytes
    return sum(map(moved, args)) if isinstance(args, list | tuple) else 0


def profile(row: Row) -> dict[str, Any]:
    """Counts the calls of a row, and times them one by one."""
    case = build(row, seed=0)
    execution = static.ExecutionStrategy()
    execution.num_threads = 1
    compiled = static.CompiledProgram(case.program, build_strategy=strategy_of(row), exec_strategy=execution)
    scope, executor = Scope(), static.Executor(paddle.CPUPlace())
    for name, array in case.state.items():
        scope.publish(name, array.copy())
    for _ in range(2):
        executor.run(compiled, feed=case.feed, fetch_list=case.fetches, scope=scope)
    (session,) = list(executor._cache._entries.values())[-1].bound.sessions
    assert session.bound is not None
    calls = [call for schedule in session.bound.schedules.values() for call in schedule.calls]
    parts = [list(taken_apart(function, args, {})) for function, args in calls]
    inner = [one for some in parts for one in some]
    seconds = {True: 0.0, False: 0.0}
    with np.errstate(all="ignore"):
        for (function, args), some in zip(calls, parts, strict=True):
            taken = []
            for _ in range(5):
                start = time.perf_counter()
                function(*args)
                taken.append(time.perf_counter() - start)
            seconds[any(one in PRODUCTS for (one, _), _ in some)] += statistics.median(taken)
    return {
        "name": row.name, "calls": len(inner), "whole": sum(not known for _, known in inner),
        "bytes": sum(moved(args) for (_, args), _ in inner), "least": case.work.nbytes,
        "products": seconds[True] / max(1e-12, sum(seconds.values())),
    }  # fmt: skip


def losing(result: dict[str, Any], peer: str) -> dict[str, float]:
    """Returns the rows that take more than 1.2 times as long as a peer, slowest first, with the ratio."""
    found = {}
    for row in result["rows"]:
        own, other = (row["peers"].get(name, {}).get("seconds") for name in ("tstatic", peer))
        if own and other and (ratio := paired(own, other).ratio) > LOSES:
            found[row["name"]] = ratio
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def page(source: str, ratios: dict[str, float], found: list[dict[str, Any]]) -> str:
    """Returns the record as Markdown."""
    lines = [
        f"# Why rows lose to torch: {source}",
        "",
        f"Every row that takes more than {LOSES} times as long as torch. Calls: of numpy, in a run on one thread (and how many of",
        "them are functions that look at values, taken as one call each). Bytes: what these calls read and write, over the least",
        "that the row has to; a value that a call finds in the cache counts, too. Products: their share of the time, which is that",
        "of the library behind numpy. `python bench/passes.py` counts it.",
        "",
        "| row | of torch's time | calls | bytes over the least | products |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        calls = f"{one['calls']}" + (f" ({one['whole']} whole)" if one["whole"] else "")
        share = one["bytes"] / max(1, one["least"])
        lines.append(f"| {one['name']} | {ratios[one['name']]:.2f} | {calls} | {share:.1f} | {one['products']:.0%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes a page beside a result of ``tstatic bench``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    args = parser.parse_args()
    result = results.read(args.result)
    ratios = losing(result, "torch")
    rows = {row.name: row for row in chosen_rows(Selection())}
    found = [profile(rows[name]) for name in ratios if name in rows]
    path = args.result.with_name(args.result.stem.replace("ops", "passes"))
    path.with_suffix(".json").write_text(json.dumps({"source": args.result.name, "rows": found}, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(args.result.name, ratios, found))
    print(path.with_suffix(".md"))


if __name__ == "__main__":
    restart()
    main()
