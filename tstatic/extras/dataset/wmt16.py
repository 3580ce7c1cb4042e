"""Sentences in English and German, as numbers of words, for translation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, members, no_member, reading
from tstatic.extras.dataset.common import download as expected
from tstatic.extras.dataset.wmt14 import Triple, checked_size, pairs
from tstatic.io.dataset import Dataset
from tstatic.io.errors import DataError
from tstatic.ir.export import export

__all__ = ["get_dict", "test", "train", "validation"]

_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
_MARKS = ("<s>", "<e>", "<unk>")
_COLUMNS = ("en", "de")
_MOST = {"en": 11250, "de": 19220}
Words = dict[str, int]
Reader = Callable[[], Iterator[Triple]]


def _lines(path: str, part: str) -> Iterator[list[str]]:
    empty = True
    for _, file in members(path, f"wmt16/{part}".__eq__):
        with reading(path):
            yield from pairs(iter(file))
        empty = False
    if empty:
        raise no_member(path, f"wmt16/{part}")


def _dictionary(path: str, lang: str, size: int) -> Words:
    """Returns the numbers of the marks, then of the most frequent words of the sentences to train with."""
    counts: Counter[str] = Counter()
    for sides in _lines(path, "train"):
        counts.update(sides[_COLUMNS.index(lang)].split())
    kept = [word for word, _ in counts.most_common(max(size - len(_MARKS), 0))]
    return {word: number for number, word in enumerate((*_MARKS, *kept))}


def _checked_lang(lang: str) -> str:
    if lang not in _COLUMNS:
        raise DataError(
            "An error language type. Only support: en (for English); de (for Germany).", expected="'en' or 'de'",
            received=repr(lang), fix="pass 'en' or 'de'",
        )  # fmt: skip
    return lang


def _other(lang: str) -> str:
    return _COLUMNS[1 - _COLUMNS.index(lang)]


def _samples(path: str, part: str, lang: str, source: Words, target: Words) -> Iterator[Triple]:
    start, end, unknown = (source[mark] for mark in _MARKS)
    column = _COLUMNS.index(lang)
    for sides in _lines(path, part):
        numbers = [source.get(word, unknown) for word in sides[column].split()]
        others = [target.get(word, unknown) for word in sides[1 - column].split()]
        yield [start, *numbers, end], [start, *others], [*others, end]


def _reader(part: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Reader:
    other = _other(_checked_lang(src_lang))
    path = expected(_URL, "wmt16", "")

    def read() -> Iterator[Triple]:
        source = _dictionary(path, src_lang, min(src_dict_size, _MOST[src_lang]))
        target = _dictionary(path, other, min(trg_dict_size, _MOST[other]))
        yield from _samples(path, part, src_lang, source, target)

    return read


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """Returns a reader of sentences to train with: numbers of the source, of the target after ``<s>``, and before ``<e>``.

    Args:
        src_dict_size: Words of the source's dictionary, the three marks included.
        trg_dict_size: Words of the target's.
        src_lang: ``"en"`` or ``"de"``: which is the source.

    Raises:
        DataError: If the file is not there, or the language is another; it names the path.
    """
    return _reader("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """Returns a reader of sentences to test with, as :func:`train` does.

    Args:
        src_dict_size: Words of the source's dictionary.
        trg_dict_size: Words of the target's.
        src_lang: Which is the source.
    """
    return _reader("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """Returns a reader of sentences to validate with, as :func:`train` does.

    Args:
        src_dict_size: Words of the source's dictionary.
        trg_dict_size: Words of the target's.
        src_lang: Which is the source.
    """
    return _reader("val", src_dict_size, trg_dict_size, src_lang)


def _one(path: str, lang: str, dict_size: int, reverse: bool) -> dict[Any, Any]:
    words = _dictionary(path, _checked_lang(lang), min(dict_size, _MOST[lang]))
    return {number: word for word, number in words.items()} if reverse else words


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """Returns the dictionary of a language.

    Args:
        lang: ``"en"`` or ``"de"``.
        dict_size: Words of it, the three marks included.
        reverse: Number -> word, not word -> number.
    """
    return _one(expected(_URL, "wmt16", ""), lang, dict_size, reverse)


@export("text.WMT16")
class WMT16(Dataset):
    """Sentences in English and German: arrays as :func:`train` gives lists.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"``, ``"test"`` or ``"val"``.
        src_dict_size: Words of the source's dictionary, the three marks included.
        trg_dict_size: Words of the target's.
        lang: ``"en"`` or ``"de"``: which is the source.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.WMT16("wmt16.tar.gz", src_dict_size=50, trg_dict_size=50)
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file wmt16.tar.gz
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        src_dict_size: int = -1,
        trg_dict_size: int = -1,
        lang: str = "en",
        download: bool = True,
    ) -> None:
        self.mode = checked_mode(mode, ("train", "test", "val"))
        self.lang = _checked_lang(lang)
        self.src_dict_size = min(checked_size(src_dict_size), _MOST[lang])
        self.trg_dict_size = min(checked_size(trg_dict_size), _MOST[_other(lang)])
        self.data_file = found(data_file, _URL, "wmt16", download)
        self.src_dict = _dictionary(self.data_file, lang, self.src_dict_size)
        self.trg_dict = _dictionary(self.data_file, _other(lang), self.trg_dict_size)
        self._data = list(_samples(self.data_file, self.mode, lang, self.src_dict, self.trg_dict))

    def get_dict(self, lang: str, reverse: bool = False) -> dict[Any, Any]:
        """Returns the dictionary of a language.

        Args:
            lang: ``"en"`` or ``"de"``.
            reverse: Number -> word, not word -> number.
        """
        return _one(self.data_file, lang, self.src_dict_size if lang == self.lang else self.trg_dict_size, reverse)

    def __getitem__(self, idx: int) -> tuple[NDArray[np.int64], ...]:
        return tuple(np.array(part, np.int64) for part in self._data[idx])

    def __len__(self) -> int:
        return len(self._data)
