"""Random numbers that kernels draw: bit for bit the reference's, whatever is fused with them."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.helpers import drawing_programs
from tests.helpers.drawing_programs import Recipe, recipes, same_bits
from tests.helpers.drawn import PLAIN, only
from tests.helpers.soak import SOAK
from tests.interpret.kernels import by_kernel_and_reference
from tstatic import devices, static
from tstatic.devices import interpret
from tstatic.devices.fake import FakeDevice
from tstatic.fusion.codegen.text.emit import helpers, module
from tstatic.fusion.engine import cache
from tstatic.ir.opdef import OPS
from tstatic.ir.rng import RngKey, kernel_numbers
from tstatic.ir.traits import Redrawn
from tstatic.ir.types import dtype_of
from tstatic.tuned.philox import philox_key, random_bits, torch_halves

F = paddle.nn.functional
SWITCHES = ("enable_auto_fusion", "build_cinn_pass")
TIMES = 8 if SOAK else 1

KEYS = st.builds(
    RngKey,
    seed=st.integers(0, 2**64 - 1),
    place=st.integers(0, 2**10),
    position=st.integers(0, 2**32 - 1),
    run=st.integers(0, 2**31 - 1),
)


# ------------------------------------------------------------------------------------------------------------ one by one
WORDS = """@triton.jit
def kernel(y, rng, draws, first, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y + offsets, _philox(rng, draws, first + offsets, 0).to(tl.int64), mask=offsets < n)"""


@seed(1)
@settings(max_examples=8 * TIMES, **PLAIN)
@example(RngKey(2**64 - 1, 3, 2**32 - 1, 2**31 - 1), 2**34 - 3, 0)
@given(key=KEYS, first=st.integers(0, 2**40), own=st.sampled_from([0, 0, 7, -1, 2**40 + 1]))
def test_words_are_those_of_the_generator(key: RngKey, first: int, own: int) -> None:
    """Also behind the block where the counter's second word begins to count."""
    loaded = cache.load(module(helpers({"_philox"}), WORDS), "words")
    arrays = {
        "y": np.zeros(16, np.int64),
        "rng": kernel_numbers(key.seed, key.run, key.place),
        "draws": np.array([key.position, own], np.int64),
    }
    launch = "kernel", (1,), ("y", "rng", "draws", first, 13), {"BLOCK": 16}, {}
    for function, args in interpret.bind_launches(loaded, [launch], arrays):  # type: ignore[list-item]
        function(*args)
    assert np.array_equal(arrays["y"][:13], random_bits(13, philox_key(key, own), first))


HALVES = """@triton.jit
def kernel(y, rng, draws, first, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y + offsets, _half(rng, draws, first + offsets), mask=offsets < n)"""

RUNS = """@triton.jit
def kernel(y, rng, draws, first, RUN: tl.constexpr, TURNED: tl.constexpr):
    rows, columns = tl.arange(0, 4), tl.arange(0, 16)
    runs = RUN * tl.arange(0, 16 // RUN)
    if TURNED:
        found = _half_runs(rng, draws, first + rows[None, :] * 24 + runs[:, None], columns[:, None], RUN, True)
        tl.store(y + rows[None, :] * 16 + columns[:, None], found)
    else:
        found = _half_runs(rng, draws, first + rows[:, None] * 24 + runs[None, :], columns[None, :], RUN, False)
        tl.store(y + rows[:, None] * 16 + columns[None, :], found)"""


def halves(count: int, key: Any, first: int) -> list[int]:
    """Halves by the torch form, which other tests compare with the definition."""
    torch = pytest.importorskip("torch")
    found: list[int] = torch_halves(torch, count, key, first).tolist()
    return found


