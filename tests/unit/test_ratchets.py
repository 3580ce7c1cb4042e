"""Measures of the source that may only become better; ``make ratchets`` lowers the numbers of ``ratchets.json``."""

from __future__ import annotations

import ast
import json

import pytest

from tests.helpers import measures
from tests.helpers.measures import MEASURES, NOT_OPS, OPS, number, recorded, trees


@pytest.mark.parametrize("name", MEASURES)
def test_no_measure_becomes_worse(name: str) -> None:
    found = MEASURES[name]()
    shown = "" if isinstance(found, int) else ":\n  " + "\n  ".join(found)
    assert number(found) <= recorded()[name], (
        f"{name}: {number(found)} instead of at most {recorded()[name]}{shown}\n"
        "where this is meant (a feature needs its lines), raise the number in tests/unit/ratchets.json and say why in the commit"
    )


def test_every_measure_has_a_number_and_every_number_a_measure() -> None:
    assert list(recorded()) == list(MEASURES), "run `make ratchets`"


@pytest.mark.parametrize("wing", measures.WINGS)
def test_a_wing_stays_within_its_budget(wing: str) -> None:
    code, budget = measures.code_by_wing()[wing], json.loads(measures.BUDGETS.read_text(encoding="utf-8"))[wing]
    assert code <= budget, (
        f"{wing}: {code:,} lines of code instead of at most {budget:,}\n"
        "look for what is told twice; where the feature is worth its lines, raise the budget in tests/unit/budgets.json in "
        "a commit that says so"
    )
    assert budget - code <= measures.ROOM, (
        f"{wing}: lower its budget in tests/unit/budgets.json to about {code + 1000:,}"
    )


@pytest.mark.parametrize(
    ("file", "wing"),
    [
        ("ops/a.py", "engine"),
        ("a.py", "engine"),
        ("nn/layer/a.py", "library"),
        ("extras/a/b.py", "extras"),
        ("tools/a.py", "tools"),
    ],
)
def test_every_file_lies_in_a_wing(file: str, wing: str) -> None:
    assert measures.wing_of(f"tstatic/{file}") == wing


def test_what_only_looks_like_a_table_of_ops_is_still_there() -> None:
    found = set(measures.op_tables(trees(), set(OPS)))
    assert NOT_OPS.keys() - found == set(), "take these out of NOT_OPS"


def test_lines_of_code_are_counted_without_what_explains() -> None:
    lines = ['"""A module.', "", "More.", '"""', "", "import os", "", "# Why.", "def f(a,", "      b):"]
    lines += ['    """Adds."""', "    return (", "        a + b", "    )"]
    assert measures.code_lines("\n".join(lines)) == 6


# ------------------------------------------------------------------------------------------- each measure finds a fault
def parsed(**texts: str) -> dict[str, ast.Module]:
    return {f"tstatic/{name.replace('__', '/')}.py": ast.parse(text) for name, text in texts.items()}


def test_circles_are_found_through_lazy_and_type_only_imports_and_through_others() -> None:
    files = parsed(
        a="from tstatic import b",
        b="def f():\n    from tstatic.c import g",
        c="if TYPE_CHECKING:\n    import tstatic.a",
        d="import tstatic.a, tstatic.e",
        e="import os",
    )
    assert measures.import_circles(files) == ["tstatic.a, tstatic.b, tstatic.c"]
    assert measures.import_circles(parsed(a="import tstatic.b", b="import os")) == []


def test_imports_between_families_of_ops_are_found() -> None:
    files = parsed(
        ops__conv__a="from tstatic.ops.shape.b import x\nfrom tstatic.ops.conv._c import y\nfrom tstatic.ops.base.d import z",
        ops__conv___c="",
        ops__shape__b="from tstatic.ops.conv._c import y",
        ops__base__d="",
    )
    assert measures.family_imports(files) == [
        "tstatic.ops.conv.a imports tstatic.ops.shape.b",
        "tstatic.ops.shape.b imports tstatic.ops.conv._c",
    ]
    assert measures.private_imports(files) == [
        "tstatic.ops.shape.b imports tstatic.ops.conv._c",
    ]


