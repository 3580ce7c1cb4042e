"""What ranks do in the trials of this folder; they print lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tstatic as paddle
from tstatic import distributed, flags, logs, static, version
from tstatic.comm import liveness, processes
from tstatic.comm.group import Group
from tstatic.comm.liveness import mesh
from tstatic.comm.rendezvous import launch
from tstatic.comm.transport import gloo
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.errors import RankFailedError
from tstatic.formats.schema import this_process
from tstatic.runtime.replica_threads import ReplicaThreads


def say(*values: Any) -> None:
    os.write(1, (json.dumps(values[0] if len(values) == 1 else values) + "\n").encode())


def group() -> processes.Processes:
    made = processes.world()
    assert made is not None
    return made


def values(rank: int, count: int, dtype: str) -> Any:
    """Numbers of widely different size, so that another order of additions gives other bits."""
    rng = np.random.default_rng(1000 + rank)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 20, count).astype(dtype)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(np.dtype(dtype))


def sums(dtypes: list[str], counts: list[int], strict: bool) -> None:
    """Compares sums with those of numpy, which every rank can form by itself."""
    flags.set_flags({"FLAGS_numerics": "strict" if strict else "default"})
    world = group()
    assert ml_dtypes.bfloat16
    for dtype in dtypes:
        arrays = [values(world.rank, count, dtype) for count in counts]
        world.all_reduce(arrays)
        for count, array in zip(counts, arrays, strict=True):
            parts = [values(rank, count, dtype) for rank in range(world.size)]
            low = parts[0].dtype.itemsize == 2
            total = parts[0].astype(np.float32 if low else parts[0].dtype)
            for part in parts[1:]:
                total = total + part.astype(total.dtype)
            total = total.astype(parts[0].dtype)
            equal = array.tobytes() == total.tobytes()
            near = np.allclose(
                array.astype(np.float64), total.astype(np.float64), rtol=2e-2 if low else 1e-4, atol=1e-2
            )
            say(dtype, count, bool(equal), bool(near), str(array.dtype))
    say(world.calls, world.moved)


def gathers() -> None:
    world = group()
    say(world.all_gather(np.arange(6, dtype=np.int16).reshape(2, 3) + 10 * world.rank).tolist())
    say(world.all_gather(np.float64(world.rank)).tolist(), world.all_gather(np.zeros((0, 2))).shape)
    view = np.zeros((4, 6), np.float32)[::2, 1:4]
    view += world.rank + 1
    scalar = np.array(world.rank + 1.0)
    world.all_reduce([view, scalar, np.zeros(0)])
    say(view.tolist(), float(scalar))
    given = [np.full((2, 2), world.rank, np.float32), np.full(3, world.rank, ml_dtypes.bfloat16)]
    world.broadcast(given, root=world.size - 1)
    say([one.astype(float).tolist() for one in given])


def hierarchical(fail: bool) -> None:
    """Two replicas in each process: sums within the process first, then over the processes."""
    flags.set_flags({"FLAGS_numerics": "strict", "FLAGS_step_timeout_s": 5.0})
    world = group()
    team = Group(2, GlooTransport(world))
    threads = ReplicaThreads(2, team)

    def task(replica: int) -> list[Any]:
        me = team.communicator(replica)
        number = 2 * world.rank + replica
        small, large = values(number, 100, "float32"), values(number, 100_000, "float32")
        if fail and number == 3:
            raise ValueError("a replica's planted fault")
        me.all_reduce([small, large])
        wide = np.empty((4, 3), np.float32)
        me.all_gather(np.full(3, number, np.float32), wide)
        me.commit()
        return [small.tobytes().hex(), large.tobytes().hex(), wide.tolist()]

    parts = [[values(n, count, "float32") for n in range(4)] for count in (100, 100_000)]
    expected = [((p[0] + p[1]) + (p[2] + p[3])).tobytes().hex() for p in parts]
    try:
        with world.step(5.0):
            found = threads.run([lambda i=i: task(i) for i in range(2)], 6.0)
    except BaseException as error:
        world.failed(error)
        say("error", str(error).splitlines()[0])
        raise
    say([one[:2] == expected for one in found], [one[2] for one in found])


def in_blocks(block: int, strict: bool) -> None:
    """Sums over blocks of neighbours first: compares with numpy's, taken in that order."""
    flags.set_flags({"FLAGS_numerics": "strict" if strict else "default"})
    world = group()
    world.form(block)
    world.form(block)
    counts = [3, 1000, 70_001]
    arrays = [values(world.rank, count, "float32") for count in counts]
    world.all_reduce(arrays, block)
    found = []
    for count, array in zip(counts, arrays, strict=True):
        parts = [values(rank, count, "float32") for rank in range(world.size)]
        total = sum_of([sum_of(parts[at : at + block]) for at in range(0, world.size, block)])
        found.append(array.tobytes() == total.tobytes() if strict else bool(np.allclose(array, total, 1e-4, 1e-2)))
    say(found, [zlib.crc32(array.tobytes()) for array in arrays], bool(np.any(arrays[2] != sum_of(parts))))
    say(sum(len(one) for one in world.exchange("bytes", "x" * world.rank)))


