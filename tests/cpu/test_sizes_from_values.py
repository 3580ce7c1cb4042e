"""Programs with sizes that depend on values: what of them is planned as ever, what is derived once, and that the bits stay."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, profiler, static
from tstatic.devices.cpu.device import CpuDevice
from tstatic.ir import expr_numpy, formula
from tstatic.ir.split import tile_size
from tstatic.runtime import sections
from tstatic.runtime.session import Session

Arrays = dict[str, np.ndarray[Any, Any]]
WIDTH = 8


class Trained:
    """A program that is trained in a scope of its own."""

    def __init__(self, build: Callable[[], static.Variable], optimizer: Callable[[], Any]) -> None:
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        self.main.random_seed = self.startup.random_seed = 7
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, self.startup):
            self.loss = build()
            rule = optimizer()
            rule.minimize(self.loss)
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)
        if hasattr(rule, "amp_init"):
            rule.amp_init(paddle.CPUPlace(), scope=self.scope)

    def run(self, feed: Arrays) -> np.ndarray[Any, Any]:
        (loss,) = self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return np.asarray(loss)

    def plan(self, feed: Arrays) -> Any:
        compiled = static.CompiledProgram(self.main)
        self.exe.run(compiled, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return compiled.plan

    def session(self) -> Session:
        """Returns the session of the last run."""
        *_, last = self.exe._cache._entries.values()
        (session,) = last.bound.sessions
        return session

    def values(self) -> Arrays:
        return {p.name: np.array(self.scope.find_var(p.name).get_tensor()) for p in self.main.all_parameters()}


def picked(depth: int = 3) -> static.Variable:
    """Layers, the rows where ``m`` is not 0, and layers behind them."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = static.nn.fc(x, WIDTH, activation="relu")
    h = paddle.gather_nd(h, paddle.nonzero(m))
    for _ in range(depth):
        h = static.nn.fc(h, WIDTH, activation="tanh")
    return paddle.mean(paddle.square(h))


def feed_of(count: int, rows: int = 12) -> Arrays:
    """A feed of which ``count`` rows are picked."""
    rng = np.random.RandomState(count)
    mask = np.zeros(rows, np.int64)
    mask[rng.permutation(rows)[:count]] = 1
    return {"x": rng.standard_normal((rows, WIDTH)).astype(np.float32), "m": mask}


