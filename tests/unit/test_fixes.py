"""What errors say to do is said so that a stranger can do it."""

from __future__ import annotations

import ast

from tests.helpers import source

VAGUE = (
    "change the argument", "check the argument", "check the path", "check the file", "choose one of these", "correct one",
    "leave it as it is", "swap them", "see len()", "check the axes", "check both", "use one of these", "run on one of these",
)  # fmt: skip
"""Openings that leave the reader where he was: which argument, which path, which of them."""
EXCEPTIONS = {
    # Whoever writes a kernel has both texts before him, and only he knows which is right.
    "correct one of the two",
}


def helps(fix: str) -> bool:
    """Returns whether a constant fix has a thing to type, or enough words to name one, and does not begin vaguely."""
    if fix in EXCEPTIONS:
        return True
    code = any(c in fix for c in "=()._'\"[]<>/@")
    return (code or len(fix.split()) >= 4) and not fix.startswith(VAGUE)


def test_fixes_say_what_to_do() -> None:
    """A message whose last line is "change the arguments" sends its reader to the source."""
    found, count = [], 0
    for path in source.files():
        for node in source.nodes(path):
            if not isinstance(node, ast.keyword) or node.arg != "fix" or not isinstance(node.value, ast.Constant):
                continue
            if isinstance(node.value.value, str):
                count += 1
                if not helps(node.value.value):
                    found.append(f"{path.name}:{node.value.lineno}: {node.value.value}")
    assert found == []
    assert count > 500


def test_the_check_refuses_vague_fixes() -> None:
    assert not helps("change the arguments")
    assert not helps("check the path; suffixes belong to it")
    assert not helps("leave one out")
    assert helps("pass batch_size=32")
    assert helps("give all sizes as numbers")
