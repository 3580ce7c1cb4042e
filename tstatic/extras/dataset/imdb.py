"""Reviews of films, as numbers of words, and whether they are good."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, members, no_member
from tstatic.extras.dataset.common import download as expected
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = ["build_dict", "test", "train", "word_dict"]

_URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
_PUNCTUATION = string.punctuation.encode()
_CUTOFF = 150
_LABELS = {"pos": 0, "neg": 1}
Words = dict[Any, int]
Reader = Callable[[], Iterator[tuple[list[int], int]]]


def _documents(path: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, list[bytes]]]:
    """Yields name and words of the reviews whose names match."""
    empty = True
    for name, file in members(path, pattern.match):
        yield name, file.read().rstrip(b"\n\r").translate(None, _PUNCTUATION).lower().split()
        empty = False
    if empty:
        raise no_member(path, pattern.pattern)


def _dictionary(path: str, pattern: re.Pattern[str], cutoff: int) -> Words:
    counts = Counter(word for _, words in _documents(path, pattern) for word in words)
    kept = sorted((-count, word) for word, count in counts.items() if count > cutoff)
    return {**{word: number for number, (_, word) in enumerate(kept)}, "<unk>": len(kept)}


def _reviews(path: str, mode: str, word_idx: Mapping[Any, int]) -> list[tuple[list[int], int]]:
    """Returns the good reviews, then the bad ones."""
    unknown = word_idx["<unk>"]
    rows: list[tuple[list[int], int]] = []
    for name, words in _documents(path, re.compile(rf"aclImdb/{mode}/(pos|neg)/.*\.txt$")):
        rows.append(([word_idx.get(word, unknown) for word in words], _LABELS[name.split("/")[2]]))
    return sorted(rows, key=lambda row: row[1])


def build_dict(pattern: re.Pattern[str], cutoff: int) -> Words:
    """Returns the numbers of words, most frequent first, and of ``"<unk>"``; words are bytes.

    Args:
        pattern: Which files of the archive to count.
        cutoff: Words that are not more frequent are left out.
    """
    return _dictionary(expected(_URL, "imdb", ""), pattern, cutoff)


def word_dict() -> Words:
    """Returns the numbers of the words that all reviews have more than 150 times."""
    return build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), _CUTOFF)


def _reader(mode: str, word_idx: Mapping[Any, int]) -> Reader:
    rows = _reviews(expected(_URL, "imdb", ""), mode, word_idx)
    return lambda: iter(rows)


def train(word_idx: Mapping[Any, int]) -> Reader:
    """Returns a reader of the reviews to train with: the numbers of the words, and 0 for a good review, 1 for a bad one.

    Args:
        word_idx: What :func:`word_dict` returned.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader("train", word_idx)


def test(word_idx: Mapping[Any, int]) -> Reader:
    """Returns a reader of the reviews to test with, as :func:`train` does."""
    return _reader("test", word_idx)


@export("text.Imdb")
class Imdb(Dataset):
    """Reviews of films: int64 arrays of the numbers of the words, and of 0 (good) or 1.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"`` or ``"test"``.
        cutoff: Words that are not more frequent count as unknown.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Attributes:
        word_idx: Word -> number; words are bytes.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.Imdb("reviews.tar.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file reviews.tar.gz
    """

    def __init__(
        self, data_file: str | None = None, mode: str = "train", cutoff: int = 150, download: bool = True
    ) -> None:
        self.mode = checked_mode(mode)
        self.data_file = found(data_file, _URL, "imdb", download)
        self.word_idx = _dictionary(self.data_file, re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), cutoff)
        rows = _reviews(self.data_file, self.mode, self.word_idx)
        self.docs, self.labels = [row for row, _ in rows], [label for _, label in rows]

    def __getitem__(self, idx: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.array(self.docs[idx], np.int64), np.array([self.labels[idx]])

    def __len__(self) -> int:
        return len(self.docs)
