"""What every strategy property does for a program, and why one does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tstatic.static.strategy import BuildStrategy, ExecutionStrategy


@dataclass(frozen=True, slots=True)
class Verdict:
    """One property: its value, and ``active``, ``not yet active`` or ``nothing to do here`` with the reason."""

    strategy: str
    name: str
    value: Any
    default: Any
    status: str
    reason: str


@dataclass(frozen=True)
class Explanation:
    """Verdicts on all properties of both strategies."""

    verdicts: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Strategy -> property -> value, default, status and reason; plain data."""
        done: dict[str, dict[str, dict[str, Any]]] = {}
        for v in self.verdicts:
            done.setdefault(v.strategy, {})[v.name] = {
                "value": _plain(v.value),
                "default": _plain(v.default),
                "status": v.status,
                "reason": v.reason,
            }
        return done

    def __getitem__(self, name: str) -> Verdict:
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
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name
    return sorted(value) if isinstance(value, set) else value


def explain(build: BuildStrategy, execution: ExecutionStrategy) -> Explanation:
    """Builds the explanation from the strategies' own records."""
    verdicts = []
    for strategy in (build, execution):
        for p in type(strategy).properties():
            verdicts.append(
                Verdict(type(strategy).__name__, p.name, getattr(strategy, p.name), p.default, p.status, p.reason)
            )
    return Explanation(tuple(verdicts))
