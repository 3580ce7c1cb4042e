"""What docs/command_line.md shows is run, and it names every command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.cases import tstatic, write_script
from tests.cli.test_startup import COMMANDS
from tests.helpers.snippets import python_blocks

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]


@pytest.mark.numpy_device("the commands choose the device themselves")
def test_the_tour_runs_as_it_stands(tmp_path: Path) -> None:
    write_script(tmp_path, python_blocks(PAGE)[0], "train.py")
    assert len(LINES) >= 8
    for line in LINES:
        prompt, program, *arguments = shlex.split(line, comments=True)
        assert (prompt, program) == ("$", "tstatic")
        done = tstatic(tmp_path, *arguments)
        code = re.search(r"# exit code (\d)", line)
        assert done.returncode == (int(code[1]) if code else 0), (line, done.stderr)


def test_the_page_has_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert re.search(rf"^\| `{name}\b", text, re.MULTILINE), name
