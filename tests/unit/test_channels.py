"""Formulas on channels: which terms results need, which have all elements, which wait for a function of a channel."""

from __future__ import annotations

from tstatic.ir.channels import Channels

TEXTS = {
    "center": "cmean(x)",
    "offset": "center * rate",
    "Y": "x - offset",
    "Count": "center * 0 + n",
    "Shifted": "x + bias",
}


def channels(shape: tuple[int, ...] = (2, 3, 5), axis: int = 1) -> Channels:
    return Channels(TEXTS, shape, axis, ("X",))


def test_only_what_wanted_results_need_is_left() -> None:
    bound = channels().bind_attributes({"rate": 0.5, "name": "text"}, ["Y"])
    assert {n: str(node) for n, node in bound.nodes.items()} == {
        "center": "cmean(x)", "offset": "(center * 0.5)", "y": "(x - offset)",
    }  # fmt: skip
    assert bound.outputs == {"Y": "y"}
    assert list(bound.sums) == ["center"]
    assert str(bound.inlined()["Y"]) == "(x - (cmean(x) * 0.5))"


def test_terms_have_all_elements_or_one_per_channel_and_may_wait_for_a_sum() -> None:
    bound = channels().bind_attributes({"rate": 0.5}, ["Y", "Count", "Shifted"])
    assert bound.data == {"x", "y", "shifted"}
    assert bound.late == {"center", "offset", "y", "count"}
    assert str(bound.nodes["count"]) == "((center * 0) + 10)"


def test_needs_stop_at_what_is_known() -> None:
    bound = channels().bind_attributes({"rate": 0.5}, ["Y", "Shifted"])
    assert bound.needs(["y", "shifted"]) == ("bias", "x", "center", "offset", "y", "shifted")
    assert bound.needs(["y"], ["offset"]) == ("x", "offset", "y")
    assert bound.needs([]) == ()


def test_values_per_channel_broadcast_against_the_data() -> None:
    assert channels().per_channel == (1, 3, 1)
    assert channels((4, 7), 1).per_channel == (1, 7)
