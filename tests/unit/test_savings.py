"""What fusions save: an operator that several kernels compute counts once, and not at all if it also stays by itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta, float32
from tstatic.static.explain.savings import Savings

METAS = {name: Meta((10,), float32) for name in "xabc"}
NBYTES = 40


def op(type: str, source: str, result: str) -> FrozenOp:
    return FrozenOp(op_def(type), (source,), (result,), {})


EXP, RELU, TANH = op("exp", "x", "a"), op("relu", "a", "b"), op("tanh", "a", "c")


def kernel(name: str) -> Any:
    """A kernel that reads one value, writes one, and takes one launch."""
    return SimpleNamespace(name=name, nbytes=2 * NBYTES, plan=lambda target: SimpleNamespace(launches=(None,)))


@pytest.mark.parametrize(("stays", "nbytes", "launches"), [(False, 2 * NBYTES, 1), (True, 0, 0)])
def test_an_operator_that_two_kernels_compute_counts_once_or_not_at_all_if_it_stays(
    stays: bool, nbytes: int, launches: int
) -> None:
    fused = [replace(last, inputs=("x",), body=(EXP, last)) for last in (RELU, TANH)]
    kernels = {one.outputs: kernel(one.type) for one in fused}
    program: Any = SimpleNamespace(ops=[*([EXP] if stays else []), *fused])
    total = Savings([EXP, RELU, TANH], program, METAS, kernels, []).total
    assert (total.nbytes, total.launches) == (nbytes, launches)
