"""Runs the script of an explanation's page in Node, on a document that keeps what is put into it: numbers, not pictures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.patience import HANG

NODE = shutil.which("node")

DOCUMENT = r"""
const [width, height] = process.argv.slice(3).map(Number);
const all = {};
class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], listeners: {}, text: "", parent: null, hidden: false });
    this.style = { setProperty() {} };
    this.classList = { add: (n) => this.classes().add(n), remove: (n) => this.classes().delete(n),
      toggle: (n, on) => (on ? this.classes().add(n) : this.classes().delete(n)), contains: (n) => this.classes().has(n) };
  }
  classes() { return (this.named = this.named || new Set((this.attributes.class || "").split(" ").filter(Boolean))); }
  get id() { return this.attributes.id; }
  set className(value) { this.attributes.class = value; }
  get textContent() { return this.text; }
  set textContent(value) { this.text = String(value); this.children = []; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name]; }
  appendChild(child) { child.parent = this; this.children.push(child); return child; }
  addEventListener(name, call) { this.listeners[name] = call; }
  contains() { return false; }
  focus() {}
  scrollIntoView() {}
  querySelectorAll() { return []; }
  querySelector() { return null; }
  getContext() { return new Proxy({}, { get: () => () => {}, set: () => true }); }
  getBoundingClientRect() { return { left: 0, top: 0, right: width, bottom: this.clientHeight, width, height: this.clientHeight }; }
  get clientWidth() { return width; }
  get clientHeight() { return parseFloat((all.panel || this).style.height) || height; }
}
for (const id of ["data", "scene", "camera", "panel", "verdict", "minimap", "search", "found", "tab-before", "tab-after",
  "fit", "larger", "smaller", "fold", "unfold"]) {
  all[id] = new Element(id);
  all[id].attributes.id = id;
}
all.search.value = "";
all.data.text = require("fs").readFileSync(process.argv[2], "utf8");
global.document = { getElementById: (id) => all[id], createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag), activeElement: null, documentElement: new Element("html"),
  querySelectorAll: (text) => (text === "[role=tab]" ? [all["tab-before"], all["tab-after"]] : []) };
global.getComputedStyle = () => ({ getPropertyValue: () => "" });
global.matchMedia = () => ({ addEventListener() {} });
global.addEventListener = () => {};
global.ResizeObserver = class { observe() {} };
"""

ANSWER = r"""
const boxes = [], words = [];
(function visit(one) {
  const kind = one.attributes.class || "";
  if (one.tag === "rect" && kind !== "chip" && kind !== "back")
    boxes.push({ kind, x: +one.attributes.x, y: +one.attributes.y, w: +one.attributes.width, h: +one.attributes.height });
  if (one.tag === "text") words.push(kind);
  one.children.forEach(visit);
})(all.camera);
const numbers = all.camera.attributes.transform.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
console.log(JSON.stringify({ x: numbers[0], y: numbers[1], k: numbers[2], height: all.scene.clientHeight, boxes, words }));
"""


def first_sight(page: str, width: int, height: int, folder: Path, then: str = "") -> dict[str, Any]:
    """Returns what the page of an explanation draws when it opens.

    Args:
        page: The page.
        width, height: Pixels of the box around the drawing, before the script may change its height.
        folder: For the files that Node reads.
        then: A line of JavaScript that runs before the answer: ``all.unfold.listeners.click()``.

    Returns:
        ``k``, ``x``, ``y``: scale and place of the drawing; ``height`` of its box; ``boxes`` in units of the drawing; ``words``:
        the class of each text.
    """
    assert NODE is not None
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    (script,) = re.findall(r"<script>\n(.*?)\n</script>", page, re.DOTALL)
    (folder / "data.json").write_text(data)
    (folder / "page.js").write_text(f"{DOCUMENT}\n{script}\n{then}\n{ANSWER}")
    done = subprocess.run(
        [NODE, "page.js", "data.json", str(width), str(height)],
        cwd=folder, capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def font_sizes(page: str) -> dict[str, float]:
    """Returns the size of each kind of text in the drawing, in its units; the one of kinds without a rule is ``""``."""
    (style,) = re.findall(r"<style>\n(.*?)\n</style>", page, re.DOTALL)
    found: dict[str, float] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", style):
        sizes = re.findall(r"font(?:-size)?:(?:\d+ )?([\d.]+)px", body)
        for selector in selectors.split(","):
            if sizes and selector.strip().startswith("#scene "):
                kind = selector.strip().removeprefix("#scene ").removeprefix("text").removeprefix(".")
                found[kind] = float(sizes[-1])
    return found
