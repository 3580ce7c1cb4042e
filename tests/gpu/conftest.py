"""The first GPU, or what stands in for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.gpu import first_gpu
from tstatic.devices.cuda import CudaDevice


@pytest.fixture
def gpu() -> Iterator[CudaDevice]:
    with first_gpu() as made:
        yield made
