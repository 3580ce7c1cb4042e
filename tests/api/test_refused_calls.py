"""A refused call changes nothing: programs, names, defaults and what it was given are as before, and its error has a type."""

from __future__ import annotations

import inspect
import os
import random
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.api import refused, surface
from tests.api.plain_calls import CALLS
from tests.api.refused import MOST_DOORS, Target, attempt, callables, interrupted, is_typed, targets
from tests.api.samples import SAMPLES, WITHOUT_SAMPLE, Sample
from tests.api.test_effects import things
from tstatic import static, undo
from tstatic.errors import IndexRangeError, ProgramError, ProgramTypeError, TstaticError
from tstatic.ir import names
from tstatic.ir.refusal import fits
from tstatic.ops.functions import rearranging

PARTS = 8
EACH = int(os.environ.get("TSTATIC_REFUSED_CALLS", "0"))
"""How many wrong values each argument gets; 0 for four calls of each function, which the seed decides."""
SEED = int(os.environ.get("TSTATIC_REFUSED_SEED", "0"))


def _chosen(path: str, thing: Any) -> list[tuple[Target, str]]:
    found = list(targets(path, thing, MOST_DOORS if EACH else 1))
    if EACH or not found:
        return list(refused.pick(found, EACH, SEED))
    draw = random.Random(f"{SEED} {path}")
    return [(draw.choice(found), draw.choice(list(refused.WRONG))) for _ in range(4)]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_refused_call_changes_nothing_and_its_error_has_a_type(part: int) -> None:
    wrong, count = [], 0
    for path, thing in list(callables().items())[part::PARTS]:
        if path in WITHOUT_SAMPLE and path not in CALLS:
            continue
        for target, value in _chosen(path, thing):
            found = attempt(target, thing, value)
            count += found is not None
            if found is not None and (found.changed or not found.typed):
                wrong.append(str(found))
    assert wrong == []
    assert count > 150


@pytest.mark.parametrize("part", range(PARTS))
def test_an_interrupted_call_changes_nothing(part: int) -> None:
    """Ctrl-C falls behind an edit of the program: the first, the last, or one between."""
    wrong = []
    for path in list(things())[part::PARTS]:
        draw = random.Random(f"{SEED} {path}")
        if path not in WITHOUT_SAMPLE and (EACH or draw.random() < 0.25):
            wrong += interrupted(path, things()[path], draw)
    assert wrong == []


# ------------------------------------------------------------------------------------------------- the check sees faults
FC = "tstatic.static.nn.fc"


def test_a_call_that_leaves_operators_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(FC, 0, "bias_attr", 0)
    found = attempt(target, static.nn.fc, "-1")
    assert found is not None
    assert found.changed == ""
    monkeypatch.setattr("tstatic.ir.export.take_back", lambda journal, mark: None)
    found = attempt(target, static.nn.fc, "-1")
    assert found is not None
    assert "main block 0 ops" in found.changed


def test_a_name_that_is_not_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names.UniqueNameGenerator, "_give_back", lambda self, key, number: None)
    found = attempt(Target(FC, 0, "bias_attr", 0), static.nn.fc, "-1")
    assert found is not None
    assert found.changed.startswith("names")


def test_an_attribute_of_an_argument_that_is_changed_is_found() -> None:
    def marks(attr: Any, x: Any = None) -> None:
        attr.seen = True
        raise ProgramTypeError("it is refused")

    SAMPLES["planted"] = Sample(lambda: {"attr": paddle.ParamAttr()})
    try:
        found = attempt(Target("planted", 0, "x", 0), marks, "-1")
    finally:
        del SAMPLES["planted"]
    assert found is not None
    assert "seen" in found.changed


def test_an_edit_that_is_not_noted_is_found_by_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interrupted(FC, static.nn.fc, random.Random(0)) == []
    monkeypatch.setattr(undo.NotedDict, "__setitem__", OrderedDict.__setitem__)
    assert interrupted(FC, static.nn.fc, random.Random(0)) != []


def test_a_method_without_its_object_is_python_s_own_error_with_a_note() -> None:
    with pytest.raises(TypeError, match="missing") as caught:
        paddle.optimizer.Adam.minimize()  # type: ignore[call-arg]
    assert is_typed(caught.value)


