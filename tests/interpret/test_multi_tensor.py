"""Updates of many tensors in one launch: the bits of the unfused ops, whatever the sizes, types and settings."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest

import tests.helpers.optimizer_programs as programs
import tstatic as paddle
from tests.helpers.optimizer_programs import CASES, Case, same, train, training
from tests.interpret.kernels import run_ops
from tstatic import static
from tstatic.chips.sources import sources
from tstatic.devices import interpret
from tstatic.errors import FeedTypeError
from tstatic.fusion.codegen.kernel import STOPPED, Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.update import update_kernel
from tstatic.fusion.codegen.update.segmenting import segments
from tstatic.fusion.codegen.update.square_sum import square_sum_kernel
from tstatic.fusion.engine import cache
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.ir.types import dtype_of
from tstatic.plan.flat_buffers import gradient_buffers, state_buffers
from tstatic.target import DEFAULT_TARGET, TINY, Target

SHARED = ("LearningRate", "SkipUpdate")
POWERS = ("Beta1Pow", "Beta2Pow")
SIZES: tuple[tuple[int, ...], ...] = ((5,), (1,), (0, 3), (17, 67), (1024,), (), (2, 513))


def close(a: Any, b: Any) -> bool:
    """Whether two arrays agree within some units in the last place."""
    wide = np.float64 if a.dtype == np.float64 else np.float32
    rtol = {"bfloat16": 2e-2, "float64": 1e-14}.get(a.dtype.name, 2e-6)
    return a.dtype == b.dtype and np.allclose(a.astype(wide), b.astype(wide), rtol, rtol / 10)


@pytest.mark.numpy_device("bits: what stays alone runs in torch, which rounds at other places", not_on=("torch",))
# --------------------------------------------------------------------------------------------------------- whole programs
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_steps_have_the_bits_of_the_unfused_program(case: Case) -> None:
    one = training(case.make, case.dtype, case.shapes)
    plain, wanted, _ = train(one)
    values, found, compiled = train(one, [case.switch])
    made = [s for s in compiled.plan.steps if s.how == "kernel"]
    assert [s.op.type for s in made] == list(case.fused)
    assert [s.region for s in made] == ["main" if t == "squared_l2_norm" else "update" for t in case.fused]
    assert compiled.plan.commits == (), "the kernels write the parameters where they are"
    agree = same if case.exact else close
    assert all(agree(a, b) for a, b in zip(values, plain, strict=True))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert agree(found[name], wanted[name]), name
    assert not any(same(found[f"w{i}"], np.full_like(found[f"w{i}"], 0.5 + 0.25 * i)) for i in range(len(one.shapes)))


@pytest.mark.parametrize("case", [CASES[0], *CASES[-3:]], ids=lambda c: c.name)
def test_gradients_lie_together_as_the_parameters_do(case: Case) -> None:
    one = training(case.make, case.dtype, case.shapes)
    _, _, compiled = train(one, [case.switch], steps=1)
    plan = compiled.plan
    (step,) = [s for s in plan.steps if s.how == "kernel" and s.region == "update"]
    grads = step.op.input("Grads" if step.op.type == "fused_adam" else "Grad")
    assert isinstance(grads, tuple)
    assert len(grads) == len(case.shapes)
    size = dtype_of(case.dtype).itemsize
    order = gradient_buffers(plan.program)[0]
    assert sorted(order) == sorted(grads)
    assert [g.split("@")[0] for g in order] == state_buffers(plan.program)["Param"]
    at = plan.storage[order[0]].offset
    for grad in order:
        slot = plan.storage[grad]
        assert (slot.kind, slot.offset) == ("arena", at)
        assert slot.meta is not None
        at += -(-slot.meta.numel // 1024) * 1024 * size
    assert at <= plan.arena_bytes


def test_a_parameter_that_is_another_ones_gradient_is_not_overwritten_early() -> None:
    """One by one the ops are safe in place; in one launch the second must not write what the first still reads."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        block = main.global_block()
        rate = static.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
        a, b = (
            static.create_parameter([3000], "float32", attr=paddle.ParamAttr(name=n, initializer=start))
            for n, start in (("a", paddle.nn.initializer.Constant(2.0)), ("b", paddle.nn.initializer.Constant(1.0)))
        )
        c = static.data("c", [3000], "float32")
        for param, grad in ((b, a), (a, c)):
            block.append_op("sgd", {"Param": param, "Grad": grad, "LearningRate": rate}, {"ParamOut": param})
    strategy = static.BuildStrategy()
    strategy.fuse_all_optimizer_ops = True
    compiled = static.CompiledProgram(main, strategy)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    for step in range(1, 3):
        found = exe.run(compiled, feed={"c": np.full(3000, 2.0, np.float32)}, fetch_list=["a", "b"])
        assert (found[0] == 2.0 - step).all()
        assert (found[1] == (0.0, -0.5)[step - 1]).all()
    assert [s.op.type for s in compiled.plan.steps if s.how == "kernel"] == ["sgd"]
    assert [var for var, _ in compiled.plan.commits] == ["a"]


