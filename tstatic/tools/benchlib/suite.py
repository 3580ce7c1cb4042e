"""Runs the benchmark: chooses rows, checks each peer's results, then times the peers that are right, and keeps what is done."""

from __future__ import annotations

import os
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from tstatic.devices import of_place
from tstatic.errors import NotFoundError, ProgramError, TstaticError, near
from tstatic.fusion import FUSIONS
from tstatic.ir.opdef import OPS
from tstatic.target import Blocks, planning_with
from tstatic.tools.benchlib import machine, results, statistics
from tstatic.tools.benchlib.blocks import check_blocks
from tstatic.tools.benchlib.cases import Case
from tstatic.tools.benchlib.fusions import example_rows
from tstatic.tools.benchlib.measure import Setting, measure
from tstatic.tools.benchlib.peers import PEERS, Competitor, PeerMissingError, strategy_of
from tstatic.tools.benchlib.programs import case_of
from tstatic.tools.benchlib.rows import DIRECTIONS, Row, refusal, rows_from_domain
from tstatic.tools.benchlib.shapes import SHIPPED, Sizes
from tstatic.tools.benchlib.timers import Run, Timer, sets_for

Record = results.Record
PACKAGES = ("tstatic", "numpy", "torch", "triton")
OWN = "tstatic"


@dataclass(frozen=True)
class Selection:
    """Which rows and peers are measured.

    Attributes:
        ops: Patterns of op types, programs and fusions; none takes all of the file of sizes, and the fusions that it lacks.
        shapes: A file of sizes; ``None`` is the one of this package.
        dtypes, directions: In the place of those of the file.
        peers: Names; none takes the usual ones.
        only, skip: Names of peers, as in tritonbench, or patterns of rows.
        device: ``cpu`` or ``cuda``.
        blocks: Sizes of blocks that the kernels of all rows take.
    """

    ops: Sequence[str] = ()
    shapes: Path | None = None
    dtypes: Sequence[str] = ()
    directions: Sequence[str] = ()
    peers: Sequence[str] = ()
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    device: str = "cpu"
    blocks: Sequence[tuple[str, int]] = ()


def chosen_peers(selection: Selection) -> list[str]:
    """Returns the names of the peers.

    Raises:
        NotFoundError: For a name that is not registered.
    """
    for name in selection.peers:
        if name not in PEERS:
            raise NotFoundError(f"there is no peer '{name}'", expected=", ".join(PEERS), received=name,
                                fix=near(name, PEERS) or "tstatic bench --list names them")  # fmt: skip
    only = [name for name in selection.only if name in PEERS]
    names = list(selection.peers) or only or [name for name, one in PEERS.items() if one.usual]
    found = [n for n in dict.fromkeys(names) if (not only or n in only) and n not in selection.skip]
    if not found:
        raise ProgramError("no peer is left to measure", fix="name some with --peers")
    return found


def chosen_rows(selection: Selection) -> Iterator[Row]:
    """Yields the rows.

    Raises:
        NotFoundError: If a pattern of ``ops`` fits nothing.
        ProgramError: If the file of sizes cannot be used, or an op that is named has no row.
    """
    sizes = Sizes(selection.shapes or SHIPPED)
    stated = sizes.subjects()
    examples = [f.name for f in FUSIONS if f.name not in sizes.fusions()] if selection.shapes is None else []
    exact = [n for n in selection.ops if n in OPS and not OPS[n].of]
    # Only a pattern needs all ops, which take a second to load.
    every = [t for t in OPS if not OPS[t].of] if any(set("*?[") & set(p) for p in selection.ops) else []
    known = dict.fromkeys([*stated, *examples, *exact, *every])
    for pattern in selection.ops:
        if not any(fnmatchcase(name, pattern) for name in known) and pattern not in sizes.fusions():
            raise NotFoundError(f"--op {pattern!r} fits no op, program or fusion", received=pattern,
                                fix=near(pattern, [*known, *OPS]) or "tstatic bench --list names them")  # fmt: skip
    for name in known:
        of = next((e.get("fusion") for e in sizes.programs if e["name"] == name), None)
        if selection.ops and not any(fnmatchcase(name, p) or p == of for p in selection.ops):
            continue
        for row in _rows_of(name, stated, examples, sizes, selection, name in exact):
            if _wanted(row.name, row.subject, selection):
                yield replace(row, blocks=tuple(selection.blocks))


