"""Paddle's names for devices that tstatic has none of: IPUs and XPUs. They refuse as Paddle's own build for CPUs does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tstatic.errors import PlaceError
from tstatic.ir.export import export


def _refuse(name: str, device: str) -> NoReturn:
    raise PlaceError(
        f"static.{name} needs an {device}",
        expected="a CPU or an NVIDIA GPU",
        received=device,
        fix="run on static.cpu_places() or static.cuda_places()",
    )


def _refusing(name: str, device: str) -> Callable[..., Any]:
    def function(*args: object, **kwargs: object) -> NoReturn:
        _refuse(name, device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Raises: there is no {device} to run on.

    Raises:
        PlaceError: Always.
    """
    return function


IpuStrategy = export("static.IpuStrategy")(_refusing("IpuStrategy", "IPU"))
IpuCompiledProgram = export("static.IpuCompiledProgram")(_refusing("IpuCompiledProgram", "IPU"))
ipu_shard_guard = export("static.ipu_shard_guard")(_refusing("ipu_shard_guard", "IPU"))
set_ipu_shard = export("static.set_ipu_shard")(_refusing("set_ipu_shard", "IPU"))
xpu_places = export("static.xpu_places")(_refusing("xpu_places", "XPU"))
