"""The page that shows an explanation: self-contained, escaped, and usable by clicks and keys."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.browser import Browser, browsing, chromium
from tests.helpers.fusion_programs import CASES, build
from tests.helpers.page_in_node import NODE, first_sight, font_sizes
from tstatic import errors, static
from tstatic.display import size
from tstatic.viz.svg import clean

F = paddle.nn.functional
VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes and texts; checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {n: v or "" for n, v in attrs}))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {n: v or "" for n, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [a for t, a in self.elements if t == tag and all(a.get(n) == v for n, v in wanted.items())]


def strategy(**switches: bool) -> Any:
    made = static.BuildStrategy()
    for name, value in switches.items():
        setattr(made, name, value)
    return made


def explained(case: int = 25, **switches: bool) -> Any:
    built = build(CASES[case])
    shapes = {n: a.shape for n, a in built.feed.items()}
    compiled = static.CompiledProgram(built.main, strategy(**(switches or {"fuse_elewise_add_act_ops": True})))
    return compiled.explain(fetch_list=built.fetches, feed_shapes=shapes)


def refusing() -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 4], "float32")
        s = x + x
        y = F.relu(s)
        z = paddle.exp(paddle.reshape(y * 2.0, [-1]))
    compiled = static.CompiledProgram(main, strategy(fuse_elewise_add_act_ops=True))
    return compiled.explain(fetch_list=[s, y, z])


def test_the_page_needs_nothing_else() -> None:
    text = explained().to_html()
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on"), name
            if name in ("src", "href", "xlink:href", "action", "poster", "data"):
                assert value.startswith("#"), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", text)
    assert re.findall(r"https?://\S*", text) == []


def test_the_script_is_whole_wherever_its_parts_lie() -> None:
    script = Page(explained().to_html()).texts["script"][1]
    assert re.findall(r"HERE: .*", script) == []
    for name in ("prepare", "measure", "arrange", "redraw", "choose"):
        assert len(re.findall(rf"\n  function {name}\(", script)) == 1, name


def test_only_its_own_script_may_run() -> None:
    page = Page(explained().to_html())
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    scripts = page.texts["script"]
    assert [a.get("type") for a in page.all("script")] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@pytest.mark.parametrize("switch", ["fuse_elewise_add_act_ops", "enable_auto_fusion"])
def test_kernels_stand_there_with_figures(switch: str) -> None:
    found = explained(**{switch: True})
    assert found.kernels
    text = found.to_html()
    shown = Page(text).texts["pre"]
    assert shown == list(dict.fromkeys(k.text for k in found.kernels)), "each text once"
    for row in found.to_dict()["fusions"]["applied"]:
        source = row["source"]
        assert clean(source["text"]) in text
        assert f"moves at least {source['bytes']:,} bytes: {source['floor_us']:.3f} µs" in text
        assert f"<td>{source['launches'][0]['function']}</td>" in text
    t = found.traffic
    assert f">{t.launches_before:,} → {t.launches_after:,}</b>" in text
    assert (
        f'<b title="{t.bytes_before:,} → {t.bytes_after:,} bytes">{size(t.bytes_before)} → {size(t.bytes_after)}</b>'
        in text
    )


def test_verdicts_stand_there() -> None:
    found = refusing()
    text = html.unescape(found.to_html())
    assert [r.code for r in found.refused] == ["FETCHED"]
    (no,) = found.refused
    for part in (no.code, no.reason, no.change, "test_explain_html.py:", "elementwise_add", "relu", found.note):
        assert part in text, part
    for v in found.verdicts:
        assert v.name in text
        assert v.reason in text


def notes(found: Any, max_ops: int = 60) -> dict[str, dict[str, Any]]:
    """View -> number of op -> what the page says of it, with its notes in place."""
    page = Page(found.to_html(max_ops))
    data: dict[str, Any] = json.loads(page.texts["script"][0])
    drawing = found.drawing()
    views = {}
    for view, program in (("before", drawing.before), ("after", drawing.after)):
        rows = data[view]["ops"]
        assert [row["type"] for row in rows] == [op.type for op in program.global_block().ops]
        views[view] = {
            f"0.{i}": {**row, "notes": [data[view]["notes"][n] for n in row["notes"]]} for i, row in enumerate(rows)
        }
    return views


def kinds(rows: dict[str, Any], kind: str) -> set[str]:
    """Types of the ops with a note of a kind."""
    return {r["label"].split(" ")[0] for r in rows.values() if any(n[0] == kind for n in r["notes"])}


def test_ops_carry_their_verdicts() -> None:
    data = notes(refusing())
    assert kinds(data["before"], "refused") == {"elementwise_add", "relu"}
    assert kinds(data["before"], "applied") == set()
    assert {"scale", "relu"} <= kinds(data["before"], "off"), "what the other switches would do"
    found = explained(8)
    data = notes(found)
    assert kinds(data["before"], "applied") >= {"elementwise_add", "relu", "elementwise_add_grad", "relu_grad"}
    assert kinds(data["after"], "applied") == {"fused_elemwise_add_activation", "fused_elemwise_add_activation_grad"}
    page = Page(found.to_html())
    ids = {a["id"] for _, a in page.elements if "id" in a}
    targets = {n[3] for v in data.values() for r in v.values() for n in r["notes"] if n[3]}
    assert targets
    assert targets <= ids


def test_a_removed_op_says_so() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4], "float32")
        y = F.relu(x)
        paddle.exp(x)
    data = notes(static.CompiledProgram(main).explain(fetch_list=[y]))
    assert kinds(data["before"], "gone") == {"exp"}
    assert {r["label"].split(" ")[0] for r in data["after"].values()} == {"relu"}


def test_ids_are_unique_and_references_are_met() -> None:
    text = explained().to_html()
    page = Page(text)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, a in page.elements:
        for name in ("aria-controls", "aria-labelledby"):
            assert a.get(name, ids[0]) in ids
    assert {a["href"][1:] for _, a in page.elements if a.get("href")} <= set(ids)


def test_tabs_and_style_are_usable() -> None:
    page = Page(explained().to_html())
    assert [a["aria-selected"] for a in page.all("button", role="tab")] == ["true", "false"]
    assert len(page.all("div", role="tabpanel")) == 1
    assert "prefers-color-scheme:dark" in page.texts["style"][0]


HOSTILE = [
    "</script><img src=x onerror=alert(1)>", "<!--<script>", "\"'><svg onload=alert(1)>", "&lt;b&gt;&amp;", "a\nb\x00\x1b",
    "]]>", "url(#tst-ea)", '" id="tst-ea"', "\ud800", "\u2028", "javascript:alert(1)", "{{x}}", 'data-op="0.0"',
]  # fmt: skip


def named(name: str, switch: str) -> Any:
    """An explanation of a program whose input and inner value have a name."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data(name, [3, 4], "float32")
        block = main.global_block()
        inner = block.create_var(name=f"{name} inner", shape=[3, 4], dtype="float32")
        block.append_op(type="elementwise_add", inputs={"X": [x], "Y": [x]}, outputs={"Out": [inner]})
        a = F.relu(inner)
        y = paddle.exp(a + 1.0)
    made = static.CompiledProgram(main, strategy(**{switch: True}))
    return made.explain(fetch_list=[inner, y])


