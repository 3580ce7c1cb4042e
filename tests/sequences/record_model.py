"""Saves a model on sequences with Paddle 2.6.2: ``.venv-paddle/bin/python -m tests.sequences.record_model``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).with_name("model")


def main():
    """Writes the files."""
    import paddle

    paddle.enable_static()
    paddle.seed(3)
    layers = paddle.static.nn
    words = paddle.static.data("words", [None], "int64", lod_level=1)
    vectors = layers.embedding(words, [9, 4])
    wide = layers.sequence_conv(vectors, 3, 3, act="tanh")
    both = layers.sequence_concat([layers.sequence_reverse(wide), wide])
    pooled = layers.sequence_pool(both, "max")
    again = layers.sequence_expand_as(pooled, words)
    rows = paddle.concat([wide, again], axis=1)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    FOLDER.mkdir(exist_ok=True)
    paddle.static.save_inference_model(str(FOLDER / "sequences"), [words], [pooled, rows], exe)
    lengths = [[2, 1, 4]]
    data = np.array([1, 2, 8, 0, 3, 5, 7], "int64")
    feed = {"words": paddle.base.create_lod_tensor(data, lengths, paddle.CPUPlace())}
    done = exe.run(feed=feed, fetch_list=[pooled, rows], return_numpy=False)
    facts = {
        "version": paddle.__version__, "data": data.tolist(), "lengths": lengths,
        "results": [{"values": np.array(t).tolist(), "lod": t.lod()} for t in done],
    }  # fmt: skip
    (FOLDER / "results.json").write_text(json.dumps(facts, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
