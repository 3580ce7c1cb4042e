"""Explains what every strategy property does for a program, and which ops were fused or not, and why.

* ``inquiry``  what fusions did, what they cost, and what stopped the rest
* ``property_status``  what each property does for a program
* ``savings``, ``strict_cost``  the bytes that fusions save or would save, and what strict numerics cost
* ``why``  why two operators are one kernel or not, and what would join them
* ``html``  the page that shows it, with a style and scripts in files beside
* ``dot``  a compiled program as a graph
"""

from __future__ import annotations

import json
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from tstatic.comm.passes.distribution import Report
from tstatic.display import preformatted, size
from tstatic.formats.report_files import write_report
from tstatic.fusion.codegen.kernel import Kernel, Launch, LibraryProduct
from tstatic.fusion.engine import Applied, OpInfo, Rejection
from tstatic.fusion.engine.choice import explained
from tstatic.ir.checks import check_known
from tstatic.ir.program import Operator, Program, Variable
from tstatic.static.amp.rewrite import Converted
from tstatic.static.compile.graph_parts import CopiedResult, GraphPart, OnHost, OutsideGraphs
from tstatic.static.compile.ledger import CompileRecord, PlansInUse, ledger_lines
from tstatic.static.explain.property_status import PropertyStatus, plain
from tstatic.static.explain.savings import Saving, members_as_data
from tstatic.static.explain.strict_cost import StrictCost
from tstatic.target import DEFAULT_TARGET, Target
from tstatic.where import Where, show

COPIED = 0.9
"""Part of its bandwidth that a copy reaches, for bounds of times: 4.26 of 4.8 TB/s on an H200 (bench/results/gpu-2026-11-26)."""


def joined(members: Sequence[OpInfo]) -> str:
    """Returns the types of ops as a sum."""
    return " + ".join(m.type for m in members)


@dataclass(frozen=True, slots=True)
class FusionAnswer:
    """Explains why two neighbouring ops are one kernel, or why not.

    Attributes:
        fused: Whether they are one kernel.
        code: ``APPLIED``, or a code of ``fusion/engine/reasons.py``.
        text: The whole answer: both ops, both user's lines, the reason and the smallest change.
        change: The smallest change alone; empty when they are fused.
    """

    fused: bool
    code: str
    text: str
    change: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Kernel launches of a step, the bytes it reads and writes, and those of its arena, before and after the fusions.

    Views cost nothing. The arena holds all temporaries; 0 if the program leaves sizes open.
    """

    launches_before: int
    launches_after: int
    bytes_before: int
    bytes_after: int
    memory_before: int = 0
    memory_after: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A note on what the fusions did with one op.

    Attributes:
        kind: ``applied``, ``refused``, ``off``, ``alone`` or ``gone``.
        text: A sentence.
        change: The smallest change that would allow a fusion; empty if there is none.
        record: Index into the explanation's ``applied`` or ``refused``; -1 for none.
    """

    kind: str
    text: str
    change: str = ""
    record: int = -1


@dataclass(frozen=True, slots=True)
class Drawing:
    """The program as the user wrote it and as it runs, with notes on the ops of the first block, by their index.

    ``bytes_before`` and ``bytes_after`` are the bytes of the variables whose sizes are known.
    """

    before: Program
    after: Program
    notes_before: Mapping[int, tuple[Note, ...]]
    notes_after: Mapping[int, tuple[Note, ...]]
    bytes_before: Mapping[str, int] = field(default_factory=dict)
    bytes_after: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffSwitch:
    """A switch that is off: the fusions that it would make by itself, and what they would save."""

    switch: str
    count: int
    saving: Saving


