"""Operators of users: the reference on numpy, gradients of every form, and what a wrong registration is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static, testing
from tstatic.errors import DTypeError, ProgramError, ProgramTypeError, ShapeError, UnsupportedError
from tstatic.ir.opdef import OPS

X = testing.sample((3, 4), seed=1)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    known = dict(OPS)
    yield
    OPS.clear()
    OPS.update(known)


def plain(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821 - Triton's names are for Triton
    """A kernel's text; only the text counts here."""
    at = tl.arange(0, BLOCK)  # noqa: F821
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)  # noqa: F821


def launch(x: Any, out: Any) -> Any:
    return 1, {"n": x.numel, "BLOCK": 16}


def register(name: str = "my_copy", slots: str = "X -> Out", kernel: Any = plain, **changes: Any) -> Any:
    given = {"reference": lambda x: x * 1.0, "launch": launch, **changes}
    return paddle.register_kernel(name, slots, **given)(kernel)


def run(op: Any, *arrays: Any, **attrs: Any) -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = op(*(static.data(f"x{i}", list(a.shape), a.dtype.name) for i, a in enumerate(arrays)), **attrs)
    fetches = list(out) if isinstance(out, tuple) else [out]
    values = static.Executor("cpu").run(main, feed={f"x{i}": a for i, a in enumerate(arrays)}, fetch_list=fetches)
    return values if isinstance(out, tuple) else values[0]


# ------------------------------------------------------------------------------------------------------------- it works
def test_numpy_runs_the_reference() -> None:
    scaled = register(reference=lambda x, slope: x * slope, attrs={"slope": 0.5})
    np.testing.assert_array_equal(run(scaled, X), X * 0.5)
    np.testing.assert_array_equal(run(scaled, X, slope=3.0), X * 3)
    assert scaled.__name__ == "plain"
    assert scaled.__doc__ == plain.__doc__


def test_sixteen_bits_are_computed_in_32_and_rounded_once() -> None:
    seen = []

    def reference(x: Any) -> Any:
        seen.append(x.dtype.name)
        return x / 3

    found = run(register(reference=reference), X.astype(np.float16))
    np.testing.assert_array_equal(found, (X.astype(np.float16).astype(np.float32) / 3).astype(np.float16))
    assert set(seen) == {"float32"}


def test_a_reference_may_change_what_it_is_given() -> None:
    def reference(x: Any) -> Any:
        x += 1
        return x

    given = X.copy()
    np.testing.assert_array_equal(run(register(reference=reference), given), X + 1)
    np.testing.assert_array_equal(given, X)


