"""Batch norm with an activation, with and without a residual: kernels against the ops' refs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tstatic.fusion.codegen.channels.batch_norm import batch_norm_kernel
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.ir.traits import Activation
from tstatic.target import DEFAULT_TARGET, TINY

DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
STATISTICS = ("mean_out", "variance_out", "saved_mean", "saved_inverse")

SHAPES = (
    ((4, 3, 5, 7), "NCHW"),
    ((4, 5, 7, 3), "NHWC"),
    ((2, 17, 1, 3), "NCHW"),
    ((3, 2, 3, 33), "NHWC"),
    ((13, 5), "NCHW"),
    ((3, 4, 9), "NCHW"),
    ((2, 3, 2, 4, 3), "NDHWC"),
    ((1, 4, 1, 1), "NCHW"),
    ((1, 1, 1, 5), "NHWC"),
    ((40, 1, 16, 17), "NCHW"),
)


def op(kind: str, ins: dict[str, str], outs: dict[str, str], **attrs: Any) -> FrozenOp:
    definition = OPS[kind]
    return FrozenOp(
        definition,
        tuple(ins.get(s.name) for s in definition.inputs),
        tuple(outs.get(s.name) for s in definition.outputs),
        definition.complete(attrs),
    )


def norm(tensor: bool = False, bare: bool = False, **attrs: Any) -> FrozenOp:
    ins = {"X": "x", "Mean": "mean", "Variance": "variance"}
    ins |= {} if bare else {"Scale": "scale", "Bias": "bias"}
    ins |= {"MomentumTensor": "momentum"} if tensor else {}
    outs = dict(zip(("MeanOut", "VarianceOut", "SavedMean", "SavedVariance"), STATISTICS, strict=True))
    return op("batch_norm", ins, {"Y": "t", **outs}, **attrs)


def norm_grad(dy: str, bare: bool = False, wanted: Sequence[str] = ("x", "scale", "bias"), **attrs: Any) -> FrozenOp:
    ins = {"X": "x", "SavedMean": "saved_mean", "SavedVariance": "saved_inverse", "Y@GRAD": dy}
    ins |= {} if bare else {"Scale": "scale", "Bias": "bias"}
    names = {"x": "X@GRAD", "scale": "Scale@GRAD", "bias": "Bias@GRAD"}
    outs = {names[w]: f"d{w}" for w in wanted if w in ins.values()}
    return op("batch_norm_grad", ins, outs, **attrs)


def forward(act: str, add: str = "", act_attrs: dict[str, Any] | None = None, **settings: Any) -> list[FrozenOp]:
    """``act(batch_norm(x))``; with ``add`` ``left`` or ``right`` a residual z, with ``x`` the input, is added."""
    ops = [norm(**settings)]
    last = "t"
    if add:
        other = "x" if add == "x" else "z"
        pair = {"X": "t", "Y": other} if add != "right" else {"X": other, "Y": "t"}
        ops.append(op("elementwise_add", pair, {"Out": "s"}))
        last = "s"
    return [*ops, op(act, {"X": last}, {"Out": "y"}, **(act_attrs or {}))]


def backward(
    act: str, add: str = "", act_attrs: dict[str, Any] | None = None, wants_z: bool = True, **settings: Any
) -> list[FrozenOp]:
    settings = {k: v for k, v in settings.items() if k not in ("tensor", "momentum")}
    last = "s" if add else "t"
    ins = {"X": last, "Out": "y", "Out@GRAD": "dy"}
    names = {s.name for s in OPS[f"{act}_grad"].inputs}
    ins = {k: v for k, v in ins.items() if k in names}
    ops = [op(f"{act}_grad", ins, {"X@GRAD": "d" + last}, **(act_attrs or {}))]
    if add:
        pair = {"X": "t", "Y": "z"} if add != "right" else {"X": "z", "Y": "t"}
        mine, other = ("X@GRAD", "Y@GRAD") if add != "right" else ("Y@GRAD", "X@GRAD")
        outs = {mine: "dt"} | ({other: "dz"} if wants_z else {})
        ops.append(op("elementwise_add_grad", {**pair, "Out@GRAD": "ds"}, outs))
    return [*ops, norm_grad("dt", **settings)]


def arrays_for(shape: tuple[int, ...], layout: str, dtype: str, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    wide = np.float64 if dtype == "float64" else np.float32
    count = shape[-1] if len(shape) == 2 or layout.endswith("C") else shape[1]
    values = {"x": rng.standard_normal(shape), "z": rng.standard_normal(shape), "dy": rng.standard_normal(shape)}
    made = {n: v.astype(kind) for n, v in values.items()}
    made["scale"] = rng.uniform(-2, 2, count).astype(wide)
    made["bias"] = rng.standard_normal(count).astype(wide)
    made["mean"] = rng.standard_normal(count).astype(wide)
    made["variance"] = rng.uniform(0.5, 2, count).astype(wide)
    made["momentum"] = np.array([0.7], wide)
    return made


def on_a_gpu(kernel: Kernel) -> Kernel:
    """The kernel with the tiles that a GPU gets."""
    return replace(kernel, plan=lambda target: kernel.plan(DEFAULT_TARGET))


def check(
    ops: Sequence[FrozenOp],
    arrays: dict[str, Any],
    needed: Sequence[str],
    tiles: str = "few",
    ulps: float = 4.0,
    factor: float = 1.5,
) -> Any:
    """Runs ops and their kernel; the kernel may be off by ``factor`` times what the ops are, and a few units of the largest value.

    Exact is what the ops give in float64. Returns the ops' values.
    """
    wanted = run_ops(ops, arrays)
    exact = run_ops(ops, {n: a.astype(np.float64) for n, a in arrays.items()})
    metas = metas_by_name({n: a for n, a in wanted.items() if a is not None})
    kernel = batch_norm_kernel(ops, metas, needed)
    if tiles == "gpu":
        kernel = on_a_gpu(kernel)
    got = run_kernel(kernel, {n: a for n, a in wanted.items() if n not in needed}, {n: metas[n] for n in needed})
    for name in needed:
        result, unfused = got[name].astype(np.float64), wanted[name].astype(np.float64)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(unfused), f"NaN in {name}")
        np.testing.assert_array_equal(np.isinf(result), np.isinf(unfused), f"infinities in {name}")
        some = np.isfinite(unfused)
        true = exact[name][some]
        unit = float(ml_dtypes.finfo(got[name].dtype).eps) * float(np.abs(true).max(initial=0.0))
        error, allowed = (float(np.abs(v[some] - true).max(initial=0.0)) for v in (result, unfused))
        assert error <= factor * allowed + ulps * unit, f"{name}: off by {error}, the ops by {allowed}, unit {unit}"
    return wanted


@pytest.mark.parametrize("tiles", ["few", "gpu"])
@pytest.mark.parametrize(("shape", "layout"), SHAPES)
def test_shapes(shape: tuple[int, ...], layout: str, tiles: str) -> None:
    arrays = arrays_for(shape, layout, "float32")
    known = check(forward("relu", data_layout=layout), arrays, ["y", *STATISTICS], tiles)
    check(backward("relu", data_layout=layout), known, ["dx", "dscale", "dbias"], tiles)
    known = check(forward("relu", "left", data_layout=layout), arrays, ["y", *STATISTICS], tiles)
    needed = ["dx", "dscale", "dbias", "dz"]
    check(backward("relu", "left", data_layout=layout), known, needed, tiles)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("act", [type for type, definition in OPS.items() if definition.has(Activation)])
def test_activations(act: str, dtype: str) -> None:
    layout = "NCHW" if len(act) % 2 else "NHWC"
    arrays = arrays_for((3, 6, 4, 5), layout, dtype)
    for add in ("", "right"):
        known = check(forward(act, add, data_layout=layout), arrays, ["y", *STATISTICS])
        check(backward(act, add, data_layout=layout), known, ["dx", "dscale", "dbias", *(["dz"] if add else [])])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_types(dtype: str, layout: str) -> None:
    arrays = arrays_for((4, 5, 6, 5), layout, dtype)
    for act in ("relu", "silu"):
        known = check(forward(act, "left", data_layout=layout), arrays, ["y", *STATISTICS], "gpu")
        check(backward(act, "left", data_layout=layout), known, ["dx", "dscale", "dbias", "dz"], "gpu")


@pytest.mark.parametrize("approximate", [False, True])
def test_attributes_of_the_activation(approximate: bool) -> None:
    arrays = arrays_for((3, 4, 5), "NCHW", "float32")
    for act, attrs in (("gelu", {"approximate": approximate}), ("leaky_relu", {"alpha": -0.5 if approximate else 0.3})):
        known = check(forward(act, act_attrs=attrs), arrays, ["y"])
        check(backward(act, act_attrs=attrs), known, ["dx", "dscale", "dbias"])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("attrs", [
    {"is_test": True}, {"use_global_stats": True}, {"is_test": True, "trainable_statistics": True}, {"momentum": 0.3},
    {"unbiased_variance": True}, {"epsilon": 1e-3}, {"tensor": True}, {"bare": True}, {"bare": True, "use_global_stats": True},
])  # fmt: skip
def test_settings(attrs: dict[str, Any], layout: str) -> None:
    arrays = arrays_for((3, 6, 4, 6), layout, "float32")
    for add in ("", "right") if layout == "NCHW" else ("left", "x"):
        known = check(forward("relu", add, data_layout=layout, **attrs), arrays, ["y", *STATISTICS])
        outs = ["dx"] if attrs.get("bare") else ["dx", "dscale", "dbias"]
        if add != "x":
            check(backward("relu", add, data_layout=layout, **attrs), known, [*outs, *(["dz"] if add else [])])


@pytest.mark.parametrize("needed", [
    ["y"], ["y", "mean_out"], ["y", "variance_out", "saved_inverse"], ["saved_mean", "y", "t"], ["s", "y", "t"],
])  # fmt: skip
@pytest.mark.parametrize("given", [False, True])
def test_what_is_written(needed: list[str], given: bool) -> None:
    arrays = arrays_for((3, 4, 3, 3), "NCHW", "bfloat16")
    check(forward("gelu", "left", use_global_stats=given), arrays, needed)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_follows_a_stored_result_reads_what_is_stored(dtype: str) -> None:
    """As the activation's gradient does."""
    arrays = arrays_for((3, 4, 5, 6), "NCHW", dtype)
    ops = forward("leaky_relu", act_attrs={"alpha": 0.3})
    metas = metas_by_name({n: a for n, a in run_ops(ops, arrays).items() if a is not None})
    kernel = batch_norm_kernel(ops, metas, ["t", "y"])
    found = run_kernel(kernel, {b.value: arrays[b.value] for b in kernel.inputs}, {n: metas[n] for n in ("t", "y")})
    assert run_ops(ops[1:], found)["y"].tobytes() == found["y"].tobytes()


