"""Each Python snippet of the pages that users read runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import python_blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [(page, k, text) for page in PAGES for k, text in enumerate(python_blocks(page))]


@pytest.mark.parametrize(
    ("page", "text"), [(p, t) for p, _, t in SNIPPETS], ids=[f"{p.name}-{k}" for p, k, _ in SNIPPETS]
)
def test_snippet_runs(page: Path, text: str, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem}_page.py"  # not the name of a module of the library
    script.write_text(text, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CPU_NUM": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{page.name}:\n{text}\n{done.stderr}"


def test_the_readme_has_an_example() -> None:
    assert python_blocks(ROOT / "README.md")
