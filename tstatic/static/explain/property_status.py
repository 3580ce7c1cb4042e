"""What each property of the strategies does for a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.fusion.engine import Applied, Rejection
from tstatic.fusion.engine.reasons import explain_code
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy


@dataclass(frozen=True, slots=True)
class PropertyStatus:
    """One property: its value, and ``active``, ``not yet active`` or ``no effect``, with the reason.

    ``given`` is whether the user set it: some values are chosen where nothing is set.
    """

    strategy: str
    name: str
    value: Any
    default: Any
    status: str
    reason: str
    given: bool = True


def plain(value: Any) -> Any:
    """Returns a property's value as plain data."""
    # A member of an enum, by its name: the numbers are Paddle's own.
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
    chosen: Iterable[str] = (),
    idle: Mapping[str, str] | None = None,
) -> tuple[PropertyStatus, ...]:
    """Returns one status per property; that of a fusion's switch tells how often it acted, or why it did not.

    Args:
        build, execution: The strategies.
        applied, refused: What the fusions did.
        fusing: Switch -> name of its fusion, for the switches of fusions.
        said: Property of the BuildStrategy -> what it did for this program.
        chosen: Properties whose values the user did not set.
        idle: Switch that is on -> why it made no fusion.
    """
    verdicts = []
    for strategy in (build, execution):
        for p in type(strategy).properties():
            value, reason = getattr(strategy, p.name), p.reason
            # What the fusions did for this program says more than the general sentence.
            if fusing is not None and p.name in fusing and strategy is build:
                reason = _acted(p.name, bool(value), applied, refused, (idle or {}).get(p.name, ""))
            elif said is not None and strategy is build:
                reason = said.get(p.name, reason)
            given = value != p.default and p.name not in chosen
            verdicts.append(PropertyStatus(type(strategy).__name__, p.name, value, p.default, p.status, reason, given))
    return tuple(verdicts)


def _acted(switch: str, on: bool, applied: Sequence[Applied], refused: Sequence[Rejection], idle: str) -> str:
    if not on:
        return "off: " + explain_code("OFF", value=switch)[1] + " turns it on."
    times = sum(a.switch == switch for a in applied)
    mine = [r for r in refused if r.switch == switch]
    text = f"applied {times} time{'s' * (times != 1)}"
    if mine:
        # Sorted, so that equal programs have equal reports.
        codes = ", ".join(f"{sum(r.code == c for r in mine)} x {c}" for c in sorted({r.code for r in mine}))
        text += f"; not applied: {codes}"
    if idle:
        text += f": {idle}"
    return text + "."
