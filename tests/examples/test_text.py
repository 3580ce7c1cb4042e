"""The examples on the text of Python's library: what they learn from, what they ask, and that places change nothing.

That they run, in 16 bits and broken off, is in ``test_runs.py``; their twins are in ``test_twins.py``.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.small import SIZES
from tstatic import static

NAMES = sorted(SIZES)
# Looked for and not imported: every worker collects this file, few run it.
MISSING = [package for package in ("tqdm", "matplotlib", "sklearn") if find_spec(package) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def run(name: str, out: Path, *arguments: str) -> Any:
    """Trains on small settings in a scope of its own and draws nothing; returns the history."""
    script = importlib.import_module(name)
    given = script.training.parser("", 1).parse_args(["--steps", "20", "--place", "cpu", "--out", str(out), *arguments])
    with static.scope_guard(static.Scope()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "plot", lambda *_: None)
        return script.train(given, script.Sizes(**SIZES[name]))


def losses(history: Any) -> list[float]:
    return [step["loss"] for step in history.steps]


@pytest.fixture(scope="module")
def library() -> Any:
    """The module that has the text."""
    return importlib.import_module("library")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_places_give_the_losses_of_one(name: str, tmp_path: Path) -> None:
    alone = losses(run(name, tmp_path / "one"))
    shared = losses(run(name, tmp_path / "two", "--places", "2"))
    np.testing.assert_allclose(shared, alone, rtol=1e-5)
    assert len(set(alone)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_full_run_of_a_model_that_learns_nothing_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = importlib.import_module(name)
    monkeypatch.setattr(script, "plot", lambda *_: None)
    monkeypatch.setattr(script, "RATE", 1e-9)
    monkeypatch.setattr(script, "PER_EPOCH", 1)
    with static.scope_guard(static.Scope()):
        assert script.main(["--place", "cpu", "--out", str(tmp_path)], script.Sizes(**SIZES[name])) == 1
    assert "(missed: " in capsys.readouterr().out


def test_words_are_names_numbers_signs_and_ends_of_lines(library: Any) -> None:
    text = 'def größe(x1):\n\n    return "x1 + 20"  # no?\n'
    assert library.words(text) == [
        *("def", "größe", "(", "x1", ")", ":", "\n", "return", '"', "x1", "+", "20", '"', "#", "no", "?", "\n")
    ]


def test_all_modules_have_text_of_which_a_fifth_is_unseen(library: Any) -> None:
    corpus = library.corpus(300)
    assert len(corpus.vocabulary) == len(corpus.counts) == 300
    for module, known, unseen in zip(library.MODULES, corpus.known, corpus.unseen, strict=True):
        assert len(known) > 8_000, module
        np.testing.assert_allclose(len(unseen), len(known) / 4, rtol=0.02)
        assert known.max() < 300
    assert np.all(np.diff(corpus.counts[len(library.SPECIAL) :]) <= 0), "the most frequent words come first"
    # In the order of the files: the known part begins as the first file does, the unseen part ends as the last one does.
    module = library.MODULES.index("argparse")
    whole = corpus.ids(library.words(library.files("argparse")[0].read_text(encoding="utf-8")))
    assert np.array_equal(np.concatenate([corpus.known[module], corpus.unseen[module]]), whole)


def test_held_out_passages_are_of_the_unseen_part_and_do_not_overlap(library: Any) -> None:
    corpus = library.Corpus(300)
    corpus.unseen = [np.arange(3, 3 + len(text)) for text in corpus.unseen]  # every word is another one
    passages = corpus.held_out(60, 64, 16)
    for module in range(len(library.MODULES)):
        rows = passages.modules == module
        seen = passages.ids[rows][passages.ids[rows] != library.PAD]
        assert rows.sum() == 60
        assert len(np.unique(seen)) == len(seen) == passages.lengths[rows].sum()
    assert passages.lengths.min() == 16
    assert passages.lengths.max() == 64


def test_drawn_passages_depend_on_their_number_alone(library: Any) -> None:
    corpus = library.corpus(300)
    whole = library.Drawn(corpus, 12, 4, 1, range(400))
    part = library.Drawn(corpus, 12, 4, 1, range(100, 102))
    assert len(part) == 2
    for i in range(2):
        for ours, theirs in zip(part[i], whole[100 + i], strict=True):
            assert np.array_equal(ours, theirs)
    lengths, modules = np.array([(length, module[0]) for _, length, module in map(whole.__getitem__, range(400))]).T
    assert set(lengths) == set(range(4, 13))
    assert np.bincount(modules, minlength=len(library.MODULES)).min() >= 15
    ids, length, _ = whole[0]
    assert np.all(ids[length:] == library.PAD)
    assert np.all(ids[:length] != library.PAD)


def test_naive_bayes_is_far_better_than_a_guess(library: Any) -> None:
    corpus = library.corpus(8192)
    passages = corpus.held_out(20, 64, 16)
    assert 0.65 < np.mean(library.naive_bayes(corpus, passages) == passages.modules) < 0.95


def test_hidden_words_are_masked_replaced_and_kept_80_10_10(library: Any) -> None:
    bert = importlib.import_module("bert_mlm")
    sizes = bert.Sizes(tokens=32, hidden=5, words=1000)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 1000, (4000, 32))
    ids[:, ::4] = library.UNKNOWN
    feed = bert.hide(ids, sizes, rng)
    places, labels = feed["place"], feed["label"][..., 0]
    assert np.array_equal(np.take_along_axis(ids, places, 1), labels)
    assert labels.min() >= 3, "what is unknown is not asked for"
    assert np.array_equal(np.sort(places, 1)[:, 1:] > np.sort(places, 1)[:, :-1], np.ones((4000, 4), bool))
    shown = np.take_along_axis(feed["ids"], places, 1)
    others = np.ones(ids.shape, bool)
    np.put_along_axis(others, places, False, 1)
    assert np.array_equal(feed["ids"][others], ids[others])
    masked, kept = shown == library.MASK, shown == labels
    np.testing.assert_allclose([masked.mean(), kept.mean(), (~masked & ~kept).mean()], [0.8, 0.1, 0.1], atol=0.01)


def test_near_pairs_go_both_ways_and_thin_out_with_distance(library: Any) -> None:
    word2vec = importlib.import_module("word2vec")
    text = np.arange(3, 20_003)
    pairs = word2vec.near_pairs([text], np.ones(20_003), 4)
    distances = pairs[:, 1] - pairs[:, 0]
    found = np.array([np.sum(distances == d) for d in range(-5, 6)]) / len(text)
    np.testing.assert_allclose(found, [0, 0.25, 0.5, 0.75, 1, 0, 1, 0.75, 0.5, 0.25, 0], atol=0.02)
    numbers = pairs @ np.array([[1, 100_000], [100_000, 1]])
    assert np.array_equal(*np.sort(numbers, 0).T), "each pair is there both ways"
    # A word that is a hundredth of the text is thinned out, what is unknown is left out.
    counts = np.ones(20_003) * 10
    counts[5] = 2_000
    often = word2vec.near_pairs([np.tile([4, 5, library.UNKNOWN], 10_000)], counts, 1)
    assert set(often.flatten()) == {4, 5}
    np.testing.assert_allclose(len(often) / 20_000, np.sqrt(1e-3 * counts.sum() / 2_000), atol=0.02)


def test_vectors_by_chance_are_at_chance_level(library: Any) -> None:
    word2vec = importlib.import_module("word2vec")
    corpus = library.corpus(8192, names_only=True)
    words, modules = word2vec.homes(corpus)
    share = np.bincount(modules, minlength=len(library.MODULES)) / len(modules)
    chance = word2vec.same_module(corpus, np.random.default_rng(0).standard_normal((8192, 16)))
    np.testing.assert_allclose(chance, np.sum(share**2), atol=0.08)
    own = np.eye(len(library.MODULES))[np.zeros(8192, int)]
    own[words] = np.eye(len(library.MODULES))[modules]
    assert word2vec.same_module(corpus, own) == 1.0
