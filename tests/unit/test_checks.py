"""Checks of arguments: what each accepts, what it refuses, and that every message has all its parts."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np
import pytest

from tstatic import static
from tstatic.errors import DTypeError, IndexRangeError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.ir import checks, shape_checks
from tstatic.ir.types import Meta, dtype_of

X = Meta((2, -1, 4), dtype_of("float32"))
IDS = Meta((2, 3, 4), dtype_of("int64"))


class Silent:
    def __repr__(self) -> str:
        raise ValueError


ACCEPTED: dict[str, tuple[Callable[[], Any], Any]] = {
    "type": (lambda: checks.check_type("a", str, "x", "f"), "a"),
    "type: one of two": (lambda: checks.check_type(None, (str, NoneType), "x", "f"), None),
    "type: bool": (lambda: checks.check_type(True, bool, "x", "f"), True),
    "int: numpy": (lambda: checks.check_int(np.int64(3), "x", "f", 1), 3),
    "int: bounds": (lambda: [checks.check_int(i, "x", "f", 1, 2) for i in (1, 2)], [1, 2]),
    "number": (lambda: checks.check_number(np.float32(0.5), "x", "f", least=0, most=1), 0.5),
    "number: infinite": (lambda: checks.check_number(float("inf"), "x", "f", finite=False), float("inf")),
    "choice": (lambda: checks.check_choice("b", ("a", "b"), "x", "f"), "b"),
    "choice: None": (lambda: checks.check_choice(None, ("a", None), "x", "f"), None),
    "known": (lambda: checks.check_known("a", ["a"], "f has no part"), "a"),
    "callable": (lambda: checks.check_callable(len, "x", "f"), len),
    "not empty": (lambda: checks.check_not_empty([1], "x", "f"), [1]),
    "length": (lambda: checks.check_length((1, 2), (1, 2), "x", "f"), (1, 2)),
    "ints: one": (lambda: checks.check_ints(3, 2, "x", "f"), (3, 3)),
    "ints: list": (lambda: checks.check_ints([np.int32(3), 4], 2, "x", "f"), (3, 4)),
    "rank": (lambda: checks.check_rank(X, range(1, checks.ANY_RANK), "X"), None),
    "shape: unknown": (lambda: checks.check_has_shape(X, (2, 9, 4), "X"), None),
    "each: one": (lambda: checks.check_each(3, 2, "x", "f", "layer"), [3, 3]),
    "each: list": (lambda: checks.check_each((3, 4), 2, "x", "f", "layer"), [3, 4]),
    "size": (lambda: checks.check_size(X, -1, 4, "X"), None),
    "size: unknown": (lambda: checks.check_size(X, 1, 9, "X"), None),
    "size: unknown is wanted": (lambda: checks.check_size(X, 0, -1, "X"), None),
    "one element": (lambda: checks.check_one_element(X.with_shape((1, 1)), "X"), None),
    "one element: unknown": (lambda: checks.check_one_element(X, "X"), None),
    "same shape": (lambda: checks.check_same_shape([X, IDS], ("X", "Ids")), None),
    "same dtype": (lambda: checks.check_same_dtype([X, X], "X"), None),
    "dtype": (lambda: checks.check_dtype(IDS, checks.INDICES, "Ids"), None),
    "result dtype": (lambda: checks.check_result_dtype(X.dtype, checks.FLOATS, "f"), None),
    "axis": (lambda: checks.check_axis(-1, X, "axis", "f"), 2),
    "axis: of a rank": (lambda: checks.check_axis(0, 1), 0),
    "axes": (lambda: checks.check_axes([-1, 0], X), (0, 2)),
    "two axes": (lambda: checks.check_two_axes([-1, 0], X), (2, 0)),
    "divisible": (lambda: checks.check_divisible(6, 3, "width", "groups", "f"), 2),
    "divisible: unknown": (lambda: checks.check_divisible(-1, 3, "width", "groups", "f"), -1),
    "static dim": (lambda: checks.check_static_dim(4, X, "width", "f"), 4),
    "sizes": (lambda: checks.check_sizes((0, -1, 5)), None),
    "sizes: the most": (lambda: checks.check_sizes(((1 << 60) - 1, -1), least=-1), None),
    "fit": (lambda: shape_checks.check_fit(True, (X, IDS), ("X", "Ids"), "they differ", "one shape", "reshape"), None),
    "elements": (lambda: shape_checks.check_elements(X.with_shape((0, -1, 4)), (1, 2), "the maximum"), None),
    "index": (lambda: checks.check_index(np.array([0, 2]), 3), None),
    "index: empty": (lambda: checks.check_index(np.array([], "int64"), 0), None),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_good_arguments_are_returned_in_normal_form(name: str) -> None:
    call, wanted = ACCEPTED[name]
    found = call()
    assert found == wanted
    assert type(found) is type(wanted)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "type": (lambda: checks.check_type(3, str, "x", "f"), ProgramTypeError, "a str"),
    "type: bool is no int": (lambda: checks.check_type(True, int, "x", "f"), ProgramTypeError, "an int"),
    "type: without repr": (lambda: checks.check_type(Silent(), (str, int), "x", "f"), ProgramTypeError, "str or int"),
    "int: text": (lambda: checks.check_int("3", "x", "f", 1), ProgramTypeError, "at least 1"),
    "int: bool": (lambda: checks.check_int(True, "x", "f"), ProgramTypeError, "an int"),
    "int: float": (lambda: checks.check_int(2.0, "x", "f"), ProgramTypeError, "an int"),
    "int: small": (lambda: checks.check_int(0, "x", "f", 1), ShapeError, "at least 1"),
    "int: large": (lambda: checks.check_int(9, "x", "f", 0, 8, error=ProgramError), ProgramError, "from 0 to 8"),
    "number: text": (lambda: checks.check_number("3", "x", "f"), ProgramTypeError, "finite"),
    "number: bool": (lambda: checks.check_number(np.True_, "x", "f"), ProgramTypeError, "finite"),
    "number: nan": (lambda: checks.check_number(float("nan"), "x", "f", finite=False), ProgramError, "a number"),
    "number: infinite": (lambda: checks.check_number(float("inf"), "x", "f"), ProgramError, "finite"),
    "number: least": (lambda: checks.check_number(-1, "x", "f", least=0, below=1), ProgramError, "0 <= x < 1"),
    "number: below": (lambda: checks.check_number(1, "x", "f", least=0, below=1), ProgramError, "0 <= x < 1"),
    "number: above": (lambda: checks.check_number(0, "x", "f", above=0, most=1), ProgramError, "0 < x <= 1"),
    "number: most": (lambda: checks.check_number(2, "x", "f", above=0, most=1), ProgramError, "0 < x <= 1"),
    "choice": (lambda: checks.check_choice("aa", ("a", "bb"), "x", "f"), ProgramError, "'a' or 'bb'"),
    "choice: array": (lambda: checks.check_choice(np.zeros(2), ("a", "b"), "x", "f"), ProgramError, "'a' or 'b'"),
    "known": (lambda: checks.check_known("ab", ["abc"], "f has no layer named", op="f"), NotFoundError, "abc"),
    "known: none": (lambda: checks.check_known("ab", [], "f has no layer named", op="f"), NotFoundError, "none"),
    "callable": (lambda: checks.check_callable(3, "x", "f"), ProgramTypeError, "a function"),
    "not empty": (lambda: checks.check_not_empty([], "x", "f"), ShapeError, "at least one"),
    "length": (
        lambda: checks.check_length([1], (2, 4), "x", "f", why="one per axis"),
        ShapeError,
        "2 or 4 values, one per axis",
    ),
    "ints: float": (lambda: checks.check_ints([1.5, 2], 2, "x", "f"), ProgramTypeError, "list of 2 ints"),
    "ints: count": (lambda: checks.check_ints([1], 2, "x", "f"), ShapeError, "2 values"),
    "each": (lambda: checks.check_each([3], 2, "x", "f", "layer"), ShapeError, "2 values, one per layer"),
    "size": (lambda: checks.check_size(X, 2, 5, "X", "f", why="classes"), ShapeError, "size 5 (classes)"),
    "size: no axis": (lambda: checks.check_size(X.with_shape(()), -1, 5, "X", "f"), ShapeError, "size 5"),
    "rank": (lambda: checks.check_rank(X, 2, "X", "f", layout="NC"), ShapeError, "2 dimensions (NC)"),
    "rank: range": (lambda: checks.check_rank(X, range(4, checks.ANY_RANK), "X", "f"), ShapeError, "4 or more"),
    "shape": (lambda: checks.check_has_shape(X, (2, 9, 5), "X", "f", why="a row"), ShapeError, "[2, 9, 5], a row"),
    "same shape": (lambda: checks.check_same_shape([X, X.with_shape((1,))], ("X", "Y"), "f"), ShapeError, "[2, -1, 4]"),
    "same dtype": (lambda: checks.check_same_dtype([X, IDS], "xs", "f"), DTypeError, "float32"),
    "dtype": (lambda: checks.check_dtype(X, checks.INDICES, "X", "f"), DTypeError, "int64 or int32"),
    "one element": (lambda: checks.check_one_element(X.with_shape((2,)), "X", "f"), ShapeError, "one element"),
    "one element: none": (lambda: checks.check_one_element(X.with_shape((0,)), "X", "f"), ShapeError, "one element"),
    "result dtype": (
        lambda: checks.check_result_dtype(X.dtype, checks.INDICES, "f"),
        DTypeError,
        "int64 or int32",
    ),
    "axis": (lambda: checks.check_axis(3, X, "axis", "f"), ShapeError, "[-3, 2]"),
    "axis: float": (lambda: checks.check_axis(1.0, 3, "axis", "f"), ProgramTypeError, "an int"),
    "axes: twice": (lambda: checks.check_axes([0, -3], X, "axis", "f"), ShapeError, "different"),
    "two axes: one": (lambda: checks.check_two_axes([0], X, "axes", "f"), ShapeError, "2 values, the axes of a plane"),
    "two axes: twice": (lambda: checks.check_two_axes([0, -3], X, "axes", "f"), ShapeError, "different"),
    "divisible": (lambda: checks.check_divisible(7, 3, "the width", "groups", "f"), ShapeError, "groups=3"),
    "divisible: by 0": (lambda: checks.check_divisible(7, 0, "the width", "groups", "f"), ShapeError, "groups=0"),
    "static dim: unknown": (lambda: checks.check_static_dim(-1, X, "width", "f"), ShapeError, "width"),
    "static dim: 0": (lambda: checks.check_static_dim(0, X, "width", "f"), ShapeError, "at least 1"),
    "fit": (
        lambda: shape_checks.check_fit(
            False, (X, IDS), ("X", "Ids"), "X and Ids have no axis in common", "one", "reshape", "f"
        ),
        ShapeError,
        "one",
    ),
    "elements": (
        lambda: shape_checks.check_elements(X.with_shape((2, 0)), (0, 1), "the maximum", "X", "f"),
        ShapeError,
        "along axis 1",
    ),
    "sizes: negative": (lambda: checks.check_sizes((2, -2), "shape", "f"), ShapeError, "at least 0"),
    "sizes: zero": (lambda: checks.check_sizes((2, 0), "shape", "f", least=1), ShapeError, "at least 1"),
    "sizes: not known": (lambda: checks.check_sizes((2, -1), "shape", "f", least=0), ShapeError, "at least 0"),
    "sizes: many": (lambda: checks.check_sizes((1 << 40, 1 << 40), "shape", "f"), ShapeError, "2**60"),
    "sizes: more bytes than int64 counts": (lambda: checks.check_sizes((1 << 60,), "x", "f"), ShapeError, "2**60"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_with_a_complete_message(name: str) -> None:
    call, kind, expected = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    error: Any = caught.value
    assert type(error) is kind
    assert len(error.what) >= 20
    assert expected in str(error.expected)
    assert error.received is not None
    assert error.fix
    assert error.op == "f"
    assert "test_checks.py" in error.where


def test_an_index_out_of_range_is_refused_at_run_time() -> None:
    with pytest.raises(IndexRangeError, match="from 0 to 2"):
        checks.check_index(np.array([0, 3]), 3, "Ids")
    with pytest.raises(IndexRangeError, match=r"-3 at \[1, 0\] \(2 in all\)"):
        checks.check_index(np.array([[-2, 1], [-3, 2]]), 2, "Ids", low=-2)
    with pytest.raises(IndexRangeError, match=r"5 at \[\] \(1 in all\)"):
        checks.check_index(np.array(5), 2)


def test_a_variable_is_called_by_its_name_and_never_compared() -> None:
    x = static.data("pixels", [2, 3])
    with pytest.raises(ShapeError, match=r"'pixels' of shape \[2, 3\]"):
        checks.check_rank(x, 4, "x", "f")
    with pytest.raises(ShapeError, match=r"7 for 'pixels' of shape \[2, 3\]"):
        checks.check_axis(7, x, "axis", "f")
    with pytest.raises(ProgramError, match="Variable"):
        checks.check_choice(x, ("a", "b"), "mode", "f")
    assert static.default_main_program().global_block().ops == []


@pytest.mark.parametrize(
    ("first", "second", "cast"), [("int64", "float32", "ids, 'float32'"), ("float64", "float32", "x, 'float64'")]
)
def test_of_two_dtypes_the_narrower_is_the_one_to_convert(first: str, second: str, cast: str) -> None:
    pair = (IDS.with_dtype(dtype_of(first)), X.with_dtype(dtype_of(second)))
    with pytest.raises(DTypeError) as caught:
        checks.check_same_dtype(pair, ("Ids", "X"), "f")
    assert caught.value.fix == f"convert one of them: paddle.cast({cast})"


def test_a_fit_that_is_refused_says_all_shapes_and_names_the_last_variable() -> None:
    a, b = static.data("a", [2, 3]), static.data("b", [4])
    with pytest.raises(ShapeError) as caught:
        shape_checks.check_fit(
            False, (a, b), ("x", "y"), "the shapes of x and y do not fit", "one shape", "reshape y", "f"
        )
    assert (caught.value.received, caught.value.var) == ("'a' of shape [2, 3], 'b' of shape [4]", "b")
