"""Planted faults: each still fits its source, what plants them is sound, and three that are drawn are caught."""

from __future__ import annotations

import ast
import json
import os
import random
from pathlib import Path

import pytest

from tests.helpers import warm
from tests.helpers.patience import pace
from tests.helpers.seed import SEED
from tests.mutants.change import DoesNotApplyError, changed
from tests.mutants.planting import HOOK, LIMIT_S, ROOT, Mutant, plant
from tests.mutants.table import MUTANTS

SAMPLE = 3
SAMPLE_WALL_S = 60.0 * pace()
"""Seconds of the clock that the tests of one drawn mutant may take."""
QUICK = ("tests/unit/test_lr_plateau.py",)


def test_there_are_sixty_and_each_applies() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 60
    for mutant in MUTANTS:
        mutant.applies()
        assert all((ROOT / path.partition("::")[0]).exists() for path in mutant.tests), mutant.name


@pytest.mark.slow
def test_three_that_are_drawn_are_caught() -> None:
    for mutant in random.Random(SEED).sample(MUTANTS, SAMPLE):
        outcome = plant(mutant, wall_s=SAMPLE_WALL_S)
        assert outcome.killed_by, f"{mutant.name}: {outcome.problem or 'no test failed'}"


def test_tests_pass_where_nothing_is_planted() -> None:
    outcome = plant(None, QUICK)
    assert (outcome.killed_by, outcome.problem) == ("", "")


def test_tests_that_do_not_end_in_time_are_stopped_and_said_to_be() -> None:
    outcome = plant(None, QUICK, wall_s=0.1)
    assert (outcome.killed_by, outcome.problem) == ("", "subprocess timeout: its tests did not end within 0.1 s")
    assert outcome.seconds < LIMIT_S


def test_a_mutant_that_its_tests_never_import_is_no_survivor() -> None:
    outcome = plant(Mutant("chips/aot_worker.py", "describe", "constant", "5", "6", QUICK))
    assert (outcome.killed_by, outcome.problem) == ("", "its tests never import the module")


def test_a_fault_reaches_processes_that_are_warm_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in forks of a process that has imported tstatic: without the fault in there, none of them would see it."""
    planted = tmp_path / "planted"
    fault = Mutant(
        "tools/cli/looking.py", "_chosen", "comparison", "0 < int(name) <= len(kernels)", "False", QUICK
    ).facts()
    monkeypatch.setenv("TSTATIC_MUTANT", json.dumps({**fault, "planted": str(planted)}))
    monkeypatch.setenv("PYTHONPATH", f"{HOOK}{os.pathsep}{ROOT}")
    server = warm._Server()
    monkeypatch.setattr(warm, "_server", lambda: server)
    try:
        done = warm.run_text("import tstatic.cli.looking", cwd=tmp_path)
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    assert planted.exists()


SOURCE = """
def outer(a, b):
    def inner(c):
        return c < b
    if a < b and a < b:
        return inner(a + 1)
    return 1

class Thing:
    def outer(self):
        return not self
"""


def facts(function: str, kind: str, was: str, becomes: str, number: int = 0) -> dict[str, object]:
    return {"function": function, "kind": kind, "was": was, "becomes": becomes, "number": number}


@pytest.mark.parametrize(("one", "wanted"), [
    (facts("outer.inner", "comparison", "c<b", "c <= b"), "return c <= b"),
    (facts("outer", "comparison", "a < b", "True", 2), "if a < b and True:"),
    (facts("outer", "condition", "a < b and a < b", "a"), "if a:"),
    (facts("outer", "operation", "a + 1", "a"), "return inner(a)"),
    (facts("outer", "statement", "return 1", "pass"), "pass"),
    (facts("Thing.outer", "operation", "not self", "self"), "return self"),
])  # fmt: skip
def test_one_node_is_changed(one: dict[str, object], wanted: str) -> None:
    before, after = (ast.unparse(tree).splitlines() for tree in (ast.parse(SOURCE), changed(SOURCE, one)))
    differ = [b for a, b in zip(before, after, strict=True) if a != b]
    assert [line.strip() for line in differ] == [wanted]


@pytest.mark.parametrize("one", [
    facts("outer", "comparison", "a < b", "True"),
    facts("outer", "comparison", "a < b", "True", 3),
    facts("outer", "comparison", "a > b", "True"),
    facts("other", "comparison", "a < b", "True"),
    facts("outer.inner", "call", "inner(a + 1)", "0"),
])  # fmt: skip
def test_what_does_not_fit_its_source_is_refused(one: dict[str, object]) -> None:
    with pytest.raises(DoesNotApplyError):
        changed(SOURCE, one)
