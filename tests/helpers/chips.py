"""CPU places that plan kernels as a chip does: numpy or torch makes the library's products, Triton interprets kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.helpers.gpu import StandIn
from tstatic import devices
from tstatic.devices import interpret
from tstatic.target import H200, Target


class Chip(StandIn):
    """The class of GPUs on tensors of the CPU; what a GPU would compile, Triton interprets."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.generated = True
        self.target = target

    def begin(self) -> None:
        target = self.target
        interpret.begin()
        super().begin()
        self.target = target


@contextlib.contextmanager
def chip(kind: str, patch: pytest.MonkeyPatch, target: Target = H200) -> Iterator[None]:
    """CPU places are a device that plans kernels as a chip does.

    Args:
        kind: ``"interpret"``: the interpreter's device; ``"gpu"``: the class of GPUs.
        patch: Undoes it.
        target: The chip.
    """
    if kind == "interpret":
        patch.setattr(interpret.DEVICE, "target", target)
        yield
        return
    made = Chip(target)
    patch.setitem(devices.DEVICES, made.name, made)
    with devices.use(made.name):
        yield
