"""Each oracle has been seen to fail: faults are planted in copies of small op definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.gradcheck import check_grad
from tests.ops.oracles import (
    check_infer,
    check_infer_unknown,
    check_inplace,
    check_lower,
    check_specials,
    special_values,
)
from tests.ops.sampler import Sample, samples
from tests.ops.tiles import check_split
from tstatic.ir.opdef import (
    DERIVE,
    OPS,
    PARTIAL_SUM,
    WHOLE,
    Case,
    Domain,
    GradContext,
    GradOp,
    OpDef,
    OpSpec,
    ValueRange,
    op_def,
    register,
    with_,
)
from tstatic.ir.types import Meta, float32

Check = Callable[[OpDef], None]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Op definitions made by a test leave the registry with it."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


def quotient(**changes: Any) -> OpDef:
    """Out = X / (1 + Y * Y), with its gradient as an op."""
    definition = OpDef(
        "meta_quotient",
        "X, Y -> Out",
        infer=lambda x, y: x,
        ref=lambda x, y, out: np.divide(x, 1 + y * y, out=out, casting="unsafe"),
        lower=lambda torch, x, y: x / (1 + y * y),
        grad=GradOp(
            "X, Y, Out@GRAD -> X@GRAD, Y@GRAD",
            pointwise={"X@GRAD": "dout / (1 + y * y)", "Y@GRAD": "-dout * x * 2 * y / square(1 + y * y)"},
            grad=DERIVE,
        ),
        domain=Domain(cases=tuple(Case((s, s)) for s in ((3, 4), (0,), ())), floats=("float32", "float64")),
    )
    return register(with_(definition, **changes))


def total(**changes: Any) -> OpDef:
    """Out = sum over the last axis; its gradient is an expression over ordinary ops of this file."""

    def infer(x: Meta, axis: int) -> Meta:
        return x.with_shape(x.shape[:-1])

    def ref(x: Any, out: Any, axis: int) -> None:
        np.sum(x, axis=-1, out=out)

    definition = OpDef(
        "meta_total",
        "X -> Out",
        attrs={"axis": -1},
        infer=infer,
        ref=ref,
        lower=lambda torch, x: x.sum(-1),
        grad=lambda ctx: [OpSpec("meta_spread", spread_inputs(ctx), {"Out": [ctx.in_grads[ctx.inputs["X"][0]]]})],
        domain=Domain(cases=(Case(((3, 4),)), Case(((2, 5),))), floats=("float32", "float64")),
    )
    register(
        OpDef(
            "meta_spread",
            "X, Like -> Out",
            infer=lambda x, like: like,
            ref=lambda x, like, out: np.copyto(out, x[..., None]),
        )
    )
    return register(with_(definition, **changes))


def spread_inputs(ctx: GradContext) -> dict[str, list[str]]:
    return {"X": [ctx.out_grads[ctx.outputs["Out"][0]]], "Like": [ctx.inputs["X"][0]]}


def infer_all(definition: OpDef) -> None:
    for sample in samples(definition, 14):
        check_infer(definition, sample)
        check_infer_unknown(definition, sample)


def lower_all(definition: OpDef) -> None:
    for sample in samples(definition):
        check_lower(definition, sample)


def grad_all(definition: OpDef) -> None:
    for sample in samples(definition, 9, ("float64",)):
        check_grad(definition, sample)


def grad_twice(definition: OpDef) -> None:
    grad_all(op_def(f"{definition.type}_grad"))


def inplace_all(definition: OpDef) -> None:
    assert sum(check_inplace(definition, sample) for sample in samples(definition, 9)) > 0


def specials(definition: OpDef) -> None:
    values = special_values(float32)
    check_specials(definition, Sample((values, values[::-1].copy()), {}, "float32"), {}, set())


def tiles(x: str, y: str, **changes: Any) -> GradOp:
    return GradOp("X, Y, Out@GRAD -> X@GRAD, Y@GRAD", pointwise={"X@GRAD": x, "Y@GRAD": y}, **changes)


@pytest.mark.parametrize("check", [infer_all, lower_all, grad_all, grad_twice, specials])
def test_sound_op_def_passes(check: Check) -> None:
    check(quotient())


@pytest.mark.parametrize("check", [infer_all, lower_all, grad_all])
def test_sound_op_def_with_rule_passes(check: Check) -> None:
    check(total())


def swapped(x: Any, y: Any, out: Any) -> None:
    np.divide(y, 1 + x * x, out=out, casting="unsafe")


def last_forgotten(x: Any, y: Any, out: Any) -> None:
    out.flat[:-1] = (x / (1 + y * y)).flat[:-1]


def nan_dropped(x: Any, y: Any, out: Any) -> None:
    with np.errstate(all="ignore"):
        out[...] = np.nan_to_num(x / (1 + y * y), posinf=np.inf, neginf=-np.inf)


def sign_of_zero_dropped(x: Any, y: Any, out: Any) -> None:
    out[...] = x / (1 + y * y) + 0.0


def subnormals_flushed(x: Any, y: Any, out: Any) -> None:
    found = np.asarray(x / (1 + y * y))
    out[...] = np.where(np.abs(found) < np.finfo(found.dtype).tiny, found * 0, found)


def one_in_a_million(x: Any, y: Any, out: Any) -> None:
    out[...] = x / (1 + y * y) * (1 + 1e-6 if x.dtype == np.float32 else 1)


def off_by_one(x: Any, out: Any, axis: int) -> None:
    np.sum(x[..., :-1], axis=-1, out=out)


def flat_memory(x: Any, y: Any, out: Any) -> None:
    # Right for C order only.
    np.divide(x.ravel("K").reshape(x.shape), 1 + y * y, out=out)


@pytest.mark.parametrize("ref", [swapped, last_forgotten, one_in_a_million, flat_memory], ids=lambda f: f.__name__)
def test_lower_sees(ref: Any) -> None:
    definition = quotient(ref=ref)
    with pytest.raises(AssertionError):
        lower_all(definition)


def test_lower_sees_an_element_too_few() -> None:
    definition = total(ref=off_by_one)
    with pytest.raises(AssertionError):
        lower_all(definition)


@pytest.mark.parametrize("ref", [nan_dropped, sign_of_zero_dropped, subnormals_flushed], ids=lambda f: f.__name__)
def test_specials_see(ref: Any) -> None:
    definition = quotient(ref=ref)
    with pytest.raises(AssertionError):
        specials(definition)


@pytest.mark.parametrize(
    "infer",
    [
        lambda x, y: x.with_shape((*x.shape, 1)),
        lambda x, y: x.with_shape((2, *x.shape)),
        lambda x, y: x.with_dtype(float32),
    ],
    ids=["trailing axis", "leading axis", "dtype"],
)
def test_infer_sees(infer: Any) -> None:
    definition = quotient(infer=infer)
    with pytest.raises((AssertionError, ValueError)):
        infer_all(definition)


def test_infer_sees_a_size_made_up_from_an_unknown_one() -> None:
    definition = quotient(infer=lambda x, y: x.with_shape(max(s, 1) if -1 in x.shape else s for s in x.shape))
    with pytest.raises(AssertionError):
        infer_all(definition)


def test_infer_sees_unwritten_elements() -> None:
    definition = quotient(ref=last_forgotten, lower=None)
    with pytest.raises(AssertionError, match="unwritten"):
        infer_all(definition)


@pytest.mark.parametrize(
    "rule",
    [
        tiles("2 * dout / (1 + y * y)", "-dout * x * 2 * y / square(1 + y * y)"),
        tiles("dout / (1 + y * y)", "-dout * x * y / square(1 + y * y)"),
        tiles("dout / (1 + y * y)", "dout * x * 2 * y / square(1 + y * y)"),
        tiles("-dout * x * 2 * y / square(1 + y * y)", "dout / (1 + y * y)"),
        tiles("dout / (1 + y * y) * 1.0000004", "-dout * x * 2 * y / square(1 + y * y)"),
        tiles("1 / (1 + y * y)", "-dout * x * 2 * y / square(1 + y * y)"),
        tiles("0.0 * dout", "-dout * x * 2 * y / square(1 + y * y)"),
    ],
    ids=["factor", "half", "sign", "swapped", "4e-7 off", "cotangent dropped", "zero"],
)
def test_grad_sees(rule: GradOp) -> None:
    definition = quotient(grad=rule)
    with pytest.raises(AssertionError):
        grad_all(definition)


def test_grad_sees_a_read_of_an_input_that_only_lends_its_shape() -> None:
    rule = tiles("dout / (1 + y * y)", "-dout * x * 2 * y / square(1 + y * y)", shape_only=("X",))
    definition = quotient(grad=rule)
    with pytest.raises(AssertionError):
        grad_all(definition)


def test_grad_sees_a_gradient_that_depends_on_its_neighbour() -> None:
    def ref(x: Any, y: Any, dout: Any, dx: Any, dy: Any) -> None:
        if dx is not None:
            dx[...] = dout / (1 + y * y)
        if dy is not None:
            dy[...] = -dout * x * 2 * y / (1 + y * y) ** 2 if dx is not None else 0

    definition = quotient(grad=GradOp("X, Y, Out@GRAD -> X@GRAD, Y@GRAD", ref=ref))
    with pytest.raises(AssertionError, match="alone"):
        grad_all(definition)


@pytest.mark.parametrize(
    ("text", "right"),
    [("ddx / (1 + y * y) - ddy * x * 2 * y / square(1 + y * y)", True), ("ddx / (1 + y * y)", False)],
)
def test_second_order_sees(text: str, right: bool) -> None:
    second = GradOp("X, Y, Out@GRAD, X@GRAD@GRAD, Y@GRAD@GRAD -> Out@GRAD@GRAD", pointwise={"Out@GRAD@GRAD": text})
    quotient(grad=tiles("dout / (1 + y * y)", "-dout * x * 2 * y / square(1 + y * y)", grad=second))
    if right:
        grad_twice(op_def("meta_quotient"))
        return
    with pytest.raises(AssertionError):
        grad_twice(op_def("meta_quotient"))


@pytest.mark.parametrize("factor", [0.5, -1.0])
def test_rule_sees(factor: float) -> None:
    def rule(ctx: GradContext) -> list[OpSpec]:
        wrong = ctx.fresh("wrong")
        return [
            OpSpec("meta_spread", spread_inputs(ctx), {"Out": [wrong]}),
            OpSpec("meta_times", {"X": [wrong]}, {"Out": [ctx.in_grads[ctx.inputs["X"][0]]]}),
        ]

    register(OpDef("meta_times", "X -> Out", pointwise={"Out": f"x * {factor}"}))
    definition = total(grad=rule)
    with pytest.raises(AssertionError):
        grad_all(definition)


def test_inplace_sees() -> None:
    def ref(x: Any, y: Any, out: Any) -> None:
        np.add(y * y, 1, out=out)
        np.divide(x, out, out=out)

    sound = quotient(inplace=(("X", "Out"),))
    inplace_all(sound)
    with pytest.raises(AssertionError, match="shares the buffer"):
        inplace_all(with_(sound, ref=ref))


HALVES = ((slice(None), slice(0, 2)), (slice(None), slice(2, None)))


@pytest.mark.parametrize(
    ("tiles", "right"),
    [
        ([(h, h, h) for h in HALVES], True),
        ([(HALVES[0], HALVES[0], HALVES[0])], False),
        ([(h, HALVES[0], h) for h in HALVES], False),
        ([(HALVES[1 - i], HALVES[1 - i], h) for i, h in enumerate(HALVES)], False),
        ([(WHOLE, WHOLE, PARTIAL_SUM)] * 2, False),
    ],
    ids=["right", "half missing", "wrong half of Y", "halves swapped", "added twice"],
)
def test_split_sees(tiles: Any, right: bool) -> None:
    definition = quotient(split=lambda x, y, out: tiles if x.shape == (3, 4) else None)
    if right:
        assert sum(check_split(definition, sample) for sample in samples(definition, 9, ("float64",))) > 0
        return
    with pytest.raises(AssertionError):
        sum(check_split(definition, sample) for sample in samples(definition, 9, ("float64",)))


def test_values_keep_clear_of_what_they_avoid() -> None:
    definition = OpDef(
        "meta_kinked",
        "X -> Out",
        pointwise={"Out": "abs(x)"},
        domain=Domain("unary", values={"X": ValueRange(-1.0, 1.0, avoid=(0.0, 0.5))}),
    )
    for sample in samples(register(definition), 60):
        x = np.asarray(sample.ins[0]).astype(np.float64)
        assert (np.abs(x) >= 0.01).all()
        assert (np.abs(x - 0.5) >= 0.01).all()
        assert (np.abs(x) <= 1).all()


def test_samples_come_in_every_layout_and_dtype() -> None:
    definition = OpDef("meta_plain", "X, Y -> Out", pointwise={"Out": "x * y"}, domain=Domain("binary"))
    drawn = list(samples(register(definition), 60))
    arrays = [a for s in drawn for a in s.ins]
    assert {s.dtype for s in drawn} == {"float32", "float64", "float16", "bfloat16"}
    assert any(a.size == 0 for a in arrays)
    assert any(a.ndim == 0 for a in arrays)
    assert any(s < 0 for a in arrays for s in a.strides)
    assert any(0 in a.strides and a.size > 1 for a in arrays)
    assert any(not a.flags.aligned for a in arrays)
    assert any(a.flags.f_contiguous and not a.flags.c_contiguous for a in arrays)
    assert any(s.ins[0].shape != s.ins[1].shape for s in drawn)