@contextmanager
def counted(module: Any, name: str) -> Iterator[list[int]]:
    """Counts the calls of a function of a module, or of a method of a class."""
    calls = [0]
    real = getattr(module, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return real(*args, **kwargs)

    with mock.patch.object(module, name, counting):
        yield calls


# ------------------------------------------------------------------------------------------------------ what is planned
@pytest.mark.parametrize("optimizer", [lambda: paddle.optimizer.Lamb(1e-2), lambda: paddle.optimizer.Adam(1e-2)])
def test_updates_are_planned_as_ever(optimizer: Callable[[], Any]) -> None:
    """Gradients of parameters have the sizes of the parameters, whatever lies between."""
    plan = Trained(picked, optimizer).plan(feed_of(5))
    assert {step.how for step in plan.steps if step.region == "update"} == {"ref"}
    kinds = {v: plan.storage[v].kind for step in plan.steps for v in step.op.writes() if v.endswith("@GRAD")}
    assert kinds["fc_1.w_0@GRAD"] == kinds["fc_1.b_0@GRAD"] == kinds["fc_0.w_0@GRAD"] == "arena"
    # What lies before the rows were picked, and the way back through it.
    assert {step.how for step in plan.steps if step.op.type == "mul_grad"} == {"ref", "dynamic"}


def test_the_update_behind_a_function_of_the_user_is_planned_too() -> None:
    """Sizes that a function of the user makes are not to be trusted; that of a parameter's gradient is the parameter's."""
    plan = Trained(called, lambda: paddle.optimizer.Adam(1e-2)).plan(feed_of(5))
    assert {step.how for step in plan.steps if step.region == "update"} == {"ref"}


# --------------------------------------------------------------------------------------------- what is derived once only
@pytest.mark.numpy_device("other devices bind no steps to sizes", not_on=("torch", "fake"))
def test_a_size_seen_before_is_looked_up() -> None:
    """Neither shapes nor expressions are derived again when a run finds sizes that an earlier one found."""
    net = Trained(picked, lambda: paddle.optimizer.Lamb(1e-2))
    for count in (5, 3, 5, 3):
        net.run(feed_of(count))
    with counted(sections, "infer_op") as shapes, counted(expr_numpy.Code, "bind_operands") as bound:
        for count in (3, 5, 5, 3):
            net.run(feed_of(count))
    assert (shapes, bound) == ([0], [0])


def test_a_new_size_compiles_no_expression() -> None:
    """What depends on operators, ranks and types is derived for the first size, and holds for all others."""
    net = Trained(picked, lambda: paddle.optimizer.Lamb(1e-2))
    net.run(feed_of(5))
    with counted(expr_numpy, "_allocate") as compiled, counted(formula.UpdateFormula, "bind_attributes") as formulas:
        for count in (4, 6, 2, 0, 12):
            net.run(feed_of(count))
    # A single row is another matter: what broadcasts along rows of one row is not summed.
    assert (compiled, formulas) == ([0], [0])
    assert len(net.exe.compilations) == 2


# -------------------------------------------------------------------------------------------------------------- the bits
def selected() -> static.Variable:
    """Gradients through masked_select and through sums over an axis of unknown size."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = static.nn.fc(x, WIDTH, activation="sigmoid")
    chosen = paddle.masked_select(h, paddle.cast(paddle.unsqueeze(m, [1]), "bool"))
    rows = paddle.reshape(chosen, [-1, WIDTH])
    rows = static.nn.layer_norm(static.nn.fc(rows, WIDTH), begin_norm_axis=1)
    scores = paddle.matmul(rows, rows, transpose_y=True)
    return paddle.mean(paddle.nn.functional.softmax(scores)) + paddle.sum(paddle.concat([rows, rows], axis=1)) * 0.1


def looked_up() -> static.Variable:
    """Rows of a table by the different ids of a batch, their logits, and a dropout of unknown size."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    ids, inverse = paddle.unique(paddle.cast(paddle.argmax(x, axis=1), "int64") + m, return_inverse=True)
    rows = static.nn.embedding(ids, [WIDTH + 2, WIDTH], param_attr=paddle.ParamAttr(name="table"))
    rows = paddle.nn.functional.dropout(rows, 0.3)
    logits = paddle.matmul(static.nn.fc(x, WIDTH), rows, transpose_y=True)
    loss = paddle.nn.functional.softmax_with_cross_entropy(logits, paddle.unsqueeze(inverse, [1]))
    return paddle.mean(loss)


def twice() -> static.Variable:
    """Two sizes, of which the second depends on values behind the first; both ways back read what lies before."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = static.nn.fc(paddle.gather_nd(x, paddle.nonzero(m)), WIDTH, activation="tanh")
    again = paddle.nonzero(paddle.sum(h, axis=1) > 0)
    g = static.nn.fc(paddle.gather_nd(h, again), WIDTH, activation="tanh")
    return paddle.sum(paddle.square(g)) + paddle.sum(h) * 0.01


def branched() -> static.Variable:
    """A cond, and a while, around and behind a size that depends on values."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = paddle.gather_nd(static.nn.fc(x, WIDTH), paddle.nonzero(m))
    h = static.nn.cond(paddle.sum(m) > 4, lambda: h * 2.0, lambda: paddle.tanh(h))
    i = paddle.zeros([1], "int64")
    _, h = static.nn.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, paddle.tanh(h)], [i, h])
    return paddle.sum(paddle.square(static.nn.fc(h, WIDTH)))