@pytest.mark.parametrize("switch", ["enable_auto_fusion", "fuse_elewise_add_act_ops"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str, switch: str, tmp_path: Path) -> None:
    found = named(name, switch)
    assert bool(found.applied) == (switch == "enable_auto_fusion")
    assert bool(found.refused) == (switch != "enable_auto_fusion")
    text = found.to_html()
    page, plain = Page(text), Page(named("plain", switch).to_html())

    def form(p: Page) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in p.elements]

    assert form(page) == form(plain), "a name changes no element and no attribute's name"
    assert [a.get("id") for _, a in page.elements] == [a.get("id") for _, a in plain.elements]
    assert json.loads(page.texts["script"][0])["before"]["ops"][0]["label"] == f"elementwise_add → {name} inner"
    found.save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().decode("utf-8") == text


def test_the_header_says_program_date_version_and_strategy() -> None:
    text = html.unescape(refusing().to_html())
    (header,) = re.findall(r'<p class="note" id="header">(.*?)</p>', text)
    assert re.search(
        r"Program.*5 ops.* · \d{4}-\d\d-\d\d \d\d:\d\d .* · tstatic " + re.escape(paddle.__version__), header
    )
    assert "fuse_elewise_add_act_ops = True" in header
    with pytest.raises(errors.ProgramError, match="open at first"):
        refusing().to_html(max_ops=0)


