"""Softmax with cross entropy in generated kernels: values against the refs, short and long rows, in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.fusion_programs import run
from tests.helpers.loss_programs import HEADS, build, vanishing
from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tests.interpret.test_pointwise import size_of_terms, unit
from tests.interpret.test_programs import TOLERANCE, close
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.loops.rows import BLOCK, LONGEST
from tstatic.fusion.engine import loop_nest
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS

KIND = "softmax_with_cross_entropy"
TYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
LENGTHS = (2, 127, 128, LONGEST, 20000)
IGNORE = 1


def forward(**attrs: Any) -> FrozenOp:
    definition = OPS[KIND]
    return FrozenOp(
        definition, ("x", "label", None), ("p", "loss"), definition.complete({"ignore_index": IGNORE, **attrs})
    )


def backward(through: Sequence[str] = ("dloss",), **attrs: Any) -> FrozenOp:
    definition = OPS[f"{KIND}_grad"]
    arriving = tuple(name if name in through else None for name in ("dp", "dloss"))
    return FrozenOp(
        definition, ("label", "p", *arriving), ("dx",), definition.complete({"ignore_index": IGNORE, **attrs})
    )


def values(length: int, dtype: str, soft: bool, rows: int = 5) -> dict[str, Any]:
    """Inputs of both ops; the second row is ignored, logits are far from 0."""
    rng = np.random.default_rng(length)
    kind = TYPES[dtype]
    x = (rng.standard_normal((rows, length)) * 4 + 30).astype(kind)
    if soft:
        label: Any = rng.uniform(0, 2 / length, (rows, length)).astype(kind)
    else:
        label = rng.integers(0, length, (rows, 1))
        label[label == IGNORE] = 0
        label[1] = IGNORE
        label[2] = length - 1
    p = rng.uniform(0, 2 / length, (rows, length)).astype(kind)
    grads = {"dloss": (rows, 1), "dp": (rows, length)}
    return {"x": x, "label": label, "p": p, **{n: rng.standard_normal(s).astype(kind) for n, s in grads.items()}}


def compare(ops: Sequence[FrozenOp], arrays: Mapping[str, Any], kept: Sequence[str], units: int = 64) -> Any:
    """Runs ops as one kernel and by their refs; returns the kernel."""
    made = {v for op in ops for v in op.writes()}
    given = {n: a for n, a in arrays.items() if n not in made and any(n in op.reads() for op in ops)}
    wanted = run_ops(ops, given)
    metas = metas_by_name(wanted)
    kernel = loop_nest(ops, metas, kept)
    got = run_kernel(kernel, given, {n: metas[n] for n in kept})
    for name in kept:
        a, b = got[name].astype(np.float64), wanted[name].astype(np.float64)
        odd = ~np.isfinite(b)
        assert np.array_equal(a[odd], b[odd], equal_nan=True), f"{name}: NaN or infinities differ"
        assert np.isfinite(a[~odd]).all(), name
        size = max(
            size_of_terms([wanted[name]]), size_of_terms([given["dloss"]]) if name == "dx" and "dloss" in given else 0
        )
        size = max(size, 64.0) if name == "loss" else size
        error = float(np.abs(a[~odd] - b[~odd]).max(initial=0.0))
        bound = (4 if wanted[name].dtype != np.float32 else units) * unit(size, wanted[name].dtype)
        assert error <= bound, f"{name}: off by {error:.3g}, allowed {bound:.3g}"
    return kernel


# ---------------------------------------------------------------------------------------------------------------- one op
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_forward(length: int, dtype: str, soft: bool) -> None:
    kernel = compare([forward(soft_label=soft)], values(length, dtype, soft), ["p", "loss"])
    assert (kernel.template == "long_rows") == (length > LONGEST)


@pytest.mark.parametrize("through", [("dloss",), ("dp",), ("dp", "dloss")], ids="+".join)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_gradient(length: int, dtype: str, soft: bool, through: tuple[str, ...]) -> None:
    compare([backward(through, soft_label=soft)], values(length, dtype, soft), ["dx"])


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("length", [9, 20000])
def test_given_probabilities(length: int, soft: bool) -> None:
    arrays = values(length, "float32", soft)
    arrays["x"] = arrays["p"]
    arrays["p"][3:] = 0
    arrays["p"][4, ::2] = np.nan
    attrs = {"soft_label": soft, "use_softmax": False}
    compare([forward(**attrs)], arrays, ["p", "loss"])
    compare([backward(("dp", "dloss"), **attrs)], arrays, ["dx"])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [7, 128, 20000])
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_nan_and_infinities_come_out_as_in_the_ref(length: int, dtype: str, soft: bool) -> None:
    arrays = values(length, dtype, soft, rows=9)
    x = arrays["x"]
    x[0, length // 2] = np.nan
    x[1, 0] = np.nan  # with hard labels this row is ignored
    x[2, : length - 2] = -np.inf  # a whole block of a long row
    x[3] = -np.inf
    x[4, 3] = np.inf
    x[5, : length // 2] = -np.inf
    x[6, 1:] = -np.inf
    if not soft:
        arrays["label"][5:7] = [[2], [3]]  # -inf is picked
    arrays["dloss"][7] = np.inf
    arrays["dloss"][8] = np.nan
    compare([forward(soft_label=soft)], arrays, ["p", "loss"])
    compare([backward(soft_label=soft)], arrays, ["dx"])
    # The ref rounds the softmax to 16 bits before it multiplies: what becomes 0 there times infinity is no number.
    arrays["dloss"][7:] = 1
    compare([forward(soft_label=soft), backward(soft_label=soft)], arrays, ["loss", "dx"])


@pytest.mark.parametrize("length", [9, 20000])
def test_a_class_that_does_not_exist_gives_nan(length: int) -> None:
    arrays = values(length, "float32", soft=False)
    given = {n: arrays[n] for n in ("x", "label")}
    metas = metas_by_name({**arrays, "loss": arrays["dloss"]})
    kernel = loop_nest([forward()], metas, ["loss"])
    for wrong in (-1, length, 1 << 40):
        arrays["label"][3] = wrong
        loss = run_kernel(kernel, given, {"loss": metas["loss"]})["loss"]
        assert np.isnan(loss[3, 0])
        assert np.isfinite(np.delete(loss, 3)).all()


def test_an_all_masked_first_block_of_a_long_row_counts_nothing() -> None:
    arrays = values(5 * BLOCK, "float32", soft=False, rows=3)
    arrays["x"][0, :BLOCK] = -np.inf
    arrays["x"][1, BLOCK:] = -np.inf
    arrays["label"][:] = [[BLOCK + 1], [IGNORE], [5]]
    compare([forward()], arrays, ["p", "loss"])


def test_one_row_and_rows_of_one() -> None:
    compare([forward()], values(20000, "float32", soft=False, rows=3), ["loss"])
    one = values(20, "float32", soft=False, rows=3)
    compare([forward()], {n: a[:1] for n, a in one.items()}, ["p", "loss"])
    single = {n: a[:, :1] for n, a in one.items()}
    single["label"][:] = 0
    with pytest.raises(CodegenUnsupported, match="one element"):
        compare([forward()], single, ["loss"])


@pytest.mark.parametrize("length", [300, 20000])
def test_in_place(length: int) -> None:
    """The result over the logits, and the gradient over the softmax, are those of separate memory."""
    arrays = values(length, "float32", soft=False)
    for ops, kept in (([forward()], ["p", "loss"]), ([backward()], ["dx"]), ([forward(), backward()], ["loss", "dx"])):
        made = {v for op in ops for v in op.writes()}
        given = {n: a.copy() for n, a in arrays.items() if n not in made and any(n in op.reads() for op in ops)}
        metas = metas_by_name(run_ops(ops, given))
        kernel = loop_nest(ops, metas, kept)
        apart = run_kernel(kernel, given, {n: metas[n] for n in kept})
        assert kernel.inplace, kernel.name
        ((source, result),) = kernel.inplace
        same = run_kernel(kernel, given, {n: metas[n] for n in kept}, over={result: source})
        for name in kept:
            assert same[name].tobytes() == apart[name].tobytes(), (kernel.name, name)


# --------------------------------------------------------------------------------------------------------------- programs
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_the_loss_of_a_softmax_that_is_0_and_its_gradient_are_the_unfused_ones(soft: bool, dtype: str) -> None:
    built = vanishing(soft, dtype)
    plain, _ = run(built)
    fused, compiled = run(built, build_cinn_pass=True)
    assert [s.how for s in compiled.plan.steps if any(b.type.startswith(KIND) for b in s.op.body)] == ["kernel"]
    for variable, a, b in zip(built.fetches, plain, fused, strict=True):
        assert np.isfinite(a.astype(np.float64)).all()
        assert close(b, a, 4 * TOLERANCE[dtype]), f"{variable}:\n{b}\n{a}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("shape", [(2, 3, 17), (5, 20000)], ids=str)
def test_programs(name: str, shape: tuple[int, ...], dtype: str) -> None:
    head = HEADS[name]
    built = build(head, shape, dtype, ignore=3)
    plain, _ = run(built)
    fused, compiled = run(built, build_cinn_pass=True)
    made = [s.op for s in compiled.plan.steps if s.how == "kernel" and any(b.type.startswith(KIND) for b in s.op.body)]
    # Casts to float32 and back are two more arrays, which may be more than one kernel takes.
    assert len(made) == head.kernels or (dtype != "float32" and len(made) == 2), [s.op for s in compiled.plan.steps]
    for variable, a, b in zip(built.fetches, plain, fused, strict=True):
        assert close(b, a, 4 * TOLERANCE[dtype]), f"{variable}:\n{b}\n{a}"


@pytest.mark.parametrize("shape", [(2, 3, 17), (5, 20000)], ids=str)
def test_memory_is_shared(shape: tuple[int, ...]) -> None:
    """One kernel from the logits to their gradient writes it over them; two pass the softmax on in the same place."""

    def places(name: str, **switches: Any) -> tuple[Any, list[Any]]:
        built = build(HEADS[name], shape)
        _, compiled = run(built, build_cinn_pass=True, **switches)
        plan = compiled.plan
        names = [v for s in plan.steps if s.op.type.startswith("matmul_v2_grad") for v in s.op.reads()]
        dlogits = next(v for v in names if "@GRAD" in v)
        (logits,) = [v for s in plan.steps if s.op.type == "matmul_v2" for v in s.op.writes()]
        (softmax,) = [str(b.output("Softmax")) for s in plan.steps for b in s.op.body if b.type == KIND]
        return plan, [plan.storage[v].offset if v in plan.storage else None for v in (logits, softmax, dlogits)]

    _, (logits, softmax, dlogits) = places("mean")
    assert softmax is None
    assert logits == dlogits
    _, (logits, softmax, dlogits) = places("gradient depends on other rows")
    assert logits == softmax == dlogits
    plan, apart = places("gradient depends on other rows", enable_inplace=False)
    assert apart[1] not in (apart[0], apart[2])
    shared, _ = places("gradient depends on other rows")
    assert shared.arena_bytes < plan.arena_bytes


def test_logits_that_are_read_afterwards_keep_their_place() -> None:
    built = build(HEADS["bias"], (4, 33))
    (logits,) = [n for op in built.main.global_block().ops if op.type == "elementwise_add" for n in op.output_arg_names]
    (product,) = [n for op in built.main.global_block().ops if op.type == "matmul_v2" for n in op.output_arg_names]
    fetches = [*built.fetches, product, logits]
    plain, _ = run(built, fetches)
    fused, _ = run(built, fetches, build_cinn_pass=True)
    for variable, a, b in zip(fetches, plain, fused, strict=True):
        assert close(b, a, 4e-6), variable
