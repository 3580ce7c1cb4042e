"""Random numbers of whole programs: what repeats, what differs, and that neither threads nor tiles matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

import tstatic as paddle
from tests.helpers import drawing_programs
from tests.helpers.drawing_programs import Recipe, recipes, same_bits
from tests.helpers.drawn import PLAIN, only
from tstatic import static
from tstatic.ir.opdef import PUBLIC_API
from tstatic.ir.rng import RngKey
from tstatic.runtime.session import Session
from tstatic.tuned import draw
from tstatic.tuned.philox import CHUNK, philox_key

Array = np.ndarray[Any, Any]


def executor() -> Any:
    return static.Executor(paddle.CPUPlace())


def dropout(x: Any, p: float) -> Any:
    return PUBLIC_API["nn.functional.dropout"].function(x, p)


def test_numbers_are_those_of_the_rule() -> None:
    """Also for outputs so large that the executor cuts them."""
    shapes = {"uniform": (3, CHUNK), "normal": (2 * CHUNK + 1,), "dropout": (300, 2001), "wide": (5, 7)}
    x = static.data("x", [None, shapes["dropout"][1]])
    outs = [
        paddle.uniform(shapes["uniform"], min=2.0, max=5.0),
        paddle.randn(shapes["normal"]),
        dropout(x, 0.25),
        paddle.randn(shapes["wide"], "float64"),
    ]
    positions = [op.position for op in static.default_main_program().global_block().ops]
    paddle.seed(77)
    exe = executor()
    for run in range(2):
        u, z, d, w = exe.run(feed={"x": np.ones(shapes["dropout"], np.float32)}, fetch_list=outs)
        keys = [philox_key(RngKey(77, 0, p, run)) for p in positions]
        expected = np.empty(shapes["uniform"], np.float32)
        draw.fill_uniform(expected, 2.0, 5.0, keys[0])
        assert np.array_equal(u, expected)
        expected = np.empty(shapes["normal"], np.float32)
        draw.fill_normal(expected, 0.0, 1.0, keys[1])
        assert np.array_equal(z, expected)
        kept = np.empty(shapes["dropout"], np.uint8)
        draw.fill_keep(kept, 0.25, keys[2])
        assert np.array_equal(d, kept * np.float32(1 / 0.75))
        expected = np.empty(shapes["wide"], np.float64)
        draw.fill_normal(expected, 0.0, 1.0, keys[3])
        assert np.array_equal(w, expected)


@pytest.mark.parametrize("own_seed", [0, 9])
def test_runs_differ_and_repeat(own_seed: int) -> None:
    def history(seed: int) -> list[Array]:
        program, startup = static.Program(), static.Program()
        with static.program_guard(program, startup), static.scope_guard(static.Scope()):
            program.random_seed = own_seed
            a, b = paddle.rand([50]), paddle.rand([50])
            paddle.seed(seed)
            exe = executor()
            return [r for _ in range(3) for r in exe.run(program, fetch_list=[a, b])]

    one, again, other = history(4), history(4), history(5)
    assert all(np.array_equal(x, y) for x, y in zip(one, again, strict=True))
    assert all(not np.array_equal(one[i], one[j]) for i in range(6) for j in range(i))
    # A program's own seed beats paddle.seed.
    assert np.array_equal(one[0], other[0]) is bool(own_seed)


def test_zero_is_a_seed_as_any_other() -> None:
    a = paddle.rand([50])
    position = static.default_main_program().global_block().ops[0].position
    paddle.seed(0)
    expected = np.empty(50, np.float32)
    draw.fill_uniform(expected, 0.0, 1.0, philox_key(RngKey(0, 0, position, 0)))
    assert np.array_equal(executor().run(fetch_list=[a])[0], expected)


@pytest.mark.parametrize("own_seed", [0, 9])
def test_a_new_seed_restarts_programs_that_have_none_of_their_own(own_seed: int) -> None:
    static.default_main_program().random_seed = own_seed
    a = paddle.rand([50])
    exe = executor()
    paddle.seed(4)
    one = exe.run(fetch_list=[a])[0]
    paddle.seed(4)
    other = exe.run(fetch_list=[a])[0]
    assert np.array_equal(one, other) is not bool(own_seed)


def test_steps_that_update_parameters_draw_anew_each_time() -> None:
    x = static.data("x", [None, 400])
    y = dropout(x * static.create_parameter([400], "float32"), 0.5)
    paddle.optimizer.SGD(0.0).minimize(paddle.sum(y))
    paddle.seed(4)
    exe = executor()
    exe.run(static.default_startup_program())
    masks = [exe.run(feed={"x": np.ones((2, 400), np.float32)}, fetch_list=[y])[0] != 0 for _ in range(3)]
    assert all(not np.array_equal(masks[i], masks[j]) for i in range(3) for j in range(i))


def test_without_a_seed_processes_differ_only() -> None:
    a = paddle.rand([50])
    exe = executor()
    one, other = exe.run(fetch_list=[a])[0], exe.run(fetch_list=[a])[0]
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_matter(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstatic.devices.immediate.usable_cpus", lambda: 8)
    x = static.data("x", [None, 997])
    x.stop_gradient = False
    y = dropout(x, 0.4)
    loss = paddle.sum(y * paddle.randn([700, 997]))
    static.append_backward(loss)
    program = static.default_main_program()
    feed = {"x": np.random.default_rng(0).normal(size=(700, 997)).astype(np.float32)}
    results = []
    original = Session.__init__
    for count in (1, threads):

        def patched(self: Any, *args: Any, count: int = count, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self.threads = count

        monkeypatch.setattr(Session, "__init__", patched)
        paddle.seed(3)
        results.append(executor().run(program, feed=feed, fetch_list=[y, loss, "x@GRAD"]))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_gradient_uses_the_mask_of_the_same_run() -> None:
    x = static.data("x", [None, 400])
    x.stop_gradient = False
    y = dropout(x, 0.5)
    static.append_backward(paddle.sum(y))
    exe = executor()
    for _ in range(2):
        out, grad = exe.run(feed={"x": np.ones((5, 400), np.float32)}, fetch_list=[y, "x@GRAD"])
        assert np.array_equal(out, grad)
        assert 0.3 < (out == 0).mean() < 0.7


def test_clone_for_test_drops_nothing() -> None:
    x = static.data("x", [None, 40])
    y = dropout(x, 0.5)
    test = static.default_main_program().clone(for_test=True)
    (out,) = executor().run(test, feed={"x": np.ones((5, 40), np.float32)}, fetch_list=[y.name])
    assert (out == 1).all()


def test_masks_survive_other_ops_around_them() -> None:
    """Removing ops does not move a random op's position."""
    x = static.data("x", [None, 400])
    extra = paddle.rand([3])
    y = dropout(x, 0.5)
    program = static.default_main_program()
    feed = {"x": np.ones((5, 400), np.float32)}
    paddle.seed(1)
    (both, _) = executor().run(program, feed=feed, fetch_list=[y, extra])
    pruned = program._prune([y])
    paddle.seed(1)
    (alone,) = executor().run(pruned, feed=feed, fetch_list=[y.name])
    assert np.array_equal(both, alone)


