"""Text that every machine with the same Python has: the sources of the standard library, as bytes and as words.

``library()`` is the text of the modules in the library's own folder, for models of bytes. ``Corpus()`` has the words of a dozen
large modules: the first four fifths of every file to learn from, the last fifth to be tested on. Nothing is downloaded.
"""

from __future__ import annotations

import functools
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tstatic as paddle
from tstatic import io

LEAST = 1 << 18
"""Bytes of text to learn from; a Python whose library has fewer sources is helped out with this package's."""

MODULES = (
    "argparse", "asyncio", "decimal", "email", "http", "importlib", "logging", "multiprocessing", "tarfile", "unittest", "urllib",
    "xml",
)  # fmt: skip
FILES = {"decimal": "_pydecimal"}
"""Where a module's sources are, if not under its own name."""

PAD, UNKNOWN, MASK = range(3)
SPECIAL = ("[pad]", "[unknown]", "[mask]")
WORD = re.compile(r"[^\W\d]\w*|\d+|\s*\n\s*|[^\w\s]")
"""A name, a number, the end of a line with what is blank around it, or one sign."""


# ---------------------------------------------------------------------------------------------------------------- bytes
def library() -> bytes:
    """Returns the modules that lie in the standard library's folder itself, in the order of their names.

    The same on every machine with the same Python: files that a build or a site writes are left out.
    """
    text = joined(p for p in stdlib().glob("*.py") if not p.name.startswith(("_sysconfigdata", "sitecustomize")))
    return text if len(text) >= LEAST else text + joined(Path(paddle.__file__).parent.rglob("*.py"))


def joined(paths: Iterable[Path]) -> bytes:
    """Returns the contents of files, sorted by path."""
    return b"\n".join(p.read_bytes() for p in sorted(paths))


def stdlib() -> Path:
    """Returns the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


# ---------------------------------------------------------------------------------------------------------------- words
def words(text: str) -> list[str]:
    r"""Returns the words of a text: names, numbers, signs, and ``"\n"`` for the end of a line and what is blank around it.

    >>> words("def f(x1):\n\n    return x1 + 20")
    ['def', 'f', '(', 'x1', ')', ':', '\n', 'return', 'x1', '+', '20']
    """
    return ["\n" if word.isspace() else word for word in WORD.findall(text)]


def files(module: str) -> list[Path]:
    """Returns the sources of a module or package, tests left out, in the order of their paths."""
    path = stdlib() / FILES.get(module, module)
    found = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return sorted(p for p in found if not {"test", "tests"} & set(p.parts[len(path.parts) :]))


@dataclass(frozen=True)
class Passages:
    """Pieces of text, as numbers of words.

    Attributes:
        ids: ``[n, tokens]`` int64, each row filled up with ``PAD`` behind its end.
        lengths: ``[n]`` int64, how many words of each row are its own.
        modules: ``[n]`` int64, which of ``MODULES`` each is from.
    """

    ids: np.ndarray
    lengths: np.ndarray
    modules: np.ndarray


class Corpus:
    """The words of ``MODULES``, in two parts that share no line of text, as numbers of a vocabulary of the first part.

    Args:
        size: Number of different words, ``SPECIAL`` included; all others are ``UNKNOWN``.
        names_only: Whether only names and words of prose count, so that signs, numbers and ends of lines are left out.

    Attributes:
        vocabulary: The words by their numbers, the most frequent first behind ``SPECIAL``.
        known: For each module the words of the first four fifths of all its files, ``[words]`` int64.
        unseen: For each module the words of the last fifths.
        counts: How often each word of the vocabulary is in ``known``, ``[size]`` int64.
    """

    def __init__(self, size: int, names_only: bool = False) -> None:
        parts: tuple[list[list[str]], list[list[str]]] = [], []
        for module in MODULES:
            both: tuple[list[str], list[str]] = [], []
            for path in files(module):
                found = words(path.read_text(encoding="utf-8"))
                if names_only:
                    found = [word for word in found if word.isidentifier()]
                cut = len(found) * 4 // 5
                both[0].extend(found[:cut])
                both[1].extend(found[cut:])
            for part, text in zip(parts, both, strict=True):
                part.append(text)
        counted = Counter(word for text in parts[0] for word in text)
        # Words that are equally frequent come in the order of the alphabet: the same numbers on every machine.
        ordered = sorted(counted, key=lambda word: (-counted[word], word))
        self.vocabulary = [*SPECIAL, *ordered][:size]
        self._numbers = {word: i for i, word in enumerate(self.vocabulary)}
        self.known, self.unseen = ([self.ids(text) for text in part] for part in parts)
        self.counts = np.bincount(np.concatenate(self.known), minlength=len(self.vocabulary))

    def draw(self, rng: np.random.Generator, tokens: int, shortest: int) -> tuple[np.ndarray, int, int]:
        """Draws a passage to learn from: each module is equally likely, and so is each length from ``shortest`` to ``tokens``.

        Returns:
            Its words ``[tokens]`` with ``PAD`` behind the end, its length and its module's number.
        """
        module = int(rng.integers(len(MODULES)))
        length = int(rng.integers(shortest, tokens + 1))
        start = int(rng.integers(len(self.known[module]) - length))
        return padded(self.known[module][start : start + length], tokens), length, module

    def held_out(self, each: int, tokens: int, shortest: int) -> Passages:
        """Returns passages of the unseen part that do not overlap, equally many of each module and evenly spread over it."""
        rng = np.random.default_rng(0)
        lengths = rng.integers(shortest, tokens + 1, each * len(MODULES))
        ids = np.zeros((len(lengths), tokens), "int64")
        for i, length in enumerate(lengths):
            text = self.unseen[i // each]
            start = len(text) * (i % each) // each
            ids[i] = padded(text[start : start + min(length, len(text) // each)], tokens)
        return Passages(ids, (ids != PAD).sum(1), np.arange(len(lengths)) // each)

    def ids(self, text: Sequence[str]) -> np.ndarray:
        """Returns the numbers of words, ``[words]`` int64."""
        return np.array([self._numbers.get(word, UNKNOWN) for word in text], "int64")

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns words in one line of text, with ``⏎`` for the end of a line."""
        return " ".join(self.vocabulary[i].replace("\n", "⏎") for i in ids)


