"""NaN, infinities, signed zeros and the ends of the range: generated kernels give what the ops give that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.special_values import differing, largest, special_values
from tests.interpret import kernels
from tests.interpret.kernels import metas_by_name, run_kernel
from tests.interpret.test_pointwise import has_forms
from tests.ops import sampler
from tstatic import static
from tstatic.errors import TstaticError
from tstatic.fusion.codegen.define import is_pointwise, works_on_rows
from tstatic.fusion.codegen.kernel import Kernel, Launches, power_of_two
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.engine import cache, loop_nest
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import GRAD, NO_ATTRS, OPS, OpDef, ValueRange, op_def
from tstatic.ir.types import DType, dtype_of
from tstatic.target import Target

Array = np.ndarray[Any, Any]
F = paddle.nn.functional

FLOATS = ("float32", "float64", "float16", "bfloat16")
OTHERS = ("int64", "int32", "uint8", "bool")
EXPLICIT_GROUPS = 16
"""Ops of one kernel: they have nothing in common but the number of elements."""
SITES = 4
"""Cases of an op whose inputs differ in shape."""
ROWS = 150
COUNT = 1500
"""Elements where not all combinations of the inputs' values are tried."""


@dataclass(frozen=True)
class Called:
    """An op with its inputs, and the results of its own ref, as values by name."""

    op: FrozenOp
    given: dict[str, Array]
    wanted: dict[str, Array]


# --------------------------------------------------------------------------------------------------------------- values
def combined(lists: Sequence[Array], seed: str) -> list[Array]:
    """All combinations of the lists' elements, an array for each list; of long products some of them."""
    if np.prod([len(one) for one in lists]) <= 2 * COUNT:
        return [a.ravel() for a in np.meshgrid(*lists, indexing="ij")]
    rng = sampler.test_seed("special values", seed)
    return [one[rng.integers(0, len(one), COUNT)] for one in lists]


def summable(dtype: DType) -> Array:
    """The values whose sums of products do not depend on the order of the operations: nothing overflows or underflows."""
    values = special_values(dtype)
    if not dtype.is_float:
        return values
    size = np.abs(values.astype(np.float64))
    return values[(size != largest(dtype)) & ~((size > 0) & (size < 1e-3))]