def test_random_numbers_inside_a_loop_differ() -> None:
    i = paddle.full([], 0, "int64")
    total = paddle.zeros([6, 30])

    def body(i: Any, total: Any) -> Any:
        row = paddle.rand([6, 30])
        return [i + 1, row]

    first = paddle.rand([6, 30])
    _, last = static.nn.while_loop(lambda i, t: i < 3, body, [i, total])
    _, earlier = static.nn.while_loop(lambda i, t: i < 2, body, [paddle.full([], 0, "int64"), paddle.zeros([6, 30])])
    found = executor().run(fetch_list=[first, last, earlier])
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


# -------------------------------------------------------------------------------------------- shapes known at run time
def test_shape_from_a_variable() -> None:
    x = static.data("x", [None, 3])
    rows = paddle.shape(x)[0]
    outs = [
        paddle.full([rows, 2], 1.5),
        paddle.zeros([rows], "int64"),
        paddle.uniform([rows, 4], min=2.0, max=3.0),
        paddle.randn([2, rows]),
        paddle.full(paddle.shape(x), 7, "int32"),
        paddle.arange(rows),
        paddle.normal(mean=x, std=0.0),
        paddle.full([2], rows, "float32"),
        paddle.linspace(0, paddle.cast(rows, "float32"), 3),
    ]
    exe = executor()
    for n in (5, 2):
        found = exe.run(feed={"x": np.ones((n, 3), np.float32)}, fetch_list=outs)
        full, zeros, uniform, randn, like, count, normal, spread, line = found
        assert (full == 1.5).all()
        assert full.shape == (n, 2)
        assert zeros.tolist() == [0] * n
        assert ((uniform >= 2) & (uniform < 3)).all()
        assert len(set(uniform.ravel().tolist())) == 4 * n
        assert randn.shape == (2, n)
        assert (like == 7).all()
        assert like.shape == (n, 3)
        assert count.tolist() == list(range(n))
        assert (normal == 1).all()
        assert spread.tolist() == [n, n]
        assert np.allclose(line, [0, n / 2, n])