def test_shapes_and_dtypes_are_stated() -> None:
    def pair(x, total, index, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821
        """Nothing that runs here."""

    both = register(
        slots="X -> Total, Index", kernel=pair, reference=lambda x: (x.sum(1), x.argmax(1)),
        infer=lambda x: (x.shape[:1], (x.shape[:1], "int64")),
        launch=lambda x, total, index: (1, {"n": x.numel, "BLOCK": 16}),
    )  # fmt: skip
    total, index = run(both, X)
    np.testing.assert_array_equal(index, X.argmax(1))
    assert (total.dtype, index.dtype) == (np.float32, np.int64)


GRADIENTS: dict[str, Any] = {
    "expressions": {"X@GRAD": "dout * 2 * x"},
    "numpy function": lambda x, out, dout: 2 * x * dout,
}


@pytest.mark.parametrize("form", GRADIENTS)
def test_gradients(form: str) -> None:
    square = register(reference=lambda x: x * x, grad=GRADIENTS[form])
    assert testing.check_grads(square, {"x": X}) == 12


def test_a_gradient_by_another_kernel() -> None:
    def back(x, dout, dx, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821
        """Nothing that runs here."""

    grad = register(
        "my_square_back", "X, Out@GRAD -> X@GRAD", back, reference=lambda x, dout: 2 * x * dout,
        launch=lambda x, dout, dx: (1, {"n": x.numel, "BLOCK": 16}),
    )  # fmt: skip
    square = register("my_square", reference=lambda x: x * x, grad=grad)
    assert testing.check_grads(square, {"x": X}) == 12


def test_expressions_have_second_derivatives() -> None:
    cube = register(reference=lambda x: x**3, grad={"X@GRAD": "dout * 3 * x * x"})
    assert testing.check_grads(cube, {"x": X}, order=2) > 0


def test_the_same_kernel_may_be_registered_again() -> None:
    register(reference=lambda x: x, grad={"X@GRAD": "dout"})
    again = register(reference=lambda x: x + 5, grad=lambda x, out, dout: dout)
    np.testing.assert_array_equal(run(again, X), X + 5)


def test_explain_says_what_runs() -> None:
    copy = register()
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = copy(static.data("x", [None, 4]))
    explained = static.CompiledProgram(main).explain(fetch_list=[out], feed_shapes={"x": (3, 4)})
    (made,) = explained.applied
    assert (made.switch, made.op) == ("register_kernel()", "my_copy_triton")
    assert "def plain(x, out, n, BLOCK: tl.constexpr):" in explained.kernels[0].text
    assert "bytes in plain" in explained.to_text(verbose=True)


# ------------------------------------------------------------------------------------------------------------- it is told
def nothing(y, out, n):  # type: ignore[no-untyped-def]
    """Takes other parameters."""


def constant(x, out: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821
    """A tensor that is a number."""


TABLE = {"a": 1}


def carried(x, out, n, BLOCK):  # type: ignore[no-untyped-def]
    """Uses what no text can hold."""
    return TABLE


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"name": 3}, ProgramTypeError, ["the name of a kernel", "expected", "3"]),
        ({"name": "My"}, ProgramTypeError, ["'My'"]),
        ({"name": "relu"}, ProgramError, ["there is an operator 'relu' already", "my_relu"]),
        ({"slots": "X, Out"}, ProgramError, ["cannot be read", "X, Y -> Out"]),
        ({"slots": 7}, ProgramTypeError, ["'slots'", "must be str", "X, Y -> Out", "7"]),
        ({"slots": "X* -> Out"}, ProgramError, ["do not fit a kernel", "X is marked"]),
        ({"slots": "X -> x"}, ProgramError, ["do not fit a kernel"]),
        ({"slots": "-> Out"}, ProgramError, ["at least one input"]),
        ({"reference": None}, ProgramTypeError, ["'reference'", "a function", "None"]),
        ({"launch": 5}, ProgramTypeError, ["'launch'", "5"]),
        ({"infer": "x"}, ProgramTypeError, ["'infer'"]),
        ({"kernel": 5}, ProgramTypeError, ["decorates something else", "triton.jit", "5"]),
        ({"kernel": nothing}, ProgramError, ["does not take the slots", "x, out", "y, out, n", "add a parameter 'x'"]),
        ({"kernel": constant}, ProgramError, ["make 'out' a pointer"]),
        ({"kernel": carried}, ProgramError, ["'TABLE'", "a dict", "pass 'TABLE' as a parameter"]),
        ({"kernel": eval("lambda x, out: x")}, ProgramError, ["cannot be read", "put the function into a file"]),
        ({"attrs": {"x": 1}}, ProgramError, ["means something else", "x"]),
        ({"grad": 5}, ProgramTypeError, ["'grad'", "5"]),
        ({"grad": {"Y@GRAD": "dout"}}, ProgramError, ["not a gradient of an input", "X@GRAD", "Y@GRAD"]),
        ({"grad": {"X@GRAD": "import os"}}, ProgramError, ["cannot be read"]),
    ],
)  # fmt: skip
def test_a_wrong_registration_is_told(changes: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as error:
        register(**changes)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert all(part in text for part in ("expected:", "received:", "fix:")), text
    assert "my_copy" not in OPS


def test_a_gradient_kernel_must_fit() -> None:
    other = register("my_other", "Z, Out@GRAD -> X@GRAD", lambda_free_kernel, launch=launch)
    with pytest.raises(ProgramError, match=r"does not compute gradients of 'my_copy'(.|\n)*rename 'Z'"):
        register(grad=other)


def lambda_free_kernel(z, dout, dx, n, BLOCK):  # type: ignore[no-untyped-def]
    """Reads a slot that the forward operator does not have."""


def test_without_a_gradient_asking_for_one_is_an_error() -> None:
    copy = register()
    x = static.data("x", [3, 4])
    x.stop_gradient = False
    with pytest.raises(UnsupportedError, match=r"the kernel 'my_copy' has no gradient(.|\n)*state grad"):
        static.gradients([paddle.mean(copy(x))], [x])


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (lambda x, out: 1, ["must return a grid", "(grid, {parameter: number})", "received: 1"]),
        (lambda x, out: (0, {"n": 1, "BLOCK": 16}), ["not a grid", "0"]),
        (lambda x, out: ((1, 2, 3, 4), {"n": 1, "BLOCK": 16}), ["not a grid"]),
        (lambda x, out: (1, {"n": 1}), ["does not fit its kernel", "n, BLOCK", "return 'BLOCK' as well"]),
        (lambda x, out: (1, {"n": 1, "BLOCK": 16, "M": 2}), ["leave 'M' out"]),
    ],
)
def test_a_wrong_launch_is_told_when_the_program_is_compiled(launch: Any, words: list[str]) -> None:
    copy = register(launch=launch)
    with pytest.raises(ProgramError) as error:
        run(copy, X)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "operator 'my_copy'" in text
    assert "test_register_kernel.py" in text


@pytest.mark.parametrize(
    ("reference", "kind", "words"),
    [
        (lambda x: x[0], ShapeError, ["another shape", "[3, 4]", "[4]"]),
        (lambda x: (x, x), ProgramError, ["another number of arrays", "2"]),
        (lambda x: x + 1j, DTypeError, ["another dtype", "complex64"]),
    ],
)
def test_a_wrong_reference_is_told_when_it_runs(reference: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as error:
        run(register(reference=reference), X)
    text = str(error.value)
    assert all(word in text for word in words), text


def test_a_wrong_infer_is_told() -> None:
    for infer in (lambda x: "no", lambda x: ("a", 2)):
        with pytest.raises(ShapeError, match="not a shape"):
            run(register(infer=infer), X)


def test_a_wrong_number_of_variables_is_told() -> None:
    copy = register()
    x = static.data("x", [3, 4])
    with pytest.raises(ProgramTypeError, match=r"'my_copy' takes 1 Variables(.|\n)*2 arguments"):
        copy(x, x)


def keyword_reference(x: Any, **attrs: Any) -> Any:
    """Takes whatever attributes the operator has."""
    return x * attrs["slope"]


def test_the_script_of_a_kernel_gives_its_reference_every_attribute_that_it_takes() -> None:
    copy = register(reference=keyword_reference, attrs={"slope": 0.5})
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = copy(static.data("x", [3, 4]), slope=3.0)
    (kernel,) = static.CompiledProgram(main).explain(fetch_list=[out]).kernels
    assert "keyword_reference(x0, slope=3.0)" in kernel.text
