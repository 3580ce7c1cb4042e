"""Loops over blocks of keys or queries: those in which every score counts, and those on the diagonal or at the edge."""

from __future__ import annotations

from collections.abc import Callable

from tstatic.fusion.codegen.loops.lines import nested

Body = Callable[[str], list[str]]
"""Makes the lines of a loop, from the text of the mask of its blocks; the text is empty where all scores count."""


def seen(diagonal: str | None, edge: str, *, turned: bool = False) -> str:
    """Returns the text of whether a score counts: it lies before the edge of the matrix, and not above the diagonal."""
    if diagonal is None:
        return edge
    below = "columns[:, None] <= rows[None, :]" if turned else "columns[None, :] <= rows[:, None]"
    return f"{edge} & ({below} + {diagonal})"


def over_keys(count: str, diagonal: str | None, body: Body) -> list[str]:
    """Returns loops over the blocks of keys that a block of queries sees: those that it sees whole, then the others.

    Args:
        count: Text of how many keys there are.
        diagonal: Text of the last key that the first query sees, where each query sees one more; ``None`` where all are seen.
        body: Makes the lines of a loop.
    """
    edge = seen(diagonal, f"(columns < {count})[None, :]")
    if diagonal is None:
        return [
            *nested(f"for start in range(0, {count} // COLUMNS * COLUMNS, COLUMNS):", body("")),
            *nested(
                f"if {count} % COLUMNS != 0:",
                nested(f"for start in range({count} // COLUMNS * COLUMNS, {count}, COLUMNS):", body(edge)),
            ),
        ]
    return [
        f"whole = tl.minimum(top_row + ({diagonal} + 1), {count}) // COLUMNS * COLUMNS",
        f"last = tl.minimum(top_row + ROWS + {diagonal}, {count})",
        *nested("for start in range(0, whole, COLUMNS):", body("")),
        "# The blocks on the diagonal, or at the edge.",
        *nested("for start in range(whole, last, COLUMNS):", body(edge)),
    ]


def over_queries(count: str, diagonal: str | None, body: Body) -> list[str]:
    """Returns loops over the blocks of queries that see a block of keys; arguments as above, for queries."""
    edge = seen(diagonal, f"(rows < {count})[None, :]", turned=True)
    rest = nested(
        f"if {count} % ROWS != 0:",
        nested(f"for start in range(tl.maximum(whole, {count} // ROWS * ROWS), {count}, ROWS):", body(edge)),
    )
    if diagonal is None:
        return [
            f"whole = {count} // ROWS * ROWS",
            *nested("for start in range(0, whole, ROWS):", body("")),
            *rest,
        ]
    # Of a block of rows on the diagonal, the last row sees a key of the block, and the first one not all of them.
    return [
        f"begin = tl.maximum(first_column - {diagonal}, 0) // ROWS * ROWS",
        f"whole = tl.maximum(first_column + COLUMNS - 1 - {diagonal} + ROWS - 1, 0) // ROWS * ROWS",
        "# The blocks on the diagonal.",
        *nested(f"for start in range(begin, tl.minimum(whole, {count}), ROWS):", body(edge)),
        *nested(f"for start in range(whole, {count} // ROWS * ROWS, ROWS):", body("")),
        *rest,
    ]


def own_rows(*, last_first: bool) -> list[str]:
    """Lines that say which queries a program has; ``last_first``: the last program has the first ones."""
    if not last_first:
        return ["rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)"]
    # Where later queries see more keys, what takes longest begins first.
    return ["top_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS", "rows = top_row + tl.arange(0, ROWS)"]
