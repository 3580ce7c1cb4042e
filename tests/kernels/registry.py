"""The golden set: the kernels of every fusion, direction and float type, for one to three large shapes, and of whole models."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tstatic as paddle
from tests.bench.scripts import script
from tests.kernels.attentions import attentions, launch_kind
from tests.kernels.limits import Kind
from tstatic import static
from tstatic.chips.aot import Source
from tstatic.chips.sources import sources
from tstatic.errors import ProgramError
from tstatic.fusion import FUSIONS, engine
from tstatic.fusion.codegen.define import draws as draws_in_kernels
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.matrix.gemm import gemm_kernel
from tstatic.fusion.patterns.single_op import kernel_per_draw
from tstatic.ir.build import emit
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OPS, op_def
from tstatic.ir.types import Meta, dtype_of
from tstatic.runtime.scope import Scope
from tstatic.static.compile import compile_program
from tstatic.target import A100, B200, H200, Target

F = paddle.nn.functional
Shape = tuple[int, ...]
DTYPES = ("float32", "bfloat16", "float16")

STREAMING = ("pointwise", "update")
"""Templates whose main function neither sums nor changes layouts."""

TARGETS: Mapping[int, Target] = {80: A100, 90: H200, 100: B200}
"""Chips that kernels are compiled for. Tiles of matrix products are another chip's on each."""


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


# ---------------------------------------------------------------------------------------------------------- matrix products
TOKENS = 8192


def _op(kind: str, ins: Mapping[str, str], outs: Mapping[str, str], **attrs: Any) -> FrozenOp:
    """An op by its slots; those that are not named are absent."""
    definition = op_def(kind)
    slots = tuple(ins.get(s.name) for s in definition.inputs), tuple(outs.get(s.name) for s in definition.outputs)
    return FrozenOp(definition, *slots, definition.complete(attrs))


def linear(width: int, dtype: str) -> Kernel:
    """The first product of a feed-forward part: bias and gelu behind it, whose pre-activation is saved."""
    body = [
        _op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}),
        _op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"}, axis=1),
        _op("gelu", {"X": "z"}, {"Out": "y"}),
    ]
    large = dict.fromkeys(("p", "z", "y"), (TOKENS, 4 * width))
    return _product(body, {"x": (TOKENS, width), "w": (width, 4 * width), "b": (4 * width,), **large}, dtype, "z", "y")


def linear_gradient(width: int, dtype: str) -> Kernel:
    """The gradient by the input of the second product, through gelu, summed for the bias of the first."""
    body = [
        _op("matmul_v2_grad", {"X": "x", "Y": "w", "Out@GRAD": "dy"}, {"X@GRAD": "dx"}),
        _op("gelu_grad", {"X": "z", "Out@GRAD": "dx"}, {"X@GRAD": "dz"}),
        _op("elementwise_add_grad", {"X": "z", "Y": "b", "Out@GRAD": "dz"}, {"Y@GRAD": "db"}, axis=1),
    ]
    large = dict.fromkeys(("x", "z", "dx", "dz"), (TOKENS, 4 * width))
    row = dict.fromkeys(("b", "db"), (4 * width,))
    return _product(body, {"w": (4 * width, width), "dy": (TOKENS, width), **large, **row}, dtype, "dz", "db")


def weight_gradient(width: int, dtype: str) -> Kernel:
    """The gradient by a square weight, added to what another reader of the weight gave."""
    body = [
        _op("matmul_v2_grad", {"X": "x", "Y": "w", "Out@GRAD": "dy"}, {"Y@GRAD": "dw"}),
        FrozenOp(op_def("sum"), (("before", "dw"),), ("total",), op_def("sum").complete({})),
    ]
    square = dict.fromkeys(("w", "dw", "before", "total"), (width, width))
    return _product(body, {"x": (TOKENS, width), "dy": (TOKENS, width), **square}, dtype, "total")


