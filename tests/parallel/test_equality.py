"""Replicas together give what one place gives: over splits, optimizers, clips, switches and their combinations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.helpers.covering import covering
from tests.parallel.golden import strategy
from tstatic import static

Array = np.ndarray[Any, Any]
Kind = static.BuildStrategy.ReduceStrategy

OPTIMIZERS = {
    "sgd": lambda clip: paddle.optimizer.SGD(0.1, grad_clip=clip),
    "momentum": lambda clip: paddle.optimizer.Momentum(0.05, 0.9, use_nesterov=True, grad_clip=clip),
    # A large epsilon: with a small one the first steps depend on the sign of every gradient alone.
    "adamw": lambda clip: paddle.optimizer.AdamW(0.05, epsilon=1e-2, weight_decay=0.1, grad_clip=clip),
}
CLIPS = {
    "none": lambda: None,
    "value": lambda: paddle.nn.ClipGradByValue(0.05),
    "norm": lambda: paddle.nn.ClipGradByNorm(0.1),
    "global": lambda: paddle.nn.ClipGradByGlobalNorm(0.2),
}
EVERY_FUSION = (
    "fuse_elewise_add_act_ops", "fuse_bn_act_ops", "fuse_bn_add_act_ops", "enable_auto_fusion", "build_cinn_pass",
    "fuse_adamw", "fuse_all_optimizer_ops", "fuse_relu_depthwise_conv", "fuse_gemm_epilogue",
)  # fmt: skip


class Nets:
    """One net, and the same with a weight per row, which stands for any split into shards on one place.

    Attributes:
        losses: What the runs of the last training fetched, ``[runs, places]``.
    """

    def __init__(self, optimizer: str, clip: str, norm: bool = False) -> None:
        self.losses = np.zeros((0, 0), np.float32)
        self.parts: dict[bool, tuple[static.Program, static.Program, Any]] = {}
        for weighted in (False, True):
            main, startup = static.Program(), static.Program()
            with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
                paddle.seed(7)
                x = static.data("x", [None, 6], "float32")
                y = static.data("y", [None, 1], "float32")
                h = static.nn.fc(x, 8, activation="relu")
                if norm:
                    # The largest epsilon that there is. With the usual 1e-5, a unit that is active in one row alone, by 0.009, has
                    # a gradient that is the difference of equal numbers: another order of rows on one place moves it by 7e-4 of
                    # its size, as replicas do. With 1e-3, the worst of 120 draws uses a fifth of the tolerance.
                    h = static.nn.batch_norm(h, act="tanh", epsilon=1e-3)
                h = static.nn.fc(h, 5, activation="tanh")
                rows = paddle.square(static.nn.fc(h, 1) - y)
                loss = paddle.sum(rows * static.data("weight", [None, 1], "float32")) if weighted else paddle.mean(rows)
                OPTIMIZERS[optimizer](CLIPS[clip]()).minimize(loss)
            self.parts[weighted] = main, startup, loss

    def start(self, weighted: bool) -> tuple[static.Executor, static.Scope, Any, Any]:
        main, startup, loss = self.parts[weighted]
        exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
        exe.run(startup, scope=scope)
        return exe, scope, main, loss

    def alone(self, batch: dict[str, Array], sizes: Sequence[int], steps: int) -> dict[str, Array]:
        """Parameters after training on one place with the mean of the shards' mean losses."""
        exe, scope, main, loss = self.start(True)
        weight = np.repeat([1 / (len(sizes) * n) for n in sizes], sizes).astype(np.float32)[:, None]
        feed = {**batch, "weight": weight}
        runs = [exe.run(main, feed=feed, fetch_list=[loss], scope=scope)[0] for _ in range(steps)]
        self.losses = np.array(runs).reshape(steps, 1)
        return values(scope)

    def together(
        self, batch: dict[str, Array], sizes: Sequence[int], steps: int, build: Any, execution: Any = None
    ) -> dict[str, Array]:
        """Parameters after training on as many places as there are shards."""
        exe, scope, main, loss = self.start(False)
        compiled = static.CompiledProgram(main).with_data_parallel(
            loss.name, build, execution, places=[paddle.CPUPlace()] * len(sizes)
        )
        ends = list(itertools.accumulate(sizes))
        feed = [{n: a[e - s : e] for n, a in batch.items()} for s, e in zip(sizes, ends, strict=True)]
        runs = [exe.run(compiled, feed=feed, fetch_list=[loss], scope=scope)[0] for _ in range(steps)]
        self.losses = np.array(runs).reshape(steps, len(sizes))
        for replica in range(1, len(sizes)):
            for name, array in values(scope.replica(replica)).items():
                if not name.startswith("batch_norm") and build.reduce_strategy is not Kind.Reduce:
                    np.testing.assert_array_equal(array, np.array(scope.find_var(name).get_tensor()))  # type: ignore[union-attr]
        exe.close()
        return values(scope)

    def chosen(
        self, choice: Mapping[str, Any], batch: dict[str, Array], sizes: Sequence[int], steps: int
    ) -> dict[str, Array]:
        """As :meth:`together`, with a row of ``CHOICES`` and switches of a BuildStrategy beside it."""
        build = dict(choice)
        execution = static.ExecutionStrategy()
        execution.num_threads = build.pop("num_threads")
        execution.num_iteration_per_run = build.pop("num_iteration_per_run")
        paddle.set_flags({"FLAGS_fuse_parameter_memory_size": build.pop("bucket bytes")})
        try:
            return self.together(batch, sizes, steps // choice["num_iteration_per_run"], strategy(**build), execution)
        finally:
            paddle.set_flags({"FLAGS_fuse_parameter_memory_size": -1.0})


def values(scope: static.Scope) -> dict[str, Array]:
    return {n: np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}  # type: ignore[union-attr]


def batch_of(rows: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal((rows, c)).astype(np.float32) for n, c in (("x", 6), ("y", 1))}


def agree(a: dict[str, Array], b: dict[str, Array]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=2e-5, atol=2e-6, err_msg=name)


SIZES = st.one_of(
    st.tuples(st.integers(2, 4), st.integers(1, 6)).map(lambda p: [p[1]] * p[0]),
    st.lists(st.integers(1, 7), min_size=2, max_size=4),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    sizes=SIZES, optimizer=st.sampled_from(sorted(OPTIMIZERS)), clip=st.sampled_from(sorted(CLIPS)),
    kind=st.sampled_from([Kind.AllReduce, Kind.Reduce]), fused=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_split_trains_as_one_place_does(
    sizes: list[int], optimizer: str, clip: str, kind: Kind, fused: bool, seed: int
) -> None:
    nets = Nets(optimizer, clip)
    batch = batch_of(sum(sizes), seed)
    build = strategy(reduce_strategy=kind, **dict.fromkeys(EVERY_FUSION if fused else (), True))
    agree(nets.together(batch, sizes, 3, build), nets.alone(batch, sizes, 3))


@settings(max_examples=8)
@given(
    count=st.integers(2, 4), rows=st.integers(2, 6), optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    kind=st.sampled_from([Kind.AllReduce, Kind.Reduce]), seed=st.integers(0, 99),
)  # fmt: skip
@example(count=2, rows=3, optimizer="adamw", kind=Kind.AllReduce, seed=87)
def test_synchronised_batch_norm_trains_as_one_place_does(
    count: int, rows: int, optimizer: str, kind: Kind, seed: int
) -> None:
    nets = Nets(optimizer, "none", norm=True)
    batch = batch_of(count * rows, seed)
    build = strategy(reduce_strategy=kind, sync_batch_norm=True)
    agree(nets.together(batch, [rows] * count, 3, build), nets.alone(batch, [rows] * count, 3))


def test_statistics_of_uneven_shards_are_those_of_the_whole_batch() -> None:
    nets = Nets("sgd", "none", norm=True)
    batch = batch_of(9, 1)
    shards = nets.together(batch, [2, 7], 1, strategy(sync_batch_norm=True))
    whole = nets.alone(batch, [9], 1)
    means = [n for n in whole if n.startswith("batch_norm") and n.rsplit("_", 1)[-1] in ("1", "2")]
    assert means
    for name in means:
        np.testing.assert_allclose(shards[name], whole[name], rtol=1e-5, atol=1e-6)
    apart = nets.together(batch, [2, 7], 1, strategy())
    assert any(np.abs(apart[n] - whole[n]).max() > 1e-3 for n in means)


CHOICES: dict[str, tuple[Any, ...]] = {
    "reduce_strategy": (Kind.AllReduce, Kind.Reduce),
    "fuse_all_reduce_ops": (True, False),
    "fuse_broadcast_ops": (False, True),
    "fuse_all_optimizer_ops": (False, True),
    "enable_sequential_execution": (False, True),
    "remove_unnecessary_lock": (True, False),
    "enable_addto": (False, True),
    "enable_inplace": (True, False),
    "memory_optimize": (None, False),
    "enable_auto_fusion": (False, True),
    "num_threads": (1, 4),
    "num_iteration_per_run": (1, 2),
    "bucket bytes": (-1.0, 1e-4),
}

ROWS = covering(CHOICES)


def test_the_rows_hold_every_pair() -> None:
    for a, b in itertools.combinations(sorted(CHOICES), 2):
        for pair in itertools.product(CHOICES[a], CHOICES[b]):
            assert any((row[a], row[b]) == pair for row in ROWS)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_switches_agree_in_all_pairs(row: int, optimizer: str) -> None:
    nets, batch, sizes = Nets(optimizer, "global"), batch_of(10, 3), [3, 3, 4]
    got = nets.chosen(ROWS[row], batch, sizes, 4)
    # One order of every sum: not close, the same.
    for name, array in nets.together(batch, sizes, 4, strategy()).items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    agree(got, nets.alone(batch, sizes, 4))


@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce])
@pytest.mark.parametrize("tables", [1, 3])
def test_lazy_updates_take_the_rows_of_all_replicas(kind: Any, tables: int) -> None:
    ids = static.data("ids", [-1], "int64")
    one = paddle.nn.initializer.Constant(1.0)
    looked_up = [
        static.nn.embedding(ids, [5, 2], is_sparse=True, param_attr=paddle.ParamAttr(name=f"w{i}", initializer=one))
        for i in range(tables)
    ]
    loss = paddle.mean(paddle.add_n(looked_up))
    paddle.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    build = static.BuildStrategy()
    build.reduce_strategy = kind
    two = static.CompiledProgram(static.default_main_program()).with_data_parallel(
        loss.name, build, places=[paddle.CPUPlace()] * 2
    )
    for shards in ([0, 1], [1, 3]):
        exe.run(two, feed=[{"ids": np.array([i])} for i in shards])
    for i in range(tables):
        found = np.array(static.global_scope().find_var(f"w{i}").get_tensor())  # type: ignore[union-attr]
        assert np.allclose(found, np.array([0.9, 0.8, 1.0, 0.9256, 1.0])[:, None], atol=1e-4), found
    exe.close()
