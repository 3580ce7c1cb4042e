"""Sizes with which the scripts on text are tested: 20 steps take a fraction of a second."""

from __future__ import annotations

from typing import Any

TEXT = {"batch": 8, "tokens": 12, "words": 300, "width": 16, "tested": 4}
SIZES: dict[str, dict[str, Any]] = {
    "text_lstm": {**TEXT, "shortest": 4, "dropout": 0.0},
    "text_transformer": {**TEXT, "shortest": 4, "dropout": 0.0, "heads": 2},
    "bert_mlm": {**TEXT, "hidden": 2, "heads": 2},
    "word2vec": {"batch": 32, "words": 300, "width": 8, "tested": 400},
}
