"""Runs the plan of a training step on devices that have addresses and a clock, but no arithmetic: what the exchange costs."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "bench")]

from models import MODELS  # noqa: E402 - the line above makes these importable for a script
from scaling_model import MEGABYTE, Gradient, Network, Work, all_reduce_step, ring_all_reduce  # noqa: E402
from scaling_table import PARTS, SWITCH, short_step  # noqa: E402

import tstatic as paddle  # noqa: E402
from tstatic import static  # noqa: E402
from tstatic.comm.group import Group  # noqa: E402
from tstatic.comm.passes.data_parallel import distribute  # noqa: E402
from tstatic.comm.passes.distribution import BUCKET_MEGABYTES, Distribution, Report  # noqa: E402
from tstatic.comm.transport import Part  # noqa: E402
from tstatic.devices.base import Array, KernelLaunch, Memory, MemoryKind  # noqa: E402
from tstatic.devices.cpu.buffer import ForeignBuffer, addresses_only  # noqa: E402
from tstatic.devices.fake import FakeArray, FakeDevice, FakeMemory  # noqa: E402
from tstatic.devices.step import BoundStep, HostArray, ReadyStep, Region, Schedule, Stream, of_calls  # noqa: E402
from tstatic.ir.frozen import FrozenOp, FrozenProgram  # noqa: E402
from tstatic.ir.operator import OpRole  # noqa: E402
from tstatic.ir.recording import Call  # noqa: E402
from tstatic.ir.types import Meta, dtype_of  # noqa: E402
from tstatic.plan.known_values import infer_program  # noqa: E402
from tstatic.plan.plan import Plan  # noqa: E402
from tstatic.runtime.replica_threads import ReplicaThreads  # noqa: E402
from tstatic.runtime.scope import Scope  # noqa: E402
from tstatic.runtime.session import Session  # noqa: E402
from tstatic.static.compile import pipeline  # noqa: E402
from tstatic.static.compile.request import state_metas  # noqa: E402
from tstatic.target import H200  # noqa: E402

Seconds = Mapping[str, float]
"""Name of a result -> the time of the step that makes it."""
FUSED = (
    "fuse_all_optimizer_ops", "fuse_gemm_epilogue", "enable_auto_fusion", "fused_attention", "fused_feedforward", "fuse_adamw",
    "fuse_dot_product_attention", "fuse_linear_cross_entropy", "fuse_embedding_grad_add", "fuse_elewise_add_act_ops",
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- the device
class ClockDevice(FakeDevice):
    """The fake device with one stream for the computation, where each step takes the time that a table says and does nothing else.

    Memory is addresses that the system keeps no pages for, so that eight replicas of any size fit.

    Args:
        seconds: The time of each step.
    """

    name = "clock"
    compute_streams = 1

    def __init__(self, seconds: Seconds) -> None:
        super().__init__(generated=True, target=H200)
        self._seconds = seconds

    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        if kind == "pinned":
            return super().allocate(nbytes, kind, purpose)
        return FakeMemory(ForeignBuffer(addresses_only((nbytes,), np.dtype(np.uint8))))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> FakeArray:
        return FakeArray(self, addresses_only(tuple(shape), dtype))

    def upload(self, array: HostArray) -> FakeArray:
        return self.empty(array.shape, array.dtype)

    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        if stream is not None:
            self._put(stream, _nothing, None, self._copy_seconds(destination, source, stream))

    def fill(self, destination: FakeArray, value: complex, stream: Stream | None = None) -> None:
        """Does nothing: what is written to would need memory."""

    def scratch_bytes(self, op: FrozenOp, metas: Mapping[str, Meta]) -> int:
        return 0

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        return of_calls([])

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        return []

    def schedule(self, steps: Sequence[ReadyStep], region: Region) -> Schedule:
        return super().schedule([self._timed(step) for step in steps], region)

    def _timed(self, step: ReadyStep) -> ReadyStep:
        """Returns a step whose only work takes its time; those of collectives keep theirs."""
        if step.op is None or step.op.definition.collective:
            return step
        work = of_calls([(self._put, (step.stream, _nothing, step.op, self._seconds[step.op.writes()[0]]))])
        return replace(step, work=work, before=[], after=[])

    def limit(self, *given: Any) -> list[Call]:
        return []  # positions are those of memory that nobody wrote


def _nothing() -> None:
    return None


class LinkTransport:
    """Connects the GPUs of a machine by links that a formula describes: a sum takes its time in a stream, and adds nothing.

    Args:
        devices: Number of GPUs in the formula.
        network: What connects them.
    """

    rank = 0
    only_queues = True
    own_streams = False

    def __init__(self, devices: int, network: Network) -> None:
        self.size, self._network = devices, network

    def of_ring(self, ring: int) -> LinkTransport:
        return self

    def shared(self, method: str, elements: int) -> bool:
        return False

    def sum(self, parts: Sequence[Part], mine: int, roots: Sequence[int] | None = None, block: int = 0) -> list[Call]:
        lane, nbytes = parts[mine].lane, sum(array.nbytes for array in parts[mine].arrays)
        if not nbytes:
            return []
        seconds = self._network.time(self.size, ring_all_reduce(nbytes, self.size), 2)
        assert isinstance(lane.device, ClockDevice)
        return [(lane.device._put, (lane.stream, _nothing, None, seconds))]

    def scatter(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        raise NotImplementedError("the steps of this page have no scatter")

    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array | None]) -> list[Call]:
        raise NotImplementedError("the steps of this page have no gather")

    def send(self, parts: Sequence[Part], mine: int, roots: Sequence[int]) -> list[Call]:
        raise NotImplementedError("the steps of this page send nothing from owners")

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        return [note]

    def abort(self, error: BaseException) -> None:
        """Does nothing: work in streams ends by itself."""


# ----------------------------------------------------------------------------------------------------------- the plan
@functools.cache
def _simplified(name: str) -> tuple[static.Program, FrozenProgram, static.BuildStrategy]:
    model = MODELS[name]
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        loss = model.build(paddle)
    build = static.BuildStrategy()
    for switch in FUSED:
        setattr(build, switch, True)
    frozen, _ = pipeline.simplify(main, build, list(model.feeds), [loss.name])
    return main, frozen, build


@dataclass(frozen=True)
class Planned:
    """A model's step for a chip, as replicas run it.

    Attributes:
        name: The model's.
        plan: The plan.
        metas: Metadata of all its values.
        seconds: The time of each step.
        report: What the replicas exchange.
    """

    name: str
    plan: Plan
    metas: Mapping[str, Meta]
    seconds: Seconds
    report: Report


def part_of(op: FrozenOp) -> str:
    """The part of a step that an op belongs to."""
    if op.role & OpRole.Optimize:
        return "update"
    return "backward" if op.role & OpRole.Backward else "forward"


@functools.cache
def planned(name: str, devices: int, megabytes: float | None = BUCKET_MEGABYTES, same_stream: bool = False) -> Planned:
    """Plans a model's fused step for so many GPUs; its parts take what ``PARTS`` says."""
    main, frozen, build = _simplified(name)
    limit = None if megabytes is None else megabytes * MEGABYTE
    how = Distribution(devices, devices, bucket_bytes=limit, same_stream=same_stream)
    (program, *_), report = distribute(frozen, how)
    given = {program.reads[var]: meta for var, meta in state_metas(program, main, Scope()).items()}
    block = main.global_block()
    given.update((n, Meta(tuple(s), dtype_of(block.var(n).dtype))) for n, s in MODELS[name].feeds.items())
    fused, metas = pipeline.fuse(program, infer_program(program, given), build)
    plan = pipeline.lower(fused, metas, build, ClockDevice({}), H200)
    return Planned(name, plan, metas, _times(plan, metas), report)


