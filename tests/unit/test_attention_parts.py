"""Which keys a batch of queries reads, and which batches of queries share the keys of a batch."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import pytest

from tstatic.fusion.attention.parts import Sizes
from tstatic.fusion.codegen.text.size_names import SizeNames


def in_numbers(text_of: Callable[[SizeNames], str]) -> str:
    """A text with numbers in the place of their names."""
    names = SizeNames()
    *lines, text = names.defined([text_of(names)])
    for line in lines:
        name, _, number = line.split("  #")[0].partition(": tl.constexpr = ")
        text = re.sub(rf"\b{name}\b", number, text)
    return text


BATCHES = [(), (3,), (2, 3), (2, 3, 2), (2, 1, 3), (2, 2, 3, 2)]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_heads_that_share_keys_are_numbered_whichever_axes_they_share_them_along(batch: tuple[int, ...]) -> None:
    """Every choice of axes: two of them, with an axis of their own between, once went wrong unseen."""
    places = list(itertools.product(*map(range, batch)))
    for shared in itertools.product((False, True), repeat=len(batch)):
        keys = tuple(1 if s else n for s, n in zip(shared, batch, strict=True))
        sizes = Sizes(batch, keys, 4, 4, 4, 4)
        of_batch, of_head = in_numbers(sizes.key_batch), in_numbers(sizes.batch_of_head)
        for number, place in enumerate(places):
            own = tuple(0 if s else i for s, i in zip(shared, place, strict=True))
            wanted = sum(i * math.prod(keys[axis + 1 :]) for axis, i in enumerate(own))
            assert eval(of_batch, {"batch": number}) == wanted, (shared, place)
        heads = sizes.batches // sizes.key_batches
        for key in range(sizes.key_batches):
            found = [eval(of_head or "0", {"keys": key, "head": head}) for head in range(heads)]
            assert sorted(found) == [n for n in range(sizes.batches) if eval(of_batch, {"batch": n}) == key], shared
