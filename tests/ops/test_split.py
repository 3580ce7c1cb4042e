"""Work that an op definition cuts into tiles gives the same result as uncut work; tile sizes are made tiny for the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.sampler import Sample, op_types, root, samples
from tests.ops.tiles import check_split, pieces_of
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.split import tile_size

SPLIT = [t for t in op_types(1) if op_def(t).split is not None and not op_def(t).random]


@pytest.fixture(autouse=True)
def _tiny_tiles() -> Iterator[None]:
    with tile_size(4):
        yield


def drawn(definition: OpDef) -> Iterator[Sample]:
    domain = root(definition).domain
    assert domain is not None
    return samples(definition, 24, ("float64",) if domain.floats else None, limit=48)


@pytest.mark.parametrize("type", SPLIT)
def test_split(type: str) -> None:
    definition = op_def(type)
    for sample in drawn(definition):
        check_split(definition, sample)


def test_most_op_defs_are_cut() -> None:
    whole = [t for t in SPLIT if all(pieces_of(op_def(t), sample)[0] is None for sample in drawn(op_def(t)))]
    assert len(whole) <= 0.1 * len(SPLIT), f"no sample was cut for {whole}"
