"""What expressions fold when they are built has the value that numpy gives, signed zeros behind an addition aside."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.ir import expr

SPECIAL = np.array([-0.0, 0.0, -np.inf, np.inf, np.nan, -1.5], "float32")


@pytest.mark.parametrize("text", ["1 * x", "x * 1", "x / 1", "x - 0", "pow(x, 1)"])
def test_what_keeps_every_value_is_folded(text: str) -> None:
    assert expr.to_text(expr.parse(text)) == "x"


@pytest.mark.parametrize("text", ["0 * x", "x * 0", "0 - x", "0 / x", "x / 0", "pow(x, 0)", "pow(0, x)", "x * -1"])
def test_what_depends_on_the_value_is_not(text: str) -> None:
    assert "x" in expr.variables(expr.parse(text))


@pytest.mark.parametrize("text", ["pow(0, -1)", "pow(-1, 0.5)", "1 / 0", "pow(10, 400.0)"])
def test_numbers_that_python_does_not_have_are_left_to_numpy(text: str) -> None:
    assert expr.parse(text).op != "const"
    assert expr.parse(f"{text} * x").args[0].op != "const"


def test_numbers_are_folded() -> None:
    for text, value in (("pow(2, 3)", 8), ("pow(2, -1)", 0.5), ("1 / 4 - 2", -1.75), ("2 < 3", True)):
        assert expr.parse(text).value == value


def test_signed_zeros_and_infinities_pass_through_factors_and_bounds() -> None:
    x = static.data("x", [6])
    same = [paddle.scale(x, 1.0, 0.0), x * 1.0, x / 1.0, x - 0.0, paddle.pow(x, 1.0)]
    found = static.Executor().run(feed={"x": SPECIAL}, fetch_list=[*same, x * 0.0, 1.0 / x, paddle.pow(x, -1.0)])
    for one in found[: len(same)]:
        np.testing.assert_array_equal(one, SPECIAL)
        assert (np.signbit(one) == np.signbit(SPECIAL))[:4].all()
    np.testing.assert_array_equal(found[-3], [-0.0, 0.0, np.nan, np.nan, np.nan, -0.0])
    for one in found[-2:]:
        np.testing.assert_allclose(one, [-np.inf, np.inf, -0.0, 0.0, np.nan, -1 / 1.5], rtol=1e-6)
        assert np.signbit(one)[:4].tolist() == [True, False, True, False]
