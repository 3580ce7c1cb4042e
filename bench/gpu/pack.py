"""Kernels and what they should compute, as one file that needs neither tstatic nor its libraries to be read.

``python bench/gpu/pack.py FILE`` writes it, on any machine that has tstatic; a machine with a GPU only needs the file.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import packfile
import report
from plan_count import FUSIONS, built, fused_kernels, moved, paddle, rewritten, static, strategy
from plan_floors import build_program

from tstatic.flags import flag
from tstatic.fusion.codegen.channels.batch_norm import RECOMPUTES
from tstatic.fusion.codegen.kernel import RNG, STOPPED, Kernel, Launches, LibraryProduct
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.products import multiplies, products_of
from tstatic.ir.evaluate import allocate, call_ref, infer_outputs, metas_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.rng import RngKey, kernel_numbers
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.norm.batch_norm import RECOMPUTED
from tstatic.target import DEFAULT_TARGET

DEFAULT = Path(__file__).resolve().parents[1] / "out" / "gpu-pack.npz"
KINDS = {
    "Variance": "positive", "SavedVariance": "positive", "Moment2": "positive", "Beta1Pow": "power", "Beta2Pow": "power",
    "LearningRate": "rate", "MomentumTensor": "power", "Label": "index",
}  # fmt: skip
"""Slot -> which numbers it can hold; others are normal."""

CAUSAL = 0.5
"""The part of the products that is left where a mask is known when the kernel is made, which then does not read it."""
SEED, RUN = 7 + (5 << 32), 3
"""Of the random numbers that kernels draw."""

Json = dict[str, Any]
Earlier = tuple[FrozenOp, Json]
"""An op and the variant of its kernel."""
Given = Sequence[tuple[Sequence[int], str]]


# --------------------------------------------------------------------------------------------------------- the programs
def _act(name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = getattr(paddle.nn.functional, name)
    return found


def _chain(x: Any, b: Any) -> Any:
    wide = paddle.cast(_act("gelu")(x + b), "float32")
    return paddle.cast(paddle.tanh(wide * 0.5) - paddle.exp(-paddle.square(wide)), x.dtype) * x


def _norm(layout: str) -> Callable[..., Any]:
    def compute(x: Any, z: Any = None) -> Any:
        y = static.nn.batch_norm(x, data_layout=layout)
        return _act("relu")(y if z is None else y + z)

    return compute


def _residual_norm(x: Any, z: Any) -> Any:
    h = x + z
    return h, static.nn.layer_norm(h, begin_norm_axis=1)


def _cross_entropy(x: Any, label: Any) -> Any:
    return _act("softmax_with_cross_entropy")(x, label)


def _masked(x: Any, mask: Any) -> Any:
    return _act("softmax")(x * 0.125 + mask)


def _attention(
    shape: Sequence[int], dtype: str, causal: bool = False, masked: bool = False, drop: float = 0.0, tf32: bool = False
) -> Any:
    """A program with an attention and its gradients, whose mask the program makes or is fed."""

    def build(_: Any) -> tuple[list[str], list[str]]:
        paddle.set_flags({"FLAGS_allow_tf32": tf32})
        qkv = [static.data(name, list(shape), dtype) for name in "qkv"]
        for one in qkv:
            one.stop_gradient = False
        q, k, v = qkv
        fed = [static.data("mask", [shape[-2]] * 2, dtype)] if masked else []
        scores = paddle.scale(paddle.matmul(q, k, transpose_y=True), shape[-1] ** -0.5)
        if causal:
            scores = scores + paddle.triu(paddle.full([shape[-2]] * 2, float("-inf"), dtype), 1)
        for mask in fed:
            scores = scores + mask
        weights = _act("softmax")(scores)
        out = paddle.matmul(paddle.nn.functional.dropout(weights, drop) if drop else weights, v)
        fed.append(static.data("start", list(shape), dtype))
        made = [g.name for g in static.gradients([out], qkv, fed[-1:])]
        return [x.name for x in (*qkv, *fed)], [out.name, *made]

    return build


def _layers(x: Any, w: Any, b: Any, w2: Any, b2: Any) -> Any:
    hidden = _act("gelu")(paddle.matmul(x, w) + b)
    return paddle.matmul(hidden, w2) + b2


def _depthwise(x: Any) -> Any:
    channels = x.shape[1]
    return static.nn.conv2d(_act("relu")(x), channels, 3, padding=1, groups=channels, bias_attr=False)


def _training(make: Callable[[], Any], shapes: Sequence[Sequence[int]]) -> Any:
    """A program that updates parameters of these shapes; their gradients do not depend on each other."""

    def build(_: Any) -> tuple[list[str], list[str]]:
        total: Any = None
        feeds = []
        for i, shape in enumerate(shapes):
            w = paddle.static.create_parameter(list(shape), "float32", name=f"w{i}")
            x = static.data(f"x{i}", list(shape), "float32")
            feeds.append(x.name)
            part = paddle.mean(w * x)
            total = part if total is None else total + part
        make().minimize(total)
        return feeds, [total.name]

    return build


def _tensors(large: bool) -> list[tuple[int, ...]]:
    """Shapes of the parameters of GPT-2 124M, or a few odd ones."""
    if not large:
        return [(7, 5), (1,), (2, 17, 31), (1024,), (3, 513)]
    block = [(768,)] * 4 + [(768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), (768,)]
    return [(50304, 768), (1024, 768), *(block * 12), (768,), (768,)]


def _clip() -> Any:
    return paddle.nn.ClipGradByGlobalNorm(1.0)


def programs() -> Iterator[tuple[str, str, Any, Any]]:
    """(label, switch, what builds the small program, what builds the one to be timed); the surest first."""
    half, e = "bfloat16", "elewise"
    small, big = (33, 515), (8192, 4096)
    switch = "fuse_elewise_add_act_ops"
    for label, compute, dtype, other in (
        (f"{e}/relu-full", lambda x, y: _act("relu")(x + y), half, None),
        (f"{e}/relu-full-fp32", lambda x, y: _act("relu")(x + y), "float32", None),
        (f"{e}/gelu-bias", lambda x, y: _act("gelu")(x + y), half, "row"),
    ):
        first, second = (
            build_program(compute, ((shape, dtype), (shape if other is None else shape[1:], dtype)), True)
            for shape in (small, big)
        )
        yield label, switch, first, second
    yield (
        "auto/chain", "enable_auto_fusion",
        build_program(_chain, ((small, half), (small, half)), False), build_program(_chain, ((big, half), (big, half)), False),
    )  # fmt: skip
    for layout, odd, large in (
        ("NHWC", (5, 7, 9, 20), (256, 56, 56, 64)),
        ("NCHW", (5, 20, 7, 9), (256, 64, 56, 56)),
    ):
        for label, switch, count in (("bn_act", "fuse_bn_act_ops", 1), ("bn_add_act", "fuse_bn_add_act_ops", 2)):
            first, second = (build_program(_norm(layout), ((s, half),) * count, True) for s in (odd, large))
            yield f"{label}/{layout}", switch, first, second
    for label, width, odd, many in (("residual-LN", 768, 33, 32768), ("residual-LN-4096", 4096, 5, 8192)):
        rows = [build_program(_residual_norm, (((n, width), half),) * 2, True) for n in (odd, many)]
        yield f"compiler/{label}", "build_cinn_pass", rows[0], rows[1]
    rows = [
        build_program(_cross_entropy, (((n, words), half), ((n, 1), "int64")), True, last=True)
        for n, words in ((3, 17001), (8192, 50304))
    ]
    yield "compiler/cross-entropy", "build_cinn_pass", rows[0], rows[1]
    rows = [build_program(_masked, (((n, m), half), ((m,), half)), True) for n, m in ((17, 771), (32768, 4096))]
    yield "compiler/softmax", "build_cinn_pass", rows[0], rows[1]
    pair = [build_program(_depthwise, ((s, half),), True) for s in ((2, 6, 13, 15), (128, 144, 56, 56))]
    yield "relu_dwconv/k3", "fuse_relu_depthwise_conv", pair[0], pair[1]
    for label, sizes, train in (
        ("gemm/train-768", (8192, 768, 3072), True),
        ("gemm/infer-768", (8192, 768, 3072), False),
        ("gemm-4096/train-4096", (4096, 4096, 4096), True),
        ("gemm-infer-4096/infer-4096", (4096, 4096, 4096), False),
    ):
        pair = [
            build_program(_layers, (((m, k), half), ((k, n), half), ((n,), half), ((n, k), half), ((k,), half)), train)
            for m, k, n in ((40, 24, 72), sizes)
        ]
        yield label, "fuse_gemm_epilogue", pair[0], pair[1]
    for label, head, dtype, kind in (
        ("attention/causal-64", 64, half, {"causal": True}),
        ("attention/causal-128", 128, half, {"causal": True}),
        ("attention-more/mask-64", 64, half, {"masked": True}),
        ("attention-more/dropout-64", 64, half, {"causal": True, "drop": 0.1}),
        ("attention-tf32/causal-64", 64, "float32", {"causal": True, "tf32": True}),
        ("attention-fp32/causal-64", 64, "float32", {"causal": True}),
    ):
        sizes = (1, 1, 136, head), (8, 16, 2048, head) if dtype == half else (4, 16, 1024, head)
        pair = [_attention(shape, dtype, **kind) for shape in sizes]
        yield label, "fuse_dot_product_attention", pair[0], pair[1]
    opt = paddle.optimizer
    for label, switch, make in (
        ("adamw/clip", "fuse_adamw", lambda: opt.AdamW(0.01, grad_clip=_clip())),
        ("all_optimizer/adam", "fuse_all_optimizer_ops", lambda: opt.Adam(0.01)),
        ("all_optimizer/momentum", "fuse_all_optimizer_ops", lambda: opt.Momentum(0.01, 0.9)),
        ("all_optimizer/sgd", "fuse_all_optimizer_ops", lambda: opt.SGD(0.01)),
    ):
        yield label, switch, _training(make, _tensors(False)), _training(make, _tensors(True))


# ------------------------------------------------------------------------------------------------------------- variants
def _slots(body: Sequence[FrozenOp]) -> dict[str, str]:
    """Value -> the first slot that reads it, of values that no op of the body makes."""
    made = {v for op in body for v in op.writes()}
    found: dict[str, str] = {}
    for op in body:
        for slot, entry in zip(op.definition.inputs, op.inputs, strict=True):
            for value in (entry,) if isinstance(entry, str) else entry or ():
                if value not in made:
                    found.setdefault(value, slot.name)
    return found


def told(body: Sequence[FrozenOp], read: Collection[str]) -> list[FrozenOp]:
    """The body, and before it the ops that its kernel computes again instead of reading what they made."""
    found = list(body)
    for op in body:
        if op.attrs.get(RECOMPUTES) and op.input("Out") not in read:
            norm, result = body[-1], str(op.input("Out"))
            inner = f"{result}@INNER"
            again = FrozenOp(RECOMPUTED, tuple(norm.input(s.name) for s in RECOMPUTED.inputs), (inner,), norm.attrs)
            found[:0] = [again, FrozenOp(op_def(op.definition.of), (inner,), (result,), op.attrs)]
    return found


def _normalised(x: Any, scale: Any, bias: Any, mean: Any, inverse: Any, attrs: Mapping[str, Any]) -> Any:
    """A batch norm's result from its statistics, rounded as it is stored."""
    shape = (-1,) if attrs["data_layout"] == "NHWC" else (-1, *[1] * (x.ndim - 2))
    mean, inverse = mean.reshape(shape), inverse.reshape(shape)
    scale, bias = (None if a is None else a.reshape(shape) for a in (scale, bias))
    y = (x.astype(mean.dtype) - mean) * (inverse if scale is None else inverse * scale)
    return (y if bias is None else y + bias).astype(x.dtype)


