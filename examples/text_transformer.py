"""Trains a Transformer that tells from a passage of 16 to 64 words which module of Python's library it is from.

    python examples/text_transformer.py [--epochs 6] [--amp bf16] [--places 2]
    python examples/text_transformer.py --resume --epochs 9

The data are those of ``text_lstm.py``: the first four fifths of twelve modules' files to learn from, the last fifths to be tested
on. Passages are padded; a mask hides the padding from the attention. The goal is an accuracy of 0.72 on 720 passages; a guess has
0.083. The picture shows how the accuracy grows with a passage's length, beside that of counts of words alone (naive Bayes).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import library
import numpy as np
import training

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import io, nn, static

GOAL = 0.72
PER_EPOCH = 100
RATE = 3e-3


@dataclass(frozen=True)
class Sizes:
    """Of the batches and of the network."""

    batch: int = 64
    tokens: int = 64
    shortest: int = 16
    words: int = 8192
    width: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.3
    tested: int = 60
    """Passages of each module in the test."""


# -------------------------------------------------------------------------------------------------------------- network
def network(ids: static.Variable, sizes: Sizes) -> static.Variable:
    """Embeddings of words and positions, pre-norm blocks that do not see the padding, the mean over the words; returns logits."""
    small = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.1))
    positions = static.create_parameter([sizes.tokens, sizes.width], "float32", attr=small)
    h = nn.Embedding(sizes.words, sizes.width, sparse=True, weight_attr=small)(ids) + positions
    h = F.dropout(h, sizes.dropout)
    seen = paddle.not_equal(ids, paddle.full([1], library.PAD, "int64"))
    layer = nn.TransformerEncoderLayer(
        sizes.width, sizes.heads, 4 * sizes.width, sizes.dropout, "gelu", normalize_before=True
    )
    # [n, 1, 1, tokens]: the same words are hidden from all queries and heads.
    h = nn.TransformerEncoder(layer, sizes.layers, nn.LayerNorm(sizes.width))(h, paddle.unsqueeze(seen, [1, 2]))
    weights = paddle.cast(paddle.unsqueeze(seen, 2), "float32")
    mean = paddle.sum(h * weights, axis=1) / paddle.sum(weights, axis=1)
    return nn.Linear(sizes.width, len(library.MODULES))(F.dropout(mean, sizes.dropout))


@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    feeds: list[static.Variable]
    loss: static.Variable
    logits: static.Variable
    scheduler: Any


def build(sizes: Sizes, steps: int, amp: str = "") -> Model:
    """Builds the programs; the learning rate rises for a tenth of the steps, then falls."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = static.data("ids", [None, sizes.tokens], "int64")
        label = static.data("label", [None, 1], "int64")
        logits = network(ids, sizes)
        loss = F.cross_entropy(logits, label)
        test = main.clone(for_test=True)
        warm = max(1, steps // 10)
        falling = paddle.optimizer.lr.CosineAnnealingDecay(RATE, max(1, steps - warm), RATE / 20)
        scheduler = paddle.optimizer.lr.LinearWarmup(falling, warm, RATE / (warm + 1), RATE)
        optimizer = paddle.optimizer.Adam(scheduler, lazy_mode=True, grad_clip=nn.ClipGradByGlobalNorm(1.0))
        training.mixed_precision(optimizer, amp).minimize(loss)
    return Model(main, test, startup, [ids, label], loss, logits, scheduler)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace, sizes: Sizes) -> training.History:
    """Trains and tests; draws the course, and the accuracy by length of passage."""
    paddle.seed(given.seed)
    corpus = library.corpus(sizes.words)
    held_out = corpus.held_out(sizes.tested, sizes.tokens, sizes.shortest)
    steps = given.steps or given.epochs * PER_EPOCH
    model = build(sizes, steps, given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    program = training.on_places(model.main, model.loss, given)
    loaders: list[Iterator[Any]] = []

    def step(number: int) -> dict[str, Any]:
        if not loaders:  # this is the first step of this run, but not of the training if that is resumed
            numbers = range(number * sizes.batch, steps * sizes.batch)
            passages = library.Drawn(corpus, sizes.tokens, sizes.shortest, given.seed, numbers)
            loaders.append(iter(io.DataLoader(passages, batch_size=sizes.batch)))
        ids, _, label = next(loaders[0])
        (loss,) = exe.run(program, feed={"ids": ids, "label": label}, fetch_list=[model.loss])
        model.scheduler.step()
        return {"loss": loss}

    def answers() -> Any:
        feed = {"ids": held_out.ids, "label": held_out.modules[:, None]}
        return exe.run(model.test, feed=feed, fetch_list=[model.logits.name])[0].argmax(1)

    def test() -> dict[str, Any]:
        return {"test accuracy": np.mean(answers() == held_out.modules)}

    history = training.fit(
        given, "text_transformer", [model.main], step, test, PER_EPOCH, "test accuracy", scheduler=model.scheduler
    )
    right = {
        "Transformer": answers() == held_out.modules,
        "naive Bayes": library.naive_bayes(corpus, held_out) == held_out.modules,
    }
    plot(given, history, held_out.lengths, right)
    return history


def plot(
    given: argparse.Namespace, history: training.History, lengths: np.ndarray, right: dict[str, np.ndarray]
) -> None:
    """Draws the test accuracy over steps beside that of shorter and longer passages."""
    title = "A Transformer tells Python's modules apart: " + ", ".join(f"{k} {v.mean():.1%}" for k, v in right.items())
    with training.picture(given.out / "text_transformer.png", title, columns=2, size=(11.0, 4.0)) as (first, second):
        accuracies = [test["test accuracy"] for test in history.tests]
        training.curves(first, [t["step"] for t in history.tests], {"test": accuracies}, "step", "test accuracy")
        first.set_ylim(0.0, 1.0)
        groups = [rows for rows in np.array_split(np.argsort(lengths, kind="stable"), 6) if len(rows)]
        means = {name: [float(hit[rows].mean()) for rows in groups] for name, hit in right.items()}
        middles = [float(lengths[rows].mean()) for rows in groups]
        training.curves(second, middles, means, "words in a passage", "test accuracy")
        second.set_ylim(0.0, 1.0)


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=6).parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    history = train(given, sizes or Sizes())
    reached = history.tests[-1]["test accuracy"]
    return training.verdict(given.out, "text_transformer", "test accuracy", reached, GOAL, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
