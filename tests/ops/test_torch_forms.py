"""What torch runs: on tensors without values every form stays on their device, keeps 16 bits, and writes where it is told.

Meta tensors have shapes and no values, so a form that reads one on the host fails; a dispatch mode sees each call that torch makes.
An op that needs the host says so itself (``OpDef.host``).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench.scripts import script
from tests.ops import sampler
from tests.ops.held import Held, memories, no_collection
from tests.ops.oracles import flat
from tests.ops.sampler import Sample, map_arrays, op_types, reserved, root, samples, to_torch
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.expr import FUNCTIONS
from tstatic.ir.opdef import OPS, OpDef, op_def
from tstatic.ir.traits import HostOnly, ManyCalls
from tstatic.ir.types import dtype_of

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

MOST_CALLS = 3
"""Of an op that the models of the bench leave unfused."""
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "convolution_backward")
DRAWN = 8

STATIC = [t for t in op_types() if not op_def(t).dynamic]
ON_DEVICE = [t for t in STATIC if op_def(t).torch_run != "host"]


class Watch(TorchDispatchMode):
    """Notes the calls that torch dispatches and the storages of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Any]]] = []
        self.made: list[tuple[str, int, int]] = []
        self._kept: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("the host reads a value")
        # The caller switched it off: a form states its gradient in calls of torch.
        assert not torch.is_grad_enabled(), "the form goes through torch's automatic differentiation"
        result = function(*args, **(kwargs or {}))
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        # A result that nobody reads may be a tensor without memory, and kept tensors keep their addresses.
        made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self._kept += made
        self.calls.append((function, given))
        self.made += [
            (function.name(), t.untyped_storage().data_ptr(), t.untyped_storage().nbytes())
            for t in made
            if t.device.type == "cpu"
        ]
        return result

    def work(self) -> list[str]:
        """Names of the calls that do work: none of views, nor of memory without values."""
        return [f.name() for f, _ in self.calls if not _is_view(f) and not f.name().startswith(_NO_WORK)]


_NO_WORK = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::detach", "aten::resize_", "aten::lift_fresh")


def _is_view(function: Any) -> bool:
    named = function._schema
    shared = [a.alias_info for a in named.arguments if a.alias_info is not None]
    return bool(shared) and not any(one.is_write for one in shared) and any(r.alias_info for r in named.returns)


def tensors(sample: Sample, place: str) -> list[Any]:
    return [map_arrays(lambda a: to_torch(torch, a).to(place), v) for v in sample.ins]


def outputs(definition: OpDef, sample: Sample, place: str) -> list[Any]:
    """New tensors for the results."""
    metas = infer_outputs(definition, metas_of(sample.ins), definition.complete(sample.attrs))
    return [
        map_arrays(lambda m: torch.empty(m.shape, dtype=getattr(torch, m.dtype.name), device=place), meta)
        for meta in metas
    ]


def call(definition: OpDef, sample: Sample, ins: Sequence[Any], place: str, outs: Sequence[Any] | None = None) -> Any:
    """Calls a torch form as a device does."""
    assert definition.lower is not None
    named = inspect.signature(definition.lower).parameters
    extra = {n: v for n, v in reserved(definition).items() if n in named}
    if "device" in named:
        extra["device"] = place
    if outs is not None:
        extra["out"] = outs[0] if len(definition.outputs) == 1 else tuple(outs)
    attrs = definition.pick(definition.lower, definition.complete(sample.attrs))
    return definition.lower(torch, *ins, **attrs, **extra)


def size(sample: Sample) -> int:
    return sum(a.size for v in sample.ins for a in flat(v))


def drawn(definition: OpDef, dtypes: Sequence[str] | None = None) -> Sample:
    """The first sample that has elements."""
    found = list(samples(definition, DRAWN, dtypes, layouts=("contiguous",), limit=DRAWN))
    if _host_slot(definition):
        # What it then reads, another test sees.
        found = [s for s in found if s.ins[_position(definition)] is None]
    return next((s for s in found if size(s)), found[0])


