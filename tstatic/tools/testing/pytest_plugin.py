"""A pytest plugin: fixtures that give tests fresh programs and prove that strategies do not change them.

``pytest -p tstatic.testing.pytest_plugin`` loads it. No entry point does: pytest rewrites all modules of a package that has one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tstatic.formats.report_files import make_folder, write_report
from tstatic.ir import names
from tstatic.ir.declare import program_guard
from tstatic.ir.program import Program
from tstatic.runtime.scope import Scope, scope_guard
from tstatic.tools.testing.equivalence import Equivalence, EquivalenceError, assert_equivalent

MARK = (
    "tstatic(strategies=None, examples=20, steps=1, seed=0, target=None, require_kernels=False): "
    "settings of prove_equivalent in this test"
)
_SETTINGS = ("strategies", "examples", "steps", "seed", "target", "require_kernels")
_COUNTS = pytest.StashKey[list[Equivalence]]()


# --------------------------------------------------------------------------------------------------------------- options
def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("tstatic", "proofs that fusions do not change programs")
    group.addoption(
        "--tstatic-interpret",
        action="store_true",
        help="Run generated kernels in Triton's interpreter, so that prove_equivalent compares them.",
    )
    group.addoption("--tstatic-examples", type=int, default=None, help="Drawn feeds of each proof, whatever tests say.")
    group.addoption(
        "--tstatic-scripts", default="", metavar="FOLDER", help="Write the script of each failed proof to this folder."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker; decides which kernels run, before a test imports Triton."""
    config.addinivalue_line("markers", MARK)
    config.stash[_COUNTS] = []
    if config.getoption("--tstatic-interpret"):
        # Read at the first use of a CPU place, and by Triton when it is imported.
        os.environ.update(TSTATIC_CPU_BACKEND="interpret", TRITON_INTERPRET="1")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says how much was proved."""
    made = config.stash[_COUNTS]
    if not made:
        return
    fusions, kernels = sum(one.fusions for one in made), sum(one.kernels for one in made)
    terminalreporter.write_line(
        f"tstatic: {len(made)} programs proved, with {fusions} fusions and {kernels} generated kernels"
    )
    if fusions and not kernels:
        terminalreporter.write_line(
            "tstatic: no generated kernel ran; --tstatic-interpret runs them in Triton's interpreter"
        )


# -------------------------------------------------------------------------------------------------------------- fixtures
@pytest.fixture
def tstatic_programs() -> Iterator[tuple[Program, Program]]:
    """Gives a test empty default programs, a scope and names of its own; the value is (main, startup)."""
    main, startup = Program(), Program()
    with scope_guard(Scope()), program_guard(main, startup), names.guard():
        yield main, startup


@pytest.fixture
def prove_equivalent(request: pytest.FixtureRequest) -> Callable[..., Equivalence]:
    """Returns ``assert_equivalent``, with the settings of the marker ``tstatic`` and of the command line.

    ``require_kernels=True`` (in the marker or the call) fails a proof in which no generated kernel ran. A failure's script goes
    into the report, and with ``--tstatic-scripts FOLDER`` into a file, where it runs by itself.
    """
    settings = _settings(request.node)
    config = request.config

    def prove(program: Any, *args: Any, **given: Any) -> Equivalence:
        chosen = {**settings, **given}
        least = chosen.pop("require_kernels", False)
        if args:
            chosen.pop("strategies", None)
        if config.getoption("--tstatic-examples") is not None:
            chosen["examples"] = config.getoption("--tstatic-examples")
        try:
            made = assert_equivalent(program, *args, **chosen)
        except EquivalenceError as error:
            _keep_script(request.node, config.getoption("--tstatic-scripts"), error.script)
            raise
        config.stash[_COUNTS].append(made)
        if least and not made.kernels:
            pytest.fail(
                f"the program has {made.fusions} fused operators, and no generated kernel ran: "
                "run pytest with --tstatic-interpret, or on a GPU",
                pytrace=False,
            )
        return made

    return prove


def _settings(item: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    # The marker nearest to the test counts most.
    for mark in reversed(list(item.iter_markers("tstatic"))):
        wrong = [n for n in mark.kwargs if n not in _SETTINGS]
        if mark.args or wrong:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker tstatic takes {', '.join(_SETTINGS)} by name, not {wrong or mark.args}"
            )
        found |= mark.kwargs
    return found


def _keep_script(item: Any, folder: str, script: str) -> None:
    if not script:
        return
    item.add_report_section("call", "tstatic script", script)
    if folder:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", item.nodeid.removesuffix("]"))
        path = make_folder(folder, "the script") / f"{name}.py"
        write_report(path, script, "the script")
        item.add_report_section("call", "tstatic script file", f"{path}\n")
