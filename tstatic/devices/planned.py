"""The CPU as a stand-in for a chip that is not here: kernels are launched as there, and torch makes the library's products."""

from __future__ import annotations

from functools import cache

from tstatic.devices.torch.device import TorchDevice
from tstatic.errors import needed_for
from tstatic.target import Target


class PlannedDevice(TorchDevice):
    """Tensors of the CPU, torch's operators, and generated kernels in Triton's interpreter, cut and launched as on a chip.

    Args:
        target: The chip.
        way: Which of the ways that a kernel has there is launched (``Kernel.ways``); kernels with fewer launch their plan.
    """

    def __init__(self, target: Target, way: int = 0) -> None:
        super().__init__(target.architecture, generated=True)
        self.target = target
        self.way = way

    def begin(self) -> None:
        """Prepares the device.

        Raises:
            DeviceError: If this process compiles kernels already.
            MissingPackageError: If torch or triton is not installed.
        """
        super().begin()
        with needed_for(f"running what {self.target.architecture} launches"):
            import triton  # noqa: F401 - to say so before anything runs


@cache
def planned_device(target: Target, way: int = 0) -> PlannedDevice:
    """Returns the device; one for each chip and way, so that programs that it has compiled are found again."""
    return PlannedDevice(target, way)