def sites(definition: OpDef) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Shapes (``...``: one dimension, as long as it has to be) and attributes to try."""
    domain = definition.domain
    assert domain is not None
    count = {"unary": 1, "binary": 2}.get(domain.family)
    if count is not None:
        for attrs in domain.attrs or (NO_ATTRS,):
            yield (*(...,) * count, *(None,) * (len(definition.inputs) - count)), attrs
        return
    left = SITES
    for case in domain.cases:
        shapes = case.shapes + (None,) * (len(definition.inputs) - len(case.shapes))
        first = next((tuple(s) for s in shapes if s), ())
        if not works_on_rows(definition) and all(s is None or tuple(s) == first for s in shapes):
            yield tuple(None if s is None else ... for s in shapes), case.attrs
        elif left and 0 not in first:
            left -= 1
            many = len(first) > 1 and first[0] > 1

            def tall(s: Any, many: bool = many, height: Any = first[:1]) -> Any:
                return (ROWS, *s[1:]) if many and s and s[:1] == height and len(s) > 1 else s

            yield tuple(tall(s) for s in shapes), case.attrs


def filled(definition: OpDef, shapes: Sequence[Any], attrs: Any, dtype: DType, seed: str) -> sampler.Sample:
    """A sample of special values: all combinations of them where the shapes leave it open, else drawn ones."""
    domain = definition.domain
    assert domain is not None
    kinds = [domain.values.get(s.name, ValueRange()).dtype for s in definition.inputs]
    ins: list[Any] = [None] * len(shapes)
    if all(shape is None or shape is ... for shape in shapes):
        present = [k for k, shape in enumerate(shapes) if shape is ...]
        types = [dtype if kinds[k] == "float" else dtype_of(kinds[k]) for k in present]
        lists = [special_values(t, alone=len(present) == 1) for t in types]
        # One more list, for the gradient that arrives.
        for k, array in zip(present, combined([*lists, special_values(dtype)], seed), strict=False):
            ins[k] = array
        return sampler.Sample(tuple(ins), attrs, dtype.name)
    rng = sampler.test_seed("special values", seed)
    ins = list(sampler.fill(definition, domain, shapes, attrs, dtype.name, "contiguous", rng))
    values = summable(dtype)
    for k, array in enumerate(ins):
        if array is not None and kinds[k] == "float":
            # Rows without, with some, and with nothing but special values; one at least in every seven elements.
            share = rng.choice([0.0, 0.5, 1.0], (*array.shape[:-1], 1) if array.ndim else ())
            special = (rng.random(array.shape) < share) | (np.arange(array.size).reshape(array.shape) % 7 == 0)
            ins[k] = np.where(special, values[rng.integers(0, len(values), array.shape)], array).astype(dtype.np)
    return sampler.Sample(tuple(ins), attrs, dtype.name)


# ---------------------------------------------------------------------------------------------------------------- calls
def called(definition: OpDef, sample: sampler.Sample, number: int) -> Called | None:
    """The op on a sample; ``None`` where it refuses these inputs."""
    ins = [None if a is None else np.ascontiguousarray(a) for a in sample.ins]
    if any(a is None and not s.optional for a, s in zip(ins, definition.inputs, strict=True)):
        return None
    try:
        outs = sampler.run(definition, replace(sample, ins=tuple(ins)))
    except (TstaticError, ValueError, IndexError):
        return None
    op = FrozenOp(
        definition,
        tuple(f"i{number}_{k}" if a is not None else None for k, a in enumerate(ins)),
        tuple(f"o{number}_{k}" if a is not None else None for k, a in enumerate(outs)),
        definition.complete(sample.attrs),
    )
    given = {n: a for n, a in zip(op.inputs, ins, strict=True) if isinstance(n, str) and a is not None}
    return Called(op, given, {n: a for n, a in zip(op.outputs, outs, strict=True) if isinstance(n, str)})


def backward(definition: OpDef, sample: sampler.Sample, arriving: Array) -> tuple[OpDef, sampler.Sample]:
    """The backward op of an op definition, and its inputs where these gradients arrive."""
    outs = sampler.run(definition, sample)
    back = op_def(f"{definition.type}_grad")
    named: dict[str, Any] = dict(zip((s.name for s in definition.inputs), sample.ins, strict=True))
    for slot, out in zip(definition.outputs, outs, strict=True):
        named.setdefault(slot.name, out)
        if out is not None and dtype_of(out.dtype).is_float:
            named[slot.name + GRAD] = np.resize(arriving.astype(out.dtype), out.shape)
    ins = tuple(named.get(s.name) for s in back.inputs)
    return back, replace(sample, ins=ins, attrs={n: v for n, v in sample.attrs.items() if n in back.attrs})


def stated(definition: OpDef) -> bool:
    """Whether an op definition states expressions, each output and input of it one value."""
    return (is_pointwise(definition) or works_on_rows(definition)) and not any(
        s.many for s in (*definition.inputs, *definition.outputs)
    )


def calls(dtype: DType, only: Sequence[str] = ()) -> Iterator[Called]:
    """Every op that states expressions, and its gradient, on special values."""
    number = 0
    for type in only or sampler.op_types(0):
        definition = OPS[type]
        domain = definition.domain
        assert domain is not None
        if not stated(definition) or dtype.name not in (*domain.floats, *domain.others):
            continue
        for shapes, attrs in sites(definition):
            number += 2
            sample = filled(definition, shapes, attrs, dtype, f"{type} {number}")
            found = called(definition, sample, number)
            if found is None:
                continue
            yield found
            if sampler.has_backward_op(definition) and dtype.is_float and stated(op_def(f"{type}_grad")):
                arriving = summable(dtype) if works_on_rows(definition) else special_values(dtype)
                found = called(*backward(definition, sample, arriving), number + 1)
                if found is not None:
                    yield found


# ---------------------------------------------------------------------------------------------------------------- judge
def whole(kernel: Kernel) -> Kernel:
    """The kernel with one program for all elements: in the interpreter a program costs time by its lines, not by its size."""

    def plan(target: Target) -> Launches:
        made = kernel.plan(target)
        (launch,) = made.launches
        block = power_of_two(launch.grid[0] * launch.constants["BLOCK"], 16, 1 << 20)
        return replace(made, launches=(replace(launch, grid=(1,), constants={"BLOCK": block}),))

    return replace(kernel, plan=plan)


def judge(kernel: Kernel, group: Sequence[Called]) -> Iterator[str]:
    """What the kernel of some ops gives otherwise than they do."""
    given = {n: a for one in group for n, a in one.given.items()}
    wanted = {n: a for one in group for n, a in one.wanted.items()}
    got = run_kernel(kernel, given, metas_by_name(wanted))
    for one in group:
        size = max(a.size for a in one.given.values())
        for name, value in one.wanted.items():
            # Sums are compared by the tolerance rule elsewhere; what cancels has the sign of its last rounding.
            sums = works_on_rows(one.op.definition) or value.size < size
            bad = differing(got[name], value, None, zeros=False) if sums else differing(got[name], value)
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                shown = {n: a[at] for n, a in one.given.items() if a.shape == value.shape}
                yield (
                    f"{one.op.type} {dict(one.op.attrs)} in {value.dtype}, output {one.op.outputs.index(name)}: {bad.sum()} "
                    f"elements differ; at {at} {got[name][at]!r} instead of {value[at]!r} for {shown}"
                )


def judged(dtype: DType, only: Sequence[str] = ()) -> tuple[list[str], set[str]]:
    """What differs, and the types of ops that were compared."""
    found: list[str] = []
    tried: set[str] = set()
    waiting: dict[tuple[int, ...], list[Called]] = {}

    def flush(group: list[Called]) -> None:
        metas = metas_by_name({n: a for one in group for n, a in {**one.given, **one.wanted}.items()})
        kernel = loop_nest([one.op for one in group], metas, [n for one in group for n in one.wanted])
        found.extend(judge(whole(kernel), group))

    for one in calls(dtype, only):
        try:
            kernel = loop_nest([one.op], metas_by_name({**one.given, **one.wanted}), list(one.wanted))
        except CodegenUnsupported:
            continue
        tried.add(one.op.type)
        shapes = {a.shape for a in (*one.given.values(), *one.wanted.values())}
        if len(shapes) > 1 or works_on_rows(one.op.definition):
            found.extend(judge(kernel, [one]))
            continue
        (shape,) = shapes
        waiting.setdefault(shape, []).append(one)
        if len(waiting[shape]) == EXPLICIT_GROUPS:
            flush(waiting.pop(shape))
    for group in waiting.values():
        flush(group)
    return found, tried


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS])
def test_kernels_give_what_ops_give(dtype: str) -> None:
    found, tried = judged(dtype_of(dtype))
    assert not found, "\n".join(found)
    if dtype == "float32":
        definitions = [OPS[t] for t in sampler.op_types(1)]
        every = {c.type for c in definitions if stated(c) and (works_on_rows(c) or has_forms(c))}
        assert every <= tried, f"never compared: {sorted(every - tried)}"


@pytest.mark.parametrize(
    ("type", "right", "wrong"),
    [
        ("tanh", "power * _reciprocal(1 + power)", "power / (power + power * power)"),
        (
            "tanh",
            "| (a.to(tl.uint32, bitcast=True) & 0x80000000)",
            "| (tl.where(a < 0, -1.0, 0.0).to(tl.uint32, bitcast=True) & 0x80000000)",
        ),
        ("elementwise_mul", "a0 * a1", "tl.where(a0 == 0, 0.0, a0 * a1)"),
        ("elementwise_max", "(a != a) | (b != b)", "(a != a) & (b != b)"),
        ("gelu", "< 40.0)", ">= 0.0)"),
    ],
)
def test_planted_faults_are_seen(type: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = []

    def load(text: str, name: str) -> Any:
        broken = text.replace(right, wrong)
        hits.extend([name] * (broken != text))
        return cache.load(broken, name)

    monkeypatch.setattr(kernels, "cache", SimpleNamespace(load=load))
    found, _ = judged(dtype_of("float32"), [type])
    assert hits, "the fault was never planted"
    assert found


# ------------------------------------------------------------------------------------------------------------- programs
def both(build: Callable[[Any], Sequence[Any]], given: Array) -> list[tuple[Array, Array]]:
    """What a program fetches fused and unfused; a gradient by ``x`` for each result."""
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", list(given.shape), given.dtype.name)
        x.stop_gradient = False
        outs = list(build(x))
        fetches = [*outs, *(static.gradients([y], [x])[0] for y in outs)]
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(main, strategy)
    wanted = [f for f in fetches if f is not None]
    assert compiled.explain(fetch_list=wanted).kernels
    fused, unfused = (static.Executor().run(p, feed={"x": given}, fetch_list=wanted) for p in (compiled, main))
    return list(zip(fused, unfused, strict=True))


@pytest.mark.numpy_device(
    "torch has other values of some functions at infinities (docs/differences.md)", not_on=("torch",)
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fused_activations_of_infinities_and_zeros(dtype: str) -> None:
    def build(x: Any) -> list[Any]:
        ys = [paddle.tanh(x), paddle.stanh(x), F.tanhshrink(x), F.mish(x), paddle.sign(x), F.gelu(x), F.gelu(x, True)]
        return [1.5 * y for y in (*ys, paddle.abs(x), F.l1_loss(x, -x, reduction="none"), -x)]

    for fused, unfused in both(build, special_values(dtype_of(dtype), alone=True)):
        assert not differing(fused, unfused, 64).any(), (fused, unfused)


def test_a_product_with_zero_keeps_nan_and_infinity() -> None:
    given = np.array([1, np.inf, np.nan], "f4")
    results = both(lambda x: [x * 0, 0 * x, paddle.scale(x, 0.0, bias=2.0), 0 / x, (x + 1) * 0.0 + 1], given)
    nan = np.nan
    wanted = [[0, nan, nan], [0, nan, nan], [2, nan, nan], [0, 0, nan], [1, nan, nan]]
    for (fused, unfused), expected in zip(results, wanted, strict=False):
        np.testing.assert_array_equal(unfused, np.array(expected, "f4"))
        np.testing.assert_array_equal(fused, unfused)


def test_results_that_are_constants_meet_functions_of_blocks() -> None:
    def build(x: Any) -> list[Any]:
        zero, one = paddle.zeros_like(x), paddle.ones_like(x)
        return [
            paddle.maximum(x, zero * 2),
            paddle.minimum(zero, one),
            paddle.exp(zero),
            F.softplus(one),
            paddle.maximum(x, x * 0),
        ]

    for fused, unfused in both(build, np.array([[1, -2, 0.5]], "f4")):
        np.testing.assert_allclose(fused, unfused, rtol=1e-6)


@pytest.mark.parametrize("size", [1e38, 3e19])
def test_a_row_whose_variance_overflows_is_zero_fused_and_unfused(size: float) -> None:
    """Its gradient, too, as in Paddle 2.6.2; the sum over the row was infinite unfused, and NaN times 0."""

    def build(x: Any) -> list[Any]:
        return [1.5 * paddle.tanh(F.layer_norm(x * 1.0, [64]))]

    given = np.tile(np.array([size, -size, *[2.0] * 62], "f4"), (64, 1))
    for fused, unfused in both(build, given):
        np.testing.assert_array_equal(unfused, np.zeros((64, 64), "f4"))
        np.testing.assert_array_equal(fused, unfused)
