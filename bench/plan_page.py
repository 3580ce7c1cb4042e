"""The page of a plan on paper, and what in it is not as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WANTED = 1.02
"""What a fused kernel may move, as a multiple of its formula."""

LARGE_SECONDS = 60.0
"""In which the large program should be compiled."""


def _gb(count: float) -> str:
    return f"{count / 1e9:.2f}"


def _percent(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f} %" if before else "-"


def _model_lines(one: Mapping[str, Any]) -> list[str]:
    count, size = one["launches"], one["bytes"]
    lines = [f"## {one['title']}", "", f"{one['parameters']:,} parameters. {one['lacks']}.", ""]
    lines += ["| | unfused | fused | |", "|---|---|---|---|"]
    lines.append(
        f"| launches a step | {count['unfused']} | {count['fused']} | {_percent(count['unfused'], count['fused'])} |"
    )
    lines.append(
        f"| GB moved a step | {_gb(size['unfused'])} | {_gb(size['fused'])} | {_percent(size['unfused'], size['fused'])} |"
    )
    # Results of before it was counted have none.
    if arena := one.get("arena"):
        saved = _percent(arena["unfused"], arena["fused"])
        lines.append(f"| GB in the arena | {_gb(arena['unfused'])} | {_gb(arena['fused'])} | {saved} |")
    lines += [
        "",
        f"{count['ops']} ops remain; some kernels are several launches. Compiled in {one['explain_s']:.1f} s.",
        "",
    ]
    lines += [
        "| switch | applied, all on | applied, alone | not applied, alone | launches, alone | GB, alone |",
        "|---|---|---|---|---|---|",
    ]
    for switch, found in one["alone"].items():
        refused = ", ".join(f"{n} x {code}" for code, n in sorted(found["refused"].items())) or "-"
        lines.append(
            f"| `{switch}` | {one['applied'].get(switch, 0)} | {found['applied']} | {refused} | {found['launches']} "
            f"| {_gb(found['bytes'])} |"
        )  # fmt: skip
    lines += [
        "",
        "| kernels of | count | GB moved | GB by formula | ratio | worst kernel |",
        "|---|---|---|---|---|---|",
    ]
    # Results of before they were counted have none.
    kinds = ["", "| what is launched | ops | launches |", "|---|---|---|"] if "kinds" in one else []
    kinds += [f"| {row['what']} | {row['ops']} | {row['launches']} |" for row in one.get("kinds", ())]
    for row in one["kernels"]:
        mark = row["what"] if row["table"] else f"{row['what']}, against inputs + outputs"
        ratio = row["moved"] / row["least"] if row["least"] else 0.0
        lines.append(
            f"| {mark} | {row['kernels']} | {_gb(row['moved'])} | {_gb(row['least'])} | {ratio:.3f} | {row['worst']:.3f} |"
        )
    return [*lines, *kinds, ""]


def _large_lines(row: Mapping[str, Any]) -> list[str]:
    lines = [f"## A program of {row['ops']:,} ops", ""]
    if "missing" in row:
        return [*lines, f"- **not compiled: {row['missing']}**", ""]
    parts = ", ".join(f"{name} {s:.1f} s" for name, s in row["seconds"].items())
    lines.append(
        f"- compiled in **{row['total_s']:.1f} s** ({parts}), wanted under {LARGE_SECONDS:g} s; {row['fused_ops']:,} ops "
        f"remain; never more than {row['depth']} Python frames"
    )
    if row.get("profile"):
        lines += [
            "",
            "| function (profiled, which slows it down) | calls | own s | with callees s |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{r['where']}` | {r['calls']:,} | {r['own_s']:.2f} | {r['total_s']:.2f} |" for r in row["profile"]
        ]
    return [*lines, ""]


def markdown(result: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        f"# Predicted launches and bytes, {result['date']}",
        "",
        f"- commit {result['commit']}; Python {result['versions']['python']}, tstatic {result['versions']['tstatic']}",
        "- counted from programs and kernels, nothing was run: each launch reads what it reads and writes what it writes once",
        "- an unfused op is one launch that reads each input once; unfused batch norms are three launches and read twice, as fused",
        "  ones do and are; what the plan makes a view of its input is free, and so are gradients of adds that only hand on what\n"
        "  arrives",
        "- the arena holds all that a step computes, parameters and their state apart; so much has to be free on a GPU",
        "- columns of one switch alone count every op, fused ones too, as one launch that reads each input once",
        "- formulas are those of `bench/plan_formulas.py`: streams of the table of floors, partial sums of sums over rows, and for",
        "  products that the device's library makes (32 bits, rows off multiples of 16 bytes, several results) one more pass\n"
        "  for what follows",
        f"- wanted: kernels with a formula move at most {WANTED} times its bytes, and fusion saves at least 40 % of launches",
        "",
    ]
    for one in result["models"].values():
        lines += _model_lines(one)
    if result["floors"]:
        lines += ["## Single fusions at the shapes of the floors (bf16)", ""]
        lines += [
            "| fusion | switch | kernels | launches | MB moved | MB by formula | ratio |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in result["floors"]:
            bold = "**" if row["ratio"] > WANTED or not row["kernels"] else ""
            lines.append(
                f"| {row['what']} | `{row['switch']}` | {row['kernels']} | {row['launches']} | {row['moved'] / 1e6:.1f} "
                f"| {row['least'] / 1e6:.1f} | {bold}{row['ratio']:.3f}{bold} |"
            )  # fmt: skip
        lines.append("")
    if result["large"]:
        lines += _large_lines(result["large"])
    return "\n".join(lines)


def failures(result: Mapping[str, Any]) -> list[str]:
    """What is not as wanted, in words."""
    bad = [f"{r['what']} ({r['switch']}): no kernel" for r in result["floors"] if not r["kernels"]]
    bad += [
        f"{r['what']} ({r['switch']}): moves {r['ratio']:.3f} times the formula"
        for r in result["floors"]
        if r["ratio"] > WANTED
    ]
    for one in result["models"].values():
        bad += [
            f"{one['title']}: {r['what']} moves {r['worst']:.3f} times the formula"
            for r in one["kernels"]
            if r["table"] and r["worst"] > WANTED
        ]
        if one["launches"]["fused"] > 0.6 * one["launches"]["unfused"]:
            bad.append(f"{one['title']}: {one['launches']['fused']} of {one['launches']['unfused']} launches are left")
    big = result["large"]
    if big and ("missing" in big or big["total_s"] >= LARGE_SECONDS):
        bad.append(f"{big['ops']} ops: " + (big.get("missing") or f"{big['total_s']:.0f} s"))
    return bad
