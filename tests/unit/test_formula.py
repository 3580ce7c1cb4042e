"""Formulas of updates: numbers in float64, terms that are shared, passes over the elements."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tstatic.ir.evaluate import evaluate as run
from tstatic.ir.expr import parse
from tstatic.ir.formula import UpdateFormula, compiled, evaluate
from tstatic.ir.opdef import Attr, Domain, OpDef, op_def
from tstatic.ir.registry import Registry
from tstatic.ops.update._update import register_update


def formula(**texts: str) -> UpdateFormula:
    return UpdateFormula(("Param", "Grad", "LearningRate"), ("ParamOut",), texts, ("LearningRate",), {})


def test_the_largest_parts_of_one_element_are_numbers() -> None:
    bound = formula(rate="learningrate * 2", ParamOut="param * (1 - rate * decay) - grad * rate").bind_attributes(
        {"decay": 0.5}, {"Param", "Grad", "LearningRate", "ParamOut"}
    )
    assert [str(n) for n in bound.numbers.values()] == ["(1 - ((learningrate * 2) * 0.5))", "(learningrate * 2)"]
    assert {n: str(e) for n, e in bound.elements.items()} == {"ParamOut": "((param * number0) - (grad * number1))"}


def test_an_empty_number_counts_as_1_and_attributes_select_terms() -> None:
    bound = formula(
        ParamOut="where((mode == 'l2') & (c != 0), param + c, param) - grad * learningrate"
    ).bind_attributes({"mode": "l2", "c": 0.0}, {"Param", "Grad", "ParamOut"})
    assert {n: str(e) for n, e in bound.elements.items()} == {"ParamOut": "(param - grad)"}
    assert bound.numbers == {}


def test_sums_of_squares_make_a_second_pass_only_where_a_number_needs_them() -> None:
    given = {"Param", "Grad", "LearningRate", "ParamOut"}
    texts = {
        "norm": "squares(grad)",
        "ParamOut": "param - grad * where(clips, learningrate / sqrt(norm), learningrate)",
    }
    first, second = formula(**texts).bind_attributes({"clips": True}, given).passes()
    assert (list(first.squares), list(first.outputs), list(second.outputs)) == (["norm"], [], ["ParamOut"])
    (only,) = formula(**texts).bind_attributes({"clips": False}, given).passes()
    assert (only.squares, list(only.outputs)) == ({}, ["ParamOut"])


@pytest.mark.parametrize(
    ("text", "value"), [("1 / x", math.inf), ("-1 / x", -math.inf), ("sqrt(x - 1)", math.nan), ("x / x", math.nan)]
)
def test_numbers_follow_ieee_754_where_python_raises(text: str, value: float) -> None:
    with pytest.raises((ArithmeticError, ValueError)):
        compiled([parse(text)])({"x": 0.0})
    assert np.array_equal(evaluate([parse(text)], {"x": 0.0}), [value], equal_nan=True)


def test_a_choice_computes_one_side() -> None:
    assert compiled([parse("where(x > 0, 1 / x, 7)")])({"x": 0.0}) == (7,)


def test_a_step_with_a_power_of_1_is_infinite_and_no_error() -> None:
    one = np.ones(1)
    found = run(op_def("adam"), [one, one, one, one, one, one, one, *[None] * 7], {})
    assert not np.isfinite(found[0]).any()


def test_a_term_that_reads_what_was_overwritten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ops: Registry[OpDef] = Registry()
    monkeypatch.setattr("tstatic.ir.opdef.OPS", ops)
    texts = {"StateOut": "state + grad", "ParamOut": "param - state * learningrate"}
    slots = "Param, Grad, State, LearningRate -> ParamOut, StateOut"
    made = register_update("test_only", slots, {"unused": Attr(1.0)}, texts, lambda torch: None, Domain())
    with pytest.raises(AssertionError, match="after its new value was written"):
        run(made, [np.ones(3)] * 3 + [np.ones(1), None], {})
