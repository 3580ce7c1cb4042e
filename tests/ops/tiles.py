"""The oracle of ``split``: outputs put together from an op definition's tiles equal those of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.ops.oracles import flat
from tests.ops.sampler import Sample, allocate, map_arrays, reserved, run, wide
from tstatic.ir.evaluate import call_ref, infer_outputs, metas_of
from tstatic.ir.opdef import PARTIAL_SUM, OpDef


def part_of(value: Any, part: Any) -> Any:
    """What a tile passes of an argument."""
    if value is None or part is None:
        return None
    if isinstance(value, list | tuple):
        return [
            part_of(v, p) for v, p in zip(value, part if isinstance(part, list) else [part] * len(value), strict=True)
        ]
    return value[part] if isinstance(part, tuple) else value


def pieces_of(definition: OpDef, sample: Sample, wanted: Sequence[bool] | None = None) -> tuple[Any, list[Any]]:
    """The op definition's tiles (``None``: not cut) and the outputs' metadata."""
    done = definition.complete(sample.attrs)
    metas = infer_outputs(definition, metas_of(sample.ins), done)
    if wanted is not None:
        metas = [m if w else None for m, w in zip(metas, wanted, strict=True)]
    assert definition.split is not None
    return definition.split(*metas_of(sample.ins), *metas, **definition.pick(definition.split, done)) or None, metas


def run_tiles(definition: OpDef, sample: Sample, tiles: Sequence[Any], metas: Sequence[Any]) -> list[Any]:
    """Outputs put together from tiles."""
    done = definition.complete(sample.attrs)
    outs = allocate(metas, "contiguous", 0xA5)
    partial: dict[int, list[Any]] = {}
    count = len(sample.ins)
    for tile in tiles:
        assert len(tile) == count + len(outs)
        ins = [part_of(v, p) for v, p in zip(sample.ins, tile[:count], strict=True)]
        targets: list[Any] = []
        for i, (out, p) in enumerate(zip(outs, tile[count:], strict=True)):
            if p is PARTIAL_SUM and out is not None:
                partial.setdefault(i, []).append(map_arrays(lambda a: np.full_like(a, 77), out))
                targets.append(partial[i][-1])
            else:
                targets.append(part_of(out, p))
        if any(t is not None for t in targets):
            with np.errstate(all="ignore"):
                call_ref(definition, ins, targets, done, **reserved(definition))
    for i, found in partial.items():
        outs[i][...] = np.sum(found, axis=0)
    return outs


def check_split(definition: OpDef, sample: Sample) -> int:
    """Compares cut with uncut work, all outputs at once and, for backward ops, each alone; returns how often it was cut."""
    whole = run(definition, sample)
    choices: list[list[bool] | None] = [None]
    if definition.of and len(definition.outputs) > 1:
        given = [i for i, out in enumerate(whole) if out is not None]
        choices += [[j == i for j in range(len(whole))] for i in given]
    tried = 0
    for wanted in choices:
        tiles, metas = pieces_of(definition, sample, wanted)
        if tiles is None:
            continue
        tried += 1
        for slot, a, b in zip(definition.outputs, run_tiles(definition, sample, tiles, metas), whole, strict=True):
            for x, y in zip(flat(a), flat(b), strict=False):
                same = np.allclose(wide(x), wide(y), rtol=1e-11, atol=1e-12, equal_nan=True)
                assert same, f"{definition.type}.{slot.name} differs when cut: {x} against {y}: {sample}"
    return tried
