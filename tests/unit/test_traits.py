"""The record of an op: few fields, and a trait for what few ops state."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import tstatic
from tests.helpers import source
from tstatic.ir import traits
from tstatic.ir.opdef import OPS, Behaviour, GradOp, OpDef, op_def
from tstatic.ir.traits import Activation, HostOnly, Numbers, Reason, Slots, Trait, Waits

PACKAGE = Path(tstatic.__file__).parent
TRAITS = [one for name in traits.__all__ if (one := getattr(traits, name)) not in (Trait, Reason, Slots)]


def test_the_record_has_few_fields_and_says_those_of_backward_ops_once() -> None:
    assert len(fields(OpDef)) <= 38
    shared = {one.name for one in fields(Behaviour)}
    both = {one.name for one in fields(OpDef)} & {one.name for one in fields(GradOp)}
    # The slots are positional; a reference may be a bare function in either, which the definition wraps.
    assert both - shared == {"slots", "ref"}


@cache
def _uses() -> dict[str, set[str]]:
    """Trait -> modules that name it."""
    found: dict[str, set[str]] = {one.__name__: set() for one in TRAITS}
    for path in source.files():
        text = source.text(path)
        if "tstatic.ir.traits" not in text and "import traits" not in text:
            continue
        for node in source.nodes(path):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name in found:
                found[name].add(str(path.relative_to(PACKAGE)))
    return found


@pytest.mark.parametrize("kind", TRAITS, ids=lambda kind: kind.__name__)
def test_a_trait_has_a_second_user_or_the_name_of_its_op(kind: type[Trait]) -> None:
    used = _uses()[kind.__name__]
    asks = {one for one in used if not one.startswith(("ops", "extras"))}
    own = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    # Only tests ask why a form is many calls: the reason is for who reads the definition.
    assert asks or kind is traits.ManyCalls, f"nobody asks for {kind.__name__}"
    for type in OPS:
        op_def(type)  # loads it, with the backward op that it states
    states = {type for type, definition in OPS.loaded.items() if definition.has(kind)}
    assert states, f"no op states {kind.__name__}"
    assert len(states) > 1 or len(asks) > 1 or states == {own}, (states, asks)


def test_an_op_answers_with_its_traits() -> None:
    definition = OpDef("test_traits_only", "X -> Out", traits=(HostOnly("it reads", "Lengths"), Waits("it counts")))
    assert definition.trait(HostOnly) == HostOnly("it reads", "Lengths")
    assert definition.has(Waits)
    assert not definition.has(Activation)
    assert definition.why(Waits) == "it counts"
    assert definition.slots_of(Numbers) == ()
    assert definition.trait(Numbers) is None
    with pytest.raises(AssertionError, match="no Numbers is stated"):
        definition.needs(Numbers)
    assert HostOnly("it reads").where("Lengths") == HostOnly("it reads", "Lengths")


def test_a_backward_op_has_its_own_traits_alone() -> None:
    assert op_def("tanh").has(Activation)
    assert not op_def("tanh_grad").has(Activation)
    assert op_def("eig").has(Waits)
    assert op_def("eig_grad").has(HostOnly)


def test_what_is_bound_to_a_slot_holds_where_that_is_given() -> None:
    definition = op_def("lstm_sequence")
    reason = definition.why(HostOnly)
    assert definition.host_reason_of(lambda slot: False) == ""
    assert definition.host_reason_of(lambda slot: slot == "SequenceLength") == reason != ""
