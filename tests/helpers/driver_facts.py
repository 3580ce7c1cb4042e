"""What drivers say of GPUs that are not here, and what their data sheets promise."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Chip:
    """A GPU: the driver's facts, as ``torch.cuda.get_device_properties`` passes them on, and the data sheet's numbers.

    ``memory`` and ``l2`` are the driver's MiB, the clocks are in MHz; ``sheet_memory`` is in GB, ``bandwidth`` in GB/s, the rates
    are in TFLOP/s: ``matrix`` of 16-bit matrix instructions that add in 32 bits, without sparsity; ``vector`` of float32.
    """

    driver_name: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    l2: int
    shared: int
    clock: int
    memory_clock: int
    bus: int
    sheet_memory: float
    bandwidth: float
    matrix: float
    vector: float

    def properties(self, *without: str, **others: Any) -> Any:
        """The driver's facts; those of ``without`` are left out, as older versions of torch do, ``others`` are put in."""
        found = {
            "name": self.driver_name, "major": self.capability[0], "minor": self.capability[1],
            "multi_processor_count": self.multiprocessors, "total_memory": self.memory * MIB, "L2_cache_size": self.l2 * MIB,
            "shared_memory_per_block_optin": self.shared, "clock_rate": self.clock * 1000,
            "memory_clock_rate": self.memory_clock * 1000, "memory_bus_width": self.bus,
        }  # fmt: skip
        return SimpleNamespace(**{n: v for n, v in {**found, **others}.items() if n not in without})


CLOCKS = ("clock_rate", "memory_clock_rate", "memory_bus_width")
"""What not every version of torch passes on."""

CHIPS = (
    Chip("NVIDIA A100-PCIE-40GB", "A100 PCIe 40 GB", (8, 0), 108, 40_442, 40, 166_912, 1410, 1215, 5120, 40, 1555, 312, 19.5),
    Chip("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB", (8, 0), 108, 81_051, 40, 166_912, 1410, 1593, 5120, 80, 2039, 312, 19.5),
    Chip("NVIDIA A10", "A10", (8, 6), 72, 22_515, 6, 101_376, 1695, 6251, 384, 24, 600, 125, 31.2),
    Chip("NVIDIA L4", "L4", (8, 9), 58, 22_478, 48, 101_376, 2040, 6251, 192, 24, 300, 121, 30.3),
    Chip("NVIDIA L40S", "L40S", (8, 9), 142, 45_589, 96, 101_376, 2520, 9001, 384, 48, 864, 362, 91.6),
    Chip("NVIDIA GeForce RTX 4090", "RTX 4090", (8, 9), 128, 24_210, 72, 101_376, 2520, 10_501, 384, 24, 1008, 165, 82.6),
    Chip("NVIDIA GeForce RTX 5090", "RTX 5090", (12, 0), 170, 32_109, 96, 101_376, 2407, 14_001, 512, 32, 1792, 209, 104.8),
    Chip("NVIDIA H100 PCIe", "H100 PCIe 80 GB", (9, 0), 114, 81_008, 50, 232_448, 1755, 1593, 5120, 80, 2000, 756, 51),
    Chip("NVIDIA H100 80GB HBM3", "H100 SXM5 80 GB", (9, 0), 132, 81_090, 50, 232_448, 1980, 2619, 5120, 80, 3350, 989, 67),
    Chip("NVIDIA GH200 480GB", "GH200 96 GB", (9, 0), 132, 97_280, 60, 232_448, 1980, 2619, 6144, 96, 4000, 990, 67),
    Chip("NVIDIA B200", "B200", (10, 0), 148, 182_642, 126, 232_448, 1965, 3996, 7680, 192, 8000, 2250, 75),
    Chip("NVIDIA B300 SXM6 AC", "B300", (10, 3), 148, 275_040, 126, 232_448, 1920, 3996, 8192, 288, 8000, 2250, 75),
)  # fmt: skip
"""One of each kind that users have; ``name`` is the data sheet's."""
