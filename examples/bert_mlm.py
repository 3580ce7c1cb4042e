"""Trains a small BERT to fill in words that are hidden in the sources of Python's own library.

    python examples/bert_mlm.py [--epochs 5] [--amp bf16] [--places 2]
    python examples/bert_mlm.py --resume --epochs 8

Of each 32 words of code 15 % are to be guessed from the others; of these 80 % are replaced by ``[mask]``, 10 % by a random word,
and 10 % are left as they are. Blocks are post-norm, and the output layer has the weights of the embedding, as in BERT. The goal is
that 40 % of the hidden words of unseen text are guessed; who always guesses the most frequent word (the end of a line) has 11 %.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import library
import numpy as np
import training

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import nn, static

GOAL = 0.4
PER_EPOCH = 100
RATE = 2e-3
LINES = (
    "for i [mask] range(10):",
    "if value is not [mask]:",
    "def close([mask]):",
    "raise [mask]('no name')",
    "with open(path) [mask] f:",
)
"""What the picture asks the model."""


@dataclass(frozen=True)
class Sizes:
    """Of the batches and of the network."""

    batch: int = 96
    tokens: int = 32
    hidden: int = 5
    """Words of each row that are to be guessed."""
    words: int = 2048
    width: int = 128
    layers: int = 2
    heads: int = 4
    dropout: float = 0.0
    tested: int = 48
    """Rows of each module in the test."""


# ----------------------------------------------------------------------------------------------------------------- data
def hide(ids: np.ndarray, sizes: Sizes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns a feed: rows of words, some of them replaced, where the words to guess are, and what they were.

    Args:
        ids: ``[n, tokens]`` int64.
        sizes: How many are to be guessed, and of how many words a random one is.
        rng: Decides.
    """
    # Words that are not in the vocabulary cannot be guessed: they come last.
    places = np.argsort(rng.random(ids.shape) + (ids < len(library.SPECIAL)), axis=1)[:, : sizes.hidden]
    labels = np.take_along_axis(ids, places, axis=1)
    chance = rng.random(places.shape)
    other = rng.integers(len(library.SPECIAL), sizes.words, places.shape)
    shown = ids.copy()
    new = np.where(chance < 0.8, library.MASK, np.where(chance < 0.9, other, labels))
    np.put_along_axis(shown, places, new, axis=1)
    return {"ids": shown, "place": places, "label": labels[..., None]}


def batch(corpus: library.Corpus, sizes: Sizes, seed: int, step: int) -> dict[str, np.ndarray]:
    """Returns the feed of a step, which depends on the seed and the step's number alone."""
    rng = np.random.default_rng([seed, step])
    rows = np.stack([corpus.draw(rng, sizes.tokens, sizes.tokens)[0] for _ in range(sizes.batch)])
    return hide(rows, sizes, rng)


# -------------------------------------------------------------------------------------------------------------- network
def waves(tokens: int, width: int) -> np.ndarray:
    """Returns what positions begin with, ``[tokens, width]``: sines and cosines, of which a linear layer can make a shift.

    Attention finds the neighbours of a word much sooner than from random numbers (Vaswani et al. 2017, section 3.5).
    """
    angles = np.arange(tokens)[:, None] / 100.0 ** np.linspace(0.0, 1.0, width // 2, endpoint=False)
    return np.asarray(0.02 * np.concatenate([np.sin(angles), np.cos(angles)], axis=1), "float32")


def network(ids: static.Variable, place: static.Variable, sizes: Sizes) -> static.Variable:
    """Post-norm blocks over words and positions; returns logits ``[n, hidden, words]`` of the hidden places."""
    small = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.02))
    embedding = nn.Embedding(sizes.words, sizes.width, weight_attr=small)
    begin = nn.initializer.Assign(waves(sizes.tokens, sizes.width))
    h = embedding(ids) + static.create_parameter([sizes.tokens, sizes.width], "float32", default_initializer=begin)
    h = F.dropout(nn.LayerNorm(sizes.width)(h), sizes.dropout)
    layer = nn.TransformerEncoderLayer(sizes.width, sizes.heads, 4 * sizes.width, sizes.dropout, "gelu")
    h = nn.TransformerEncoder(layer, sizes.layers)(h)
    h = paddle.take_along_axis(h, paddle.expand(paddle.unsqueeze(place, 2), [-1, -1, sizes.width]), 1)
    h = nn.LayerNorm(sizes.width)(F.gelu(nn.Linear(sizes.width, sizes.width)(h)))
    bias = static.create_parameter([sizes.words], "float32", is_bias=True)
    return paddle.matmul(h, embedding.weight, transpose_y=True) + bias


@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: static.Variable
    logits: static.Variable
    scheduler: Any