def test_same_weights_from_the_same_seed() -> None:
    def weights() -> Array:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard(), static.scope_guard(static.Scope()):
            w = static.create_parameter([40, 30], "float32", name="w")
            paddle.seed(12)
            exe = executor()
            exe.run(startup)
            return exe.run(main, fetch_list=[w])[0]  # type: ignore[no-any-return]

    assert np.array_equal(weights(), weights())


# ---------------------------------------------------------------------------------------------------- states of the numbers
def test_reading_the_state_changes_no_number() -> None:
    paddle.seed(5)
    x, exe = paddle.rand([3]), executor()
    plain = [exe.run(fetch_list=[x])[0].tolist() for _ in range(3)]
    paddle.seed(5)
    read = []
    for _ in range(3):
        paddle.get_rng_state()
        read.append(exe.run(fetch_list=[x])[0].tolist())
    assert read == plain


@pytest.mark.parametrize("own_seed", [0, 9])
def test_a_restored_state_draws_again_what_followed_it(own_seed: int) -> None:
    paddle.seed(5)
    program = static.default_main_program()
    program.random_seed = own_seed
    x, exe = paddle.rand([3]), executor()

    def drawn() -> Any:
        return exe.run(fetch_list=[x])[0].tolist(), list(paddle.io.random_split(range(6), [3, 3])[0].indices)

    drawn()
    state = paddle.get_rng_state()
    first = [drawn(), drawn()]
    later = paddle.get_rng_state()
    third = drawn()
    paddle.set_rng_state(state)
    assert [drawn(), drawn(), drawn()] == [*first, third]
    # Forwards as well, and past another seed.
    paddle.seed(77)
    drawn()
    paddle.set_rng_state(later)
    assert drawn() == third
    with pytest.raises(paddle.errors.ProgramTypeError):
        paddle.set_rng_state([3])
    assert exe.run(fetch_list=[x])[0].shape == (3,)


def test_a_program_that_was_not_run_before_the_state_starts_again_after_it() -> None:
    paddle.seed(5)
    x, exe = paddle.rand([3]), executor()
    state = paddle.get_rng_state()
    found = [exe.run(fetch_list=[x])[0].tolist() for _ in range(2)]
    paddle.set_rng_state(state)
    assert [exe.run(fetch_list=[x])[0].tolist() for _ in range(2)] == found


def test_a_state_of_another_process_starts_at_its_seed() -> None:
    from dataclasses import replace

    paddle.seed(5)
    x, exe = paddle.rand([3]), executor()
    found = exe.run(fetch_list=[x])[0].tolist()
    (state,) = paddle.get_rng_state()
    paddle.seed(6)
    paddle.set_rng_state([replace(state, process=0)])
    assert exe.run(fetch_list=[x])[0].tolist() == found


@seeded(1)
@settings(max_examples=40, **PLAIN)
@given(
    recipes(("float32", "float64", "float16", "bfloat16")), st.sampled_from(["enable_auto_fusion", "build_cinn_pass"])
)
def test_a_fused_program_draws_the_same_numbers(recipe: Recipe, switch: str) -> None:
    """Its operators run one by one here; gradients draw masks again instead of reading them."""
    plain, _ = drawing_programs.run(recipe, None)
    fused, compiled = drawing_programs.run(recipe, only(switch))
    assert same_bits(fused, plain), recipe
    gradients = [
        step.op for step in compiled.plan.steps if step.op.type.startswith("dropout") and "_grad" in step.op.type
    ]
    assert all(len(op.inputs) == 1 for op in gradients)
