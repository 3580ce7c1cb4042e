"""What a compiled kernel must not do."""

from __future__ import annotations

from typing import Literal

from tstatic.chips.ir import Dot
from tstatic.chips.report import SHARED_LIMIT, Report
from tstatic.chips.sass import Access

__all__ = ["TENSOR_MEMORY_COLUMNS", "Kind", "violations"]

Kind = Literal["pointwise", "reduction", "gemm", "attention"]

TENSOR_MEMORY_COLUMNS = 512

MATRIX_UNIT = {80: "mma", 86: "mma", 89: "mma", 90: "wgmma", 100: "tcgen05.mma", 103: "tcgen05.mma", 120: "mma"}
"""Matrix instruction of a chip, as the PTX calls it."""
SASS_FIGURE = {"mma": "hmma", "wgmma": "hgmma", "tcgen05.mma": "utcmma"}
PLURAL = {"load": "loads", "copy": "copies", "store": "stores", "atomic": "atomics"}
FFMA_A_SCORE = 6
"""Fused multiply-adds per element of the scores: a scale, the power, and what its polynomial may take."""


def violations(report: Report, *, kind: Kind) -> list[str]:
    """What a kernel does that no kernel of its kind should do, measured against wanted; empty for a good one.

    Every kind: it compiles, spills nothing, stays within shared and tensor memory, and has no body that only traps. A local
    array that ptxas does not call a spill is allowed. No kernel needs more scratch than its launch gives it, and where it copies
    boxes of a tensor, box and place agree, and so do the bytes that a barrier expects and gets.

    "pointwise" further: no barrier, no shared memory, and each access of the main path 128 bits wide; beside a stream of wider
    elements, that stream's share of 128 bits (16-bit beside 32-bit: 64).

    "gemm" further: a matrix instruction of the chip and of the operands' type for each product (no TF32 for operands of 16 bits),
    no fused multiply-add in the loops around them, operands copied asynchronously 128 bits or a box at a time. Kernels whose
    products no matrix unit can make (fp64, fp32 as IEEE has it) need none of that, and may spill. Where boxes are copied, the SASS
    is not asked.

    "attention": as "gemm", but the loop computes powers of scores, at most so many fused multiply-adds for each that a thread has;
    and of the two operands of a product that come from memory as they are, one may be loaded before the loop, 128 bits at a time.
    Where all operands are float32 rounded to TF32, how they are copied is not asked: matrix units read them along the depth only,
    so that they are turned around on their way. Blocks too small for the chip's own matrix instruction may take an older one.
    """
    who = f"{report.name} on sm_{report.chip} (triton {report.triton})"
    if report.error:
        return [f"{who}: does not compile: {report.error}"]
    found = []
    sass = report.sass
    limit = SHARED_LIMIT[report.chip]
    exact = kind in ("gemm", "attention") and bool(report.dots) and all(dot.exact for dot in report.dots)
    if (report.spill_stores or report.spill_loads) and not exact:
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
    if report.scratch > report.scratch_given:
        found.append(f"{report.scratch} bytes of scratch per program; the launch gives {report.scratch_given}")
    found += _copies(report)
    if kind == "pointwise":
        found += _pointwise(report)
    elif kind in ("gemm", "attention"):
        found += [] if exact else _gemm(report) if kind == "gemm" else _attention(report)
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
        measured = " and ".join(f"{a.count} {PLURAL[a.action]} of {a.bits} bits" for a in accesses)
        found.append(f"{name}: {measured}; wanted {wanted} bits (is its length a multiple of 16, and said to be?)")
    unknown = [a for a in report.accesses if not a.origin]
    if unknown and not report.behind:
        lost = sum(a.count for a in unknown)
        found.append(f"{lost} global accesses of unknown origin; wanted each to be traced to a parameter")
    for access in unknown if report.behind else ():
        least = 128 * min(report.behind) // widest
        if access.bits < least:
            narrow.setdefault("", []).append(access)
            measured = f"{access.count} {PLURAL[access.action]} of {access.bits} bits"
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
        # Of a number of a table ptxas reads the half that counts: where nothing else is read, that is no stream.
        if not any(a.action == action and (a.origin in report.streams or not a.origin) for a in report.accesses):
            continue
        least = min((a.bits for a in report.accesses if a.action == action), default=128)
        count = sum(n for bits, n in report.sass.widths(head).items() if bits < min(least, 128))
        if count:
            found.append(f"{count} {head} narrower than {min(least, 128)} bits; wanted 0, as in the PTX")
    return found


def _copies(report: Report) -> list[str]:
    """Copies of boxes that overrun their place, or that a barrier waits for in vain."""
    if report.copies is None:
        return []
    wrong = sorted({(c.box, c.place) for c in report.copies.boxes if c.box != c.place})
    found = [f"a box of {box} elements is copied into a place of {place}; wanted as many" for box, place in wrong]
    for expected, brought in sorted({pair for pair in report.copies.awaited if pair[0] != pair[1]}):
        found.append(f"a barrier expects {expected} bytes, its copies bring {brought}; wanted as many")
    return found


