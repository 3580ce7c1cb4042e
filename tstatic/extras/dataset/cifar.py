"""Small coloured images of 10 or 100 classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from tstatic.errors import CheckpointError
from tstatic.extras.dataset.common import checked_mode, download, found, members, no_member, reading
from tstatic.extras.dataset.image_files import checked_backend
from tstatic.formats.pickles import load_pickle
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = ["test10", "test100", "train10", "train100"]

_URL10 = "https://dataset.bj.bcebos.com/cifar/cifar-10-python.tar.gz"
_URL100 = "https://dataset.bj.bcebos.com/cifar/cifar-100-python.tar.gz"
_PIXELS = 3 * 32 * 32
Images = tuple[NDArray[np.uint8], list[int]]
Reader = Callable[[], Iterator[tuple[NDArray[np.float32], int]]]


def _parse(file: BinaryIO) -> Images:
    """Returns the images of a batch, ``[count, 3072]``, and their classes.

    Raises:
        ValueError: If it holds something else.
    """
    try:
        batch = load_pickle(file.read(), strings="bytes")
    except CheckpointError as error:
        raise ValueError(f"{error.what}: {error.received}") from error
    pixels, labels = batch[b"data"], batch.get(b"labels", batch.get(b"fine_labels"))
    if (
        not isinstance(pixels, np.ndarray)
        or (pixels.dtype, pixels.shape) != (np.uint8, (len(labels), _PIXELS))
        or not all(type(label) is int for label in labels)
    ):
        raise ValueError("a batch that does not have 3072 bytes and a label for each image")
    return pixels, labels


def _batches(path: str, part: str) -> Iterator[tuple[str, Images]]:
    """Yields name and content of the batches whose names have ``part``."""
    empty = True
    for name, file in members(path, lambda name: part in name):
        with reading(path):
            yield name, _parse(file)
        empty = False
    if empty:
        raise no_member(path, part)


def _reader(url: str, part: str, cycle: bool = False) -> Reader:
    path = download(url, "cifar", "")

    def read() -> Iterator[tuple[NDArray[np.float32], int]]:
        while True:
            for _, (pixels, labels) in _batches(path, part):
                for image, label in zip(pixels, labels, strict=True):
                    yield (image / 255.0).astype(np.float32), label
            if not cycle:
                return

    return read


def train10(cycle: bool = False) -> Reader:
    """Returns a reader of CIFAR-10 to train with: 3072 float32 numbers from 0 to 1, and the class.

    Args:
        cycle: Begins anew at the end, without end.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader(_URL10, "data_batch", cycle)


def test10(cycle: bool = False) -> Reader:
    """Returns a reader of CIFAR-10 to test with, as :func:`train10` does."""
    return _reader(_URL10, "test_batch", cycle)


def train100() -> Reader:
    """Returns a reader of CIFAR-100 to train with, as :func:`train10` does."""
    return _reader(_URL100, "train")


def test100() -> Reader:
    """Returns a reader of CIFAR-100 to test with, as :func:`train10` does."""
    return _reader(_URL100, "test")


@export("vision.datasets.Cifar10")
class Cifar10(Dataset):
    """Images of 10 classes: an array ``[32, 32, 3]``, and an int64 array without axes.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"`` or ``"test"``.
        transform: Called with an image (uint8).
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.
        backend: ``"pil"`` gives what ``transform`` returns, ``"cv2"`` makes it float32.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.vision.datasets.Cifar10("cifar.tar.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file cifar.tar.gz
    """

    _URL = _URL10
    _PARTS: ClassVar[dict[str, str]] = {"train": "data_batch", "test": "test_batch"}

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        self.mode = checked_mode(mode)
        self.backend = checked_backend(backend)
        self.data_file = found(data_file, self._URL, "cifar", download)
        self.transform = transform
        batches = dict(_batches(self.data_file, self._PARTS[self.mode]))
        ordered = [batches[name] for name in sorted(batches)]
        self._pixels = np.concatenate([pixels for pixels, _ in ordered])
        self._labels = np.array([label for _, labels in ordered for label in labels], np.int64)

    def __getitem__(self, idx: int) -> tuple[Any, NDArray[np.int64]]:
        image: Any = self._pixels[idx].reshape(3, 32, 32).transpose(1, 2, 0)
        if self.transform is not None:
            image = self.transform(image)
        return (image if self.backend == "pil" else np.asarray(image, np.float32)), np.array(self._labels[idx])

    def __len__(self) -> int:
        return len(self._labels)


@export("vision.datasets.Cifar100")
class Cifar100(Cifar10):
    """Images of 100 classes, with the arguments of :class:`Cifar10`.

    Example:
        >>> try:
        ...     paddle.vision.datasets.Cifar100("cifar.tar.gz")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file cifar.tar.gz
    """

    _URL = _URL100
    _PARTS: ClassVar[dict[str, str]] = {"train": "train", "test": "test"}
