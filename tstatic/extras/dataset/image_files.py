"""Image files: which package reads them, and the form in which data sets give images."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.errors import MissingFileError, UnsupportedError, needed_for, shown
from tstatic.extras.dataset.common import reading
from tstatic.io.errors import DataError
from tstatic.ir.checks import check_type
from tstatic.ir.export import export
from tstatic.regular import names_there, require

_BACKENDS = ("pil", "cv2", "tensor")
_chosen = "pil"


def _checked(backend: str, known: tuple[str, ...]) -> str:
    if backend not in known:
        raise DataError(
            f"Expected backend are one of {list(known)}, but got {backend}", expected=" or ".join(map(repr, known)),
            received=repr(backend), fix="pass backend='pil' for images, 'cv2' for arrays, or leave it out",
        )  # fmt: skip
    return backend


def checked_backend(backend: str | None) -> str:
    """Returns which form images have: ``backend``, or the one that was chosen for the process.

    Raises:
        DataError: If there is no such form (a ``ValueError``).
    """
    return _checked(_chosen if backend is None else backend, _BACKENDS[:2])


@export("vision.set_image_backend")
def set_image_backend(backend: str) -> None:
    """Chooses the package that reads images, and the form in which data sets give them, where nothing else is said.

    Args:
        backend: ``"pil"``, ``"cv2"`` or ``"tensor"``, which :func:`image_load` refuses.

    Raises:
        DataError: For another word (a ``ValueError``).

    Example:
        >>> paddle.vision.set_image_backend("cv2")
        >>> paddle.vision.get_image_backend()
        'cv2'
        >>> paddle.vision.set_image_backend("pil")
    """
    global _chosen
    _chosen = _checked(backend, _BACKENDS)


@export("vision.get_image_backend")
def get_image_backend() -> str:
    """Returns what :func:`set_image_backend` chose, ``"pil"`` at first.

    Example:
        >>> paddle.vision.get_image_backend()
        'pil'
    """
    return _chosen


@export("vision.image_load")
def image_load(path: str, backend: str | None = None) -> Any:
    """Reads an image file.

    Args:
        path: The file.
        backend: ``"pil"`` for an image of pillow, ``"cv2"`` for an array ``[height, width, 3]`` in the order blue, green, red; by
            default what :func:`set_image_backend` chose.

    Raises:
        DataError: For another word (a ``ValueError``), or if the path leads to something else than a file.
        MissingPackageError: If the package is not installed.
        UnsupportedError: For ``"tensor"``.

    Example:
        >>> from PIL import Image
        >>> Image.fromarray(np.zeros((2, 3, 3), "uint8")).save("black.png")
        >>> paddle.vision.image_load("black.png").size
        (3, 2)
    """
    chosen = _checked(_chosen if backend is None else backend, _BACKENDS)
    if chosen == "tensor":
        raise UnsupportedError(
            "image_load gives no tensors: there is no eager mode", expected="'pil' or 'cv2'", received="'tensor'",
            fix="np.asarray(paddle.vision.image_load(path, 'pil')), and feed it", op="image_load",
        )  # fmt: skip
    check_type(path, (str, os.PathLike), "path", "image_load")
    with reading(os.fspath(path)):
        try:
            require(path)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"there is no image {os.fspath(path)}", expected="the path of an image", received=shown(path),
                fix=names_there(path), op="image_load",
            ) from error  # fmt: skip
    if chosen == "cv2":
        with needed_for("reading images with backend='cv2'"):
            import cv2
        return cv2.imread(path)
    with needed_for("reading image files"):
        from PIL import Image
    return Image.open(path)


def decoded(data: bytes, mode: str | None = "RGB") -> NDArray[Any]:
    """Returns the image in the bytes of a file as an array.

    Args:
        data: The bytes.
        mode: Pillow's name of the form to bring it to; ``None`` for its own.
    """
    with needed_for("reading image files"):
        from PIL import Image
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image if mode is None else image.convert(mode))
