"""Explains what every strategy property does for a program, and which ops were fused or not, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tstatic.comm.distribution import Report
from tstatic.errors import TstaticError
from tstatic.fusion.codegen.kernel import Kernel, Launch
from tstatic.fusion.engine import Applied, OpInfo, Rejection
from tstatic.fusion.reasons import explain_code
from tstatic.ir.checks import check_known
from tstatic.ir.program import Operator, Program, Variable
from tstatic.static.amp.rewrite import Converted
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.target import DEFAULT_TARGET
from tstatic.where import Where, show

BANDWIDTH = 0.9 * DEFAULT_TARGET.bandwidth
"""Bytes per second that a copy reaches on the default target; lower bounds of times are computed from it."""


@dataclass(frozen=True, slots=True)
class PropertyStatus:
    """One property: its value, and ``active``, ``not yet active`` or ``no effect``, with the reason."""

    strategy: str
    name: str
    value: Any
    default: Any
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class FusionAnswer:
    """Explains why two neighbouring ops are one kernel, or why not.

    Attributes:
        fused: Whether they are one kernel.
        code: ``APPLIED``, or a code of ``fusion/reasons.py``.
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
    """Kernel launches of a step, and the bytes it reads and writes, before and after the fusions; views cost nothing."""

    launches_before: int
    launches_after: int
    bytes_before: int
    bytes_after: int


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
    """The program as the user wrote it and as it runs, with notes on the ops of the first block, by their index."""

    before: Program
    after: Program
    notes_before: Mapping[int, tuple[Note, ...]]
    notes_after: Mapping[int, tuple[Note, ...]]


@dataclass(frozen=True, slots=True)
class OnHost:
    """An op that runs on the host between ops that run on the device.

    Attributes:
        op: The op.
        reason: What it needs the host for.
    """

    op: OpInfo
    reason: str

    def __str__(self) -> str:
        return f"op {self.op.type} -> {', '.join(self.op.outputs)} runs on the host on this device: {self.reason}"