def called() -> static.Variable:
    """A function of the user that leaves rows out."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = static.nn.fc(x, WIDTH)
    out = static.default_main_program().current_block().create_var(name="some", dtype="float32", shape=[-1, WIDTH])

    def back(a: Any, n: Any, y: Any, dy: Any) -> Any:
        dx = np.zeros_like(a)
        dx[np.flatnonzero(n)] = dy
        return dx, np.zeros_like(n)

    static.py_func(lambda a, n: np.array(a)[np.flatnonzero(n)], [h, m], out, back)
    return paddle.sum(paddle.square(static.nn.fc(out, WIDTH)))


NETS: dict[str, Callable[[], static.Variable]] = {
    f.__name__: f for f in (picked, selected, looked_up, twice, branched, called)
}
COUNTS = (5, 3, 5, 1, 12, 0, 3, 7)
"""How many rows the runs of a test pick: sizes that come again, one, all and none."""


def trained(
    build: Callable[[], static.Variable], optimizer: Callable[[], Any], one_by_one: bool
) -> tuple[list[Any], Arrays]:
    """Returns the losses and the parameters of a net that runs its steps one by one, or binds them for each size."""
    with mock.patch.object(CpuDevice, "binds_sizes", not one_by_one):
        net = Trained(build, optimizer)
        return [net.run(feed_of(count)).tobytes() for count in COUNTS], net.values()


@pytest.mark.parametrize("name", NETS)
def test_the_bits_are_those_of_steps_that_run_one_by_one(name: str) -> None:
    expected, parameters = trained(NETS[name], lambda: paddle.optimizer.Adam(1e-2), True)
    found, values = trained(NETS[name], lambda: paddle.optimizer.Adam(1e-2), False)
    assert found == expected
    assert values.keys() == parameters.keys()
    for each, value in values.items():
        assert value.tobytes() == parameters[each].tobytes(), each


def test_steps_without_results_stand_behind_a_size_that_depends_on_values() -> None:
    """An assertion makes nothing: there is no first result of it to look at."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    rows = paddle.gather_nd(x, paddle.nonzero(m))
    static.nn.Assert(paddle.max(rows) < 1e6, [rows])
    exe, feed = static.Executor(paddle.CPUPlace()), feed_of(5)
    (found,) = exe.run(feed=feed, fetch_list=[rows])
    np.testing.assert_array_equal(found, feed["x"][feed["m"] != 0])
    with pytest.raises(errors.FeedError, match="Assert"):
        exe.run(feed={**feed, "x": feed["x"] + 1e7}, fetch_list=[rows])