def _rows_of(
    name: str, stated: Sequence[str], examples: Sequence[str], sizes: Sizes, selection: Selection, asked: bool
) -> Iterator[Row]:
    found = list(sizes.rows(name, selection.device, selection.dtypes, selection.directions)) if name in stated else []
    # An op that is named has a row on every device, whatever devices the file has sizes for.
    if found or (name in stated and not (asked and name in OPS)):
        yield from found
    elif name in examples:
        fusion = next(f for f in FUSIONS if f.name == name)
        yield from example_rows(fusion, selection.dtypes or ("float32",), selection.directions or DIRECTIONS)
    else:
        reason = refusal(OPS[name])
        if reason and asked:
            raise ProgramError(
                f"'{name}' has no row of its own: {reason}", fix="put a program with it into a file of sizes"
            )
        if not reason:
            yield from rows_from_domain(name, selection.dtypes or ("float32",), selection.directions or DIRECTIONS)


def _wanted(name: str, subject: str, selection: Selection) -> bool:
    def fits(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(name, p) or fnmatchcase(subject, p) for p in patterns)

    only = [p for p in selection.only if p not in PEERS]
    skip = [p for p in selection.skip if p not in PEERS]
    return (not only or fits(only)) and not fits(skip)


# ------------------------------------------------------------------------------------------------------------------- run
@dataclass
class Suite:
    """A run of the benchmark.

    Args:
        timer: What measures.
        peers: Names of registered peers.
        setting: How much is measured.
        seed: Of the values and the order.
        threads: Threads of tstatic and torch on the CPU.
        path: Where the result is kept after each row; rows that are there are not measured again.
        sources: What is measured beside the library's own -> digits that change when it does.
    """

    timer: Timer
    peers: Sequence[str]
    setting: Setting = field(default_factory=Setting)
    seed: int = 0
    threads: int = 1
    path: Path | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def check_blocks(self, rows: Sequence[Row]) -> None:
        """Checks that the kernels of each row have the blocks that somebody asked for, before anything is measured.

        Raises:
            ProgramError: If they do not, or no kernel runs on this device.
        """
        for row in rows:
            if row.blocks:
                case, device = case_of(row, self.seed), of_place(self.timer.place())
                check_blocks(
                    replace(row, blocks=()).name,
                    row.blocks,
                    device,
                    case.program,
                    case.feed,
                    case.state,
                    case.fetches,
                    strategy_of(row),
                )

    def begin(self) -> Record:
        """Returns the result to add rows to: a new one, or the one of the file.

        Raises:
            ProgramError: If the file's rows were measured otherwise.
        """
        record: Record = {
            "kind": results.KIND, "version": results.VERSION, "begun": machine.now(), "complete": False,
            "machine": machine.machine(), "versions": machine.versions(PACKAGES), "commit": machine.commit(),
            "device": self.timer.facts(), "seed": self.seed,
            "setting": {**asdict(self.setting), "threads": self.threads, "peers": list(self.peers)}, "rows": [],
        }  # fmt: skip
        if self.sources:
            record["setting"]["sources"] = dict(self.sources)
        if self.path is not None and self.path.exists():
            found = results.read(self.path)
            # JSON knows no tuples.
            results.check_same(found, record, self.path)
            record["begun"], record["rows"] = found["begun"], found["rows"]
            if "roofs" in found:
                record["roofs"] = found["roofs"]
        return record

    def noise(self) -> statistics.Judgement:
        """Measures one function as if it were two, for less than a second: how far equals are from each other on this machine."""
        x = np.ones(1 << 16, np.float32)
        out = np.empty_like(x)
        runs: list[Run] = [lambda: np.add(x, x, out)]
        found = measure({"one": runs, "other": runs}, self.timer, Setting(), random.Random(self.seed))
        return statistics.paired(found["one"].seconds, found["other"].seconds)

    def run(
        self,
        rows: Sequence[Row],
        done: Callable[[Record], None] = lambda row: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> Record:
        """Measures rows; the file has all that is done whenever it is stopped.

        Args:
            rows: Those that the file has already are left out.
            done: Is told each new row.
            warn: Is told before the first row if the machine is too noisy to say which peers are the same.
        """
        record = self.begin()
        have = {one["name"] for one in record["rows"]}
        with self._surroundings():
            if self.timer.device == "cpu" and not have.issuperset(row.name for row in rows):
                seen = self.noise()
                record["noise"] = {"ratio": seen.ratio, "low": seen.low, "high": seen.high}
                if seen.finding != "same":
                    apart = max(1 / seen.low, seen.high) - 1
                    warn(
                        f"this machine is noisy: one function, measured as if it were two, differs by up to {apart:.0%}. Rows "
                        "whose peers differ by less will be undecided: end what else runs, or raise --repeats and --time"
                    )
            if "roofs" not in record:
                record["roofs"] = asdict(self.timer.roofs())
                self._keep(record)
            for row in rows:
                if row.name in have:
                    continue
                with planning_with(Blocks(dict(row.blocks))):
                    made = self.row(row)
                record["rows"].append(made)
                self._keep(record)
                done(made)
        record["complete"] = True
        self._keep(record)
        return record

    def _keep(self, record: Record) -> None:
        if self.path is not None:
            results.write(record, self.path)

    def _surroundings(self) -> AbstractContextManager[None]:
        return surroundings(self.threads)

    def row(self, row: Row) -> Record:
        """Measures one row: results first, and then those peers in turns that are right."""
        made: Record = {
            "name": row.name, "subject": row.subject, "label": row.label, "dtype": row.dtype, "direction": row.direction,
            "fusion": row.fusion, "blocks": dict(row.blocks), "bytes": 0, "flops": None, "peers": {},
        }  # fmt: skip
        try:
            case = case_of(row, self.seed)
            work = case.work
        except Exception as error:  # a row that cannot be built must not end the run
            made["peers"] = {name: _entry("error", error) for name in self.peers}
            return made
        made |= {"bytes": work.nbytes, "flops": work.flops}
        ready: dict[str, Competitor] = {}
        for name in self.peers:
            made["peers"][name], competitor = self._checked(name, case)
            if competitor is not None:
                ready[name] = competitor
        if ready:
            self._time(row, case, ready, made)
        return made

    def _checked(self, name: str, case: Case) -> tuple[Record, Competitor | None]:
        sets = sets_for(self.timer, case.work.nbytes)
        try:
            competitor = PEERS[name].prepare(case, self.timer, sets)
            difference = case.difference(competitor.results(), name not in (OWN, "unfused", "numpy"))
        except PeerMissingError as error:
            return {"state": "missing", "detail": f"peer missing: {error}"}, None
        except Exception as error:
            return _entry("error", error), None
        if difference:
            return {"state": "wrong", "detail": difference}, None
        kernels = competitor.kernels()
        return {"state": "ok", "detail": "", **({"kernels": kernels} if kernels else {})}, competitor

    def _time(self, row: Row, case: Case, ready: Mapping[str, Competitor], made: Record) -> None:
        """Times the peers that are ready, and one of them a second time, prepared anew, as if it were another."""
        first = OWN if OWN in ready else next(iter(ready))
        runs = {name: one.runs for name, one in ready.items()}
        order = random.Random(zlib.crc32(row.name.encode(), self.seed))
        try:
            second = PEERS[first].prepare(case, self.timer, len(runs[first]))
            runs[results.CONTROL] = second.runs
            found = measure(runs, self.timer, self.setting, order)
        except Exception as error:
            # What ran a moment ago does not run now: no peer of the row has a time.
            made["peers"] = {name: _entry("error", error) for name in self.peers}
            return
        times = {name: one.per_run for name, one in ready.items()} | {results.CONTROL: second.per_run}
        for name, samples in found.items():
            taken = {
                "seconds": [float(f"{s / times[name]:.5g}") for s in samples.seconds],
                "inner": samples.inner * times[name],
            }
            if name == results.CONTROL:
                made[name] = {"of": first, **taken}
            else:
                made["peers"][name] |= taken


def _entry(state: str, error: BaseException) -> Record:
    text = (
        str(error).splitlines()[0]
        if str(error) and not isinstance(error, TstaticError)
        else " ".join(str(error).split())
    )
    return {"state": state, "detail": f"{type(error).__name__}: {text}"}


@contextmanager
def surroundings(threads: int) -> Iterator[None]:
    """Gives tstatic as many threads, and numpy's matrix products one: idle threads of these would spin beside the other peers'."""
    import threadpoolctl

    kept = os.environ.get("CPU_NUM")
    os.environ["CPU_NUM"] = str(threads)
    with ExitStack() as stack:
        stack.enter_context(threadpoolctl.threadpool_limits(1, "blas"))
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
        try:
            yield
        finally:
            if kept is None:
                del os.environ["CPU_NUM"]
            else:
                os.environ["CPU_NUM"] = kept
