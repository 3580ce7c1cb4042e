"""Small files in the formats of the data sets, for Paddle and for tstatic; needs numpy alone."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np

IMAGES = 100
"""Paddle reads images a hundred at a time."""
PTB = {
    "train": "the cat sat\nthe dog sat on the mat\na <unk> cat\n",
    "valid": "the cat ran\na dog\n",
    "test": "the mat sat on a cat\nran\n",
}
REVIEWS = {
    "train/pos/0_9.txt": "A great film; great, GREAT!\n", "train/pos/1_8.txt": "the film is good",
    "train/neg/0_1.txt": "bad. the film's bad",
    "test/pos/0_9.txt": "good film", "test/neg/0_2.txt": "the worst!\r\n", "train/unsup/0_0.txt": "unlabelled",
}  # fmt: skip
MOVIES = "1::Toy Story (1995)::Animation|Comedy\n2::The Other Story (1996)::Drama\n7::Caf\xe9 (2000)::Comedy\n"
USERS = "1::F::1::10::48067\n2::M::56::16::70072\n5::M::25::0::55455\n"
RATINGS = "".join(
    f"{u}::{m}::{(u * 3 + m) % 5 + 1}::978300760\n" for u in (1, 2, 5) for m in (1, 2, 7) for _ in range(3)
)
SOURCE = ["<s>", "<e>", "<unk>", "the", "cat", "sits"]
TARGET = ["<s>", "<e>", "<unk>", "le", "chat"]
WORDS = ["the cat sat", "dogs , cats", "he saw it ."]
PROPS = [
    [("-", "*", "(A1*"), ("see", "(A0*)", "*)"), ("sit", "(V*)", "(V*)")], [("-", "(A0*)"), ("-", "*"), ("bark", "(V*)")],
    [("-", "(A0*"), ("saw", "(V*)"), ("-", "(A1*"), ("-", "*)")],
]  # fmt: skip


def _tar(path: Path, parts: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))


def _idx(path: Path, magic: int, array: np.ndarray) -> None:  # type: ignore[type-arg]
    path.write_bytes(gzip.compress(struct.pack(f">{array.ndim + 1}I", magic, *array.shape) + array.tobytes(), mtime=0))


def _batch(seed: int, key: bytes, count: int = 3) -> bytes:
    numbers = np.random.RandomState(seed)
    pixels = numbers.randint(0, 256, (count, 3072)).astype(np.uint8)
    return pickle.dumps({b"data": pixels, key: [int(n) for n in numbers.randint(0, 10, count)]}, 2)


def build(folder: Path) -> dict[str, str]:
    """Writes all files; returns name -> path."""
    numbers = np.random.RandomState(0)
    _idx(folder / "images.gz", 2051, numbers.randint(0, 256, (IMAGES, 28, 28)).astype(np.uint8))
    _idx(folder / "labels.gz", 2049, numbers.randint(0, 10, IMAGES).astype(np.uint8))
    _tar(
        folder / "cifar10.tar.gz",
        {
            "cifar-10-batches-py/data_batch_1": _batch(1, b"labels"),
            "cifar-10-batches-py/data_batch_2": _batch(2, b"labels"),
            "cifar-10-batches-py/test_batch": _batch(3, b"labels"),
            "cifar-10-batches-py/batches.meta": pickle.dumps({b"label_names": []}, 2),
        },
    )
    _tar(
        folder / "cifar100.tar.gz",
        {"cifar-100-python/train": _batch(4, b"fine_labels"), "cifar-100-python/test": _batch(5, b"fine_labels")},
    )
    rows = numbers.rand(10, 14).round(3) * 10
    (folder / "housing.data").write_text("".join(" " + "  ".join(f"{v:g}" for v in row) + "\n" for row in rows))
    _tar(folder / "imdb.tar.gz", {f"aclImdb/{name}": text.encode() for name, text in REVIEWS.items()})
    _tar(folder / "ptb.tgz", {f"./simple-examples/data/ptb.{part}.txt": text.encode() for part, text in PTB.items()})
    with zipfile.ZipFile(folder / "ml-1m.zip", "w") as package:
        for name, text in (("movies", MOVIES), ("users", USERS), ("ratings", RATINGS)):
            package.writestr(f"ml-1m/{name}.dat", text.encode("latin1"))
    long = " ".join(["cat"] * 90)
    fourteen = {
        part: f"the cat sits\tle chat\nno tab here\n{long}\tle\nthe dog\tle chien dort\n{part}\t{part}\n".encode()
        for part in ("train", "test", "gen")
    }
    _tar(
        folder / "wmt14.tgz",
        {
            "data/src.dict": "\n".join(SOURCE).encode(), "data/trg.dict": "\n".join(TARGET).encode(),
            **{f"data/{part}/{part}": text for part, text in fourteen.items()},
        },
    )  # fmt: skip
    _tar(
        folder / "wmt16.tar.gz",
        {
            f"wmt16/{part}": f"the cat and the dog\tdie Katze und der Hund\nthe {part}\tder der\n\n".encode()
            for part in ("train", "test", "val")
        },
    )
    lines = "".join(f"{word}\n" for sentence in WORDS for word in [*sentence.split(), ""])
    props = "".join("\t".join(row) + "\n" for sentence in PROPS for row in [*sentence, ()])
    _tar(
        folder / "conll.tar.gz",
        {
            f"conll05st-release/test.wsj/{kind}/test.wsj.{kind}.gz": gzip.compress(text.encode(), mtime=0)
            for kind, text in (("words", lines), ("props", props))
        },
    )
    (folder / "words.txt").write_text("<unk>\nthe\ncat\nbos\neos\nit\n")
    (folder / "verbs.txt").write_text("sit\nsee\nbark\nsaw\n")
    (folder / "targets.txt").write_text("B-A0\nI-A0\nB-A1\nI-A1\nB-V\nI-V\nO\n")
    _voc(folder)
    return {path.name: str(path) for path in folder.iterdir()}


def _picture(seed: int, classes: bool = False) -> bytes:
    """The bytes of a PNG file, which is read the same everywhere; the data sets' readers look at no ending."""
    from PIL import Image

    pixels = np.random.RandomState(seed).randint(0, 256, (3, 4) if classes else (5, 4, 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    if classes:
        image.putpalette(list(range(256)) * 3)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def flowers(folder: Path) -> list[str]:
    """Writes the files of Flowers, which need scipy; returns their paths."""
    from scipy.io import savemat

    _tar(folder / "flowers.tgz", {f"jpg/image_{i:05d}.jpg": _picture(i) for i in range(1, 7)})
    savemat(folder / "labels.mat", {"labels": np.array([[77, 5, 102, 1, 9, 5]], np.uint8)})
    parts = {"trnid": [[2]], "valid": [[6, 1]], "tstid": [[5, 3, 4]]}
    savemat(folder / "parts.mat", {name: np.array(part, np.uint16) for name, part in parts.items()})
    return [str(folder / name) for name in ("flowers.tgz", "labels.mat", "parts.mat")]


def _voc(folder: Path) -> None:
    root = "VOCdevkit/VOC2012/"
    _tar(
        folder / "voc.tar",
        {
            **{f"{root}JPEGImages/{name}.jpg": _picture(i) for i, name in enumerate("abc")},
            **{f"{root}SegmentationClass/{name}.png": _picture(i, True) for i, name in enumerate("abc")},
            **{
                f"{root}ImageSets/Segmentation/{part}.txt": "\n".join(names).encode() + b"\n"
                for part, names in {"train": "b", "val": "ac", "trainval": "cab"}.items()
            },
        },
    )
