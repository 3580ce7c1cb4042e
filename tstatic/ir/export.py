"""The one registry of public names: what a function is called in the API, and the op that it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Export:
    """A public function: where it lives in the API, and the op that it is."""

    function: Callable[..., Any]
    op: str


PUBLIC_API: dict[str, Export] = {}
F = TypeVar("F", bound=Callable[..., Any])


def export(*names: str, op: str = "") -> Callable[[F], F]:
    """Registers a function under public names such as ``"tensor.tanh"``, ``"nn.functional.tanh"``, ``"fluid.layers.tanh"``.

    ``"tensor.x"`` is also ``tstatic.x``; ``"Variable.x"`` is a method. Facades are filled from these names alone.
    """

    def add(function: F) -> F:
        for name in names:
            assert name not in PUBLIC_API, f"{name} is spelled twice"
            PUBLIC_API[name] = Export(function, op)
        return function

    return add


def namespace(prefix: str) -> dict[str, Any]:
    """Returns what is spelled ``prefix.name``, by name: what a facade module is filled with."""
    start = f"{prefix}."
    return {
        name[len(start) :]: entry.function
        for name, entry in PUBLIC_API.items()
        if name.startswith(start) and "." not in name[len(start) :]
    }
