"""The front door: a README that takes a minute, a help that fits a screen, and one truth about speeds and GPUs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tstatic.chips import seen

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FRONT = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Returns what stands below a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README has no section '{title}'"
    return found[1]


def test_the_readme_takes_a_minute() -> None:
    assert len(README.splitlines()) <= 120
    assert len(README.split()) <= 900
    assert len(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)) == 1, "one picture"


def test_the_first_sentence_and_the_picture_stand_before_all_else() -> None:
    head = README.partition("\n## ")[0]
    assert head.startswith("# tstatic\n\n")
    assert "docs/pictures/explanation.svg" in head


def test_the_readme_names_two_commands_that_the_makefile_has() -> None:
    commands = re.findall(r"^make ([a-z-]+)", section("Sixty seconds"), re.MULTILINE)
    assert commands == ["demo", "test"]


def test_five_reasons_have_three_lines_and_a_link_each() -> None:
    reasons = re.split(r"^\* ", section("Five reasons"), flags=re.MULTILINE)[1:]
    assert len(reasons) == 5
    for reason in reasons:
        assert len(reason.strip().splitlines()) <= 3, reason
        assert re.search(r"\]\(docs/[a-z_/]+\.md\)", reason), reason


def test_the_table_of_speeds_is_short_and_has_rows_that_lose() -> None:
    rows = [line for line in section("Speed").splitlines() if line.startswith("| ")][1:]
    assert 5 <= len(rows) <= 12
    losing = [row for row in rows if any(float(cell) > 1 for cell in re.findall(r"\| (\d+\.\d\d)", row))]
    assert losing, "rows in which tstatic is slower are left out"


def test_what_it_does_not_do_takes_a_few_lines() -> None:
    assert len(section("What it does not do").strip().splitlines()) <= 4


@pytest.mark.parametrize("text", [README, FRONT], ids=["README", "front page"])
def test_a_page_says_of_gpus_what_the_records_say(text: str) -> None:
    """Guards against a front page that says that no GPU has been seen while the README says that one has."""
    assert set(re.findall(r"\b(H100|H200|A100|B200)\b", text)) == set(seen.chips())
    assert not re.search(r"(has|have) not (been )?(run|seen)[^.]{0,20}\b(a|any) GPU", text)
    assert "gpu_status.md" in text


# ---------------------------------------------------------------------------------------------------------------- make
def help_lines() -> list[str]:
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_help_has_two_groups_of_short_lines() -> None:
    lines = help_lines()
    assert [line for line in lines if not line.startswith(" ")] == ["Use it:", "Work on it:"]
    assert lines.index("Work on it:") - lines.index("Use it:") - 1 == 6
    assert not [line for line in lines if len(line) > 100]


def test_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert {line.split()[0] for line in help_lines() if line.startswith(" ")} == set(phony[1].split())
