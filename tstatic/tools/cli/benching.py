"""The commands ``bench`` and ``compare``: measures ops and fusions beside their peers, and compares two results."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tstatic.devices import of_place
from tstatic.errors import DTypeError, NotFoundError, ProgramError, near
from tstatic.fluid import as_paddle
from tstatic.formats.report_files import write_report
from tstatic.ir.types import dtype_of
from tstatic.tools.benchlib import report, results, statistics, suite, table
from tstatic.tools.benchlib.blocks import read_blocks
from tstatic.tools.benchlib.compare import compare
from tstatic.tools.benchlib.machine import usable_cores
from tstatic.tools.benchlib.measure import Setting
from tstatic.tools.benchlib.own import register_own
from tstatic.tools.benchlib.peers import PEERS
from tstatic.tools.benchlib.programs import fingerprint, note, row_of_program
from tstatic.tools.benchlib.rows import DIRECTIONS, Row
from tstatic.tools.benchlib.shapes import DEVICES
from tstatic.tools.benchlib.timers import timer_of
from tstatic.tools.cli.live import live
from tstatic.tools.cli.outcome import FINDING, OK, CommandError, Outcome, Table
from tstatic.tools.cli.show import said
from tstatic.tools.cli.subjects import subject_of
from tstatic.tools.cli.targets import check_output, check_target


def _listed(texts: Sequence[str]) -> list[str]:
    return [one.strip() for text in texts for one in text.split(",") if one.strip()]


def bench(
    op: Sequence[str] = (), shapes: str = "", dtype: Sequence[str] = (), direction: Sequence[str] = (),
    peers: Sequence[str] = (), device: str = "cpu", only: Sequence[str] = (), skip: Sequence[str] = (), csv: str = "",
    result: str = "", html: str = "", history: Sequence[str] = (), repeats: int = 25, time: float = 2.0, seed: int = 0,
    threads: int = 0, load: Sequence[str] = (), listed: bool = False, block: Sequence[str] = (), own: Sequence[str] = (),
    subject: str = "", arguments: Sequence[str] = (), program: int = 0, first: int = 0, batch: int = 0, feeds: Sequence[str] = (),
) -> Outcome:  # fmt: skip
    """Measures rows, or lists them."""
    if device not in DEVICES:
        raise CommandError(f"--device takes {' or '.join(DEVICES)}, and not {device!r}")
    check_output(csv=csv, json="" if result == "-" else result, html=html)
    directions = _chosen(_listed(direction), DIRECTIONS, "--direction")
    dtypes = _listed(dtype)
    if subject:
        _refuse(f"'{subject}' is one row", op=op, shapes=shapes, dtype=dtype, direction=direction, peer=own)
        check_target(subject)
    else:
        _refuse(
            "no script or saved program is given",
            arguments=arguments,
            program=program,
            first=first,
            batch=batch,
            feed=feeds,
        )
    count = threads or usable_cores()
    try:
        for name in dtypes:
            dtype_of(name)
        if load:
            sys.path.insert(0, str(Path.cwd()))  # as for a script; an installed command has its own folder there
        for name in _listed(load):
            importlib.import_module(name)  # its decorators register peers
        selection = suite.Selection(
            _listed(op), Path(shapes) if shapes else None, dtypes, directions, _listed(peers), _listed(only),
            _listed(skip), device, read_blocks(block),
        )  # fmt: skip
        names, sources = suite.chosen_peers(selection), {}
        if own:
            as_paddle.install()
            on = of_place(timer_of(device, count).place())
            for peer in (register_own(one, on) for one in own):
                names.append(peer.name)
                sources[peer.name] = peer.digest
        rows = list(suite.chosen_rows(selection)) if not subject else []
        earlier = [results.read(Path(one)) for one in history]
    except ImportError as error:
        raise CommandError(f"--load: {error}") from error
    except (NotFoundError, ProgramError, DTypeError) as error:
        raise CommandError(said(error)) from error
    if subject:
        rows = [_row_of(subject, arguments, program, first, batch, feeds, selection.blocks)]
        sources[rows[0].subject] = fingerprint(rows[0])
    if not rows:
        raise CommandError("no row is left to measure: --list shows all of them")
    if listed:
        return _listing(rows, names)
    timer = timer_of(device, count)
    path = Path(result) if result and result != "-" else None
    run = suite.Suite(
        timer, names, Setting(repeats, time / 1e3, least=min(repeats, Setting.least)), seed, count, path, sources
    )
    try:
        run.check_blocks(rows)
        begun = run.begin()
    except ProgramError as error:
        raise CommandError(said(error)) from error
    with ExitStack() as stack:
        show: Callable[[results.Record], None] = stack.enter_context(live(names, len(rows), quiet=result == "-"))
        for one in begun["rows"]:
            show(one)
        record = run.run(rows, show, lambda text: print(text, file=sys.stderr, flush=True))
    if csv:
        write_report(csv, table.to_csv(record), "the table")
    if html:
        write_report(html, report.page(record, earlier), "the page")
    wrong = results.findings(record)
    parts: list[str | Table] = [table.summary(record), *wrong]
    parts += [f"{what} written to {name}" for what, name in (("result", path), ("CSV", csv), ("page", html)) if name]
    return Outcome(record, parts, FINDING if wrong else OK)


def _row_of(
    target: str, arguments: Sequence[str], program: int, first: int, batch: int, feeds: Sequence[str],
    blocks: Sequence[tuple[str, int]],
) -> Row:  # fmt: skip
    """Returns the row of a script's program, or of a saved one."""
    found = subject_of(target, arguments, program, first)
    if found.parallel:
        raise CommandError(f"{found.label} runs on several places, and a row runs on one: run the script on one place")
    shapes, assumed = found.sizes(batch, feeds)
    try:
        row, drawn = row_of_program(found.label, found.program, shapes, found.fetches, found.scope, blocks)
    except ProgramError as error:
        raise CommandError(said(error)) from error
    for text in filter(None, (assumed, note(drawn, found.label))):
        print(text, file=sys.stderr)
    return row