@seed(4)
@settings(max_examples=8 * TIMES, **PLAIN)
@example(RngKey(2**64 - 1, 3, 2**32 - 1, 2**31 - 1), 2**35 - 3, 0)
@given(key=KEYS, first=st.integers(0, 2**40), own=st.sampled_from([0, 0, 7, -1, 2**40 + 1]))
def test_halves_are_those_of_the_generator(key: RngKey, first: int, own: int) -> None:
    """One by one, and in runs along rows and along columns of a matrix."""
    numbers = kernel_numbers(key.seed, key.run, key.place)
    table = np.array([key.position, own], np.int64)

    def run(text: str, function: str, at: int, more: tuple[int, ...], constants: dict[str, Any]) -> Any:
        arrays = {"y": np.zeros(64, np.int32), "rng": numbers, "draws": table}
        loaded = cache.load(module(helpers({function}), text), "halves")
        launch = "kernel", (1,), ("y", "rng", "draws", at, *more), constants, {}
        for call, args in interpret.bind_launches(loaded, [launch], arrays):  # type: ignore[list-item]
            call(*args)
        return arrays["y"]

    got = run(HALVES, "_half", first, (23,), {"BLOCK": 32})
    assert got[:23].tolist() == halves(23, philox_key(key, own), first)
    for length, turned in ((8, False), (8, True), (4, False)):
        whole = first // length * length
        wanted = halves(4 * 24, philox_key(key, own), whole)
        got = run(RUNS, "_half_runs", whole, (), {"RUN": length, "TURNED": turned}).reshape(4, 16)
        assert got.tolist() == [wanted[24 * row :][:16] for row in range(4)]


ON_TORCH = "torch" in os.environ.get("TSTATIC_CPU_BACKEND", "")
"""Whether operators that are not fused run through torch."""

DTYPES = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)


@seed(2)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    shape=SHAPES,
    limits=st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (2.0, 2.0), (1.0, 2.0), (-0.3, 1e4), (1e-3, 1.1e-3)]),
    own=st.sampled_from([0, 11, -5]),
    like=st.booleans(),
)
def test_uniform_numbers(
    key: RngKey, dtype: str, shape: tuple[int, ...], limits: tuple[float, float], own: int, like: bool
) -> None:
    attrs = {"min": limits[0], "max": limits[1], "seed": own}
    if like:
        by_kernel_and_reference(
            OPS["uniform_random_inplace"], {"X": np.zeros(shape, dtype_of(dtype).np)}, attrs, key, 1
        )
    else:
        by_kernel_and_reference(OPS["uniform_random"], {}, {**attrs, "shape": shape, "dtype": dtype_of(dtype)}, key, 1)


@seed(3)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    shape=SHAPES.filter(bool),
    p=st.sampled_from([0.0, 1e-9, 1e-3, 2.0**-7, 0.1, 0.5, 0.75, 1 - 2.0**-7, 0.995, 1.0]),
    mode=st.sampled_from(["upscale_in_train", "downgrade_in_infer"]),
    kind=st.sampled_from(["dropout", "dropout, mask", "dropout_nd", "gradient", "gradient of slices"]),
    test=st.sampled_from([False, False, False, True]),
)
def test_dropout(key: RngKey, dtype: str, shape: tuple[int, ...], p: float, mode: str, kind: str, test: bool) -> None:
    """Zeros, infinities and NaN come out as the reference gives them: what is dropped is a product with 0."""
    given = np.random.default_rng(4).choice([1.5, -2.25, 0.0, -0.0, np.inf, -np.inf, 3e-5], shape)
    attrs: dict[str, Any] = {"dropout_prob": p, "dropout_implementation": mode, "is_test": test}
    name = "dropout_nd" if kind in ("dropout_nd", "gradient of slices") else "dropout"
    if name == "dropout_nd":
        attrs["axis"] = (len(shape) - 1, 0)[: 1 + (p == 0.5)]
    definition, slot = OPS[name], "X"
    if kind.startswith("gradient"):
        definition, slot = OPS[f"{name}_grad"].needs(Redrawn).op, "Out@GRAD"
    by_kernel_and_reference(
        definition, {slot: given.astype(dtype_of(dtype).np)}, attrs, key, 2 if kind == "dropout, mask" else 1
    )


# -------------------------------------------------------------------------------------------------------------- programs
def drawing(compiled: static.CompiledProgram) -> list[str]:
    """The types of the ops that draw in the kernels of the last plan."""
    return [one.type for step in compiled.plan.steps for one in step.op.body if one.definition.random]


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_fused_programs_give_the_bits_of_unfused_ones(switch: str) -> None:
    drawn: list[str] = []

    @seed(5)
    @settings(max_examples=20 * TIMES, **PLAIN)
    @given(recipes())
    def check(recipe: Recipe) -> None:
        plain, _ = drawing_programs.run(recipe, None)
        fused, compiled = drawing_programs.run(recipe, only(switch))
        if ON_TORCH:
            # There relu leaves -0 as it is (docs/differences.md); a sum with 0 takes its sign away.
            plain, fused = ([np.add(a, 0, dtype=a.dtype) for a in some] for some in (plain, fused))
        assert same_bits(fused, plain), recipe
        assert not any(step.op.definition.random for step in compiled.plan.steps), recipe
        drawn.extend(drawing(compiled))
        assert str(compiled.program)

    check()
    assert {"dropout", "dropout_nd", "dropout_grad", "dropout_nd_grad", "uniform_random"} <= set(drawn)