@dataclass(frozen=True, repr=False)
class Explanation:
    """The status of all properties of both strategies, and what the fusions did.

    Attributes:
        verdicts: One per property.
        applied, refused: The fusions made, and the matches that were rejected.
        traffic: The cost of a step with and without the fusions.
        note: The sizes that were assumed because the program leaves them open.
        kernel_kind: ``reference`` (numpy runs the ops) or ``generated``.
        collectives: What the replicas of a data-parallel program exchange.
        precision: The ops that mixed precision decided about, with the type that each runs in and why.
        on_host: The ops that run on the host, if the program's other ops run on a device of torch.
        outside_graphs: The ops that no graph holds, on a device whose work runs late.
        graphs: What such a device launches as one, and the op that ends each.
        strict: What strict numerics refuse and cost; ``None`` under default numerics.
        shared: Kernels that belong to no fusion: those that add the partial sums of several fused ops with one launch and, where
            kernels run, those of ops that draw random numbers by themselves.
        saved: For each of ``applied``, what it saves; nothing for a fusion whose kernel a later one has.
        possible: For each of ``refused``, what it would save at most.
        verbose: Whether ``str`` lists everything.
        made_at: When it was made, as text.
        compilations: Those for runs of the CompiledProgram until now, with the parts of the cache key that changed.
        in_use: The plans that Executors keep for it, and how many runs found theirs.
        idle: Switch that is on and made no fusion -> why.
        target: The chip whose bandwidth bounds the times of kernels: the device's own, or the one that kernels are planned for by
            default.

    Example:
        >>> y = paddle.exp(static.data("x", [8]) * 2.0 + 1.0)
        >>> build = static.BuildStrategy()
        >>> build.enable_auto_fusion = True
        >>> explained = static.CompiledProgram(static.default_main_program(), build).explain([y])
        >>> print(str(explained).splitlines()[0])
        launches: 3 -> 1 a step
    """

    verdicts: tuple[PropertyStatus, ...]
    applied: tuple[Applied, ...] = ()
    refused: tuple[Rejection, ...] = ()
    traffic: MemoryTraffic = MemoryTraffic(0, 0, 0, 0)
    note: str = ""
    kernel_kind: str = "reference"
    collectives: Report | None = None
    precision: tuple[Converted, ...] = ()
    on_host: tuple[OnHost, ...] = ()
    strict: StrictCost | None = None
    shared: tuple[Kernel, ...] = ()
    saved: tuple[Saving, ...] = ()
    possible: tuple[Saving, ...] = ()
    verbose: bool = False
    # `compare=False`: functions and times differ between explanations that say the same.
    _name: Callable[[Sequence[OpInfo]], str] = field(default=joined, repr=False, compare=False)
    _off: Callable[[], tuple[OffSwitch, ...]] = field(default=tuple, repr=False, compare=False)
    _why: Callable[[str, str], FusionAnswer] | None = field(default=None, repr=False, compare=False)
    _names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    _draw: Callable[[], Drawing] | None = field(default=None, repr=False, compare=False)
    _page: Callable[[Explanation, int], str] | None = field(default=None, repr=False, compare=False)
    compilations: tuple[CompileRecord, ...] = field(default=(), compare=False)
    in_use: PlansInUse | None = field(default=None, compare=False)
    made_at: str = field(default="", compare=False)
    idle: Mapping[str, str] = field(default_factory=dict)
    outside_graphs: tuple[OutsideGraphs, ...] = ()
    graphs: tuple[GraphPart, ...] = ()
    target: Target = DEFAULT_TARGET
    _copied: Callable[[], tuple[CopiedResult, ...]] = field(default=tuple, repr=False, compare=False)
    _ways: Callable[[Kernel], str] = field(default=partial(explained, target=DEFAULT_TARGET), repr=False, compare=False)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels, in the order in which their fusions were made, the shared ones last; ``text`` is the source."""
        return (*(a.kernel for a in self.applied if a.kernel is not None), *self.shared)

    @property
    def copied_results(self) -> tuple[CopiedResult, ...]:
        """The ops whose results torch allocates, and that are copied to memory of the plan, with the reason."""
        return self._copied()

    def taken_into(self, record: Applied) -> Applied | None:
        """Returns the later fusion whose kernel computes this one; ``None`` for one with a kernel of its own, and a rewriting."""
        if record.rewritten:
            return None
        into: Applied | None = record
        # Whatever has all that a fusion wrote as members absorbed it, and may have been absorbed itself.
        while into is not None and into.kernel is None:
            later = self.applied[self.applied.index(into) + 1 :]
            into = next((a for a in later if into.written <= {v for m in a.members for v in m.outputs}), None)
        return into if into is not record else None

    def why(self, a: Any, b: Any) -> FusionAnswer:
        """Returns why two ops are one kernel, or why not.

        Args:
            a, b: The ops, each by a variable that it writes, that variable's name, or the Operator.

        Raises:
            NotFoundError: If no op of the program writes the name.
        """
        assert self._why is not None, "this explanation was made without a program"
        return self._why(self._value(a), self._value(b))

    def _value(self, given: Any) -> str:
        name = given
        if isinstance(given, Operator):
            name = next(iter(given.output_arg_names), given.type)
        elif isinstance(given, Variable):
            name = given.name
        fix = "list them with [op.output_arg_names for op in program.global_block().ops]"
        return check_known(
            str(name), self._names, "explain().why: no operator of the program that runs writes", fix=fix
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data: the strategies with their properties, and under ``fusions`` the fusions made and rejected."""
        done: dict[str, Any] = {}
        for v in self.verdicts:
            done.setdefault(v.strategy, {})[v.name] = {
                "value": plain(v.value),
                "default": plain(v.default),
                "status": v.status,
                "reason": v.reason,
            }
        done["fusions"] = {
            "applied": [
                {**_applied(a, self.kernel_kind, self.target), "bytes_saved": one.nbytes, "launches_saved": one.launches,
                 "memory_saved": one.memory}
                for a, one in zip(self.applied, self.saved or (Saving(),) * len(self.applied), strict=True)
            ],
            "shared": [_source(kernel, self.target) for kernel in self.shared],
            "refused": [
                {"fusion": r.fusion, "switch": r.switch, "code": r.code, "ops": members_as_data(r.members), "reason": r.reason,
                 "change": r.change, "bytes_possible": one.nbytes}
                for r, one in zip(self.refused, self.possible or (Saving(),) * len(self.refused), strict=True)
            ],
            "launches": {"before": self.traffic.launches_before, "after": self.traffic.launches_after},
            "bytes": {"before": self.traffic.bytes_before, "after": self.traffic.bytes_after},
            "memory": {"before": self.traffic.memory_before, "after": self.traffic.memory_after},
            "note": self.note,
        }  # fmt: skip
        if self.collectives is not None:
            done["collectives"] = self.collectives.to_dict()
        if self.precision:
            done["precision"] = [one.to_dict() for one in self.precision]
        if self.strict is not None:
            done["strict"] = self.strict.to_dict()
        if self.compilations:
            done["compilations"] = [one.to_dict() for one in self.compilations]
        if self.in_use is not None and self.in_use.runs:
            done["plans"] = asdict(self.in_use)
        if self.on_host:
            done["on_host"] = [{**members_as_data([one.op])[0], "reason": one.reason} for one in self.on_host]
        if self.outside_graphs:
            rows = [{**members_as_data([one.op])[0], "reason": one.reason} for one in self.outside_graphs]
            done["outside_graphs"] = rows
        if self.graphs:
            done["graphs"] = [{"operators": len(one.ops), "then": str(one)} for one in self.graphs]
        return done

    def to_json(self) -> str:
        """Returns :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=1, sort_keys=True)

    def drawing(self) -> Drawing | None:
        """Returns the program before and after, for pictures; ``None`` for an explanation that was made without a program."""
        return None if self._draw is None else self._draw()

    def to_html(self, max_ops: int = 60) -> str:
        """Returns a self-contained page: the properties, the kernels, and the program drawn before and after.

        The drawing shows the whole program, with name scopes, repeated layers and lines as groups that open.

        Args:
            max_ops: Boxes that are open at most when the page opens; a longer program is folded.
        """
        assert self._page is not None, "this explanation was made without a program"
        return self._page(self, max_ops)

    def save_html(self, path: str | os.PathLike[str], max_ops: int = 60) -> None:
        """Writes :meth:`to_html` to a file.

        Raises:
            ReportError: If the file cannot be written (an ``OSError``); what was there stays.
        """
        write_report(path, self.to_html(max_ops), "the explanation")

    def __getitem__(self, name: str) -> PropertyStatus:
        for v in self.verdicts:
            if v.name == name:
                return v
        raise KeyError(name)

    def operators_of(self, record: Applied | Rejection) -> str:
        """Returns the user's operators that a fusion replaced or a rejected match has; those of one fused before in brackets."""
        return self._name(record.members)

    def off(self) -> tuple[OffSwitch, ...]:
        """Returns the switches of fusions that are off and would act, the one that would save most bytes first."""
        return tuple(sorted(self._off(), key=lambda one: -one.saving.nbytes))

    def to_text(self, verbose: bool = False) -> str:
        """Returns the explanation as text: at most 40 lines, or everything.

        Args:
            verbose: List every property, fusion and rejected match, instead of what matters most.
        """
        return "\n".join(_everything(self) if verbose else _summary(self))

    def __str__(self) -> str:
        return self.to_text(self.verbose)

    def __repr__(self) -> str:
        t = self.traffic
        return (
            f"<Explanation: fusions {len(self.applied)}, rejected {len(self.refused)}, "
            f"launches {t.launches_before} -> {t.launches_after}, moved {size(t.bytes_before)} -> {size(t.bytes_after)}>"
        )

    def _repr_html_(self) -> str:
        return preformatted(self.to_text(self.verbose))


