"""The torch form of softmax with cross entropy goes over large logits some rows at a time, with the bits of the whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ops.held import Held
from tstatic.ops.loss import softmax_with_cross_entropy as loss

torch = pytest.importorskip("torch")

ROWS, CLASSES = (2, 7), 40
ATTRS = {"ignore_index": 3, "axis": -1}


def results(kind: Any, soft: bool, use_softmax: bool, both: bool = False) -> list[Any]:
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(*ROWS, CLASSES, generator=draw)
    x = (scores if use_softmax else scores.softmax(-1)).to(kind)
    y = torch.rand(x.shape, generator=draw).to(kind) if soft else torch.randint(0, 9, (*ROWS, 1), generator=draw)
    dloss = torch.rand(*ROWS, 1, generator=draw).to(kind)
    attrs = {**ATTRS, "soft_label": soft, "use_softmax": use_softmax}
    out = torch.empty_like(x), x.new_empty((*ROWS, 1))
    loss._lower(torch, x, y, None, **attrs, out=out)
    gradient = torch.empty_like(x)
    loss._grad_lower(torch, y, out[0], x if both else None, dloss, **attrs, out=gradient)
    return [*out, gradient]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("soft", "use_softmax"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("both", [False, True])
def test_parts_have_the_bits_of_the_whole(
    kind: Any, soft: bool, use_softmax: bool, both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(kind, soft, use_softmax, both)
    # Five rows each, and four at the end.
    monkeypatch.setattr(loss, "_PART", 5 * CLASSES + 3)
    assert all(torch.equal(a, b) for a, b in zip(results(kind, soft, use_softmax, both), whole, strict=True))


@pytest.mark.parametrize("both", [False, True])
def test_results_lie_in_the_place_of_what_is_read(both: bool) -> None:
    """As plans let them."""
    x, y = torch.randn(4, CLASSES), torch.randint(0, 9, (4, 1))
    attrs = {**ATTRS, "soft_label": False, "use_softmax": True}
    apart, there = (torch.empty_like(x), x.new_empty(4, 1)), (x.clone(), x.new_empty(4, 1))
    loss._lower(torch, x, y, None, **attrs, out=apart)
    loss._lower(torch, there[0], y, None, **attrs, out=there)
    assert torch.equal(apart[0], there[0])
    assert torch.equal(apart[1], there[1])
    gradient, dsoftmax = torch.empty_like(x), x if both else None
    loss._grad_lower(torch, y, apart[0], dsoftmax, apart[1], **attrs, out=gradient)
    loss._grad_lower(torch, y, there[0], dsoftmax, there[1], **attrs, out=there[0])
    assert torch.equal(gradient, there[0])


def test_of_large_logits_only_a_part_is_widened() -> None:
    """GPT-2's, of which only sizes are there."""
    x, y = (
        torch.empty(8192, 50304, dtype=torch.bfloat16, device="meta"),
        torch.empty(8192, 1, dtype=torch.int64, device="meta"),
    )
    attrs = {**ATTRS, "soft_label": False, "use_softmax": True}
    out = torch.empty_like(x), x.new_empty(8192, 1)
    with Held() as seen:
        loss._lower(torch, x, y, None, **attrs, out=out)
        loss._grad_lower(torch, y, out[0], None, out[1], **attrs, out=x)
    assert 4 * loss._PART // 2 < seen.most < 2.2 * 4 * loss._PART < x.nbytes / 5
