"""Measures of the source that may only become better; ``make ratchets`` lowers the numbers of ``ratchets.json``."""

from __future__ import annotations

import ast

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


def test_names_of_files_are_read_from_the_heads_of_bullets() -> None:
    doc = "Maps.\n\n* ``a``, ``b``,\n  ``c``  do ``what`` they do\n    and ``more``\n* ``d``  is new\n\nUses ``e``.\n"
    assert measures.named_files(doc) == {"a", "b", "c", "d"}