# --------------------------------------------------------------------------------------------------------------- summary
# Entries of each kind, then characters of a line: with the lines that are always there at most MOST_LINES, a page of a terminal.
MOST_FUSIONS, MOST_REWRITINGS, MOST_CODES, MOST_OFF, MOST_SET, MOST_IDLE, WIDTH = 5, 2, 4, 2, 3, 4, 150
MOST_LINES = 40
"""So much of each kind a summary shows, so that it has at most 40 lines, and so many characters a line."""


def _summary(e: Explanation, most_names: int = 2) -> list[str]:
    """Returns the lines that answer first: what the fusions changed, which of them save most, what stopped the others.

    Args:
        e: The explanation.
        most_names: Lines with names of further switches that are off; 1 where there would be too many lines.
    """
    t = e.traffic
    lines = [
        f"launches: {t.launches_before} -> {t.launches_after} a step",
        f"bytes:    {size(t.bytes_before)} -> {size(t.bytes_after)} read and written a step",
        f"memory:   {size(t.memory_before)} -> {size(t.memory_after)} of temporaries at the peak"
        if t.memory_before
        else "memory:   not known: the program leaves sizes open, which feed_shapes says",
        *([e.note] if e.note else []),
        *_set_properties(e),
        *_made(e),
        *_by_library(e),
        *_not_made(e),
        *_off_switches(e, most_names),
    ]
    if e.collectives is not None:
        lines.append(f"replicas: {str(e.collectives).splitlines()[0]}")
        lines += e.collectives.moved
    if e.precision:
        counts = Counter(one.dtype for one in e.precision)
        lines.append("mixed precision: " + ", ".join(f"{n} operators in {dtype}" for dtype, n in counts.most_common()))
    if e.on_host:
        lines.append(f"on the host: {len(e.on_host)} operators ({_types(one.op.type for one in e.on_host)})")
    if e.strict is not None:
        lines.append(str(e.strict).splitlines()[0])
    lines += ledger_lines(e.compilations, e.in_use)
    if e.applied and e.kernel_kind == "reference":
        lines.append(
            "On this device fused operators run as the operators that they replace; generated kernels run on a GPU, and with "
            "TSTATIC_CPU_BACKEND=interpret."
        )
    lines.append("explain(verbose=True) lists everything; explain().why(a, b) asks about two operators.")
    # Names of further switches are all that can be cut without losing a kind of line.
    if most_names > 1 and len(lines) >= MOST_LINES:
        return _summary(e, 1)
    return [line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines]


