"""Processor time of tests by file: ``TSTATIC_COSTS=FOLDER make test``, then ``python -m tests.helpers.costs FOLDER [BEFORE]``.

Each process of pytest writes the seconds of its files, those of ended child processes included, and what was spent outside of
tests: imports and collection. Two folders are compared; take them in turns on one machine, since other work slows both.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

VARIABLE = "TSTATIC_COSTS"
OUTSIDE = "outside of tests"
"""Imports, collection and what workers do between tests."""


def seconds() -> float:
    """Returns the processor time of this process, all its threads, and its child processes that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Costs:
    """Adds up the processor time of tests by file, and writes it when the run ends.

    Args:
        folder: Where to write.
        stage: Which part of the suite runs: the file's name begins so.
    """

    def __init__(self, folder: Path, stage: str) -> None:
        self._folder = folder
        self._stage = stage
        self._of_file: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin = seconds()
        yield
        self._of_file[item.nodeid.partition("::")[0]] += seconds() - begin

    def pytest_sessionfinish(self) -> None:
        """Writes one file per process, since processes end in any order."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._of_file[OUTSIDE] = seconds() - sum(self._of_file.values())
        text = json.dumps({file: round(cost, 3) for file, cost in sorted(self._of_file.items())}, indent=1)
        (self._folder / f"{self._stage}-{os.getpid()}.json").write_text(text + "\n", encoding="utf-8")


def stage_of(config: pytest.Config) -> str:
    """Returns which part of the suite this run is: ``kernels``, or ``tests`` and ``slow`` with their ring."""
    if all("kernels" in Path(arg).parts for arg in config.args):
        return "kernels"
    ring = "interpret" if os.environ.get("TSTATIC_CPU_BACKEND") == "interpret" else "numpy"
    return f"{'slow' if config.option.markexpr == 'slow' else 'tests'}.{ring}"


def register(config: pytest.Config) -> None:
    """Measures a run where the variable names a folder; the process that only hands out tests to workers is none of it."""
    folder = os.environ.get(VARIABLE)
    hands_out = not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None)
    if folder and not hands_out:
        config.pluginmanager.register(Costs(Path(folder).absolute(), stage_of(config)), "costs")


Seconds = Mapping[tuple[str, str], float]
"""(stage, file or folder) -> processor time."""


def read(folder: Path) -> Seconds:
    """Returns what all processes of a run wrote."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for path in folder.glob("*.json"):
        stage = path.stem.rpartition("-")[0]
        for file, cost in json.loads(path.read_text(encoding="utf-8")).items():
            found[stage, file] += cost
    return found


def folder_of(file: str) -> str:
    """Returns the folder below ``tests``, by which the table is made."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else file


def table(now: Seconds, before: Seconds, by_file: bool = False) -> list[str]:
    """Returns the lines of the table: seconds by stage and folder, the most expensive ones first.

    Args:
        before: What the same took before, or nothing.
        by_file: Whether each file has a line.
    """
    summed, then_summed = _summed(now, by_file), _summed(before, by_file)
    shown = []
    for (stage, name), cost in sorted(summed.items(), key=lambda one: -one[1]):
        then = then_summed.get((stage, name), 0.0)
        shown.append(f"{cost:9.1f}{f' {then:9.1f} {cost / then:6.2f}' if then else ''}  {stage:16} {name}")
    return shown


def _summed(costs: Seconds, by_file: bool) -> Seconds:
    made: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (stage, file), cost in costs.items():
        for key in ((stage, file if by_file else folder_of(file)), (stage, "all"), ("all", "all")):
            made[key] += cost
    return made


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what a run wrote")
    parser.add_argument("before", type=Path, nargs="?", help="what a run of another commit wrote")
    parser.add_argument("--files", action="store_true", help="one line per file")
    given = parser.parse_args()
    before = read(given.before) if given.before else {}
    print("  seconds" + ("    before  ratio" if before else "") + "  stage            folder")
    print("\n".join(table(read(given.folder), before, given.files)))


if __name__ == "__main__":
    main()
