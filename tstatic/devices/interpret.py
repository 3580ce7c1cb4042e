"""Runs generated kernels in Triton's interpreter on numpy arrays, so that the real kernels are checked without a GPU."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from tstatic import target
from tstatic.devices.base import KernelLaunch
from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.step import HostArray, Stream
from tstatic.errors import DeviceError, needed_for
from tstatic.ir.recording import Call
from tstatic.locks import lock


def begin() -> None:
    """Makes Triton interpret kernels in this process; Triton decides at its first import.

    Raises:
        DeviceError: If Triton was imported as a compiler before.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise DeviceError(
            "Triton was imported before its interpreter was asked for, and one process either interprets or compiles",
            expected="TSTATIC_CPU_BACKEND=interpret at work before anything imports triton",
            received="triton in sys.modules, imported as a compiler",
            fix="set TRITON_INTERPRET=1 and TSTATIC_CPU_BACKEND=interpret before the program starts",
        )
    # Before the first import of Triton, which reads it then and never again.
    os.environ["TRITON_INTERPRET"] = "1"


def tensor(array: HostArray) -> Any:
    """Returns an array's memory as a flat torch tensor.

    Args:
        array: A contiguous array.

    Raises:
        MissingPackageError: If torch is not installed.
    """
    with needed_for("running generated kernels (TSTATIC_CPU_BACKEND=interpret)"):
        import torch

    flat = array.reshape(-1)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(flat)


def bind_launches(module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, HostArray]) -> list[Call]:
    """Returns the calls that launch a kernel.

    Args:
        module: The generated module.
        launches: The arguments of the launches; the call does not compile anything.
        arrays: The array that each argument given as a name refers to.
    """
    _leave_out_idle_checks()
    calls: list[Call] = []
    tensors: dict[str, Any] = {}
    for function, grid, arguments, constants, _ in launches:
        values = []
        for a in arguments:
            if isinstance(a, str):
                if a not in tensors:
                    tensors[a] = tensor(arrays[a])
                values.append(tensors[a])
            else:
                values.append(a)
        calls.append((_run, (getattr(module, function)[grid], values, constants)))
    return calls


def _leave_out_idle_checks() -> None:
    """Keeps Triton from computing which sums and products of integers overflow: without ``debug`` nothing looks at the result.

    It takes a quarter of the time of a kernel that computes many addresses.
    """
    from triton.runtime import interpreter

    builder: Any = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    if options is not None and not options.debug and getattr(options, "sanitize_overflow", False):
        builder.options = replace(options, sanitize_overflow=False)


_lock = lock()


def _run(launcher: Any, values: Sequence[Any], constants: Mapping[str, int]) -> None:
    # The interpreter patches Triton's language during a launch.
    with _lock, np.errstate(all="ignore"), warnings.catch_warnings():
        # numpy warns about rows that are all NaN, but those are the program's own values.
        warnings.simplefilter("ignore", RuntimeWarning)
        launcher(*values, **constants)


class InterpretDevice(CpuDevice):
    """The CPU, where fused ops run as their generated kernels."""

    name = "interpret"
    target = target.TINY
    generated = True
    exclusive = True

    def begin(self) -> None:
        begin()

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, HostArray], stream: Stream
    ) -> list[Call]:
        return bind_launches(module, launches, arrays)


DEVICE = InterpretDevice()
