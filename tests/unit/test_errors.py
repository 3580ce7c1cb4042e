"""The parts of a message, and what every class of ``tstatic.errors`` keeps to."""

from __future__ import annotations

import ast
import pickle

import pytest

from tests.helpers import source
from tstatic import errors
from tstatic.errors import ShapeError, TstaticError, near

CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TstaticError)]
PARTS = {
    "expected": "[2, 3]",
    "received": "[2, 4]",
    "fix": "reshape x to [2, 3]",
    "op": "matmul_v2",
    "var": "x",
    "where": "train.py:12",
}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_message_has_every_part_and_nothing_twice(cls: type[TstaticError]) -> None:
    text = str(cls("the inner sizes of a matrix product differ", **PARTS))
    assert text.startswith("the inner sizes of a matrix product differ\n")
    for part in ("operator 'matmul_v2'", "variable 'x'", "[2, 3]", "[2, 4]", "train.py:12", "reshape x to [2, 3]"):
        assert part in text
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_a_pickled_error_is_the_same_error(cls: type[TstaticError]) -> None:
    error = cls("the inner sizes of a matrix product differ", **PARTS)
    restored = pickle.loads(pickle.dumps(error))
    assert type(restored) is cls
    assert str(restored) == str(error)
    assert vars(restored) == vars(error)
    assert restored.args == error.args


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_classes_are_exceptions_of_a_built_in_kind(cls: type[TstaticError]) -> None:
    assert issubclass(cls, RuntimeError)
    assert cls.__doc__


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("FeedError", ValueError),
        ("FeedTypeError", TypeError),
        ("FeedTypeError", ValueError),
        ("ShapeError", ValueError),
        ("LossSizeError", AssertionError),
        ("DTypeError", TypeError),
        ("NotFoundError", LookupError),
        ("IndexRangeError", IndexError),
        ("NumericsError", FloatingPointError),
        ("CheckpointError", OSError),
        ("UnsupportedError", NotImplementedError),
        ("UnknownPropertyError", AttributeError),
        ("FlagTypeError", TypeError),
        ("FlagValueError", ValueError),
        ("PlaceError", ValueError),
        ("PlaceTypeError", TypeError),
    ],
)
def test_a_script_that_catches_the_built_in_class_catches_ours(name: str, kind: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), kind)


def test_absent_parts_leave_no_line() -> None:
    def lines(error: ShapeError) -> list[str]:
        return [line for line in str(error).splitlines() if not line.startswith("  at: ")]

    assert lines(ShapeError("the inner sizes differ")) == ["the inner sizes differ"]
    assert lines(ShapeError("the inner sizes differ", var="x")) == [
        "the inner sizes differ",
        "  in:       variable 'x'",
    ]


def test_the_users_line_is_known_without_anybody_passing_it() -> None:
    assert "test_errors.py" in (ShapeError("the inner sizes differ").where or "")
    assert ShapeError("the inner sizes differ", where="train.py:3").where == "train.py:3"
    assert ShapeError("x").add_context(where="train.py:3").where == "train.py:3"


def test_an_expected_or_received_value_that_is_false_is_still_said() -> None:
    text = str(ShapeError("the number of axes is wrong", expected=0, received=[]))
    assert "expected: 0" in text
    assert "received: []" in text


def test_add_context_fills_what_is_unknown_and_keeps_what_is_known() -> None:
    error = ShapeError("the inner sizes differ", op="mul")
    assert error.add_context(op="other", var="x", where="train.py:3") is error
    assert (error.op, error.var, error.where) == ("mul", "x", "train.py:3")
    error.add_context(where="library.py:99")
    assert error.where == "train.py:3"


def test_near_names_the_closest_first_and_says_nothing_when_none_is_close() -> None:
    assert near("fuse_bn_act_op", ["fuse_bn_act_ops", "num_threads"]) == "did you mean 'fuse_bn_act_ops'?"
    assert near("zzz", ["fuse_bn_act_ops", "num_threads"]) == ""
    emit_list = near("relu7", ["relu", "relu6", "prelu", "selu", "tanh"])
    assert emit_list.startswith("did you mean 'relu")
    assert emit_list.count(" or ") == 2
    assert "tanh" not in emit_list


def test_eof_exception_is_an_exception_of_its_own() -> None:
    assert issubclass(errors.EOFException, Exception)
    assert not issubclass(errors.EOFException, TstaticError)


@pytest.mark.slow
def test_no_error_is_told_the_users_line_which_it_finds_itself() -> None:
    """``add_context`` may name it, for an error that another thread raised."""
    written = [
        f"{path}:{node.lineno}"
        for path in source.files()
        for node in source.nodes(path)
        if isinstance(node, ast.Call)
        and not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_context")
        and any(k.arg == "where" and ast.unparse(k.value) == "show(user_line())" for k in node.keywords)
    ]
    assert not written, f"leave out where=show(user_line()): {written}"
