"""The generator's bits: published answers, any cut of the work, the torch form, the key's layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.ir.rng import RngKey, op_position, piece_start
from tstatic.tuned import philox
from tstatic.tuned.philox import (
    CHUNK,
    HALF_ROUNDS,
    WORD,
    PhiloxKey,
    draw_bits,
    fill_bits,
    philox_key,
    random_bits,
    torch_bits,
    torch_halves,
)

# Counter, key and result, from the known answers that the authors publish with their implementation.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
# Of seven rounds.
KNOWN_SEVEN = [
    ((0, 0, 0, 0), (0, 0), (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
    ((WORD,) * 4, (WORD,) * 2, (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: Any, key: Any, answer: Any) -> None:
    assert philox.philox(*counter, *key) == answer
    arrays = [np.array([c], np.uint64) for c in counter]
    with np.errstate(over="ignore"):
        assert tuple(int(w[0]) for w in philox.philox(*arrays, *(np.uint64(k) for k in key))) == answer


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers_of_the_tuned_form(counter: Any, key: Any, answer: Any) -> None:
    # The block number is the counter's first two words.
    block = counter[0] + (counter[1] << 32)
    out = np.empty(4, np.uint32)
    fill_bits(out, block, PhiloxKey(key[0], key[1], 0, counter[2], counter[3]))
    assert tuple(out.tolist()) == answer


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_SEVEN)
def test_known_answers_of_seven_rounds(counter: Any, key: Any, answer: Any) -> None:
    assert philox.philox(*counter, *key, HALF_ROUNDS) == answer
    out = np.empty(4, np.uint32)
    block = counter[0] + (counter[1] << 32)
    fill_bits(out, block, PhiloxKey(key[0], key[1], 0, counter[2], counter[3]), HALF_ROUNDS)
    assert tuple(out.tolist()) == answer


KEY = philox_key(RngKey(seed=0x0123456789ABCDEF, place=3, position=77, run=5, iteration=2))


def simple(start: int, count: int, key: PhiloxKey = KEY) -> list[int]:
    """The definition, one element at a time."""
    found = []
    for i in range(start, start + count):
        b = i // 4
        words = philox.philox(b & WORD, (b >> 32) ^ key.c1, key.c2, key.c3, key.k0, key.k1)
        found.append(words[i % 4])
    return found


@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 4 * (2**32 - 3), 4 * 2**32 + 2, 4 * (2**40) - 6])
def test_elements(start: int) -> None:
    assert random_bits(23, KEY, start).tolist() == simple(start, 23)


WHOLE = random_bits(3 * CHUNK + 11, KEY)


@given(st.integers(0, WHOLE.size), st.integers(0, WHOLE.size))
def test_any_cut_gives_the_same_bits(a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    out = np.empty(high - low, np.uint32)
    draw_bits(out, KEY, low)
    assert np.array_equal(out, WHOLE[low:high])


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox, "BLOCKS", 100)
    assert np.array_equal(random_bits(5000, KEY), WHOLE[:5000])


@pytest.mark.torch
@pytest.mark.parametrize(("count", "start"), [(1, 0), (1003, 0), (1003, 7), (9, 4 * 2**32 - 5), (0, 3)])
def test_torch_has_the_same_bits(count: int, start: int) -> None:
    torch = pytest.importorskip("torch")
    assert torch_bits(torch, count, KEY, start).tolist() == random_bits(count, KEY, start).tolist()


@pytest.mark.torch
def test_torch_takes_the_run_count_as_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    key = RngKey(9, 0, 4, run=torch.tensor(6), iteration=torch.tensor(3))
    assert (
        torch_bits(torch, 99, philox_key(key)).tolist() == random_bits(99, philox_key(RngKey(9, 0, 4, 6, 3))).tolist()
    )


def half(i: int, key: PhiloxKey = KEY) -> int:
    """The definition of an element's half."""
    b = i // 8
    words = philox.philox(b & WORD, (b >> 32) ^ key.c1, key.c2, key.c3, key.k0, key.k1, 7)
    return words[i % 8 // 2] >> 16 * (i % 2) & 0xFFFF


@pytest.mark.torch
@pytest.mark.parametrize(
    ("count", "start"), [(1, 0), (403, 0), (403, 7), (19, 8 * 2**32 - 5), (9, 8 * 2**33 + 3), (0, 3)]
)
def test_torch_has_the_halves(count: int, start: int) -> None:
    torch = pytest.importorskip("torch")
    found = torch_halves(torch, count, KEY, start).tolist()
    assert found == [half(i) for i in range(start, start + count)]


def test_halves_of_seven_rounds_are_even_and_apart() -> None:
    words = np.empty(1 << 20, np.uint32)
    fill_bits(words, 0, KEY, HALF_ROUNDS)
    halves = words.view(np.uint16)
    assert halves[:100].tolist() == [half(i) for i in range(100)]
    n = halves.size
    # Each of the 16 bits at each of the eight places of a block.
    bits = np.unpackbits(halves.view(np.uint8).reshape(-1, 16), axis=1).astype(np.int64)
    assert np.abs(bits.sum(0) - len(bits) / 2).max() < 5 * np.sqrt(len(bits)) / 2
    # All values, about equally often: the statistic has 65535 degrees of freedom.
    counts = np.bincount(halves, minlength=1 << 16)
    chi = float(((counts - n / 65536) ** 2).sum() / (n / 65536))
    assert abs(chi - 65535) < 5 * np.sqrt(2 * 65535)
    u = halves.astype(np.float64) / 2**16 - 0.5
    assert abs(u.mean() + 2.0**-17) < 5 / np.sqrt(12 * n)
    # Neighbours in a word, in a block, in the next block, and a row of 64 further on.
    for lag in (1, 2, 3, 4, 5, 6, 7, 8, 16, 64):
        assert abs(float((u[lag:] * u[:-lag]).mean())) < 5 / 12 / np.sqrt(n)
        for chance in (0.1, 0.5):
            kept = (u >= chance - 0.5).astype(np.float64) - (1 - round(chance * 65536) / 65536)
            assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 5 * chance * (1 - chance) / np.sqrt(n)


def test_layout_of_the_key() -> None:
    key = philox_key(RngKey(seed=(5 << 32) + 7, place=2, position=11, run=13, iteration=17))
    assert key == PhiloxKey(7, 5 ^ ((2 * 0x9E3779B9) & WORD), 17 << 8, 11, 13)
    assert philox_key(RngKey(1, 0), seed=(3 << 32) + 4) == PhiloxKey(4, 3, 0, 0, 0)
    assert philox_key(RngKey(-1)).k0 == WORD
    assert key.second().c3 == 13 ^ 0x80000000


CHANGES: list[dict[str, Any]] = [
    {"seed": 2},
    {"seed": 1 + (1 << 32)},
    {"place": 1},
    {"position": 1},
    {"run": 1},
    {"iteration": 1},
]


@pytest.mark.parametrize("change", CHANGES)
def test_each_part_of_the_key_counts(change: dict[str, Any]) -> None:
    one, other = random_bits(4000, philox_key(RngKey(1))), random_bits(4000, philox_key(RngKey(**{"seed": 1} | change)))
    assert np.count_nonzero(one == other) < 3
    # Half of all bits differ.
    different = int(np.unpackbits((one ^ other).view(np.uint8)).sum())
    assert abs(different - 64000) < 5 * np.sqrt(32000)


def test_second_draw_is_another_stream() -> None:
    assert np.count_nonzero(random_bits(4000, KEY) == random_bits(4000, KEY.second())) < 3


def test_bits_are_even() -> None:
    bits = np.unpackbits(WHOLE.view(np.uint8).reshape(-1, 4), axis=1).astype(np.int64)
    ones = bits.sum(axis=0)
    assert np.abs(ones - len(bits) / 2).max() < 5 * np.sqrt(len(bits)) / 2
    # Neighbours in the stream and neighbouring words of a block are not correlated.
    u = WHOLE.astype(np.float64) / 2**32 - 0.5
    for lag in (1, 2, 3, 4, 8):
        assert abs(float((u[lag:] * u[:-lag]).mean())) < 5 / 12 / np.sqrt(len(u))


# ------------------------------------------------------------------------------------------------------------ the rng key
def test_piece_follows_its_whole() -> None:
    whole = RngKey(3, 1, 4)
    tile = whole.tile(100).tile(20)
    whole.run, whole.iteration, whole.seed = 8, 2, 9
    assert (tile.seed, tile.place, tile.position, tile.run, tile.iteration, tile.start) == (9, 1, 4, 8, 2, 120)


@pytest.mark.parametrize(
    ("part", "shape", "start"),
    [
        ((slice(2, 5),), (9,), 2),
        ((slice(2, 5),), (9, 4), 8),
        ((slice(None), slice(3, 5)), (1, 9, 4), 12),
        ((slice(0, 1), slice(None), slice(7, 8)), (1, 1, 9), 7),
    ],
)
def test_piece_start(part: tuple[slice, ...], shape: tuple[int, ...], start: int) -> None:
    assert piece_start(part, shape) == start
    assert int(np.arange(np.prod(shape)).reshape(shape)[part].flat[0]) == start
    assert RngKey(1).part(part, shape).start == start


def test_positions_of_blocks_differ() -> None:
    assert [op_position(0, i) for i in range(3)] == [0, 1, 2]
    assert len({op_position(b, i) for b in range(40) for i in range(500)}) == 20000
