"""VOC2012: images, and the class of each of their pixels (Everingham et al., 2012)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.extras.dataset.common import checked_mode, found, members, no_member
from tstatic.extras.dataset.image_files import checked_backend, decoded
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = ["VOC2012"]

_URL = "https://dataset.bj.bcebos.com/voc/VOCtrainval_11-May-2012.tar"
_ROOT = "VOCdevkit/VOC2012"
_PARTS = {"train": "trainval", "valid": "val", "test": "train"}
"""Mode -> name of the list, as in Paddle."""


@export("vision.datasets.VOC2012")
class VOC2012(Dataset):
    """Images, arrays ``[height, width, 3]``, and the class of each pixel, ``[height, width]``; 255 for a border.

    Pillow must be installed. The files of a part's images are kept in memory as they are packed.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"``, ``"valid"`` or ``"test"``.
        transform: Called with an image (uint8), not with its classes.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.
        backend: ``"pil"`` gives what ``transform`` returns, ``"cv2"`` makes it and the classes float32.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.vision.datasets.VOC2012("voc.tar")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file voc.tar
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        listed = f"{_ROOT}/ImageSets/Segmentation/{_PARTS[checked_mode(mode, tuple(_PARTS))]}.txt"
        self.backend = checked_backend(backend)
        self.transform = transform
        self.data_file = found(data_file, _URL, "voc2012", download)
        lines = [content.read() for _, content in members(self.data_file, listed.__eq__)]
        if not lines:
            raise no_member(self.data_file, listed)
        names = lines[0].decode("utf-8", "replace").split()
        self.data = [f"{_ROOT}/JPEGImages/{name}.jpg" for name in names]
        self.labels = [f"{_ROOT}/SegmentationClass/{name}.png" for name in names]
        # The list may stand behind the images, so the archive is read twice.
        wanted = {*self.data, *self.labels}
        self._files = {name: content.read() for name, content in members(self.data_file, wanted.__contains__)}
        for name in (*self.data, *self.labels):
            if name not in self._files:
                raise no_member(self.data_file, name)

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        image: Any = decoded(self._files[self.data[idx]])
        # Of a picture with a palette, the numbers of the colours are the classes.
        classes: Any = decoded(self._files[self.labels[idx]], None)
        if self.transform is not None:
            image = self.transform(image)
        if self.backend == "pil":
            return image, classes
        return np.asarray(image, np.float32), np.asarray(classes, np.float32)

    def __len__(self) -> int:
        return len(self.data)
