"""numpy's functions on Variables: operators build ops, everything else says what to use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import ProgramTypeError

A = np.arange(6, dtype="float32").reshape(2, 3) + 1


@pytest.mark.parametrize(
    ("call", "use"),
    [
        (lambda x: np.exp(x), "use paddle.exp"), (lambda x: np.arctan2(x, x), "use paddle.atan2"),
        (lambda x: np.absolute(x), "did you mean paddle.abs"),
        (lambda x: np.mean(x), "use paddle.mean"), (lambda x: np.concatenate([x, x]), "did you mean paddle.concat"),
        (lambda x: np.add(x, x), "use paddle.add"), (lambda x: np.add.reduce(x), "use paddle.add"),
        (lambda x: np.signbit(x), "did you mean paddle.sign"), (lambda x: np.unwrap(x), "fetch the variable"),
        (lambda x: np.where(x, A, A), "use paddle.where"),
    ],
)  # fmt: skip
def test_functions_say_what_to_use(call: Any, use: str) -> None:
    x = static.data("x", [2, 3])
    count = len(static.default_main_program().global_block().ops)
    with pytest.raises(ProgramTypeError) as found:
        call(x)
    assert use in str(found.value)
    assert "'x' is a variable" in str(found.value)
    assert len(static.default_main_program().global_block().ops) == count


@pytest.mark.parametrize(
    "call",
    [
        lambda a, x: a + x, lambda a, x: a - x, lambda a, x: a * x, lambda a, x: a / x, lambda a, x: a**x,
        lambda a, x: a // x, lambda a, x: a % x, lambda a, x: a < x, lambda a, x: a >= x, lambda a, x: a == x,
        lambda a, x: np.float32(2.0) * x, lambda a, x: np.float32(2.0) - x,
    ],
)  # fmt: skip
def test_arrays_on_the_left_of_an_operator_build_ops(call: Any) -> None:
    x = static.data("x", [2, 3])
    y = call(A, x)
    assert isinstance(y, static.Variable)
    (found,) = static.Executor("cpu").run(feed={"x": A * 2}, fetch_list=[y])
    np.testing.assert_allclose(found, call(A, A * 2), rtol=1e-5)


def test_an_array_that_is_added_to_in_place_becomes_the_variable() -> None:
    a: Any = A.copy()
    a += static.data("x", [2, 3])
    assert isinstance(a, static.Variable)


def test_shapes_are_known_without_values() -> None:
    x = static.data("x", [None, 3])
    assert np.shape(x) == (-1, 3)
    assert np.ndim(x) == 2
    assert paddle.exp(x).shape == (-1, 3)


@pytest.mark.parametrize(
    ("asks", "wanted"),
    [(int, "an int"), (float, "a float"), (lambda x: x.numpy(), "an array"), (lambda x: x.item(), "a number")],
)
def test_asking_for_a_value_is_refused_in_plain_words(asks: Any, wanted: str) -> None:
    with pytest.raises(ProgramTypeError, match=f"so it cannot become {wanted}\n.*\n.*a value, to become {wanted}\n"):
        asks(static.data("x", [1]))
