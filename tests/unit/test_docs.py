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
speed_table = regenerate.speed_table


def test_generated_pages_are_current() -> None:
    assert regenerate.stale() == {}, "run `make docs`"


def test_a_stale_page_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "flags.md" not in regenerate.stale(["flags.md", "errors.md"])
    monkeypatch.setitem(regenerate.PAGES, "flags.md", lambda: "something else\n")
    assert regenerate.stale(["flags.md"]) == {"flags.md": "something else\n"}


def speeds(page: Path) -> list[str]:
    """The ratios in the tables of networks of a page."""
    text = page.read_text(encoding="utf-8").partition("`tstatic bench` of")[0]
    return [cell for line in text.splitlines() for cell in re.findall(r"\| (\d\.\d\d)\*? (?=\|)", line)]


def test_the_speeds_on_their_page_are_those_of_the_newest_bench() -> None:
    shown = speeds(ROOT / "docs" / "speed.md")
    newest = speed_table.ratios(speed_table.read())
    # Every pair that was measured, the lost ones among them, and nothing else.
    assert sorted(shown) == sorted(f"{ratio:.2f}" for ratio, _ in newest.values())
    assert len(shown) >= 20
    assert any(float(ratio) > 1 for ratio in shown)


def test_the_speeds_in_the_readme_stand_on_the_page_too() -> None:
    shown, known = speeds(ROOT / "README.md"), speeds(ROOT / "docs" / "speed.md")
    assert len(shown) >= 10
    assert not set(shown) - set(known)


def test_a_result_on_record_is_shown_with_every_peer_unless_it_was_disturbed_throughout() -> None:
    def row(name: str, median: float, quiet: int = 3, threads: int = 2) -> dict[str, object]:
        return {"name": name, "threads": threads, "median_s": median, "quiet_turns": quiet}

    rows = [row("tstatic", 1.0), row("torch", 2.0), row("torch", 0.1, threads=1), row("paddle", 4.0)]
    rows += [row("paddle", 0.5, threads=1), row("bare", 0.8, threads=1), row("other", 9.0, quiet=0)]
    rows.append({"name": "gone", "threads": 2, "missing": "not there"})
    later = [row("tstatic", 3.0), row("torch", 2.0)]
    old, new = ({"threads": [1, 2], "cases": {"a": {"title": "A", "rows": r}}} for r in (rows, later))
    found = speed_table.ratios([("2001-01-01", old), ("2001-01-02", new)])
    assert found == {
        ("A", "torch"): (1.5, "2001-01-02"), ("A", "paddle"): (2.0, "2001-01-01"), ("A", "bare"): (1.25, "2001-01-01"),
        ("A", "other"): (1 / 9, "2001-01-01*"),
    }  # fmt: skip
    assert (
        speed_table.lines([("2001-01-01", old)])[-1]
        == "4 pairs; tstatic is slower in 2 of them. (* other processes ran in every turn.)"
    )


def test_a_result_of_ops_is_shown_with_every_peer_and_every_row_that_is_lost() -> None:
    def row(name: str, **medians: float) -> dict[str, object]:
        peers: dict[str, object] = {
            peer: {"state": "ok", "detail": "", "seconds": [m + i / 1e4 for i in range(15)]}
            for peer, m in medians.items()
        }
        return {"name": name, "peers": {**peers, "gone": {"state": "missing", "detail": "not there"}}}

    rows = [row("a", tstatic=1.0, numpy=2.0, torch=0.5), row("b", tstatic=1.0, numpy=1.0, torch=0.8)]
    record = {"begun": "2001-01-01T", "machine": {"cpu": "chip", "cores": 2}, "rows": rows}
    text = speed_table.ops_lines(record, "x.md")
    assert "| numpy | 2 | 1 | 1 | 0 | 0 |  |" in text
    assert "| torch | 2 | 0 | 0 | 2 | 0 |  |" in text
    assert "| gone | 0 | 0 | 0 | 0 | 0 | 2 missing |" in text
    assert text[-4:-2] == ["| a | torch | 2.00 |", "| b | torch | 1.25 |"]
    assert "<summary>The 2 pairs in which tstatic is slower</summary>" in text


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


FILE = re.compile(r"`([\w./-]+(?:\.(?:py|md|txt|toml|json)|/))`")
NEWCOMERS = (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "engine.md")
PLACES = ("", "tstatic", "tests")
"""Below which a page may name a file: the recipes say `devices/base.py`."""


def lost_files(text: str) -> list[str]:
    """Names of files in the prose of a page that are not there."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return sorted(
        name for name in set(FILE.findall(prose)) if not any((ROOT / place / name).exists() for place in PLACES)
    )


@pytest.mark.parametrize("page", NEWCOMERS, ids=lambda p: p.name)
def test_files_that_pages_for_newcomers_name_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    new = {"tstatic/devices/traced.py"}  # the file that a recipe adds
    assert set(lost_files(text)) <= new
    assert len(set(FILE.findall(text))) > 10
    assert lost_files("`tstatic/ir/opdef.py` and `tstatic/ir/opdeff.py`") == ["tstatic/ir/opdeff.py"]


def test_a_recipe_has_at_most_two_pages() -> None:
    parts = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    recipes = {head: body for head, _, body in (part.partition("\n") for part in parts) if head.startswith("Add ")}
    assert list(recipes) == ["Add an op", "Add a fusion", "Add a device"]
    # A printed page has about 55 lines of this width.
    assert {head: body.count("\n") for head, body in recipes.items() if body.count("\n") > 110} == {}