def test_memory_is_kept_for_the_readers_of_a_view() -> None:
    """The source of a reshape is read for the last time long before the view is."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    rows = paddle.gather_nd(x, paddle.nonzero(m))
    flat = paddle.reshape(paddle.exp(rows), [-1])
    other = rows
    for _ in range(4):
        other = paddle.tanh(other * 2.0)
    out = flat + paddle.reshape(other, [-1])
    exe = static.Executor(paddle.CPUPlace())
    for count in (5, 2, 5):
        feed = feed_of(count)
        kept = feed["x"][feed["m"] != 0]
        wanted = kept
        for _ in range(4):
            wanted = np.tanh(wanted * 2.0)
        (found,) = exe.run(feed=feed, fetch_list=[out])
        np.testing.assert_allclose(found, (np.exp(kept) + wanted).reshape(-1), rtol=1e-5)


@pytest.mark.numpy_device("other devices bind no steps to sizes", not_on=("torch", "fake"))
def test_steps_that_turn_out_to_depend_on_values_divide_a_section() -> None:
    """A slice whose end is a value has a size of its own, though its operator is not one whose sizes depend on values."""

    def build() -> static.Variable:
        x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
        h = static.nn.fc(paddle.gather_nd(x, paddle.nonzero(m)), WIDTH, activation="tanh")
        end = paddle.cast(paddle.sum(m) // 2 + 1, "int32")
        h = paddle.tanh(paddle.slice(paddle.tanh(h), [0], [0], [end]))
        return paddle.sum(paddle.square(static.nn.fc(h, WIDTH)))

    expected, parameters = trained(build, lambda: paddle.optimizer.SGD(1e-2), True)
    with counted(sections.Sections, "_split") as splits:
        found, values = trained(build, lambda: paddle.optimizer.SGD(1e-2), False)
    assert splits == [1]
    assert found == expected
    assert all(value.tobytes() == parameters[each].tobytes() for each, value in values.items())


@pytest.mark.numpy_device("other devices cut steps otherwise where sizes are unknown")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_a_program_that_is_fed_the_sizes(threads: int) -> None:
    """Work that is cut into tiles is cut as that of the same sizes in a program without sizes that depend on values."""

    def net(fed: bool) -> tuple[static.Program, static.Program, list[static.Variable]]:
        main, startup = static.Program(), static.Program()
        main.random_seed = startup.random_seed = 3
        with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
            x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
            h = x if fed else paddle.gather_nd(x, paddle.nonzero(m))
            for _ in range(2):
                h = static.nn.fc(h, WIDTH, activation="gelu")
            h = paddle.nn.functional.softmax(static.nn.layer_norm(h, begin_norm_axis=1))
            loss = paddle.mean(paddle.square(h))
            paddle.optimizer.Adam(1e-2).minimize(loss)
        return main, startup, [loss]

    def run(fed: bool) -> tuple[list[bytes], Arrays]:
        main, startup, fetches = net(fed)
        exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
        exe.run(startup, scope=scope)
        strategy = static.ExecutionStrategy()
        strategy.num_threads = threads
        compiled = static.CompiledProgram(main).with_data_parallel(
            fetches[0].name, exec_strategy=strategy, places=paddle.CPUPlace()
        )
        losses = []
        for count in (40, 3, 40, 33, 1):
            feed = feed_of(count, rows=48)
            if fed:
                feed["x"] = feed["x"][feed["m"] != 0]
            losses.append(exe.run(compiled, feed=feed, fetch_list=fetches, scope=scope)[0].tobytes())
        return losses, {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}

    with tile_size(40):
        expected, parameters = run(True)
        found, values = run(False)
    assert found == expected
    assert all(value.tobytes() == parameters[each].tobytes() for each, value in values.items())


def strategies() -> dict[str, static.BuildStrategy]:
    found = {name: static.BuildStrategy() for name in ("plain", "fused", "apart", "in_order")}
    for name in dir(found["fused"]):
        if name.startswith("fuse_") and isinstance(getattr(found["fused"], name), bool | type(None)):
            setattr(found["fused"], name, True)
    found["apart"].memory_optimize = found["apart"].enable_inplace = False
    found["in_order"].enable_sequential_execution = True
    return found


def test_strategies_change_no_bit() -> None:
    """Fusions, memory that is not used again, and a strict order leave the losses as they are."""
    seen = {}
    for name, strategy in strategies().items():
        net = Trained(looked_up, lambda: paddle.optimizer.Adam(1e-2))
        compiled = static.CompiledProgram(net.main, strategy)
        seen[name] = [
            net.exe.run(compiled, feed=feed_of(count), fetch_list=[net.loss], scope=net.scope)[0].tobytes()
            for count in COUNTS
        ]
    assert len(set(map(tuple, seen.values()))) == 1


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision_keeps_the_bits(level: str) -> None:
    """Casts, loss scaling and master weights behind a size that depends on values."""

    def optimizer() -> Any:
        made = paddle.optimizer.Adam(1e-2, multi_precision=level == "O2")
        return static.amp.decorate(made, level=level, dtype="bfloat16")

    expected, parameters = trained(picked, optimizer, True)
    found, values = trained(picked, optimizer, False)
    assert found == expected
    assert all(value.tobytes() == parameters[each].tobytes() for each, value in values.items())


def test_replicas_find_sizes_of_their_own() -> None:
    """Two places pick different numbers of rows; their gradients are summed as those of any program."""

    def run(one_by_one: bool) -> tuple[list[bytes], Arrays]:
        with mock.patch.object(CpuDevice, "binds_sizes", not one_by_one):
            net = Trained(picked, lambda: paddle.optimizer.Adam(1e-2))
            compiled = static.CompiledProgram(net.main).with_data_parallel(
                loss_name=net.loss.name, places=[paddle.CPUPlace()] * 2
            )
            losses = []
            for counts in ((5, 2), (3, 5), (5, 2), (1, 7)):
                both = [feed_of(count) for count in counts]
                feed = {name: np.concatenate([one[name] for one in both]) for name in both[0]}
                losses.append(net.exe.run(compiled, feed=feed, fetch_list=[net.loss], scope=net.scope)[0].tobytes())
            return losses, net.values()

    expected, parameters = run(True)
    found, values = run(False)
    assert found == expected
    assert all(value.tobytes() == parameters[each].tobytes() for each, value in values.items())


# ------------------------------------------------------------------------------------------------- errors and the memory
def test_an_error_names_the_step_that_raised_it() -> None:
    """Position 9 of a table of 4 rows is refused by the lookup, in the middle of a chain of steps; the next run goes on."""
    x, m = static.data("x", [-1], "int64"), static.data("m", [-1], "int64")
    ids = paddle.gather_nd(x, paddle.nonzero(m))
    rows = paddle.gather(static.create_parameter([4, 2], "float32", name="t"), ids + 0)
    out = paddle.tanh(rows * 2.0)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"x": np.array([1, 2, 3]), "m": np.array([1, 0, 1])}
    before = exe.run(feed=feed, fetch_list=[out])[0]
    with pytest.raises(errors.IndexRangeError) as caught:
        exe.run(feed={**feed, "x": np.array([1, 2, 9])}, fetch_list=[out])
    assert caught.value.op == "gather"
    assert caught.value.where is not None
    np.testing.assert_array_equal(exe.run(feed=feed, fetch_list=[out])[0], before)


def test_shapes_that_do_not_fit_are_refused_where_the_sizes_are_known() -> None:
    x, m = static.data("x", [-1, 2]), static.data("m", [-1], "int64")
    wrong = paddle.gather_nd(x, paddle.nonzero(m)) + static.data("y", [-1, 2])
    exe = static.Executor(paddle.CPUPlace())
    feed = {"x": np.ones((4, 2), np.float32), "m": np.array([1, 0, 1, 1]), "y": np.ones((3, 2), np.float32)}
    exe.run(feed=feed, fetch_list=[wrong])
    with pytest.raises(errors.ShapeError) as caught:
        exe.run(feed={**feed, "y": np.ones((2, 2), np.float32)}, fetch_list=[wrong])
    assert caught.value.op == "elementwise_add"
    exe.run(feed=feed, fetch_list=[wrong])


def test_nan_is_found_behind_a_size_that_depends_on_values() -> None:
    x, m = static.data("x", [-1, 2]), static.data("m", [-1], "int64")
    out = paddle.exp(paddle.log(paddle.gather_nd(x, paddle.nonzero(m)) + 1.0))
    exe = static.Executor(paddle.CPUPlace())
    feed = {"x": np.array([[1.0, -3.0], [1.0, 1.0]], np.float32), "m": np.array([0, 1])}
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        exe.run(feed=feed, fetch_list=[out])
        with pytest.raises(errors.NumericsError) as caught:
            exe.run(feed={**feed, "m": np.array([1, 1])}, fetch_list=[out])
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    assert caught.value.op == "log"


def test_a_thousand_sizes_take_a_bounded_number_of_bytes() -> None:
    """What is bound to sizes is forgotten when all takes too much; memory that steps work in is that of the largest size."""
    net = Trained(picked, lambda: paddle.optimizer.SGD(1e-3))
    for _ in range(2):
        net.run(feed_of(1000, rows=1000))
    session = net.session()
    held = session.held_bytes
    with mock.patch.object(sections, "MOST_BYTES", 1 << 18):
        sizes, taken = [], []
        for count in range(1, 1000, 1 if os.environ.get("TSTATIC_SOAK") else 25):
            net.run(feed_of(count, rows=1000))
            sizes.append(len(session.sections._known))
            taken.append(session.sections.kept_bytes)
    assert max(taken) <= 1 << 18
    assert sizes[-1] < len(sizes)
    assert session.held_bytes == held


@pytest.mark.numpy_device("other devices bind no steps to sizes", not_on=("torch", "fake"))
def test_what_a_size_takes_is_counted_well() -> None:
    """The bytes that are counted for what is bound to a size are those that Python allocates for it, within a factor of two."""
    net = Trained(lambda: picked(10), lambda: paddle.optimizer.SGD(1e-3))
    for count in (40, 41, 42):
        net.run(feed_of(count, rows=48))
    session = net.session()
    gc.collect()
    counted_before = session.sections.kept_bytes
    tracemalloc.start()
    try:
        for count in range(10, 30):
            net.run(feed_of(count, rows=48))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    told = session.sections.kept_bytes - counted_before
    assert taken / 2 < told < taken * 2


def test_a_profile_has_each_step_with_the_bytes_of_its_run() -> None:
    """While a profiler records, no step runs as part of another one, and sizes are those of the run."""
    x, m = static.data("x", [-1, 4]), static.data("m", [-1], "int64")
    out = paddle.tanh(paddle.exp(paddle.gather_nd(x, paddle.nonzero(m))))
    exe = static.Executor(paddle.CPUPlace())
    feeds = [{"x": np.ones((6, 4), np.float32), "m": np.array([1] * n + [0] * (6 - n))} for n in (2, 5)]
    with tile_size(4):
        for feed in feeds:
            exe.run(feed=feed, fetch_list=[out])
        with profiler.profile() as made:
            for feed in feeds:
                exe.run(feed=feed, fetch_list=[out])
        exe.run(feed=feeds[0], fetch_list=[out])
    assert [event.name for event in made.ops] == ["where_index", "gather_nd", "exp", "tanh"] * 2
    sizes = [event.nbytes for event in made.ops if event.name == "exp"]
    assert sizes == [2 * 2 * 16, 2 * 5 * 16]


@pytest.mark.numpy_device("other devices bind no steps to sizes", not_on=("torch", "fake"))
def test_a_size_that_comes_again_after_an_error_is_bound_to_its_own_values() -> None:
    """A run that fails in the middle of a section leaves nothing behind that the next run of that size takes for its own."""
    net = Trained(picked, lambda: paddle.optimizer.SGD(1e-2))
    expected = net.run(feed_of(5))
    net = Trained(picked, lambda: paddle.optimizer.SGD(1e-2))
    with (
        mock.patch.object(sections, "place", side_effect=MemoryError("none left")),
        pytest.raises(errors.OutOfMemoryError),
    ):
        net.run(feed_of(5))
    assert net.run(feed_of(5)).tobytes() == expected.tobytes()


@pytest.mark.numpy_device("other devices bind no steps to sizes", not_on=("torch", "fake"))
def test_memory_that_is_released_is_taken_again() -> None:
    """A run in the smallest memory, as inference does between two batches, computes the same."""
    net = Trained(picked, lambda: paddle.optimizer.SGD(0.0))
    expected = [net.run(feed_of(count)).tobytes() for count in (5, 9)]
    session = net.session()
    assert any(memory.held_bytes for memory in session.sections.memories())
    session.release()
    assert session.held_bytes == 0
    assert [net.run(feed_of(count)).tobytes() for count in (5, 9)] == expected