@pytest.mark.parametrize("needed", [["dx"], ["dscale"], ["dbias", "dz"], ["dx", "dz"], ["dscale", "dx"], ["dz"]])
@pytest.mark.parametrize("given", [False, True])
def test_which_gradients_are_written(needed: list[str], given: bool) -> None:
    arrays = arrays_for((3, 4, 3, 3), "NCHW", "bfloat16")
    settings: dict[str, Any] = {"use_global_stats": given, "wanted": [n[1:] for n in needed if n != "dz"]}
    known = run_ops(forward("silu", "left", use_global_stats=given), arrays)
    check(backward("silu", "left", wants_z="dz" in needed, **settings), known, needed)


@pytest.mark.parametrize("tiles", ["few", "gpu"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_mean_far_from_zero(layout: str, tiles: str) -> None:
    """Sums of squares would lose all digits of the variance."""
    arrays = arrays_for((8, 4, 9, 4), layout, "float32")
    arrays["x"] = (arrays["x"] * 1e-2 + np.float32(300.0)).astype(np.float32)
    known = check(forward("relu", data_layout=layout), arrays, ["y", *STATISTICS], tiles)
    # The mean to half a unit in the last place; the variance, whose digits the mean does not reach.
    check(forward("relu", data_layout=layout), arrays, ["saved_mean"], tiles, ulps=0.5, factor=0.0)
    check(forward("relu", data_layout=layout), arrays, ["saved_inverse"], tiles, ulps=8.0, factor=0.0)
    check(backward("relu", data_layout=layout), known, ["dx", "dscale", "dbias"], tiles)


def test_a_given_mean_far_from_zero() -> None:
    """The mean is taken off before anything is multiplied."""
    arrays = arrays_for((8, 4, 9, 4), "NCHW", "float32")
    arrays["x"] = (arrays["x"] * 1e-2 + np.float32(300.0)).astype(np.float32)
    arrays["mean"][:], arrays["variance"][:] = 300.0, 1e-4
    check(forward("relu", is_test=True), arrays, ["y"], ulps=8.0, factor=0.0)


def test_an_outlier_first() -> None:
    """The first value, from which differences are taken, may lie far from the others."""
    arrays = arrays_for((8, 4, 9, 4), "NCHW", "float32")
    arrays["x"][0, :, 0, 0] = 3e4
    check(forward("relu"), arrays, ["y", *STATISTICS], "few")
    check(forward("relu"), arrays, ["y", *STATISTICS], "gpu")


@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_a_number_stays_in_its_channel(value: float, place: int) -> None:
    arrays = arrays_for((4, 3, 2, 4), "NCHW", "float32")
    arrays["x"][place // 4, 1, 0, place % 4] = value
    known = check(forward("relu"), arrays, ["y", *STATISTICS])
    assert np.isnan(known["y"][:, 1]).all()
    check(backward("relu"), known, ["dx", "dscale", "dbias"])
    arrays = arrays_for((4, 3, 2, 4), "NCHW", "float32")
    arrays["dy"][place // 4, 1, 0, place % 4] = value
    check(backward("relu"), {**arrays, **run_ops(forward("relu"), arrays)}, ["dx", "dscale", "dbias"])


def test_one_value_per_channel() -> None:
    """The variance is 0, the result the bias."""
    arrays = arrays_for((1, 6), "NCHW", "float32")
    known = check(forward("relu"), arrays, ["y", *STATISTICS])
    np.testing.assert_array_equal(known["y"][0], np.maximum(arrays["bias"], 0))
    check(backward("relu"), known, ["dx", "dscale", "dbias"])


def test_many_channels() -> None:
    arrays = arrays_for((3, 1100), "NCHW", "float32")
    for tiles in ("few", "gpu"):
        known = check(forward("relu"), arrays, ["y", *STATISTICS], tiles)
        check(backward("relu"), known, ["dx", "dscale", "dbias"], tiles)


def test_few_programs() -> None:
    for shape, layout in ((64, 3, 56, 56), "NCHW"), ((8, 40, 40, 300), "NHWC"), ((2, 20000), "NCHW"):
        metas = metas_by_name(run_ops(forward("relu", data_layout=layout), arrays_for(shape, layout, "float32")))
        calls = batch_norm_kernel(forward("relu", data_layout=layout), metas, ["y", *STATISTICS]).plan(TINY)
        assert all(np.prod(one.grid) <= 4 for one in calls.launches), calls


def test_the_order_of_needed_values_does_not_matter() -> None:
    arrays = arrays_for((3, 4, 3, 3), "NCHW", "float32")
    ops = forward("gelu", "left")
    metas = metas_by_name({n: a for n, a in run_ops(ops, arrays).items() if a is not None})
    texts = {batch_norm_kernel(ops, metas, order).text for order in (["y", "s", *STATISTICS], [*STATISTICS, "s", "y"])}
    assert len(texts) == 1


def test_an_empty_batch_has_no_kernel() -> None:
    ops = forward("relu")
    arrays = arrays_for((0, 3, 2, 2), "NCHW", "float32")
    metas = metas_by_name({n: a for n, a in run_ops(ops, arrays).items() if a is not None})
    with pytest.raises(CodegenUnsupported, match="EMPTY"):
        batch_norm_kernel(ops, metas, ["y"])
