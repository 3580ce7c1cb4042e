"""Sentences with the roles of their parts, for each of their verbs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import download as expected
from tstatic.extras.dataset.common import found, gunzipped, members, no_member, reading, text_lines
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = ["get_dict", "get_embedding", "test"]

_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
_WORDS_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
_VERBS_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
_LABELS_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
_EMBEDDING_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
_FILES = ("conll05st-release/test.wsj/words/test.wsj.words.gz", "conll05st-release/test.wsj/props/test.wsj.props.gz")
_UNKNOWN = 0
Words = dict[str, int]
Sample = tuple[list[int], ...]
Sentence = tuple[list[str], str, list[str]]


def _word_numbers(path: str) -> Words:
    return {line.strip(): number for number, line in enumerate(text_lines(path))}


def _label_numbers(path: str) -> Words:
    """Returns two numbers, of the begin and the inside, for each role, then one for words without a role."""
    roles = sorted({line.strip()[2:] for line in text_lines(path) if line.strip().startswith(("B-", "I-"))})
    names = [f"{mark}-{role}" for role in roles for mark in "BI"]
    return {name: number for number, name in enumerate([*names, "O"])}


def _tags(marks: list[str]) -> list[str]:
    """Returns B-, I- and O for a column of brackets such as ``(A0*``, ``*``, ``*)``.

    Raises:
        ValueError: If there is another mark.
    """
    role, inside, tags = "O", False, []
    for mark in marks:
        if "(" in mark:
            role = mark[1 : mark.find("*")]
            tags.append(f"B-{role}")
            inside = ")" not in mark
        elif mark in ("*", "*)"):
            tags.append(f"I-{role}" if inside or mark == "*)" else "O")
            inside = inside and mark == "*"
        else:
            raise ValueError(f"Unexpected label: {mark}")
    return tags


def _sentences(path: str) -> Iterator[Sentence]:
    """Yields words, verb and tags, for each verb of each sentence."""
    texts: dict[str, bytes] = {}
    for name, file in members(path, _FILES.__contains__):
        with reading(path):
            texts[name] = gunzipped(io.BytesIO(file.read()), path).read()
    for name in _FILES:
        if name not in texts:
            raise no_member(path, name)
    words: list[str] = []
    rows: list[list[str]] = []
    lines = [texts[name].decode().splitlines() for name in _FILES]
    with reading(path):
        for word, marks in zip(*lines, strict=True):
            if marks.split():
                words.append(word.strip())
                rows.append(marks.split())
                continue
            verbs, *columns = map(list, zip(*rows, strict=True))
            for verb, column in zip((verb for verb in verbs if verb != "-"), columns, strict=True):
                yield words, verb, _tags(column)
            words, rows = [], []


def _sample(
    sentence: Sentence, word_dict: Mapping[str, int], verb_dict: Mapping[str, int], label_dict: Mapping[str, int]
) -> Sample:
    """Returns the nine fields: words, five words around the verb, the verb, which words these are, and the tags."""
    words, verb, tags = sentence
    at, size = tags.index("B-V"), len(words)
    around = range(at - 2, at + 3)
    near = [words[i] if 0 <= i < size else ("bos" if i < 0 else "eos") for i in around]
    repeated = [[word_dict.get(word, _UNKNOWN)] * size for word in near]
    marked = [int(i in around) for i in range(size)]
    return (
        [word_dict.get(word, _UNKNOWN) for word in words], *repeated, [verb_dict[verb]] * size, marked,
        [label_dict[tag] for tag in tags],
    )  # fmt: skip


def get_dict() -> tuple[Words, Words, Words]:
    """Returns the numbers of words, verbs and tags.

    Raises:
        DataError: If a file is not there; it names the path.
    """
    words, verbs, labels = (expected(url, "conll05st", "") for url in (_WORDS_URL, _VERBS_URL, _LABELS_URL))
    return _word_numbers(words), _word_numbers(verbs), _label_numbers(labels)


def get_embedding() -> str:
    """Returns the path of the file with trained vectors of the words.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return expected(_EMBEDDING_URL, "conll05st", "")


def test() -> Callable[[], Iterator[Sample]]:
    """Returns a reader of the sentences, of which there are only those for the test: nine lists of numbers each.

    Words, the second word before the verb, the one before it, the verb, the one after it, the second after it (each repeated), the
    verb in the dictionary of verbs, 1 for these five words, and the tags.

    Raises:
        DataError: If a file is not there; it names the path.
    """
    dictionaries = get_dict()
    path = expected(_URL, "conll05st", "")

    def read() -> Iterator[Sample]:
        for sentence in _sentences(path):
            with reading(path):
                sample = _sample(sentence, *dictionaries)
            yield sample

    return read


@export("text.Conll05st")
class Conll05st(Dataset):
    """Sentences with the roles of their parts: nine arrays, as :func:`test` gives lists.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``, as the others.
        word_dict_file: A line for each word.
        verb_dict_file: A line for each verb.
        target_dict_file: A line for each tag.
        emb_file: Vectors of the words, for :meth:`get_embedding`.
        download: ``False`` refuses to look for files that were not given; nothing is downloaded.

    Raises:
        DataError: If a file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.Conll05st("conll.tar.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file conll.tar.gz
    """

    def __init__(
        self,
        data_file: str | None = None,
        word_dict_file: str | None = None,
        verb_dict_file: str | None = None,
        target_dict_file: str | None = None,
        emb_file: str | None = None,
        download: bool = True,
    ) -> None:
        self.data_file = found(data_file, _URL, "conll05st", download)
        self.word_dict_file = found(word_dict_file, _WORDS_URL, "conll05st", download, "word_dict_file")
        self.verb_dict_file = found(verb_dict_file, _VERBS_URL, "conll05st", download, "verb_dict_file")
        self.target_dict_file = found(target_dict_file, _LABELS_URL, "conll05st", download, "target_dict_file")
        self._emb_file, self._download = emb_file, download
        self.word_dict = _word_numbers(self.word_dict_file)
        self.predicate_dict = _word_numbers(self.verb_dict_file)
        self.label_dict = _label_numbers(self.target_dict_file)
        with reading(self.data_file):
            self._data = [
                _sample(one, self.word_dict, self.predicate_dict, self.label_dict) for one in _sentences(self.data_file)
            ]

    def get_dict(self) -> tuple[Words, Words, Words]:
        """Returns the numbers of words, verbs and tags."""
        return self.word_dict, self.predicate_dict, self.label_dict

    def get_embedding(self) -> str:
        """Returns the path of the file with trained vectors of the words."""
        return found(self._emb_file, _EMBEDDING_URL, "conll05st", self._download, "emb_file")

    def __getitem__(self, idx: int) -> tuple[NDArray[Any], ...]:
        return tuple(np.array(part, np.int64) for part in self._data[idx])

    def __len__(self) -> int:
        return len(self._data)
