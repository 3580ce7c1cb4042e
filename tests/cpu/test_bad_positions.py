"""Indices and labels that are out of range, on devices that stop at them and on those that learn of them later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_cuda_device import Library
from tests.ops.sampler import Sample, op_types, samples
from tstatic import devices, static
from tstatic.devices.cuda import CudaDevice
from tstatic.errors import IndexRangeError
from tstatic.ir import declare
from tstatic.ir.build import emit
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.indices import Limits, limited
from tstatic.ir.opdef import OpDef, op_def
from tstatic.places import CPUPlace

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with others"
)

LATE = ("fake", "gpu")
OTHERS = (*LATE, "torch")


@contextlib.contextmanager
def on(name: str) -> Iterator[None]:
    """Runs CPU places on a device; ``gpu`` is the class of GPUs on tensors of the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "gpu":
            patch.setitem(devices.DEVICES, name, CudaDevice(place="cpu", cuda=Library()))
        with contextlib.nullcontext() if name == "cpu" else devices.use(name):
            yield


def stating(order: int = 2) -> list[str]:
    """The ops that say which of their inputs hold positions."""
    return [t for t in op_types(order) if any(not one.some for one in op_def(t).indices)]


def sample_of(definition: OpDef) -> tuple[Sample, list[tuple[int, int | None, Any, Limits]]]:
    """Returns inputs of an op with positions among them."""
    for sample in samples(definition, 8, dtypes=["float32"], layouts=("contiguous",)):
        attrs = definition.complete(sample.attrs)
        found = [one for one in limited(definition, sample.ins, attrs) if one[2].size]
        if found and all(max(one[3].low) <= min(one[3].high) for one in found):
            return sample, found
    raise AssertionError(f"no sample of {definition.type} has positions")


def spoiled(sample: Sample, at: int, place: int | None, limits: Limits) -> Sample:
    """Returns the inputs with one bad position, in the middle."""
    ins = [list(one) if isinstance(one, list) else one for one in sample.ins]
    values = np.array(ins[at] if place is None else ins[at][place])
    values.reshape(-1)[values.size // 2] = max(limits.high) + 3
    if place is None:
        ins[at] = values
    else:
        ins[at][place] = values
    return Sample(tuple(ins), sample.attrs, sample.dtype)


class Training:
    """A program with one op beside a parameter that is trained, and runs of it from the same start."""

    def __init__(self, definition: OpDef, sample: Sample) -> None:
        declare.reset_default_programs()
        paddle.seed(3)
        self.scope = static.Scope()
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            given = {}
            for slot, value in zip(definition.inputs, sample.ins, strict=True):
                rows = value if isinstance(value, list) else [] if value is None else [value]
                named = [static.data(f"{slot.name}{i}", a.shape, str(a.dtype)) for i, a in enumerate(rows)]
                given[slot.name] = named if isinstance(value, list) else named[0] if named else None
            attrs = definition.complete(sample.attrs)
            metas = infer_outputs(definition, metas_of(sample.ins), attrs)
            drop = [s.name for s, m in zip(definition.outputs, metas, strict=True) if m is None]
            made = emit(definition.type, given, dict(sample.attrs), drop=drop)
            weight = static.create_parameter([3], "float32", name="weight")
            loss = paddle.mean(paddle.nn.functional.dropout(weight * 2.0, 0.5))
            paddle.optimizer.Adam(0.1).minimize(loss)
        flat = [made] if not isinstance(made, tuple | list) else made
        flat = [v for one in flat for v in (one if isinstance(one, list | tuple) else [one]) if v is not None]
        self.fetched = [loss, *flat]
        with static.scope_guard(self.scope):
            self.exe = static.Executor(CPUPlace())
            self.exe.run(self.startup)

    def run(self, definition: OpDef, sample: Sample, fetch: bool = True) -> list[Any]:
        feed = {}
        for slot, value in zip(definition.inputs, sample.ins, strict=True):
            rows = value if isinstance(value, list) else [] if value is None else [value]
            feed.update({f"{slot.name}{i}": a for i, a in enumerate(rows)})
        with static.scope_guard(self.scope):
            return self.exe.run(self.main, feed=feed, fetch_list=self.fetched if fetch else self.fetched[1:])

    def state(self) -> dict[str, bytes]:
        """The bytes of all variables."""
        persistable = [v.name for v in self.main.list_vars() if v.persistable]
        return {n: np.array(v.get_tensor()).tobytes() for n in persistable if (v := self.scope.find_var(n)) is not None}


def parts(error: IndexRangeError) -> tuple[Any, ...]:
    return type(error), error.what, error.expected, error.received, error.fix, error.op, error.var, error.where


@pytest.mark.parametrize("type", stating())
def test_a_bad_position_is_told_as_on_the_cpu_and_changes_no_variable(type: str) -> None:
    definition = op_def(type)
    good, found = sample_of(definition)
    at, place, _, limits = found[-1]
    bad = spoiled(good, at, place, limits)
    told = {}
    results = {}
    for name in ("cpu", *OTHERS):
        with on(name):
            training = Training(definition, good)
            training.run(definition, good)
            before = training.state()
            with pytest.raises(IndexRangeError) as raised:
                training.run(definition, bad)
            told[name] = raised.value
            assert training.state() == before, name
            # The next run goes on as if the bad one had not been: with its random numbers, too.
            results[name] = training.run(definition, good)[0], training.state()["weight"]
    for name in OTHERS:
        assert parts(told[name]) == parts(told["cpu"]), name
        assert ("run 2" in (told[name].noticed or "")) is (name in LATE)
        assert "test_bad_positions.py" in str(told[name])
        np.testing.assert_allclose(results[name][0], results["cpu"][0], rtol=1e-6)
