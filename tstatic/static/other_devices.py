"""Paddle's names for devices that tstatic has none of: IPUs and XPUs. They refuse as Paddle's own build for CPUs does."""

from __future__ import annotations

from typing import NoReturn

from tstatic.errors import PlaceError
from tstatic.ir.export import export


def _refuse(name: str, device: str) -> NoReturn:
    raise PlaceError(
        f"static.{name} needs an {device}",
        expected="a CPU or an NVIDIA GPU",
        received=device,
        fix="run on static.cpu_places() or static.cuda_places()",
    )


@export("static.IpuStrategy")
def IpuStrategy(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is no IPU to run on.

    Args:
        args, kwargs: Whatever Paddle takes.

    Raises:
        PlaceError: Always.
    """
    _refuse("IpuStrategy", "IPU")


@export("static.IpuCompiledProgram")
def IpuCompiledProgram(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is no IPU to run on.

    Args:
        args, kwargs: Whatever Paddle takes.

    Raises:
        PlaceError: Always.
    """
    _refuse("IpuCompiledProgram", "IPU")


@export("static.ipu_shard_guard")
def ipu_shard_guard(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is no IPU to run on.

    Args:
        args, kwargs: Whatever Paddle takes.

    Raises:
        PlaceError: Always.
    """
    _refuse("ipu_shard_guard", "IPU")


@export("static.set_ipu_shard")
def set_ipu_shard(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is no IPU to run on.

    Args:
        args, kwargs: Whatever Paddle takes.

    Raises:
        PlaceError: Always.
    """
    _refuse("set_ipu_shard", "IPU")


@export("static.xpu_places")
def xpu_places(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is no XPU to run on.

    Args:
        args, kwargs: Whatever Paddle takes.

    Raises:
        PlaceError: Always.
    """
    _refuse("xpu_places", "XPU")
