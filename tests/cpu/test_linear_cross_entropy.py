"""Linear layers with a cross entropy in chunks of rows, run by the references: results, memory, codes, faults."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tstatic as paddle
from tests.bench.scripts import script
from tests.helpers.drawn import only
from tests.helpers.linear_loss_programs import SWITCH, linear_loss_recipe, short_chunks, with_short_chunks
from tests.helpers.soak import SOAK
from tstatic import static, testing
from tstatic.devices import cpu_device, standing_in
from tstatic.devices.fake import FakeDevice
from tstatic.errors import TstaticError
from tstatic.fusion.codegen.kernel import LibraryProduct
from tstatic.fusion.patterns import linear_cross_entropy
from tstatic.fusion.patterns.row_chunks import Chunks
from tstatic.static.explain import inquiry
from tstatic.testing.runner import everything_on

F = paddle.nn.functional
PROGRAMS = int(os.environ.get("TSTATIC_LINEAR_LOSSES", "2000" if SOAK else "24"))
ROWS, DEPTH, CLASSES = (4, 5), 3, 7
Loss = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    with_short_chunks(monkeypatch)


def label(shape: tuple[int, ...] = (*ROWS, 1), name: str = "label") -> Any:
    return static.data(name, list(shape), "int64")


def entropy(logits: Any, **attrs: Any) -> Any:
    return F.softmax_with_cross_entropy(logits, label(), **attrs)


class Net:
    """A layer, a linear layer with the parameter ``w`` behind it, a loss, and an update.

    Args:
        loss: ``(the first layer's result, w) -> loss``.
        turned: Whether ``w`` is transposed.
        optimizer: What updates.
        batch: The first size; ``None``: each run says it.
    """

    def __init__(self, loss: Loss, turned: bool = False, optimizer: Any = None, batch: int | None = ROWS[0]) -> None:
        self.main, self.startup = static.Program(), static.Program()
        self.cast: Callable[[Any], None] | None = None
        self.main.random_seed = self.startup.random_seed = 3
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            x = static.data("x", [batch, ROWS[1], DEPTH], "float32")
            w = static.create_parameter([CLASSES, DEPTH] if turned else [DEPTH, CLASSES], "float32", name="w")
            self.hidden = static.nn.fc(x, DEPTH, num_flatten_dims=2, name="first")
            self.loss = loss(self.hidden, w)
            (optimizer or paddle.optimizer.SGD(0.1)).minimize(self.loss)
        rng = np.random.default_rng(1)
        self.feed: dict[str, Any] = {}
        for var in self.main.list_vars():
            if var.is_data:
                shape = tuple(2 * ROWS[0] if n < 0 else n for n in var.shape)
                whole = "label" in var.name
                self.feed[var.name] = (
                    rng.integers(0, ROWS[0], shape) if whole else rng.standard_normal(shape).astype(np.float32)
                )

    def compiled(self, on: bool, strategy: Any = None) -> Any:
        strategy = strategy or static.BuildStrategy()
        setattr(strategy, SWITCH, on)
        return static.CompiledProgram(self.main, strategy)

    def run(self, on: bool, fetch: tuple[str, ...] = (), steps: int = 1, strategy: Any = None, **how: Any) -> list[Any]:
        """Fetches, the gradient by the layer's input, and the parameters afterwards."""
        compiled = self.compiled(on, strategy)
        if how:
            compiled = compiled.with_data_parallel(loss_name=self.loss.name, **how)
        scope, executor = static.Scope(), static.Executor("cpu")
        executor.run(self.startup, scope=scope)
        if self.cast is not None:
            self.cast(scope)
        names = [self.loss.name, f"{self.hidden.name}@GRAD", *fetch]
        for _ in range(steps):
            found = executor.run(compiled, feed=self.feed, fetch_list=names, scope=scope)
        return [*found, *(np.array(scope.var(p.name).get_tensor()) for p in self.main.all_parameters())]

    def explained(self, on: bool = True, fetch: tuple[str, ...] = ()) -> Any:
        shapes = {name: array.shape for name, array in self.feed.items()}
        return self.compiled(on).explain(fetch_list=[self.loss, *fetch], feed_shapes=shapes)

    def codes(self, fetch: tuple[str, ...] = ()) -> list[str]:
        """The codes of what was refused; nothing is in chunks."""
        found = self.explained(fetch=fetch)
        assert not found.applied
        return [r.code for r in found.refused]


def close(got: list[Any], known: list[Any], units: float = 64) -> None:
    for a, b in zip(got, known, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=units * 2**-24, atol=units * 2**-24 * max(1.0, float(np.abs(b).max())))


def squares(h: Any, w: Any) -> Any:
    return paddle.sum(paddle.square(entropy(paddle.matmul(h, w))))


def weighted(h: Any, w: Any) -> Any:
    return paddle.sum(entropy(paddle.matmul(h, w), ignore_index=2) * static.data("rows", [*ROWS, 1], "float32"))


NETS: dict[str, Loss] = {
    "mean": lambda h, w: paddle.mean(entropy(paddle.matmul(h, w))),
    "labels without the last axis": lambda h, w: F.cross_entropy(paddle.matmul(h, w), label(ROWS)),
    "mean of those not ignored": lambda h, w: F.cross_entropy(paddle.matmul(h, w), label(ROWS), ignore_index=2),
    "sum": lambda h, w: F.cross_entropy(paddle.matmul(h, w), label(ROWS), reduction="sum"),
    "weights of classes": lambda h, w: F.cross_entropy(
        paddle.matmul(h, w), label(ROWS), weight=paddle.cast(paddle.arange(CLASSES), "float32")
    ),
    "weights of rows": weighted,
    "fc with a bias": lambda h, w: paddle.mean(entropy(static.nn.fc(h, CLASSES, num_flatten_dims=2))),
    "flattened": lambda h, w: F.cross_entropy(
        paddle.reshape(paddle.matmul(h, w), [-1, CLASSES]), paddle.reshape(label(ROWS), [-1])
    ),
    "probabilities": lambda h, w: paddle.mean(
        paddle.fluid.layers.cross_entropy(F.softmax(static.nn.fc(h, CLASSES, num_flatten_dims=2)), label())
    ),
    "capped": lambda h, w: paddle.mean(entropy(paddle.tanh(paddle.matmul(h, w) * 0.5) * 30)),
    "two losses": lambda h, w: (
        paddle.mean(entropy(z := paddle.matmul(h, w)))
        + paddle.sum(F.softmax_with_cross_entropy(z, label(name="other label")))
    ),
    "tied": lambda h, w: paddle.mean(entropy(paddle.matmul(h, w))) + paddle.sum(w * w),
    "the gradient waits": squares,
    "the gradient waits for other rows": lambda h, w: paddle.mean(
        paddle.flip(r := entropy(paddle.matmul(h, w)), [0]) * r
    ),
}


# ---------------------------------------------------------------------------------------------------------------- results
@pytest.mark.parametrize("name", NETS)
def test_chunks_give_what_the_whole_gives(name: str) -> None:
    net = Net(NETS[name])
    (made,) = net.explained().applied
    assert made.op == "linear_cross_entropy in 4 chunks"
    got, known = net.run(True), net.run(False)
    # No sum of the losses or of what goes back to the layer's input has another order.
    assert got[0].tobytes() == known[0].tobytes()
    close(got, known)
    again = net.run(True)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("name", NETS)
def test_with_every_switch_on(name: str) -> None:
    net = Net(NETS[name])
    close(net.run(True, steps=2, strategy=everything_on()), net.run(False, steps=2), units=512)


def test_the_transposed_table() -> None:
    net = Net(lambda h, w: paddle.mean(entropy(paddle.matmul(h, w, transpose_y=True))), turned=True)
    assert len(net.explained().applied) == 1
    close(net.run(True), net.run(False))


def test_without_gradients_nothing_is_kept_whole() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [8, 4], "float32")
        w = static.data("w", [4, 64], "float32")
        loss = F.softmax_with_cross_entropy(paddle.matmul(x, w), label((8, 1)))
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((8, 4)), "w": rng.standard_normal((4, 64))}
    feed = {**{n: a.astype(np.float32) for n, a in feed.items()}, "label": rng.integers(0, 64, (8, 1))}
    found = {}
    for on in (True, False):
        compiled = static.CompiledProgram(main, only(SWITCH) if on else None)
        (found[on],) = static.Executor("cpu").run(compiled, feed=feed, fetch_list=[loss])
    assert found[True].tobytes() == found[False].tobytes()


