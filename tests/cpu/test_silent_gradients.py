"""A parameter that would never be trained is told: kernels and Python functions without a gradient, losses without parameters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_register_kernel import X, launch
from tstatic import static, testing
from tstatic.errors import ProgramError, UnsupportedError
from tstatic.fusion.user.registration import registration_text
from tstatic.ir.opdef import OPS


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    known = dict(OPS)
    yield
    OPS.clear()
    OPS.update(known)


def plain(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821 - Triton's names are for Triton
    """Only its parameters count here."""


def pair(x: Any, y: Any, out: Any) -> Any:
    return launch(x, out)


def register(grad: Any, name: str = "my_product") -> Any:
    return paddle.register_kernel(name, "X, Y -> Out", reference=lambda x, y: x * y, launch=pair, grad=grad)(plain)


def of_kernel(slots: str) -> Any:
    """A kernel that computes the gradient of the product by one input."""

    def back(y, dout, dx, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: F821
        """Only its parameters count here."""

    return paddle.register_kernel(
        "my_product_back", slots, reference=lambda y, dout: y * dout, launch=lambda y, dout, dx: launch(y, dx)
    )(back)


def numpy_gradient(x: Any, y: Any, out: Any, dout: Any) -> Any:
    return y * dout


FORMS: dict[str, Any] = {
    "expressions": lambda: {"X@GRAD": "dout * y"},
    "kernel": lambda: of_kernel("Y, Out@GRAD -> X@GRAD"),
    "kernel in a mapping": lambda: {"X@GRAD": of_kernel("Y, Out@GRAD -> X@GRAD")},
    "numpy function in a mapping": lambda: {"X@GRAD": numpy_gradient},
}


def loss_of(op: Any) -> tuple[Any, Any, Any]:
    x, w = static.data("x", list(X.shape)), static.create_parameter(list(X.shape), "float32", name="w")
    v = static.create_parameter(list(X.shape), "float32", name="v")
    return paddle.mean(op(x + v, w)), w, v


@pytest.mark.parametrize("form", FORMS)
def test_an_input_without_a_gradient_is_named(form: str) -> None:
    """The parameter in it was left out of training without a word."""
    loss, _, _ = loss_of(register(FORMS[form]()))
    with pytest.raises(UnsupportedError, match=r"states no gradient of its input 'Y', and 'w' needs one") as caught:
        paddle.optimizer.SGD(0.1).minimize(loss)
    assert "'Y@GRAD': None" in str(caught.value)
    assert __file__.rpartition("/")[2] in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_other_inputs_can_be_differentiated(form: str) -> None:
    loss, w, _ = loss_of(register(FORMS[form]()))
    w.stop_gradient = True
    _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
    assert [p.name for p, _ in pairs] == ["v"]


@pytest.mark.parametrize("form", FORMS)
def test_none_says_that_no_gradient_is_meant(form: str) -> None:
    given = FORMS[form]()
    whole = dict(given) if isinstance(given, dict) else {"X@GRAD": given}
    op = register({**whole, "Y@GRAD": None})
    loss, _, _ = loss_of(op)
    _, pairs = paddle.optimizer.SGD(1.0).minimize(loss)
    assert [p.name for p, _ in pairs] == ["v"]
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    weight = np.array(static.global_scope().find_var("w").get_tensor())
    (found,) = exe.run(feed={"x": X}, fetch_list=["v@GRAD"])
    np.testing.assert_allclose(found, weight / X.size, 1e-6)


def test_a_kernel_none_of_whose_inputs_has_a_gradient_ends_the_backward_pass() -> None:
    loss, _, _ = loss_of(register({"X@GRAD": None, "Y@GRAD": None}))
    assert static.append_backward(loss) == []


def test_one_function_may_stand_under_the_gradients_that_it_computes() -> None:
    def both(x: Any, y: Any, out: Any, dout: Any) -> Any:
        return y * dout, x * dout

    assert testing.check_grads(register({"Y@GRAD": both, "X@GRAD": both}), {"x": X, "y": X + 2}) > 0


@pytest.mark.parametrize(
    ("grad", "message"),
    [
        ({"X@GRAD": "dout * y", "Y@GRAD": numpy_gradient}, "mixes forms"),
        ({"X@GRAD": numpy_gradient, "Y@GRAD": lambda *_: None}, "mixes forms"),
        ({"Z@GRAD": None}, "not a gradient of an input"),
        ({}, "not a gradient of an input"),
    ],
)
def test_a_mapping_that_fits_no_form_is_refused(grad: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        register(grad)
    assert "my_product" not in OPS


def test_a_numpy_function_that_returns_none_is_told_which_gradient_it_lacks() -> None:
    loss, _, _ = loss_of(register(lambda x, y, out, dout: (y * dout, None)))
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    with pytest.raises(ProgramError, match="returned None for Y@GRAD") as caught:
        exe.run(feed={"x": X}, fetch_list=[loss])
    assert "'Y@GRAD': None" in str(caught.value)


def test_a_numpy_function_that_returns_too_few_gradients_is_told_which_there_are() -> None:
    loss, _, _ = loss_of(register(lambda x, y, out, dout: y * dout))
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    with pytest.raises(ProgramError, match=r"expected: 2: X@GRAD, Y@GRAD"):
        exe.run(feed={"x": X}, fetch_list=[loss])


def test_the_text_of_a_registration_keeps_none_and_functions() -> None:
    expressions = register({"X@GRAD": "dout * y", "Y@GRAD": None})
    assert "grad={'X@GRAD': 'dout * y', 'Y@GRAD': None}" in registration_text(expressions.registered)
    function = register({"X@GRAD": numpy_gradient, "Y@GRAD": None})
    text = registration_text(function.registered)
    assert "grad={'X@GRAD': numpy_gradient, 'Y@GRAD': None}" in text
    assert "def numpy_gradient(" in text


# ------------------------------------------------------------------------------------------------- losses and functions
def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def no_parameters() -> Any:
    return paddle.mean(static.data("x", [2, 2]))


def another_loss() -> Any:
    static.create_parameter([2], "float32")
    return paddle.mean(static.data("x", [2, 2]))


def detached() -> Any:
    return paddle.mean(static.nn.fc(static.data("x", [2, 2]), 2).detach())


def indices() -> Any:
    return paddle.mean(paddle.cast(paddle.argmax(static.nn.fc(static.data("x", [2, 2]), 2), -1), "float32"))


@pytest.mark.parametrize("build", [no_parameters, another_loss, detached, indices])
@pytest.mark.parametrize("wrapped", [False, True])
def test_minimize_that_trains_nothing_says_so_once(build: Any, wrapped: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Paddle returns two empty lists; so does tstatic, and the log has a warning with the caller's line."""
    loss = build()
    rule: Any = paddle.optimizer.Adam(0.1)
    for _ in range(2):
        assert (paddle.incubate.LookAhead(rule) if wrapped else rule).minimize(loss) == ([], [])
    (message,) = warnings_of(caplog)
    assert "found no gradient for any parameter" in message
    assert __file__.rpartition("/")[2] in message