def build(sizes: Sizes, steps: int, amp: str = "") -> Model:
    """Builds the programs; the learning rate rises for a tenth of the steps, then falls."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = static.data("ids", [None, sizes.tokens], "int64")
        place = static.data("place", [None, sizes.hidden], "int64")
        label = static.data("label", [None, sizes.hidden, 1], "int64")
        logits = network(ids, place, sizes)
        loss = F.cross_entropy(logits, label)
        test = main.clone(for_test=True)
        warm = max(1, steps // 10)
        falling = paddle.optimizer.lr.PolynomialDecay(RATE, max(1, steps - warm), RATE / 20)
        scheduler = paddle.optimizer.lr.LinearWarmup(falling, warm, RATE / (warm + 1), RATE)
        optimizer = paddle.optimizer.AdamW(
            scheduler, beta2=0.98, weight_decay=0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0)
        )
        training.mixed_precision(optimizer, amp).minimize(loss)
    return Model(main, test, startup, loss, logits, scheduler)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace, sizes: Sizes) -> training.History:
    """Trains and tests; draws the course, and what the model puts in some places."""
    paddle.seed(given.seed)
    corpus = library.corpus(sizes.words)
    unseen = corpus.held_out(sizes.tested, sizes.tokens, sizes.tokens).ids
    feed = hide(unseen, sizes, np.random.default_rng(0))
    steps = given.steps or given.epochs * PER_EPOCH
    model = build(sizes, steps, given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    program = training.on_places(model.main, model.loss, given)

    def step(number: int) -> dict[str, Any]:
        (loss,) = exe.run(program, feed=batch(corpus, sizes, given.seed, number), fetch_list=[model.loss])
        model.scheduler.step()
        return {"loss": loss}

    def test() -> dict[str, Any]:
        loss, logits = exe.run(model.test, feed=feed, fetch_list=[model.loss.name, model.logits.name])
        return {"perplexity": np.exp(loss), "guessed": np.mean(logits.argmax(2) == feed["label"][..., 0])}

    history = training.fit(given, "bert_mlm", [model.main], step, test, PER_EPOCH, "guessed", scheduler=model.scheduler)
    often = np.argmax(corpus.counts[len(library.SPECIAL) :]) + len(library.SPECIAL)
    baselines = {"guessed": np.mean(feed["label"] == often), "perplexity": unigram_perplexity(corpus, feed["label"])}
    print("of words by their frequency alone:", ", ".join(f"{name} {value:.4g}" for name, value in baselines.items()))
    plot(given, history, baselines, corpus, guesses(exe, model, corpus, sizes, unseen[0]))
    return history


def unigram_perplexity(corpus: library.Corpus, labels: np.ndarray) -> float:
    """Returns the perplexity of the hidden words for who knows nothing but how often each word is in the text."""
    counts = corpus.counts + 1.0
    return float(np.exp(-np.mean(np.log(counts[labels] / counts.sum()))))


def guesses(exe: static.Executor, model: Model, corpus: library.Corpus, sizes: Sizes, row: np.ndarray) -> np.ndarray:
    """Returns how likely the model holds each word in ``LINES``, ``[lines, words]``; each line is put into a row of unseen text."""
    rows = np.repeat(row[None], len(LINES), axis=0)
    places = np.zeros((len(LINES), sizes.hidden), "int64")
    end = corpus.ids(["\n"])
    for n, line in enumerate(LINES):
        before, after = (corpus.ids(library.words(part)) for part in line.split("[mask]"))
        words = np.concatenate([end, before, [library.MASK], after, end])
        start = (sizes.tokens - len(words)) // 2
        rows[n, start : start + len(words)] = words
        places[n] = start + len(end) + len(before)
    # The program has a loss, too, which nobody asks for: any labels will do.
    feed = {"ids": rows, "place": places, "label": np.zeros((*places.shape, 1), "int64")}
    (logits,) = exe.run(model.test, feed=feed, fetch_list=[model.logits.name])
    chances = np.exp(logits[:, 0] - logits[:, 0].max(1, keepdims=True))
    return np.asarray(chances / chances.sum(1, keepdims=True))


def plot(
    given: argparse.Namespace,
    history: training.History,
    baselines: dict[str, Any],
    corpus: library.Corpus,
    chances: np.ndarray,
) -> None:
    """Draws the tests over steps beside what frequencies alone give, and the five likeliest words of each of ``LINES``."""
    steps = [test["step"] for test in history.tests]
    title = "Hidden words of unseen text"
    with training.picture(given.out / "bert_mlm.png", title, columns=2, size=(11.0, 4.0)) as both:
        for axes, name, unit in zip(both, ("guessed", "perplexity"), ("fraction guessed", "perplexity"), strict=True):
            lines = {
                "BERT": [test[name] for test in history.tests],
                "frequencies of words": [baselines[name]] * len(steps),
            }
            training.curves(axes, steps, lines, "step", unit)
        both[1].set_yscale("log")
    title = "What BERT puts in the place of [mask]"
    with training.picture(given.out / "bert_mlm_guesses.png", title, columns=len(LINES), size=(14.0, 2.6)) as columns:
        for axes, line, chance in zip(columns, LINES, chances, strict=True):
            best = np.argsort(-chance)[:5][::-1]
            axes.barh([corpus.text([i]) for i in best], chance[best])
            axes.set_title(line, fontsize=9, family="monospace")
            axes.set(xlim=(0.0, 1.0), xlabel="probability")


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=5).parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    history = train(given, sizes or Sizes())
    reached = history.tests[-1]["guessed"]
    return training.verdict(given.out, "bert_mlm", "hidden words guessed", reached, GOAL, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
