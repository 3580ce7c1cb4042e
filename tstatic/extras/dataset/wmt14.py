"""Sentences in English and French, as numbers of words, for translation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, members, no_member, reading
from tstatic.extras.dataset.common import download as expected
from tstatic.io.dataset import Dataset
from tstatic.io.errors import DataUseError
from tstatic.ir.export import export

__all__ = ["gen", "get_dict", "test", "train"]

_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
_START, _END = "<s>", "<e>"
_UNKNOWN = 2
_LONGEST = 80
"""Longer sentences are left out."""
Words = dict[str, int]
Triple = tuple[list[int], list[int], list[int]]
Reader = Callable[[], Iterator[Triple]]


def checked_size(dict_size: int) -> int:
    """Returns the size of a dictionary.

    Raises:
        DataUseError: If it is not positive (an ``AssertionError``).
    """
    if dict_size <= 0:
        raise DataUseError(
            "dict_size should be set as positive number", expected="the number of words of the dictionary",
            received=dict_size, fix="pass dict_size=30000",
        )  # fmt: skip
    return int(dict_size)


def pairs(lines: Iterator[bytes]) -> Iterator[list[str]]:
    """Yields the two sides of the lines that have two."""
    for line in lines:
        sides = line.decode().strip().split("\t")
        if len(sides) == 2:
            yield sides


def _dictionaries(path: str, size: int) -> tuple[Words, Words]:
    words: dict[str, Words] = {}
    for name, file in members(path, lambda name: name.endswith(("src.dict", "trg.dict"))):
        with reading(path):
            lines = itertools.islice(file, size)
            words[name[-8:]] = {line.strip().decode(): number for number, line in enumerate(lines)}
    for name in ("src.dict", "trg.dict"):
        if not {_START, _END} <= words.get(name, {}).keys():
            raise no_member(path, f"{name} with {_START} and {_END}")
    return words["src.dict"], words["trg.dict"]


def _samples(path: str, part: str, source: Words, target: Words) -> Iterator[Triple]:
    for _, file in members(path, lambda name: name.endswith(f"{part}/{part}")):
        with reading(path):
            for left, right in pairs(iter(file)):
                numbers = [source.get(word, _UNKNOWN) for word in (_START, *left.split(), _END)]
                others = [target.get(word, _UNKNOWN) for word in right.split()]
                if max(len(numbers), len(others)) <= _LONGEST:
                    yield numbers, [target[_START], *others], [*others, target[_END]]


def _reader(part: str, dict_size: int) -> Reader:
    path = expected(_URL, "wmt14", "")
    return lambda: _samples(path, part, *_dictionaries(path, dict_size))


def train(dict_size: int) -> Reader:
    """Returns a reader of sentences to train with: numbers of the source, of the target after ``<s>``, and before ``<e>``.

    Args:
        dict_size: Words of each dictionary; others get number 2.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader("train", dict_size)


def test(dict_size: int) -> Reader:
    """Returns a reader of sentences to test with, as :func:`train` does."""
    return _reader("test", dict_size)


def gen(dict_size: int) -> Reader:
    """Returns a reader of sentences to translate, as :func:`train` does."""
    return _reader("gen", dict_size)


def _both(path: str, dict_size: int, reverse: bool) -> tuple[dict[Any, Any], dict[Any, Any]]:
    source, target = _dictionaries(path, dict_size)
    return ({n: w for w, n in source.items()}, {n: w for w, n in target.items()}) if reverse else (source, target)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the dictionaries of source and target.

    Args:
        dict_size: Words of each.
        reverse: Number -> word, not word -> number.
    """
    return _both(expected(_URL, "wmt14", ""), dict_size, reverse)


@export("text.WMT14")
class WMT14(Dataset):
    """Sentences in English and French: arrays as :func:`train` gives lists.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"``, ``"test"`` or ``"gen"``.
        dict_size: Words of each dictionary.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.WMT14("wmt14.tgz", dict_size=50)
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file wmt14.tgz
    """

    def __init__(
        self, data_file: str | None = None, mode: str = "train", dict_size: int = -1, download: bool = True
    ) -> None:
        self.mode = checked_mode(mode, ("train", "test", "gen"))
        self.dict_size = checked_size(dict_size)
        self.data_file = found(data_file, _URL, "wmt14", download)
        self.src_dict, self.trg_dict = _dictionaries(self.data_file, dict_size)
        self._data = list(_samples(self.data_file, self.mode, self.src_dict, self.trg_dict))

    def get_dict(self, reverse: bool = False) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Returns the dictionaries of source and target: word -> number, or number -> word with ``reverse``."""
        return _both(self.data_file, self.dict_size, reverse)

    def __getitem__(self, idx: int) -> tuple[NDArray[np.int64], ...]:
        return tuple(np.array(part, np.int64) for part in self._data[idx])

    def __len__(self) -> int:
        return len(self._data)
