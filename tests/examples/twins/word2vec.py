"""``examples/word2vec.py`` in torch: the words drawn at random are the same in both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.examples.twins import _text


class Twin(nn.Module):
    """Two tables with sparse gradients, and the loss of negative sampling as Mikolov et al. write it."""

    def __init__(self, weights: _text.Arrays, sizes: Any) -> None:
        super().__init__()
        self.words, self.neighbours = (
            nn.Embedding.from_pretrained(torch.tensor(next(weights)), freeze=False, sparse=True) for _ in range(2)
        )

    def loss(self, feed: _text.Feed) -> torch.Tensor:
        scores = torch.einsum("nw,nkw->nk", self.words(feed["word"]), self.neighbours(feed["others"]))
        log = nn.functional.logsigmoid
        return -(log(scores[:, 0]) + log(-scores[:, 1:]).sum(1)).mean()


def losses(steps: int) -> tuple[list[float], list[float]]:
    # The second table begins with zeros: with the script's rate little moves in so few steps.
    return _text.follow("word2vec", steps, Twin, most=None, rate=0.05)
