"""The folded picture of a program: it fits a page, says of every op in which box it is, and boxes do not lie on one another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings

import tstatic as paddle
from tests.helpers.programs import programs
from tstatic import static
from tstatic.ir.program import Program
from tstatic.viz.overview import HEIGHT, WIDTH, _root, _Shape, overview
from tstatic.viz.svg import MARGIN

NS = "{http://www.w3.org/2000/svg}"


def layers(count: int, scopes: bool = False) -> Program:
    """A training program of so many layers."""
    main = Program()
    with static.program_guard(main, Program()), paddle.utils.unique_name.guard():
        h = static.data("größe<&", [None, 8])
        for i in range(count):
            with static.name_scope(f"level{i}" if scopes else "all"):
                h = paddle.nn.functional.gelu(static.nn.layer_norm(static.nn.fc(h, 8)))
        paddle.optimizer.Adam(0.1).minimize(paddle.mean(h))
    return main


def boxes(shape: _Shape, x: float, y: float) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of every box without boxes inside."""
    if not shape.inside:
        return [(x, y, x + shape.width, y + shape.height)]
    return [box for inner, left, top in shape.inside for box in boxes(inner, x + left, y + top)]


def leaves(shape: _Shape) -> list[int]:
    return shape.ops if not shape.inside else [number for inner, _, _ in shape.inside for number in leaves(inner)]


@pytest.mark.parametrize("scopes", [False, True])
@pytest.mark.parametrize("count", [1, 2, 12, 120])
def test_a_program_of_any_length_fits_a_page(count: int, scopes: bool) -> None:
    root = ET.fromstring(overview(layers(count, scopes)))
    assert float(root.attrib["width"]) <= WIDTH + 2 * MARGIN
    assert float(root.attrib["height"]) <= HEIGHT + 80 + 2 * MARGIN


def test_what_does_not_fit_is_folded_and_counted() -> None:
    few, many = overview(layers(2)), overview(layers(60))
    assert "60 ×" in many
    assert len(re.findall("<title>", many)) < 120
    assert ">layer_norm<" in few, "what fits is open"


@settings(max_examples=20, deadline=None)
@given(programs())
def test_every_op_is_in_one_box_and_boxes_do_not_overlap(program: Program) -> None:
    block = program.global_block()
    assert ET.fromstring(overview(program)).tag == f"{NS}svg"
    for most in (0, 15, 90):
        root = _root(block, most)
        assert sorted(leaves(root)) == list(range(len(block.ops)))
        placed = boxes(root, 0.0, 0.0) if block.ops else []
        for i, (left, top, right, bottom) in enumerate(placed):
            assert left >= 0
            assert right <= root.width + 0.1
            assert bottom <= root.height + 0.1
            for other in placed[:i]:
                apart = (
                    other[2] <= left + 0.1
                    or right <= other[0] + 0.1
                    or other[3] <= top + 0.1
                    or bottom <= other[1] + 0.1
                )
                assert apart


def test_the_method_and_notebooks_draw_it() -> None:
    main = layers(12)
    assert main.to_svg(folded=True) == overview(main)
    assert main._repr_svg_() == overview(main)
    assert main.to_svg() != overview(main)
    assert ET.fromstring(Program().to_svg(folded=True)).tag == f"{NS}svg"
