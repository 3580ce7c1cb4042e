"""Functions of numpy that are wrong in some version, and that the library therefore must not call."""

from __future__ import annotations

import ast

from tests.helpers import source


def test_nothing_is_negated_in_place_in_memory_that_may_have_gaps() -> None:
    """numpy 2.4 repeats the first value where ``np.negative(x, x)`` meets a stride of 64 bytes; a product with -1 does not."""
    found = []
    for path in source.files("tstatic/ops"):
        for node in source.nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.negative":
                given = [ast.unparse(a) for a in (*node.args, *(k.value for k in node.keywords if k.arg == "out"))]
                if len(given) > 1 and given[0] == given[1]:
                    found.append(f"{path.name}: {ast.unparse(node)}")
    assert found == []
