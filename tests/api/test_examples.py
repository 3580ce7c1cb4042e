"""Public classes and the most used functions have an example of a few lines, and it prints what it says.

An example stands under ``Example:`` in the docstring. It may use ``np``, ``paddle``, ``static`` and ``fluid`` without importing
them, starts with empty default programs and an empty scope in a folder of its own, and prints arrays with four digits.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic
from tests.api.test_docstrings import DOCUMENTED, own_doc
from tstatic import fluid, static

LINES = range(3, 9)

# Public classes without an example: what raises them does not fit into a few lines.
WITHOUT = {
    "tstatic.errors.EOFException": "user code raises it, from readers that it wrote",
    "tstatic.errors.ForkedProcessError": "needs a fork",
    "tstatic.errors.MissingPackageError": "needs an installation without some package",
    "tstatic.errors.RankFailedError": "needs several processes",
}

_ROWS = Path(__file__).with_name("most_used.txt").read_text(encoding="utf-8").splitlines()
MOST_USED = [row for row in _ROWS if not row.startswith("#")]


def wanted() -> list[str]:
    """Every name that must have an example: public classes, and the most used functions."""
    classes = [path for path, value in DOCUMENTED.items() if inspect.isclass(value)]
    return sorted({*classes, *MOST_USED} - WITHOUT.keys())


def parts(doc: str) -> list[doctest.Example]:
    """The statements of the docstring's example, with what each prints."""
    _, head, example = inspect.cleandoc(doc).partition("\nExample:\n")
    return doctest.DocTestParser().get_examples(example) if head else []


def faults(doc: str, namespace: dict[str, Any]) -> list[str]:
    """Runs the docstring's example and says what is wrong with it."""
    statements = parts(doc)
    lines = sum(len(one.source.splitlines()) for one in statements)
    if lines not in LINES:
        return [f"{lines} lines of code, not {LINES[0]} to {LINES[-1]}"]
    if not any(one.want for one in statements):
        return ["nothing is printed"]
    found: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(doctest.DocTest(statements, namespace, "example", None, None, doc), out=found.append)
    return found


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What an example may use, in a folder and a mode of its own."""
    monkeypatch.chdir(tmp_path)
    with np.printoptions(precision=4, suppress=True):
        yield {"np": np, "paddle": tstatic, "static": static, "fluid": fluid}
    tstatic.enable_static()
    tstatic.set_default_dtype("float32")


LATE = pytest.mark.numpy_device("a device that runs late looks where FLAGS_check_rank_gradients is 1", not_on=("fake",))


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[LATE] * path.endswith("RankNumericsError")) for path in wanted()]
)
def test_example_prints_what_it_says(path: str, namespace: dict[str, Any]) -> None:
    assert faults(own_doc(DOCUMENTED[path]), namespace) == []


def test_most_used_functions_are_150_functions() -> None:
    assert len(MOST_USED) == len(set(MOST_USED)) == 150
    assert [name for name in MOST_USED if not inspect.isroutine(DOCUMENTED.get(name))] == []


def test_classes_without_an_example_have_none() -> None:
    assert [path for path in WITHOUT if parts(own_doc(DOCUMENTED[path]))] == []


def test_the_oracle_sees_a_wrong_example(namespace: dict[str, Any]) -> None:
    good = "Adds.\n\n    Example:\n        >>> a = 1\n        >>> b = 2\n        >>> a + b\n        3\n    "
    assert faults(good, namespace) == []
    assert "Expected:\n    4" in faults(good.replace("3\n", "4\n"), namespace)[0]
    assert faults(good.replace(">>> a = 1\n", "\n"), namespace) == ["2 lines of code, not 3 to 8"]
    assert faults(good.replace("3\n", "\n").replace("a + b", "a"), namespace) == ["nothing is printed"]
    assert faults("Adds.", namespace) == ["0 lines of code, not 3 to 8"]
