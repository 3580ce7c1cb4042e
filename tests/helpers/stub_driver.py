"""Triton's driver of a chip that is not there: what Triton compiles is real, what it loads and launches is only counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tstatic.chips.aot_worker import Chip


class StubDriver(Chip):
    """A chip whose kernels are compiled and never run.

    Args:
        capability: Its compute capability, times 10.

    Attributes:
        loaded: Names of the kernels that were loaded, in order.
        launched: How many launches there were.
        compiled: Kernels that this process compiled, and found in no cache.
        found: Entries of Triton's cache that it found.
    """

    def __init__(self, capability: int = 90) -> None:
        super().__init__(capability)
        self.loaded: list[str] = []
        self.launched = 0
        self.compiled: list[str] = []
        self.found: list[str] = []
        self.utils = SimpleNamespace(
            load_binary=self._load, get_device_properties=lambda device: {"max_shared_mem": 232_448}
        )

    def _load(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        assert binary[:4] == b"\x7fELF"
        self.loaded.append(name)
        return object(), object(), 32, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return self._launch

    def _launch(self, *args: Any) -> None:
        self.launched += 1

    def use(self) -> None:
        """Makes it the driver of this process, and counts what is compiled from now on."""
        from triton import knobs
        from triton.runtime import driver

        def told(*, src: Any, metadata: Any, cache_hit: bool, **_: Any) -> None:
            if cache_hit:
                self.found.append(metadata["hash"])
            else:
                self.compiled.append(src.name)

        driver.set_active(self)
        knobs.compilation.listener = told
