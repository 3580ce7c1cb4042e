"""The picture of a program: valid XML whatever the names are, everything in its place, and cut where it would be too long."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tests.cpu.nets import regression
from tests.helpers.programs import WILD_NAMES, programs
from tstatic import static
from tstatic.errors import ProgramError
from tstatic.ir.program import Program
from tstatic.viz.picture import ACROSS, FAN, REACH, picture
from tstatic.viz.svg import _COLOURS, clean, short, text_width

ROOT = Path(__file__).parents[2]
NS = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "a & b",
    '"quoted"',
    "]]>",
    "nul\x00",
    "esc\x1b[31m",
    "\ud800",
    "new\nline",
    "日本語",
    "\u202e",
]


def read(program: Program, **options: Any) -> ET.Element:
    return ET.fromstring(program.to_svg(**options))


def test_drawing_is_loaded_with_the_first_picture() -> None:
    code = (
        "import sys, tstatic\n"
        "print('tstatic.viz.svg' in sys.modules, '<svg' in tstatic.static.Program().to_svg(), 'tstatic.viz.svg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False True True\n", done.stderr


def texts(root: ET.Element) -> list[str]:
    return [t.text or "" for t in root.iter(f"{NS}text")]


def titles(root: ET.Element) -> list[str]:
    return [t.text or "" for t in root.iter(f"{NS}title")]


def boxes(root: ET.Element) -> Iterator[tuple[float, float, float, float, str]]:
    """Left, top, right, bottom and fill of every box that stands for an op or a value."""
    for group in root.iter(f"{NS}g"):
        rect = group.find(f"{NS}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        yield x, y, x + w, y + h, rect.attrib["fill"]


def count(root: ET.Element, kind: str) -> int:
    fill, stroke = _COLOURS[kind]
    rects = [g.find(f"{NS}rect") for g in root.iter(f"{NS}g")]
    return sum(r is not None and (r.attrib["fill"], r.attrib["stroke"]) == (fill, stroke) for r in rects)


def trained() -> Program:
    return regression(paddle.optimizer.Adam(0.1))[0]


# --------------------------------------------------------------------------------------------------------- what is shown
def test_every_op_is_drawn_in_the_colour_of_its_role() -> None:
    main = trained()
    root = read(main)
    roles = [op.role for op in main.global_block().ops]
    assert count(root, "forward") == sum(not r & 3 for r in roles) == 7
    assert count(root, "backward") == sum(bool(r & 1) for r in roles) == 8
    assert count(root, "optimize") == sum(bool(r & 2) for r in roles) == 4
    # Forward and backward ops both read the parameters; updates name them.
    assert count(root, "parameter") >= 4
    assert count(root, "data") == 2
    assert {"mul", "tanh_grad", "adam", "updates fc_0.w_0 +4", "backward", "fc_0.tmp_0"} <= set(texts(root))
    assert texts(root).count("adam") == 4


def test_tooltips_have_dtype_shape_attributes_and_the_users_line() -> None:
    found = "\n".join(titles(read(trained())))
    assert "in X: x  float32[?, 3]" in found
    assert "x_num_col_dims = 1" in found
    assert re.search(r"at tests/cpu/nets\.py:\d+", found) or re.search(r"at \S*nets\.py:\d+", found)
    assert "lives in the scope" not in found
    assert "in Moment1: fc_0.w_0_moment1_0  float32[3, 8]" in found
    assert "made by op 0: mul" in found


def test_boxes_do_not_overlap_and_stay_on_the_page() -> None:
    root = read(trained())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    found = sorted(boxes(root))
    assert len(found) > 40
    for i, (left, top, right, bottom, _) in enumerate(found):
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height
        for other in found[i + 1 :]:
            assert other[0] >= right or other[3] <= top or other[1] >= bottom


def test_edges_go_down() -> None:
    numbers = [
        [float(n) for n in re.findall(r"-?[\d.]+", p.attrib["d"])]
        for p in read(trained()).iter(f"{NS}path")
        if p.attrib.get("class", "").startswith("tst-e")
    ]
    assert len(numbers) > 30
    assert all(row[1] < row[-1] for row in numbers)


def test_bodies_of_control_flow_follow_with_a_title() -> None:
    x = static.data("x", [1])
    static.nn.cond(paddle.mean(x) > 0, lambda: paddle.tanh(x), lambda: paddle.exp(x))
    root = read(static.default_main_program())
    found = texts(root)
    assert "block 0" in found
    assert any(re.match(r"block 1, owned by conditional_block of block 0 \(\S*test_svg\.py:\d+\)", t) for t in found)
    assert {"tanh", "exp", "block 1", "block 2"} <= set(found)


def test_an_empty_program_is_a_picture_too() -> None:
    assert texts(read(Program())) == ["0 ops, 0 parameters (0 numbers), 0 variables"]


def test_a_startup_program_fills_rows() -> None:
    _, startup, _ = regression(paddle.optimizer.Adam(0.1))
    shown = picture(startup.global_block(), 100)
    assert shown.layers == -(-len(startup.global_block().ops) // ACROSS)


# -------------------------------------------------------------------------------------------------------- hostile names
def test_hostile_names_give_valid_xml() -> None:
    program = Program()
    block = program.global_block()
    for name in HOSTILE:
        block.create_var(name=name, shape=[-1], dtype="float32", persistable=name == HOSTILE[0]).made_at = (name, 3)
    for a, b in itertools.pairwise(HOSTILE):
        block.append_op("relu", {"X": a}, {"Out": b})
        block.ops[-1].where = (a, 1)
    svg = program.to_svg()
    root = ET.fromstring(svg)
    assert "<script" not in svg
    assert "\x00" not in svg
    svg.encode("utf-8")
    assert any("<script>alert(1)</script>" in t for t in titles(root))
    assert any("nul\\x00" in t for t in titles(root))


@pytest.mark.slow
@given(programs(WILD_NAMES), st.integers(1, 9))
@settings(max_examples=100)
def test_any_program_gives_valid_xml(program: Program, max_ops: int) -> None:
    svg = program.to_svg(max_ops=max_ops)
    svg.encode("utf-8")
    root = ET.fromstring(svg)
    assert sum(count(root, kind) for kind in ("forward", "backward", "optimize", "rate")) <= max(max_ops, ACROSS)


@given(st.text())
def test_cleaned_text_reads_back(text: str) -> None:
    element = ET.fromstring(f'<t a="{clean(text)}">{clean(text)}</t>')
    if text.isprintable():
        assert (element.text or "") == element.attrib["a"] == text
    assert "\n" not in short(text)
    assert len(short(text, 10)) <= 10


def test_widths() -> None:
    assert text_width("日本", 10) == 2 * text_width("ab", 10) > 0


# ---------------------------------------------------------------------------------------------------------------- length
def chain(length: int) -> Program:
    program = Program()
    with static.program_guard(program, Program()):
        x = static.data("x", [4])
        for _ in range(length):
            x = x * 2.0
    return program


def test_a_long_program_is_cut_after_whole_layers_and_says_so() -> None:
    root = read(chain(5000), max_ops=50)
    assert count(root, "forward") == 50
    note = next(t for t in texts(root) if "layers are drawn" in t)
    assert "first 50 of 5,000 layers" in note
    assert "4,950 ops are left out" in note
    assert not any("layers are drawn" in t for t in texts(read(chain(50), max_ops=50)))


def test_blocks_that_find_no_room_are_counted() -> None:
    x = static.data("x", [1])
    static.nn.cond(paddle.mean(x) > 0, lambda: paddle.tanh(x), lambda: paddle.exp(x))
    assert any("2 more blocks are not drawn" in t for t in texts(read(static.default_main_program(), max_ops=1)))


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "all", None])
def test_a_bad_number_of_ops_is_refused(value: Any) -> None:
    with pytest.raises(ProgramError, match="number of ops"):
        Program().to_svg(max_ops=value)


def test_far_values_are_references_and_many_are_listed() -> None:
    main = Program()
    with static.program_guard(main, Program()):
        x = static.data("x", [4])
        values = [paddle.tanh(x) for _ in range(3)]
        y = values[0]
        for _ in range(REACH + 2):
            y = paddle.exp(y)
        paddle.add_n([y, *values])
        many = [paddle.sin(y) for _ in range(40)]
        paddle.add_n(many)
    root = read(main)
    assert count(root, "reference") >= 3
    assert any(re.match(r"\d+ values", t) for t in texts(root))
    # A value that many ops read gets edges to the next layer only.
    shown = picture(main.global_block(), 1000)
    assert max(len(readers) for _, _, readers in shown.values) <= ACROSS
    assert FAN < 40


# -------------------------------------------------------------------------------------------------------------- notebooks
def test_notebooks_show_the_picture() -> None:
    main = trained()
    assert ET.fromstring(main._repr_svg_()).tag == f"{NS}svg"
    html = main._repr_html_()
    assert html.startswith("<div")
    assert html.endswith("</div>")
    assert main._repr_svg_() in html
    # The styles of an inline picture hold for the whole page, so all of them are marked.
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    assert all(rule.startswith(".tst") for rule in style[1].split("\n"))