def _set_properties(e: Explanation) -> list[str]:
    """Returns lines of the switches that are on with how often each acted, and of the other properties that were set."""
    given = [v for v in e.verdicts if v.given and v.value != v.default]
    times = Counter(a.switch for a in e.applied)
    # The busiest first: long lists are cut at the end.
    switches = sorted((v for v in given if v.value is True), key=lambda v: -times[v.name])
    others = [f"{v.name} = {plain(v.value)!r} ({v.status})" for v in given if v.value is not True]
    acted = [f"{v.name} ({times[v.name]})" for v in switches if times[v.name]]
    idle = [v.name if v.status == "active" else f"{v.name} ({v.status})" for v in switches
            if not times[v.name] and v.name not in e.idle]  # fmt: skip
    why = [(v.name, e.idle[v.name]) for v in switches if v.name in e.idle and not times[v.name]]
    reasons = [f"  {name}: {reason}" for name, reason in why[:MOST_IDLE]]
    if why[MOST_IDLE:]:
        reasons += _wrapped("  and, as explain(verbose=True) says: ", [name for name, _ in why[MOST_IDLE:]], "    ")
    return [
        *_wrapped("switches on, and fusions made: ", acted),
        *(["on, and made no fusion:", *reasons] if reasons else []),
        *_wrapped("also on: ", idle),
        *_wrapped("also set: ", others),
    ]


