"""Ops along rows, alone and in groups, against their refs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_cross_entropy_fusion import LONE, lone_program
from tests.helpers.fusion_programs import Built, run
from tests.interpret.kernels import metas_by_name, run_kernel, ulps
from tests.interpret.test_pointwise import size_of_terms, unit
from tests.interpret.test_programs import close
from tests.ops import sampler
from tstatic import static
from tstatic.fusion.codegen.define import works_on_rows
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.engine import loop_nest
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS

F = paddle.nn.functional
OPS_HERE = sorted(t for t in sampler.op_types(1) if works_on_rows(OPS[t]))


@pytest.mark.parametrize("kind", OPS_HERE)
def test_op_def(kind: str) -> None:
    definition = OPS[kind]
    domain = sampler.root(definition).domain
    assert domain is not None
    tried = 0
    for dtype in domain.floats:
        for sample in sampler.samples(definition, 12, [dtype], limit=24):
            given = zip(sample.ins, definition.inputs, strict=True)
            if any(a is None and not s.optional for a, s in given):
                continue
            ins = [None if a is None else np.array(a, order="C") for a in sample.ins]
            outs = sampler.run(
                definition, replace(sample, ins=tuple(ins), layout="contiguous", out_layout="contiguous")
            )
            if any(o is not None and o.size == 0 for o in outs):
                continue
            op = FrozenOp(
                definition,
                tuple(f"i{k}" if a is not None else None for k, a in enumerate(ins)),
                tuple(f"o{k}" if a is not None else None for k, a in enumerate(outs)),
                definition.complete(sample.attrs),
            )
            arrays = {n: a for n, a in zip(op.inputs, ins, strict=True) if isinstance(n, str)}
            wanted = {n: a for n, a in zip(op.outputs, outs, strict=True) if isinstance(n, str)}
            metas = metas_by_name({**arrays, **wanted})
            try:
                kernel = loop_nest([op], metas, list(wanted))
            except CodegenUnsupported as found:
                if found.code not in ("NOT_POINTWISE", "ROWS", "EMPTY"):
                    raise
                continue
            tried += 1
            got = run_kernel(kernel, arrays, {n: metas[n] for n in wanted})
            for name, value in wanted.items():
                distance = ulps(got[name], value)
                if distance > 16:
                    error = np.abs(got[name].astype(np.float64) - value.astype(np.float64)).max()
                    size = max(size_of_terms(ins), size_of_terms([value]))
                    assert error <= 64 * unit(size, value.dtype), f"{kind} {sample}: {distance} ulp in {kernel.name}"
    assert tried >= 3, f"{kind} had no kernel"


@pytest.mark.parametrize("shape", [(9, 40), (3, 20000)], ids=str)
@pytest.mark.parametrize("name", LONE)
def test_an_op_by_itself_in_a_program(name: str, shape: tuple[int, ...]) -> None:
    main, startup, fetches, feed = lone_program(LONE[name], shape)
    built = Built(main, startup, feed, [v.name for v in fetches])
    plain, _ = run(built)
    values, compiled = run(built, build_cinn_pass=True)
    types = [s.op.body[0].type for s in compiled.plan.steps if s.how == "kernel"]
    # Of a long row no columns are summed: there the gradient of a norm runs as it is.
    assert types == ([name, f"{name}_grad"] if shape[1] < 20000 or name != "layer_norm" else [name])
    for fetch, a, b in zip(built.fetches, plain, values, strict=True):
        assert close(b, a, 3e-6), fetch


# --------------------------------------------------------------------------------------------------------------- programs
def program(compute: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], seed: int = 3) -> Built:
    main, startup = static.Program(), static.Program()
    rng = np.random.default_rng(seed)
    feed = {}
    with static.program_guard(main, startup):
        inputs = []
        for i, shape in enumerate(shapes):
            feed[f"x{i}"] = rng.standard_normal(shape).astype(np.float32)
            var = static.data(f"x{i}", list(shape), "float32")
            var.stop_gradient = False
            inputs.append(var)
        out = compute(*inputs)
        weight = static.data("weight", list(out.shape), "float32")
        feed["weight"] = rng.standard_normal(out.shape).astype(np.float32)
        loss = paddle.sum(out * weight)
        pairs = static.append_backward(loss)
        grads = [g.name for _, g in pairs] + [f"{v.name}@GRAD" for v in inputs]
    return Built(main, startup, feed, [out.name, loss.name, *grads])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "residual + layer norm": (
        lambda x, r: static.nn.layer_norm(x + r, begin_norm_axis=2), ((2, 5, 33), (2, 5, 33))),
    "layer norm + gelu": (lambda x: F.gelu(static.nn.layer_norm(x, begin_norm_axis=1)), ((7, 40),)),
    "layer norm without parameters": (
        lambda x: paddle.tanh(static.nn.layer_norm(x * 2, scale=False, shift=False, begin_norm_axis=1)), ((7, 3, 5),)),
    "scaled softmax + mask": (lambda x, m: F.softmax(x * 0.3 + m), ((2, 3, 4, 17), (4, 17))),
    "log softmax": (lambda x: F.log_softmax(x + 1), ((6, 19),)),
    "mean of squares": (lambda x: x / paddle.sqrt(paddle.mean(x * x, axis=-1, keepdim=True) + 1e-5), ((9, 31),)),
    "sum over rows": (lambda x: paddle.exp(-paddle.sum(x * x, axis=[1, 2])), ((5, 3, 4),)),
    "softmax of softmax": (lambda x: F.softmax(F.softmax(x * 2) + x), ((5, 12),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_along_rows(name: str) -> None:
    built = program(*PROGRAMS[name])
    plain, _ = run(built)
    values, compiled = run(built, build_cinn_pass=True)
    made = [s.op for s in compiled.plan.steps if s.how == "kernel"]
    assert any(works_on_rows(one.definition) for op in made for one in op.body), [op.type for op in made]
    for variable, a, b in zip(built.fetches, plain, values, strict=True):
        assert close(b, a, 4e-6), f"{variable}:\n{b}\n{a}"


LONG_ROWS: dict[str, Callable[..., Any]] = {
    "sum of exp": lambda x: paddle.sum(paddle.exp(x), axis=-1, keepdim=True),
    "sum of cos": lambda x: paddle.sum(2 * paddle.cos(x), axis=-1),
    "mean of a shifted value": lambda x: paddle.mean(x + 3.0, axis=-1),
    "layer norm of a shifted value": lambda x: F.layer_norm(x + 1, [20001]),
    "largest negative value": lambda x: F.softmax(x - 7.0),
}
"""What lies beyond the data reads as 0: a mask that is lost shows where the function of 0 is not 0."""


@pytest.mark.parametrize("name", LONG_ROWS)
def test_what_lies_beyond_a_long_row_does_not_count(name: str) -> None:
    built = program(LONG_ROWS[name], ((2, 20001),))
    built.feed["x0"] = built.feed["x0"] + np.float32(0.75)
    plain, _ = run(built)
    values, compiled = run(built, build_cinn_pass=True)
    assert any(generated.kernel.template == "long_rows" for generated in compiled.plan.kernels.values())
    for variable, a, b in zip(built.fetches, plain, values, strict=True):
        assert close(b, a, 4e-6), f"{variable}:\n{b}\n{a}"


def test_long_rows_of_special_values() -> None:
    built = program(lambda x: F.softmax(x * 2), ((7, 20001),))
    x = built.feed["x0"]
    x[1], x[2], x[3] = -np.inf, np.finfo("f4").min / 2, 0.0
    x[4, 17], x[5, 20000], x[6, 9000:] = np.nan, np.inf, -np.inf
    plain, _ = run(built, built.fetches[:1])
    values, compiled = run(built, built.fetches[:1], build_cinn_pass=True)
    assert any(generated.kernel.template == "long_rows" for generated in compiled.plan.kernels.values())
    assert np.isnan(plain[0][[1, 4, 5]]).all(1).tolist() == [True, True, True]
    np.testing.assert_allclose(values[0], plain[0], rtol=1e-5, atol=1e-12)


def test_rows_of_different_axes_stay_apart() -> None:
    built = program(lambda x: F.softmax(F.softmax(x, axis=-1), axis=0), ((5, 12),))
    plain, _ = run(built)
    values, _ = run(built, build_cinn_pass=True)
    for a, b in zip(plain, values, strict=True):
        assert close(b, a, 4e-6)


def test_nan_stays_in_its_row() -> None:
    built = program(lambda x: F.softmax(x * 2), ((4, 9),))
    built.feed["x0"][1, 3] = np.nan
    built.feed["x0"][2, 0] = np.inf
    plain, _ = run(built, built.fetches[:1])
    values, _ = run(built, built.fetches[:1], build_cinn_pass=True)
    assert (np.isnan(plain[0]) == np.isnan(values[0])).all()


def test_statistics_are_those_of_the_sum_as_it_is_stored() -> None:
    """A gradient reads the 16-bit sum: with the statistics of the unrounded one, what should cancel would not."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x, y = (static.data(n, [64, 2], "bfloat16") for n in "xy")
        x.stop_gradient = False
        total = paddle.add(x, y)
        normal = F.layer_norm(total, [2])
        (grad,) = static.gradients([normal], [x], [static.data("seed", [64, 2], "bfloat16")])
    assert grad is not None
    rng = np.random.default_rng(0)
    feed = {n: rng.standard_normal((64, 2)).astype(ml_dtypes.bfloat16) for n in ("x", "y", "seed")}
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = True
    compiled = static.CompiledProgram(main, build_strategy=strategy)
    norm = next(op for op in main.global_block().ops if op.type == "layer_norm")
    mean = norm.output("Mean")[0]
    fetches = [total, mean, normal, grad]
    found = static.Executor(paddle.CPUPlace()).run(compiled, feed=feed, fetch_list=fetches, scope=static.Scope())
    stored, middle, _, slope = (a.astype(np.float64) for a in found)
    assert compiled.explain(fetches).why(total, normal).fused
    np.testing.assert_allclose(middle.reshape(64), stored.mean(1), rtol=2**-8 if found[1].dtype != np.float32 else 1e-6)
    # Two numbers are 1 and -1 after a norm, whatever they are: next to nothing is left of the gradient.
    apart = np.abs(stored[:, 0] - stored[:, 1]) > 0.5
    assert apart.sum() > 20
    assert np.abs(slope[apart]).max() < 1e-3