def called(cut: bool = False, backward: Any = None) -> Any:
    h = static.nn.fc(static.data("x", [2, 3]), 3, weight_attr="w", bias_attr=False)
    y = static.default_main_program().global_block().create_var(name="y", shape=[2, 3], dtype="float32")
    static.py_func(np.sort, h, y, backward)
    y.stop_gradient = cut
    return paddle.mean(static.nn.fc(y, 1, weight_attr="v"))


def test_a_python_function_without_a_backward_function_says_what_it_cuts_off(caplog: pytest.LogCaptureFixture) -> None:
    _, pairs = paddle.optimizer.SGD(0.1).minimize(called())
    assert "w" not in [p.name for p, _ in pairs]
    (message,) = warnings_of(caplog)
    assert "no gradient flows through 'py_func'" in message
    assert " to w:" in message


@pytest.mark.parametrize("how", [{"cut": True}, {"backward": lambda x, y, dy: None}])
def test_a_cut_that_is_meant_is_not_told(how: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    paddle.optimizer.SGD(0.1).minimize(called(**how))
    assert warnings_of(caplog) == []


def test_parameters_inside_a_pylayer_are_told(caplog: pytest.LogCaptureFixture) -> None:
    x = static.data("x", [2, 3])
    x.stop_gradient = False

    def forward(a: Any) -> Any:
        return static.nn.fc(a, 3, weight_attr="inside", bias_attr=False)

    loss = paddle.mean(static.nn.fc(static.nn.static_pylayer(forward, [x], lambda dy: dy), 1, weight_attr="v"))
    paddle.optimizer.SGD(0.1).minimize(loss)
    (message,) = warnings_of(caplog)
    assert "no gradient flows through 'pylayer'" in message
    assert " to inside:" in message
