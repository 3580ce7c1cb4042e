"""Prices of houses, with 13 numbers about each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, reading, text_lines
from tstatic.extras.dataset.common import download as expected
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = ["feature_names", "test", "train"]

feature_names = [
    "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT",
]  # fmt: skip
_URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
_COLUMNS = len(feature_names) + 1
_TRAIN = 0.8
Reader = Callable[[], Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]]


def _parse(path: str, mode: str) -> NDArray[np.float64]:
    """Returns the rows of a part: numbers minus their means, over their ranges, and the price."""
    with reading(path):
        words = " ".join(text_lines(path)).split()
        rows = np.array(list(map(float, words))).reshape(-1, _COLUMNS)
        if not len(rows):
            raise ValueError("the file has no rows")
        numbers = rows[:, :-1]
        span = numbers.max(axis=0) - numbers.min(axis=0)
        rows[:, :-1] = (numbers - numbers.sum(axis=0) / len(rows)) / np.where(span == 0, 1, span)
    split = int(len(rows) * _TRAIN)
    return rows[:split] if mode == "train" else rows[split:]


def _reader(mode: str) -> Reader:
    rows = _parse(expected(_URL, "uci_housing", ""), mode)
    return lambda: ((row[:-1], row[-1:]) for row in rows)


def train() -> Reader:
    """Returns a reader of the first 80 % of the rows: 13 float64 numbers, and the price.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader("train")


def test() -> Reader:
    """Returns a reader of the other rows, as :func:`train` does."""
    return _reader("test")


@export("text.UCIHousing")
class UCIHousing(Dataset):
    """Prices of houses: float32 arrays of 13 numbers and of the price.

    Args:
        data_file: The file; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"`` for the first 80 % of the rows, ``"test"`` for the others.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> np.savetxt("housing.data", np.arange(70.0).reshape(5, 14))
        >>> data = paddle.text.UCIHousing("housing.data", mode="test")
        >>> numbers, price = data[0]
        >>> len(data), numbers.shape, price
        (1, (13,), array([69.], dtype=float32))
    """

    def __init__(self, data_file: str | None = None, mode: str = "train", download: bool = True) -> None:
        self.mode = checked_mode(mode)
        self.data_file = found(data_file, _URL, "uci_housing", download)
        self.data = _parse(self.data_file, self.mode)

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        row = self.data[idx].astype(np.float32)
        return row[:-1], row[-1:]

    def __len__(self) -> int:
        return len(self.data)
