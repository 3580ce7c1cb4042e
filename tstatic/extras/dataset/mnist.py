"""Images of handwritten digits, and of clothes in the same format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, read_exactly, reading, unpacked
from tstatic.extras.dataset.common import download as expected
from tstatic.extras.dataset.image_files import checked_backend
from tstatic.io.dataset import Dataset
from tstatic.io.errors import DataError
from tstatic.ir.export import export

__all__ = ["test", "train"]

_FILES = {"train": "train", "test": "t10k"}
_IMAGE_MAGIC, _LABEL_MAGIC = 2051, 2049


def _urls(prefix: str, mode: str) -> tuple[str, str]:
    return f"{prefix}{_FILES[mode]}-images-idx3-ubyte.gz", f"{prefix}{_FILES[mode]}-labels-idx1-ubyte.gz"


_URL = "https://dataset.bj.bcebos.com/mnist/"


def _parse(path: str, magic: int, rank: int) -> NDArray[np.uint8]:
    """Returns the array of bytes in an IDX file."""
    with reading(path), unpacked(path) as file:
        number, *shape = struct.unpack(f">{rank + 1}I", read_exactly(file, 4 * (rank + 1)))
        if number != magic:
            raise ValueError(f"the file begins with {number}, not {magic}")
        size = int(np.prod(shape, dtype=object))
        return np.frombuffer(read_exactly(file, size), np.uint8).reshape(shape)


def _parsed(images: str, labels: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    pixels, classes = _parse(images, _IMAGE_MAGIC, 3), _parse(labels, _LABEL_MAGIC, 1)
    if len(pixels) != len(classes):
        raise DataError(
            f"{images} and {labels} do not belong together", expected="a label for each image",
            received=f"{len(pixels)} images and {len(classes)} labels", fix="pass the two files of one set",
        )  # fmt: skip
    return pixels, classes


def _reader(mode: str) -> Callable[[], Iterator[tuple[NDArray[np.float32], int]]]:
    paths = [expected(url, "mnist", "") for url in _urls(_URL, mode)]

    def read() -> Iterator[tuple[NDArray[np.float32], int]]:
        pixels, classes = _parsed(*paths)
        for image, label in zip(pixels.reshape(len(pixels), -1), classes.tolist(), strict=True):
            yield image.astype(np.float32) / np.float32(255) * np.float32(2) - np.float32(1), label

    return read


def train() -> Callable[[], Iterator[tuple[NDArray[np.float32], int]]]:
    """Returns a reader of the digits to train with: 784 float32 numbers from -1 to 1, and the digit.

    Raises:
        DataError: If a file is not there; it names the path.
    """
    return _reader("train")


def test() -> Callable[[], Iterator[tuple[NDArray[np.float32], int]]]:
    """Returns a reader of the digits to test with, as :func:`train` does."""
    return _reader("test")


@export("vision.datasets.MNIST")
class MNIST(Dataset):
    """Handwritten digits: an image, an array ``[28, 28]``, and an int64 array ``[1]`` with the digit.

    Args:
        image_path: The gzip file of the images; below ``dataset.common.DATA_HOME`` if ``None``.
        label_path: That of the labels.
        mode: ``"train"`` or ``"test"``: which files to look for.
        transform: Called with an image (uint8).
        download: ``False`` refuses to look for files that were not given; nothing is downloaded.
        backend: ``"pil"`` gives what ``transform`` returns, ``"cv2"`` makes it float32.

    Raises:
        DataError: If a file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.vision.datasets.MNIST("digits.gz", "labels.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file digits.gz
    """

    _PREFIX, _NAME = _URL, "mnist"

    def __init__(
        self,
        image_path: str | None = None,
        label_path: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        self.mode = checked_mode(mode)
        self.backend = checked_backend(backend)
        images, labels = _urls(self._PREFIX, self.mode)
        self.image_path = found(image_path, images, self._NAME, download, "image_path")
        self.label_path = found(label_path, labels, self._NAME, download, "label_path")
        self.transform = transform
        self.images, classes = _parsed(self.image_path, self.label_path)
        self.labels = classes.astype(np.int64)[:, None]

    def __getitem__(self, idx: int) -> tuple[Any, NDArray[np.int64]]:
        image: Any = self.images[idx]
        if self.transform is not None:
            image = self.transform(image)
        return (image if self.backend == "pil" else np.asarray(image, np.float32)), self.labels[idx]

    def __len__(self) -> int:
        return len(self.labels)


@export("vision.datasets.FashionMNIST")
class FashionMNIST(MNIST):
    """Images of clothes of 10 classes, in the files and with the arguments of :class:`MNIST`.

    Example:
        >>> try:
        ...     paddle.vision.datasets.FashionMNIST("clothes.gz", "labels.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file clothes.gz
    """

    _PREFIX, _NAME = "https://dataset.bj.bcebos.com/fashion_mnist/", "fashion-mnist"
