"""Gradients of lookups that are added to another gradient of the table in its place: bits, memory, codes, faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import only
from tests.helpers.optimizer_programs import same
from tests.helpers.soak import SOAK
from tests.helpers.tied_programs import SWITCH, tied_recipe
from tstatic import devices, flags, static, testing
from tstatic.errors import IndexRangeError
from tstatic.fusion.patterns import embedding_grad_add
from tstatic.ir.opdef import op_def
from tstatic.static.explain.savings import Saving

F = paddle.nn.functional
PROGRAMS = 600 if SOAK else 24
ROWS, WIDTH = 23, 5
FEED = {"ids": (4, 6), "more": (7,), "x": (3, WIDTH)}


def ids(name: str = "ids") -> Any:
    return static.data(name, list(FEED[name]), "int64")


def lookup(w: Any, name: str = "ids", **attrs: Any) -> Any:
    return paddle.tanh(F.embedding(ids(name), w, **attrs))


def product(w: Any) -> Any:
    return paddle.tanh(paddle.matmul(static.data("x", list(FEED["x"]), "float32"), w, transpose_y=True))


def apart(w: Any) -> Any:
    with static.no_fuse():
        return lookup(w)


class Net:
    """A table ``w`` and a loss that reads it, trained by AdamW.

    Args:
        loss: ``w -> losses``, which are summed.
        dtype: Of the table.
    """

    def __init__(self, *losses: Callable[[Any], Any], dtype: str = "float32") -> None:
        self.main, self.startup = static.Program(), static.Program()
        self.main.random_seed = self.startup.random_seed = 3
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            start = paddle.nn.initializer.Normal(0.0, 0.5)
            w = static.create_parameter([ROWS, WIDTH], dtype, name="w", default_initializer=start)
            self.loss = paddle.add_n([paddle.sum(paddle.cast(one(w), "float32")) for one in losses])
            paddle.optimizer.AdamW(0.1).minimize(self.loss)
        rng = np.random.default_rng(1)
        self.feed = {
            n: rng.integers(0, 6, s) if n != "x" else rng.standard_normal(s).astype(np.float32)
            for n, s in FEED.items()
            if self.main.global_block().has_var(n)
        }

    @property
    def lookups(self) -> list[Any]:
        return [op for op in self.main.global_block().ops if op.type == "lookup_table_v2_grad"]

    def run(self, strategy: Any = None, fetch: tuple[str, ...] = (), steps: int = 2) -> list[Any]:
        """What the last step gives: the loss, the gradient, the table, and what else is fetched."""
        scope, executor = static.Scope(), static.Executor("cpu")
        executor.run(self.startup, scope=scope)
        compiled = static.CompiledProgram(self.main, strategy)
        for _ in range(steps):
            found = executor.run(compiled, feed=self.feed, fetch_list=[self.loss, "w@GRAD", "w", *fetch], scope=scope)
        return [np.asarray(one) for one in found]

    def explained(self, fetch: tuple[str, ...] = ()) -> Any:
        return static.CompiledProgram(self.main, only(SWITCH)).explain([self.loss, *fetch])

    def codes(self, fetch: tuple[str, ...] = ()) -> list[str]:
        """The codes of what was refused; nothing is rewritten."""
        found = self.explained(fetch)
        assert not found.applied
        return [r.code for r in found.refused]


NETS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "lookup and product": (lookup, product),
    "product and lookup": (product, lookup),
    "padding": (lambda w: lookup(w, padding_idx=2), product),
    "two lookups": (lookup, lambda w: lookup(w, "more")),
}


# ------------------------------------------------------------------------------------------------------------------- bits
@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", NETS)
def test_the_bits_are_those_of_the_sum(name: str, dtype: str) -> None:
    if dtype != "float32" and any(one is product for one in NETS[name]):
        losses = tuple(paddle.square if one is product else one for one in NETS[name])
    else:
        losses = NETS[name]
    net = Net(*losses, dtype=dtype)
    (made,) = net.explained().applied
    assert made.op == "embedding_grad_add"
    assert {m.type for m in made.members} == {"lookup_table_v2_grad", "sum"}
    assert all(same(a + 0, b + 0) for a, b in zip(net.run(only(SWITCH)), net.run(), strict=True))


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_more_than_two_are_within_the_tolerance(device: str) -> None:
    net = Net(lookup, product, paddle.square, lambda w: lookup(w, "more"))
    (made,) = net.explained().applied
    assert [op.type for op in made.rewritten] == ["sum", "embedding_grad_add", "embedding_grad_add"]
    wanted = net.run()
    with devices.use(device):
        found, again = net.run(only(SWITCH)), net.run(only(SWITCH))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert all(same(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
def test_gradients_added_one_by_one_are_found_too() -> None:
    strategy = only(SWITCH)
    strategy.enable_addto = True
    net = Net(lookup, product)
    (made,) = static.CompiledProgram(net.main, strategy).explain([net.loss]).applied
    assert [m.type for m in made.members] == ["lookup_table_v2_grad", "elementwise_add"]
    assert all(same(a + 0, b + 0) for a, b in zip(net.run(strategy), net.run(), strict=True))


def test_drawn_programs_agree() -> None:
    count: Counter[str] = Counter()
    for place in range(PROGRAMS):
        kind = "training" if place % 6 == 5 else "forward" if place % 6 == 0 else "gradients"
        recipe = tied_recipe(place, kind, 2)
        built = recipe.build()
        applied = static.CompiledProgram(built.main, only(SWITCH)).explain(fetch_list=built.fetches).applied
        assert not (applied and kind == "forward")
        count.update(len(a.members) for a in applied)
        testing.assert_equivalent(recipe, only(SWITCH), shrink=False)
    assert sum(count.values()) >= 0.5 * PROGRAMS
    assert len(count) == 2, "of one lookup, and of two"


# ----------------------------------------------------------------------------------------------------------------- memory
def test_the_rows_are_added_in_place() -> None:
    net = Net(lookup, product)
    shapes = {n: a.shape for n, a in net.feed.items()}
    strategy = static.BuildStrategy()
    strategy.fuse_embedding_grad_add = True
    compiled = static.CompiledProgram(net.main, strategy)
    compiled.memory_report(shapes, [net.loss])
    (step,) = [s for s in compiled.plan.steps if s.op.type == "embedding_grad_add"]
    total, out = (compiled.plan.storage[v] for v in (step.op.inputs[0], step.op.outputs[0]))
    assert total.offset == out.offset
    found = net.explained()
    (saved,) = found.saved
    # The gradient that is not made: written once and read once, and the other one is read once more.
    whole, rows = ROWS * WIDTH * 4, 24 * (8 + WIDTH * 4)
    assert saved == Saving(2 * whole, 1)
    assert found.traffic.bytes_before - found.traffic.bytes_after == 2 * whole
    assert rows < 2 * whole
    assert f"saves {2 * whole:,} bytes and 1 launches" in found.to_text(verbose=True)
    assert "1 x embedding_grad_add (fuse_embedding_grad_add)" in str(found)


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
def test_what_is_read_again_is_not_overwritten() -> None:
    net = Net(lookup, product)
    (op,) = (op for op in net.main.global_block().ops if op.type == "matmul_v2_grad")
    (other,) = op.output("Y@GRAD")
    assert len(net.explained((other,)).applied) == 1
    found, wanted = net.run(only(SWITCH), (other,)), net.run(None, (other,))
    assert all(same(a + 0, b + 0) for a, b in zip(found, wanted, strict=True))


# ------------------------------------------------------------------------------------------------------------------ codes
def test_near_misses_have_codes() -> None:
    net = Net(lookup, product)
    (gradient,) = net.lookups[0].output("W@GRAD")
    assert net.codes((gradient,)) == ["FETCHED"]
    with static.program_guard(net.main):
        also = paddle.exp(net.main.global_block().var(gradient))
    assert net.codes((also.name,)) == ["EXTRA_READER"]
    net.main.global_block().var(gradient).persistable = True
    assert net.codes() == ["PERSISTABLE"]
    assert Net(apart, product).codes() == ["FORBIDDEN"]
    with flags.using_numerics("strict"):
        assert Net(lookup, product).codes() == ["NUM_STRICT"]


def test_what_is_no_sum_of_gradients_of_a_table_is_left_alone() -> None:
    assert Net(lookup).codes() == []
    assert Net(product, paddle.square).codes() == []
    main = static.Program()
    with static.program_guard(main, static.Program()):
        w = static.data("w", [ROWS, WIDTH], "float32")
        w.stop_gradient = False
        (grad,) = static.gradients([paddle.sum(lookup(w))], [w])
        broadcast = grad + static.data("row", [WIDTH], "float32")
    found = static.CompiledProgram(main, only(SWITCH)).explain([broadcast])
    assert not found.applied
    assert not found.refused


def test_a_lookup_that_is_needed_whole_does_not_keep_the_other_one() -> None:
    net = Net(lookup, product, lambda w: lookup(w, "more"))
    (gradient,) = net.lookups[0].output("W@GRAD")
    found = net.explained((gradient,))
    assert [len(a.members) for a in found.applied] == [2]
    assert [r.code for r in found.refused] == ["FETCHED"]
    wanted = net.run(None, (gradient,))
    for a, b in zip(net.run(only(SWITCH), (gradient,)), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_wrong_index_is_told_as_before() -> None:
    net = Net(lookup, product)
    net.feed["ids"][1, 2] = ROWS
    told = []
    for strategy in (only(SWITCH), None):
        with pytest.raises(IndexRangeError) as caught:
            net.run(strategy)
        told.append(str(caught.value))
    assert told[0] == told[1]


# ----------------------------------------------------------------------------------------------------------------- faults
def _changed(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Changes each op that adds rows."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = embedding_grad_add._in_place

        def faulty(*given: Any) -> list[Any]:
            return [change(op) if op.type == "embedding_grad_add" else op for op in right(*given)]

        patch.setattr(embedding_grad_add, "_in_place", faulty)

    return plant


def _first_of_two(patch: pytest.MonkeyPatch) -> None:
    right = embedding_grad_add._in_place
    patch.setattr(embedding_grad_add, "_in_place", lambda *given: right(*given[:-1], [given[-1][0]] * len(given[-1])))


def _scattered(patch: pytest.MonkeyPatch) -> None:
    """Of equal indices one row is added."""

    def ref(x: Any, index: Any, dout: Any, out: Any, padding_idx: int) -> None:
        np.copyto(out, x)
        out[index.reshape(-1)] += dout.reshape(index.size, out.shape[1]).astype(out.dtype)
        if padding_idx >= 0:
            out[padding_idx] = x[padding_idx]

    patch.setattr(op_def("embedding_grad_add").ref, "function", ref)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "padding forgotten": _changed(lambda op: replace(op, attrs={"padding_idx": -1})),
    "another row is the padding": _changed(
        lambda op: replace(op, attrs={"padding_idx": max(0, op.attrs["padding_idx"] - 1)})
    ),
    "the first of two lookups twice": _first_of_two,
    "one of equal indices": _scattered,
}


@pytest.mark.numpy_device("the faults are planted in the references", not_on=("torch",))
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for place in range(16):
        try:
            testing.assert_equivalent(tied_recipe(place, "gradients"), only(SWITCH), shrink=False)
        except testing.EquivalenceError:
            return
    raise AssertionError("no drawn program shows it")