def test_torch_agrees() -> None:
    net = Net(NETS["mean of those not ignored"])
    fetched = net.run(True, fetch=("w@GRAD", net.hidden.name))
    loss, to_hidden = fetched[:2]
    h = torch.tensor(fetched[3], dtype=torch.float64, requires_grad=True)
    scope, executor = static.Scope(), static.Executor("cpu")
    executor.run(net.startup, scope=scope)
    w = torch.tensor(np.array(scope.var("w").get_tensor()), dtype=torch.float64, requires_grad=True)
    logits = (h @ w).reshape(-1, CLASSES)
    known = torch.nn.functional.cross_entropy(logits, torch.tensor(net.feed["label"]).reshape(-1), ignore_index=2)
    known.backward()
    np.testing.assert_allclose(loss, known.item(), rtol=1e-6)
    np.testing.assert_allclose(to_hidden, h.grad.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fetched[2], w.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["losses", "gradient of a loss", "gradient of the table"])
def test_inner_values_that_are_not_logits_can_be_fetched(how: str) -> None:
    net = Net(weighted)
    block = net.main.global_block()
    (op,) = (op for op in block.ops if op.type == "softmax_with_cross_entropy")
    names = {
        "losses": op.output("Loss")[0], "gradient of a loss": f"{op.output('Loss')[0]}@GRAD",
        "gradient of the table": "w@GRAD",
    }  # fmt: skip
    assert len(net.explained(fetch=(names[how],)).applied) == 1
    close(net.run(True, (names[how],)), net.run(False, (names[how],)))