def test_an_error_without_a_type_is_found() -> None:
    assert not is_typed(ValueError("x"))
    with pytest.raises(TypeError) as caught:
        static.nn.fc(sise=3)  # type: ignore[call-arg]
    assert is_typed(caught.value)


# ------------------------------------------------------------------------------------------------------------ single calls
def test_a_layer_that_is_called_again_after_a_refusal_has_the_names_of_the_first_call() -> None:
    x = static.data("x", [None, 3])
    main, startup = static.default_main_program(), static.default_startup_program()
    before = main.to_string(), startup.to_string(), main.version, startup.version
    with pytest.raises(ProgramTypeError):
        static.nn.fc(x, 2, bias_attr=3)
    assert (main.to_string(), startup.to_string(), main.version, startup.version) == before
    static.nn.fc(x, 2)
    assert [p.name for p in main.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_plans_of_a_version_that_was_taken_back_are_never_used_again() -> None:
    """A run inside a function of the user's may compile the program as it is in between."""
    main = static.default_main_program()
    x = static.data("x", [1])
    positive = x > 0
    versions = set()

    def branch() -> Any:
        for _ in range(3):
            _ = x + 1
            versions.add(main.version)
        raise KeyError("mine")

    before = main.version
    with pytest.raises(KeyError, match="mine"):
        static.nn.cond(positive, branch, lambda: x)
    assert main.version == before
    _ = x + 2
    assert main.version not in versions


def test_errors_of_the_users_own_functions_pass_unchanged_and_what_they_built_is_gone() -> None:
    x, i = static.data("x", [2, 2]), static.data("i", [1])
    text = static.default_main_program().to_string()
    error = ZeroDivisionError("mine")

    def body(*args: Any) -> Any:
        static.nn.fc(x, 2)
        raise error

    calls: list[Any] = [
        lambda: static.nn.static_pylayer(body, [x]),
        lambda: paddle.nn.LayerList([paddle.nn.Identity()]).apply(body),
        lambda: static.nn.while_loop(lambda i: i < 3, body, [i]),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        assert caught.value is error
        assert static.default_main_program().to_string() == text


def test_a_block_that_a_user_writes_is_taken_back_as_a_whole() -> None:
    total, n = paddle.zeros([1], "int64"), paddle.full([1], 5, "int64")
    going = paddle.less_than(total, n)
    loop, rnn = static.nn.While(going), static.nn.StaticRNN()
    rows = static.data("rows", [3, 2])
    text = static.default_main_program().to_string()

    def fails(block: Any, build: Any) -> None:
        with block:
            build()
            raise ZeroDivisionError

    for block, build in ((loop.block(), lambda: paddle.increment(total)), (rnn.step(), lambda: rnn.step_input(rows))):
        with pytest.raises(ZeroDivisionError):
            fails(block, build)
    assert static.default_main_program().to_string() == text
    # Both go on as if nothing had been.
    with loop.block():
        paddle.increment(total)
        paddle.assign(paddle.less_than(total, n), going)
    with rnn.step():
        rnn.step_output(rnn.step_input(rows) * 2)
    assert rnn().shape == (3, 2)


def test_an_optimizer_works_after_a_refused_minimize() -> None:
    w = paddle.create_parameter([2], "float32", name="w")
    loss = paddle.sum(w * static.data("x", [2]))
    optimizer = paddle.optimizer.Adam(0.1)
    text = static.default_main_program().to_string()

    def clip(pairs: Any) -> Any:
        raise ZeroDivisionError

    optimizer._grad_clip = clip  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        optimizer.minimize(loss)
    assert static.default_main_program().to_string() == text
    optimizer._grad_clip = None
    optimizer.minimize(loss)
    assert [v for v in static.default_main_program().global_block().vars if v.startswith("learning_rate")] == [
        "learning_rate_0"
    ]


def test_the_error_behind_the_checks_names_the_argument_and_keeps_its_cause() -> None:
    with pytest.raises(ProgramTypeError) as caught:
        paddle.as_strided(static.data("x", [2, 3]), None, [1])  # type: ignore[arg-type]
    error = caught.value
    assert (error.var, error.received) == ("shape", "None of type NoneType")
    assert str(error.expected).startswith("Sequence[int]")
    assert isinstance(error.__cause__, TypeError)


@pytest.mark.parametrize(
    ("raised", "stride", "kind"),
    [
        (IndexError, [1], IndexRangeError), (IndexError, "1", ProgramTypeError), (KeyError, [1], ProgramError),
        (ValueError, [1], ProgramError), (ValueError, "1", ProgramTypeError), (ZeroDivisionError, [1], ProgramError),
        (TypeError, [1], ProgramTypeError), (AttributeError, [1], ProgramTypeError), (RecursionError, [1], ProgramError),
    ],
)  # fmt: skip
def test_the_error_behind_the_checks_has_a_type_by_what_was_raised_and_whether_arguments_misfit(
    raised: type[Exception], stride: Any, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    own: dict[str, Any] = {}
    # Code of the library, as far as its file says.
    exec(compile(f"def offsets(*given): raise {raised.__name__}('inside')", paddle.__file__, "exec"), own)
    monkeypatch.setattr(rearranging, "_offsets", own["offsets"])
    with pytest.raises(TstaticError) as caught:
        paddle.as_strided(static.data("x", [2, 3]), [2], stride)
    assert type(caught.value) is kind
    assert type(caught.value.__cause__) is raised


@pytest.mark.parametrize(
    ("annotation", "fitting", "misfitting"),
    [
        ("int", [1, np.int8(2), True], [1.5, "1", None, [1]]),
        ("float", [1, 1.5, np.float16(1)], ["1", None, 1j]),
        ("bool", [True, np.bool_(False)], [1, None]),
        ("str | None", ["a", None], [1, b"a"]),
        ("Sequence[int]", [[], [1, 2], (3,)], [[1, "2"], ["1", 2], [1, None, 3], "12", 1]),
        ("tuple[int, ...]", [(), (1, 2)], [(1, "2"), ("1", 2)]),
        ("tuple[int, str]", [(1, "a"), ("a", 1)], [1]),
        ("list[Sequence[int]] | int", [[[1], [2, 3]], 4], [[[1], ["2"]], [1], "4"]),
        ("Iterable[str]", [["a"], iter("a"), {}], [1]),
        ("Mapping[str, int]", [{}], [[], None]),
        ("Anything", [1, None, "a"], []),
    ],
)  # fmt: skip
def test_values_that_are_what_an_annotation_says_are_told_from_others(
    annotation: str, fitting: list[Any], misfitting: list[Any]
) -> None:
    assert [value for value in fitting if not fits(value, annotation)] == []
    assert [value for value in misfitting if fits(value, annotation)] == []


# ---------------------------------------------------------------------------------------------------------------- the doors
BELOW_THE_DOOR = {
    "tstatic.get_flags", "tstatic.set_flags", "tstatic.get_device", "tstatic.set_device", "tstatic.is_compiled_with_custom_device",
    "tstatic.static.cpu_places", "tstatic.static.cuda_places", "tstatic.device.synchronize", "tstatic.errors.near",
    "tstatic.nn.initializer.dtype_of", "tstatic.nn.initializer.default_initializer",
    "tstatic.fluid.unique_name.generate", "tstatic.fluid.unique_name.guard", "tstatic.fluid.unique_name.switch",
}  # fmt: skip
"""Public functions of modules that the door itself imports: they check their arguments themselves, and edit no program."""
OVERLOADED = {"tstatic.distributed.local", "tstatic.distributed.mean"}
"""Behind a door, types of overloads are names that the documentation cannot resolve. They take numbers and arrays alone."""
CONTEXTS = {"tstatic.static.program_guard", "tstatic.static.scope_guard", "tstatic.set_grad_enabled"}
"""They are entered where they are used."""


def _has_door(function: Any) -> bool:
    inner = getattr(function, "__func__", function)
    return hasattr(inner, "__wrapped__") and inner.__code__.co_name in ("noting", "running")


def test_every_public_function_that_takes_an_argument_has_a_door() -> None:
    """Behind a door an error gets a type, and what was changed is taken back."""
    first: dict[int, str] = {}
    for path, value in surface.walk():
        first.setdefault(id(value), path)
    without = {
        first[id(value)] for path, value in surface.walk()
        if inspect.isfunction(value) and inspect.signature(value).parameters and not _has_door(value)
        and not path.startswith("Variable.")
    }  # fmt: skip
    streams = {"Event", "Stream", "current_stream", "set_stream", "stream_guard"}  # always an error
    assert (
        sorted(p for p in without - BELOW_THE_DOOR - OVERLOADED - CONTEXTS if p.rpartition(".")[2] not in streams) == []
    )