def _host_slot(definition: OpDef) -> str:
    stated = definition.trait(HostOnly)
    return "" if stated is None else stated.slot


def _position(definition: OpDef) -> int:
    return [s.name for s in definition.inputs].index(_host_slot(definition))


def low(definition: OpDef) -> Sample | None:
    """A sample of 16 bits; ``None`` for an op that takes none."""
    domain = root(definition).domain
    assert domain is not None
    kinds = [d for d in domain.floats if d in ("float16", "bfloat16")]
    if not kinds:
        return None
    sample = drawn(definition, kinds[:1])
    wide = (*definition.float32_inputs, *(op_def(definition.of).float32_inputs if definition.of else ()))
    ins = [
        map_arrays(lambda a: a.astype(np.float32), v) if s.name in wide else v
        for s, v in zip(definition.inputs, sample.ins, strict=True)
    ]
    return replace(sample, ins=tuple(ins))


def of_each(definition: OpDef) -> Iterator[Sample]:
    yield drawn(definition)
    narrow = low(definition)
    if narrow is not None:
        yield narrow


def run_on_meta(definition: OpDef, sample: Sample) -> Watch:
    """Runs a form on tensors without values; every result must be one, too."""
    ins = tensors(sample, "meta")
    outs = outputs(definition, sample, "meta") if definition.torch_run == "out" else None
    with torch.no_grad(), Watch() as watch:
        results = call(definition, sample, ins, "meta", outs)
    for tensor in tree_leaves(results):
        assert tensor is None or tensor.device.type == "meta", f"a result on {tensor.device}: {sample}"
    return watch


MOST = 3.0
"""Times the bytes of its inputs and results that a form holds beside them: 16 bits are widened to 32, and computed with."""
SLACK = 512
"""Bytes of numbers and of what has one element per row: samples are small."""

MORE = dict.fromkeys(
    ("bilinear_interp_v2_grad", "bicubic_interp_v2_grad", "trilinear_interp_v2", "trilinear_interp_v2_grad"),
    "neighbours along each axis are gathered in 32 bits, axis by axis",
)
"""Ops whose forms hold more, and why. The list may only become shorter."""


def held(definition: OpDef, sample: Sample) -> float:
    """What a form holds at most beside its inputs and results, as a multiple of their bytes; nothing outlives the call."""
    ins = tensors(sample, "meta")
    outs = outputs(definition, sample, "meta") if definition.torch_run == "out" else None
    with torch.no_grad(), no_collection(), Held() as seen:
        results = call(definition, sample, ins, "meta", outs)
        known = memories((ins, outs, results))
        left = seen.bytes(known)
    assert not left, f"{left} bytes outlive the call: {sample}"
    beside = seen.most - seen.bytes() - SLACK
    return beside / max(1, sum(one.nbytes() for one in known.values()))


# ----------------------------------------------------------------------------------------------------------- the checks
@pytest.mark.parametrize("type", ON_DEVICE)
def test_a_form_stays_on_the_device_holds_little_and_multiplies_in_16_bits(type: str) -> None:
    """It goes through no automatic differentiation, either; small samples show what grows with the sizes."""
    definition = op_def(type)
    most = 0.0
    for sample in of_each(definition):
        watch = run_on_meta(definition, sample)
        most = max(most, held(definition, sample))
        floats = [a for v in sample.ins for a in flat(v) if dtype_of(a.dtype).is_float]
        if not floats or any(a.dtype.itemsize > 2 for a in floats):
            continue
        for function, given in watch.calls:
            if function.name().removeprefix("aten::").partition(".")[0] in PRODUCTS:
                assert all(t.dtype != torch.float32 for t in given), f"{function.name()} of float32: {sample}"
    assert (most > MOST) == (type in MORE), (
        f"{most:.2f} times the bytes of its inputs and results: {MORE.get(type, '')}"
    )


