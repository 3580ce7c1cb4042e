"""The generated pages say what their sources say, and links between pages lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert broken == []
