"""Sentences of a newspaper for language models, as numbers of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, members, no_member
from tstatic.extras.dataset.common import download as expected
from tstatic.io.dataset import Dataset
from tstatic.io.errors import DataUseError
from tstatic.ir.export import export

__all__ = ["DataType", "build_dict", "test", "train"]

_URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
_FILES = {part: f"simple-examples/data/ptb.{part}.txt" for part in ("train", "valid", "test")}
Words = dict[Any, int]
Reader = Callable[[], Iterator[tuple[Any, ...]]]


class DataType:
    """What a sample is: so many words one after another, or a sentence and the words that follow its own."""

    NGRAM = 1
    SEQ = 2


def _sentences(path: str, parts: tuple[str, ...]) -> Iterator[list[bytes]]:
    missing = {_FILES[part] for part in parts}
    for name, file in members(path, missing.__contains__):
        yield from (line.split() for line in file)
        missing.discard(name)
    for name in missing:
        raise no_member(path, name)


def _dictionary(path: str, least: int) -> Words:
    counts: Counter[Any] = Counter()
    for words in _sentences(path, ("train", "valid")):
        counts.update([*words, "<s>", "<e>"])
    del counts[b"<unk>"]
    kept = [(-count, word) for word, count in counts.items() if count > least]
    kept.sort(key=lambda row: (row[0], row[1] if isinstance(row[1], bytes) else row[1].encode()))
    return {**{word: number for number, (_, word) in enumerate(kept)}, "<unk>": len(kept)}


def _samples(path: str, part: str, word_idx: Mapping[Any, int], n: int, kind: int) -> Iterator[tuple[Any, ...]]:
    unknown = word_idx["<unk>"]
    for words in _sentences(path, (part,)):
        if kind == DataType.NGRAM:
            numbers = [word_idx.get(word, unknown) for word in ("<s>", *words, "<e>")]
            yield from (tuple(numbers[end - n : end]) for end in range(n, len(numbers) + 1))
        else:
            numbers = [word_idx.get(word, unknown) for word in words]
            if n <= 0 or len(numbers) + 1 <= n:
                yield [word_idx["<s>"], *numbers], [*numbers, word_idx["<e>"]]


def _check(n: int, kind: int) -> None:
    if kind not in (DataType.NGRAM, DataType.SEQ) or (kind == DataType.NGRAM and n < 1):
        raise DataUseError(
            "Invalid gram length or unknown data type",
            expected="1 (NGRAM) with at least one word, or 2 (SEQ)",
            received=f"data type {kind}, {n} words",
            fix="pass n=5, or the other data type",
        )


def build_dict(min_word_freq: int = 50) -> Words:
    """Returns the numbers of words, most frequent first; words are bytes, ``"<s>"``, ``"<e>"`` and ``"<unk>"`` texts.

    Args:
        min_word_freq: Words that are not more frequent are left out.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _dictionary(expected(_URL, "imikolov", ""), min_word_freq)


def _reader(part: str, word_idx: Mapping[Any, int], n: int, data_type: int) -> Reader:
    _check(n, data_type)
    path = expected(_URL, "imikolov", "")
    return lambda: _samples(path, part, word_idx, n, data_type)


def train(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """Returns a reader of samples to train with.

    Args:
        word_idx: What :func:`build_dict` returned.
        n: Words of a sample; with sentences, the most words that one may have (0: any number).
        data_type: ``DataType.NGRAM`` for tuples of ``n`` numbers, ``SEQ`` for a sentence and what follows each of its words.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader("train", word_idx, n, data_type)


def test(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """Returns a reader of samples of the validation part, as :func:`train` does.

    Args:
        word_idx: What :func:`build_dict` returned.
        n: Words of a sample.
        data_type: ``DataType.NGRAM`` or ``SEQ``.
    """
    return _reader("valid", word_idx, n, data_type)


@export("text.Imikolov")
class Imikolov(Dataset):
    """Sentences of a newspaper: a tuple of arrays, as :func:`train` gives them.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        data_type: ``"NGRAM"`` or ``"SEQ"``.
        window_size: Words of a sample; with sentences, the most words that one may have.
        mode: ``"train"`` or ``"test"``.
        min_word_freq: Words that are not more frequent count as unknown.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Attributes:
        word_idx: Word -> number.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.Imikolov("examples.tgz", window_size=5)
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file examples.tgz
    """

    def __init__(
        self,
        data_file: str | None = None,
        data_type: str = "NGRAM",
        window_size: int = -1,
        mode: str = "train",
        min_word_freq: int = 50,
        download: bool = True,
    ) -> None:
        self.data_type = checked_mode(data_type, ("ngram", "seq")).upper()
        self.mode = checked_mode(mode)
        kind = getattr(DataType, self.data_type)
        _check(window_size, kind)
        self.data_file = found(data_file, _URL, "imikolov", download)
        self.word_idx = _dictionary(self.data_file, min_word_freq)
        self.data = list(_samples(self.data_file, self.mode, self.word_idx, window_size, kind))

    def __getitem__(self, idx: int) -> tuple[NDArray[np.int64], ...]:
        return tuple(np.array(part, np.int64) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)