def _below(body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> dict[str, int]:
    """What indices lie below: the classes that a label counts."""
    found = {}
    for op in body:
        if any(slot.name == "Label" for slot in op.definition.inputs):
            wide = [v for v in (*op.reads(), *op.writes()) if v != op.input("Label")]
            found[str(op.input("Label"))] = max(metas[v].shape[-1] for v in wide)
    return found


def draw(rng: np.random.Generator, kind: str, shape: Sequence[int], name: str, below: int = 2) -> np.ndarray[Any, Any]:
    """Random numbers of a kind, as an array of a type; indices lie below a number."""
    if kind == "index":
        values: Any = rng.integers(0, below, shape)
    elif kind == "positive":
        values = rng.uniform(0.5, 2.0, shape)
    elif kind == "power":
        values = rng.uniform(0.5, 0.9, shape)
    elif kind == "rate":
        values = np.full(shape, 0.01)
    elif not dtype_of(name).is_float:
        values = np.ones(shape)
    else:
        values = rng.standard_normal(shape)
    return np.asarray(values).astype(dtype_of(name).np)


def _as_tf32(values: Any) -> Any:
    """Numbers of 32 bits, rounded to the 10 bits of TF32; others as they are."""
    if values is None or values.dtype != np.float32:
        return values
    return ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def values_of(body: Sequence[FrozenOp], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """All values of some ops by their references."""
    known = dict(arrays)
    with np.errstate(all="ignore"):
        for op in body:
            ins = [known[e] if isinstance(e, str) else [known[v] for v in e] if e else None for e in op.inputs]
            if op.definition is RECOMPUTED:
                known[op.output("Y")] = _normalised(*ins, op.attrs)
                continue
            if multiplies(op) and flag("FLAGS_allow_tf32"):
                ins = [_as_tf32(a) for a in ins]
            metas = infer_outputs(op.definition, metas_of(ins), op.attrs)
            outs = allocate([m if e is not None else None for m, e in zip(metas, op.outputs, strict=True)])
            call_ref(op.definition, ins, outs, op.attrs, rng=RngKey(SEED, position=op.position, run=RUN))
            known.update((e, o) for e, o in zip(op.outputs, outs, strict=True) if isinstance(e, str))
    return known


def distance(got: Any, exact: Any) -> float:
    """``|got - exact| / |exact|``, by the root of the sum of squares; absolute where the exact values are all zero."""
    wide, true = np.asarray(got).astype(np.float64), np.asarray(exact).astype(np.float64)
    return float(np.linalg.norm(wide - true) / (np.linalg.norm(true) or 1.0))


class Writer:
    """Collects variants and the arrays that they name."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.constants: dict[str, Any] = {}
        """What the checked program computes from nothing, such as a causal mask: kernels do not read it."""

    def array(self, values: np.ndarray[Any, Any]) -> int:
        """Keeps an array; types that plain numpy lacks are kept as their bits."""
        plain = values.view(np.uint16) if values.dtype.name == "bfloat16" else values
        self.arrays.append(np.ascontiguousarray(plain))
        return len(self.arrays) - 1

    def table(self, numbers: np.ndarray[Any, Any]) -> Json:
        """Keeps an array that a kernel reads besides values."""
        return {"array": self.array(numbers), "dtype": numbers.dtype.name}

    def variant(
        self, op: FrozenOp, kernel: Kernel, metas: Mapping[str, Meta], exact: bool, before: Earlier | None = None
    ) -> Json:
        """A kernel's launches and buffers; with ``exact`` its inputs, and what it should make of them in 64 bits.

        A kernel that reads what its ops do not read themselves goes on from what the one ``before`` makes of the same inputs.
        """
        calls, *others = kernel.candidates(DEFAULT_TARGET)
        body = told(op.body, {b.value for b in kernel.inputs})
        slots = _slots(body)
        below = _below(op.body, metas)
        outputs = [b.value for b in kernel.outputs]
        named = {a for one in calls.launches for a in one.arguments if isinstance(a, str)}
        named |= {v for table in calls.tables.values() for v in table.values}
        results = [v for v in dict.fromkeys(x for one in op.body for x in one.writes()) if v in {*outputs, *named}]
        lacking = [b.value for b in kernel.inputs if b.value in named and b.value not in slots]
        made: set[str] = set()
        if lacking:
            assert before is not None, f"no kernel before this one made {lacking}"
            made = {v for one in before[0].body for v in one.writes()} & named
            results = [v for v in results if v not in made]
        content: Json = {
            "kernel": kernel.name,
            "text": kernel.code,
            "bytes": moved(kernel),
            "flops": _operations(op.body, metas) * (1.0 if named.issuperset(slots) else CAUSAL),
            "way": calls.name,
            "launches": _launches(calls, ""),
            "partials": {n: [count, dtype.name] for n, (count, dtype) in calls.partials.items()},
            "tables": {
                n: {"values": list(t.values), "dtype": "int64"} if t.numbers is None else self.table(t.numbers)
                for n, t in calls.tables.items()
            }
            | ({STOPPED: self.table(np.zeros(1, np.bool_))} if calls.asks else {})
            | ({RNG: self.table(kernel_numbers(SEED, RUN, 0))} if RNG in named else {}),
            "inputs": {
                v: {"shape": list(metas[v].shape), "dtype": metas[v].dtype.name,
                    "kind": packfile.MADE if v in made else KINDS.get(slots[v], "normal"),
                    **({"below": below[v]} if v in below else {})}
                for v in (*slots, *lacking)
                if v in named
            },
            "outputs": {v: {"shape": list(metas[v].shape), "dtype": metas[v].dtype.name} for v in results},
        }  # fmt: skip
        if before and made:
            content["before"] = {k: v for k, v in before[1].items() if k != "ways"}
        if exact:
            self._exact(content, body, metas, slots, below, before[0].body if before and made else ())
            return content
        # Buffers of other ways have names of their own: all ways of a row share its tensors.
        content["ways"] = {way.name: _launches(way, f"{way.name}: ") for way in others}
        for way in others:
            named = {f"{way.name}: {n}": [count, dtype.name] for n, (count, dtype) in way.partials.items()}
            content["partials"] |= named
        return content

    def _exact(
        self,
        content: Json,
        body: Sequence[FrozenOp],
        metas: Mapping[str, Meta],
        slots: Mapping[str, str],
        below: Mapping[str, int],
        before: Sequence[FrozenOp],
    ) -> None:
        rng = np.random.default_rng(5)
        made = {v for op in before for v in op.writes()}
        given = {
            v: draw(rng, KINDS.get(slot, "normal"), metas[v].shape, metas[v].dtype.name, below.get(v, 2))
            if v not in self.constants
            else self.constants[v]
            for v, slot in slots.items()
            if v not in made
        }
        ran = values_of(before, given)
        given |= {v: ran[v] for v in content["inputs"] if v in made}
        rounded = values_of(body, given)
        wide = {v: a.astype(np.float64) if dtype_of(metas[v].dtype).is_float else a for v, a in given.items()}
        true = values_of(_wide(body), wide)
        for v, entry in content["inputs"].items():
            entry["array"] = self.array(given[v])
        for v, entry in content["outputs"].items():
            entry["array"] = self.array(np.asarray(true[v], np.float64))
            unit = float(np.finfo(np.float32).eps) if entry["dtype"] == "float32" else 0.0
            entry["bound"] = packfile.MARGIN * distance(rounded[v], true[v]) + 4 * unit

    def write(self, path: Path, cases: Sequence[Json], skipped: Mapping[str, str]) -> None:
        """Writes the file, with the commit that its kernels are of."""
        head = {"commit": report.commit(), "cases": list(cases), "skipped": dict(skipped)}
        packfile.write(path, head, {f"a{i}": a for i, a in enumerate(self.arrays)})


def _launches(calls: Launches, prefix: str) -> list[Json]:
    """The launches of one way to make a kernel's results; what only they share is called after it."""
    found: list[Json] = []
    for c in calls.launches:
        arguments = [f"{prefix}{a}" if a in calls.partials else a for a in c.arguments]
        if isinstance(c, LibraryProduct):
            found.append(
                {"product": [[at.shape, at.strides, at.offset] for _, at in c.matrices],
                 "turned": [c.trans_a, c.trans_b], "addend": list(c.addend_shape), "arguments": arguments}
            )  # fmt: skip
        else:
            found.append(
                {"function": c.function, "grid": list(c.grid), "arguments": arguments,
                 "constants": dict(c.constants), "options": dict(c.options)}
            )  # fmt: skip
    return found


def _operations(body: Sequence[FrozenOp], metas: Mapping[str, Meta]) -> int:
    """Products and sums of the matrix products among some ops; of a batch of matrices, what the ops themselves state."""
    total = 0
    for op in body:
        if not multiplies(op):
            continue
        try:
            total += sum(2 * p.rows * p.columns * p.depth for p in products_of(op, metas))
        except CodegenUnsupported:
            cost = op.definition.cost
            entries = [None if e is None else metas[str(e)] for e in (*op.inputs, *op.outputs)]
            assert cost is not None
            total += int(cost(*entries, **op.definition.pick(cost, op.attrs)).flops)
    return total


def _wide(body: Sequence[FrozenOp]) -> list[FrozenOp]:
    """The ops with casts to floats taken as casts to 64 bits, so that nothing is rounded on the way."""
    found = []
    for op in body:
        wide = op.type == "cast" and dtype_of(op.attrs["out_dtype"]).is_float
        attrs = {**op.attrs, "out_dtype": dtype_of("float64")} if wide else op.attrs
        found.append(FrozenOp(op.definition, op.inputs, op.outputs, attrs) if wide else op)
    return found


def make(
    writer: Writer, wanted: str = "", tiny: bool = False, say: Callable[[str], None] = lambda text: None
) -> tuple[list[Json], dict[str, str]]:
    """All cases, and what could not be made and why.

    Args:
        writer: Takes the arrays.
        wanted: Only labels that contain one of these words, with commas between them.
        tiny: What is to be timed is as small as what is checked, for devices that only pretend.
        say: Is told what is being made.
    """
    cases: list[Json] = []
    skipped: dict[str, str] = {}
    for label, switch, small, large in programs():
        if not any(word in label for word in wanted.split(",")):
            continue
        say(label)
        flags = paddle.get_flags("FLAGS_allow_tf32")
        try:
            if not any(f.switch == switch for f in FUSIONS):
                raise LookupError(f"no fusion listens to {switch}")
            first = _kernels(small, switch, writer.constants)
            second = first if tiny else _kernels(large, switch)
            if not first or [op.type for op, _, _ in first] != [op.type for op, _, _ in second]:
                raise LookupError(f"kernels of the two sizes differ: {len(first)} and {len(second)}")
            earlier: tuple[Earlier, Earlier] | tuple[None, None] = (None, None)
            for number, ((op, kernel, metas), (other, large_kernel, large_metas)) in enumerate(
                zip(first, second, strict=True)
            ):
                check = writer.variant(op, kernel, metas, exact=True, before=earlier[0])
                timed = writer.variant(other, large_kernel, large_metas, exact=False, before=earlier[1])
                earlier = (op, check), (other, timed)
                name = f"{label}/{number}.{op.type}"
                cases.append(
                    {"name": name, "fusion": op.fusion, "template": kernel.template, "check": check, "time": timed}
                )
        except Exception as error:
            skipped[label] = f"{type(error).__name__}: {error}"
        finally:
            paddle.set_flags(flags)
    return cases, skipped


def _kernels(
    build: Any, switch: str, constants: dict[str, Any] | None = None
) -> list[tuple[FrozenOp, Kernel, Mapping[str, Meta]]]:
    """The fused ops of a program with their kernels; ``constants`` gets what the program computes from nothing."""
    main, (feeds, fetches) = built(build)
    block = main.global_block()
    shapes = {f: [int(s) for s in block.var(f).shape] for f in feeds}
    if constants is not None:
        constants.clear()
        for op in rewritten(main, strategy(switch), shapes, fetches)[0]:
            if all(v in constants for v in op.reads()):
                constants |= values_of([op], constants)
    return fused_kernels(main, strategy(switch), shapes, fetches)


def elements(entry: Mapping[str, Any]) -> int:
    """How many numbers a buffer holds."""
    return math.prod(entry["shape"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the file; 1 where a case could not be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--only", default="", help="cases whose label contains one of these words (a,b)")
    parser.add_argument("--tiny", action="store_true", help="nothing large, for a device that only pretends")
    args = parser.parse_args(arguments)
    paddle.enable_static()
    writer = Writer()
    cases, skipped = make(writer, args.only, args.tiny, print)
    writer.write(args.file, cases, skipped)
    if documents := os.environ.get("TSTATIC_SEEDS"):
        # Their samples run on the GPU, too.
        shutil.copytree(documents, args.file.parent / "seeds", dirs_exist_ok=True)
    size = args.file.stat().st_size
    print(f"{len(cases)} kernels of commit {report.commit()} in {args.file}, {size / 2**20:.1f} MiB")
    for label, why in skipped.items():
        print(f"not made: {label}: {why}")
    if size > packfile.MOST_BYTES:
        print(f"the pack is too large: {packfile.MOST_BYTES / 2**20:.0f} MiB at most")
    carried = packfile.folder_bytes(args.file.parent)
    if carried > packfile.MOST_FOLDER_BYTES:
        print(
            f"the folder {args.file.parent} is too large to be carried: {carried / 2**20:.1f} MiB,"
            f" {packfile.MOST_FOLDER_BYTES / 2**20:.0f} MiB at most"
        )
    return int(bool(skipped) or size > packfile.MOST_BYTES or carried > packfile.MOST_FOLDER_BYTES)


if __name__ == "__main__":
    sys.exit(main())