def test_any_variable_can_be_fetched() -> None:
    for name in ("weights of rows", "the gradient waits"):
        net = Net(NETS[name])
        block = net.main.global_block()
        for op in block.ops:
            for value in op.output_arg_names:
                if block.has_var(value) and block.var(value).type == "dense_tensor" and "XShape" not in value:
                    close(net.run(True, (value,)), net.run(False, (value,)))


def batched(kind: str) -> Net:
    """A net whose number of rows is known when it runs."""

    def loss(h: Any, w: Any) -> Any:
        logits = paddle.matmul(h, w) if kind != "bias" else static.nn.fc(h, CLASSES, num_flatten_dims=2)
        losses = F.softmax_with_cross_entropy(logits, static.data("label", [None, ROWS[1], 1], "int64"))
        return paddle.mean(losses * losses) if kind == "waiting" else paddle.mean(losses)

    return Net(loss, batch=None)


@pytest.mark.parametrize("kind", ["plain", "bias", "waiting"])
def test_on_two_places_and_with_rows_known_at_run_time(kind: str) -> None:
    net = batched(kind)
    assert net.explained().applied[0].op == "linear_cross_entropy in 8 chunks"
    close(net.run(True), net.run(False))
    places = [paddle.CPUPlace()] * 2
    close(net.run(True, steps=2, places=places), net.run(False, steps=2, places=places), units=256)


@pytest.mark.numpy_device("float16 is computed in float32 by numpy's operators alone")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision(level: str, dtype: str) -> None:
    decorated = paddle.static.amp.decorate(
        paddle.optimizer.SGD(0.1), init_loss_scaling=8.0, use_dynamic_loss_scaling=False, level=level, dtype=dtype,
        master_weight=level == "O2",
    )  # fmt: skip
    net = Net(NETS["mean"], optimizer=decorated)
    if level == "O2":
        net.cast = lambda scope: decorated.amp_init(paddle.CPUPlace(), scope=scope)
    unit = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    for got, known in zip(net.run(True), net.run(False), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), known.astype(np.float64), rtol=4 * unit, atol=4 * unit)
    # CPU places compute float16 in float32, without the casts; chips keep them.
    casts = []
    for device in (cpu_device(), FakeDevice()):
        with standing_in(device):
            (made,) = net.explained().applied
        casts.append("cast" in [m.type for m in made.members])
    assert casts == [level == "O1" and dtype == "bfloat16", level == "O1"], "logits of 16 bits, and losses of 32"


