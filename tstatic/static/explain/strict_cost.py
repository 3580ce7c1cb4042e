"""What strict numerics refuse and cost a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tstatic.fusion.engine import Rejection
from tstatic.static.explain.savings import members_as_data


@dataclass(frozen=True, slots=True)
class StrictRefusal:
    """A fusion that strict numerics refuse, and what it would save: of its operators, and of those that it would be fused with.

    Attributes:
        rejection: The operators, and the reason.
        launches, bytes: Launches and bytes of a step, fewer under default numerics; 0 where another fusion takes the operators.
    """

    rejection: Rejection
    launches: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StrictCost:
    """What strict numerics cost a step, compared with default ones under the same strategy.

    Attributes:
        launches, bytes: Launches and bytes more, by the plans for the default target.
        refused: The fusions that are refused.
    """

    launches: int
    bytes: int
    refused: tuple[StrictRefusal, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        return {
            "launches": self.launches,
            "bytes": self.bytes,
            "refused": [
                {"switch": r.rejection.switch, "ops": members_as_data(r.rejection.members), "reason": r.rejection.reason,
                 "launches": r.launches, "bytes": r.bytes}
                for r in self.refused
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"Strict numerics: {self.launches:,} launches and {self.bytes:,} bytes a step more than default numerics"
        ]
        for one in self.refused:
            ops = " + ".join(m.type for m in one.rejection.members)
            lines.append(
                f"  {one.rejection.switch}: {ops} would save {one.launches:,} launches and {one.bytes:,} bytes"
            )
        return "\n".join(lines)