def test_an_error_before_the_update_changes_nothing() -> None:
    one = training(lambda: paddle.optimizer.AdamW(0.1))
    strategy = static.BuildStrategy()
    strategy.fuse_adamw = True
    compiled = static.CompiledProgram(one.main, strategy)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(one.startup)
    exe.run(compiled, feed=one.feed(0), fetch_list=[one.loss])
    before = programs.state(one.main, static.global_scope())
    with pytest.raises(FeedTypeError):
        exe.run(compiled, feed={**one.feed(1), "x0": np.zeros((7, 5), np.int64)}, fetch_list=[one.loss])
    after = programs.state(one.main, static.global_scope())
    assert all(same(before[n], after[n]) for n in before)


# ----------------------------------------------------------------------------------------------------------- single kernels
def updates(
    kind: str, dtype: str, master: bool = False, skip: bool | None = None, sizes: Any = SIZES, **attrs: Any
) -> tuple[list[FrozenOp], dict[str, Any]]:
    """Ops of one rule, and arrays for all that they read; a few elements are NaN, infinite, zero or subnormal."""
    rng = np.random.default_rng(len(sizes))
    definition = OPS[kind]
    arrays: dict[str, Any] = {}
    body = []
    for i, shape in enumerate(sizes):
        ins: list[str | None] = []
        for slot in definition.inputs:
            optional = {"MasterParam": master, "SkipUpdate": skip is not None, "LearningRate": True}
            if not optional.get(slot.name, not slot.optional):
                ins.append(None)
                continue
            name = slot.name if slot.name in SHARED else f"{slot.name}_{i}"
            ins.append(name)
            wide = "float32" if dtype != "float64" and (master or slot.name in (*SHARED, *POWERS)) else dtype
            kept = dtype if slot.name in ("Param", "Grad") else wide
            if slot.name == "SkipUpdate":
                arrays[name] = np.array([skip])
            elif slot.name == "LearningRate":
                arrays[name] = np.array([0.37], dtype_of(wide).np)
            elif slot.name in POWERS:
                arrays[name] = rng.uniform(0.5, 0.95, 1).astype(dtype_of(wide).np)
            else:
                made = rng.normal(size=shape)
                if slot.name in ("Moment2", "InfNorm", "MeanSquare", "AvgSquaredGrad", "AvgSquaredUpdate"):
                    made = made * made
                elif made.size > 100:
                    made.reshape(-1)[[3, 40, 77, 90, 99]] = np.nan, np.inf, -0.0, 1e-41, -np.inf
                arrays[name] = np.asarray(made).astype(dtype_of(kept).np)
        outs = tuple(
            f"{e}#1" if e is not None else None for e in (_source(definition, s.name, ins) for s in definition.outputs)
        )
        body.append(FrozenOp(definition, tuple(ins), outs, definition.complete({"multi_precision": master, **attrs})))
    return body, arrays