def test_what_a_form_holds_is_seen() -> None:
    """A cycle keeps what it refers to, and so does a name, while it is there."""

    def in_a_cycle(torch: Any, x: Any) -> Any:
        memo = [x * 2]

        def value(n: int) -> Any:
            return memo[0] if n else value(n + 1)

        return value(0) + 1

    def at_once(torch: Any, x: Any) -> Any:
        several = [x * n for n in range(5)]
        return sum(several[1:], several[0])

    wide = Sample((np.ones((40, 40), np.float32),), {}, "float32")
    relu = op_def("relu")
    with pytest.raises(AssertionError, match="6400 bytes outlive the call"):
        held(replace(relu, lower=in_a_cycle), wide)
    assert held(relu, wide) <= 0
    assert 2 < held(replace(relu, lower=at_once), wide) < 3


@functools.cache
def left_unfused() -> Mapping[str, str]:
    """Op types that the models and nets of the bench leave unfused -> one of those models."""
    count, models, nets = script("plan_count"), script("models"), script("nets")
    # Each model once. Mixed precision leaves other ops alone: casts, norms of 16-bit gradients; a fed mask leaves the same ones.
    once = [n for n in models.MODELS if n not in ("bert", "gpt-bf16") and not n.endswith("-fed")]
    builds = {n: (models.MODELS[n].build, models.MODELS[n].feeds) for n in once}
    # What stands behind an operator whose size depends on values has no size to be fused by.
    for name, net in ((n, net) for n, net in nets.NETS.items() if net.feeds == 1):
        feed = net.feed(np.random.default_rng(0))
        builds[f"the net {name}"] = net.build, {n: a.shape for n, a in feed.items()}
    found: dict[str, str] = {}
    for name, (build, feeds) in builds.items():
        main, fetched = count.built(build)
        for op in count.rewritten(main, count.strategy(), feeds, [fetched.name])[1]:
            if not op.body:
                found.setdefault(op.type, name)
    return found


MANY_CALLS = {
    "sigmoid_cross_entropy_with_logits",
    "sigmoid_cross_entropy_with_logits_grad",
    "embedding_grad_add",
}
"""Ops that the models and nets leave unfused although their forms are more calls; each definition says why (:class:`ManyCalls`)."""


@pytest.mark.slow
def test_ops_that_stay_unfused_are_few_calls() -> None:
    unfused = left_unfused()
    assert {"matmul_v2", "conv2d_grad", "cast"} <= set(unfused)
    assert {type for type in unfused if op_def(type).has(ManyCalls)} == MANY_CALLS
    # Updates are a dozen calls each, and one generated kernel for all parameters.
    assert not [type for type in unfused if op_def(type).update]
    many = {}
    for type, model in unfused.items():
        definition = op_def(type)
        if definition.torch_run == "host":
            continue
        # What mixed precision runs in float32 gets no 16 bits.
        found = [drawn(definition)] if definition.amp in ("black", "float32") else of_each(definition)
        longest = max((run_on_meta(definition, sample).work() for sample in found), key=len)
        if (len(longest) > MOST_CALLS) != definition.has(ManyCalls):
            many[type, model] = definition.why(ManyCalls) or longest
    assert not many


def has_inner_results(definition: OpDef) -> bool:
    """Whether an op's expressions are more than one call of torch: then the others' results are tensors of that size."""
    if definition.formula is not None:
        return True
    stated = definition.expression
    return stated is not None and any(
        n.args and (any(a.args for a in n.args) or not FUNCTIONS[n.op].direct) for n in stated.nodes.values()
    )


