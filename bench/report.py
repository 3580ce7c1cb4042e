"""What a run of the bench leaves behind: ratios, a Markdown page, a JSON file."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def _library() -> Any:
    """The part of the library that knows machines, loaded by its path: first contact runs where tstatic's requirements are not."""
    path = Path(__file__).resolve().parents[1] / "tstatic" / "tools" / "benchlib" / "machine.py"
    spec = importlib.util.spec_from_file_location("benchlib_machine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MACHINE = _library()
machine = _MACHINE.machine
commit = _MACHINE.commit
today = _MACHINE.today


def _one(rows: Sequence[Row], name: str, threads: int) -> Row | None:
    return next((r for r in rows if r["name"] == name and r["threads"] == threads and "missing" not in r), None)


def _best(rows: Sequence[Row], name: str) -> Row | None:
    found = [r for r in rows if r["name"] == name and "missing" not in r]
    return min(found, key=lambda r: float(r["median_s"]), default=None)


def _ratio(mine: Row | None, other: Row | None, target: float | None) -> dict[str, Any] | None:
    if mine is None or other is None:
        return None
    return {
        "of": f"{mine['name']}@{mine['threads']}",
        "to": f"{other['name']}@{other['threads']}",
        "median": mine["median_s"] / other["median_s"],
        "min": mine["min_s"] / other["min_s"],
        "target": target,
    }


def ratios(rows: Sequence[Row], targets: Mapping[str, float], threads: Sequence[int]) -> list[dict[str, Any]]:
    """How tstatic compares with each peer at the same number of threads, and with the better thread count of Paddle.

    tstatic on torch's operators is compared with torch alone. Targets hold for the larger number of threads.
    """
    found = []
    for count in threads:
        mine = _one(rows, "tstatic", count)
        main = count == max(threads)
        for name in ("torch", "torch fused"):
            found.append(_ratio(mine, _one(rows, name, count), targets.get(name) if main else None))
        on_torch = _one(rows, "tstatic on torch", count)
        found.append(_ratio(on_torch, _one(rows, "torch", count), targets.get("on torch") if main else None))
        found.append(_ratio(mine, _best(rows, "paddle"), targets.get("paddle") if main else None))
        found.append(_ratio(mine, _best(rows, "bare"), targets.get("bare") if main else None))
    return [r for r in found if r is not None]


def milliseconds(seconds: float) -> str:
    """Three digits."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _steps_table(case: Mapping[str, Any]) -> list[str]:
    lines = [
        "| peer | threads | median ms | min ms | p90 ms | steps | quiet turns | first loss or value |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in case["rows"]:
        if "missing" in row:
            lines.append(f"| {row['name']} | {row['threads']} | not measured: {row['missing']} | | | | | |")
            continue
        times = " | ".join(milliseconds(row[k]) for k in ("median_s", "min_s", "p90_s"))
        quiet = f"{row['quiet_turns']} of {row['turns']}"
        values = ", ".join(f"{v:.5f}" for v in row["values"][:3])
        lines.append(f"| {row['name']} | {row['threads']} | {times} | {row['steps']} | {quiet} | {values} |")
    return lines


def _ratio_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for r in found:
        wanted = "" if r["target"] is None else f", wanted at most {r['target']:g}"
        lines.append(f"- {r['of']} / {r['to']}: **{r['median']:.2f}** by medians, {r['min']:.2f} by minima{wanted}")
    return lines


def markdown(result: Mapping[str, Any]) -> str:
    """The page."""
    m = result["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items())
    load = ", ".join(f"{v:.2f}" for v in m["load"])
    lines = [
        f"# CPU bench, {result['date']}",
        "",
        f"- machine: {m['cpu']}, {m['cores']} cores, {m['memory_mib']} MiB, {m['system']}",
        f"- matrix products of numpy: {m['blas']}",
        f"- commit {result['commit']}; {versions}",
        f"- {result['rounds']} rounds of {result['turn_s']:g} s for each peer, in turns; load when it began: {load}",
        "- a turn is quiet when other processes used at most 0.1 core; the others are left out where there are quiet ones",
        "",
    ]
    for case in result["cases"].values():
        lines += [f"## {case['title']}", ""]
        if case.get("rows"):
            lines += [*_steps_table(case), ""]
        if case.get("ratios"):
            lines += [*_ratio_lines(case["ratios"]), ""]
        if case.get("notes"):
            lines += [*(f"- {note}" for note in case["notes"]), ""]
    return "\n".join(lines)


def write(result: Mapping[str, Any], json_path: Path) -> Path:
    """Writes the JSON file and the page beside it; returns the page's path."""
    json_path.parent.mkdir(parents=True, exist_ok=True)
    json_path.write_text(json.dumps(result, indent=1) + "\n")
    page = json_path.with_suffix(".md")
    page.write_text(markdown(result))
    return page


def put(result: Mapping[str, Any], page: str, json_path: Path | None) -> None:
    """Prints the page of a result, and writes both beside each other where a path is given."""
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        json_path.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
