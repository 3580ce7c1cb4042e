"""Python's parser runs in one thread at a time."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tstatic
from tests.helpers import source
from tstatic import locks

PACKAGE = Path(tstatic.__file__).parent
TEXT = "\n".join(f"def f{i}(a, b):\n    return (a + b) * ({i} + a)\n" for i in range(60))


class Yields:
    """Lets another thread run while the collector removes it."""

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Collects often, and changes threads often."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def failures(parse: Callable[[str], object]) -> list[str]:
    """What fails where eight threads parse at once."""
    found: list[str] = []

    def work() -> None:
        for _ in range(30):
            circle: list[object] = [Yields()]
            circle.append(circle)
            try:
                parse(TEXT)
            except SystemError as error:
                found.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.usefixtures("eager_collector")
def test_threads_that_parse_at_once_do_not_fail() -> None:
    assert failures(locks.parse_module) == []
    if sys.version_info < (3, 12):
        assert failures(ast.parse), "what the lock is for no longer happens"


def test_expressions_and_modules_are_those_of_ast() -> None:
    assert ast.dump(locks.parse_module(TEXT)) == ast.dump(ast.parse(TEXT))
    assert ast.dump(locks.parse_expression("a + 1")) == ast.dump(ast.parse("a + 1", mode="eval"))


def test_nothing_that_runs_in_threads_parses_without_the_lock() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in source.files()
        if path.relative_to(PACKAGE).parts[0] != "tools"
        and path.name != "locks.py"
        and "ast.parse" in source.text(path)
        for node in source.nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ast.parse"
    ]
    assert bare == []
