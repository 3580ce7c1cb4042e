"""Calls on label sequences that run alike in ``paddle`` 2.6 and here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def run(paddle: Any, build: Callable[[], list[Any]], feed: dict[str, Any]) -> list[Any]:
    """Builds a program and runs it once; returns the shape and the numbers of each result."""
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        done = paddle.static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=build())
        return [[list(value.shape), value.reshape(-1).tolist()] for value in done]


def ctc_reductions(paddle: Any) -> list[Any]:
    rng = np.random.RandomState(1)
    feed = {
        "x": rng.randn(6, 3, 5).astype("float32"), "y": np.array([[1, 1, 3], [3, 2, 2], [3, 1, 2]], "int32"),
        "n": np.array([6, 5, 2]), "m": np.array([2, 3, 3]),
    }  # fmt: skip

    def build() -> list[Any]:
        data, functional = paddle.static.data, paddle.nn.functional
        x, y = data("x", [6, 3, 5]), data("y", [3, 3], "int32")
        n, m = data("n", [3], "int64"), data("m", [3], "int64")
        x.stop_gradient = False
        found = []
        for reduction in ("mean", "sum", "none"):
            loss = functional.ctc_loss(x, y, n, m, 0, reduction)
            found += [loss, *paddle.static.gradients([paddle.sum(loss)], [x])]
        loss = functional.ctc_loss(x, y, n, m, 4, "none", norm_by_times=True)
        found += [loss, *paddle.static.gradients([paddle.sum(loss)], [x])]
        return [*found, paddle.nn.CTCLoss(0, "sum")(x, y, n, m)]

    return run(paddle, build, feed)


def viterbi(paddle: Any) -> list[Any]:
    rng = np.random.RandomState(2)
    feed = {
        "x": rng.randn(4, 5, 4).astype("float32"), "w": rng.randn(4, 4).astype("float32"), "n": np.array([5, 1, 3, 4]),
        "m": np.array([2, 1, 3, 3]),
    }  # fmt: skip

    def build() -> list[Any]:
        data = paddle.static.data
        x, w = data("x", [4, 5, 4]), data("w", [4, 4])
        n, m = data("n", [4], "int64"), data("m", [4], "int64")
        decoder = paddle.text.ViterbiDecoder(w, include_bos_eos_tag=False)
        calls = [paddle.text.viterbi_decode(x, w, n, tags) for tags in (True, False)]
        return [*calls[0], *calls[1], *decoder(x, m), *paddle.text.viterbi_decode(x, w, m)]

    return run(paddle, build, feed)


def viterbi_ties(paddle: Any) -> list[Any]:
    """Paths with equal scores."""
    rng = np.random.RandomState(4)
    feed = {
        "x": rng.randint(0, 2, (8, 5, 3)).astype("float32"), "w": rng.randint(0, 2, (3, 3)).astype("float32"),
        "n": rng.randint(1, 6, 8),
    }  # fmt: skip

    def build() -> list[Any]:
        data = paddle.static.data
        x, w, n = data("x", [8, 5, 3]), data("w", [3, 3]), data("n", [8], "int64")
        calls = [paddle.text.viterbi_decode(x, w * by, n, tags) for by in (0.0, 1.0) for tags in (True, False)]
        return [value for call in calls for value in call]

    return run(paddle, build, feed)


def masks_and_trees(paddle: Any) -> list[Any]:
    rng = np.random.RandomState(3)
    feed = {
        "n": np.array([[3, 1], [0, 2]]), "ids": rng.randint(0, 9, (4, 2, 3)), "parents": rng.randint(0, 3, (4, 2, 3)),
    }  # fmt: skip

    def build() -> list[Any]:
        data, functional = paddle.static.data, paddle.nn.functional
        n = data("n", [2, 2], "int64")
        most = paddle.full([1], 4, "int32")
        return [
            functional.sequence_mask(n), functional.sequence_mask(n, maxlen=2, dtype="float32"),
            functional.sequence_mask(n, maxlen=most, dtype="bool"),
            functional.gather_tree(data("ids", [4, 2, 3], "int64"), data("parents", [4, 2, 3], "int64")),
        ]  # fmt: skip

    return run(paddle, build, feed)


CASES = (ctc_reductions, viterbi, viterbi_ties, masks_and_trees)