def sum_of(parts: list[Any]) -> Any:
    """Left to right."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def calls_functions() -> None:
    """Trains with a function of Python in the middle; each rank has numbered its functions otherwise."""
    rank = distributed.get_rank()
    this_process.cache_clear()  # ranks are forked from one process here, and no launcher does that
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 2])
        for i in range(rank):
            static.py_func(
                lambda a: a, x, main.current_block().create_var(name=f"o{i}", dtype="float32", shape=[-1, 2])
            )
        main.global_block().ops.clear()
        main.global_block().vars.clear()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        h = static.nn.fc(static.data("x", [None, 2]), 2, weight_attr=paddle.ParamAttr(name="w"), bias_attr=False)
        out = main.current_block().create_var(name="out", dtype="float32", shape=h.shape)
        static.py_func(lambda a: a, h, out, lambda a, y, dy: dy)
        loss = paddle.mean(out)
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()])
    for _ in range(2):
        exe.run(compiled, feed={"x": np.full((2, 2), rank + 1, np.float32)}, fetch_list=[loss])
    say("trained", zlib.crc32(np.array(static.global_scope().find_var("w").get_tensor()).tobytes()))


def block_breaks(block: int, victim: int) -> None:
    """A rank dies where the others add in blocks."""
    world = group()
    world.form(block)
    array = np.ones(1000, np.float32)
    for step in range(1_000_000):
        if step == 3 and world.rank == victim:
            suffer("kill")
        world.all_reduce([array], block)
        array[:] = 1


def joined() -> None:
    rank = distributed.get_rank()
    distributed.init_parallel_env()
    distributed.init_parallel_env()
    distributed.barrier()
    say(distributed.get_rank(), distributed.get_world_size())
    say(distributed.local(np.arange(7)).tolist(), distributed.local(list("abcdefg")))
    say(distributed.mean(rank + 1.0), distributed.mean(np.float32([rank, 2 * rank])).tolist(), distributed.mean(rank))
    say(type(distributed.mean(np.float32(rank))).__name__, distributed.mean(np.array([rank], np.float16)).dtype.name)


def feeds(alike: bool, steps: int) -> None:
    world = group()
    for step in range(steps):
        batch = {"x": np.full(4, step if alike else 10 * world.rank + step, np.float32)}
        if world.feeds.watching:
            world.feeds.note(processes.digest(batch))
        world.agree("commit")
    say(world.feeds.watching)


def same(what: str, odd: int) -> None:
    """All ranks but one have the same."""
    world = group()
    say("connected")
    world.check_same("abc" if world.rank != odd else "xyz", what)


def another_version(late: float) -> None:
    """Rank 1 has another version, and rank 0 sends what it says ``late`` seconds after it could."""
    if distributed.get_rank() == 1:
        version.__version__ = "0.0.0"
    else:
        distribute, due = mesh.Mesh._distribute, list[float]()

        def later(self: mesh.Mesh, selector: Any) -> None:
            if any(b'"said"' in data for _, data in self._outbox):
                due[:] = due or [time.monotonic() + late]
            if not due or time.monotonic() >= due[0]:
                distribute(self, selector)

        mesh.Mesh._distribute = later  # type: ignore[method-assign]
    group()


def alone() -> None:
    """One of three ranks; the others never start."""
    launch._current = launch.ProcessInfo(0, 3, 0, "127.0.0.1", int(os.environ["MASTER_PORT"]), "a test")
    group()


def early_end(code: int) -> None:
    """Rank 1 ends before it met the others, which wait for it."""
    if distributed.get_rank() == 1:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
                sys.exit(code)
            time.sleep(0.01)
    group()


def stillborn() -> None:
    """Rank 1 dies where the others already wait for it inside of gloo."""
    if distributed.get_rank() == 1:
        gloo.Gloo.__init__ = lambda *_: os._exit(7)  # type: ignore[method-assign,assignment,return-value]
    group()


def other_meeting() -> None:
    world = group()
    if world.rank == 0:
        world.all_reduce([np.ones(100, np.float32)])
    else:
        distributed.mean(1.0)


def other_history() -> None:
    world = group()
    world._history += world.rank  # as if it had run another collective
    world.agree("commit")


def suffer(kind: str) -> None:
    """One way to fail."""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exit":
        os._exit(0)
    elif kind == "raise":
        raise ValueError("a planted fault")
    elif kind == "interrupt":
        raise KeyboardInterrupt
    elif kind == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    elif kind == "slow":
        time.sleep(1000.0)
    elif kind == "leave":
        sys.exit(0)
    else:
        raise AssertionError(kind)


def train(
    fault: str, at: int, victims: list[int], steps: int = 1_000_000, pause: float = 0.0, count: int = 1000
) -> None:
    """Steps as of a training; at one of them some ranks fail. The others say what they saw, and raise it."""
    world = group()
    victim = world.rank in victims
    array = np.ones(count, np.float32)
    say("connected", time.time())
    try:
        if fault == "program":
            say("fault", time.time())
        world.check_same("another" if fault == "program" and victim else "one", "program")
        for step in range(steps):
            if step == at and victim:
                say("fault", time.time())
                if fault == "diverge":
                    world.check_same("another", "program")
                else:
                    suffer(fault)
            array[:] = 1
            world.all_reduce([array])
            if array[0] != world.size or array[-1] != world.size:
                raise AssertionError("a sum is wrong")
            world.agree("commit")
            time.sleep(pause)
    except RankFailedError as error:
        verdict = world.monitor.verdict
        say("error", time.time(), str(error), verdict and verdict.rank, verdict and verdict.kind)
        raise
    say("done", steps)


def absorbed() -> None:
    """All are connected, in no collective, and in no Python code."""
    group()
    say("connected")
    time.sleep(1000.0)


def lingers() -> None:
    """The last rank has more to do, for which it needs nobody."""
    world = group()
    distributed.barrier()
    if world.rank == world.size - 1:
        # Longer than it takes from a closed connection to the verdict and, at a grace of 0.1 s, to this rank's end.
        time.sleep(2 * (liveness.SETTLE + liveness.TICK))
        say("worked on alone")


def stubborn() -> None:
    """A rank that catches the error and goes on is told again."""
    world = group()
    say("connected")
    if world.rank == 1:
        time.sleep(1000.0)
    for _ in range(3):
        try:
            distributed.barrier()
        except RankFailedError as error:
            say(str(error).splitlines()[0])


def forked() -> None:
    """A child forked from a rank is refused, and does not keep the others from seeing its parent's death."""
    world = group()
    if world.rank == 1:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                distributed.barrier()
            except Exception as error:
                say(type(error).__name__)
            os.write(write, b"!")
            time.sleep(60.0)
            os._exit(0)
        os.read(read, 1)
        say("child", pid)
        suffer("kill")
    distributed.barrier()


