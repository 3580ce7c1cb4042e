"""The comparison with torch that layers are tested by notices planted faults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cpu.layer_check import check_error, check_layer, sample
from tstatic import static
from tstatic.errors import ProgramTypeError, ShapeError

torch = pytest.importorskip("torch")
FEEDS = {"x": sample(4, 3)}


def dense(x: Any) -> Any:
    return static.nn.fc(x, 2)


def right(p: Any, x: Any) -> Any:
    return x @ p["fc_0.w_0"] + p["fc_0.b_0"]


def test_a_right_layer_passes() -> None:
    check_layer(dense, right, FEEDS, parameters=["fc_0.w_0", "fc_0.b_0"], result="fc_0.tmp_1")


def test_a_wrong_value_is_noticed() -> None:
    with pytest.raises(AssertionError, match="Not equal"):
        check_layer(dense, lambda p, x: right(p, x) + 1e-7, FEEDS)


def test_a_wrong_gradient_of_a_parameter_is_noticed() -> None:
    # The same value, but half the gradient of the bias.
    half = lambda p, x: x @ p["fc_0.w_0"] + 0.5 * p["fc_0.b_0"] + 0.5 * p["fc_0.b_0"].detach()  # noqa: E731
    with pytest.raises(AssertionError, match=r"gradient of fc_0\.b_0"):
        check_layer(dense, half, FEEDS)


def test_a_missing_gradient_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no gradient of x"):
        check_layer(lambda x: static.nn.fc(x.detach(), 2), right, FEEDS)


def test_wrong_names_are_noticed() -> None:
    with pytest.raises(AssertionError):
        check_layer(dense, right, FEEDS, parameters=["fc_0.w_0"])
    with pytest.raises(AssertionError):
        check_layer(dense, right, FEEDS, result="fc_0.tmp_0")


def test_an_incomplete_error_is_noticed() -> None:
    def bare() -> None:
        raise ShapeError("a message without its parts")

    def late() -> None:
        static.data("left", [3])
        static.nn.fc(3, 2)

    with pytest.raises(AssertionError):
        check_error(bare, ShapeError, file="test_layer_check.py")
    with pytest.raises(AssertionError, match="program changed"):
        check_error(late, ProgramTypeError, file="test_layer_check.py")
