"""How many of Paddle's public names there are: module by module, at least as many as the ratchet says.

`make parity` asks the installed Paddle for its names; otherwise the record beside this file is used.
"""

from __future__ import annotations

import os

import pytest

import tstatic
from tests.api import coverage
from tests.parity import names, record, signatures
from tstatic import unsupported

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"

AT_LEAST = {
    "": 100,
    "amp": 100,
    "device": 100,
    "device.cuda": 100,
    "distributed": 100,
    "distributed.fleet": 100,
    "inference": 100,
    "distribution": 100,
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


def listed() -> list[tuple[str, str]]:
    """Returns (version, path) of what Paddle's modules list, those of 2.x and of ``fluid``, in each recorded version."""
    return [
        (version, f"{module}.{name}".lstrip("."))
        for version, modules in signatures.load().items()
        for module, found in modules.items()
        for name in found["__all__"]
    ]


def missing(paths: list[tuple[str, str]]) -> list[str]:
    """Returns those that are neither there nor answered with what to use instead."""
    return [f"{path} of {version}" for version, path in paths if not _is_there(path) and not unsupported.advice(path)]


def _is_there(path: str) -> bool:
    value: object = tstatic
    for part in path.split("."):
        value = getattr(value, part, None)
    return value is not None


def test_every_name_that_a_module_lists_is_there_or_says_what_to_use() -> None:
    """Guards names that scripts of 1.x and 2.x call: one that is forgotten would be an AttributeError without advice."""
    paths = listed()
    assert len(paths) > 3000
    assert missing(paths) == []


def test_a_forgotten_name_is_found() -> None:
    assert missing(
        [("2.4.2", "fluid.layers.bmm"), ("2.4.2", "fluid.layers.forgotten"), ("1.8.5", "fluid.layers.ssd_loss")]
    ) == ["fluid.layers.forgotten of 2.4.2"]


def test_names_that_are_not_listed_but_used() -> None:
    """Guards names that Paddle's modules have beside their lists, which scripts import."""
    for path in (
        "cholesky", "eigvalsh", "XPUPlace", "compat.to_text", "static.load_vars", "static.save_vars", "static.is_persistable",
        "static.nn.create_parameter", "static.nn.continuous_value_model", "signal.frame", "signal.overlap_add", "nn.spectral_norm",
        "distributed.fleet.InMemoryDataset", "distributed.fleet.QueueDataset", "fluid.io.BatchSampler", "fluid.io.Dataset",
        "fluid.clip.GradientClipBase", "fluid.clip.ErrorClipByValue", "fluid.initializer.Initializer",
        "fluid.regularizer.WeightDecayRegularizer", "tensor.create_tensor", "fluid.optimizer.append_regularization_ops",
        "fluid.regularizer.append_regularization_ops", "fluid.Program._appending_grad_times",
    ):  # fmt: skip
        assert _is_there(path) or path.endswith("_times"), path
    assert tstatic.fluid.Program()._appending_grad_times == 0
