"""``examples/text_lstm.py`` in torch, with a packed sequence in place of lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.examples.twins import _text


class Twin(nn.Module):
    """A bidirectional LSTM, and the mean of its outputs."""

    def __init__(self, weights: _text.Arrays, sizes: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.tensor(next(weights)), freeze=False, sparse=True)
        width = self.embedding.embedding_dim
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        for direction in ("", "_reverse"):
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                setattr(self.lstm, name + direction, _text.parameter(next(weights)))
        self.head = _text.linear(weights)

    def loss(self, feed: _text.Feed) -> torch.Tensor:
        length = feed["length"]
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(feed["ids"]), length, batch_first=True, enforce_sorted=False
        )
        outputs, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return nn.functional.cross_entropy(self.head(outputs.sum(1) / length[:, None]), feed["label"][:, 0])


def losses(steps: int) -> tuple[list[float], list[float]]:
    return _text.follow("text_lstm", steps, Twin)