def _source(definition: Any, output: str, ins: list[str | None]) -> str | None:
    return ins[[s.name for s in definition.inputs].index(output.removesuffix("Out"))]


def launch(kernel: Kernel, arrays: dict[str, Any], target: Target, stopped: bool = False) -> None:
    calls = kernel.plan(target)
    given = {**arrays, STOPPED: np.array([stopped])}
    given.update((n, np.empty(count, dtype.np)) for n, (count, dtype) in calls.partials.items())
    given.update((n, table.filled(given, interpret.DEVICE.span)) for n, table in calls.tables.items())
    module = cache.load(kernel.text, kernel.name)
    launches = [one.call for one in calls.launches]
    with np.errstate(all="ignore"):
        for function, args in interpret.bind_launches(module, launches, given):
            function(*args)


VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sgd", {}),
    ("momentum", {"mu": 0.9}),
    ("momentum", {"mu": 0.7, "use_nesterov": True, "rescale_grad": 0.1}),
    ("momentum", {"mu": 0.7, "regularization_method": "l2_decay", "regularization_coeff": 0.03}),
    ("adam", {}),
    ("adam", {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "use_global_beta_pow": True}),
    ("adamw", {"coeff": 0.1, "lr_ratio": 0.3}),
    ("adamw", {"coeff": 0.1, "with_decay": False}),
    ("adamax", {"epsilon": 1e-3}),
    ("adagrad", {}),
    ("adadelta", {"rho": 0.8}),
    ("rmsprop", {"momentum": 0.5}),
    ("decayed_adagrad", {"decay": 0.8}),
    ("ftrl", {"l1": 0.1, "l2": 0.2}),
)
TYPES = (
    ("float32", False),
    ("float64", False),
    ("bfloat16", False),
    ("float16", False),
    ("bfloat16", True),
    ("float16", True),
)


@pytest.mark.parametrize(("kind", "attrs"), VARIANTS, ids=lambda v: v if isinstance(v, str) else "-".join(v) or "plain")
@pytest.mark.parametrize(("dtype", "master"), TYPES)
@pytest.mark.parametrize("inplace", [True, False])
def test_kernel_has_the_bits_of_the_refs(
    kind: str, attrs: dict[str, Any], dtype: str, master: bool, inplace: bool
) -> None:
    skips = (None, False, True) if "adam" in kind and not attrs.get("coeff") else (None,)
    for skip in skips:
        body, arrays = updates(kind, dtype, master, skip, **attrs)
        wanted = run_ops(body, {n: a.copy() for n, a in arrays.items()})
        results = [v for op in body for v in op.writes()]
        kernel = update_kernel(body, {n: meta_of(a) for n, a in wanted.items()}, results)
        given = {n: a.copy() for n, a in arrays.items()}
        for v in results:
            given[v] = given[v.removesuffix("#1")] if inplace else np.full_like(wanted[v], 7)
        launch(kernel, given, TINY)
        for v in results:
            assert same(given[v], wanted[v]), f"{v}, skip={skip}"


@pytest.mark.parametrize(("dtype", "master"), TYPES)
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_factor_of_the_gradients_is_folded_in(kind: str, dtype: str, master: bool) -> None:
    body, arrays = updates(kind, dtype, master)
    products = []
    arrays["factor"] = np.array([0.3], dtype_of(dtype).np)
    for i, op in enumerate(body):
        raw = op.input("Grad")
        assert isinstance(raw, str)
        definition = OPS["elementwise_mul"]
        products.append(FrozenOp(definition, (raw, "factor"), (f"{raw}#1",), definition.complete({})))
        body[i] = op.with_inputs({raw: f"{raw}#1"})
    sizes_with_rank = [i for i, s in enumerate(SIZES) if s]
    products, body = ([ops[i] for i in sizes_with_rank] for ops in (products, body))
    wanted = run_ops([*products, *body], {n: a.copy() for n, a in arrays.items()})
    results = [v for op in body for v in op.writes()]
    kernel = update_kernel([*products, *body], {n: meta_of(a) for n, a in wanted.items()}, results)
    given = {n: a.copy() for n, a in arrays.items()}
    given.update((v, given[v.removesuffix("#1")]) for v in results)
    launch(kernel, given, TINY)
    assert all(same(given[v], wanted[v]) for v in results)