@pytest.mark.parametrize("type", [t for t in ON_DEVICE if op_def(t).torch_run == "out"])
def test_a_form_with_out_writes_there_and_makes_nothing_of_that_size(type: str) -> None:
    definition = op_def(type)
    sample = drawn(definition)
    ins, outs = tensors(sample, "cpu"), outputs(definition, sample, "cpu")
    expected = call(definition, sample, ins, "cpu")
    places = [t.data_ptr() for t in tree_leaves(outs) if t is not None]
    for t in tree_leaves(outs):
        if t is not None:
            t.untyped_storage().fill_(0x5A)
    with torch.no_grad(), Watch() as watch:
        call(definition, sample, ins, "cpu", outs)
    assert places == [t.data_ptr() for t in tree_leaves(outs) if t is not None]
    known = {t.untyped_storage().data_ptr() for t in tree_leaves((ins, outs)) if t is not None}
    largest = max((t.untyped_storage().nbytes() for t in tree_leaves(outs) if t is not None), default=0)
    extra = [(name, n) for name, at, n in watch.made if at not in known and n >= largest > 0]
    assert not extra or has_inner_results(definition), f"results of {largest} bytes, and beside them {extra}: {sample}"
    expected = expected if isinstance(expected, tuple) else (expected,)
    for slot, mine, theirs in zip(definition.outputs, outs, expected, strict=True):
        if theirs is None and slot.intermediate:
            continue
        for a, b in zip(flat(mine), flat(theirs), strict=True):
            assert a.dtype == b.dtype, slot.name
            assert torch.equal(a, b) or torch.allclose(a, b, equal_nan=True), f"{slot.name}: {a} and {b}"


VIEWS = {
    "conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose", "diag_v2_grad", "fold", "im2sequence_grad", "unbind",
    "unfold_grad", "unstack",
}  # fmt: skip
"""Ops whose results may be parts of a larger one (cut off, or one of several) or of an input: they are copied."""

BESIDE = {
    "pool2d": "torch also returns where the maxima are",
    "sigmoid_cross_entropy_with_logits": "torch's call is infinite for infinite scores where Paddle's formula is NaN",
}
"""Ops that models and nets leave unfused and that make more memory of the size of a result, and why."""


@pytest.mark.slow
def test_results_that_torch_allocates_have_memory_of_their_own() -> None:
    """It becomes the value's without a copy; where a model runs the op, nothing else of that size is made."""
    views, beside = set(), set()
    for type in (t for t in ON_DEVICE if op_def(t).torch_run == "alloc"):
        definition = op_def(type)
        sample = drawn(definition)
        ins = tensors(sample, "cpu")
        with torch.no_grad(), Watch() as watch:
            results = [t for t in tree_leaves(call(definition, sample, ins, "cpu")) if t is not None]
        given = {t.untyped_storage().data_ptr() for t in tree_leaves(ins) if t is not None}
        own = {t.untyped_storage().data_ptr() for t in results}
        if given & own or any(t.untyped_storage().nbytes() != t.nbytes for t in results):
            views.add(type)
        largest = max((t.untyped_storage().nbytes() for t in results), default=0)
        if any(n >= largest > 0 and at not in given | own for _, at, n in watch.made):
            beside.add(type)
    assert views == VIEWS
    assert beside & set(left_unfused()) == set(BESIDE)


def test_one_call_on_elements_writes_where_it_is_told() -> None:
    """Work that mostly walks over memory needs no copy behind it."""
    returned = [t for t in ON_DEVICE if op_def(t).pointwise is not None and op_def(t).torch_run == "alloc"]
    assert [t for t in returned if len(run_on_meta(op_def(t), drawn(op_def(t))).work()) < 2] == []


@pytest.mark.parametrize("type", [t for t in STATIC if op_def(t).has(HostOnly)])
def test_an_op_that_says_it_needs_the_host_does(type: str) -> None:
    definition = op_def(type)
    assert definition.lower is not None

    def fails(sample: Sample) -> bool:
        try:
            run_on_meta(definition, sample)
        except (AssertionError, RuntimeError, NotImplementedError, TypeError, ValueError):
            return True
        return False

    found = [s for s in samples(definition, DRAWN, layouts=("contiguous",)) if size(s)]
    if _host_slot(definition):
        found = [s for s in found if s.ins[_position(definition)] is not None]
    assert any(fails(s) for s in found), definition.why(HostOnly)


def test_ops_without_samples_run_on_the_host() -> None:
    """What no test can draw is no torch form."""
    assert [t for t in OPS if not sampler.testable(op_def(t)) and op_def(t).torch_run != "host"] == []