def test_edges_have_the_bytes_of_their_values() -> None:
    data = json.loads(Page(refusing().to_html()).texts["script"][0])["before"]
    types = [op["type"] for op in data["ops"]]
    rows = {(types[a], types[b]): (size, names) for a, b, size, names in data["edges"]}
    # 16 rows of 4 floats: the size that the program leaves open was assumed.
    assert rows["elementwise_add", "relu"][0] == 16 * 4 * 4
    assert rows["elementwise_add", "relu"][1][0].endswith("(256 bytes)")
    assert data["ops"][0]["reads"] == ["x (256 bytes)"]


def test_the_ops_of_a_kernel_have_its_colour() -> None:
    found = explained(8)
    data = json.loads(Page(found.to_html()).texts["script"][0])
    for number in range(len(found.kernels)):
        members = [op["type"] for op in data["before"]["ops"] if op["colour"] == number]
        assert members == [m.type for m in found.applied[number].members]
        assert [op["type"] for op in data["after"]["ops"] if op["colour"] == number] == [found.applied[number].op]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.TstaticError, match="could not be written") as found:
        explained().save_html(tmp_path / "missing" / "page.html")
    assert "No such file" in str(found.value)


def test_an_explanation_outlives_changes_of_the_program() -> None:
    built = build(CASES[0])
    found = static.CompiledProgram(built.main, strategy(fuse_elewise_add_act_ops=True)).explain(
        fetch_list=built.fetches[:1]
    )
    before = found.to_html()
    with static.program_guard(built.main):
        paddle.exp(built.main.global_block().var("x0"))
    assert found.to_html() == before


# ------------------------------------------------------------------------------------------------------------- first sight
needs_node = pytest.mark.skipif(NODE is None, reason="no Node found")
WIDE, NARROW = (850, 560), (560, 468)
"""The box around the drawing in windows of 1,280 and 600 pixels."""


