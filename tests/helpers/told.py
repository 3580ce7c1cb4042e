"""Asks everything of an explanation that a user can: text, plain data, page, and why two values are one kernel or not."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tstatic import flags, static, testing
from tstatic.errors import NotFoundError

Shapes = Mapping[str, tuple[int, ...]]


def tell(
    program: static.Program, strategy: Any, fetches: Sequence[str], shapes: Shapes, number: int
) -> static.Explanation:
    """Explains a program, and reads the explanation in every form.

    Args:
        program: The program.
        strategy: What it is compiled with.
        fetches: Names of what is fetched.
        shapes: Of the feeds.
        number: Decides about which two values is asked; every seventh program is explained under strict numerics.
    """
    with flags.using_numerics("default" if number % 7 else "strict"):
        told = static.CompiledProgram(program, build_strategy=strategy).explain(
            fetch_list=list(fetches), feed_shapes=dict(shapes)
        )
        _read(told)
        _ask(told, program, number)
    return told


def _read(told: static.Explanation) -> None:
    """Reads an explanation as text, data and page."""
    assert told.to_text().startswith("launches: ")
    assert told.to_text(verbose=True).startswith("launches a step: ")
    assert len(told.to_text().splitlines()) <= 40
    data = told.to_dict()
    assert json.loads(told.to_json()) == json.loads(json.dumps(data))
    assert len(data["fusions"]["applied"]) == len(told.applied)
    for kernel in told.kernels:
        assert kernel.text.count('if __name__ == "__main__":') == 1 or "It does not run alone" in kernel.text
    assert told.to_html().rstrip().endswith("</html>")


def _ask(told: static.Explanation, program: static.Program, number: int) -> None:
    """Asks twice about two values: of those that passes removed, too."""
    names = [name for op in program.global_block().ops for name in op.output_arg_names]
    pick = random.Random(number)
    for _ in range(2 if names else 0):
        # Of an operator that a pass removed, that is the answer.
        with suppress(NotFoundError):
            answer = told.why(pick.choice(names), pick.choice(names))
            assert answer.code
            assert str(answer) == answer.text


def shapes_of(feeds: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a feed."""
    return {name: np.shape(value) for name, value in feeds.items()}


def tell_recipe(recipe: testing.Recipe, strategy: Any, number: int) -> static.Explanation:
    """Explains a drawn program with the feed that it brings."""
    built = recipe.build()
    return tell(built.main, strategy, built.fetches, shapes_of(built.feeds), number)
