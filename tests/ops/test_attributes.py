"""Every attribute of every op changes something, or its definition says why it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.ops.effects import idle_attributes, loaded
from tstatic.ir.opdef import OPS, Attr, OpDef, op_def


@pytest.mark.parametrize("type", sorted(c.type for c in OPS.values() if c.attrs and not c.of))
def test_attributes_without_effect_say_why(type: str) -> None:
    definition = op_def(type)
    declared = {name for name, spec in definition.attrs.items() if spec.no_effect}
    assert idle_attributes(definition) == declared, (
        "these change nothing undeclared, or are declared and change something"
    )


def _planted(type: str, **attrs: Any) -> OpDef:
    definition = op_def(type)
    return replace(definition, attrs={**definition.attrs, **attrs})


@pytest.mark.slow
def test_a_planted_attribute_is_found() -> None:
    assert idle_attributes(_planted("leaky_relu", slope=0.5)) == {"slope"}
    assert idle_attributes(_planted("sum", kind="plain")) == {"kind"}
    # An op whose functions take all attributes, and one without samples.
    assert "beta3" in idle_attributes(_planted("adam", beta3=Attr(0.9, "float")))
    assert idle_attributes(_planted("assert", limit=3)) == {"limit"}


def test_a_wrong_declaration_is_found() -> None:
    wrong = _planted("leaky_relu", alpha=Attr.idle(0.02, "it is not read"))
    assert idle_attributes(wrong) == set()


def test_an_effect_that_only_some_values_show_is_found() -> None:
    def ref(x: Any, out: Any, limit: float) -> None:
        out[...] = np.where(np.isnan(x), limit, x)

    definition = replace(_planted("relu", limit=1.0), pointwise=None, ref=ref, grad=None, attrs={"limit": Attr(1.0)})
    assert idle_attributes(definition) == set()


def test_what_a_function_reads() -> None:
    def function(a: int, b: int, c: int = 1, *d: int, e: int, f: int, **g: int) -> Any:
        def inner() -> int:
            return b + sum(d)

        return inner, (lambda f: f), c, e

    assert loaded(function) == {"b", "c", "d", "e"}