@needs_node
@pytest.mark.parametrize("box", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("which", ["fused", "refused", "one layer", "16 layers"])
def test_at_first_sight_the_drawing_fills_its_width_and_can_be_read(
    which: str, box: tuple[int, int], tmp_path: Path
) -> None:
    """Guards the first look: a drawing shrunk to its box's height took 23 % of the width, with texts of 4 pixels."""
    found = {
        "fused": explained,
        "refused": refusing,
        "one layer": lambda: layered(1),
        "16 layers": lambda: layered(16),
    }[which]()
    page = found.to_html()
    seen = first_sight(page, *box, tmp_path)
    boxes = [b for b in seen["boxes"] if b["kind"] == "box"]
    left, right = min(b["x"] for b in seen["boxes"]), max(b["x"] + b["w"] for b in seen["boxes"])
    assert (right - left) * seen["k"] >= 0.7 * box[0]
    sizes = font_sizes(page)
    words = {word.split()[0] if word else "" for word in seen["words"]}
    assert {"type", "sub"} <= words
    assert min(sizes.get(word, sizes[""]) for word in words) * seen["k"] >= 11
    # All of it is inside the box, which is as tall as that takes, and no box lies on another.
    for b in seen["boxes"]:
        assert -1 <= b["x"] * seen["k"] + seen["x"] <= box[0] + 1 - b["w"] * seen["k"]
        assert -1 <= b["y"] * seen["k"] + seen["y"] <= seen["height"] + 1 - b["h"] * seen["k"]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            across = a["x"] < b["x"] + b["w"] - 0.5 and b["x"] < a["x"] + a["w"] - 0.5
            assert not (across and a["y"] < b["y"] + b["h"] - 0.5 and b["y"] < a["y"] + a["h"] - 0.5)


@needs_node
def test_a_program_unfolded_as_a_whole_stays_inside_its_box(tmp_path: Path) -> None:
    seen = first_sight(layered(16).to_html(), *NARROW, tmp_path, "all.unfold.listeners.click();")
    assert len(seen["boxes"]) > 150
    assert seen["height"] <= 3000
    assert max(b["y"] + b["h"] for b in seen["boxes"]) * seen["k"] + seen["y"] <= seen["height"] + 1


def test_in_a_narrow_window_the_answer_stays_in_sight_above_the_drawing() -> None:
    """Guards the answer to a click: in a window of 600 pixels it lay below the box, out of sight."""
    page = Page(explained().to_html())
    (style,) = page.texts["style"]
    (narrow,) = re.findall(r"@media \(max-width:60rem\)\{((?:[^{}]*\{[^{}]*\})*)\}", style)
    rules = dict(re.findall(r"([^{}]+)\{([^{}]*)\}", narrow))
    rules = {selector.strip(): body for selector, body in rules.items()}
    assert {"order:-1", "top:0", "overflow-y:auto"} <= set(rules["#verdict"].strip().split(";"))
    assert "position:sticky" in style.split("#verdict{")[1].split("}")[0]
    # 60rem of 16 pixels are more than 600.
    assert "grid-template-columns:minmax(0,1fr)" in rules[".views"]


def test_fusions_made_say_what_they_save() -> None:
    found = explained()
    text = found.to_html()
    assert found.saved
    assert f"Fusions made ({len(found.applied)}, {size(sum(one.nbytes for one in found.saved))} saved a step)" in text
    for made, saved in zip(found.applied, found.saved, strict=True):
        said = f'Saves <b title="{saved.nbytes:,} bytes">{size(saved.nbytes)}</b>'
        assert (said in text) == (made.kernel is not None or bool(made.rewritten))


# -------------------------------------------------------------------------------------------------------------- a browser
needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="no Chromium found (chromium, chromium-browser, google-chrome, TSTATIC_CHROMIUM)"
)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("which", ["fused", "refused"])
def test_a_browser_clicks_through_it(which: str, tmp_path: Path) -> None:
    found = explained() if which == "fused" else refusing()
    file = tmp_path / "page.html"
    found.save_html(file)
    data = notes(found)
    with browsing(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        for view in ("after", "before"):
            browser.click(f"document.getElementById('tab-{view}')")
            assert shown(browser) == view
            assert drawn_ops(browser) == sorted(data[view])
            for number, row in data[view].items():
                click_op(browser, number, row)
        for key, view in (("ArrowRight", "after"), ("ArrowLeft", "before")):
            browser.press_on("document.querySelector('[role=tab][aria-selected=true]')", key)
            assert shown(browser) == view
        assert browser.evaluate("document.activeElement.id") == "tab-before", "the focus moves with the choice"
        texts = list(dict.fromkeys(k.text for k in found.kernels))
        for i, kernel in enumerate(found.kernels):
            details = f"document.querySelectorAll('details.kernel')[{i}]"
            assert browser.evaluate(f"{details}.open") is False
            browser.click(f"{details}.querySelector('summary')")
            assert browser.evaluate(f"{details}.open") is True
            if kernel.text in texts:
                texts.remove(kernel.text)
                assert browser.evaluate(f"{details}.querySelector('pre').textContent") == kernel.text
        linked, target = next((n, r["notes"][0][3]) for n, r in data["before"].items() if r["notes"][0][3])
        click_op(browser, linked, data["before"][linked])
        browser.click("document.querySelector('#verdict a')")
        assert browser.evaluate("document.querySelector(':target').id") == target
        assert browser.complaints == []


def shown(browser: Browser) -> str:
    """The view that can be seen."""
    view: str = browser.evaluate("document.getElementById('scene').dataset.view")
    assert browser.evaluate("document.getElementById('panel').getAttribute('aria-labelledby')") == f"tab-{view}"
    return view


def drawn_ops(browser: Browser) -> list[str]:
    found = browser.evaluate("Array.from(document.querySelectorAll('#scene [data-op]')).map(n => n.dataset.op)")
    return sorted(found)


def click_op(browser: Browser, number: str, row: dict[str, Any]) -> None:
    """A click on an op, and Enter on it, show its notes; it alone is marked."""
    node = f"document.querySelector('#scene [data-op=\"{number}\"]')"
    wanted = [row["label"], row["where"], *(part for n in row["notes"] for part in n[1:3])]
    for choose in (browser.click, lambda n: browser.press_on(n, "Enter")):
        browser.evaluate("document.getElementById('verdict').textContent = ''")
        choose(node)
        text = browser.evaluate("document.getElementById('verdict').textContent")
        assert [part for part in wanted if part not in text] == [], (number, text)
        assert browser.evaluate(f"{node}.classList.contains('chosen')")
        assert browser.evaluate("document.querySelectorAll('g.chosen').length") == 1
    targets = browser.evaluate("Array.from(document.querySelectorAll('#verdict a')).map(n => n.getAttribute('href'))")
    assert targets == [f"#{n[3]}" for n in row["notes"] if n[3]]
    assert all(browser.evaluate(f"document.querySelector('{t}') !== null") for t in targets)


@cache
def layered(layers: int) -> Any:
    """An explanation of a net of equal layers that trains, with its inputs in a name scope."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        with static.name_scope("stem"):
            h = static.data("x", [None, 8]) * 2.0 + 1.0
        for _ in range(layers):
            h = static.nn.layer_norm(h + F.gelu(static.nn.fc(h, 8)))
        loss = paddle.mean(h)
        paddle.optimizer.SGD(0.1).minimize(loss)
    return static.CompiledProgram(main, strategy(fuse_elewise_add_act_ops=True)).explain([loss])


INSIDE = """(() => { const p = document.getElementById('panel').getBoundingClientRect();
const all = Array.from(document.querySelectorAll('#camera .box, #camera .frame')).map(n => n.getBoundingClientRect());
return all.every(r => r.left >= p.left - 1 && r.right <= p.right + 1 && r.top >= p.top - 1 && r.bottom <= p.bottom + 1)
  && all.length; })()"""
"""How many boxes are drawn, if all are inside the panel; else false."""
OVERLAPS = """(() => { const all = Array.from(document.querySelectorAll('#camera .box')).map(n => n.getBoundingClientRect());
return all.filter((a, i) => all.some((b, j) => j > i && a.left < b.right - 0.5 && b.left < a.right - 0.5
  && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5)).length; })()"""
VIEWED = "(() => { const r = document.getElementById('camera').getAttribute('transform'); return r; })()"


def scrolls_inside(browser: Browser) -> list[str]:
    """The elements that scroll by themselves."""
    found: list[str] = browser.evaluate(
        "Array.from(document.querySelectorAll('body *')).filter(n => ['auto', 'scroll'].includes(getComputedStyle(n).overflowY))"
        ".map(n => n.tagName)"
    )
    return found


@needs_chromium
@pytest.mark.parametrize("layers", [1, 16])
def test_it_opens_on_the_whole_program_at_three_widths_light_and_dark(layers: int, tmp_path: Path) -> None:
    found = layered(layers)
    file = tmp_path / "page.html"
    found.save_html(file)
    pictures = set()
    with browsing(tmp_path / "profile") as browser:
        for width, height, dark in (
            (1280, 900, False),
            (1280, 900, True),
            (900, 800, False),
            (600, 900, False),
            (600, 900, True),
        ):
            browser.resize(width, height, dark)
            browser.open(file.as_uri())
            browser.evaluate("document.querySelector('.bar').scrollIntoView()")
            count = browser.evaluate(INSIDE)
            assert count, f"{width}: a box lies outside"
            assert count <= 70
            assert browser.evaluate(OVERLAPS) == 0
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                "nothing is wider than the page"
            )
            assert scrolls_inside(browser) == (["ASIDE"] if width <= 960 else []), (
                "the verdict, where it lies above the drawing"
            )
            panel, verdict = (
                browser.evaluate(
                    f"(r => [r.left, r.top, r.right, r.bottom])(document.getElementById('{n}').getBoundingClientRect())"
                )
                for n in ("panel", "verdict")
            )
            if width >= 1280:
                assert verdict[0] >= panel[2], "beside"
                assert verdict[1] < panel[3]
            elif width == 600:
                assert verdict[3] <= panel[1] + 1, "above"
            browser.click("document.querySelector('#scene [data-op]')")
            assert browser.evaluate(
                "(r => r.top >= 0 && r.top < innerHeight)(document.querySelector('#verdict h3').getBoundingClientRect())"
            ), "what was asked for is seen without scrolling"
            picture = browser.screenshot()
            assert picture.startswith(b"\x89PNG")
            pictures.add(picture)
        assert len(pictures) == 5, "dark differs from light, and each width from the others"
        assert browser.complaints == []


@needs_chromium
def test_groups_fold_and_unfold_and_everything_can_be_found(tmp_path: Path) -> None:
    found = layered(16)
    file = tmp_path / "page.html"
    found.save_html(file)
    count = len(found.drawing().before.global_block().ops)
    groups = "Array.from(document.querySelectorAll('[data-group] .title')).map(n => n.textContent.slice(2))"
    with browsing(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        titles = browser.evaluate(groups)
        assert {"forward", "backward", "update", "stem"} <= set(titles)
        assert any(t.startswith("16 × ") for t in titles)
        assert len(drawn_ops(browser)) < count
        browser.click("document.getElementById('unfold')")
        assert len(drawn_ops(browser)) == count
        assert browser.evaluate(OVERLAPS) == 0
        assert browser.evaluate(INSIDE)
        assert "16 of 16" in browser.evaluate(groups)
        browser.click("document.getElementById('fold')")
        few = drawn_ops(browser)
        assert len(few) < 12
        # A search opens what is folded, and goes there.
        browser.evaluate("document.getElementById('search').focus()")
        browser.type("layer_norm_13.")
        assert "Enter goes there" in browser.evaluate("document.getElementById('found').textContent")
        browser.press("Enter")
        assert browser.evaluate("document.getElementById('found').textContent").startswith("1 of ")
        assert "layer_norm_13." in browser.evaluate("document.querySelector('#verdict h3').textContent")
        panel, chosen = (f"document.querySelector('{n}').getBoundingClientRect()" for n in ("#panel", "g.chosen .box"))
        inside = "r.left > p.left && r.right < p.right && r.top > p.top && r.bottom < p.bottom && r.height > 20"
        assert browser.evaluate(f"((p, r) => {inside})({panel}, {chosen})")
        assert not browser.evaluate("document.getElementById('minimap').hidden"), (
            "a part is seen, so the map says where"
        )
        browser.evaluate("document.getElementById('search').select()")
        browser.type("no such thing")
        assert browser.evaluate("document.getElementById('found').textContent") == "nothing found"
        # Fit shows everything again.
        browser.click("document.getElementById('fit')")
        assert browser.evaluate(INSIDE)
        assert browser.complaints == []


@pytest.mark.skipif("TSTATIC_SOAK" not in os.environ, reason="TSTATIC_SOAK=1 opens 5,000 operators, in two minutes")
@needs_chromium
def test_five_thousand_operators_open_folded_and_unfold(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    found = layered(335)
    count = len(found.drawing().before.global_block().ops)
    assert count > 5000
    found.save_html(file)
    with browsing(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        assert browser.evaluate(INSIDE)
        assert len(drawn_ops(browser)) < 60
        browser.click("document.getElementById('unfold')")
        assert len(drawn_ops(browser)) == count
        assert browser.evaluate(INSIDE)
        assert browser.complaints == []


@needs_chromium
def test_the_keyboard_does_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    layered(16).save_html(file)
    focus = "(n => n.getAttribute('data-op') || n.getAttribute('data-group') || n.id)(document.activeElement)"
    with browsing(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        browser.evaluate("document.getElementById('scene').focus()")
        start = browser.evaluate(VIEWED)
        browser.press("+")
        larger = browser.evaluate(VIEWED)
        browser.press("-")
        browser.press("0")
        assert larger != start
        assert browser.evaluate(VIEWED) == start
        seen = []
        for _ in range(20):
            browser.press("ArrowDown")
            seen.append(browser.evaluate(focus))
            if "16 × " in browser.evaluate("document.activeElement.textContent"):
                break
        assert seen[0].startswith("g")
        expanded = "document.activeElement.getAttribute('aria-expanded')"
        groups = "document.querySelectorAll('[data-group]').length"
        count = browser.evaluate(groups)
        assert browser.evaluate(expanded) == "true"
        browser.press("Enter")
        assert browser.evaluate(expanded) == "false"
        assert browser.evaluate(groups) == count - 16
        assert "operators; folded" in browser.evaluate("document.getElementById('verdict').textContent")
        browser.press("Enter")
        assert browser.evaluate(groups) == count
        browser.press("ArrowDown")
        assert " of 16" in browser.evaluate("document.activeElement.textContent")
        browser.press("Escape")
        assert browser.evaluate(groups) == count - 16
        assert browser.evaluate("document.activeElement.textContent").startswith("▸ 16 × ")
        browser.press("/")
        assert browser.evaluate(focus) == "search"
        stops = browser.evaluate("document.querySelectorAll('#camera [tabindex=\"0\"]').length")
        assert stops == 1, "Tab enters the drawing once, not once for each operator"
        assert browser.complaints == []


@needs_chromium
def test_a_browser_says_what_a_page_does_wrong(tmp_path: Path) -> None:
    """The complaints can be seen: an error of the script, and a script that the page's policy refuses."""
    file = tmp_path / "page.html"
    explained().save_html(file)
    text = file.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("<h1>", "<script>document.title = 'taken'</script><h1>"), encoding="utf-8")
    with browsing(tmp_path / "profile") as browser:
        browser.open(broken.as_uri())
        assert browser.evaluate("document.title") == "tstatic: what the strategy did"
        assert len(browser.complaints) == 1
        assert "Content Security Policy" in browser.complaints[0]
        file.write_text(re.sub("<script>.*</script>", "<script>missing()</script>", text, flags=re.DOTALL).replace(
            "script-src", "script-src 'unsafe-inline'; not"), encoding="utf-8")  # fmt: skip
        browser.open(file.as_uri())
        browser.evaluate("1")
        assert "missing is not defined" in browser.complaints[-1]