def _gemm(report: Report) -> list[str]:
    """What a kernel with matrix products must not do."""
    matrix = report.matrix
    if not report.dots or matrix is None:
        return ["no matrix product; wanted at least one"]
    found: list[str] = []
    # What Triton makes of boxes is read from its own forms and the PTX alone.
    sass = None if matrix.bulk_loads else report.sass
    found += _types(report) + _units(report)
    fma = max((loop.fma for loop in (*matrix.loops, *(sass.loops if sass else ()))), default=0)
    if fma:
        found.append(f"{fma} FFMA in a loop around matrix instructions; wanted 0")
    found += _operand_loads(report)
    return found


def _attention(report: Report) -> list[str]:
    """What a kernel with products on both sides of a softmax must not do."""
    matrix = report.matrix
    if not report.dots or matrix is None:
        return ["no matrix product; wanted at least one"]
    found = _types(report) + _units(report)
    # Products of two operands that were loaded make scores, or their gradients; a launch for all gradients may have other blocks
    # of queries than of keys, and then a loop for each.
    made = [dot.sizes for dot in report.dots if all(len(side) == 1 for side in dot.sides)] or [report.dots[0].sizes]
    scores = [rows * columns // report.threads for rows, columns, _ in made]
    for loops in (matrix.loops, report.sass.loops if report.sass else ()):
        turns = [loop.fma for loop in loops]
        for fma, each in ((max(turns, default=0), max(scores)), (min(turns, default=0), min(scores))):
            if fma > FFMA_A_SCORE * each:
                found.append(
                    f"{fma} FFMA a loop turn, for {each} scores a thread; wanted at most {FFMA_A_SCORE * each}"
                )
    if matrix.bulk_loads or all(dot.tf32 for dot in report.dots):
        return list(dict.fromkeys(found))
    wide = {a.origin: a.action for a in report.accesses if a.action in ("copy", "load") and a.bits >= 128}
    wide |= {a.origin: "copy" for a in report.accesses if a.action == "copy" and a.bits >= 128}
    for dot in dict.fromkeys(report.dots):
        direct = [side[0] for side in dot.sides if len(side) == 1]
        found += [f"{name}: {_seen(report, name)}; wanted 128 bits" for name in direct if name not in wide]
        if direct and not any(wide.get(name) == "copy" for name in direct):
            found.append(
                f"{' and '.join(direct)}: {_seen(report, direct[-1])}; wanted asynchronous copies of 128 bits, or of boxes"
            )
    return list(dict.fromkeys(found))


def _types(report: Report) -> list[str]:
    """Operands of 16 bits that are multiplied as TF32."""
    matrix = report.matrix
    assert matrix is not None
    found = []
    sass = None if matrix.bulk_loads else report.sass
    if any(dot.upcast for dot in report.dots):
        found.append("operands of 16 bits are cast to 32 before a product; wanted a product of 16 bits")
    tf32 = max(matrix.of_type("tf32"), sass.tf32 if sass else 0)
    if tf32 and any({"bf16", "f16"} & set(dot.loaded) for dot in report.dots):
        found.append(f"{tf32} matrix instructions of TF32 for operands of 16 bits; wanted 0")
    return found


def _units(report: Report) -> list[str]:
    """Products without a matrix instruction of the chip and of their operands' type."""
    matrix = report.matrix
    assert matrix is not None
    unit = MATRIX_UNIT[report.chip]
    found = []
    older = all(dot.tf32 for dot in report.dots)
    by_type: dict[str, list[Dot]] = {}
    for dot in report.dots:
        if not dot.exact:
            by_type.setdefault("tf32" if dot.type == "f32" else dot.type, []).append(dot)
    for type_, dots in by_type.items():
        # One kind of instruction multiplies both types of 16 bits; a descriptor tells it which.
        name = "f16" if unit == "tcgen05.mma" and type_ == "bf16" else type_
        count = matrix.of_type("tf32") if older else matrix.counts.get(f"{unit}.{name}", 0)
        if count < len(dots):
            rows = min(dot.sizes[0] for dot in dots)
            hint = f" (a tile of {rows} rows; it takes at least 64)" if unit != "mma" and rows < 64 else ""
            found.append(f"{count} {unit} of {type_} for {len(dots)} products; wanted one each{hint}")
    other = sum(matrix.counts.values()) - matrix.of_unit(unit)
    if other and not older:
        found.append(f"{other} matrix instructions that are not {unit}; wanted 0")
    sass = report.sass
    if sass and not matrix.bulk_loads:
        wanted = 0 if older else sum(map(len, by_type.values()))
        count = sass.figures()[SASS_FIGURE[unit]]
        if count < wanted:
            found.append(f"{count} {SASS_FIGURE[unit].upper()} in the SASS for {wanted} products; wanted one each")
    return found


def _operand_loads(report: Report) -> list[str]:
    """Operands that wait for their loads: neither copied 128 bits at a time nor as boxes."""
    assert report.matrix is not None
    if report.matrix.bulk_loads:
        return []
    operands = dict.fromkeys(name for dot in report.dots for name in dot.origins)
    wide = {a.origin for a in report.accesses if a.action == "copy" and a.bits >= 128}
    found = []
    for name in operands:
        if name not in wide:
            found.append(f"{name}: {_seen(report, name)}; wanted asynchronous copies of 128 bits, or of boxes")
    return found


def _seen(report: Report, name: str) -> str:
    """How a pointer is read."""
    seen = [a for a in report.accesses if a.origin == name and a.action in ("load", "copy")]
    return " and ".join(f"{a.count} {PLURAL[a.action]} of {a.bits} bits" for a in seen) or "no access"
