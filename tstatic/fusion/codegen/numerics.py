"""What ``FLAGS_numerics=strict`` asks of kernels: the bits that each operator gives by itself."""

from __future__ import annotations

from dataclasses import replace

from tstatic.flags import flag, numerics
from tstatic.fusion.codegen.kernel import Launch, Launches
from tstatic.ir.types import DType


def strict_numerics() -> bool:
    """Returns whether fused programs have to give the bits of unfused ones; part of the key of everything that is compiled."""
    return numerics() == "strict"


def rounds_to_tf32(dtype: DType) -> bool:
    """Returns whether a kernel's products of this type may round their operands to TF32, as ``FLAGS_allow_tf32`` says."""
    return dtype.name == "float32" and bool(flag("FLAGS_allow_tf32"))


def uncontracted(calls: Launches) -> Launches:
    """Returns the launches, compiled so that a product and a sum are two operations with two roundings."""
    launches = (replace(one, contract=False) if isinstance(one, Launch) else one for one in calls.launches)
    return replace(calls, launches=tuple(launches))
