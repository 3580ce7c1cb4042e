"""Learns vectors of the names and words in Python's own library: skip-grams with negative sampling, and a map of the words.

    python examples/word2vec.py [--epochs 5] [--places 2]
    python examples/word2vec.py --resume --epochs 8

A word is to foretell the words near it: the vector of the one, times that of the other as a neighbour, should be large for pairs
that stand near each other and small for words drawn at random. The tables are sparse: a step changes the rows of its words only.

The goal is measured on the last fifths of the files, which are not learnt from: for a pair of near words, is the neighbour rated
above that of another pair? Words that are merely frequent gain nothing by it: chance is 0.5, whatever the counts are; the goal is
0.7. Measured besides: how often a word that belongs to one module has such a word of the same module for its nearest.
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

GOAL = 0.7
PER_EPOCH = 500
RATE = 5e-3
SHOWN = ("asyncio", "decimal", "email", "logging", "unittest", "xml")
"""The modules whose words are on the map."""


@dataclass(frozen=True)
class Sizes:
    """Of the batches and of the tables."""

    batch: int = 1024
    negatives: int = 5
    window: int = 5
    words: int = 8192
    width: int = 64
    tested: int = 20_000
    """Pairs in the test."""


# ----------------------------------------------------------------------------------------------------------------- data
def near_pairs(texts: list[np.ndarray], counts: np.ndarray, window: int) -> np.ndarray:
    """Returns pairs of words at most ``window`` apart, ``[n, 2]`` int64, first the word and then its neighbour.

    The nearer, the likelier a pair is among them; frequent words are thinned out, as in Mikolov et al. 2013, section 2.3 of the
    paper on phrases. The same pairs for the same texts.
    """
    rng = np.random.default_rng(0)
    keep = np.minimum(1.0, np.sqrt(1e-3 * counts.sum() / np.maximum(counts, 1)))
    keep[: len(library.SPECIAL)] = 0.0
    found = []
    for text in texts:
        for distance in range(1, window + 1):
            left, right = text[:-distance], text[distance:]
            kept = rng.random(len(left)) < keep[left] * keep[right] * (window + 1 - distance) / window
            found += [np.stack([left[kept], right[kept]], 1), np.stack([right[kept], left[kept]], 1)]
    return np.concatenate(found)


def batch(pairs: np.ndarray, chances: np.ndarray, sizes: Sizes, seed: int, step: int) -> dict[str, np.ndarray]:
    """Returns the feed of a step: words, and for each its neighbour followed by words drawn at random.

    ``chances`` has for each word how likely it or one before it is drawn.
    """
    rng = np.random.default_rng([seed, step])
    word, neighbour = pairs[rng.integers(len(pairs), size=sizes.batch)].T
    drawn = np.searchsorted(chances, rng.random((sizes.batch, sizes.negatives)), side="right")
    return {"word": word, "others": np.concatenate([neighbour[:, None], drawn], axis=1)}


# -------------------------------------------------------------------------------------------------------------- network
@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: static.Variable
    scores: static.Variable
    vectors: static.Variable
    scheduler: Any


def build(sizes: Sizes, steps: int, amp: str = "") -> Model:
    """Two tables, the products of a word's vector with those of others, and a loss that wants only the first to be large."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        word = static.data("word", [None], "int64")
        others = static.data("others", [None, None], "int64")
        bound = 0.5 / sizes.width
        words = nn.Embedding(
            sizes.words,
            sizes.width,
            sparse=True,
            weight_attr=paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound)),
        )
        neighbours = nn.Embedding(
            sizes.words,
            sizes.width,
            sparse=True,
            weight_attr=paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)),
        )
        # [n, 1, width] x [n, others, width] -> [n, others]
        scores = paddle.squeeze(
            paddle.matmul(paddle.unsqueeze(words(word), 1), neighbours(others), transpose_y=True), 1
        )
        near = paddle.concat([paddle.ones_like(scores[:, :1]), paddle.zeros_like(scores[:, 1:])], axis=1)
        each = F.binary_cross_entropy_with_logits(scores, near, reduction="none")
        loss = paddle.mean(paddle.sum(each, axis=1))
        test = main.clone(for_test=True)
        scheduler = paddle.optimizer.lr.PolynomialDecay(RATE, steps, RATE / 20)
        optimizer = paddle.optimizer.Adam(scheduler, lazy_mode=True)
        training.mixed_precision(optimizer, amp).minimize(loss)
    return Model(main, test, startup, loss, scores, words.weight, scheduler)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace, sizes: Sizes) -> training.History:
    """Trains and tests; tells the neighbours of some words, and draws the map."""
    paddle.seed(given.seed)
    corpus = library.corpus(sizes.words, names_only=True)
    pairs = near_pairs(corpus.known, corpus.counts, sizes.window)
    # In an order of its own, so that a part of it is from all modules and distances.
    unseen = np.random.default_rng(0).permutation(near_pairs(corpus.unseen, corpus.counts, sizes.window))
    unseen = unseen[: sizes.tested]
    asked = {"word": unseen[:, 0], "others": np.stack([unseen[:, 1], np.roll(unseen[:, 1], 1)], axis=1)}
    weights = np.where(np.arange(len(corpus.counts)) < len(library.SPECIAL), 0.0, corpus.counts**0.75)
    chances = np.cumsum(weights / weights.sum())
    chances[-1] = 1.0
    steps = given.steps or given.epochs * PER_EPOCH
    model = build(sizes, steps, given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    program = training.on_places(model.main, model.loss, given)

    def step(number: int) -> dict[str, Any]:
        feed = batch(pairs, chances, sizes, given.seed, number)
        (loss,) = exe.run(program, feed=feed, fetch_list=[model.loss])
        model.scheduler.step()
        return {"loss": loss}

    def test() -> dict[str, Any]:
        (scores,) = exe.run(model.test, feed=asked, fetch_list=[model.scores.name])
        return {"ranked": np.mean(scores[:, 0] > scores[:, 1]), "same module": same_module(corpus, vectors())}

    def vectors() -> np.ndarray:
        found = np.asarray(static.global_scope().find_var(model.vectors.name).get_tensor())
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    history = training.fit(given, "word2vec", [model.main], step, test, PER_EPOCH, "ranked", scheduler=model.scheduler)
    for word in ("await", "Decimal", "header", "assertEqual", "xml", "socket"):
        if word in corpus.vocabulary:
            print(f"{word}: {', '.join(nearest(corpus, vectors(), word, 6))}")
    plot(given, corpus, vectors(), history.tests[-1]["ranked"])
    return history


def homes(corpus: library.Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Returns words that are nine times in ten in one module, 20 times at least, and the numbers of these modules."""
    counts = np.stack([np.bincount(text, minlength=len(corpus.vocabulary)) for text in corpus.known])
    counts[:, : len(library.SPECIAL)] = 0
    total = counts.sum(0)
    words = np.flatnonzero((total >= 20) & (counts.max(0) >= 0.9 * total))
    return words, counts[:, words].argmax(0)


def same_module(corpus: library.Corpus, vectors: np.ndarray) -> float:
    """Returns how many of the words that have a home are nearest to a word with the same one."""
    words, modules = homes(corpus)
    near = vectors[words] @ vectors[words].T
    np.fill_diagonal(near, -np.inf)
    return float(np.mean(modules[near.argmax(1)] == modules))


def nearest(corpus: library.Corpus, vectors: np.ndarray, word: str, count: int) -> list[str]:
    """Returns the words whose vectors have the least angle to that of a word, the nearest first."""
    near = vectors @ vectors[corpus.vocabulary.index(word)]
    near[: len(library.SPECIAL)] = -np.inf
    near[corpus.counts < 20] = -np.inf  # of rare words little is known
    return [corpus.vocabulary[i] for i in np.argsort(-near) if corpus.vocabulary[i] != word][:count]


def plot(given: argparse.Namespace, corpus: library.Corpus, vectors: np.ndarray, ranked: float) -> None:
    """Draws the words of some modules where t-SNE puts them, with the names of the most frequent."""
    from sklearn.manifold import TSNE

    words, modules = homes(corpus)
    chosen = np.concatenate(
        [words[modules == library.MODULES.index(name)][:60] for name in SHOWN]  # the most frequent come first
    )
    owners = np.array([library.MODULES[m] for m in modules[np.searchsorted(words, chosen)]])
    perplexity = min(20.0, (len(chosen) - 1) / 3)
    at = TSNE(perplexity=perplexity, metric="cosine", init="pca", random_state=0).fit_transform(vectors[chosen])
    title = f"Words of six modules; {ranked:.1%} of unseen pairs are ranked right"
    with training.picture(given.out / "word2vec.png", title, size=(11.0, 8.0)) as axes:
        for name, marker, color in zip(SHOWN, "os^vDP", training.COLORS, strict=True):
            mine = owners == name
            axes.scatter(*at[mine].T, marker=marker, color=color, s=18, label=name)
            for place, word in zip(at[mine][:14], chosen[mine][:14], strict=True):
                axes.annotate(
                    corpus.vocabulary[word], place, xytext=(3, 2), textcoords="offset points", fontsize=7, color=color
                )
        # t-SNE keeps neighbours; its axes have neither a unit nor a direction.
        axes.set(xticks=[], yticks=[])
        axes.legend(title="words of", loc="upper left")  # to look for the best place takes seconds


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=5).parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    history = train(given, sizes or Sizes())
    reached = history.tests[-1]["ranked"]
    return training.verdict(given.out, "word2vec", "unseen pairs ranked right", reached, GOAL, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
