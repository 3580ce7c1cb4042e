"""Each Python snippet of the pages that users read runs as it stands, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import warm
from tests.helpers.snippets import ONE_SCRIPT, python_blocks, samples, scripts

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKS = {
    # What takes seconds to import, in each process anew.
    r"^\s*(import|from) (torch|triton)\b": pytest.mark.slow,
    r"\.max_batch\(": pytest.mark.numpy_device(
        "plans of 80 GB, whose references the fake device cuts into millions of tiles", not_on=("fake",)
    ),
    r"^from tstatic\.runtime\.session import": pytest.mark.numpy_device("shows the plan and the calls of numpy"),
    "RankNumericsError": pytest.mark.numpy_device(
        "a device that runs late looks where FLAGS_check_rank_gradients is 1", not_on=("fake",)
    ),
}
"""Marks of the snippets that contain words."""
SNIPPETS = [(page, k, *sample) for page in PAGES for k, sample in enumerate(scripts(page))]


@pytest.mark.parametrize(
    ("page", "text", "printed"),
    [
        pytest.param(p, t, out, marks=[mark for words, mark in MARKS.items() if re.search(words, t, re.MULTILINE)])
        for p, _, t, out in SNIPPETS
    ],
    ids=[f"{p.name}-{k}" for p, k, _, _ in SNIPPETS],
)
def test_snippet_runs_and_prints_what_the_page_says(page: Path, text: str, printed: str, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem}_page.py"  # not the name of a module of the library
    script.write_text(text, encoding="utf-8")
    done = warm.run(script, cwd=tmp_path, CPU_NUM="1")
    assert done.returncode == 0, f"{page.name}:\n{text}\n{done.stderr}"
    if printed:
        assert done.stdout == printed


def test_the_readme_has_an_example() -> None:
    assert python_blocks(ROOT / "README.md")


def test_printed_results_are_found_behind_their_sample(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nx = 1\n```\nProse.\n\n```text\n3\n```\n")
    assert samples(page) == [("print(1)\n", "2\n"), ("x = 1\n", "")]


def test_the_snippets_of_a_page_that_is_one_script_go_on_and_each_prints_its_own_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = ONE_SCRIPT + "\n\n```python\nx = 1\nprint(x)\n```\n\n```text\n1\n```\n\n```python\nx += 1\n```\nProse.\n"
    text += "\n```python\nprint(x)\n```\n\n```text\n2\n```\n"
    page.write_text(text)
    ((script, printed),) = scripts(page)

    def output() -> str:
        done = warm.run(write(script), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(text: str) -> Path:
        file = tmp_path / "whole.py"
        file.write_text(text, encoding="utf-8")
        return file

    assert output() == printed
    page.write_text(text.replace("```text\n1\n```", "").replace("```text\n2\n", "```text\n1\n2\n"))
    assert output() != scripts(page)[0][1], "the first snippet printed what stands behind the last one"
