"""How work is cut: the parts of every kind of work, what becomes of each slot, and the one number that shrinks tiles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.ir import split
from tstatic.ir.split import FIRST, FREE, PARTIAL_SUM, WHOLE, Split, TileSize, along, free_axis, row_parts, tile_size
from tstatic.ir.types import Meta, float32

KINDS = {name: value for name, value in vars(split).items() if isinstance(value, TileSize)}
TEN = TileSize(10)


def metas(*shapes: tuple[int, ...] | None) -> list[Meta | None]:
    return [None if s is None else Meta(s, float32) for s in shapes]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(items=st.integers(0, 300), work=st.integers(0, 1 << 24), multiple=st.integers(1, 9))
def test_parts_cover_all_items_once_and_keep_the_multiple(kind: TileSize, items: int, work: int, multiple: int) -> None:
    parts = kind.parts(items, work, multiple)
    if parts is None:
        return
    assert len(parts) > 1
    assert [p.start for p in parts] == [0, *(p.stop for p in parts[:-1])]
    assert parts[-1].stop == items
    assert all(p.start < p.stop and p.start % multiple == 0 for p in parts)
    assert len(parts) <= (kind.most or items)
    assert not kind.even or len(parts).bit_count() == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_work_of_one_tile_stays_whole_and_one_number_shrinks_all_tiles(kind: TileSize) -> None:
    def shrink_and_fail() -> None:
        with tile_size(4):
            assert kind.parts(64, 64) is not None
            raise ZeroDivisionError

    assert kind.parts(64, kind.size * min(1.0, 0.9 * kind.pair)) is None
    if kind.even:
        assert kind.parts(64, kind.size * kind.pair) == [slice(0, 32), slice(32, 64)]
    with pytest.raises(ZeroDivisionError):
        shrink_and_fail()
    assert kind.parts(64, 64) is None


def test_rows_hold_a_multiple_of_elements() -> None:
    assert row_parts((1, 9, 6), TEN, 4) == (1, [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8), slice(8, 9)])
    assert row_parts((1, 1), TEN) == row_parts((0, 40), TEN) == (0, None)


def test_the_free_axis_is_the_first_that_is_long_enough_else_the_longest() -> None:
    assert free_axis((4, 9, 9), (), 4) == 0
    assert free_axis((4, 9, 9), (), 5) == 1
    assert free_axis((4, 9, 9), (0, 1), 99) == 2
    assert free_axis((4, 1), (0,), 1) is None


@pytest.mark.parametrize(
    ("axis", "index"), [(0, (slice(1, 2),)), (1, (slice(None), slice(1, 2))), (-2, (..., slice(1, 2), slice(None)))]
)
def test_along_takes_a_part_of_one_axis(axis: int, index: Any) -> None:
    assert along(axis, slice(1, 2)) == index


def test_slots_are_cut_passed_whole_summed_or_left_out() -> None:
    cut = Split(TEN, 0, WHOLE, None, 0, PARTIAL_SUM)
    assert cut(*metas((4, 5), (7,), (7,), (4,), (7,))) == [
        ((slice(i, i + 2),), WHOLE, None, (slice(i, i + 2),), PARTIAL_SUM) for i in (0, 2)
    ]


def test_a_slot_with_several_items_for_each_is_cut_into_longer_parts() -> None:
    assert Split(TEN, 0)(*metas((4, 9), (8,))) == [((slice(i, i + 1),), (slice(2 * i, 2 * i + 2),)) for i in range(4)]


@pytest.mark.parametrize(
    ("cut", "shapes"),
    [
        (Split(TEN, 0), ((4, 9), (6,))),
        (Split(TEN, 0), ((4, 9), ())),
        (Split(TEN, FIRST), ((9, 9), (9,))),
        (Split(TEN, FIRST), ((4, 9), (1, 9))),
        (Split(TEN, FREE, work=1), ((8, 9), (4, 9))),
        (Split(TEN, FREE, taken=(0, 1)), ((8, 9), (8, 9))),
        (Split(TEN, 0), ((0, 9), (0,))),
        (Split(TEN, 0), ((-1, 9), (-1,))),
    ],
)
def test_nothing_is_cut_where_slots_do_not_correspond(cut: Split, shapes: Any) -> None:
    assert cut(*metas(*shapes)) is None


def test_the_free_axis_moves_where_a_result_lacks_the_taken_ones() -> None:
    cut = Split(TEN, FREE, taken="axis", unless="flatten")
    found = cut(*metas((3, 8), (8,)), axis=0, flatten=False)
    assert found is not None
    assert found[0] == ((slice(None), slice(0, 3)), (slice(0, 3),))
    assert cut(*metas((3, 8), (8,)), axis=0, flatten=True) is None


def test_lists_of_arrays_are_cut_alike() -> None:
    xs = metas((4, 5), (4, 5))
    assert Split(TEN, FIRST)(xs, *metas((4, 5))) == [([(slice(i, i + 2),)] * 2, (slice(i, i + 2),)) for i in (0, 2)]
