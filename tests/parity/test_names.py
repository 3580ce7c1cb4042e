"""How many of Paddle's public names there are: module by module, at least as many as the ratchet says.

`make parity` asks the installed Paddle for its names; otherwise the record beside this file is used.
"""

from __future__ import annotations

import os

import pytest

from tests.api import coverage
from tests.parity import names, record

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"

AT_LEAST = {
    "": 99,
    "amp": 100,
    "device": 100,
    "device.cuda": 100,
    "distributed": 100,
    "distributed.fleet": 100,
    "inference": 100,
    "fft": 100,
    "geometric": 100,
    "incubate": 92,
    "io": 100,
    "linalg": 100,
    "metric": 100,
    "nn": 100,
    "nn.functional": 100,
    "nn.initializer": 100,
    "nn.utils": 100,
    "optimizer": 100,
    "optimizer.lr": 100,
    "profiler": 100,
    "regularizer": 100,
    "signal": 100,
    "static": 100,
    "static.nn": 100,
    "text": 100,
    "utils": 100,
    "utils.dlpack": 100,
    "version": 100,
    "vision": 100,
    "vision.datasets": 100,
    "vision.models": 100,
    "vision.ops": 100,
    "vision.transforms": 100,
    names.METHODS: 96,
}
"""Module below ``paddle`` -> the percentage of its names that must be there; raised as names are added, never lowered."""


@pytest.fixture(scope="module")
def measured() -> dict[str, coverage.Coverage]:
    return {c.module: c for c in coverage.measure()}


def test_no_module_has_fewer_names_than_before(measured: dict[str, coverage.Coverage]) -> None:
    behind = {m: (one.percent, one.missing) for m, floor in AT_LEAST.items() if (one := measured[m]).percent < floor}
    assert behind == {}


def test_every_name_is_counted_once(measured: dict[str, coverage.Coverage]) -> None:
    for module, listed in names.load().items():
        one = measured[module]
        assert sorted((*one.have, *one.missing, *one.declined)) == sorted(listed)
    assert set(names.load()) == {*names.MODULES, names.METHODS}


def test_a_missing_and_a_declined_name_are_told_apart() -> None:
    found = coverage.of_module("nn", ["Linear", "Nothing"])
    assert (found.have, found.missing, found.declined, found.percent) == (("Linear",), ("Nothing",), (), 50.0)
    assert coverage.of_module("jit", ["to_static"]).declined == ("to_static",)


@pytest.mark.skipif(not EVERYTHING, reason="Paddle itself is asked by make parity")
def test_the_record_is_what_paddle_lists() -> None:
    assert names.ask(str(record.PADDLE)) == names.load()
