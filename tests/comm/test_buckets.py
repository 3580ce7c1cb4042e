"""How gradients are cut into buckets: by bytes, by dtype, in the order of completion, small at both ends, inside large ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic import flags, static
from tstatic.comm.passes.buckets import GRAIN, Gradient, cut, limit, parts
from tstatic.comm.passes.distribution import FIRST_BYTES, MEGABYTE, Distribution, Exchange
from tstatic.comm.rendezvous import ProcessInfo
from tstatic.ir.types import Meta, dtype_of
from tstatic.static.compile import distribution

KB = 1024
DTYPES = ("float32", "bfloat16")


def gradients_of(sizes: Sequence[tuple[int, str]]) -> tuple[list[Gradient], dict[str, Meta]]:
    """Gradients of so many bytes and a dtype, complete one after another, and read behind all."""
    found = [Gradient(f"p{i}", f"g{i}", i, len(sizes) + i) for i in range(len(sizes))]
    metas = {}
    for g, (nbytes, name) in zip(found, sizes, strict=True):
        dtype = dtype_of(name)
        metas[g.value] = Meta((nbytes // dtype.itemsize,), dtype)
    return found, metas


def sizes_of(sizes: Sequence[int], how: Distribution, dtype: str = "float32") -> list[list[int]]:
    """The bytes of the gradients of each bucket."""
    gradients, metas = gradients_of([(n, dtype) for n in sizes])
    return [[metas[g.value].nbytes for g in bucket] for bucket in cut(gradients, metas, how)]


def how(megabytes: float | None, **fields: Any) -> Distribution:
    return Distribution(2, 2, bucket_bytes=None if megabytes is None else megabytes * MEGABYTE, **fields)


def test_the_first_bucket_starts_early_and_the_last_is_small() -> None:
    sizes = [600 * KB] * 20
    assert sizes_of(sizes, how(3)) == [[600 * KB] * 2, *([[600 * KB] * 5] * 3), [600 * KB] * 2, [600 * KB]]
    assert sizes_of(sizes, how(3, last_bytes=2 * MEGABYTE))[-1] == [600 * KB] * 3
    assert sizes_of(sizes, how(None)) == [sizes]


def test_each_gradient_is_alone_where_that_is_asked_for() -> None:
    assert sizes_of([8, 8, 8], how(0)) == [[8], [8], [8]]
    assert sizes_of([8, 8, 8], how(25, bucket_count=0)) == [[8], [8], [8]]


def test_a_least_number_of_gradients_is_kept_also_at_the_end() -> None:
    assert sizes_of([8 * MEGABYTE] * 5, how(1, bucket_count=3)) == [[8 * MEGABYTE] * 3, [8 * MEGABYTE] * 2]


def test_a_bucket_of_one_dtype_goes_on_behind_a_gradient_of_another() -> None:
    """Layer norms in float32 between 16-bit products: cut at each change, GPT-2 had 51 collectives instead of 12."""
    mixed = [(400 * KB if i % 2 else 4 * KB, "bfloat16" if i % 2 else "float32") for i in range(40)]
    gradients, metas = gradients_of(mixed)
    found = list(cut(gradients, metas, how(4)))
    assert all(len({metas[g.value].dtype for g in bucket}) == 1 for bucket in found)
    low = [bucket for bucket in found if metas[bucket[0].value].dtype.is_low]
    assert [len(bucket) for bucket in low] == [3, 10, 5, 2]
    # The last bucket of one dtype does not wait for that of the other.
    assert [max(g.made for g in bucket) for bucket in found] == sorted(max(g.made for g in bucket) for bucket in found)


def test_a_bucket_ends_before_an_op_reads_one_of_its_gradients() -> None:
    gradients, metas = gradients_of([(8, "float32")] * 4)
    gradients[1] = replace(gradients[1], read=2)
    assert [len(bucket) for bucket in cut(gradients, metas, how(25, last_bytes=0))] == [2, 1, 1]


def test_sums_that_not_every_run_completes_are_apart_from_those_that_it_does() -> None:
    gradients, metas = gradients_of([(8, "float32")] * 4)
    gradients[2] = replace(gradients[2], hold="hold")
    assert [[g.hold for g in bucket] for bucket in cut(gradients, metas, how(None))] == [["hold"], [None] * 3]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 12_000_000).map(lambda n: 4 * n), st.sampled_from(DTYPES)), max_size=30),
    megabytes=st.sampled_from([None, 0, 0.5, 1, 4, 25]),
    last=st.sampled_from([0, 1, 4]),
)  # fmt: skip
def test_every_gradient_is_in_one_bucket_in_its_order_and_no_bucket_is_too_large(
    sizes: list[tuple[int, str]], megabytes: float | None, last: float
) -> None:
    gradients, metas = gradients_of(sizes)
    asked = how(megabytes, last_bytes=last * MEGABYTE)
    found = list(cut(gradients, metas, asked))
    assert sorted((g for bucket in found for g in bucket), key=lambda g: g.made) == gradients
    seen: set[str] = set()
    for bucket in found:
        assert [g.made for g in bucket] == sorted(g.made for g in bucket)
        nbytes, dtype = sum(metas[g.value].nbytes for g in bucket), metas[bucket[0].value].dtype
        if asked.bucket_bytes is not None:
            assert len(bucket) == 1 or nbytes <= asked.bucket_bytes
            if dtype.name not in seen:
                assert nbytes - metas[bucket[-1].value].nbytes < FIRST_BYTES
        seen.add(dtype.name)
    if gradients and megabytes:
        ends = next(bucket for bucket in found if gradients[-1] in bucket)
        assert len(ends) == 1 or sum(metas[g.value].nbytes for g in ends) <= last * MEGABYTE


@given(nbytes=st.integers(0, 1 << 22), most=st.one_of(st.just(0), st.integers(1, 1 << 20)))
def test_parts_of_a_gradient_cover_it_without_gaps(nbytes: int, most: int) -> None:
    found = parts(nbytes, most)
    assert found[0][0] == 0
    assert found[-1][1] == nbytes
    for (_, end), (start, _) in itertools.pairwise(found):
        assert end == start
        assert start % GRAIN == 0
    if most:
        assert max(end - start for start, end in found) <= max(most, GRAIN)
        assert len(found) <= max(1, -(-nbytes // max(most // GRAIN * GRAIN, GRAIN)))
    else:
        assert len(found) == 1


def test_only_a_gradient_that_is_larger_than_a_bucket_is_divided() -> None:
    gradients, metas = gradients_of([(40 * MEGABYTE, "float32"), (8, "float32")])
    first, second = ([g] for g in gradients)
    assert limit(first, metas, how(25)) == 25 * MEGABYTE
    assert len(parts(40 * MEGABYTE, 25 * MEGABYTE)) == 2
    for bucket, asked in (
        (second, how(25)), (first, how(None)), (first, how(0)), (first, how(25, bucket_count=0)),
        (gradients, how(25, bucket_count=2)),
    ):  # fmt: skip
        assert limit(bucket, metas, asked) == 0


@pytest.mark.parametrize(
    ("flag", "fleet", "late", "processes", "wanted"),
    [
        (-1.0, None, True, 1, 25.0), (-1.0, None, False, 2, 25.0), (-1.0, None, False, 1, None), (-1.0, 32.0, False, 1, 32.0),
        (-1.0, 8.0, True, 2, 8.0), (4.0, 32.0, True, 1, 4.0), (0.0, 32.0, True, 1, 0.0), (100.0, None, False, 1, 100.0),
        (-1.0, -3.0, True, 1, 0.0),
    ],
)  # fmt: skip
def test_the_flag_beats_fleet_and_fleet_the_default(
    flag: float, fleet: float | None, late: bool, processes: int, wanted: float | None
) -> None:
    flags.set_flags({"FLAGS_fuse_parameter_memory_size": flag})
    info = ProcessInfo() if processes == 1 else replace(ProcessInfo(), size=processes)
    made = distribution(static.BuildStrategy(), 2, info, Exchange(fleet, 3.0), late)
    assert made.bucket_bytes == (None if wanted is None else wanted * MEGABYTE)
    assert made.last_bytes == 3 * MEGABYTE
