"""The doctor says what moves values between places and processes, and why, and tests NCCL: on a stand-in with its rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import tstatic as paddle
from tests.helpers import nccl_faults
from tests.helpers.nccl_rules import World
from tests.helpers.patience import HANG
from tests.helpers.stream_order import Order, OrderedGpu
from tstatic import places
from tstatic.cli import doctor
from tstatic.comm.transport import nccl, nccl_proof
from tstatic.errors import MissingPackageError

pytestmark = [pytest.mark.torch, pytest.mark.numpy_device("the commands choose the device themselves")]


@pytest.fixture
def found_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Returns what the doctor finds on a machine with so many GPUs, with a stand-in for NCCL, or without one."""
    monkeypatch.setattr(nccl_proof, "BUCKET", 5_000)

    def found(
        gpus: int, asked: str = "auto", planted: Any = lambda library: library, there: bool = True
    ) -> dict[str, Any]:
        world = World(Order(), HANG)
        devices = [OrderedGpu(world.order, number) for number in range(gpus)]
        library = planted(world.process())

        def load() -> Any:
            if there:
                return library
            raise MissingPackageError("NCCL was not found", expected="it", received="torch for the CPU", fix="none")

        monkeypatch.setattr(places, "device_count", lambda: gpus)
        monkeypatch.setattr(doctor, "of_place", lambda place: devices[place.get_device_id()])
        monkeypatch.setattr(nccl, "load", load)
        paddle.set_flags({"FLAGS_collectives": asked})
        try:
            return doctor.collectives()
        finally:
            paddle.set_flags({"FLAGS_collectives": "auto"})

    return found


HERE = [
    (0, True, "host, since the places share the host's memory", "gloo, since the places are not GPUs", "note"),
    (0, False, "host, since the places share the host's memory", "gloo, since the places are not GPUs", "absent"),
    (1, True, "device, since the places are one device", "gloo, since two processes use one GPU", "ok"),
    (1, False, "device, since the places are one device", "gloo, since NCCL cannot be loaded on rank 0", "absent"),
    (2, True, "nccl, since each place is a GPU", "nccl, since each process has a GPU of its own (not executed here)", "ok"),
    (2, False, "device, since NCCL cannot be loaded: torch for the CPU", "gloo, since NCCL cannot be loaded", "broken"),
]  # fmt: skip


@pytest.mark.parametrize(("gpus", "there", "inside", "between", "status"), HERE)
def test_it_says_what_moves_values_here_and_why(
    found_here: Callable[..., dict[str, Any]], gpus: int, there: bool, inside: str, between: str, status: str
) -> None:
    found = json.loads(json.dumps(found_here(gpus, there=there)))
    check, library = doctor._choices(found), doctor._nccl(found)
    assert check.status == "ok"
    assert check.detail.startswith(f"FLAGS_collectives=auto: between places {inside}")
    assert f"; between processes {between}" in check.detail
    assert library.status == status
    if there:
        assert library.detail.startswith(f"{found['nccl']} ({found['where']}): ")
    # What was not run is said not to have been: all of it, several GPUs, or nothing of this check.
    assert ("not executed" in library.detail) == (there and gpus < 2)


def test_a_communicator_that_fails_its_test_is_broken(found_here: Callable[..., dict[str, Any]]) -> None:
    found = found_here(2, planted=nccl_faults.wrong_values("float32"))
    check = doctor._nccl(found)
    assert check.status == "broken"
    assert "failed its test before the first step" in check.detail
    assert "FLAGS_collectives=gloo" in check.remedy
    assert doctor._nccl(found_here(2)).status == "ok", "the same machine without the fault"


def test_a_forced_choice_that_cannot_be_is_broken(found_here: Callable[..., dict[str, Any]]) -> None:
    check = doctor._choices(found_here(0, "nccl"))
    assert (check.status, check.remedy.partition(",")[0]) == ("broken", "set FLAGS_collectives=auto")
    assert "between places NCCL cannot connect these places: the places share the host's memory" in check.detail
    assert doctor._choices(found_here(2, "nccl")).status == "ok"