@pytest.mark.parametrize("shard", range(4))
def test_drawn_programs_agree(shard: int) -> None:
    count: Counter[str] = Counter()
    for place in range(shard * PROGRAMS // 4, (shard + 1) * PROGRAMS // 4):
        kind = "training" if place % 10 == 9 else "forward" if place % 3 == 0 else "gradients"
        recipe = linear_loss_recipe(place, kind, 2)
        built = recipe.build()
        applied = static.CompiledProgram(built.main, only(SWITCH)).explain(fetch_list=built.fetches).applied
        count.update(a.op for a in applied)
        try:
            testing.assert_equivalent(recipe, only(SWITCH), shrink=False)
        except testing.EquivalenceError as error:
            raise AssertionError(f"program {place} ({kind}): {error}") from None
    assert sum(count.values()) >= 0.8 * PROGRAMS / 4
    assert len(count) >= 2


# ----------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("waits", [False, True])
def test_the_logits_are_never_whole(waits: bool) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 16], "float32")
        x.stop_gradient = False
        losses = entropy_of(static.nn.fc(x, 512))
        loss = paddle.mean(losses * losses if waits else losses)
        grads = static.gradients([loss], [x, *main.all_parameters()])
    rows = 4 * linear_cross_entropy.LEAST_ROWS
    shapes, report = {"x": (rows, 16), "label": (rows, 1)}, {}
    with short_chunks(linear_cross_entropy.LEAST_ROWS):
        for on in (True, False):
            strategy = static.BuildStrategy()
            strategy.fuse_linear_cross_entropy = on
            compiled = static.CompiledProgram(main, strategy)
            report[on] = compiled.memory_report(shapes, [loss, *grads])
        (made,) = static.CompiledProgram(main, only(SWITCH)).explain([loss, *grads], shapes).applied
    assert made.op == "linear_cross_entropy in 4 chunks"
    logits, of_library = 4 * rows * 512, report[True].foreign_bytes
    assert report[False].peak_bytes > logits > report[True].peak_bytes
    assert logits > 2 * (report[True].peak_bytes - of_library), (
        "torch's softmax is not in place: it has two chunks of its own"
    )


def entropy_of(logits: Any) -> Any:
    return F.softmax_with_cross_entropy(logits, static.data("label", [None, 1], "int64"))


def planned_for_a_gpu(classes: int) -> tuple[Any, int]:
    """The plan of a layer in 16 bits whose losses are in 32, with gradients, and the bytes of its logits in 16 bits."""
    rows = 2 * linear_cross_entropy.LEAST_ROWS
    count = script("plan_count")
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x, w = (
            static.create_parameter([size, 64], "bfloat16", name=name) for name, size in (("x", rows), ("w", classes))
        )
        logits = paddle.cast(paddle.matmul(x, w, transpose_y=True), "float32")
        loss = paddle.mean(F.softmax_with_cross_entropy(logits, label((rows, 1))))
        paddle.optimizer.SGD(0.1).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = strategy.fuse_gemm_epilogue = strategy.fuse_linear_cross_entropy = True
    with short_chunks(linear_cross_entropy.LEAST_ROWS):
        return count.planned(main, strategy, {"label": (rows, 1)}, [loss.name]), 2 * rows * classes


