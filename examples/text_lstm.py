"""Trains a bidirectional LSTM that tells from a passage of 16 to 64 words which module of Python's library it is from.

    python examples/text_lstm.py [--epochs 6] [--amp bf16] [--places 2]
    python examples/text_lstm.py --resume --epochs 9

The data are twelve modules of the library that runs the script: the first four fifths of every file to learn from, the last fifth
to be tested on. Passages are padded; ``sequence_length`` tells the LSTM where each ends. The goal is an accuracy of 0.7 on 720
passages; a guess has 0.083, and counts of words alone (naive Bayes) 0.8, which takes a longer training to reach.
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

GOAL = 0.7
PER_EPOCH = 100
RATE = 5e-3


@dataclass(frozen=True)
class Sizes:
    """Of the batches and of the network."""

    batch: int = 64
    tokens: int = 64
    shortest: int = 16
    words: int = 8192
    width: int = 64
    dropout: float = 0.5
    tested: int = 60
    """Passages of each module in the test."""


# -------------------------------------------------------------------------------------------------------------- network
def network(ids: static.Variable, length: static.Variable, sizes: Sizes) -> static.Variable:
    """An embedding, an LSTM in both directions, the mean of its outputs over the words of a passage; returns logits."""
    h = nn.Embedding(sizes.words, sizes.width, sparse=True)(ids)
    h = F.dropout(h, sizes.dropout)
    outputs, _ = nn.LSTM(sizes.width, sizes.width, direction="bidirect")(h, sequence_length=length)
    # Behind its end a row's outputs are zero: they add nothing to the sum.
    mean = paddle.sum(outputs, axis=1) / paddle.cast(paddle.unsqueeze(length, 1), "float32")
    return nn.Linear(2 * sizes.width, len(library.MODULES))(F.dropout(mean, sizes.dropout))


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
    """Builds the programs; the learning rate falls over so many steps."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = static.data("ids", [None, sizes.tokens], "int64")
        length = static.data("length", [None], "int64")
        label = static.data("label", [None, 1], "int64")
        logits = network(ids, length, sizes)
        loss = F.cross_entropy(logits, label)
        test = main.clone(for_test=True)
        scheduler = paddle.optimizer.lr.CosineAnnealingDecay(RATE, steps, RATE / 20)
        # Lazy: of the embedding's rows only those of the batch's words move.
        optimizer = paddle.optimizer.Adam(scheduler, lazy_mode=True, grad_clip=nn.ClipGradByGlobalNorm(1.0))
        training.mixed_precision(optimizer, amp).minimize(loss)
    return Model(main, test, startup, [ids, length, label], loss, logits, scheduler)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace, sizes: Sizes) -> training.History:
    """Trains and tests; draws the course, and which module is taken for which."""
    paddle.seed(given.seed)
    corpus = library.corpus(sizes.words)
    held_out = corpus.held_out(sizes.tested, sizes.tokens, sizes.shortest)
    asked = {"ids": held_out.ids, "length": held_out.lengths, "label": held_out.modules[:, None]}
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
            loaders.append(iter(io.DataLoader(passages, model.feeds, batch_size=sizes.batch, return_list=False)))
        (feed,) = next(loaders[0])  # a dict for each place of the loader, which has one: the executor splits it
        (loss,) = exe.run(program, feed=feed, fetch_list=[model.loss])
        model.scheduler.step()
        return {"loss": loss}

    def answers() -> Any:
        return exe.run(model.test, feed=asked, fetch_list=[model.logits.name])[0].argmax(1)

    def test() -> dict[str, Any]:
        return {"test accuracy": np.mean(answers() == held_out.modules)}

    history = training.fit(
        given, "text_lstm", [model.main], step, test, PER_EPOCH, "test accuracy", scheduler=model.scheduler
    )
    plot(given, history, held_out.modules, answers())
    return history


def plot(given: argparse.Namespace, history: training.History, modules: np.ndarray, answers: np.ndarray) -> None:
    """Draws the test accuracy over steps beside how many passages of each module were taken for which."""
    names = library.MODULES
    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (modules, answers), 1)
    title = f"An LSTM tells Python's modules apart: {np.mean(answers == modules):.1%} of unseen passages"
    with training.picture(given.out / "text_lstm.png", title, columns=2, size=(12.0, 5.5)) as (left, right):
        accuracies = [test["test accuracy"] for test in history.tests]
        training.curves(left, [t["step"] for t in history.tests], {"test": accuracies}, "step", "test accuracy")
        left.set_ylim(0.0, 1.0)
        right.imshow(confusion)
        right.grid(False)
        right.set_xticks(range(len(names)), names, rotation=60, ha="right")
        right.set_yticks(range(len(names)), names)
        right.set(xlabel="answer", ylabel="module")
        for (i, j), count in np.ndenumerate(confusion):
            if count:
                dark = count > confusion.max() / 2
                right.text(j, i, count, ha="center", va="center", color="white" if dark else "black", fontsize=8)


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=6).parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    history = train(given, sizes or Sizes())
    reached = history.tests[-1]["test accuracy"]
    return training.verdict(given.out, "text_lstm", "test accuracy", reached, GOAL, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
