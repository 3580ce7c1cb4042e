"""Remembers the launches for which a chip has no room, and those that could not be compiled."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

KernelLaunch = tuple[str, tuple[int, ...], Sequence[str | int | float], Mapping[str, int], Mapping[str, int | bool]]
"""Function, grid, arguments, constants, options of the compiler."""


NOT_COMPILED = "not compiled: "
"""How the reason begins where it was the compiler, and not the chip, that could not do it."""


class LaunchTooLargeError(Exception):
    """A launch for which the chip has no room, or whose compilation crashed or hung.

    Attributes:
        launch: It.
        reason: What the chip has too little of; what the compiler did, behind :data:`NOT_COMPILED`.
    """

    def __init__(self, launch: KernelLaunch, reason: str) -> None:
        super().__init__(reason)
        self.launch, self.reason = launch, reason


class Refusals:
    """The launches that a chip turned out not to run, each with the reason; kernels then take another way."""

    def __init__(self) -> None:
        self._reasons: dict[Hashable, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    @staticmethod
    def _key(kernel: str, launch: KernelLaunch) -> Hashable:
        function, _, _, constants, options = launch
        # What the compiler makes of a function does not depend on the grid, nor on which arrays it is given.
        return kernel, function, frozenset(constants.items()), frozenset(options.items())

    def add(self, kernel: str, launch: KernelLaunch, reason: str) -> None:
        """Notes that a launch of a kernel, which is known by its name, does not fit."""
        self._reasons[self._key(kernel, launch)] = reason

    def of(self, kernel: str, launches: Iterable[KernelLaunch]) -> str:
        """Returns why one of the launches does not fit; empty if nothing is known against them."""
        if not self._reasons:
            return ""
        found = (self._reasons.get(self._key(kernel, one)) for one in launches)
        return next((reason for reason in found if reason), "")