@pytest.mark.parametrize(
    ("classes", "chunks"), [(linear_cross_entropy.MANY_CLASSES // 2, 2), (linear_cross_entropy.MANY_CLASSES, 4)]
)
def test_logits_in_16_bits_are_there_once(classes: int, chunks: int) -> None:
    """Their kernel widens them in registers and puts the gradient in their place; chunks of the weight's are added up there."""
    plan, logits = planned_for_a_gpu(classes)
    kernels = [(op, made) for op, made in inquiry.working(plan) if made is not None]
    losses = [op for op, _ in kernels if "softmax_with_cross_entropy" in [one.type for one in op.body]]
    assert len(losses) == chunks
    assert all([one.type for one in op.body].count("cast") == 2 for op in losses)
    sums = [made.calls for op, made in kernels if op.type == "fused_gemm_epilogue_grad"]
    assert len(sums) == chunks - 1
    for calls in sums:
        assert all(isinstance(one, LibraryProduct) for one in calls.launches)
        assert not calls.partials
    gradients = 2 * 64 * (classes + 2 * linear_cross_entropy.LEAST_ROWS)
    few = 2 * linear_cross_entropy.LEAST_ROWS * 32
    assert logits // chunks + gradients <= plan.arena_bytes <= logits // chunks + gradients + few


def test_as_few_chunks_as_do() -> None:
    """Chunks are small enough when something else needs as much."""

    def build(others: int) -> str:
        main = static.Program()
        with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
            x = static.data("x", [64, 4], "float32")
            x.stop_gradient = False
            loss = paddle.mean(F.softmax_with_cross_entropy(paddle.matmul(x, paddle.ones([4, 64])), label((64, 1))))
            (grad,) = static.gradients([loss], [x])
            big = paddle.sum(paddle.exp(static.data("big", [others], "float32")))
        found = static.CompiledProgram(main, only(SWITCH)).explain([loss, grad, big])
        return found.applied[0].op.split()[2] if found.applied else found.refused[0].code

    assert build(1) == "16", "the shortest chunks"
    assert build(64 * 64 // 2 + 600) == "2"
    assert build(64 * 64 // 4 + 600) == "4"
    assert build(64 * 64 * 2) == "NOT_THE_PEAK"


@pytest.mark.parametrize(
    ("rows", "count", "sizes"),
    [(8192, 2, (4096, 4096)), (8200, 2, (4096, 4104)), (20, 4, (5, 5, 5, 5)), (23, 4, (5, 5, 5, 8)), (300, 2, (128, 172))],
)  # fmt: skip
def test_sizes_of_chunks(rows: int, count: int, sizes: tuple[int, ...]) -> None:
    assert linear_cross_entropy.sizes_of(rows, count) == sizes
    assert sum(sizes) == rows


def test_no_chunk_is_shorter_than_allowed() -> None:
    for rows in (8191, 8192, 8193, 16383, 16500, 50000):
        found = [*linear_cross_entropy.counts(rows, 4096)]
        assert all(min(linear_cross_entropy.sizes_of(rows, n)) >= 4096 for n in found)
        assert bool(found) == (rows >= 8192)


# ------------------------------------------------------------------------------------------------------------------ codes
def soft(h: Any, w: Any) -> Any:
    given = static.data("soft", [*ROWS, CLASSES], "float32")
    return paddle.mean(F.softmax_with_cross_entropy(paddle.matmul(h, w), given, soft_label=True))


def smooth(h: Any, w: Any) -> Any:
    given = F.label_smooth(F.one_hot(label(ROWS), CLASSES), epsilon=0.1)
    return F.cross_entropy(paddle.matmul(h, w), given, soft_label=True)


def unfused(h: Any, w: Any) -> Any:
    with static.no_fuse():
        logits = paddle.matmul(h, w)
    return paddle.mean(entropy(logits))


def along_rows(h: Any, w: Any) -> Any:
    return paddle.mean(F.softmax_with_cross_entropy(paddle.matmul(h, w), label((ROWS[0], 1, CLASSES)), axis=1))


MISSES: dict[str, tuple[Loss, str]] = {
    "soft labels": (soft, "ATTRIBUTE"),
    "label smoothing": (smooth, "ATTRIBUTE"),
    "the softmax is used, too": (
        lambda h, w: paddle.sum(sum(map(paddle.mean, entropy(paddle.matmul(h, w), return_softmax=True)))), "EXTRA_READER",
    ),
    "the logits are read, too": (
        lambda h, w: paddle.mean(entropy(z := paddle.matmul(h, w))) + paddle.mean(paddle.max(z, axis=-1)), "EXTRA_READER",
    ),
    "no_fuse": (unfused, "FORBIDDEN"),
    "dropout": (lambda h, w: paddle.mean(entropy(F.dropout(paddle.matmul(h, w), 0.5))), "RANDOM"),
    "along the rows": (along_rows, "ROWS"),
    "a batch of products": (
        lambda h, w: paddle.mean(entropy(paddle.matmul(h, paddle.expand(w, [ROWS[0], DEPTH, CLASSES])))), "NOT_A_MATRIX",
    ),
    "another mask for each class and row of a batch": (
        lambda h, w: paddle.mean(entropy(paddle.matmul(h, w) + static.data("mask", [ROWS[1], CLASSES], "float32"))),
        "SHAPE_MISMATCH",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSES)
def test_near_misses_stay_whole_with_a_code(name: str) -> None:
    loss, code = MISSES[name]
    net = Net(loss)
    assert net.codes() == [code]
    for a, b in zip(net.run(True), net.run(False), strict=True):
        assert a.tobytes() == b.tobytes()


def test_logits_that_are_fetched_or_kept_stay_whole() -> None:
    net = Net(NETS["mean"])
    (op,) = (op for op in net.main.global_block().ops if op.type == "softmax_with_cross_entropy")
    (logits,) = op.input("Logits")
    assert net.codes(fetch=(logits,)) == ["FETCHED"]
    net.main.global_block().var(logits).persistable = True
    assert net.codes() == ["PERSISTABLE"]


def test_few_rows_and_unknown_ones_have_codes() -> None:
    with short_chunks(11):
        assert Net(NETS["mean"]).codes() == ["FEW_ROWS"]
    with short_chunks(10):
        assert Net(NETS["mean"]).explained().applied[0].op == "linear_cross_entropy in 2 chunks"


def test_strict_numerics_refuses() -> None:
    paddle.set_flags({"FLAGS_numerics": "strict"})
    try:
        assert Net(NETS["mean"]).codes() == ["NUM_STRICT"]
    finally:
        paddle.set_flags({"FLAGS_numerics": "default"})


def test_a_block_that_has_the_product_keeps_it() -> None:
    net = Net(lambda h, w: paddle.mean(entropy(static.nn.fc(F.relu(static.nn.fc(h, 4, 2)), CLASSES, 2))))
    strategy = only(SWITCH)
    strategy.fused_feedforward = True
    found = static.CompiledProgram(net.main, strategy).explain(fetch_list=[net.loss])
    assert "TWO_GROUPS" in [r.code for r in found.refused if r.switch == SWITCH]


def test_explain_answers() -> None:
    net = Net(NETS["mean"])
    (op,) = (op for op in net.main.global_block().ops if op.type == "softmax_with_cross_entropy")
    logits, losses = op.input("Logits")[0], op.output("Loss")[0]
    assert net.explained().why(logits, losses).code == "APPLIED"
    with short_chunks(11):
        assert net.explained().why(logits, losses).code == "FEW_ROWS"
    assert "linear_cross_entropy in 4 chunks" in net.explained().to_text(verbose=True)


def test_a_wrong_label_is_told_with_the_line() -> None:
    net = Net(NETS["mean"])
    net.feed["label"][3, 4] = CLASSES
    told = {}
    for on in (True, False):
        with pytest.raises(TstaticError) as caught:
            net.run(on)
        told[on] = str(caught.value)
    assert told[True].splitlines()[0] == told[False].splitlines()[0]
    assert __file__.rsplit("/", 1)[-1] in told[True]


# ----------------------------------------------------------------------------------------------------------------- faults
def _first_chunk_only(slice_of: Any, kind: str) -> Any:
    """A chunk reads the first one's rows of labels or of another kind of value."""

    def faulty(self: Chunks, op: Any, value: str, number: int) -> str:
        if self.group.kinds[value] == kind and self.sizes[number] == self.sizes[0]:
            number = 0
        return str(slice_of(self, op, value, number))

    return faulty


def _other_labels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chunks, "_slice", _first_chunk_only(Chunks._slice, "row"))


def _other_inputs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chunks, "_slice", _first_chunk_only(Chunks._slice, "matrix"))


def _lost_sum(patch: pytest.MonkeyPatch) -> None:
    add = Chunks._add

    def faulty(self: Chunks, like: Any, kind: str, inputs: Any, *rest: Any) -> None:
        add(self, like, kind, (inputs[1], inputs[1]) if kind == "elementwise_add" else inputs, *rest)

    patch.setattr(Chunks, "_add", faulty)


def _swapped_parts(patch: pytest.MonkeyPatch) -> None:
    join = Chunks._join

    def faulty(self: Chunks, op: Any, value: str, pieces: Any) -> None:
        join(self, op, value, pieces[::-1])

    patch.setattr(Chunks, "_join", faulty)


def _wrong_rest(patch: pytest.MonkeyPatch) -> None:
    """The last chunk takes the rows from its end instead of those that are left."""
    add = Chunks._add

    def shifted(self: Chunks, like: Any, kind: str, inputs: Any, out: str, attrs: Any, *rest: Any) -> None:
        if kind == "slice" and attrs["ends"] == (self.group.rows,):
            attrs = {**attrs, "starts": (attrs["starts"][0] - 1,), "ends": (attrs["ends"][0] - 1,)}
        add(self, like, kind, inputs, out, attrs, *rest)

    patch.setattr(Chunks, "_add", shifted)


FAULTS = {
    "wrong chunk's labels": _other_labels, "wrong chunk's rows": _other_inputs, "sum of the chunks before lost": _lost_sum,
    "chunks in another order": _swapped_parts, "last chunk's rows off by one": _wrong_rest,
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for place in range(20 if SOAK else 0):
        try:
            testing.assert_equivalent(linear_loss_recipe(place, "gradients"), only(SWITCH), shrink=False)
        except testing.EquivalenceError:
            break
    else:
        assert not SOAK, "no drawn program shows it"
    net = Net(weighted)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        close(net.run(True), net.run(False))
