"""Images in folders: one for each class, or all in one tree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.extras.dataset.common import reading
from tstatic.extras.dataset.image_files import decoded
from tstatic.io.dataset import Dataset
from tstatic.io.errors import DataError
from tstatic.ir.export import export
from tstatic.regular import names_there, opened, read_bytes

__all__ = ["DatasetFolder", "ImageFolder"]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
Loader = Callable[[str], Any]
_MOST_WAYS = 100


def _load(path: str) -> Any:
    """Returns an image as an array ``[height, width, 3]``."""
    with reading(path):
        if path.endswith(".npy"):
            with opened(path) as file:
                return np.load(file, allow_pickle=False)
        return decoded(read_bytes(path))


def _files(root: str, extensions: Sequence[str] | None, is_valid_file: Callable[[str], bool] | None) -> Iterator[str]:
    """Yields the paths of the samples below a folder, sorted."""
    if extensions is not None and is_valid_file is not None:
        raise DataError(
            "both extensions and is_valid_file were given", expected="one of them", received="two",
            fix="pass extensions=('.npy',) or is_valid_file=function, not both",
        )  # fmt: skip
    ends = tuple(end.lower() for end in extensions or EXTENSIONS)
    fits = is_valid_file or (lambda path: path.lower().endswith(ends))
    for folder, names in sorted(_walk(os.path.expanduser(root))):
        yield from (path for name in sorted(names) if fits(path := os.path.join(folder, name)))


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each folder below a root and the names of its files; links are followed, but not back to a folder around them.

    Raises:
        DataError: If links lead to one folder in very many ways, of which there could be exponentially many.
    """
    around: dict[str, frozenset[tuple[int, int] | None]] = {root: frozenset()}
    ways: Counter[tuple[int, int] | None] = Counter()
    for folder, inner, names in os.walk(root, followlinks=True):
        here = _identity(folder)
        ways[here] += 1
        if ways[here] > _MOST_WAYS:
            raise DataError(
                f"links below {root} lead to one folder in more than {_MOST_WAYS} ways", expected="a tree of folders",
                received=folder[:500], fix="remove links that lead outwards",
            )  # fmt: skip
        inside = around.pop(folder) | {here}
        inner[:] = [name for name in inner if _identity(os.path.join(folder, name)) not in inside]
        around |= {os.path.join(folder, name): inside for name in inner}
        yield folder, names


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        info = os.stat(folder)
    except OSError:  # the walk leaves it out
        return None
    return info.st_dev, info.st_ino


def _checked(found: list[Any], root: str) -> list[Any]:
    if not found:
        raise DataError(
            f"Found 0 files in {root}", expected="files with known endings", received="none",
            fix=f"put the files into {os.path.join(root, '<class>')}, or pass extensions=('.npy',) with the endings that they have",
        )  # fmt: skip
    return found


@export("vision.datasets.DatasetFolder")
class DatasetFolder(Dataset):
    """Samples in a folder for each class: the sample and the number of its class, in the order of the folders' names.

    Args:
        root: The folder of the folders.
        loader: Reads a file; images become arrays ``[height, width, 3]`` by default, for which pillow must be installed.
        extensions: Endings of the files to take; by default those of images.
        transform: Called with a sample.
        is_valid_file: Says of a path whether to take it, in place of ``extensions``.

    Raises:
        DataError: If there are no files (a ``RuntimeError``), or both ways to choose them were given.

    Example:
        >>> import os
        >>> for name in ("cat", "dog"):
        ...     os.makedirs("pets/" + name)
        ...     np.save(f"pets/{name}/a.npy", np.zeros((2, 2, 3), "uint8"))
        >>> pets = paddle.vision.datasets.DatasetFolder("pets", extensions=[".npy"])
        >>> pets.classes, pets[1][0].shape, pets[1][1]
        (['cat', 'dog'], (2, 2, 3), 1)
    """

    def __init__(
        self,
        root: str,
        loader: Loader | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.root, self.loader, self.extensions, self.transform = root, loader or _load, extensions, transform
        try:
            self.classes = sorted(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name)))
        except OSError as error:
            raise DataError(
                f"cannot read the folder {root}", expected="a folder with a folder for each class",
                received=str(error), fix=names_there(root),
            ) from error  # fmt: skip
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = _checked(
            [
                (path, number)
                for name, number in self.class_to_idx.items()
                for path in _files(os.path.join(root, name), extensions, is_valid_file)
            ],
            root,
        )
        self.targets = [number for _, number in self.samples]

    def __getitem__(self, idx: int) -> tuple[Any, int]:
        path, target = self.samples[idx]
        sample = self.loader(path)
        return (sample if self.transform is None else self.transform(sample)), target

    def __len__(self) -> int:
        return len(self.samples)


@export("vision.datasets.ImageFolder")
class ImageFolder(Dataset):
    """All samples below a folder, without classes: a list with the sample.

    Args:
        root: The folder.
        loader: Reads a file, as for :class:`DatasetFolder`.
        extensions: Endings of the files to take; by default those of images.
        transform: Called with a sample.
        is_valid_file: Says of a path whether to take it, in place of ``extensions``.

    Raises:
        DataError: If there are no files (a ``RuntimeError``), or both ways to choose them were given.

    Example:
        >>> np.save("a.npy", np.zeros((2, 2, 3), "uint8"))
        >>> images = paddle.vision.datasets.ImageFolder(".", extensions=[".npy"])
        >>> len(images), images[0][0].shape
        (1, (2, 2, 3))
    """

    def __init__(
        self,
        root: str,
        loader: Loader | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.root, self.loader, self.extensions, self.transform = root, loader or _load, extensions, transform
        self.samples = _checked(list(_files(root, extensions, is_valid_file)), root)

    def __getitem__(self, idx: int) -> list[Any]:
        sample = self.loader(self.samples[idx])
        return [sample if self.transform is None else self.transform(sample)]

    def __len__(self) -> int:
        return len(self.samples)
