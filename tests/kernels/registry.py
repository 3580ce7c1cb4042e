"""The golden set: the kernels of every fusion, direction, float type and two or three large shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tstatic as paddle
from tstatic import static
from tstatic.fusion.aot import Source
from tstatic.fusion.limits import Kind
from tstatic.fusion.sources import sources
from tstatic.ir.types import Meta, dtype_of
from tstatic.static import pipeline
from tstatic.static.inquiry import inquire
from tstatic.static.strategy import ExecutionStrategy

F = paddle.nn.functional
Shape = tuple[int, ...]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "tanh": paddle.tanh,
    "gelu": F.gelu,
    "silu": F.silu,
}
FORMS: dict[str, tuple[Shape, Shape]] = {
    "full": ((8192, 4096), (8192, 4096)),
    "bias": ((32768, 768), (768,)),
    "channels": ((256, 64, 56, 56), (64, 1, 1)),
}
DTYPES = ("float32", "bfloat16", "float16")


def chain(x: Any, b: Any) -> Any:
    """Eight operators per element, with a broadcast and a cast."""
    wide = paddle.cast(F.gelu(x + b), "float32")
    return paddle.cast(paddle.tanh(wide * 0.5) - paddle.exp(-paddle.square(wide)), x.dtype) * x


def norm(x: Any, r: Any) -> Any:
    """Residual and layer norm without parameters, which belong to no scope here."""
    return static.nn.layer_norm(x + r, scale=False, shift=False, begin_norm_axis=1)


def scores(x: Any, mask: Any) -> Any:
    """Scaled, masked softmax."""
    return F.softmax(x * 0.125 + mask)


ROWS: dict[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "residual_layer_norm-768": (norm, ((32768, 768), (32768, 768))),
    "residual_layer_norm-4096": (norm, ((8192, 4096), (8192, 4096))),
    "masked_softmax-1024": (scores, ((32, 12, 1024, 1024), (1024, 1024))),
    "softmax_bias-8192": (scores, ((4096, 8192), (8192,))),
}


def _kernels(
    label: str, compute: Callable[..., Any], shapes: tuple[Shape, ...], dtype: str, **switches: bool
) -> Iterator[tuple[str, Kind, Source]]:
    """The kernels of a program and its gradients under a strategy; nothing is run."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        inputs = [static.data(f"x{i}", list(s), dtype) for i, s in enumerate(shapes)]
        for v in inputs:
            v.stop_gradient = False
        out = compute(*inputs)
        given = static.data("given", list(out.shape), dtype)
        grads = static.gradients([out], inputs, [given])
    strategy = static.BuildStrategy()
    strategy.fuse_bn_add_act_ops = False
    for name, value in switches.items():
        setattr(strategy, name, value)
    feeds = [v.name for v in (*inputs, given)]
    frozen, _ = pipeline.rewrite(main, strategy, feeds, [out.name, *(g.name for g in grads)])
    known = {v.name: Meta(tuple(v.shape), dtype_of(dtype)) for v in (*inputs, given)}
    explained = inquire(frozen, known, strategy, ExecutionStrategy(), "generated")
    assert explained.applied, (label, [r.code for r in explained.refused], [o.type for o in frozen.ops])
    for number, kernel in enumerate(explained.kernels):
        kind: Kind = "pointwise" if kernel.template == "pointwise" else "reduction"
        for function, source in sources(kernel):
            yield f"{label}/{number}.{function}", "reduction" if function != "kernel" else kind, source


def kernels() -> Iterator[tuple[str, Kind, Source]]:
    """All of them: (name, kind, source)."""
    for dtype in DTYPES:
        for form, shapes in FORMS.items():
            for name, act in ACTIVATIONS.items():
                if form == "channels" and name != "relu":
                    continue
                label = f"elewise_add_act/{name}-{form}-{dtype}"
                yield from _kernels(
                    label, lambda x, b, act=act: act(x + b), shapes, dtype, fuse_elewise_add_act_ops=True
                )
            yield from _kernels(f"auto/chain-{form}-{dtype}", chain, shapes, dtype, enable_auto_fusion=True)
        for name, (compute, shapes) in ROWS.items():
            yield from _kernels(f"compiler/{name}-{dtype}", compute, shapes, dtype, build_cinn_pass=True)
