"""A data-parallel program whose fused operators run as generated kernels trains as one place does."""

from __future__ import annotations

import pytest

from tests.parallel.golden import strategy
from tests.parallel.test_equality import EVERY_FUSION, Kind, Nets, agree, batch_of


@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce], ids=lambda k: k.name)
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_generated_kernels_on_two_places(optimizer: str, kind: Kind) -> None:
    nets = Nets(optimizer, "global")
    batch, sizes = batch_of(7, 2), [3, 4]
    build = strategy(reduce_strategy=kind, **dict.fromkeys(EVERY_FUSION, True))
    agree(nets.together(batch, sizes, 2, build), nets.alone(batch, sizes, 2))