@pytest.mark.parametrize("target", [TINY, DEFAULT_TARGET], ids=["interpreter", "gpu"])
@pytest.mark.parametrize(
    "kind", ["float32", "float64", "bfloat16", "float16", "bfloat16 float32", "float32 float16 bfloat16"]
)
def test_sum_of_squares(kind: str, target: Target) -> None:
    rng = np.random.default_rng(3)
    sizes = (5, 1, 4096, 0, 9001, 17)
    dtypes = [dtype for dtype, _ in zip(cycle(kind.split()), sizes, strict=False)]
    arrays: dict[str, Any] = {
        f"x{i}": rng.normal(size=n).astype(dtype_of(dtype).np)
        for i, (n, dtype) in enumerate(zip(sizes, dtypes, strict=True))
    }
    norm, cast, add = OPS["squared_l2_norm"], OPS["cast"], OPS["sum"]
    body, sums = [], []
    for i, dtype in enumerate(dtypes):
        x = f"x{i}"
        if dtype in ("bfloat16", "float16"):
            body.append(FrozenOp(cast, (x,), (f"w{i}",), cast.complete({"in_dtype": dtype, "out_dtype": "float32"})))
            x = f"w{i}"
        body.append(FrozenOp(norm, (x,), (f"s{i}",), norm.complete({})))
        sums.append(f"s{i}")
    wide = "float64" if kind == "float64" else "float32"
    metas = {n: meta_of(a) for n, a in arrays.items()}
    metas["y"] = meta_of(np.zeros(1, wide))
    body.append(FrozenOp(add, (tuple(sums),), ("y",), add.complete({})))
    kernel = square_sum_kernel(body, metas, ["y"])
    given = {n: np.concatenate([a, np.full(32, np.nan, a.dtype)]) for n, a in arrays.items()}
    given["y"] = np.zeros(1, wide)
    launch(kernel, given, target)
    exact = sum(float((a.astype(np.float64) ** 2).sum()) for a in arrays.values())
    assert abs(float(given["y"][0]) - exact) <= (1e-14 if wide == "float64" else 4e-7) * exact


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_padding_is_zero_and_kept_zero(kind: str) -> None:
    """The launch of a GPU: blocks of 1,024 that are read to a multiple of 16, here with poison behind every tensor."""
    body, arrays = updates(kind, "float32", sizes=((5,), (1030,), (2048,), (1,)))
    wanted = run_ops(body, {n: a.copy() for n, a in arrays.items()})
    kernel = update_kernel(body, {n: meta_of(a) for n, a in wanted.items()}, [v for op in body for v in op.writes()])
    flat: dict[str, Any] = {}
    for name, array in arrays.items():
        flat[name] = np.full(-(-array.size // 1024) * 1024 + 1024, np.nan, array.dtype)
        flat[name][: array.size] = array.reshape(-1)
    for v in (v for op in body for v in op.writes()):
        flat[v] = flat[v.removesuffix("#1")]
    launch(kernel, flat, DEFAULT_TARGET)
    for v in (v for op in body for v in op.writes()):
        size = wanted[v].size
        assert same(flat[v][:size], wanted[v].reshape(-1)), v
        reached = size if v.startswith("Beta") else -(-size // 16) * 16
        assert (flat[v][size:reached] == 0).all(), v
        assert np.isnan(flat[v][reached:]).all(), f"{v} was written behind its padding"


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "adamw", "adagrad"])
def test_updates_are_compiled_so_that_their_bits_are_those_of_single_operations(rule: str) -> None:
    body, arrays = updates(rule, "float32", sizes=((4,), (5,)), **({"mu": 0.9} if rule == "momentum" else {}))
    metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
    kernel = update_kernel(body, metas, [v for op in body for v in op.writes()])
    for launch in kernel.plan(DEFAULT_TARGET).launches:
        assert launch.options["enable_fp_fusion"] is False
    assert all(not source.contract for _, source in sources(kernel))
    # Compiled, the plain operators are approximate in 32 bits; the interpreter does not show it.
    for form in ("tl.div_rn(", "tl.sqrt_rn("):
        assert (form in kernel.code) is rule.startswith("ada")


def test_segments() -> None:
    assert segments([5, 0, 20], 16).tolist() == [[0, 0, 5, 5], [2, 0, 16, 16], [2, 16, 4, 4]]
    assert segments([5, 20], 16, 8).tolist() == [[0, 0, 5, 8], [1, 0, 16, 16], [1, 16, 4, 8]]
    assert segments([0, 0], 16).shape == (0, 4)


def test_empty_tensors_still_move_their_powers() -> None:
    body, arrays = updates("adam", "float32", sizes=((0,), (0, 4)))
    wanted = run_ops(body, {n: a.copy() for n, a in arrays.items()})
    results = [v for op in body for v in op.writes()]
    kernel = update_kernel(body, {n: meta_of(a) for n, a in wanted.items()}, results)
    assert [c.function for c in kernel.plan(TINY).launches] == ["prepare"]
    given = {n: a.copy() for n, a in arrays.items()}
    given.update((v, given[v.removesuffix("#1")]) for v in results)
    launch(kernel, given, TINY)
    assert all(same(given[v], wanted[v]) for v in results)


def test_bytes_are_those_of_the_formula() -> None:
    body, arrays = updates("adamw", "float32", sizes=((1000,), (24,)))
    metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
    assert update_kernel(body, metas, [v for op in body for v in op.writes()]).nbytes == 28 * 1024
    body, arrays = updates("adamw", "bfloat16", True, sizes=((1000,), (24,)))
    metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
    assert update_kernel(body, metas, [v for op in body for v in op.writes()]).nbytes == 28 * 1024


def test_text_does_not_depend_on_names_and_sizes() -> None:
    texts = set()
    for sizes in (((4,), (5,)), ((1000,), (7, 7))):
        body, arrays = updates("adam", "float32", sizes=sizes)
        metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
        texts.add(update_kernel(body, metas, [v for op in body for v in op.writes()]).code)
    assert len(texts) == 1


def test_a_result_that_nobody_wants_has_no_kernel() -> None:
    body, arrays = updates("adam", "float32")
    metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
    with pytest.raises(CodegenUnsupported):
        update_kernel(body, metas, [v for op in body for v in op.writes()][1:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "skip"), [("sgd", None), ("adam", None), ("adam", False)])
def test_a_stopped_step_changes_nothing(kind: str, skip: bool | None, dtype: str) -> None:
    body, arrays = updates(kind, dtype, dtype == "bfloat16", skip)
    metas = {n: meta_of(a) for n, a in run_ops(body, arrays).items()}
    results = [v for op in body for v in op.writes()]
    kernel = update_kernel(body, metas, results)
    for stopped in (True, False):
        given = {n: a.copy() for n, a in arrays.items()}
        given.update((v, given[v.removesuffix("#1")]) for v in results)
        launch(kernel, given, TINY, stopped)
        kept = [same(given[v], arrays[v.removesuffix("#1")]) for v in results if arrays[v.removesuffix("#1")].size]
        assert all(kept) if stopped else not any(kept)
