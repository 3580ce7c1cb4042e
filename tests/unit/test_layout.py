"""Layered layout: nothing overlaps, chains are straight, crossings that can be avoided are."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tstatic.viz.layout import GAP, Layered


def graph(rows: list[int], edges: list[tuple[int, int]], width: float = 40.0) -> Layered:
    """A graph with so many nodes in each row; nodes are numbered row by row."""
    made = Layered()
    for row, count in enumerate(rows):
        for _ in range(count):
            made.node(row, width)
    for start, end in edges:
        made.edge(start, end)
    return made


def crossings(made: Layered) -> int:
    pairs = [(a, b) for path in made.paths for a, b in itertools.pairwise(path)]
    return sum(
        made.row[a] == made.row[c] and (made.x[a] - made.x[c]) * (made.x[b] - made.x[d]) < 0
        for i, (a, b) in enumerate(pairs)
        for c, d in pairs[i + 1 :]
    )


def assert_apart(made: Layered) -> None:
    for row in made.rows:
        for a, b in itertools.pairwise(row):
            assert made.x[b] - made.x[a] >= (made.width[a] + made.width[b]) / 2 + GAP - 1e-6


def test_a_chain_is_straight() -> None:
    made = graph([1] * 30, [(i, i + 1) for i in range(29)])
    made.place()
    assert max(made.x) - min(made.x) < 1e-6


def test_an_edge_over_several_rows_bends_in_each() -> None:
    made = graph([1, 1, 1, 1], [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [made.row[n] for n in made.paths[-1]] == [0, 1, 2, 3]
    assert [made.width[n] for n in made.paths[-1]] == [40.0, 0.0, 0.0, 40.0]
    made.place()
    assert_apart(made)


def test_rows_are_sorted_so_that_edges_do_not_cross() -> None:
    made = graph([3, 3, 3], [(0, 5), (1, 4), (2, 3), (3, 8), (4, 7), (5, 6)])
    assert made.paths
    made.place()
    assert crossings(made) == 0


def test_the_count_of_crossings_sees_one() -> None:
    made = graph([2, 2], [(0, 3), (1, 2)])
    made.x[:] = [0.0, 100.0, 0.0, 100.0]
    assert crossings(made) == 1


def test_a_weak_edge_moves_its_own_end() -> None:
    made = Layered()
    weight, value, op, out = made.node(0, 40.0), made.node(0, 40.0), made.node(1, 40.0), made.node(2, 40.0)
    made.edge(weight, op, 0.05)
    made.edge(value, op)
    made.edge(op, out)
    made.place()
    assert abs(made.x[op] - made.x[value]) < 5 < abs(made.x[op] - made.x[weight])


def test_nothing_at_all() -> None:
    assert Layered().place() == (0.0, 0.0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_nodes_keep_apart_and_ends_are_ends(rows: list[int], data: st.DataObject) -> None:
    starts = [sum(rows[:i]) for i in range(len(rows) + 1)]
    edges = []
    for _ in range(data.draw(st.integers(0, 8))) if len(rows) > 1 else ():
        low = data.draw(st.integers(0, len(rows) - 2))
        high = data.draw(st.integers(low + 1, len(rows) - 1))
        edges.append(
            (
                data.draw(st.integers(starts[low], starts[low + 1] - 1)),
                data.draw(st.integers(starts[high], starts[high + 1] - 1)),
            )
        )
    made = graph(rows, edges, data.draw(st.floats(1, 200)))
    left, right = made.place()
    assert_apart(made)
    assert all(left - 1e-6 <= x - w / 2 and x + w / 2 <= right + 1e-6 for x, w in zip(made.x, made.width, strict=True))
    assert sorted(n for row in made.rows for n in row) == list(range(len(made.x)))