def torchrun(name: str, arguments: dict[str, Any]) -> None:
    """Is torchrun's agent, which starts two processes that run a case; only its own imports are spared."""
    from torch.distributed import run

    os.setsid()  # whatever happens, the test can end all that it started
    command = ["--standalone", "--nproc_per_node", "2", "-m", "tests.comm.cases", name, json.dumps(arguments)]
    run.main(command)


def logged() -> None:
    logs.enable("dist")
    distributed.barrier()


if __name__ == "__main__":  # as a launcher starts it
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))


# ------------------------------------------------------------------------------------------------------------------ fleet
def fleet_net(seed: int) -> Any:
    """A small net in fresh default programs; returns its loss."""
    paddle.seed(seed)
    x, y = static.data("x", [None, 5]), static.data("y", [None, 1])
    hidden = static.nn.fc(x, 7, activation="tanh")
    return paddle.mean(paddle.square(static.nn.fc(hidden, 1) - y))


def fleet_rows(step: int, part: int, rows: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(100 * step + part)
    return {n: rng.standard_normal((rows, size)).astype("float32") for n, size in (("x", 5), ("y", 1))}


def fleet_train(fields: dict[str, Any], steps: int, optimizer: str, strict: bool = True) -> None:
    """Trains with fleet on this rank's parts of the batches; says the losses, and the parameters' bytes."""
    from tstatic.distributed import fleet

    flags.set_flags({"FLAGS_numerics": "strict" if strict else "default"})
    fleet.init(is_collective=True)
    rank, size = fleet.worker_index(), fleet.worker_num()
    loss = fleet_net(seed=rank)  # other parameters on each rank: the startup program gives all those of rank 0
    strategy = fleet.DistributedStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    rule = {"sgd": lambda: paddle.optimizer.SGD(0.1), "adam": lambda: paddle.optimizer.Adam(0.01)}[optimizer]()
    fleet.distributed_optimizer(rule, strategy).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    params = static.default_main_program().all_parameters()

    def values() -> list[str]:
        return [np.asarray(static.global_scope().find_var(p.name).get_tensor()).tobytes().hex() for p in params]

    say("start", values())
    losses = []
    for step in range(steps):
        (found,) = exe.run(feed=fleet_rows(step, rank), fetch_list=[loss])
        losses.append([float(found), list(found.shape)])
    report = fleet.explain().collectives
    say("end", values(), losses, [size, report.gradients, report.reductions] if report is not None else [size])


def fleet_of_1x() -> None:
    """A collective script of Paddle 1.x; says the parameters' bytes."""
    from tstatic import fluid
    from tstatic.fluid.incubate.fleet.base import role_maker
    from tstatic.fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    loss = fleet_net(seed=fleet.worker_index())
    strategy = DistributedStrategy()
    strategy.fuse_all_reduce_ops = False
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    shapes = []
    for step in range(2):
        (found,) = exe.run(fleet.main_program, feed=fleet_rows(step, fleet.worker_index()), fetch_list=[loss])
        shapes.append(list(found.shape))
    total = np.zeros(2)
    fleet.all_reduce_worker(np.array([1.0, fleet.worker_index()]), total)
    scope = static.global_scope()
    params = fluid.default_main_program().all_parameters()
    values = [np.asarray(scope.find_var(p.name).get_tensor()).tobytes().hex() for p in params]
    say(values, shapes, total.tolist(), fleet.main_program.explain().collectives.reductions)


def fleet_saves(folder: str) -> None:
    """Saves what fleet minimized; says whether this rank wrote."""
    from tstatic.distributed import fleet

    fleet.init(is_collective=True)
    loss = fleet_net(seed=0)
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    mine = folder if fleet.is_first_worker() else f"{folder}.{fleet.worker_index()}"
    fleet.save_persistables(exe, mine)
    fleet.barrier_worker()
    fleet.load_model(folder)
    say("wrote", os.path.isdir(mine))


def collectives() -> None:
    """Every collective of a program, once; says what this rank has."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x = static.data("x", [2])
    found: list[Any] = []
    for op in range(5):
        total = x * 1.0
        distributed.all_reduce(total, op=op)
        found.append(total)
    sent, reduced, own = x + 0.0, x + 0.0, x + 0.0
    distributed.broadcast(sent, src=1)
    distributed.reduce(reduced, dst=1)
    parts: list[Any] = []
    distributed.all_gather(parts, x)
    entry = x * 0.0
    distributed.reduce_scatter(entry, [x + float(i) for i in range(size)])
    got = x * 0.0
    distributed.scatter(got, [x + 10.0 * i for i in range(size)] if rank == 1 else None, src=1)
    out: list[Any] = []
    distributed.alltoall([x + 100.0 * i for i in range(size)], out)
    flat, swapped = paddle.concat([x + i for i in range(size)]), paddle.zeros([2 * size], "float32")
    distributed.alltoall_single(flat, swapped)
    group = distributed.new_group([0, 1])
    if group.is_member():
        distributed.all_reduce(own, group=group)
    results = [*found, sent, reduced, *parts, entry, got, *out, swapped, own]
    exe = static.Executor()
    for run in range(2):
        values = exe.run(feed={"x": np.float32([rank + 1, 10 * (rank + 1) + run])}, fetch_list=results)
    say([np.asarray(v).tolist() for v in values])


def barriers() -> None:
    """Says the ops of a program with barriers, and whether its run waited for rank 0, which comes late."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    pair = distributed.new_group([0, size - 1])
    main = static.Program()
    with static.program_guard(main):
        distributed.barrier()
        distributed.barrier(pair)
    distributed.barrier(pair)
    distributed.barrier()
    start = time.monotonic()
    if rank == 0:
        time.sleep(0.5)
    static.Executor().run(main)
    say([op.type for op in main.global_block().ops], time.monotonic() - start >= 0.45)


def ring() -> None:
    """Each rank sends to the next one, twice; the first rank sends first."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x = static.data("x", [3])
    got = [paddle.zeros([3], "float32") for _ in range(2)]

    def both() -> None:
        for i in range(2):
            distributed.send(x + float(i), dst=(rank + 1) % size)

    if rank == 0:
        both()
    for one in got:
        distributed.recv(one, src=(rank - 1) % size)
    if rank != 0:
        both()
    exe = static.Executor()
    say([v.tolist() for v in exe.run(feed={"x": np.full(3, 10.0 * rank, "float32")}, fetch_list=got)])


def wait_for_line(rank: int) -> None:
    """Waits until another rank of this trial has printed a line: what ranks print lies side by side, in a file for each."""
    mine = Path(os.readlink("/proc/self/fd/1"))
    while not mine.with_name(f"out.{rank}").read_text():
        time.sleep(0.01)


def unmatched(kind: str) -> None:
    """Rank 0 waits for a transfer that rank 1 does not make; says that it is connected, and the error."""
    rank = distributed.get_rank()
    distributed.init_parallel_env()
    # Where nobody comes the time-out is seen to act; elsewhere a busy machine must not bring it about.
    flags.set_flags({"FLAGS_step_timeout_s": 1.5 if kind in ("send", "recv") else 60.0})
    if rank == 0:
        say("connected")
    x = static.data("x", [3])
    got = paddle.zeros([3], "float32")
    start = time.monotonic()
    if rank == 0:
        distributed.send(x, dst=1) if kind in ("send", "crossed") else distributed.recv(got, src=1)
    elif kind == "leave":
        return
    elif kind == "die":
        # Rank 0 may still be in init_parallel_env, whose own messages the death of a rank would break off.
        wait_for_line(0)
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "crossed":
        distributed.send(x, dst=0)
    else:
        time.sleep(1000.0)
    try:
        static.Executor().run(feed={"x": np.zeros(3, "float32")}, fetch_list=[got])
        say("no error")
    except RankFailedError as error:
        say("error", str(error).splitlines()[0], round(time.monotonic() - start, 1))
        raise


def shuffled_samples(counts: list[int]) -> None:
    """Shuffles samples of all ranks, of which each had some; says twice what this rank has then, and how many there are."""
    from tstatic.distributed import fleet

    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    numbers = static.data("numbers", [None, 1], "int64", lod_level=1)
    label = static.data("label", [None, 1], "float32")
    first = sum(counts[:rank])
    lines = [" ".join(map(str, [n % 3 + 1, *[n] * (n % 3 + 1), 1, n / 2])) for n in range(first, first + counts[rank])]
    path = os.path.join(tempfile.mkdtemp(), "samples")
    with open(path, "w") as file:
        file.writelines(line + "\n" for line in lines)
    for _ in range(2):
        paddle.seed(3 + 5 * rank)
        dataset = distributed.InMemoryDataset()
        dataset.init(batch_size=1, use_var=[numbers, label])
        dataset.set_filelist([path])
        dataset.load_into_memory()
        dataset.global_shuffle(fleet)
        sizes = (
            dataset.get_memory_data_size(),
            dataset.get_memory_data_size(fleet),
            dataset.get_shuffle_data_size(fleet),
        )
        had = [
            [np.asarray(feed["numbers"]).ravel().tolist(), float(np.asarray(feed["label"])[0, 0])]
            for feed in (dataset.batches() if sizes[0] else ())
        ]
        say(sizes, had)
    os.unlink(path)


def fleet_utilities() -> None:
    """Exchanges of arrays, shares of files, metrics."""
    from tstatic.distributed import fleet

    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    util = fleet.util
    say(
        util.all_reduce(np.array([rank + 1, 2.5])).tolist(),
        int(util.all_reduce(rank, "max")),
        util.all_gather({"rank": rank}),
    )
    say(util.get_file_shard(["a", "b", "c"]), fleet.worker_num(), fleet.node_num(), fleet.worker_endpoints())
    objects: list[Any] = [rank, "of this rank"]
    distributed.broadcast_object_list(objects, src=1)
    gathered: list[Any] = []
    distributed.all_gather_object(gathered, {"rank": rank, "text": "a" * rank})
    scattered: list[Any] = []
    distributed.scatter_object_list(scattered, [{"to": 0}, {"to": 1}] if rank == 1 else None, src=1)
    say(objects, gathered, scattered)
    fleet.barrier_worker()
    util.print_on_rank('["only rank 1"]', 1)
    metrics = fleet.metrics
    say(
        metrics.acc(np.array([3.0 + rank]), np.array([5.0])), metrics.mae(np.array([2.0]), 4), metrics.rmse(np.array([8.0]), 2),
        metrics.auc(np.array([[0, rank, 2]]), np.array([[3, 1, 0]])), metrics.min(np.array([rank])).tolist(),
    )  # fmt: skip