def work_of(name: str) -> Work:
    """A model's fused step as the formulas see it: each gradient when the step that makes it has ended."""
    step = planned(name, 2, 0.0)
    parts, found = dict.fromkeys(PARTS, 0.0), []
    for one in step.plan.steps:
        if one.op.type == "c_allreduce_sum":
            found.append((step.metas[one.op.reads()[0]], parts["backward"]))
        elif one.how not in ("view", "joined"):
            parts[part_of(one.op)] += step.seconds[one.op.writes()[0]]
    gradients = tuple(Gradient(m.nbytes, m.numel, at / parts["backward"], m.dtype.name) for m, at in found)
    return Work(MODELS[name].title, gradients, *PARTS.values(), clipped=True)


def _times(plan: Plan, metas: Mapping[str, Meta]) -> Seconds:
    """Each step's time by its products or its bytes, whichever take longer, so scaled that the parts of a step take theirs."""
    raw: dict[str, tuple[str, float]] = {}
    for step in plan.steps:
        if step.how in ("view", "joined") or step.op.definition.collective:
            continue
        for value in step.op.writes():
            raw[value] = part_of(step.op), _estimate(step.op, metas)
    firsts = {step.op.writes()[0] for step in plan.steps if step.op.writes()} & raw.keys()
    sums = {part: sum(raw[v][1] for v in firsts if raw[v][0] == part) for part in PARTS}
    return {v: seconds * PARTS[part] / sums[part] for v, (part, seconds) in raw.items()}


