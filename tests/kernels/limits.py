"""What a compiled kernel must not do."""

from __future__ import annotations

from typing import Literal

from tstatic.chips.report import SHARED_LIMIT, Report
from tstatic.chips.sass import Access

__all__ = ["TENSOR_MEMORY_COLUMNS", "Kind", "violations"]

Kind = Literal["pointwise", "reduction"]

TENSOR_MEMORY_COLUMNS = 512


def violations(report: Report, *, kind: Kind) -> list[str]:
    """What a kernel does that no kernel of its kind should do, measured against wanted; empty for a good one.

    Every kind: it compiles, spills nothing, stays within shared and tensor memory, and has no body that only traps. A local
    array that ptxas does not call a spill is allowed. "pointwise" further: no barrier, no shared memory, and each access of
    the main path 128 bits wide; beside a stream of wider elements, that stream's share of 128 bits (16-bit beside 32-bit: 64).
    """
    who = f"{report.name} on sm_{report.chip} (triton {report.triton})"
    if report.error:
        return [f"{who}: does not compile: {report.error}"]
    found = []
    sass = report.sass
    limit = SHARED_LIMIT[report.chip]
    if report.spill_stores or report.spill_loads:
        counts = f" ({sass.count('STL')} STL, {sass.count('LDL')} LDL)" if sass else ""
        found.append(
            f"{report.spill_stores} bytes of spill stores, {report.spill_loads} of spill loads{counts}; wanted 0"
        )
    if report.shared > limit:
        found.append(f"{report.shared} bytes of shared memory; wanted at most {limit}")
    if report.tensor_memory > TENSOR_MEMORY_COLUMNS:
        found.append(f"{report.tensor_memory} columns of tensor memory; wanted at most {TENSOR_MEMORY_COLUMNS}")
    if report.traps:
        found.append(f"{report.traps} function bodies that trap and write nothing; wanted 0")
    if kind == "pointwise":
        found += _pointwise(report)
    else:
        assert kind == "reduction", f"unknown kind of kernel: {kind}"
    return [f"{who}: {text}" for text in found]


def _pointwise(report: Report) -> list[str]:
    """What a kernel without reduction must not do."""
    found = []
    if report.shared:
        found.append(f"{report.shared} bytes of shared memory (a hidden change of layout); wanted 0")
    barriers = max(report.barriers, report.sass.count("BAR") if report.sass else 0)
    if barriers:
        found.append(f"{barriers} barriers (BAR); wanted 0")
    widest = max((*report.streams.values(), *report.behind), default=0)
    narrow: dict[str, list[Access]] = {}
    for access in report.accesses:
        if access.origin in report.streams and access.bits * widest < 128 * report.streams[access.origin]:
            narrow.setdefault(access.origin, []).append(access)
    for name, accesses in narrow.items():
        wanted = 128 * report.streams[name] // widest
        measured = " and ".join(f"{a.count} {a.action}s of {a.bits} bits" for a in accesses)
        found.append(f"{name}: {measured}; wanted {wanted} bits (is its length a multiple of 16, and said to be?)")
    unknown = [a for a in report.accesses if not a.origin]
    if unknown and not report.behind:
        lost = sum(a.count for a in unknown)
        found.append(f"{lost} global accesses of unknown origin; wanted each to be traced to a parameter")
    for access in unknown if report.behind else ():
        least = 128 * min(report.behind) // widest
        if access.bits < least:
            narrow.setdefault("", []).append(access)
            measured = f"{access.count} {access.action}s of {access.bits} bits"
            found.append(f"tensors in tables: {measured}; wanted at least {least} bits")
    expected = bool(report.streams or report.behind)
    if expected and not any(not a.origin if report.behind else a.origin in report.streams for a in report.accesses):
        found.append("no global access to any stream; wanted at least one")
    return found + _narrow_sass(report, narrow=bool(narrow))


def _narrow_sass(report: Report, *, narrow: bool) -> list[str]:
    """Accesses that ptxas made narrower than the PTX had them, told only where the PTX has no narrow ones."""
    if report.sass is None or narrow:
        return []
    found = []
    for head, action in (("LDG", "load"), ("STG", "store")):
        least = min((a.bits for a in report.accesses if a.action == action), default=128)
        count = sum(n for bits, n in report.sass.widths(head).items() if bits < min(least, 128))
        if count:
            found.append(f"{count} {head} narrower than {min(least, 128)} bits; wanted 0, as in the PTX")
    return found
