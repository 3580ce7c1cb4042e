"""Indices and labels that are out of range, on devices that stop at them and on those that learn of them later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import StandIn
from tests.ops.sampler import Sample, op_types, samples
from tstatic import devices, static
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.fake import DEVICE as FAKE
from tstatic.devices.fake import FakeDevice
from tstatic.devices.graphs import LateGraph
from tstatic.devices.step import ReadyStep
from tstatic.errors import FeedError, IndexRangeError
from tstatic.ir import declare
from tstatic.ir.build import emit
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.indices import Limits, limited
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.operator import OpRole
from tstatic.places import CPUPlace
from tstatic.runtime import binding, checks

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
            patch.setitem(devices.DEVICES, name, StandIn())
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


def parts(error: IndexRangeError | FeedError) -> tuple[Any, ...]:
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
            with pytest.raises((IndexRangeError, FeedError)) as raised:
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


def read_in_part(order: int = 2) -> list[tuple[str, str]]:
    """The ops of whose positions other values decide which are read, and those slots."""
    return [(t, one.slot) for t in op_types(order) for one in op_def(t).indices if one.some]


def all_spoiled(definition: OpDef, slot: str) -> tuple[Sample, Sample]:
    """Returns inputs of an op, and the same with no good position in a slot: some of them are read."""
    at = [one.name for one in definition.inputs].index(slot)
    (statement,) = (one for one in definition.indices if one.slot == slot)
    for sample in samples(definition, 8, dtypes=["float32"], layouts=("contiguous",)):
        if sample.ins[at] is not None and sample.ins[at].size:
            limits = statement.limits(sample.ins, definition.complete(sample.attrs))
            assert limits is not None
            ins = list(sample.ins)
            ins[at] = np.full_like(sample.ins[at], max(limits.high) + 3)
            return sample, Sample(tuple(ins), sample.attrs, sample.dtype)
    raise AssertionError(f"no sample of {definition.type} has {slot}")


@pytest.mark.parametrize(("type", "slot"), read_in_part())
def test_positions_that_are_read_in_part_are_told_and_change_no_variable(type: str, slot: str) -> None:
    definition = op_def(type)
    good, bad = all_spoiled(definition, slot)
    told = {}
    for name in ("cpu", *OTHERS):
        with on(name):
            training = Training(definition, good)
            training.run(definition, good)
            before = training.state()
            with pytest.raises((IndexRangeError, FeedError)) as raised:
                training.run(definition, bad)
            told[name] = raised.value
            assert training.state() == before, name
            training.run(definition, good)
    for name in OTHERS:
        assert parts(told[name]) == parts(told["cpu"]), name
        assert "test_bad_positions.py" in str(told[name])


# ------------------------------------------------------------------------------------------------------------ whole nets
GOOD = {"ids": np.array([[1, 2], [3, 0], [2, 2]]), "y": np.array([[0], [3], [1]])}
BAD_IDS = {**GOOD, "ids": np.array([[1, 2], [3, 9], [2, 2]])}
BAD_LABEL = {**GOOD, "y": np.array([[0], [4], [-7]])}


class Net:
    """A net with every kind of state: parameters, moments, running statistics, averages, a loss scale, a kept value."""

    def __init__(self, amp: bool = False) -> None:
        declare.reset_default_programs()
        paddle.seed(5)
        self.scope = static.Scope()
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            ids, label = static.data("ids", [None, 2], "int64"), static.data("y", [None, 1], "int64")
            h = static.nn.batch_norm(static.nn.fc(static.nn.embedding(ids, [4, 3]), 6))
            h = paddle.nn.functional.dropout(h, 0.3)
            self.loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(h, 4), label))
            kept = self.main.global_block().create_var(name="kept", shape=[1], dtype="float32", persistable=True)
            paddle.assign(paddle.reshape(self.loss, [1]) * 2.0, output=kept)
            optimizer = paddle.optimizer.Adam(0.1)
            if amp:
                optimizer = static.amp.decorate(optimizer, init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
            optimizer.minimize(self.loss)
            static.ExponentialMovingAverage(0.9).update()
        with static.scope_guard(self.scope):
            self.exe = static.Executor(CPUPlace())
            self.exe.run(startup)

    def run(self, feed: dict[str, Any], fetch: bool = True) -> list[Any]:
        with static.scope_guard(self.scope):
            return self.exe.run(self.main, feed=feed, fetch_list=[self.loss] if fetch else [])

    def state(self) -> dict[str, bytes | None]:
        """The bytes of all variables; ``None`` for one that has no value yet."""
        found: dict[str, bytes | None] = {}
        for name in [v.name for v in self.main.list_vars() if v.persistable]:
            tensor = self.scope.find_var(name)
            tensor = None if tensor is None else tensor.get_tensor()
            found[name] = np.array(tensor).tobytes() if tensor is not None and tensor._is_initialized() else None
        return found


def stays(net: Net, feed: dict[str, Any], fetch: bool = True) -> bool:
    """Whether a run on a bad feed raises and leaves all variables as they were."""
    before = net.state()
    with pytest.raises(IndexRangeError):
        net.run(feed, fetch)
    return net.state() == before


@pytest.mark.parametrize(
    ("name", "amp"), [("cpu", False), ("torch", False), *((name, amp) for name in LATE for amp in (False, True))]
)
def test_a_net_goes_on_as_if_the_bad_runs_had_not_been(name: str, amp: bool) -> None:
    with on(name):
        plain, met = Net(amp), Net(amp)
        assert stays(met, BAD_IDS)
        met.run(GOOD)
        assert stays(met, BAD_LABEL, fetch=False)
        met.run(GOOD)
        for _ in range(2):
            plain.run(GOOD)
        assert met.state() == plain.state()


def test_of_several_bad_positions_the_first_in_the_programs_order_is_told() -> None:
    told = {}
    for name in ("cpu", *OTHERS):
        with on(name):
            net = Net()
            with pytest.raises((IndexRangeError, FeedError)) as raised:
                net.run({**BAD_IDS, "y": BAD_LABEL["y"]})
            told[name] = parts(raised.value)
    assert all(one == told["cpu"] for one in told.values())


def orders(count: int = 6) -> Iterator[Net]:
    """Nets on the fake device, whose streams continue in other orders."""
    for number in range(count):
        FAKE.reseed(number)
        with on("fake"):
            net = Net()
            net.run(GOOD)
            yield net


def test_no_order_of_the_streams_changes_a_variable() -> None:
    assert all(stays(net, BAD_LABEL) for net in orders())


def test_the_host_does_not_wait_between_the_main_region_and_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    with on("fake"):
        net = Net()
        net.run(GOOD)
        waits: list[Any] = []
        for name in ("synchronize", "finish"):
            right = getattr(FAKE, name)
            monkeypatch.setattr(FAKE, name, lambda *given, right=right: [waits.append(given), right(*given)])
        net.run(GOOD, fetch=False)
    assert len(waits) == 1


# -------------------------------------------------------------------------------------------------------- planted faults
def _without_a_word(self: Any, skip: Any, op: Any, ins: Any, outs: Any, stream: Any, scratch: Any = None) -> Any:
    return self.bind(op, ins, outs, {}, stream, scratch)


@pytest.mark.parametrize("name", LATE)
def test_an_update_that_asks_no_word_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in (FakeDevice, CudaDevice):
        monkeypatch.setattr(device, "bind_unless", _without_a_word)
    with on(name):
        net = Net()
        net.run(GOOD)
        assert not stays(net, BAD_LABEL)


@pytest.mark.parametrize("name", LATE)
def test_a_commit_that_asks_no_word_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in (FakeDevice, CudaDevice):
        monkeypatch.setattr(device, "copy_unless", lambda self, skip, to, of, stream: self.copy(to, of, stream))
    with on(name):
        net = Net()
        net.run(GOOD)
        assert not stays(net, BAD_LABEL)


@pytest.mark.parametrize("name", LATE)
def test_an_op_without_its_check_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "limited", lambda definition, ins, attrs: [])
    with on(name):
        training = Training(op_def("gather"), sample_of(op_def("gather"))[0])
        good, found = sample_of(op_def("gather"))
        with pytest.raises(IndexError) as raised:
            training.run(op_def("gather"), spoiled(good, *found[-1][:2], found[-1][3]))
    assert "noticed" not in str(raised.value)


def test_an_update_that_does_not_wait_for_the_checks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = binding.Binding._fences

    def unordered(self: binding.Binding, name: str) -> list[ReadyStep]:
        return [replace(one, reads=[], writes=[]) if one.reads is None else one for one in right(self, name)]

    monkeypatch.setattr(binding.Binding, "_fences", unordered)
    fork = LateGraph._fork

    def forked(self: LateGraph) -> None:
        if not any(op is not None and op.role & OpRole.Optimize for _, calls in self._turns for _, op in calls):
            fork(self)

    monkeypatch.setattr(LateGraph, "_fork", forked)
    paddle.set_flags({"FLAGS_cuda_graph": "off"})  # a capture would refuse it

    def right_too(net: Any) -> bool:
        try:
            return stays(net, BAD_LABEL)
        except AssertionError:  # the host finds no bad position where the device found one
            return False

    try:
        fine = all(right_too(net) for net in orders())
    except AssertionError:  # so it does for a good one
        fine = False
    assert not fine


def loss_of_no_classes(name: str, label: Any) -> Any:
    """The losses and the input's gradient of three rows without classes."""
    main = static.Program()
    with on(name), static.program_guard(main, static.Program()):
        x = static.data("x", [3, 0])
        x.stop_gradient = False
        labels = static.data("label", [3], str(label.dtype))
        loss = paddle.nn.functional.nll_loss(x, labels, ignore_index=-100, reduction="none")
        (dx,) = static.gradients([paddle.sum(loss)], [x])
        feed = {"x": np.ones((3, 0), "float32"), "label": label}
        return static.Executor(CPUPlace()).run(main, feed=feed, fetch_list=[loss, dx])


@pytest.mark.parametrize("name", ["cpu", *OTHERS])
def test_labels_of_no_classes_may_all_be_ignored(name: str) -> None:
    """Devices that learn of bad labels later refused them before they looked: only ``ignore_index`` is allowed there."""
    loss, dx = loss_of_no_classes(name, np.full(3, -100))
    assert loss.tolist() == [0, 0, 0]
    assert dx.shape == (3, 0)
    # The neighbours of an empty range, -1 and 0, are no classes either.
    for bad in (-1, 0, 7):
        with pytest.raises(IndexRangeError, match="class number that is out of range") as caught:
            loss_of_no_classes(name, np.array([-100, bad, -100]))
        assert str(bad) in str(caught.value)
    with pytest.raises(IndexRangeError):  # a type that cannot hold the value which is ignored: 156 is -100 modulo 256
        loss_of_no_classes(name, np.full(3, 156, np.uint8))
