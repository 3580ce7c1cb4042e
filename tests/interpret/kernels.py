"""Calls generated kernels on numpy arrays and compares them with the ops that they stand for."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.devices import interpret
from tstatic.fusion.codegen.kernel import RNG, Kernel, Launch, Launches, LibraryProduct
from tstatic.fusion.engine import cache, loop_nest
from tstatic.ir.evaluate import allocate, call_ref, infer_outputs, meta_of, metas_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ir.rng import RngKey, kernel_numbers
from tstatic.ir.types import Meta
from tstatic.target import TINY

CANARY = 16


def run_ops(ops: Sequence[FrozenOp], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Runs ops by their refs; returns all values."""
    known = dict(arrays)
    with np.errstate(all="ignore"):
        for op in ops:
            ins = [known[e] if isinstance(e, str) else None if e is None else [known[v] for v in e] for e in op.inputs]
            metas = infer_outputs(op.definition, metas_of(ins), op.attrs)
            outs = allocate([m if e is not None else None for m, e in zip(metas, op.outputs, strict=True)])
            call_ref(op.definition, ins, outs, op.attrs)
            known.update((e, o) for e, o in zip(op.outputs, outs, strict=True) if isinstance(e, str))
    return known


def metas_by_name(arrays: Mapping[str, Any]) -> dict[str, Meta]:
    return {n: meta_of(a) for n, a in arrays.items()}


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """An array between two zones of a pattern, and all of its memory as bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.full(size + 2 * CANARY * 8, 0xA5, np.uint8)
    inner = memory[CANARY * 8 : CANARY * 8 + size]
    return inner.view(dtype).reshape(shape), memory


def run_kernel(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    outputs: Mapping[str, Meta],
    over: Mapping[str, str] | None = None,
    rng: RngKey | None = None,
    calls: Launches | None = None,
) -> dict[str, Any]:
    """Calls a kernel; outputs start as a pattern and lie between guard zones that must stay untouched.

    Args:
        kernel: What is called.
        arrays: Its inputs.
        outputs: Its outputs' metadata.
        over: Output -> the input whose memory it is written to; the array that is given stays as it is.
        rng: What random numbers depend on, of a kernel that draws.
        calls: One of its candidates, if not the first.
    """
    calls = kernel.plan(TINY) if calls is None else calls
    memory = {}
    given = {n: np.ascontiguousarray(a) for n, a in arrays.items()}
    for name, meta in outputs.items():
        given[name], memory[name] = guarded(meta.shape, meta.dtype.np)
        if over is not None and name in over:
            given[name][...] = given[over[name]]
            given[over[name]] = given[name]
    for name, (count, dtype) in calls.partials.items():
        given[name], memory[name] = guarded((count,), dtype.np)
    for name, table in calls.tables.items():
        given[name] = table.filled({}, np.ndarray)
    if rng is not None:
        given[RNG] = kernel_numbers(rng.seed, rng.run, rng.place)
    module = cache.load(kernel.text, kernel.name)
    for one in calls.launches:
        if isinstance(one, LibraryProduct):
            _multiply(one, given)
            continue
        for function, args in interpret.bind_launches(module, [one.call], given):
            function(*args)
    for name, whole in memory.items():
        zones = np.concatenate([whole[: CANARY * 8], whole[len(whole) - CANARY * 8 :]])
        assert (zones == 0xA5).all(), f"{kernel.name} wrote outside of '{name}'"
    return {n: given[n] for n in outputs}


def by_kernel_and_reference(
    definition: OpDef, arrays: dict[str, Any], attrs: dict[str, Any], key: RngKey, outputs: int
) -> None:
    """Runs an op by its kernel and by its reference: the bits must be equal. It has the first ``outputs`` of its results."""
    attrs = definition.complete(attrs)
    ins = [arrays.get(s.name) for s in definition.inputs]
    metas = infer_outputs(definition, metas_of(ins), attrs)
    names = tuple(s.name if i < outputs else None for i, s in enumerate(definition.outputs))
    wanted = {n: m for n, m in zip(names, metas, strict=True) if n is not None}
    entries = tuple(s.name if a is not None else None for s, a in zip(definition.inputs, ins, strict=True))
    op = FrozenOp(definition, entries, names, attrs, position=key.position)
    kernel = loop_nest([op], {**metas_by_name(arrays), **wanted}, list(wanted))
    got = run_kernel(kernel, {b.value: arrays[b.value] for b in kernel.inputs}, wanted, rng=key)
    outs = allocate([m if n is not None else None for n, m in zip(names, metas, strict=True)])
    with np.errstate(all="ignore"):
        call_ref(definition, ins, outs, attrs, rng=key)
    for name, out in zip(names, outs, strict=True):
        if name is not None:
            assert got[name].tobytes() == out.tobytes(), (definition.type, attrs, name)


MOST_PROGRAMS = 8


def check_grids(kernel: Kernel, count: Counter[str]) -> None:
    """Counts the products of a kernel and how they are cut: two blocks along each axis, and few, as each costs milliseconds."""
    for launch in kernel.plan(TINY).launches:
        assert isinstance(launch, Launch), "the interpreter has no library"
        assert math.prod(launch.grid) <= MOST_PROGRAMS, f"{launch.function}: grid {launch.grid}"
        if "STEP" not in launch.constants:
            continue
        tile = launch.constants["ROWS"], launch.constants["COLUMNS"]
        assert set(tile) <= {16, 32}, tile
        # The sizes stand in the text.
        named = (rf"OUT_{axis}: tl\.constexpr = (\d+).*?" for axis in ("ROWS", "COLUMNS"))
        sizes = re.search(rf"^def {launch.function}\(.*?{''.join(named)}", kernel.code, re.M | re.S)
        assert sizes is not None, launch.function
        blocks = [-(-int(size) // side) for size, side in zip(sizes.groups(), tile, strict=True)]
        assert min(blocks) >= 2, f"{launch.function}: {blocks} blocks"
        assert math.prod(blocks) == launch.grid[0]
        count["products"] += 1
        count["split"] += len(launch.grid) > 1
        count["with a rest of the depth"] += not launch.constants["WHOLE"]


def kind_of(number: int) -> str:
    """The kind of a drawn program: every fifth has all gradients, every twentieth is trained."""
    return "training" if number % 20 == 19 else "gradients" if number % 5 == 4 else "forward"


def _multiply(product: LibraryProduct, arrays: Mapping[str, Any]) -> None:
    """Makes what a device's library makes between the launches of a kernel."""
    a, b, out = (at.seen(arrays[value]) for value, at in product.matrices)
    wide = np.result_type(product.dtype.compute.np)
    made = (a.swapaxes(-1, -2) if product.trans_a else a).astype(wide) @ (
        b.swapaxes(-1, -2) if product.trans_b else b
    ).astype(wide)
    if product.addend:
        made = made + arrays[product.addend].reshape(product.addend_shape).astype(wide)
    out[...] = made.astype(product.dtype.np)


def ulps(got: Any, wanted: Any) -> float:
    """The largest difference in units in the last place of ``wanted``; NaN and infinities must stand at the same places."""
    if wanted.dtype.kind not in "fV":
        return 0.0 if (got == wanted).all() else float("inf")
    steps = {"bfloat16": 2.0**16, "float16": 2.0**13}.get(wanted.dtype.name, 1.0)
    wide = np.float64 if wanted.dtype == np.float64 else np.float32
    a, b = got.astype(wide), wanted.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64)) / (
            np.spacing(np.abs(b)).astype(np.float64) * steps
        )
    found = np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))
    return float(found.max()) if found.size else 0.0
