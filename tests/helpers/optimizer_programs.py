"""Training programs of many small parameters; run by the numpy and the interpreter ring of the optimizer fusions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

SHAPES: tuple[tuple[int, ...], ...] = ((7, 5), (1,), (3,), (2, 17, 31), (), (1024,), (1, 1))
"""Odd sizes, single elements, and more than a block."""

CLIPPED = tuple(s for s in SHAPES if s)
"""The factor has one dimension, so clipping makes one of a gradient that has none."""

opt, old = paddle.optimizer, paddle.fluid.optimizer


@dataclass(frozen=True)
class Case:
    """An optimizer, which ops it becomes, and how many.

    Attributes:
        name: For reports.
        make: The optimizer.
        fused: Types of the fused ops that the switches make, in order.
        dtype: Of the parameters.
        switch: The property.
        shapes: Of the parameters.
        exact: The generated kernels have the bits of the references, too; a sum of squares has not.
    """

    name: str
    make: Callable[[], Any]
    fused: tuple[str, ...]
    dtype: str = "float32"
    switch: str = "fuse_all_optimizer_ops"
    shapes: tuple[tuple[int, ...], ...] = SHAPES
    exact: bool = True


def _decays(name: str) -> bool:
    return name not in ("w1", "w2", "w4")


def _ratio(param: Any) -> float:
    return {"w0": 1.0, "w1": 1.0, "w3": 0.5}.get(param.name, 0.25)


def _with_masters(rule: Any) -> Any:
    rule._multi_precision = True
    return rule


CASES = (
    Case("sgd", lambda: opt.SGD(0.1), ("sgd",)),
    Case("sgd bf16", lambda: opt.SGD(0.1), ("sgd",), "bfloat16"),
    Case("sgd bf16 master", lambda: opt.SGD(0.1, multi_precision=True), ("sgd",), "bfloat16"),
    Case("momentum", lambda: opt.Momentum(0.1, 0.9), ("momentum",)),
    Case("momentum nesterov", lambda: opt.Momentum(0.1, 0.9, use_nesterov=True), ("momentum",)),
    Case("momentum l2", lambda: opt.Momentum(0.1, 0.8, weight_decay=0.02), ("momentum",)),
    Case(
        "momentum all",
        lambda: opt.Momentum(0.1, 0.8, weight_decay=0.02, use_nesterov=True, rescale_grad=0.3),
        ("momentum",),
    ),
    Case("momentum fp16 master", lambda: opt.Momentum(0.1, multi_precision=True), ("momentum",), "float16"),
    Case("adam", lambda: opt.Adam(0.1), ("adam",)),
    Case("adam l2", lambda: opt.Adam(0.1, weight_decay=0.02), ("adam",)),
    Case("adam f64", lambda: opt.Adam(0.1), ("adam",), "float64"),
    Case("adam bf16", lambda: opt.Adam(0.1), ("adam",), "bfloat16"),
    Case("adam bf16 master", lambda: opt.Adam(0.1, multi_precision=True), ("adam",), "bfloat16"),
    Case("adagrad bf16", lambda: opt.Adagrad(0.1), ("adagrad",), "bfloat16"),
    Case("adadelta", lambda: opt.Adadelta(0.1), ("adadelta",)),
    Case("rmsprop", lambda: opt.RMSProp(0.1, momentum=0.3), ("rmsprop",)),
    Case("rmsprop centered", lambda: opt.RMSProp(0.1, centered=True), ("rmsprop",)),
    Case(
        "decayed adagrad bf16 master", lambda: _with_masters(old.DecayedAdagrad(0.1)), ("decayed_adagrad",), "bfloat16"
    ),
    Case("ftrl", lambda: old.Ftrl(0.1, l1=0.01), ("ftrl",)),
    Case("adamw", lambda: opt.AdamW(0.1), ("fused_adam",), switch="fuse_adamw"),
    Case("adamw by all", lambda: opt.AdamW(0.1), ("fused_adam",)),
    Case(
        "adamw decay",
        lambda: opt.AdamW(0.1, weight_decay=0.3, apply_decay_param_fun=_decays),
        ("fused_adam", "fused_adam"),
        switch="fuse_adamw",
    ),
    Case("adamw ratio", lambda: opt.AdamW(0.1, lr_ratio=_ratio), ("fused_adam",) * 3, switch="fuse_adamw"),
    Case(
        "adamw bf16 master",
        lambda: opt.AdamW(0.1, apply_decay_param_fun=_decays, multi_precision=True),
        ("fused_adam", "fused_adam"),
        "bfloat16",
        "fuse_adamw",
    ),
    Case(
        "adamw clipped",
        lambda: opt.AdamW(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)),
        ("squared_l2_norm", "fused_adam"),
        "float32",
        "fuse_adamw",
        CLIPPED,
        False,
    ),
    Case(
        "adam bf16 master clipped",
        lambda: opt.Adam(0.1, multi_precision=True, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)),
        ("squared_l2_norm", "adam"),
        "bfloat16",
        "fuse_all_optimizer_ops",
        CLIPPED,
        False,
    ),
    Case(
        "momentum f64 clipped",
        lambda: opt.Momentum(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)),
        ("squared_l2_norm", "momentum"),
        "float64",
        "fuse_all_optimizer_ops",
        CLIPPED,
        False,
    ),
)


@dataclass
class Training:
    """A program that trains, with what one step is fed."""

    main: Any
    startup: Any
    loss: Any
    shapes: Sequence[tuple[int, ...]]

    def feed(self, step: int) -> dict[str, Any]:
        rng = np.random.default_rng(step)
        return {f"x{i}": rng.normal(size=s).astype(np.float32) for i, s in enumerate(self.shapes)}


def training(
    make: Callable[[], Any],
    dtype: str = "float32",
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    attrs: Mapping[int, Mapping[str, Any]] | None = None,
) -> Training:
    """Parameters that follow their inputs: the loss is the sum of all squared distances.

    Args:
        make: The optimizer.
        dtype: Of the parameters.
        shapes: One parameter ``w<i>`` each.
        attrs: Index -> arguments of its ``ParamAttr``.
    """
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss: Any = None
        for i, shape in enumerate(shapes):
            x = static.data(f"x{i}", list(shape), "float32")
            start = paddle.nn.initializer.Constant(0.5 + 0.25 * i)
            attr = paddle.ParamAttr(name=f"w{i}", initializer=start, **(attrs or {}).get(i, {}))
            w = static.create_parameter(list(shape), dtype, attr=attr)
            far = w.astype("float32") - x
            part = paddle.sum(far * far)
            loss = part if loss is None else loss + part
        make().minimize(loss)
    return Training(main, startup, loss, shapes)


def train(
    one: Training, switches: Sequence[str] = (), steps: int = 5, fetch: Sequence[Any] = ()
) -> tuple[list[Any], dict[str, Any], Any]:
    """Trains from the start in a scope of its own.

    Args:
        one: The program.
        switches: Properties of the strategy that are on.
        steps: How many.
        fetch: What else to fetch in each.

    Returns:
        The fetched values of all steps (the loss first), the persistable variables afterwards, the CompiledProgram.
    """
    strategy = static.BuildStrategy()
    for name in switches:
        setattr(strategy, name, True)
    compiled = static.CompiledProgram(one.main, strategy)
    scope = static.Scope()
    with static.scope_guard(scope):
        exe = static.Executor(paddle.CPUPlace())
        exe.run(one.startup)
        values = [v for k in range(steps) for v in exe.run(compiled, feed=one.feed(k), fetch_list=[one.loss, *fetch])]
        return values, state(one.main, scope), compiled


def state(main: Any, scope: Any) -> dict[str, Any]:
    """Copies of all persistable variables."""
    names = [v.name for v in main.list_vars() if v.persistable]
    return {n: np.array(scope.find_var(n).get_tensor()) for n in names}


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits; a NaN is like any other."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fV":
        return bool((a == b).all())
    wide = np.float64 if a.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        nan = np.isnan(a.astype(wide)) & np.isnan(b.astype(wide))
    bits = f"u{a.dtype.itemsize}"
    return bool(((np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | nan).all())
