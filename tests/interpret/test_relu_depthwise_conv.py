"""Depthwise convolution of relu: kernels against the ops' refs, programs against unfused ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cpu.depthwise_nets import net, trained
from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tstatic.fusion.codegen.channels.depthwise import relu_depthwise_kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.target import DEFAULT_TARGET, TINY

TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

# Input and filter sizes, attributes.
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 5, 6), (3, 1, 3, 3), {"paddings": (1, 1)}),
    ((2, 2, 5, 5), (4, 1, 2, 3), {"strides": (2, 1), "paddings": (0, 1, 2, 0)}),
    ((1, 2, 7, 8), (2, 1, 3, 3), {"dilations": (2, 2), "paddings": (2, 2)}),
    ((2, 6, 5, 3), (6, 1, 3, 3), {"data_format": "NHWC", "paddings": (1, 1)}),
    ((1, 6, 7, 2), (4, 1, 3, 2), {"data_format": "NHWC", "padding_algorithm": "SAME", "strides": (2, 3)}),
    ((3, 4, 4, 4), (4, 1, 1, 1), {}),
    ((2, 3, 9, 7), (3, 1, 5, 5), {"strides": (3, 2), "paddings": (2, 1)}),
    ((1, 2, 4, 4), (2, 1, 3, 3), {"padding_algorithm": "VALID", "paddings": (1, 1)}),
)


def op(kind: str, ins: dict[str, str], outs: dict[str, str], **attrs: Any) -> FrozenOp:
    definition = OPS[kind]
    slots = (tuple(ins.get(s.name) for s in definition.inputs), tuple(outs.get(s.name) for s in definition.outputs))
    return FrozenOp(definition, *slots, definition.complete(attrs))


def forward(kind: str = "depthwise_conv2d", **attrs: Any) -> list[FrozenOp]:
    return [op("relu", {"X": "x"}, {"Out": "t"}), op(kind, {"Input": "t", "Filter": "w"}, {"Output": "y"}, **attrs)]


def backward(needed: Sequence[str] = ("dx", "dw"), kind: str = "depthwise_conv2d", **attrs: Any) -> list[FrozenOp]:
    outs = ({"Input@GRAD": "dt"} if "dx" in needed else {}) | ({"Filter@GRAD": "dw"} if "dw" in needed else {})
    ops = [op("relu", {"X": "x"}, {"Out": "t"})]
    ops.append(op(f"{kind}_grad", {"Input": "t", "Filter": "w", "Output@GRAD": "dy"}, outs, **attrs))
    if "dx" in needed:
        ops.append(op("relu_grad", {"Out": "t", "Out@GRAD": "dt"}, {"X@GRAD": "dx"}))
    return ops


def check(ops: Sequence[FrozenOp], arrays: dict[str, Any], needed: Sequence[str], gpu: bool = False) -> dict[str, Any]:
    wanted = run_ops(ops, arrays)
    exact = run_ops(ops, {n: a.astype(np.float64) for n, a in arrays.items()})
    metas = metas_by_name({n: a for n, a in wanted.items() if a is not None})
    kernel = relu_depthwise_kernel(ops, metas, needed)
    assert all(np.prod(one.grid) <= 4 for one in kernel.plan(TINY).launches)
    if gpu:
        plan = kernel.plan
        kernel = replace(kernel, plan=lambda target: plan(DEFAULT_TARGET))
    got = run_kernel(kernel, arrays, {n: metas[n] for n in needed})
    for name in needed:
        result, unfused = got[name].astype(np.float64), wanted[name].astype(np.float64)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(unfused), f"NaN in {name}")
        some = np.isfinite(unfused)
        true = exact[name][some]
        unit = float(ml_dtypes.finfo(got[name].dtype).eps) * float(np.abs(true).max(initial=0.0))
        error, allowed = (float(np.abs(v[some] - true).max(initial=0.0)) for v in (result, unfused))
        assert error <= 1.5 * allowed + 4 * unit, f"{name}: off by {error}, the ops by {allowed}, unit {unit}"
    return wanted


def arrays_for(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {"x": rng.standard_normal(x).astype(TYPES[dtype]), "w": rng.standard_normal(w).astype(TYPES[dtype])}
    groups = x[3] if attrs.get("data_format") == "NHWC" else x[1]
    out = run_ops(forward(groups=groups, **attrs), made)["y"]
    made["dy"] = rng.standard_normal(out.shape).astype(TYPES[dtype])
    return made


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(("x", "w", "attrs"), CASES)
def test_shapes(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], gpu: bool) -> None:
    groups = x[3] if attrs.get("data_format") == "NHWC" else x[1]
    arrays = arrays_for(x, w, attrs)
    check(forward(groups=groups, **attrs), arrays, ["y"], gpu)
    check(backward(groups=groups, **attrs), arrays, ["dx", "dw"], gpu)


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("kind", ["depthwise_conv2d", "conv2d"])
def test_types(dtype: str, kind: str) -> None:
    attrs: dict[str, Any] = {"paddings": (1, 1), "data_format": "NHWC" if kind == "conv2d" else "NCHW"}
    arrays = arrays_for((2, 6, 5, 6), (6, 1, 3, 3), attrs, dtype)
    check(forward(kind, groups=6, **attrs), arrays, ["y"])
    check(backward(kind=kind, groups=6, **attrs), arrays, ["dx", "dw"])


@pytest.mark.parametrize("needed", [["dx"], ["dw"]])
def test_one_gradient(needed: list[str]) -> None:
    arrays = arrays_for((2, 3, 5, 6), (3, 1, 3, 3), {})
    check(backward(needed, groups=3), arrays, needed)


@pytest.mark.parametrize("name", ["x", "dy"])
def test_not_a_number(name: str) -> None:
    arrays = arrays_for((2, 3, 5, 6), (3, 1, 3, 3), {"paddings": (1, 1)})
    arrays[name][0, 1, 2, 3] = np.nan
    check(forward(groups=3, paddings=(1, 1)), arrays, ["y"])
    check(backward(groups=3, paddings=(1, 1)), arrays, ["dx", "dw"])


def test_a_filter_that_is_too_large() -> None:
    arrays = arrays_for((1, 2, 10, 10), (2, 1, 9, 9), {})
    ops = forward(groups=2)
    metas = metas_by_name(run_ops(ops, arrays))
    with pytest.raises(CodegenUnsupported, match="too large"):
        relu_depthwise_kernel(ops, metas, ["y"])


# -------------------------------------------------------------------------------------------------------------- programs
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_training(layout: str) -> None:
    program = net(layout)
    unfused, expected, _ = trained(program, False, layout)
    fused, found, told = trained(program, True, layout)
    assert [[m.type for m in a.members] for a in told.applied] in (
        [["relu", "conv2d"], ["relu", "conv2d_grad", "relu_grad"]],
        [["relu", "depthwise_conv2d"], ["relu", "depthwise_conv2d_grad", "relu_grad"]],
    )
    assert not any(a.kept for a in told.applied), "relu's result is not stored"
    np.testing.assert_allclose(fused, unfused, 1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, 1e-5, 1e-6, err_msg=name)


def test_near_misses() -> None:
    for program, fetches, code in (
        (net(groups=2), [], "ATTRIBUTE"),
        (net(twice=True), [], "EXTRA_READER"),
        (net(), ["relu_0.tmp_0"], "FETCHED"),
    ):
        unfused, expected, _ = trained(program, False, "NCHW", fetches)
        fused, found, told = trained(program, True, "NCHW", fetches)
        assert not told.applied
        assert code in {r.code for r in told.refused}
        np.testing.assert_allclose(fused, unfused, 1e-6)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, 1e-5, 1e-6, err_msg=name)