@functools.cache
def corpus(size: int, names_only: bool = False) -> Corpus:
    """Returns a ``Corpus``, read once per process."""
    return Corpus(size, names_only)


class Drawn(io.Dataset):
    """Passages to learn from, drawn at random, the same for the same seed: sample n is the n-th passage of the whole training.

    A sample is ``(ids [tokens], length, [module])``, all int64.

    Args:
        corpus: Where the passages are from.
        tokens: The longest.
        shortest: The shortest.
        seed: What they depend on besides their number.
        numbers: Which of them; those of the steps that a resumed run has yet to make, for example.
    """

    def __init__(self, corpus: Corpus, tokens: int, shortest: int, seed: int, numbers: range) -> None:
        self.corpus, self.tokens, self.shortest, self.seed, self.numbers = corpus, tokens, shortest, seed, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int, np.ndarray]:
        ids, length, module = self.corpus.draw(
            np.random.default_rng([self.seed, self.numbers[i]]), self.tokens, self.shortest
        )
        return ids, length, np.array([module])


def naive_bayes(corpus: Corpus, passages: Passages) -> np.ndarray:
    """Returns the module that the words of each passage speak for if their order says nothing, ``[n]`` int64.

    What a classifier that learns from the same text can be compared with.
    """
    counts = np.stack([np.bincount(text, minlength=len(corpus.vocabulary)) for text in corpus.known]) + 0.5
    counts[:, PAD] = 1.0
    scores = np.log(counts / counts.sum(1, keepdims=True))
    scores[:, PAD] = 0.0
    return np.argmax(scores[:, passages.ids].sum(2), 0)


def padded(ids: np.ndarray, tokens: int) -> np.ndarray:
    """Returns ``ids`` with ``PAD`` behind their end, ``[tokens]``."""
    return np.concatenate([ids, np.full(tokens - len(ids), PAD, "int64")])