def dropped_linear(width: int, dtype: str) -> Kernel:
    """The first product with dropout behind its activation."""
    body = [
        _op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}),
        _op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"}, axis=1),
        _op("gelu", {"X": "z"}, {"Out": "g"}),
        _op("dropout", {"X": "g"}, {"Out": "y"}, dropout_prob=0.1),
    ]
    large = dict.fromkeys(("p", "z", "g", "y"), (TOKENS, 4 * width))
    return _product(body, {"x": (TOKENS, width), "w": (width, 4 * width), "b": (4 * width,), **large}, dtype, "z", "y")


def residual(width: int, dtype: str) -> Kernel:
    """The second product: bias, dropout, and the residual added."""
    body = [
        _op("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "p"}),
        _op("elementwise_add", {"X": "p", "Y": "b"}, {"Out": "z"}, axis=1),
        _op("dropout", {"X": "z"}, {"Out": "d"}, dropout_prob=0.1),
        _op("elementwise_add", {"X": "d", "Y": "r"}, {"Out": "y"}),
    ]
    large = dict.fromkeys(("p", "z", "d", "r", "y"), (TOKENS, width))
    return _product(body, {"x": (TOKENS, 4 * width), "w": (4 * width, width), "b": (width,), **large}, dtype, "y")


def _product(body: Sequence[FrozenOp], shapes: Mapping[str, Shape], dtype: str, *needed: str) -> Kernel:
    return gemm_kernel(body, {name: Meta(shape, dtype_of(dtype)) for name, shape in shapes.items()}, needed)


WIDTHS = (768, 1024, 4096)
PRODUCTS: Mapping[str, tuple[Callable[[int, str], Kernel], tuple[int, ...]]] = {
    "linear": (linear, WIDTHS),
    "linear_gradient": (linear_gradient, WIDTHS),
    "weight_gradient": (weight_gradient, WIDTHS),
    "dropped_linear": (dropped_linear, (1024,)),
    "residual": (residual, (1024,)),
}
"""Label -> product and widths."""
ALL_WAYS = 1024
"""The width of which every way is compiled."""


def products(slow: bool) -> Iterator[tuple[str, Kind, Source]]:
    """How each product is planned on each chip, and in one width every other way; without the slow ones, the smallest."""
    for label, (make, widths) in PRODUCTS.items():
        for width in widths if slow else widths[:1]:
            for dtype in ("bfloat16", "float16") if slow else ("bfloat16",):
                kernel = make(width, dtype)
                for chip, target in TARGETS.items():
                    planned, *others = kernel.candidates(target)
                    row = f"gemm/{label}-{width}-{dtype}@sm_{chip}"
                    yield from ((f"{row}.{f}", kind_of(s), s) for f, s in sources(kernel, planned))
                    # Ways differ by their tiles, not by the sizes of the product.
                    for way in others if slow and width == ALL_WAYS else ():
                        yield from ((f"{row}~{way.name}.{f}", kind_of(s), s) for f, s in sources(kernel, way))


def launched(kernel: Kernel) -> Iterator[tuple[str, str, Source]]:
    """Yields the launches of a kernel as (chip, function, source); the chip is named where each has launches of its own."""
    if "tl.dot(" not in kernel.code:
        yield from (("", function, source) for function, source in sources(kernel))
        return
    for chip, target in TARGETS.items():
        yield from ((f"@sm_{chip}", f, source) for f, source in sources(kernel, kernel.plan(target)))


def template_of(kernel: Kernel, function: str) -> str:
    """What made a launch's function: of a kernel of several, one of them."""
    part = re.match(r"part(\d+)_", function) if kernel.parts else None
    return kernel.template if part is None else kernel.parts[int(part[1])].template


def kind_of(source: Source, template: str = "") -> Kind:
    """The kind of a kernel that is no stream."""
    if template.startswith("attention"):
        return launch_kind(source)
    return "gemm" if "tl.dot(" in source.text else "reduction"


def is_alternative(name: str) -> bool:
    """Whether a kernel belongs to a way that is not the planned one: it may be refused, and then is listed."""
    return "~" in name


def chips(name: str, *, pinned: bool = True) -> tuple[int, ...]:
    """Chips that a kernel is compiled for, by the pinned version of triton or by the older one."""
    found = re.search(r"@sm_(\d+)", name)
    if found is None:
        return tuple(TARGETS)
    return (int(found[1]),) if pinned or found[1] == "90" else ()


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
        for chip, function, source in launched(kernel):
            # A number alone (the factor of clipped gradients) is no stream.
            streams = function == "kernel" and kernel.template in STREAMING and kernel.outputs[0].count > 1
            yield (
                f"{label}/{number}{chip}.{function}",
                "pointwise" if streams else kind_of(source, template_of(kernel, function)),
                source,
            )


def models() -> Iterator[tuple[str, tuple[Kernel, ...]]]:
    """The distinct kernels of the benches' training steps, every fusion on, by the model's name."""
    for name, model in script("models").MODELS.items():
        main = static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
            loss = model.build(paddle)
        strategy = static.BuildStrategy()
        for fusion in FUSIONS:
            setattr(strategy, fusion.switch, True)
        with model.flags(paddle):
            found = static.CompiledProgram(main, strategy).explain(fetch_list=[loss], feed_shapes=model.feeds)
        yield name, tuple({kernel.name: kernel for kernel in found.kernels}.values())


LARGE = (8192, 1024)


def draws(shape: Shape = LARGE) -> Iterator[tuple[str, tuple[Kernel, ...]]]:
    """The kernels of operators that draw, each by itself: whatever definition says how it is drawn, in the forms that it states."""
    for kind in sorted(OPS):
        definition = OPS[kind]
        if not draws_in_kernels(definition):
            continue
        domain = definition.domain
        assert domain is not None
        kept = definition.attrs.get("dtype")
        whole = kept is not None and kept.default.is_integer
        for dtype in ("int32", "int64") if whole else ("float32", "bfloat16", "float64"):
            found: dict[str, Kernel] = {}
            for attrs in (*domain.attrs, *(case.attrs for case in domain.cases)):
                # Not every type can hold every range.
                with contextlib.suppress(ProgramError):
                    # Ranges that make one kernel, once.
                    found.update((k.name, k) for k in drawn_alone(kind, attrs, dtype, shape))
            # Types differ in how numbers are drawn and stored; what else is computed, in one of them.
            yield f"{kind}-{dtype}", tuple(found.values())[: None if dtype in ("float32", "int64") else 1]


def drawn_alone(kind: str, attrs: Mapping[str, Any], dtype: str, shape: Shape) -> tuple[Kernel, ...]:
    """The kernels of one operator, of arrays of a shape."""
    definition = op_def(kind)
    main, more = static.Program(), dict(attrs)
    if "shape" in definition.attrs:
        more["shape"] = (-1, *shape[1:]) if definition.inputs else shape
        more["dtype"] = dtype
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        given = {s.name: static.data(s.name, list(shape), dtype) for s in definition.inputs if not s.optional}
        made = emit(kind, given, {n: v for n, v in more.items() if n not in ("input_dim_idx", "output_dim_idx")})
    fetched = [v.name for v in (made if isinstance(made, list | tuple) else [made]) if v is not None]
    known = {n: Meta(shape, dtype_of(dtype)) for n in given}
    planned = compile_program(main, static.BuildStrategy(), [known], fetched, Scope()).first
    return tuple(engine.kernels_of(kernel_per_draw(planned.after, planned.metas), planned.metas).values())


def slow(name: str) -> bool:
    """Whether a kernel is left out of most runs."""
    if name.startswith("attention"):
        return is_alternative(name) or "/causal-64-bfloat16@sm_90" not in name
    if name.startswith("gemm/"):
        # For the chips of other generations one kernel is enough.
        quick = "-768-bfloat16@" in name and ("@sm_90" in name or name.startswith("gemm/linear-"))
        return is_alternative(name) or not quick
    return name.startswith("models/") or any(
        name.startswith(f"{entry.label}-") for entry in (*norms(), *convolutions()) if entry.slow
    )


_slow = slow


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
    for name, found in draws():
        yield from _named(f"draws/{name}", found)
    yield from (row for row in (*products(slow), *attentions(slow)) if slow or not _slow(row[0]))
    for name, found in models() if slow else ():
        yield from _named(f"models/{name}", found)
