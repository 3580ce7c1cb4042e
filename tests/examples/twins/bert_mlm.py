"""``examples/bert_mlm.py`` in torch: hidden words are the same in both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.examples.twins import _text


class Twin(nn.Module):
    """Post-norm blocks, and an output layer that has the embedding's weights."""

    def __init__(self, weights: _text.Arrays, sizes: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.tensor(next(weights)), freeze=False)
        self.positions = _text.parameter(next(weights))
        self.first_norm = _text.norm(weights)
        self.layers = nn.ModuleList(
            _text.encoder_layer(weights, sizes.heads, norm_first=False) for _ in range(sizes.layers)
        )
        self.last_norm, self.dense = _text.norm(weights), _text.linear(weights)
        self.bias = _text.parameter(next(weights))

    def loss(self, feed: _text.Feed) -> torch.Tensor:
        h = self.first_norm(self.embedding(feed["ids"]) + self.positions)
        for layer in self.layers:
            h = layer(h)
        h = h[torch.arange(len(h))[:, None], feed["place"]]
        h = self.last_norm(nn.functional.gelu(self.dense(h)))
        logits = nn.functional.linear(h, self.embedding.weight, self.bias)
        return nn.functional.cross_entropy(logits.flatten(0, 1), feed["label"].flatten())


def adamw(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)]


def losses(steps: int) -> tuple[list[float], list[float]]:
    return _text.follow("bert_mlm", steps, Twin, adamw)