def _estimate(op: FrozenOp, metas: Mapping[str, Meta]) -> float:
    moved = sum(metas[v].nbytes for v in {*op.reads(), *op.writes()} if v in metas)
    return max(sum(_flops(one, metas) for one in op.body or (op,)) / H200.matrix_rate, moved / H200.bandwidth)


def _flops(op: FrozenOp, metas: Mapping[str, Meta]) -> float:
    cost = op.definition.cost
    if cost is None or not all(v in metas for v in (*op.reads(), *op.writes())):
        return 0.0
    slots = (metas[e] if isinstance(e, str) else None for e in (*op.inputs, *op.outputs))
    return float(cost(*slots, **op.definition.pick(cost, op.attrs)).flops)


# ------------------------------------------------------------------------------------------------------------- the run
def run(step: Planned, devices: int, network: Network, replicas: int | None = None) -> float:
    """Runs the second step of a training on so many GPUs; returns its virtual seconds.

    Args:
        step: Its plan.
        devices: Number of GPUs.
        network: What connects them.
        replicas: Number of GPUs that are run, which are alike; all if ``None``.
    """
    count = devices if replicas is None else replicas
    group = Group(count, None, LinkTransport(devices, network)) if devices > 1 else None
    device = ClockDevice(step.seconds)
    sessions = [_session(step, device, group, place) for place in range(count)]
    metas = {name: step.metas[name] for name in step.plan.program.feeds}
    feeds = {name: np.zeros(meta.shape, meta.dtype.np) for name, meta in metas.items()}
    tasks: list[Callable[[], Any]] = [partial(one.run, feeds) for one in sessions]
    if group is None:
        tasks[0]()
        tasks[0]()
    else:
        threads = ReplicaThreads(count, group)
        try:
            threads.run(tasks, 600.0)
            threads.run(tasks, 600.0)
        finally:
            threads.close()
    found = max(one.device_seconds or 0.0 for one in sessions)
    for one in sessions:
        one.drop()
    gc.collect()  # addresses are scarce, too, and sessions are known to each other
    return found


def _session(step: Planned, device: ClockDevice, group: Group | None, place: int) -> Session:
    scope = Scope()
    for var, value in step.plan.program.reads.items():
        meta = step.metas[value]
        scope.publish(var, device.empty(meta.shape, meta.dtype.np))
    communicator = None if group is None else group.communicator(place, device)
    return Session(step.plan, scope, device, communicator=communicator, place=place)


def waited(step: Planned, devices: int, network: Network = SWITCH, replicas: int | None = None) -> float:
    """Seconds of a step, as it is run, in which a GPU waits for the exchange."""
    return run(step, devices, network, replicas) - run(planned(step.name, 1), 1, network)


def main() -> None:
    """Prints the share of GPT-2's step in which eight GPUs wait, as run and by the formula."""
    for name in ("gpt-bf16", "gpt"):
        step, work = planned(name, 8), short_step(name)
        told = all_reduce_step(work, 8, SWITCH, BUCKET_MEGABYTES * MEGABYTE).waited
        found = waited(step, 8)
        print(f"{work.title}: {found / work.alone:.2%} as run, {told / work.alone:.2%} by the formula; {step.report}")


if __name__ == "__main__":
    main()
