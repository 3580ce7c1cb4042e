"""What tstatic has of the names that Paddle 2.6.2 lists in ``__all__``, module by module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tstatic
from tests.parity import names
from tstatic import unsupported
from tstatic.ir.program import Variable


@dataclass(frozen=True)
class Coverage:
    """The names of one module.

    Attributes:
        module: Below ``paddle``; ``"Tensor"`` for the methods of Variables.
        have: Names that are there.
        missing: Names that are not.
        declined: Names that tstatic will not have (`tstatic/unsupported.py`); they count as neither.
    """

    module: str
    have: tuple[str, ...]
    missing: tuple[str, ...]
    declined: tuple[str, ...]

    @property
    def percent(self) -> float:
        """The share of the names that are there, in percent of those not declined; 100 if all are declined."""
        return (
            100.0 * len(self.have) / max(1, len(self.have) + len(self.missing)) if self.have or self.missing else 100.0
        )


def _owner(module: str) -> Any:
    """Returns what has the names of a module; ``None`` if tstatic has no such module."""
    if module == names.METHODS:
        return Variable
    owner: Any = tstatic
    for part in filter(None, module.split(".")):
        owner = getattr(owner, part, None)
    return owner


def of_module(module: str, listed: list[str]) -> Coverage:
    """Returns the coverage of one module, whose names in Paddle are ``listed``."""
    owner = _owner(module)
    kinds: dict[str, list[str]] = {"have": [], "missing": [], "declined": []}
    for name in listed:
        path = f"{module}.{name}".lstrip(".")
        if unsupported.declined(path):
            kinds["declined"].append(name)
        else:
            # What is there only to say what to use instead is not there.
            there = owner is not None and hasattr(owner, name) and not unsupported.advice(path)
            kinds["have" if there else "missing"].append(name)
    return Coverage(module, *(tuple(kinds[kind]) for kind in ("have", "missing", "declined")))


def measure(record: dict[str, list[str]] | None = None) -> list[Coverage]:
    """Returns the coverage of every module of a record of Paddle's names; by default the one beside the tests."""
    return [of_module(module, listed) for module, listed in (record or names.load()).items()]
