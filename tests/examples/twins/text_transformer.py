"""``examples/text_transformer.py`` in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.examples.twins import _text


class Twin(nn.Module):
    """Pre-norm blocks that do not see the padding, and the mean over the words."""

    def __init__(self, weights: _text.Arrays, sizes: Any) -> None:
        super().__init__()
        self.positions = _text.parameter(next(weights))
        self.embedding = nn.Embedding.from_pretrained(torch.tensor(next(weights)), freeze=False, sparse=True)
        first = _text.encoder_layer(weights, sizes.heads, norm_first=True)
        self.norm = _text.norm(weights)
        others = [_text.encoder_layer(weights, sizes.heads, norm_first=True) for _ in range(sizes.layers - 1)]
        self.layers = nn.ModuleList([first, *others])
        self.head = _text.linear(weights)

    def loss(self, feed: _text.Feed) -> torch.Tensor:
        padding = feed["ids"] == 0
        h = self.embedding(feed["ids"]) + self.positions
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=padding)
        h = self.norm(h).masked_fill(padding[..., None], 0.0).sum(1) / (~padding).sum(1, keepdim=True)
        return nn.functional.cross_entropy(self.head(h), feed["label"][:, 0])


def losses(steps: int) -> tuple[list[float], list[float]]:
    return _text.follow("text_transformer", steps, Twin)