def _wrapped(head: str, parts: Sequence[str], indent: str = "  ") -> list[str]:
    """Returns a head and a list as lines; none without a list."""
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, max_lines=MOST_SET - 1, placeholder=" ...")
    return wrap.wrap(head + ", ".join(parts)) if parts else []


def _by_library(e: Explanation) -> list[str]:
    """Returns what the library multiplies, some batches at a time, in the place of one kernel."""
    counts: Counter[str] = Counter()
    for kernel in e.kernels:
        launches = kernel.plan(DEFAULT_TARGET).launches
        # Once for each kernel: its products are all of one type.
        for name in {one.dtype.name for one in launches if isinstance(one, LibraryProduct) and one.batched}:
            counts[name] += len(launches)
    remedy = {"float32": "FLAGS_allow_tf32, or 16 bits, make"}
    return [
        f"attentions of {name}: {count} launches, since only the library multiplies it in full precision; "
        f"{remedy.get(name, '16 bits make')} each a kernel"
        for name, count in sorted(counts.items())
    ]


def _made(e: Explanation) -> list[str]:
    """Returns the fusions, those of one kind together, by the bytes that they save; rewritings also where others save more."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, a in enumerate(e.applied):
        # A fusion that a later one absorbed counts there.
        if a.kernel is not None or a.rewritten:
            kinds.setdefault((a.switch, a.op), []).append(i)
    saved = {kind: sum(e.saved[i].nbytes for i in row) if e.saved else 0 for kind, row in kinds.items()}
    ranked = sorted(kinds, key=lambda kind: -saved[kind])
    lines = ["fusions, by bytes saved:"] if kinds else []
    # What these save is memory at the peak, by which nothing is ranked here.
    rewritings = [kind for kind in ranked[MOST_FUSIONS:] if e.applied[kinds[kind][0]].rewritten][:MOST_REWRITINGS]
    shown = [*ranked[:MOST_FUSIONS], *rewritings]
    for kind in shown:
        row = kinds[kind]
        # The one that saves most is the example.
        first = e.applied[max(row, key=lambda i: e.saved[i].nbytes if e.saved else 0)]
        memory = sum(e.saved[i].memory for i in row) if e.saved else 0
        less = f", {size(memory)} less alive at the peak" if memory else ""
        lines.append(
            f"  {size(saved[kind]):>9}  {len(row)} x {kind[1]} ({kind[0]}){less}, for example{_at(first.members[0].where)}: "
            f"{e.operators_of(first)}"
        )
    others = [kind for kind in ranked if kind not in shown]
    if others:
        lines.append(f"  {size(sum(saved[kind] for kind in others)):>9}  by {len(others)} other kinds")
    return lines


def _not_made(e: Explanation) -> list[str]:
    """Returns the rejected matches, those of one code together, by the bytes that they would save at most."""
    codes: dict[str, list[int]] = {}
    for i, r in enumerate(e.refused):
        codes.setdefault(r.code, []).append(i)
    # Explanations that were put together by hand may lack these.
    gain = [one.nbytes for one in e.possible] or [0] * len(e.refused)
    total = {code: sum(gain[i] for i in row) for code, row in codes.items()}
    # Ties by name, so that equal programs have equal reports.
    ranked = sorted(codes, key=lambda code: (-total[code], code))
    # Codes whose matches would save nothing are only counted, below.
    shown = [code for code in ranked if total[code]][:MOST_CODES]
    lines = ["not fused, by what it would save at most:"] if codes else []
    for code in shown:
        row = codes[code]
        first = e.refused[max(row, key=gain.__getitem__)]
        lines += [
            f"  {size(total[code]):>9}  {len(row)} x {code}, for example{_at(first.members[-1].where)}: {e.operators_of(first)}",
            f"             {first.reason}",
            f"             to allow it: {first.change}",
        ]
    rest = [code for code in ranked if code not in shown]
    return lines + [f"             and {', '.join(f'{len(codes[c])} x {c}' for c in rest)}"] * bool(rest)


def _off_switches(e: Explanation, most: int) -> list[str]:
    found = e.off()
    lines = ["switches that are off, by what each would save by itself:"] if found else []
    for one in found[:MOST_OFF]:
        many = f"{one.count} fusion{'s' * (one.count != 1)}"
        lines.append(f"  {size(one.saving.nbytes):>9}  build_strategy.{one.switch} = True: {many}")
    if found[MOST_OFF:]:
        names = [one.switch for one in found[MOST_OFF:]]
        lines += (
            _wrapped("             and ", names, " " * 13) if most > 1 else ["             and " + ", ".join(names)]
        )
    return lines


def _types(types: Iterable[str], most: int = 4) -> str:
    found = list(dict.fromkeys(types))
    return ", ".join(found[:most] + ["..."] * (len(found) > most))


# ------------------------------------------------------------------------------------------------------------ everything
def _moves(kernel: Kernel) -> str:
    """Returns the bytes of a kernel's launches, those of one function together."""
    moved: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for launch, nbytes in zip(kernel.plan(DEFAULT_TARGET).launches, kernel.moved, strict=True):
        moved[launch.function] += nbytes
        count[launch.function] += 1
    return ", ".join(f"{n:,} bytes in {f'{count[f]} x ' * (count[f] > 1)}{f}" for f, n in moved.items())