@seed(6)
@settings(max_examples=5 * TIMES, **PLAIN)
@given(recipes(("float16", "bfloat16", "float32")), st.sampled_from(SWITCHES))
def test_strict_numerics_in_16_bits(recipe: Recipe, switch: str) -> None:
    paddle.set_flags({"FLAGS_numerics": "strict"})
    try:
        plain, _ = drawing_programs.run(recipe, only("fuse_bn_act_ops"))
        fused, _ = drawing_programs.run(recipe, only(switch))
    finally:
        paddle.set_flags({"FLAGS_numerics": "default"})
    assert same_bits(fused, plain), recipe


LAYER = Recipe(
    "float32",
    (5, 6),
    (("dropout", (0.25, "upscale_in_train", 0)), ("add", ()), ("uniform", (-1.0, 1.0)), ("slices", (0.5, [0]))),
    "gradients",
    2**63 + 9,
)


@pytest.mark.parametrize("switch", SWITCHES)
def test_on_a_late_device(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step's numbers are written between the kernels of the step before and its own."""
    plain, _ = drawing_programs.run(LAYER, None, runs=3)
    monkeypatch.setitem(devices.DEVICES, "late", FakeDevice(generated=True))
    with devices.use("late"):
        late, compiled = drawing_programs.run(LAYER, only(switch), runs=3)
    assert drawing(compiled)
    assert same_bits(late, plain)


def test_on_a_late_device_without_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the numbers of the step says that kernels must wait."""
    main = static.Program()
    main.random_seed = 4
    with static.program_guard(main, static.Program()):
        outs = [paddle.uniform([40]) * 2.0 + 1.0 for _ in range(6)]

    def run(strategy: static.BuildStrategy) -> list[Any]:
        executor, scope, compiled = static.Executor("cpu"), static.Scope(), static.CompiledProgram(main, strategy)
        return [a for _ in range(4) for a in executor.run(compiled, fetch_list=outs, scope=scope)]

    plain = run(only("fuse_bn_act_ops"))
    monkeypatch.setitem(devices.DEVICES, "late", FakeDevice(generated=True))
    with devices.use("late"):
        assert same_bits(run(only("enable_auto_fusion")), plain)


def in_runs(compiled: static.CompiledProgram) -> set[int]:
    """For how many neighbours together the kernels of the last plan draw halves; 0: for each by itself."""
    texts = [one.kernel.code for one in compiled.plan.kernels.values()]
    found = [re.search(r"RUN: tl\.constexpr = (\d).*?_half_runs\(|= _half\(", text, re.S) for text in texts]
    return {int(one[1] or 0) for one in found if one is not None}


def rows(switch: str | None, fetch_mask: bool = False, length: int = 9) -> tuple[list[Any], Any, Any]:
    """Softmax with dropout, a layer norm with dropout, and gradients; rows are summed otherwise in kernels."""
    main = static.Program()
    main.random_seed = 3
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        x = static.data("x", [6, length], "float32")
        x.stop_gradient = False
        kept = F.dropout(F.softmax(x), 0.5)
        normed = static.nn.layer_norm(kept + x, scale=False, shift=False, begin_norm_axis=1)
        y = F.dropout(normed, 0.25)
        fetches = [kept, y, *static.gradients([y], [x], [static.data("given", [6, length])])]
    masks = [op.output("Mask")[0] for op in main.global_block().ops if op.type == "dropout"]
    feed = {n: np.linspace(-1, 2, 6 * length, dtype=np.float32).reshape(6, length) for n in ("x", "given")}
    compiled = static.CompiledProgram(main, only(switch or "fuse_bn_act_ops"))
    wanted = [*fetches, *masks[: 1 if fetch_mask else 0]]
    return static.Executor("cpu").run(compiled, feed=feed, fetch_list=wanted), compiled, (wanted, masks)


@pytest.mark.parametrize("length", [9, 16, 20])
def test_along_rows_the_same_elements_are_dropped(length: int) -> None:
    plain, _, _ = rows(None, length=length)
    fused, compiled, _ = rows("build_cinn_pass", length=length)
    assert in_runs(compiled) == {4 * (length > 9)}
    assert sorted(drawing(compiled)) == ["dropout", "dropout", "dropout_grad", "dropout_grad"]
    for a, b in zip(fused, plain, strict=True):
        assert np.array_equal(a == 0, b == 0)
        # Of the gradient torch's layer_norm is 4.3e-5 off float64 here, kernels and references 0.7e-5.
        np.testing.assert_allclose(a, b, 1e-5, 5e-5 if ON_TORCH else 4e-6)


@pytest.mark.parametrize(("dtype", "run"), [("float32", 4), ("bfloat16", 8), ("float64", 0)])
@pytest.mark.parametrize("columns", [16, 24, 12, 20])
def test_beside_sums_over_rows_the_same_elements_are_dropped(dtype: str, run: int, columns: int) -> None:
    """The gradient of a bias that was added before; all sums are exact."""

    def run_it(switch: str) -> tuple[list[Any], static.CompiledProgram]:
        main = static.Program()
        main.random_seed = 8
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            x, given = static.data("x", [10, columns], dtype), static.data("given", [10, columns], dtype)
            bias = static.data("bias", [columns], dtype)
            x.stop_gradient = bias.stop_gradient = False
            y = F.dropout(x + bias, 0.5)
            fetches = [y, *static.gradients([y], [x, bias], [given])]
        compiled = static.CompiledProgram(main, only(switch))
        rng = np.random.default_rng(1)
        feed = {n: rng.integers(1, 4, s).astype(dtype_of(dtype).np) for n, s in
                (("x", (10, columns)), ("given", (10, columns)), ("bias", (columns,)))}  # fmt: skip
        return static.Executor("cpu").run(compiled, feed=feed, fetch_list=fetches), compiled

    plain, _ = run_it("fuse_bn_act_ops")
    fused, compiled = run_it("enable_auto_fusion")
    assert same_bits(fused, plain)
    assert 0 < np.count_nonzero(plain[0]) < plain[0].size
    sums = [one.kernel for one in compiled.plan.kernels.values() if one.kernel.template == "sum"]
    assert sums
    wanted = run if columns % 8 == 0 or run != 8 else 0
    text = f"RUN: tl.constexpr = {wanted}  #" if wanted else "_half(rng"
    assert [text in one.code for one in sums] == [True] * len(sums)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [40, 12])
def test_behind_a_product_the_same_elements_are_dropped(dtype: str, columns: int) -> None:
    def run_it(switch: str) -> tuple[list[Any], static.CompiledProgram]:
        main = static.Program()
        main.random_seed = 8
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            x, w, r = (static.data(n, s, dtype) for n, s in (("x", [33, 8]), ("w", [8, columns]), ("r", [33, columns])))
            y = F.dropout(paddle.matmul(x, w), 0.5) + r
        compiled = static.CompiledProgram(main, only(switch))
        rng = np.random.default_rng(1)
        feed = {v.name: rng.integers(1, 3, v.shape).astype(dtype_of(dtype).np) for v in main.list_vars() if v.is_data}
        return static.Executor("cpu").run(compiled, feed=feed, fetch_list=[y]), compiled

    plain, _ = run_it("fuse_bn_act_ops")
    fused, compiled = run_it("fuse_gemm_epilogue")
    assert in_runs(compiled) == {8 * (columns == 40)}
    assert same_bits(fused, plain)


@pytest.mark.parametrize("drop", [0.3, 0.004])
@pytest.mark.parametrize("columns", [40, 12])
def test_in_an_attention_the_same_elements_are_dropped(columns: int, drop: float) -> None:
    """Values and what arrives are unit matrices, so that results and gradients show single weights."""

    def run_it(switch: str) -> tuple[list[Any], static.CompiledProgram]:
        main = static.Program()
        main.random_seed = 8
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            q, k, v = (
                static.data(n, [3, s, e]) for n, s, e in (("q", 33, 8), ("k", columns, 8), ("v", columns, columns))
            )
            for one in (q, k, v):
                one.stop_gradient = False
            given = static.data("given", [3, 33, columns])
            out = paddle.matmul(F.dropout(F.softmax(paddle.matmul(q, k, transpose_y=True)), drop), v)
            fetches = [out, *static.gradients([out], [q, k, v], [given])]
        rng = np.random.default_rng(1)
        feed = {n: rng.normal(size=(3, s, 8)).astype(np.float32) for n, s in (("q", 33), ("k", columns))}
        feed["v"] = np.stack([np.eye(columns, dtype=np.float32)] * 3)
        feed["given"] = np.stack([np.eye(33, columns, dtype=np.float32)] * 3)
        compiled = static.CompiledProgram(main, only(switch))
        return static.Executor("cpu").run(compiled, feed=feed, fetch_list=fetches), compiled

    plain, _ = run_it("fuse_bn_act_ops")
    fused, compiled = run_it("fuse_dot_product_attention")
    assert in_runs(compiled) == ({8 * (columns == 40)} if drop == 0.3 else set())
    assert 0 < np.count_nonzero(plain[0]) < plain[0].size
    for a, b in zip(fused, plain, strict=True):
        assert np.array_equal(a == 0, b == 0)
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


def test_a_mask_is_written_only_where_it_is_read() -> None:
    *plain, mask = rows(None, fetch_mask=True)[0]
    *fused, got = (found := rows("build_cinn_pass", fetch_mask=True))[0]
    assert np.array_equal(got, mask)
    _, masks = found[2]
    written = {v for step in found[1].plan.steps for v in step.op.writes()}
    values = dict(found[1].plan.program.fetches)
    # The gradient of the fetched one reads it; the other one is drawn twice.
    assert values[masks[0]] in written
    assert drawing(found[1]).count("dropout_grad") == 1
    _, compiled, (_, masks) = rows("build_cinn_pass")
    assert not any("mask" in compiled.plan.program.names.get(v, v).lower() for v in compiled.plan.storage)
    for a, b in zip(fused, plain, strict=True):
        assert np.array_equal(a == 0, b == 0)


def test_steps_and_layers_share_a_kernel() -> None:
    """What differs from op to op and from run to run is in memory, not in the text."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4, 8])
        outs = [F.dropout(x * 2.0, 0.5) + x for _ in range(3)]
    compiled = static.CompiledProgram(main, only("enable_auto_fusion"))
    executor, found = static.Executor("cpu"), []
    for _ in range(2):
        found += executor.run(compiled, feed={"x": np.ones((4, 8), np.float32)}, fetch_list=outs)
        assert len({one.kernel.name for one in compiled.plan.kernels.values()}) == 1
    assert len({a.tobytes() for a in found}) == 6


def test_replicas_draw_numbers_of_their_own() -> None:
    def run(switch: str | None) -> Any:
        main = static.Program()
        main.random_seed = 5
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            x = static.data("x", [None, 16])
            out = F.dropout(x * 2.0, 0.5) + 1.0
            loss = paddle.mean(out)
        build = only(switch or "fuse_bn_act_ops")
        compiled = static.CompiledProgram(main).with_data_parallel(loss.name, build, places=[paddle.CPUPlace()] * 2)
        return static.Executor("cpu").run(compiled, feed={"x": np.ones((8, 16), np.float32)}, fetch_list=[out])[0]

    plain = run(None)
    assert not np.array_equal(plain[:4], plain[4:])
    assert np.array_equal(run("enable_auto_fusion"), plain)


def test_a_fused_op_of_sizes_found_at_run_time_draws_the_same() -> None:
    def run(switch: str | None) -> Any:
        main = static.Program()
        main.random_seed = 6
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            x = static.data("x", [4, 8])
            passed = main.global_block().create_var(name="passed", shape=[4, 8], dtype="float32")
            static.py_func(np.array, x, passed)
            out = F.dropout(F.dropout(passed * 2.0, 0.5) + 1.0, 0.25)
        compiled = static.CompiledProgram(main, only(switch or "fuse_bn_act_ops"))
        found = static.Executor("cpu").run(compiled, feed={"x": np.ones((4, 8), np.float32)}, fetch_list=[out])[0]
        return found, compiled

    (plain, _), (fused, compiled) = run(None), run("enable_auto_fusion")
    assert [step.how for step in compiled.plan.steps if step.op.body] == ["dynamic"]
    assert np.array_equal(fused, plain)


# --------------------------------------------------------------------------------------------------------------- reasons
def test_explain_says_why_numbers_are_not_drawn_in_a_kernel() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        noise = paddle.poisson(paddle.full([4, 8], 3.0))
        x = static.data("x", [4, 8])
        y = noise * 2.0 + x
        drop = F.dropout(y, 0.5)
    explained = static.CompiledProgram(main, only("enable_auto_fusion")).explain(
        fetch_list=[drop], feed_shapes={"x": (4, 8)}
    )
    doubled = main.global_block().ops[-3].output("Out")[0]
    answer = explained.why(noise, doubled)
    assert (answer.fused, answer.code) == (False, "RANDOM")
    assert "poisson" in str(answer)
    assert explained.why(y, drop).fused
