"""``check_grads`` accepts right gradients and catches planted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import tstatic as paddle
from tstatic import static, testing
from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir.evaluate import call_ref
from tstatic.ir.opdef import OPS, op_def, with_
from tstatic.testing import Recipe

X = testing.sample((3, 4), "float64", 0.3, 1.5)


def plant(patch: pytest.MonkeyPatch, type: str, wrong: Any) -> None:
    """Gives a backward op another reference: ``wrong`` edits each output after the right one has run."""
    definition = op_def(type)
    count = len(definition.inputs)

    def ref(*arrays: Any) -> None:
        call_ref(definition, arrays[:count], arrays[count:], {})
        for out in arrays[count:]:
            if out is not None:
                wrong(out)

    patch.setitem(OPS, type, with_(definition, ref=ref, split=None))


def test_functions_of_one_and_two_inputs() -> None:
    assert testing.check_grads(paddle.tanh, {"x": X}) == X.size
    assert testing.check_grads(lambda x, y: [x * y, paddle.exp(x)], {"x": X, "y": X[0]}) == X.size + 4


def test_second_order() -> None:
    assert testing.check_grads(lambda x: paddle.exp(x) * x, {"x": X[0]}, order=2) == 8


def test_large_inputs_move_along_three_directions() -> None:
    assert testing.check_grads(paddle.tanh, {"x": testing.sample((70,), "float64")}) == 3


def test_a_program_with_parameters_and_an_optimizer() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3])
        loss = paddle.mean(paddle.tanh(static.nn.fc(x, size=2)))
        paddle.optimizer.Adam().minimize(loss)
    before = len(main.global_block().ops)
    # Six weights, two biases, six inputs.
    assert testing.check_grads(main, {"x": testing.sample((2, 3))}, startup=startup) == 14
    assert len(main.global_block().ops) == before


@pytest.mark.slow
@settings(max_examples=12, deadline=None, phases=[Phase.generate])
@given(
    testing.programs(
        2, 6, families=("unary", "binary", "softmax", "matmul", "reduce"), backward=True, dtypes=("float32",)
    )
)
def test_drawn_programs_have_right_gradients(recipe: Recipe) -> None:
    main = recipe.build().main
    floats = [n for n in recipe.fetches if main.global_block().var(n).dtype.is_float]
    if not floats or not recipe.gradients:
        return
    error = ""
    try:
        testing.check_grads(recipe, targets=floats)
    except testing.GradientError as found:
        # Differences reach further than rounding does, so a kink may lie within a step; the message says so.
        error = str(found)
    assert not error or "a kink or a pole is near" in error


@pytest.mark.numpy_device("spoils the reference of an op, which torch does not run", not_on=("torch",))
def test_a_gradient_off_by_one_millionth_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "tanh_grad", lambda dx: np.multiply(dx, 1 + 1e-6, out=dx))
    with pytest.raises(testing.GradientError, match="the gradient by 'x' at") as caught:
        testing.check_grads(paddle.tanh, {"x": X})
    assert caught.value.index is not None
    assert caught.value.analytic == pytest.approx(caught.value.numeric * (1 + 1e-6), rel=1e-7)


@pytest.mark.numpy_device("spoils the reference of an op, which torch does not run", not_on=("torch",))
def test_one_wrong_element_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(dx: Any) -> None:
        dx.flat[-1] = 0

    plant(monkeypatch, "tanh_grad", wrong)
    with pytest.raises(testing.GradientError) as caught:
        testing.check_grads(paddle.tanh, {"x": X})
    assert caught.value.index == (2, 3)
    # And along a random direction, in a larger input.
    with pytest.raises(testing.GradientError, match="along a random direction"):
        testing.check_grads(paddle.tanh, {"x": testing.sample((70,), "float64")})


@pytest.mark.numpy_device("spoils the reference of an op, which torch does not run", not_on=("torch",))
def test_a_wrong_second_derivative_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    testing.check_grads(paddle.tanh, {"x": X[0]}, order=2)
    plant(monkeypatch, "tanh_grad_grad", lambda dx: np.multiply(dx, 1.01, out=dx))
    testing.check_grads(paddle.tanh, {"x": X[0]})
    with pytest.raises(testing.GradientError, match="order 2") as caught:
        testing.check_grads(paddle.tanh, {"x": X[0]}, order=2)
    assert caught.value.order == 2


def test_a_kink_is_said() -> None:
    with pytest.raises(testing.GradientError, match="a kink or a pole is near"):
        testing.check_grads(paddle.nn.functional.relu, {"x": np.array([1.0, 1e-4])})


def test_a_kink_at_the_point_is_said() -> None:
    """Differences of all step lengths are then the mean of the slopes on both sides."""
    with pytest.raises(testing.GradientError, match="both sides disagree too: a kink or a pole is near"):
        testing.check_grads(paddle.nn.functional.relu, {"x": np.array([1.0, 0.0])})


@pytest.mark.numpy_device("spoils the reference of an op, which torch does not run", not_on=("torch",))
def test_a_wrong_gradient_is_no_kink(monkeypatch: pytest.MonkeyPatch) -> None:
    for off in (1e-6, 0.5):
        with monkeypatch.context() as patch:
            plant(patch, "tanh_grad", lambda dx, off=off: np.multiply(dx, 1 + off, out=dx))
            with pytest.raises(testing.GradientError) as caught:
                testing.check_grads(paddle.tanh, {"x": X})
        assert "kink" not in str(caught.value)


def test_what_cannot_be_differentiated() -> None:
    with pytest.raises(ProgramError, match="nothing to differentiate"):
        testing.check_grads(lambda x: x > 0, {"x": X})
    with pytest.raises(ProgramTypeError, match="takes a program"):
        testing.check_grads(3, {})  # type: ignore[arg-type]


def test_checks_that_compile_often_do_not_warn_of_it(caplog: pytest.LogCaptureFixture) -> None:
    testing.check_grads(lambda x: paddle.tanh(x), {"x": np.linspace(-1, 1, 12).reshape(3, 4).astype("float32")})
    x = static.data("x", [None, 3])
    testing.assert_equivalent(paddle.exp(x).block.program, examples=40)
    assert [r.getMessage() for r in caplog.records if "was compiled" in r.getMessage()] == []
