"""Which tests are run on a busy machine."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests import busy
from tests.helpers import source

FILES = {
    "tests/conftest.py": """
        import pytest

        @pytest.fixture
        def server():
            return start(timeout=3.0)
        """,
    "tests/helpers/clock.py": """
        import threading, time

        LIMIT = 3
        LOCK = threading.Lock()

        def now():
            return time.perf_counter()

        class Watch:
            def stop(self):
                return now() - LIMIT
        """,
    "tests/a/test_helpers.py": """
        import pytest
        from tests.helpers import clock
        from tests.helpers.clock import LIMIT, LOCK, Watch as Measured

        def measured():
            return Measured()

        def test_of_a_limit(): assert LIMIT
        def test_of_a_lock(): assert LOCK
        def test_of_a_watch(): assert measured()
        def test_of_a_function(): assert clock.now()
        def test_of_a_number_of_a_module(): assert clock.LIMIT
        def test_of_a_fixture(server): assert server
        @pytest.mark.usefixtures("server")
        def test_of_a_fixture_by_name(): pass
        """,
    "tests/a/test_itself.py": """
        import time

        def test_of_a_clock(): assert time.time()
        def test_of_the_same_file(): pass
        """,
    "tests/a/test_limits.py": """
        def test_of_a_limit(monkeypatch): monkeypatch.setattr("tstatic.cli.doctor", "SECONDS", 0.1)
        """,
    "tests/a/test_workers.py": """
        def test_of_workers(): assert load(num_workers=2)
        """,
    "tests/a/test_processes.py": """
        import subprocess

        def test_of_a_process(): assert subprocess.run([])
        """,
    "tests/kernels/test_compiled.py": """
        import time

        def test_of_a_clock(): assert time.time()
        """,
}


def test_tests_that_wait_or_read_a_clock_are_found_through_helpers_and_fixtures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    monkeypatch.setattr(busy, "ROOT", tmp_path)
    monkeypatch.setattr(source, "files", lambda folder: sorted((tmp_path / folder).rglob("*.py")))
    found = busy.waiting_tests()
    assert found.pop("tests/a/test_helpers.py") == [
        "test_of_a_watch",
        "test_of_a_function",
        "test_of_a_fixture",
        "test_of_a_fixture_by_name",
    ]
    assert found == {
        "tests/a/test_itself.py": ["test_of_a_clock", "test_of_the_same_file"],
        "tests/a/test_limits.py": ["test_of_a_limit"],
        "tests/a/test_workers.py": ["test_of_workers"],
    }
