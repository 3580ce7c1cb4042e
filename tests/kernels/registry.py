"""The golden set: the kernels of every fusion, direction and float type, for one to three large shapes, and of whole models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tstatic as paddle
from tests.bench.scripts import script
from tests.kernels.limits import Kind
from tstatic import static
from tstatic.chips.aot import Source
from tstatic.chips.sources import sources
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel

F = paddle.nn.functional
Shape = tuple[int, ...]
DTYPES = ("float32", "bfloat16", "float16")

STREAMING = ("pointwise", "update")
"""Templates whose main function neither sums nor changes layouts."""


@dataclass(frozen=True)
class Entry:
    """A program, and the one switch that is on.

    Attributes:
        label: Of its kernels.
        switch: The property.
        compute: What it computes from its inputs.
        shapes: Of the inputs.
        backward: Gradients by all inputs and parameters are fetched, too.
        slow: Not among those of every run: each kernel takes seconds to compile, or differs from another's in sizes only.
    """

    label: str
    switch: str
    compute: Callable[..., Any]
    shapes: tuple[Shape, ...]
    backward: bool = True
    slow: bool = False


# ---------------------------------------------------------------------------------------------------- pointwise and rows
def act(name: str, x: Any, b: Any) -> Any:
    """An activation of a sum."""
    return getattr(F, name)(x + b)


def chain(x: Any, b: Any) -> Any:
    """Eight operators per element, with a broadcast and a cast."""
    wide = paddle.cast(F.gelu(x + b), "float32")
    return paddle.cast(paddle.tanh(wide * 0.5) - paddle.exp(-paddle.square(wide)), x.dtype) * x


def norm(x: Any, r: Any) -> Any:
    """Residual and layer norm."""
    return static.nn.layer_norm(x + r, scale=False, shift=False, begin_norm_axis=1)


def plain_norm(x: Any) -> Any:
    """Layer norm by itself, with scale and shift."""
    return static.nn.layer_norm(x, begin_norm_axis=1)


def scores(x: Any, mask: Any) -> Any:
    """Scaled, masked softmax."""
    return F.softmax(x * 0.125 + mask)


def dropped(x: Any, r: Any) -> Any:
    """Dropout and residual; the gradient draws the mask again."""
    return F.dropout(x, 0.1) + r


def dropped_scores(x: Any, mask: Any) -> Any:
    """Scaled, masked softmax with dropout."""
    return F.dropout(scores(x, mask), 0.1)


def noisy(x: Any) -> Any:
    """Uniform noise in a range, added."""
    return x + paddle.uniform(x.shape, dtype=x.dtype, min=-0.5, max=2.0)


FORMS: dict[str, tuple[Shape, Shape]] = {
    "full": ((8192, 4096), (8192, 4096)),
    "bias": ((32768, 768), (768,)),
    "channels": ((256, 64, 56, 56), (64, 1, 1)),
}
ACTIVATIONS = ("relu", "tanh", "gelu", "silu")


def elements() -> Iterator[Entry]:
    """Adds with activations, and a longer chain."""
    for form, shapes in FORMS.items():
        for name in ACTIVATIONS[: 1 if form == "channels" else None]:
            label = f"elewise_add_act/{name}-{form}"
            yield Entry(label, "fuse_elewise_add_act_ops", partial(act, name), shapes)
        yield Entry(f"auto/chain-{form}", "enable_auto_fusion", chain, shapes)
    yield Entry("auto/dropout-full", "enable_auto_fusion", dropped, ((32768, 768),) * 2)
    yield Entry("auto/uniform-full", "enable_auto_fusion", noisy, ((32768, 768),), backward=False)


def loss_of(x: Any) -> Any:
    """Cross entropy of each row with its label."""
    label = static.data("label", [x.shape[0], 1], "int64")
    return F.cross_entropy(x * 0.5, label, reduction="none")


def mean_loss_of(x: Any) -> Any:
    """The loss of a language model: its gradient does not wait for other rows."""
    label = static.data("label", [*x.shape[:-1], 1], "int64")
    return paddle.mean(F.softmax_with_cross_entropy(x, label))


def rows() -> Iterator[Entry]:
    """Normalisations, softmax, losses; rows that a program holds, and longer ones."""
    for label, compute, shapes in (
        ("residual_layer_norm-768", norm, ((32768, 768), (32768, 768))),
        ("residual_layer_norm-4096", norm, ((8192, 4096), (8192, 4096))),
        ("layer_norm-768", plain_norm, ((32768, 768),)),
        ("masked_softmax-1024", scores, ((32, 12, 1024, 1024), (1024, 1024))),
        ("masked_softmax_dropout-1024", dropped_scores, ((32, 12, 1024, 1024), (1024, 1024))),
        ("softmax_bias-8192", scores, ((4096, 8192), (8192,))),
        ("cross_entropy-8192", loss_of, ((16384, 8192),)),
        ("cross_entropy-50304", loss_of, ((8192, 50304),)),
        ("mean_cross_entropy-50304", mean_loss_of, ((8, 1024, 50304),)),
    ):
        yield Entry(f"compiler/{label}", "build_cinn_pass", compute, shapes)


# ---------------------------------------------------------------------------------------------- batch norm, convolution
def batch_norm(layout: str, test: bool, x: Any, z: Any = None) -> Any:
    """Batch norm, the add of a residual, relu."""
    y = static.nn.batch_norm(x, data_layout=layout, is_test=test)
    return F.relu(y if z is None else y + z)


def norms() -> Iterator[Entry]:
    """Training in two shapes, inference in one, and channels first."""
    for name, count in (("bn_act", 1), ("bn_add_act", 2)):
        for label, layout, test, shape in (
            ("train-256x56x56x64", "NHWC", False, (256, 56, 56, 64)),
            ("train-256x7x7x2048", "NHWC", False, (256, 7, 7, 2048)),
            ("train-256x64x56x56", "NCHW", False, (256, 64, 56, 56)),
            ("test-256x28x28x512", "NHWC", True, (256, 28, 28, 512)),
        ):
            compute = partial(batch_norm, layout, test)
            yield Entry(f"{name}/{label}", f"fuse_{name}_ops", compute, (shape,) * count, slow=shape[-1] == 2048)


def depthwise(size: int, stride: int, layout: str, x: Any) -> Any:
    """A depthwise convolution of relu."""
    channels = x.shape[3 if layout == "NHWC" else 1]
    return static.nn.conv2d(
        F.relu(x), channels, size, stride, size // 2, groups=channels, bias_attr=False, data_format=layout
    )


def convolutions() -> Iterator[Entry]:
    """Small filters in both layouts, and large ones."""
    for label, size, stride, layout, shape in (
        ("k3s1-128x144x56x56", 3, 1, "NCHW", (128, 144, 56, 56)),
        ("k3s2-128x56x56x144", 3, 2, "NHWC", (128, 56, 56, 144)),
        ("k7s1-128x384x14x14", 7, 1, "NCHW", (128, 384, 14, 14)),
    ):
        compute = partial(depthwise, size, stride, layout)
        yield Entry(f"relu_depthwise_conv/{label}", "fuse_relu_depthwise_conv", compute, (shape,), slow=size > 3)


# ------------------------------------------------------------------------------------------------------------ optimizers
def training(make: Callable[[], Any], shapes: Sequence[Shape], dtype: str) -> Any:
    """Parameters of these shapes, updated by an optimizer."""
    total: Any = None
    for i, shape in enumerate(shapes):
        w = static.create_parameter(list(shape), dtype, name=f"w{i}")
        part = paddle.mean(paddle.cast(paddle.square(w), "float32"))
        total = part if total is None else total + part
    make().minimize(total)
    return total


GPT2_BLOCK: tuple[Shape, ...] = ((768,), (768, 2304), (2304,), (768, 3072))
"""Some parameters of a block of GPT-2 124M; the kernels do not depend on how many there are."""


def updates() -> Iterator[tuple[str, str, Callable[[], Any], str]]:
    """(label, switch, optimizer, type of the parameters)."""
    opt, clip = paddle.optimizer, paddle.nn.ClipGradByGlobalNorm
    for dtype in DTYPES:
        master = dtype != "float32"
        for label, switch, make in (
            ("adamw/plain", "fuse_adamw", lambda m=master: opt.AdamW(0.01, multi_precision=m)),
            ("adamw/clip", "fuse_adamw", lambda m=master: opt.AdamW(0.01, multi_precision=m, grad_clip=clip(1.0))),
            ("all_optimizer/adam", "fuse_all_optimizer_ops", lambda m=master: opt.Adam(0.01, multi_precision=m)),
            (
                "all_optimizer/momentum",
                "fuse_all_optimizer_ops",
                lambda m=master: opt.Momentum(0.01, multi_precision=m),
            ),
            ("all_optimizer/momentum-clip", "fuse_all_optimizer_ops", lambda: opt.Momentum(0.01, grad_clip=clip(1.0))),
            ("all_optimizer/sgd", "fuse_all_optimizer_ops", lambda: opt.SGD(0.01)),
        ):
            yield f"{label}-{dtype}", switch, make, dtype


# ----------------------------------------------------------------------------------------------------------------- kernels
def explained(main: Any, switch: str, fetches: Sequence[str], feeds: dict[str, Shape]) -> tuple[Kernel, ...]:
    """The kernels of a program with one switch on; nothing is run."""
    strategy = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(strategy, fusion.switch, fusion.switch == switch)
    return static.CompiledProgram(main, strategy).explain(fetch_list=list(fetches), feed_shapes=feeds).kernels


def kernels_of(entry: Entry, dtype: str) -> tuple[Kernel, ...]:
    """The kernels of one entry, forward and backward."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        inputs = [static.data(f"x{i}", list(s), dtype) for i, s in enumerate(entry.shapes)]
        for v in inputs:
            v.stop_gradient = False
        out = entry.compute(*inputs)
        fetches = [out.name]
        if entry.backward:
            given = static.data("given", list(out.shape), out.dtype)
            wanted = [*inputs, *(p for p in main.all_parameters() if not p.stop_gradient)]
            fetches += [g.name for g in static.gradients([out], wanted, [given])]
    return explained(main, entry.switch, fetches, {v.name: tuple(v.shape) for v in main.list_vars() if v.is_data})


