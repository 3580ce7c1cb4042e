"""How a step's gradients travel: divided, in 16 bits, over several rings, in the stream of the computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import first_gpu
from tests.parallel.golden import Net, strategy
from tstatic import devices, fluid, static
from tstatic.comm.passes.data_parallel import distribute
from tstatic.comm.passes.distribution import Distribution, Exchange
from tstatic.devices.fake import FakeDevice
from tstatic.devices.fake.clock import FakeStream
from tstatic.static.compile import pipeline
from tstatic.static.run.compiled_program import Settings
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy

Kind = static.BuildStrategy.ReduceStrategy
PLACES = 2


def net(wrap: Callable[[Any], Any] = lambda rule: rule) -> Net:
    """Three layers; the gradient of the middle one is larger than the others."""
    paddle.seed(1)
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        h = static.data("X", [None, 16])
        for width in (64, 96, 4):
            h = static.nn.fc(h, width, activation="tanh")
        loss = paddle.mean(paddle.square(h))
        wrap(paddle.optimizer.Momentum(0.1, 0.9)).minimize(loss)
    return Net(main, startup, loss)


def bf16(rule: Any) -> Any:
    return static.amp.decorate(rule, dtype="bfloat16", use_dynamic_loss_scaling=False, init_loss_scaling=1.0)


@dataclass
class Trained:
    """What two steps left and did: parameters, what the group counted in the second, and its sessions."""

    values: dict[str, np.ndarray[Any, Any]]
    calls: int
    nbytes: int
    sessions: Any


def train(
    built: Net, exchange: Exchange | None = None, build: BuildStrategy | None = None, numerics: str | None = None
) -> Trained:
    """Two steps on two places, with what a strategy of fleet would say."""
    scope, exe = static.Scope(), static.Executor("cpu")
    exe.run(built.startup, scope=scope)
    built.main.distributed = Settings(
        build or BuildStrategy(), ExecutionStrategy(), parallel=True, places=["cpu"] * PLACES,
        exchange=exchange or Exchange(), numerics=numerics,
    )  # fmt: skip
    x = np.linspace(-1, 1, 16 * 2 * PLACES, dtype=np.float32).reshape(2 * PLACES, 16)
    before = 0, 0
    for _ in range(2):
        exe.run(built.main, feed={"X": x}, fetch_list=[built.loss], scope=scope)
        group = next(iter(exe._replicas.values())).group
        counted = group.calls - before[0], group.moved - before[1]
        before = group.calls, group.moved
    names = [p.name for p in built.main.all_parameters()]
    values = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    running = next(iter(exe._replicas.values())).running
    assert running is not None
    made = Trained(values, *counted, running.sessions)
    exe.close()
    return made


def same(a: Trained, b: Trained) -> None:
    assert a.values.keys() == b.values.keys()
    for name in a.values:
        assert a.values[name].tobytes() == b.values[name].tobytes(), name


# --------------------------------------------------------------------------------------------------------------- buckets
@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
@pytest.mark.parametrize(("flag", "calls"), [(0.0, 6), (1 / 1024, 33), (4 / 1024, 9), (1.0, 1)])
def test_the_bits_do_not_depend_on_where_gradients_are_cut(flag: float, calls: int, kind: Any, device: str) -> None:
    with devices.use(device):
        whole = train(net(), build=strategy(reduce_strategy=kind, fuse_broadcast_ops=True))
        paddle.set_flags({"FLAGS_fuse_parameter_memory_size": flag})
        cut = train(net(), build=strategy(reduce_strategy=kind, fuse_broadcast_ops=True))
    same(whole, cut)
    assert whole.nbytes == cut.nbytes
    assert cut.calls - whole.calls == calls - 1, "of 16 x 64, 64 x 96, 96 x 4 numbers and their biases"


def test_the_size_of_the_last_bucket_is_that_of_the_strategy() -> None:
    """Of 4 KB at most there are five buckets; the last gradients are 64 numbers, then 16 x 64."""
    sizes = {}
    for last in (0.0, 1 / 4096, 1.0):
        built = net()
        paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 8 / 1024})
        made = train(built, Exchange(last_megabytes=last))
        ops = [s.op for s in made.sessions[0].plan.steps if s.op.type == "c_allreduce_sum"]
        sizes[last] = [len(op.outputs[0] or ()) for op in ops]
    assert sizes[0.0][-1] == 1
    assert sizes[1.0][-1] == 2
    assert sizes[1 / 4096][-1] == 1


def test_a_nan_in_a_divided_gradient_is_named() -> None:
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 1 / 1024, "FLAGS_check_rank_gradients": 1})
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        loss = paddle.mean(static.nn.fc(static.data("X", [None, 16]), 64))
        paddle.optimizer.SGD(0.1).minimize(loss)
    built = Net(main, startup, loss)
    scope, exe = static.Scope(), static.Executor("cpu")
    exe.run(built.startup, scope=scope)
    program = static.CompiledProgram(built.main).with_data_parallel(built.loss.name, places=["cpu"] * PLACES)
    x = np.ones((2 * PLACES, 16), np.float32)
    x[-1, 0] = np.nan
    with pytest.raises(paddle.errors.RankNumericsError, match=r"place 1 of 2") as raised:
        exe.run(program, feed={"X": x}, fetch_list=[built.loss], scope=scope)
    assert "fc_0.w_0@GRAD" in str(raised.value)
    exe.close()


# --------------------------------------------------------------------------------------------------------------- 16 bits
def close(a: Trained, b: Trained) -> None:
    """Within the table of tolerances for bfloat16, against the size of a step."""
    for name in a.values:
        assert not np.array_equal(a.values[name], b.values[name]) or name.endswith("b_0")
        np.testing.assert_allclose(a.values[name], b.values[name], rtol=1.6e-2, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
def test_gradients_that_were_computed_in_16_bits_travel_in_16_bits(kind: Any, device: str) -> None:
    build = strategy(reduce_strategy=kind, fuse_broadcast_ops=True)
    with devices.use(device):
        wide, low = (train(net(bf16), build=build, numerics=numerics) for numerics in ("strict", "default"))
    gradients = sum(value.nbytes for value in wide.values.values())
    assert wide.nbytes - low.nbytes == gradients / 2
    if kind is Kind.AllReduce:
        assert (wide.nbytes, low.nbytes) == (gradients, gradients / 2)
    close(wide, low)


def test_a_gradient_that_is_read_in_its_16_bits_too_stays_as_it_is() -> None:
    built = net(bf16)
    names = [n for op in built.main.global_block().ops for n in op.output_arg_names if n == "fc_1.w_0.cast_bf16@GRAD"]
    scope, exe = static.Scope(), static.Executor("cpu")
    exe.run(built.startup, scope=scope)
    program = static.CompiledProgram(built.main).with_data_parallel(built.loss.name, places=["cpu"] * PLACES)
    x = np.linspace(-1, 1, 16 * 2 * PLACES, dtype=np.float32).reshape(2 * PLACES, 16)
    exe.run(program, feed={"X": x}, fetch_list=[names[0]], scope=scope, return_merged=False)
    report = program.explain(fetch_list=[names[0]]).collectives
    assert report is not None
    assert (report.gradients, report.low) == (6, 5)
    exe.close()


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_fp16_allreduce_halves_what_float32_gradients_send(device: str) -> None:
    with devices.use(device):
        wide, half = train(net()), train(net(), Exchange(half=True))
    assert half.nbytes * 2 == wide.nbytes
    assert half.calls == wide.calls
    close(wide, half)
    assert all(value.dtype == np.float32 for value in half.values.values())


def test_float32_gradients_stay_as_they_are_otherwise() -> None:
    made = train(net())
    assert made.nbytes == sum(value.nbytes for value in made.values.values())


def test_casts_stand_behind_the_whole_backward_part() -> None:
    """In front of it they would make the computation wait for a sum that is on its way."""
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 1 / 1024})
    made = train(net(bf16))
    kinds = [step.op.type for step in made.sessions[0].plan.steps]
    last = max(i for i, kind in enumerate(kinds) if kind.endswith("_grad"))
    sums = [i for i, kind in enumerate(kinds) if kind == "c_allreduce_sum"]
    assert min(sums) < last
    ops = [step.op for step in made.sessions[0].plan.steps]
    assert all(i > max(sums) for i, op in enumerate(ops) if op.type == "cast" and op.role_var)


# ----------------------------------------------------------------------------------------------------------- the streams
def rings_of(made: Trained) -> list[bool]:
    """Whether each stream of collectives had work, on any place: small sums are made by the last one to arrive."""
    streams: list[list[FakeStream]] = [[s for s in one.streams if s.collective] for one in made.sessions]
    return [any(s.spent > 0 for s in of_ring) for of_ring in zip(*streams, strict=True)]


def test_rings_have_streams_of_their_own_and_take_turns() -> None:
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 0.0})
    with devices.use("fake"):
        one = train(net())
        three = train(net(), build=strategy(nccl_comm_num=3))
    same(one, three)
    assert rings_of(one) == [True]
    assert rings_of(three) == [True] * 3
    rings = [s.op.attrs["ring"] for s in three.sessions[0].plan.steps if s.op.type == "c_allreduce_sum"]
    assert rings == [0, 1, 2, 0, 1, 2]


@pytest.mark.numpy_device("the CPU's bits are compared with", not_on=("torch",))
@pytest.mark.parametrize("seed", range(4))
def test_rings_are_right_in_any_order_of_their_streams(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 0.0})
    plain = train(net(bf16))
    with devices.use("fake"):
        monkeypatch.setattr(devices.cpu_device(), "_seed", seed)
        same(plain, train(net(bf16), build=strategy(nccl_comm_num=2)))


def test_collectives_go_into_the_stream_of_the_computation_where_that_is_asked_for() -> None:
    with devices.use("fake"):
        apart, together = train(net()), train(net(), Exchange(same_stream=True))
    same(apart, together)
    assert rings_of(apart) == [True]
    assert rings_of(together) == [False]


def test_the_host_waits_behind_each_collective_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    count: Counter[str] = Counter()
    plain = FakeDevice.synchronize

    def counting(self: FakeDevice, streams: Any = None) -> None:
        if streams is not None and len(streams) == 1 and streams[0].collective:
            count["waits"] += 1
        plain(self, streams)

    monkeypatch.setattr(FakeDevice, "synchronize", counting)
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 0.0})
    with devices.use("fake"):
        without = train(net())
        assert count["waits"] == 0
        waiting = train(net(), Exchange(waits=True))
    same(without, waiting)
    assert count["waits"] == 2 * PLACES * 6, "two steps, six gradients"


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "same stream": {"exchange": Exchange(same_stream=True)},
    "waits": {"exchange": Exchange(waits=True)},
    "float16": {"exchange": Exchange(half=True)},
    "rings": {"build": strategy(nccl_comm_num=3)},
}


@pytest.mark.torch
@pytest.mark.parametrize("wrap", [lambda rule: rule, bf16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_two_places_of_a_gpu_exchange_what_those_of_the_cpu_do(way: str, wrap: Callable[[Any], Any]) -> None:
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 1 / 1024})
    with first_gpu(), devices.use("gpu"):
        found = train(net(wrap), **WAYS[way])
    wanted = train(net(wrap), **WAYS[way])
    assert (found.calls, found.nbytes) == (wanted.calls, wanted.nbytes)
    for name, value in wanted.values.items():
        # The table of tolerances: bfloat16 has rtol 1.6e-2, and torch adds its products in another order.
        np.testing.assert_allclose(found.values[name], value, rtol=1.6e-2, atol=1e-3, err_msg=name)


def test_explain_says_where_and_how_gradients_travel() -> None:
    built = net(bf16)
    build = strategy(nccl_comm_num=2)
    program = static.CompiledProgram(built.main).with_data_parallel(built.loss.name, build, places=["cpu"] * PLACES)
    paddle.set_flags({"FLAGS_fuse_parameter_memory_size": 25.0})
    said = program.explain()
    reasons = {verdict.name: verdict.reason for verdict in said.verdicts}
    assert reasons["nccl_comm_num"] == "collectives take turns over 2 rings."
    assert "of at most 25 MB" in reasons["fuse_all_reduce_ops"]
    assert "6 of them in 16 bits" in reasons["fuse_all_reduce_ops"]
    assert "take turns over 2 rings" in str(said.collectives)


# ---------------------------------------------------------------------------------------------------------- accumulation
@pytest.mark.parametrize(("wrapped", "half"), [(False, False), (False, True), (True, False)])
def test_between_processes_a_run_that_completes_no_sum_sends_none(wrapped: bool, half: bool) -> None:
    """Also where a cast stands between the sum over runs and the exchange; casts of merged sums send 16 bits."""
    built = net(lambda rule: fluid.optimizer.GradientMergeOptimizer(bf16(rule) if wrapped else rule, 2))
    frozen, _ = pipeline.simplify(built.main, BuildStrategy(), ["X"], [built.loss.name])
    (program, *_), report = distribute(frozen, Distribution(1, 2, half=half, bucket_bytes=1024.0))
    holds = {op.outputs[0] for op in program.ops if op.type == "not_equal"}
    assert len(holds) == 1
    sums = [op for op in program.ops if op.type == "c_allreduce_sum"]
    assert len(sums) > 2
    assert {op.inputs[1] for op in sums} == holds
    assert report.low == (6 if half else 0)
