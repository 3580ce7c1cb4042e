"""Placing lifetimes in one arena: no two live buffers overlap, and reuse never costs memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tstatic.plan.memory import ALIGN, Lifetime, aligned, join, place

spans = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 5000))


@given(st.lists(spans, max_size=60))
def test_live_buffers_never_overlap(drawn: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(f"v{i}", size, first, first + length) for i, (first, length, size) in enumerate(drawn)]
    for reuse in (True, False):
        offsets, total = place(lifetimes, reuse)
        assert set(offsets) == {b.name for b in lifetimes}
        for i, a in enumerate(lifetimes):
            assert offsets[a.name] % ALIGN == 0
            assert offsets[a.name] + aligned(a.nbytes) <= total
            for b in lifetimes[i + 1 :]:
                if not reuse or (a.first <= b.last and b.first <= a.last):
                    start = max(offsets[a.name], offsets[b.name])
                    end = min(offsets[a.name] + aligned(a.nbytes), offsets[b.name] + aligned(b.nbytes))
                    assert start >= end, (a, b, offsets)


@given(st.lists(spans, max_size=60))
def test_reuse_takes_at_most_as_much_as_no_reuse(drawn: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(f"v{i}", size, first, first + length) for i, (first, length, size) in enumerate(drawn)]
    assert place(lifetimes, True)[1] <= place(lifetimes, False)[1]


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(f"v{i}", 1000, i, i + 1) for i in range(100)]
    assert place(chain)[1] == 2 * aligned(1000)


def test_joined_buffers_lie_one_behind_the_other() -> None:
    lifetimes = [Lifetime("a", 10, 0, 2), Lifetime("b", 20, 1, 1), Lifetime("c", 30, 3, 5), Lifetime("d", 5, 0, 9)]
    made, within = join(lifetimes, [[("c", 256), ("a", 512)]])
    assert made == [Lifetime("b", 20, 1, 1), Lifetime("c", 768, 0, 5), Lifetime("d", 5, 0, 9)]
    assert within == {"c": 0, "a": 256}
    assert join(lifetimes, []) == (lifetimes, {})
