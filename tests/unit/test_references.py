"""References are used through their protocol only, and it says what each of them does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.helpers import source
from tstatic.ir.evaluate import call_ref, metas_of
from tstatic.ir.opdef import OPS, OpDef
from tstatic.ir.pointwise import PointwiseRef
from tstatic.ir.ref import NO_REF, RESERVED, PlainRef, Ref, plain
from tstatic.ir.types import Meta, float32
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.elementwise._broadcast import SummedRef


def _kinds(cls: type[Ref]) -> Iterator[str]:
    yield cls.__name__
    for one in cls.__subclasses__():
        yield from _kinds(one)


def kind_tests(nodes: Iterable[ast.AST], kinds: frozenset[str]) -> list[str]:
    """Places that ask whether something is one of the reference classes, or that know a class by its name."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if kinds & {n.id for a in node.args[1:] for n in ast.walk(a) if isinstance(n, ast.Name)}:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Attribute) and side.attr == "__name__" and _of_class(side.value):
                    found.append(ast.unparse(node))
    return found


def _of_class(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def test_nobody_asks_what_kind_of_reference_an_op_has() -> None:
    """The ratchet ``probes of references`` counts ``hasattr`` and its like; here no class of references may be asked for."""
    kinds = frozenset(_kinds(Ref))
    files = source.files("tstatic", "bench")
    found = {f.relative_to(source.ROOT).as_posix(): hits for f in files if (hits := kind_tests(source.nodes(f), kinds))}
    # Where a definition takes bare functions too.
    assert found.pop("tstatic/ir/ref.py") == ["isinstance(given, Ref)"]
    # A process of its own, whose errors come as they are pickled.
    found.pop("bench/gpu/runner.py", None)
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(op.definition.ref, CallRef)",
        "isinstance(one, CallRef)",
        "isinstance(one, (CallRef, int))",
        "type(p).__name__ == '_PartialSum'",
        "p.__class__.__name__ in ('A', 'B')",
    ],
)
def test_a_test_for_a_kind_is_found(text: str) -> None:
    assert kind_tests(ast.walk(ast.parse(f"if {text}: pass")), frozenset({"CallRef"})) == [text]


def test_every_op_definition_has_a_reference() -> None:
    assert [t for t, definition in OPS.items() if not isinstance(definition.ref, Ref)] == []
    assert [t for t, definition in OPS.items() if definition.ref is NO_REF and definition.kernel is None] == []


def test_references_read_declared_attributes_and_reserved_values_only() -> None:
    """What a reference names beside arrays is an attribute of its op, or comes from the device."""
    for type, definition in OPS.items():
        assert definition.ref.takes <= set(RESERVED), type
        if definition.ref.attrs is None or not isinstance(definition.ref, CallRef | PointwiseRef):
            continue
        assert definition.ref.attrs <= set(definition.attrs), type


# ---------------------------------------------------------------------------------------------------------- kinds
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(ref: Any, *ins: Any, like: Any = X, attrs: Any = None, **reserved: Any) -> Any:
    out = np.full_like(like, 77)
    definition = OpDef("test_only", ", ".join(f"X{i}" for i in range(len(ins))) + " -> Out", ref=ref)
    call_ref(definition, list(ins), [out], attrs or {}, **reserved)
    return out


def test_a_bare_function_becomes_a_reference() -> None:
    def double(x: Any, out: Any, *, by: float, rng: Any) -> None:
        np.multiply(x, by + rng, out=out)

    definition = OpDef("test_only", "X -> Out", ref=double)
    assert isinstance(definition.ref, PlainRef)
    assert definition.ref.takes == {"rng"}
    assert np.array_equal(run(double, X, attrs={"by": 2.0, "other": 1}, rng=1, group=None), X * 3)


def test_a_bare_function_gets_the_scratch_that_it_states() -> None:
    def through(x: Any, out: Any, scratch: Any) -> None:
        (buffer,) = scratch
        np.copyto(buffer, x)
        np.copyto(out, buffer)

    ref = plain(through, lambda x, out: (Meta(x.shape, float32),))
    assert ref.scratch(metas_of([X]), metas_of([X]), {}) == (Meta((2, 3), float32),)
    assert np.array_equal(run(ref, X), X)


def test_calls_are_bound_once_and_replayed() -> None:
    made = []

    def calls(ins: Any, outs: Any, scratch: Any, *, by: float) -> Any:
        made.append(by)
        return [(np.multiply, (ins[0], by, outs[0]))]

    ref, out = CallRef(calls), np.empty_like(X)
    x = X.copy()
    bound = ref.bind_arrays([x], [out], {"by": 3.0}, [], {})
    for value in (1, 2):
        x[...] = value
        for function, args in bound:
            function(*args)
        assert np.all(out == 3 * value)
    assert made == [3.0]


@pytest.mark.parametrize(
    "ref",
    [
        PointwiseRef(["x"], {0: "where(x < 0, bias, x)"}, ["bias"]),
        SummedRef(["x"], {0: "where(x < 0, bias, x)"}, {0: 0}, ["bias"]),
    ],
    ids=["pointwise", "summed"],
)
def test_constants_of_an_expression_keep_their_sign(ref: Ref) -> None:
    """0.0 and -0.0 are equal, but an op with the one must not get the code of the other."""
    below = np.full((2, 3), -1.0, np.float32)
    first, second = (run(ref, below, attrs={"bias": bias}) for bias in (0.0, -0.0))
    assert not np.signbit(first).any()
    assert np.signbit(second).all()


def test_an_op_without_a_reference_says_so_when_it_is_run() -> None:
    with pytest.raises(AssertionError, match="no reference"):
        run(None, X)


def test_sizes_that_follow_from_sizes_are_not_computed() -> None:
    with pytest.raises(AssertionError, match="follow from"):
        PointwiseRef(["x"], {0: "x"}, []).compute([X], [None], {}, {})


def test_the_protocol_is_documented() -> None:
    assert all(
        inspect.getdoc(getattr(Ref, n)) for n in vars(Ref) if not n.startswith("_") and callable(getattr(Ref, n))
    )
