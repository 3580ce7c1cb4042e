"""Calls with arguments that do not fit say what the function takes, and which keyword is like the misspelt one."""

import inspect
import pickle
import typing

import pytest

import tstatic as paddle
from tstatic import fluid
from tstatic.ir.export import PUBLIC_API, notes_signature
from tstatic.ir.respell import ORIGIN, parameters_of


def notes(call) -> str:
    with pytest.raises(TypeError) as caught:
        call()
    return "\n".join(getattr(caught.value, "__notes__", []))


MISSPELT = {
    "fluid.layers.fc": (lambda: fluid.layers.fc(input=None, sise=3), "'size'"),
    "nn.Linear": (lambda: paddle.nn.Linear(3, 4, bias=False), "'bias_attr'"),
    "nn.Conv2D": (lambda: paddle.nn.Conv2D(3, 4, 3, strid=2), "'stride'"),
    "nn.Pad3D": (lambda: paddle.nn.Pad3D(1, valu=2.0), "'value'"),
    "nn.GRUCell": (lambda: paddle.nn.GRUCell(3, 4, weight_ih=None), "'weight_ih_attr'"),
    "optimizer.Adam": (lambda: paddle.optimizer.Adam(learning_rat=0.1), "'learning_rate'"),
    "Optimizer.minimize": (lambda: paddle.optimizer.Adam().minimize(los=None), "'loss'"),
    "Executor.run": (lambda: paddle.static.Executor().run(fetchlist=[]), "'fetch_list'"),
    "Executor": (lambda: paddle.static.Executor(plac=None), "'place'"),
    "Program.clone": (lambda: paddle.static.Program().clone(fortest=True), "'for_test'"),
    "static.data": (lambda: paddle.static.data("x", shap=[1]), "'shape'"),
    "full": (lambda: paddle.full([1], 0.0, dtyp="float32"), "'dtype'"),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_keyword_gets_the_near_one_and_what_the_call_takes(name: str) -> None:
    call, near = MISSPELT[name]
    note = notes(call)
    assert note.startswith(f"did you mean {near}")
    assert f" {name}(" in note
    assert "self" not in note


def test_a_missing_argument_shows_what_the_call_takes() -> None:
    assert notes(paddle.nn.functional.softmax) == "nn.functional.softmax(x, axis=-1, dtype=None, name=None)"


def test_a_keyword_like_no_other_gets_no_suggestion() -> None:
    assert notes(lambda: paddle.nn.functional.softmax(zzzzzz=1)).startswith("nn.functional.softmax(")


def test_an_error_inside_of_a_call_gets_no_note() -> None:
    def fails(value: int) -> None:
        inner(wrong=value)

    def inner(right: int) -> None:
        pass

    assert not notes(lambda: notes_signature(fails, "fails")(3))


OF_MODULES = [n for n, e in PUBLIC_API.items() if inspect.isfunction(e.function) and not hasattr(e.function, ORIGIN)]
"""Functions that a module defines; those that take the parameters of another version of Paddle are made when it is imported."""


@pytest.mark.parametrize("name", OF_MODULES[::37])
def test_a_public_function_is_the_one_of_its_module(name: str) -> None:
    function = PUBLIC_API[name].function
    assert pickle.loads(pickle.dumps(function)) is function


# ------------------------------------------------------------------------------------------- parameters of another function
def plane(x: "OneName", step: int = 1, layout: str = "NCHW") -> str:
    """Says what it was given."""
    return f"{x} {step} {layout}"


@parameters_of(plane, layout="NCL")
def line(layout: str, **given: object) -> tuple[str, object]:
    """Says it, too."""
    return layout, given


class OneName:
    """What an annotation names."""


def test_a_function_takes_the_parameters_of_another_one_with_its_own_defaults() -> None:
    assert line(1, step=3) == ("NCL", {"x": 1, "step": 3})
    assert line(1, 2, "NLC") == ("NLC", {"x": 1, "step": 2})
    assert (line.__name__, line.__module__, line.__doc__) == ("line", __name__, "Says it, too.")
    assert list(inspect.signature(line).parameters) == list(inspect.signature(plane).parameters)
    assert inspect.signature(line).parameters["layout"].default == "NCL"
    assert inspect.signature(plane).parameters["layout"].default == "NCHW"
    assert typing.get_type_hints(line) == {"x": OneName, "step": int, "layout": str, "return": tuple[str, object]}
    assert pickle.loads(pickle.dumps(line)) is line


def test_such_a_function_refuses_arguments_as_any_other() -> None:
    with pytest.raises(TypeError, match=r"^line\(\) got an unexpected keyword argument 'stepp'$"):
        line(1, stepp=2)
    with pytest.raises(TypeError, match=r"^line\(\) missing 1 required positional argument: 'x'$"):
        line()


def test_a_default_of_no_parameter_is_found_when_the_function_is_made() -> None:
    with pytest.raises(AssertionError, match="plane has no parameter for \\['size'\\]"):
        parameters_of(plane, size=3)
