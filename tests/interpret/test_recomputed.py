"""Backward kernels recompute the bits of the forward kernel; programs whose gradients are identities or sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.bn_nets import act_of, strategy
from tests.helpers.gradient_programs import COMPUTED, build, run
from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tests.interpret.test_bn_act import DTYPES, STATISTICS, arrays_for, backward, forward, on_a_gpu
from tstatic import static
from tstatic.fusion.codegen.channels.batch_norm import RECOMPUTES, batch_norm_kernel
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS
from tstatic.ir.traits import Activation

SWITCHES = (("fuse_elewise_add_act_ops",), ("enable_auto_fusion",), ("build_cinn_pass",), ("all",))


# ---------------------------------------------------------------------------------------------------------- batch norm
def kernel_values(ops: Sequence[FrozenOp], known: dict[str, Any], needed: Sequence[str], gpu: bool) -> dict[str, Any]:
    """What the kernel of some ops writes, given all values that the ops read."""
    metas = metas_by_name({n: a for n, a in {**known, **run_ops(ops, known)}.items() if a is not None})
    kernel = batch_norm_kernel(ops, metas, needed)
    kernel = on_a_gpu(kernel) if gpu else kernel
    read = {b.value: known[b.value] for b in kernel.inputs}
    return run_kernel(kernel, read, {n: metas[n] for n in needed})


def marked(ops: list[FrozenOp]) -> list[FrozenOp]:
    return [replace(ops[0], attrs={**ops[0].attrs, RECOMPUTES: True}), *ops[1:]]


@pytest.mark.parametrize(("layout", "gpu"), [("NCHW", False), ("NHWC", True)])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("settings", [
    {}, {"bare": True}, {"use_global_stats": True}, {"epsilon": 1e-4}, {"is_test": True, "trainable_statistics": True},
])  # fmt: skip
def test_the_mask_is_that_of_the_forward_kernel(settings: dict[str, Any], dtype: str, layout: str, gpu: bool) -> None:
    """Bit for bit what reading the stored result gives, also where it underflows to 0 and at the kink itself."""
    arrays = arrays_for((4, 5, 6, 5), layout, dtype)
    # One channel whose results are too small for 16 bits, one whose are all at the kink, one of equal values.
    at = (slice(None), 1) if layout == "NCHW" else (..., 1)
    still = (slice(None), 2) if layout == "NCHW" else (..., 2)
    arrays["scale"][0], arrays["bias"][0] = 1e-9, 0.0
    arrays["scale"][1], arrays["bias"][1] = 0.0, 0.0
    arrays["x"][at] *= np.asarray(4, arrays["x"].dtype)
    arrays["x"][still] = np.asarray(0.3, arrays["x"].dtype)
    arrays["bias"][2] = 0.0
    ops = forward("relu", data_layout=layout, **settings)
    known = {**arrays, **kernel_values(ops, arrays, ["y", *STATISTICS], gpu)}
    if dtype == "float16" and not settings:
        first = known["y"][:, 0] if layout == "NCHW" else known["y"][..., 0]
        assert (first == 0).all(), "the smallest results underflow"
    back = backward("relu", data_layout=layout, **settings)
    needed = ["dx"] if settings.get("bare") else ["dx", "dscale", "dbias"]
    wanted = kernel_values(back, known, needed, gpu)
    again = marked(back)
    # Nothing of the result may be read.
    found = kernel_values(again, {**known, "y": known["y"]}, needed, gpu)
    metas = metas_by_name({n: a for n, a in {**known, **run_ops(back, known)}.items() if a is not None})
    assert "y" not in [b.value for b in batch_norm_kernel(again, metas, needed).inputs]
    for name in needed:
        assert found[name].tobytes() == wanted[name].tobytes(), name


FROM_RESULTS = [
    a for a, d in OPS.items() if d.has(Activation) and {s.name for s in OPS[f"{a}_grad"].inputs} == {"Out", "Out@GRAD"}
]


@pytest.mark.parametrize("act", FROM_RESULTS)
def test_other_activations_from_their_results(act: str) -> None:
    arrays = arrays_for((3, 6, 4, 5), "NHWC", "float32")
    ops, back = forward(act, data_layout="NHWC"), backward(act, data_layout="NHWC")
    known = {**arrays, **kernel_values(ops, arrays, ["y", *STATISTICS], False)}
    needed = ["dx", "dscale", "dbias"]
    wanted, found = (kernel_values(o, known, needed, False) for o in (back, marked(back)))
    for name in needed:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_without_sums_the_result_is_read() -> None:
    """Given statistics and no gradient of parameters: x is not read at all."""
    arrays = arrays_for((3, 6, 4, 5), "NCHW", "float32")
    known = {**arrays, **run_ops(forward("relu", use_global_stats=True), arrays)}
    back = marked(backward("relu", use_global_stats=True, wanted=("x",)))
    metas = metas_by_name({n: a for n, a in {**known, **run_ops(back, known)}.items() if a is not None})
    read = {b.value for b in batch_norm_kernel(back, metas, ["dx"]).inputs}
    assert "y" in read
    assert "x" not in read


def check_fused_equals_unfused(main: static.Program, startup: static.Program, fetches: list[Any]) -> None:
    results = []
    for on in (False, True):
        scope = static.Scope()
        executor = static.Executor("cpu")
        executor.run(startup, scope=scope)
        feed = {"x": np.random.default_rng(1).standard_normal((3, 4, 5, 6)).astype(np.float32)}
        compiled = static.CompiledProgram(main, build_strategy=strategy(on))
        results.append(executor.run(compiled, feed=feed, fetch_list=fetches, scope=scope))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def norm_program(build: Any) -> tuple[Any, Any, list[Any]]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [3, 4, 5, 6])
        x.stop_gradient = False
        fetches = build(x)
    return main, startup, fetches


def kernels_of(main: Any, fetches: list[Any]) -> dict[str, Any]:
    told = static.CompiledProgram(main, build_strategy=strategy(True)).explain(fetch_list=fetches)
    return {a.op: a for a in told.applied}


def test_programs_compute_the_result_again() -> None:
    def compute(x: Any) -> list[Any]:
        y = act_of("relu")(static.nn.batch_norm(x))
        return [y, *static.gradients([y * y], [x])]

    main, _, fetches = norm_program(compute)
    made = kernels_of(main, fetches)["fused_batch_norm_act_grad"]
    assert fetches[0].name not in [b.value for b in made.kernel.inputs]


def test_a_fetched_inner_value_has_the_result_read() -> None:
    """The forward is not one kernel then, and its bits may be others."""

    def compute(x: Any) -> list[Any]:
        t = static.nn.batch_norm(x)
        y = act_of("relu")(t)
        return [y, t, *static.gradients([y * y], [x])]

    main, _, fetches = norm_program(compute)
    made = kernels_of(main, fetches)["fused_batch_norm_act_grad"]
    assert fetches[0].name in [b.value for b in made.kernel.inputs]


def test_the_gradient_of_another_activation_has_the_result_read() -> None:
    """What arrives at the norm is the gradient of a relu, but not of this norm's."""

    def compute(x: Any) -> list[Any]:
        u = paddle.exp(x)
        y = act_of("relu")(u)
        (g,) = static.gradients([y * y], [u])
        t = static.nn.batch_norm(x)
        return [y, *static.gradients([t], [x], [g])]

    main, startup, fetches = norm_program(compute)
    made = kernels_of(main, fetches)
    if "fused_batch_norm_act_grad" in made:
        assert fetches[0].name in [b.value for b in made["fused_batch_norm_act_grad"].kernel.inputs]
    check_fused_equals_unfused(main, startup, fetches)


def test_gradients_that_are_added_up_on_the_way_in() -> None:
    """The result of norm, add and relu has two readers: their gradients are added in the same kernel."""

    def compute(x: Any) -> list[Any]:
        y = act_of("relu")(static.nn.batch_norm(x * 2.0) + x)
        return [y, *static.gradients([paddle.tanh(y) + y * y], [x])]

    main, startup, fetches = norm_program(compute)
    made = kernels_of(main, fetches)["fused_bn_add_activation_grad"]
    assert [m.type for m in made.members] == ["sum", "relu_grad", "elementwise_add_grad", "batch_norm_grad"]
    check_fused_equals_unfused(main, startup, fetches)


# ------------------------------------------------------------------------------------------------------------ programs
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", COMPUTED)
def test_gradients_that_are_handed_on(name: str, direct: bool) -> None:
    built = build(COMPUTED[name], direct=direct)
    wanted, _, _ = run(built, 1)
    for switches in SWITCHES:
        found, _, compiled = run(built, 1, *switches)
        assert any(s.how == "kernel" for s in compiled.plan.steps)
        for fetch, a, b in zip(built.fetches, found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=3e-7, err_msg=f"{fetch} under {switches}")
