"""Each parameter of each public function, layer, optimizer and schedule changes something, or says why it does not."""

from __future__ import annotations

import contextlib
import inspect
import io
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import tstatic as paddle
from tests.api import surface
from tests.api.arguments import declarations
from tests.api.effects import Found, effects, parameters_of
from tests.api.samples import SAMPLES, WITHOUT_SAMPLE, Sample, use_of
from tstatic import static
from tstatic.no_effect import no_effect


@cache
def things() -> dict[str, Any]:
    """Public functions, and classes whose use is known, by the first path of each."""
    found: dict[int, tuple[str, Any]] = {}
    for path, value in surface.walk():
        if inspect.isfunction(value) or (inspect.isclass(value) and use_of(value) is not None):
            found.setdefault(id(value), (path, value))
    return dict(found.values())


PARTS = 8


def _found(path: str, thing: Any) -> Found:
    with contextlib.redirect_stdout(io.StringIO()):
        return effects(path, thing, use_of(thing) if inspect.isclass(thing) else None)


@pytest.mark.parametrize("part", range(PARTS))
def test_parameters_have_an_effect_or_say_why_not(part: int) -> None:
    wrong = []
    for path in list(things())[part::PARTS]:
        if path in WITHOUT_SAMPLE:
            continue
        thing = things()[path]
        found = _found(path, thing)
        if not found.sampled:
            wrong.append(f"{path}: no call of it is known; add one to tests/api/samples.py")
            continue
        stated = set(declarations(thing)) & set(parameters_of(thing))
        wrong += [f"{path}: {name} changes nothing" for name in sorted(found.idle - stated)]
        wrong += [f"{path}: {name} is declared without effect, but has one" for name in sorted(stated - found.idle)]
    assert wrong == [], "implement these, or declare them with @no_effect"


@pytest.mark.slow
def test_a_sample_says_what_nothing_else_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments that signatures, domains or the calls compared with Paddle give as well are not written down twice."""
    twice = []
    for path, sample in list(SAMPLES.items()):
        if sample.call is None and sample.arguments is not None:
            found = _found(path, things()[path])
            monkeypatch.setitem(SAMPLES, path, replace(sample, arguments=None, more=()))
            twice += [path] * (_found(path, things()[path]) == found)
            monkeypatch.setitem(SAMPLES, path, sample)
    assert twice == [], "leave out the arguments of these in tests/api/samples.py"


def test_samples_are_those_of_public_names() -> None:
    assert len(things()) > 650
    assert sorted((SAMPLES.keys() | WITHOUT_SAMPLE.keys()) - things().keys()) == []


# ------------------------------------------------------------------------------------------------- the check sees faults
def _dead(
    x: paddle.Tensor, scale: float = 2.0, axis: int | None = None, weight: Any = None, act: str | None = None
) -> Any:
    """Reads what it does not use."""
    assert axis is None or axis < 9
    return paddle.scale(x, scale) if (weight, act) else x


def test_a_planted_parameter_without_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLES, "planted", Sample(lambda: {"x": static.data("x", [2])}))
    found = _found("planted", _dead)
    assert found.sampled
    assert found.idle == {"axis", "weight", "act"}


def test_a_planted_effect_on_nothing_but_the_argument_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def marking(x: paddle.Tensor, kept: Any = None, idle: Any = None) -> Any:
        """Marks an argument that it does not read."""
        if isinstance(kept, paddle.Tensor):
            kept.stop_gradient = False
        return x if idle is None or isinstance(idle, paddle.Tensor) else paddle.abs(idle)

    monkeypatch.setitem(SAMPLES, "planted", Sample(lambda: {"x": static.data("x", [2])}))
    assert _found("planted", marking).idle == {"idle"}


def test_a_planted_setting_of_a_layer_or_an_optimizer_is_found() -> None:
    class Layer(paddle.nn.Linear):
        """A layer."""

        def __init__(self, in_features: int, out_features: int, bias: bool = True, name: str | None = None) -> None:
            super().__init__(in_features, out_features, name=name)
            self.kept = bias

    class Rule(paddle.optimizer.Lamb):
        """A rule."""

        def __init__(self, learning_rate: float = 0.1, always_adapt: bool = False, epsilon: float = 1e-6) -> None:
            super().__init__(learning_rate, epsilon=epsilon)
            self.always = always_adapt

    assert _found("Layer", Layer).idle == {"bias"}
    assert _found("Rule", Rule).idle == {"always_adapt"}


def test_a_wrong_declaration_shows() -> None:
    @no_effect(scale="it is not read")
    def function(x: Any, scale: float = 2.0) -> Any:
        """Scales."""
        return paddle.scale(x, scale)

    SAMPLES["wrong"] = Sample(lambda: {"x": static.data("x", [2])})
    try:
        assert set(declarations(function)) - _found("wrong", function).idle == {"scale"}
    finally:
        del SAMPLES["wrong"]


def test_a_function_without_a_known_call_is_named() -> None:
    def function(unheard: Any) -> Any:
        """Takes what no table knows."""
        return unheard

    assert not _found("unknown", function).sampled
