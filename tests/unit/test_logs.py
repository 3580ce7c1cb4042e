"""Logs: silent unless asked, topics by name, warnings that are seen once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import child, warm
from tstatic import logs as log
from tstatic.logs import get_logger

ROOT = Path(__file__).parents[2]
SAY = """
from tstatic.logs import get_logger
for topic in ("recompiles", "memory", "executor"):
    logger = get_logger(topic)
    logger.debug("debug of %s", topic); logger.info("info of %s", topic); logger.warning("warning of %s", topic)
"""


Lines = Callable[[str, str | None], list[str]]


@pytest.fixture
def stderr_of(tmp_path: Path) -> Lines:
    """What a script prints to stderr with ``TSTATIC_LOGS`` set: what the import does with it is done at the start."""

    def run(code: str, topics: str | None) -> list[str]:
        start = "import os\nfrom tstatic import logs\nlogs.enable(os.environ.get('TSTATIC_LOGS', ''))\n"
        given = {} if topics is None else {"TSTATIC_LOGS": topics}
        done = warm.run_text(start + code, cwd=tmp_path, without=("TSTATIC_LOGS",), **given)
        assert done.returncode == 0
        assert done.stdout == ""
        return done.stderr.splitlines()

    return run


def test_the_import_of_tstatic_switches_the_topics_of_the_environment_on() -> None:
    environment = child.environment(TSTATIC_LOGS="memory")
    done = subprocess.run([sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=True)
    assert "D tstatic.memory: debug of memory" in done.stderr.splitlines()


@pytest.fixture
def quiet() -> Iterator[None]:
    """Takes back every level and handler that a test sets."""
    yield
    for name in log.TOPICS.values():
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("tstatic").removeHandler(log._handler)


def test_unasked_only_warnings_are_printed(stderr_of: Lines) -> None:
    assert stderr_of(SAY, None) == ["warning of recompiles", "warning of memory", "warning of executor"]
    assert stderr_of(SAY, "") == ["warning of recompiles", "warning of memory", "warning of executor"]


def test_a_topic_that_is_asked_for_is_printed_and_the_others_are_not(stderr_of: Lines) -> None:
    assert stderr_of(SAY, "memory, Steps") == [
        "W tstatic.compile: warning of recompiles",
        "D tstatic.memory: debug of memory",
        "I tstatic.memory: info of memory",
        "W tstatic.memory: warning of memory",
        "D tstatic.executor: debug of executor",
        "I tstatic.executor: info of executor",
        "W tstatic.executor: warning of executor",
    ]


def test_all_is_every_topic(stderr_of: Lines) -> None:
    assert len(stderr_of(SAY, "all")) == 9


def test_an_unknown_topic_is_named_once_with_near_words_and_the_rest_still_works(stderr_of: Lines) -> None:
    lines = stderr_of(SAY, "recompile,memory")
    assert "unknown topic 'recompile'" in lines[0]
    assert "did you mean 'recompiles'" in lines[0]
    assert "D tstatic.memory: debug of memory" in lines
    assert "known topics: fusion" in stderr_of(SAY, "xyz")[0]


def test_the_program_s_own_logging_gets_everything(stderr_of: Lines) -> None:
    code = "import logging; logging.basicConfig(level=logging.INFO, format='mine %(message)s')" + SAY
    assert [line for line in stderr_of(code, None) if line.startswith("mine")] == [
        f"mine {level} of {topic}" for topic in ("recompiles", "memory", "executor") for level in ("info", "warning")
    ]


def test_loggers_stand_in_one_tree() -> None:
    assert log.get_logger().name == "tstatic"
    assert log.get_logger("recompiles").name == "tstatic.compile"
    assert log.get_logger("executor").name == "tstatic.executor"
    assert log.get_logger("tstatic.executor") is log.get_logger("executor")
    assert all(name.split(".")[0] == "tstatic" for name in log.TOPICS.values())


def test_every_topic_is_documented() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    for topic, name in log.TOPICS.items():
        assert f"`{topic}` | `{name}`" in page
        assert topic in (log.__doc__ or "")


def test_warn_once_says_it_once_per_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tstatic"):
        assert log.warn_once("a", "first 100% of it", topic="memory")
        assert not log.warn_once("a", "again")
        assert log.warn_once(("b", 1), "other")
        log.forget_warnings()
        assert log.warn_once("a", "after forgetting")
    assert [r.getMessage() for r in caplog.records] == ["first 100% of it", "other", "after forgetting"]
    assert caplog.records[0].name == "tstatic.memory"


def test_enabling_twice_prints_once(quiet: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert log.enable("memory") == ["memory"]
    assert log.enable("memory,steps") == ["memory", "steps"]
    log.get_logger("memory").info("arena grew")
    assert capsys.readouterr().err.count("arena grew") == 1


def test_a_logger_is_asked_once_so_that_runs_do_not_take_loggings_lock() -> None:
    """Before Python 3.13, Ctrl-C inside of logging can leave that lock taken, and every fork waits for it."""
    found = get_logger("steps")
    logging._lock.acquire()  # type: ignore[attr-defined]
    try:
        asked = []
        thread = threading.Thread(target=lambda: asked.append(found.isEnabledFor(logging.DEBUG)), daemon=True)
        thread.start()
        thread.join(60.0)
        assert asked == [found.isEnabledFor(logging.DEBUG)]
    finally:
        logging._lock.release()  # type: ignore[attr-defined]
