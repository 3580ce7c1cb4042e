"""The command ``compile``: the kernels of a program, compiled for chips that need not be here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tstatic.chips.aot import compile_all
from tstatic.chips.report import SHARED_LIMIT, Report
from tstatic.chips.sources import sources
from tstatic.display import size
from tstatic.formats.report_files import make_folder, write_report
from tstatic.tools.cli.looking import explained
from tstatic.tools.cli.outcome import FINDING, OK, CommandError, Outcome, Table


def compile_kernels(chips: Sequence[str] = ("sm_90",), ptx: str = "", workers: int = 2, **given: Any) -> Outcome:
    """Compiles the kernels of a program for chips, and says what each needs there."""
    numbers = [_number(chip) for chip in chips]
    subject, found = explained(**given)
    named = {f"{kernel.name}.{function}": source for kernel in found.kernels for function, source in sources(kernel)}
    if not named:
        text = (
            f"{subject.label}: no kernels, because no fusion was made. --all turns every fusion on; tstatic explain says what "
            "each switch would do."
        )
        return Outcome({"program": subject.label, "kernels": []}, (text,))
    reports = compile_all(named, numbers, workers=workers, sass=(), ptx=bool(ptx))
    rows = [
        (
            one.name, f"sm_{one.chip}", *(("", "", "", "") if one.error else (
                one.registers, _spills(one), size(one.shared), one.threads
            )), one.error.splitlines()[0] if one.error else f"{one.seconds:.2f} s",
        )
        for one in reports
    ]  # fmt: skip
    columns = ("kernel", "chip", "registers", "spills", "shared memory", "threads", "compiled in")
    parts: list[str | Table] = [Table(f"Kernels of {subject.label}, triton {reports[0].triton}", columns, rows)]
    if ptx:
        folder = make_folder(ptx, "the PTX")
        for one in reports:
            if one.ptx:
                write_report(folder / f"{one.name}.sm_{one.chip}.ptx", one.ptx, "the PTX")
        parts.append(f"{sum(bool(one.ptx) for one in reports)} files in {folder}")
    bad = [one for one in reports if one.error or one.spill_stores or one.spill_loads]
    if bad:
        parts.append(f"{len(bad)} of {len(reports)} do not compile or spill registers.")
    data = {
        "program": subject.label,
        "triton": reports[0].triton,
        "kernels": [
            {"name": one.name, "chip": f"sm_{one.chip}", "error": one.error, "seconds": one.seconds, **one.figures()}
            for one in reports
        ],
    }  # fmt: skip
    return Outcome(data, parts, FINDING if bad else OK)


def _spills(report: Report) -> str:
    stored, loaded = report.spill_stores, report.spill_loads
    return f"{stored} bytes stored, {loaded} loaded" if stored or loaded else "none"


def _number(chip: str) -> int:
    known = ", ".join(f"sm_{n}" for n in SHARED_LIMIT)
    found = re.fullmatch(r"(?:sm_?)?(\d+)a?", chip)
    if found is None or int(found[1]) not in SHARED_LIMIT:
        raise CommandError(f"--chip takes one of {known}, and not {chip!r}")
    return int(found[1])
