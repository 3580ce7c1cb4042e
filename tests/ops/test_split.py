"""Work that an op definition cuts into tiles gives the same result as uncut work; tile sizes are made tiny for the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.ops.sampler import Sample, op_types, root, samples
from tests.ops.tiles import check_split, pieces_of
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ops import _cut

SPLIT = [t for t in op_types(1) if op_def(t).split is not None and not op_def(t).random]
# Names of the constants that say below which size work stays whole, and how large a tile is.
SIZES = ("TILE", "CUT_ABOVE", "SMALLEST")


@pytest.fixture(autouse=True)
def _tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets every tile size of the ops package to a few elements."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tstatic.ops"):
            for constant, value in list(vars(module).items()):
                if constant.endswith(SIZES) and isinstance(value, int | float):
                    monkeypatch.setattr(module, constant, type(value)(4))
    for function in (_cut.cut_rows, _cut.cut_alike):
        defaults = tuple(4 if d == 1 << 16 else d for d in function.__defaults__ or ())
        monkeypatch.setattr(function, "__defaults__", defaults)
        keywords = {n: 4 if d == 1 << 16 else d for n, d in (function.__kwdefaults__ or {}).items()}
        monkeypatch.setattr(function, "__kwdefaults__", keywords)


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
