"""Reports are written whole or not at all, and every place of the library that writes one does it by the helper."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import source
from tstatic import static
from tstatic.callbacks import CSVLogger
from tstatic.errors import ProgramError, ReportError
from tstatic.formats.report_files import save_report, write_report
from tstatic.profiler.recording import profile

ROOT = Path(paddle.__file__).parent
ALLOWED = {
    "formats/report_files.py", "formats/files.py", "io/callbacks.py", "ir/registry.py", "fusion/engine/cache.py",
    "chips/aot_worker.py", "distributed/launch.py", "tools/cli/streams.py",
}  # fmt: skip
"""What writes by itself: the helper, saves, a log that grows, caches that are made anew, logs of processes, standard output."""


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    """Guards against pages that stay cut on a full disk."""
    path = tmp_path / "page.html"
    path.write_text("old")

    def half(place: Path) -> None:
        place.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(ReportError, match=r"the page could not be written to '.*page\.html'") as caught:
        save_report(path, half, "the page")
    assert "No space left" in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_links_and_modes_and_devices_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_report(link, "new \udcff", "the text")
    assert link.is_symlink()
    assert real.read_bytes() == b"new \xff"
    assert real.stat().st_mode & 0o777 == 0o600
    write_report("/dev/null", b"x", "the text")
    with pytest.raises(ReportError, match="No space left"):
        write_report("/dev/full", "x", "the text")


@pytest.fixture
def recording() -> Any:
    with profile() as found:
        static.Executor().run(fetch_list=[paddle.tanh(paddle.ones([4]))])
    return found


def test_every_report_names_what_went_wrong(recording: Any, tmp_path: Path) -> None:
    """Guards against bare errors of the system where reports are written."""
    y = paddle.tanh(paddle.ones([4]))
    explained = static.CompiledProgram(y.block.program).explain([y])
    with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler:
        np.ones(4)
    (tmp_path / "file").touch()
    for bad in ("/dev/full", str(tmp_path / "none" / "x"), str(tmp_path), "a\0b"):
        writers: list[Callable[[], Any]] = [
            lambda bad=bad: explained.save_html(bad), lambda bad=bad: recording.save_trace(bad),  # type: ignore[misc]
            lambda bad=bad: recording.save_json(bad), lambda bad=bad: profiler.export(bad),  # type: ignore[misc]
            lambda bad=bad: profiler.export(bad, format="pb"),  # type: ignore[misc]
        ]  # fmt: skip
        for write in writers:
            with pytest.raises(ReportError, match="could not be written to"):
                write()
    with pytest.raises(ReportError, match="could not be written to"):
        paddle.profiler.export_chrome_tracing(str(tmp_path / "file" / "below"))(profiler)


def test_a_log_on_a_full_disk_is_named(tmp_path: Path) -> None:
    log = CSVLogger("/dev/full")
    log.on_train_begin()
    with pytest.raises(ProgramError, match="'/dev/full' of CSVLogger cannot be written"):
        log.on_epoch_end(0, {"loss": 1.0})
    with pytest.raises(ProgramError, match="cannot be written"):
        CSVLogger(tmp_path / "none" / "log.csv").on_train_begin()


def writes(text: str) -> list[int]:
    """Lines that open a file to write it, or write one as a whole."""
    found: list[int] = []
    if not re.search(r"write_text|write_bytes|mkstemp|open\(", text):
        return found
    for node in source.walk(source.parsed(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        # Of the function `open` the mode is the second argument, of the method the first.
        positional = node.args[1:] if isinstance(node.func, ast.Name) or name == "fdopen" else node.args[:1]
        given = [*positional, *(k.value for k in node.keywords if k.arg == "mode")]
        modes = [arg.value for arg in given if isinstance(arg, ast.Constant)]
        if name in ("write_text", "write_bytes", "mkstemp") or (
            name in ("open", "fdopen")
            and any(isinstance(m, str) and m[:1] in ("w", "a", "x") and len(m) < 4 for m in modes)
        ):
            found.append(node.lineno)
    return found


def test_reports_go_through_one_helper() -> None:
    """Guards every later report: whatever writes a file by itself raises bare errors, and leaves half of it on a full disk."""
    assert writes("open('x', 'w')\npath.write_text('y')\nopen('x')") == [1, 2]
    rows = {str(path.relative_to(ROOT)): writes(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    assert {name for name, lines in rows.items() if lines} - ALLOWED == {"chips/processes.py", "tools/cli/weights.py"}
