"""The generated pages say what their sources say, and links between pages lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.helpers.snippets import python_blocks

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"]

_spec = importlib.util.spec_from_file_location("regenerate", ROOT / "docs" / "regenerate.py")
assert _spec is not None
assert _spec.loader is not None
regenerate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(regenerate)


def test_generated_pages_are_current() -> None:
    assert regenerate.stale() == [], "run `make docs`"


def test_a_stale_page_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = regenerate.stale()
    monkeypatch.setitem(regenerate.PAGES, "flags.md", lambda: "something else\n")
    assert set(regenerate.stale()) - set(before) == {"flags.md"}


def test_the_speeds_in_the_readme_are_those_of_the_newest_bench() -> None:
    newest = max((ROOT / "bench" / "results").glob("cpu-*.md")).read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Speed")[2]
    shown = [cell for line in readme.splitlines() for cell in re.findall(r"\| (\d\.\d\d) (?=\|)", line)]
    assert len(shown) >= 10
    assert [ratio for ratio in shown if f"**{ratio}** by medians" not in newest] == []


def test_the_gallery_shows_every_example() -> None:
    gallery = regenerate.gallery
    assert set(gallery.RUNS) == {p.stem for p in gallery.EXAMPLES.glob("*.py")} - {"__main__", "library", "training"}
    assert {p.stem for p in gallery.PICTURES.glob("*.png")} == set(gallery.SHOWS)
    assert [p.name for p in gallery.PICTURES.glob("*.png") if p.stat().st_size > 60_000] == []


def test_every_page_of_the_tutorials_and_recipes_has_code_that_runs() -> None:
    pages = [p for folder in ("tutorials", "howto") for p in (ROOT / "docs" / folder).glob("*.md") if p.stem != "index"]
    assert len(pages) >= 13
    assert [p.name for p in pages if len(python_blocks(p)) < 2] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert broken == []