@dataclass(frozen=True)
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
        shared: Kernels that add the partial sums of several fused ops with one launch.
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
    shared: tuple[Kernel, ...] = ()
    _why: Callable[[str, str], FusionAnswer] | None = field(default=None, repr=False, compare=False)
    _names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    _draw: Callable[[], Drawing] | None = field(default=None, repr=False, compare=False)
    _page: Callable[[Explanation, int], str] | None = field(default=None, repr=False, compare=False)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels, in the order in which their fusions were made, the shared ones last; ``text`` is the source."""
        return (*(a.kernel for a in self.applied if a.kernel is not None), *self.shared)

    def taken_into(self, record: Applied) -> Applied | None:
        """Returns the later fusion whose kernel computes this one; ``None`` for a fusion with a kernel of its own."""
        into: Applied | None = record
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
                "value": _plain(v.value),
                "default": _plain(v.default),
                "status": v.status,
                "reason": v.reason,
            }
        done["fusions"] = {
            "applied": [_applied(a, self.kernel_kind) for a in self.applied],
            "shared": [_source(kernel) for kernel in self.shared],
            "refused": [
                {"fusion": r.fusion, "switch": r.switch, "code": r.code, "ops": _members(r.members), "reason": r.reason,
                 "change": r.change}
                for r in self.refused
            ],
            "launches": {"before": self.traffic.launches_before, "after": self.traffic.launches_after},
            "bytes": {"before": self.traffic.bytes_before, "after": self.traffic.bytes_after},
            "note": self.note,
        }  # fmt: skip
        if self.collectives is not None:
            done["collectives"] = self.collectives.to_dict()
        if self.precision:
            done["precision"] = [one.to_dict() for one in self.precision]
        if self.on_host:
            done["on_host"] = [{**_members([one.op])[0], "reason": one.reason} for one in self.on_host]
        return done

    def to_json(self) -> str:
        """Returns :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=1, sort_keys=True)

    def drawing(self) -> Drawing | None:
        """Returns the program before and after, for pictures; ``None`` for an explanation that was made without a program."""
        return None if self._draw is None else self._draw()

    def to_html(self, max_ops: int = 600) -> str:
        """Returns a self-contained page: the properties, the kernels, and the program drawn before and after.

        Args:
            max_ops: Most ops drawn in each picture; a longer program is cut, and the picture says so.
        """
        assert self._page is not None, "this explanation was made without a program"
        return self._page(self, max_ops)

    def save_html(self, path: str | os.PathLike[str], max_ops: int = 600) -> None:
        """Writes :meth:`to_html` to a file.

        Raises:
            TstaticError: If the file cannot be written.
        """
        text = self.to_html(max_ops)
        try:
            Path(path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TstaticError(
                f"the explanation could not be written to {os.fspath(path)!r}",
                expected="a file in a folder that exists and can be written",
                received=str(error),
                fix="make the folder, or pass another path to save_html",
            ) from error

    def __getitem__(self, name: str) -> PropertyStatus:
        for v in self.verdicts:
            if v.name == name:
                return v
        raise KeyError(name)

    def __str__(self) -> str:
        lines = []
        for strategy in dict.fromkeys(v.strategy for v in self.verdicts):
            lines.append(strategy)
            for v in self.verdicts:
                if v.strategy == strategy:
                    mark = "" if v.value == v.default else " (set)"
                    lines.append(f"  {v.name} = {_plain(v.value)!r}{mark}: {v.status}. {v.reason}")
        if self.note:
            lines.append(self.note)
        if self.collectives is not None:
            lines += ["Replicas", *(f"  {line}" for line in str(self.collectives).splitlines())]
        if self.precision:
            lines += ["Mixed precision", *(f"  {one}{_at(one.where)}" for one in self.precision)]
        if self.on_host:
            lines += ["On the host", *(f"  {one}{_at(one.op.where)}" for one in self.on_host)]
        if self.applied or self.refused:
            lines.append("Fusions")
        for a in self.applied:
            lines.append(f"  {a.switch}: {' + '.join(m.type for m in a.members)} -> {a.op} [{self.kernel_kind}]")
            lines.extend(f"    {m.type} -> {', '.join(m.outputs)}{_at(m.where)}" for m in a.members)
            if a.kernel is not None:
                launches = zip(a.kernel.plan(DEFAULT_TARGET).launches, a.kernel.moved, strict=True)
                lines.append(f"    moves {', '.join(f'{moved:,} bytes in {c.function}' for c, moved in launches)}")
            elif (into := self.taken_into(a)) is not None:
                lines.append(f"    computed by the kernel of {into.op}, by {into.switch}")
            if a.kept:
                lines.append(f"    also writes {', '.join(a.kept)}, which its gradient reads")
        for r in self.refused:
            lines.append(f"  {r.switch}: not {' + '.join(m.type for m in r.members)}: {r.code}, {r.reason}")
            lines.extend(f"    {m.type} -> {', '.join(m.outputs)}{_at(m.where)}" for m in r.members)
            lines.append(f"    to allow it: {r.change}")
        t = self.traffic
        if t.launches_before:
            lines.append(
                f"Launches a step: {t.launches_before} -> {t.launches_after}; bytes a step: {t.bytes_before:,} -> {t.bytes_after:,}"
            )
        return "\n".join(lines)


def _at(where: Where | None) -> str:
    text = show(where)
    return f"  at {text}" if text else ""


def _members(members: Sequence[OpInfo]) -> list[dict[str, Any]]:
    return [{"type": m.type, "outputs": list(m.outputs), "where": show(m.where)} for m in members]


def _applied(a: Applied, kind: str) -> dict[str, Any]:
    done: dict[str, Any] = {
        "fusion": a.fusion, "switch": a.switch, "op": a.op, "ops": _members(a.members), "gone": list(a.gone),
        "kept": list(a.kept), "kernel": kind,
    }  # fmt: skip
    if a.kernel is not None:
        done["source"] = _source(a.kernel)
    return done


def _source(kernel: Kernel) -> dict[str, Any]:
    calls = kernel.plan(DEFAULT_TARGET)
    return {
        "name": kernel.name, "template": kernel.template, "text": kernel.text, "bytes": kernel.nbytes,
        "floor_us": kernel.nbytes / BANDWIDTH * 1e6,
        "launches": [
            {"function": c.function, "grid": list(c.grid), "constants": dict(c.constants),
             "num_warps": c.num_warps if isinstance(c, Launch) else 0, "bytes": moved}
            for c, moved in zip(calls.launches, kernel.moved, strict=True)
        ],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Returns a property's value as plain data."""
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name
    return sorted(value) if isinstance(value, set) else value


def properties(
    build: BuildStrategy,
    execution: ExecutionStrategy,
    applied: Sequence[Applied] = (),
    refused: Sequence[Rejection] = (),
    fusing: Mapping[str, str] | None = None,
    said: Mapping[str, str] | None = None,
) -> tuple[PropertyStatus, ...]:
    """Returns one status per property; that of a fusion's switch tells how often it acted, or why it did not.

    Args:
        build, execution: The strategies.
        applied, refused: What the fusions did.
        fusing: Switch -> name of its fusion, for the switches of fusions.
        said: Property of the BuildStrategy -> what it did for this program.
    """
    verdicts = []
    for strategy in (build, execution):
        for p in type(strategy).properties():
            value, reason = getattr(strategy, p.name), p.reason
            if fusing is not None and p.name in fusing and strategy is build:
                reason = _acted(p.name, bool(value), applied, refused)
            elif said is not None and strategy is build:
                reason = said.get(p.name, reason)
            verdicts.append(PropertyStatus(type(strategy).__name__, p.name, value, p.default, p.status, reason))
    return tuple(verdicts)


def _acted(switch: str, on: bool, applied: Sequence[Applied], refused: Sequence[Rejection]) -> str:
    if not on:
        return "off: " + explain_code("OFF", value=switch)[1] + " turns it on."
    times = sum(a.switch == switch for a in applied)
    mine = [r for r in refused if r.switch == switch]
    text = f"applied {times} time{'s' * (times != 1)}"
    if mine:
        codes = ", ".join(f"{sum(r.code == c for r in mine)} x {c}" for c in sorted({r.code for r in mine}))
        text += f"; not applied: {codes}"
    elif not times:
        text += ": no operators stand in its pattern"
    return text + "."