def _everything(e: Explanation) -> list[str]:
    t = e.traffic
    lines = [
        f"launches a step: {t.launches_before} -> {t.launches_after}; bytes a step: {t.bytes_before:,} -> {t.bytes_after:,}; "
        f"bytes of temporaries at the peak: {t.memory_before:,} -> {t.memory_after:,}"
    ]
    if e.note:
        lines.append(e.note)
    if e.collectives is not None:
        lines += ["Replicas", *(f"  {line}" for line in str(e.collectives).splitlines())]
    if e.precision:
        lines += ["Mixed precision", *(f"  {one}{_at(one.where, 2)}" for one in e.precision)]
    if e.on_host:
        lines += ["On the host", *(f"  {one}{_at(one.op.where, 2)}" for one in e.on_host)]
    if len(e.graphs) > 1 or e.outside_graphs:  # one graph is the whole program
        lines += ["Graphs", *(f"  {one}" for one in e.graphs)]
    if e.outside_graphs:
        lines += ["Outside of graphs", *(f"  {one}{_at(one.op.where, 2)}" for one in e.outside_graphs)]
    if copied := e.copied_results:
        lines += ["Copied results", *(f"  {one}{_at(one.op.where, 2)}" for one in copied)]
    if e.applied or e.refused:
        lines.append("Fusions")
    for i, a in enumerate(e.applied):
        lines.append(f"  {a.switch}: {joined(a.members)} -> {a.op} [{e.kernel_kind}]")
        lines.extend(f"    {m.type} -> {', '.join(m.outputs)}{_at(m.where, 2)}" for m in a.members)
        if a.kernel is not None:
            lines.append(f"    moves {_moves(a.kernel)}; {e._ways(a.kernel)}")
        if (a.kernel is not None or a.rewritten) and e.saved:
            memory = f", and {e.saved[i].memory:,} bytes at the peak" if e.saved[i].memory else ""
            lines.append(f"    saves {e.saved[i].nbytes:,} bytes and {e.saved[i].launches} launches{memory}")
        if (into := e.taken_into(a)) is not None:
            lines.append(f"    computed by the kernel of {into.op}, by {into.switch}")
        if a.kept:
            lines.append(f"    also writes {', '.join(a.kept)}, which its gradient reads")
    for i, r in enumerate(e.refused):
        lines.append(f"  {r.switch}: not {e.operators_of(r)}: {r.code}, {r.reason}")
        lines.extend(f"    {m.type} -> {', '.join(m.outputs)}{_at(m.where, 2)}" for m in r.members)
        saves = f" (saves at most {e.possible[i].nbytes:,} bytes)" if e.possible else ""
        lines.append(f"    to allow it: {r.change}{saves}")
    for strategy in dict.fromkeys(v.strategy for v in e.verdicts):
        lines.append(strategy)
        for v in e.verdicts:
            if v.strategy == strategy:
                mark = "" if v.value == v.default else " (set)"
                lines.append(f"  {v.name} = {plain(v.value)!r}{mark}: {v.status}. {v.reason}")
    if e.strict is not None:
        lines.append(str(e.strict))
    return lines + ledger_lines(e.compilations, e.in_use, verbose=True)


def _at(where: Where | None, gap: int = 1) -> str:
    text = show(where)
    return f"{' ' * gap}at {text}" if text else ""


def _applied(a: Applied, kind: str, target: Target) -> dict[str, Any]:
    done: dict[str, Any] = {
        "fusion": a.fusion, "switch": a.switch, "op": a.op, "ops": members_as_data(a.members), "gone": list(a.gone),
        "kept": list(a.kept), "kernel": kind,
    }  # fmt: skip
    if a.kernel is not None:
        done["source"] = _source(a.kernel, target)
    return done


def _source(kernel: Kernel, target: Target) -> dict[str, Any]:
    calls = kernel.plan(DEFAULT_TARGET)
    return {
        "name": kernel.name, "template": kernel.template, "text": kernel.text, "bytes": kernel.nbytes,
        "floor_us": kernel.nbytes / (COPIED * target.bandwidth) * 1e6 if target.bandwidth else None,
        "launches": [
            {"function": c.function, "grid": list(c.grid), "constants": dict(c.constants),
             "num_warps": c.num_warps if isinstance(c, Launch) else 0, "bytes": moved}
            for c, moved in zip(calls.launches, kernel.moved, strict=True)
        ],
    }  # fmt: skip