def _named(label: str, made: Sequence[Kernel]) -> Iterator[tuple[str, Kind, Source]]:
    assert made, f"{label} has no kernel"
    for number, kernel in enumerate(made):
        for function, source in sources(kernel):
            # A number alone (the factor of clipped gradients) is no stream.
            streams = function == "kernel" and kernel.template in STREAMING and kernel.outputs[0].count > 1
            yield f"{label}/{number}.{function}", "pointwise" if streams else "reduction", source


def models() -> Iterator[tuple[str, tuple[Kernel, ...]]]:
    """The distinct kernels of the benches' training steps, every fusion on, by the model's name."""
    for name, model in script("models").MODELS.items():
        main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            loss = model.build(paddle)
        strategy = static.BuildStrategy()
        for fusion in FUSIONS:
            setattr(strategy, fusion.switch, True)
        found = static.CompiledProgram(main, strategy).explain(fetch_list=[loss], feed_shapes=model.feeds)
        yield name, tuple({kernel.name: kernel for kernel in found.kernels}.values())


def slow(name: str) -> bool:
    """Whether a kernel is left out of most runs."""
    return name.startswith("models/") or any(
        name.startswith(f"{entry.label}-") for entry in (*norms(), *convolutions()) if entry.slow
    )


def kernels(slow: bool = True) -> Iterator[tuple[str, Kind, Source]]:
    """All of them, or those that are not slow: (name, kind, source)."""
    for entry in (*elements(), *rows(), *norms(), *convolutions()):
        for dtype in DTYPES if slow or not entry.slow else ():
            yield from _named(f"{entry.label}-{dtype}", kernels_of(entry, dtype))
    for label, switch, make, dtype in updates():
        main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            total = training(make, GPT2_BLOCK, dtype)
        yield from _named(label, explained(main, switch, [total.name], {}))
    for name, found in models() if slow else ():
        yield from _named(f"models/{name}", found)
