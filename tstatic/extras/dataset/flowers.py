"""Flowers: images of 102 kinds (Nilsback and Zisserman, 2008)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.errors import needed_for
from tstatic.extras.dataset.common import checked_mode, found, members, no_member, reading
from tstatic.extras.dataset.image_files import checked_backend, decoded
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export
from tstatic.regular import opened

__all__ = ["Flowers"]

_URL = "http://paddlemodels.bj.bcebos.com/flowers/"
_PARTS = {"train": "tstid", "valid": "valid", "test": "trnid"}
"""Mode -> variable of the file of numbers: as in Paddle, the larger part is there to train with."""


def _numbers(path: str, name: str) -> NDArray[np.int64]:
    """Returns a vector of a MATLAB file."""
    with needed_for("reading the labels of Flowers"):
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    with reading(path), opened(path) as file:
        try:
            found = loadmat(file, variable_names=[name])[name]
        except MatReadError as error:
            raise ValueError(error) from error
        return np.asarray(found).reshape(-1).astype(np.int64)


@export("vision.datasets.Flowers")
class Flowers(Dataset):
    """Images of flowers: an array ``[height, width, 3]``, and an int64 array ``[1]`` with the kind, from 1 to 102.

    Pillow and scipy must be installed. The files of a part's images are kept in memory as they are packed.

    Args:
        data_file: The archive of the images; below ``dataset.common.DATA_HOME`` if ``None``.
        label_file: The MATLAB file of the kinds.
        setid_file: That of the parts.
        mode: ``"train"``, ``"valid"`` or ``"test"``.
        transform: Called with an image (uint8).
        download: ``False`` refuses to look for files that were not given; nothing is downloaded.
        backend: ``"pil"`` gives what ``transform`` returns, ``"cv2"`` makes it float32.

    Raises:
        DataError: If a file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.vision.datasets.Flowers("flowers.tgz", "labels.mat", "parts.mat")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file flowers.tgz
    """

    def __init__(
        self,
        data_file: str | None = None,
        label_file: str | None = None,
        setid_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        part = _PARTS[checked_mode(mode, tuple(_PARTS))]
        self.backend = checked_backend(backend)
        self.transform = transform
        archive = found(data_file, _URL + "102flowers.tgz", "flowers", download, "data_file")
        labels = found(label_file, _URL + "imagelabels.mat", "flowers", download, "label_file")
        parts = found(setid_file, _URL + "setid.mat", "flowers", download, "setid_file")
        self.labels = _numbers(labels, "labels")
        self.indexes = _numbers(parts, part)
        wanted = {f"jpg/image_{i:05d}.jpg": int(i) for i in self.indexes}
        # Other packers write the folder, or its path, before the name.
        base = re.compile(r"(?:^|/)(jpg/image_\d+\.jpg)$")
        self._files: dict[int, bytes] = {}
        for name, content in members(archive, lambda name: (m := base.search(name)) and m[1] in wanted):
            match = base.search(name)
            assert match is not None
            self._files[wanted[match[1]]] = content.read()
        for name, index in wanted.items():
            if index not in self._files or not 0 < index <= len(self.labels):
                raise no_member(archive if index not in self._files else labels, name)

    def __getitem__(self, idx: int) -> tuple[Any, NDArray[np.int64]]:
        index = int(self.indexes[idx])
        image: Any = decoded(self._files[index])
        if self.transform is not None:
            image = self.transform(image)
        label = self.labels[index - 1 : index]
        return (image if self.backend == "pil" else np.asarray(image, np.float32)), label

    def __len__(self) -> int:
        return len(self.indexes)
