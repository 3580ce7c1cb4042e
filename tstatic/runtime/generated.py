"""Fused ops as their generated kernels on numpy arrays, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tstatic.devices import Device, cpu
from tstatic.devices.base import Stream
from tstatic.devices.pool import Call
from tstatic.errors import needed_for
from tstatic.fusion import cache
from tstatic.plan.plan import Generated


def generated_work(found: Generated, known: Mapping[str, Any], device: Device, stream: Stream) -> cpu.BoundStep:
    """Ready calls of one kernel.

    Args:
        found: The kernel and its launches.
        known: Value -> array.
        device: Where it runs.
        stream: In which of its streams.

    Raises:
        MissingPackageError: Without triton.
    """
    with needed_for("running generated kernels (TSTATIC_CPU_BACKEND=interpret)"):
        module = cache.load(found.kernel.text, found.kernel.name)
    touched = dict.fromkeys(a for one in found.calls.launches for a in one.arguments if isinstance(a, str))
    touched.update(dict.fromkeys(v for table in found.calls.tables.values() for v in table.values))
    arrays = {v: known[v] for v in touched if v in known}
    # A view of another array may have gaps; kernels take flat memory.
    loose = [v for v, a in arrays.items() if not a.flags.c_contiguous]
    shapes = [(arrays[v].shape, arrays[v].dtype) for v in loose]
    partials = [(name, ((count,), dtype.np)) for name, (count, dtype) in found.calls.partials.items()]
    launches = [one.call for one in found.calls.launches]
    work = cpu.BoundStep()
    # The interpreter patches Triton's language while it runs: one kernel at a time, on the calling thread.
    work.spans = None

    def maker(scratch: list[Any]) -> list[Call]:
        mine = dict(arrays)
        calls: list[Call] = []
        for v, buffer in zip(loose, scratch, strict=False):
            calls.append((device.copy, (buffer, arrays[v], stream)))
            mine[v] = buffer
        mine.update(zip((n for n, _ in partials), scratch[len(loose) :], strict=True))
        mine.update(
            (name, device.upload(table.filled(mine, device.span))) for name, table in found.calls.tables.items()
        )
        return calls + device.launch(module, launches, mine, stream)

    work.add(maker, [*shapes, *(shape for _, shape in partials)])
    return work