def _refuse(why: str, **given: object) -> None:
    """Raises CommandError for options that have no use in this call."""
    for name, value in given.items():
        if value:
            option = "arguments behind -- have" if name == "arguments" else f"--{name} has"
            raise CommandError(f"{option} no use here: {why}")


def _chosen(names: Sequence[str], known: Sequence[str], option: str) -> list[str]:
    for name in names:
        if name not in known:
            raise CommandError(f"{option} takes {', '.join(known)}, and not {name!r}. {near(name, known)}".strip())
    return list(names)


def _listing(rows: Sequence[Any], names: Sequence[str]) -> Outcome:
    data = {
        "rows": [{"name": r.name, "subject": r.subject, "dtype": r.dtype, "direction": r.direction, "fusion": r.fusion}
                 for r in rows],
        "peers": list(names), "registered_peers": list(PEERS),
    }  # fmt: skip
    shown = [(r.subject, r.label, r.dtype, r.direction, r.fusion) for r in rows]
    columns = ("op or program", "sizes", "type", "direction", "fusion")
    return Outcome(
        data, (Table(f"{len(rows)} rows", columns, shown), f"peers: {', '.join(names)}; registered: {', '.join(PEERS)}")
    )


def compare_results(
    before: str, after: str, peers: Sequence[str] = (), threshold: float = 100 * statistics.FLOOR, relative_to: str = "",
    force: bool = False,
) -> Outcome:  # fmt: skip
    """Compares two results, row by row."""
    try:
        first, second = (results.read(Path(one)) for one in (before, after))
        found = compare(first, second, _listed(peers) or ("tstatic",), threshold / 100, relative_to, force)
    except ProgramError as error:
        raise CommandError(said(error)) from error
    data = {
        "before": before, "after": after, "changes": [one.to_dict() for one in found.changes],
        "only_before": list(found.only_before), "only_after": list(found.only_after),
        "lost": [{"row": r, "peer": p, "detail": d} for r, p, d in found.lost], "different": list(found.different),
        "regressed": found.regressed,
    }  # fmt: skip
    order = {"slower": 0, "faster": 1, "undecided": 2, "same": 3}
    changed = sorted(found.changes, key=lambda one: (order[one.judgement.finding], -one.judgement.ratio))
    rows = [
        (one.row, one.peer, table.duration(one.before), table.duration(one.after), f"{one.judgement.ratio:.3f}",
         table.interval(one.judgement), {"slower": "worse", "faster": "better"}.get(one.judgement.finding, one.judgement.finding))
        for one in changed if one.judgement.finding != "same"
    ]  # fmt: skip
    counts = {name: len(found.of(name)) for name in order}
    head = (
        f"{counts['slower']} worse, {counts['faster']} better, {counts['same']} the same, {counts['undecided']} undecided, "
        f"{len(found.only_before)} only in {before}, {len(found.only_after)} only in {after}"
    )
    parts: list[str | Table] = [head]
    if rows:
        parts.append(Table("", ("row", "peer", "before", "after", "ratio", "interval", ""), rows))
    parts += [f"{row}: {peer}: {detail}" for row, peer, detail in found.lost]
    parts += [f"compared although it differs: {one}" for one in found.different]
    return Outcome(data, parts, FINDING if found.regressed else OK)


__all__ = ["bench", "compare_results"]