@pytest.mark.parametrize(
    "probe",
    [
        "hasattr(d.ref, 'bind_arrays')",
        "getattr(ref, name, None)",
        "isinstance(op.definition.ref, Fill)",
        "getattr(f, 'nodes', 1)",
    ],
)
def test_a_probe_of_a_reference_is_found(probe: str) -> None:
    assert len(measures.reference_probes(parsed(a=probe))) == 1
    assert measures.reference_probes(parsed(a="hasattr(x, 'shape'), isinstance(y, int), d.ref(x)")) == []


@pytest.mark.parametrize(
    "table",
    [
        "{'relu': 1, 'tanh': 2}",
        "('relu', 'tanh', 'gelu')",
        "['relu', 'tanh', 'gelu', 'x']",
        "frozenset({'relu', 'tanh', 'gelu'})",
    ],
)
def test_a_table_of_ops_is_found(table: str) -> None:
    types = set(OPS)
    assert measures.op_tables(parsed(passes__a=f"FUSABLE = {table}"), types) == ["tstatic/passes/a.py:FUSABLE"]
    assert measures.op_tables(parsed(ops___a=f"def f():\n    return {table}"), types) == ["tstatic/ops/_a.py:f"]
    assert measures.op_tables(parsed(ops__a=f"FUSABLE = {table}"), types) == []


def test_a_large_table_is_found_in_a_file_of_ops_too() -> None:
    table = "FUSABLE = {'relu': 1, 'tanh': 2, 'conv2d': 3, 'softmax': 4, 'mul': 5}"
    assert measures.op_tables(parsed(ops__a=table), set(OPS)) == ["tstatic/ops/a.py:FUSABLE"]


def test_few_op_types_are_no_table() -> None:
    assert measures.op_tables(parsed(a="{'relu': 1, 'x': 2}, ('relu', 'tanh', 'x')"), set(OPS)) == []


def test_a_size_of_tiles_is_found() -> None:
    files = parsed(ops__a="_TILE = 1 << 16\nROW_TILE: int = 4\nTILES = 3\nOWN = TileSize(5)", static__a="TILE = 1")
    assert measures.tile_sizes(files) == [f"tstatic/ops/a.py:{n}" for n in ("_TILE", "ROW_TILE", "OWN")]


def test_a_package_with_few_comments_and_a_long_file_without_any_are_found() -> None:
    code = "\n".join(f"a{i} = {i}" for i in range(60))
    few = {"tstatic/comm/a.py": f"# Why.\n{code}\nb = 1  # also why\n", "tstatic/comm/b.py": "c = 2\n"}
    assert measures.uncommented(few) == ["tstatic/comm: 2 lines of comment for 62 of code"]
    enough = {**few, "tstatic/comm/b.py": "# One.\n# Two.\n"}
    assert measures.uncommented(enough) == []
    (found, _) = measures.uncommented(
        {"tstatic/plan/a.py": f"# ------ a rule\n{code}  # noqa: E1\n", "tstatic/plan/b.py": "# a\n"}
    )
    assert found == "tstatic/plan/a.py: 60 lines of code without a comment"


@pytest.mark.parametrize(
    "constant",
    [
        "A = 3",
        "_A = 1 << 5",
        "A, B = 1, 2",
        "A: int = 3",
        "A = timedelta(days=30)",
        "A = (1.5, 2)\n\n# Why, of something else.",
    ],
)
def test_a_number_without_a_reason_is_found(constant: str) -> None:
    assert len(measures.numbers_without_reason({"tstatic/comm/a.py": constant})) == 1
    said = f"# Why.\n{constant}", f'{constant.splitlines()[0]}\n"""Why."""', f"{constant.splitlines()[0]}  # why"
    assert measures.numbers_without_reason(dict(enumerate(said))) == []  # type: ignore[arg-type]
    other = "a = 3", "A = True", "A = 'text'", "A = []", "def f():\n    A = 3", "# Why.\nA = 3\nB = 'no number'"
    assert measures.numbers_without_reason(dict(enumerate(other))) == []  # type: ignore[arg-type]
    assert len(measures.numbers_without_reason({"a": f"b = 1  # why, of another\n{constant}"})) == 1


def test_names_of_files_are_read_from_the_heads_of_bullets() -> None:
    doc = "Maps.\n\n* ``a``, ``b``,\n  ``c``  do ``what`` they do\n    and ``more``\n* ``d``  is new\n\nUses ``e``.\n"
    assert measures.named_files(doc) == {"a", "b", "c", "d"}
