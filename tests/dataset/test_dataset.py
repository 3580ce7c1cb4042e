"""Data sets read what Paddle 2.6.2 reads from the same files; absent and hostile files are refused by name."""

from __future__ import annotations

import gzip
import importlib.util
import io
import itertools
import json
import os
import pickle
import re
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.dataset.made import IMAGES, build, flowers
from tests.dataset.samples import plain, sets
from tstatic.dataset import common
from tstatic.io.errors import DataError
from tstatic.ir import budget

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())["sets"]
KNOWN = {
    "mnist": {"images.gz": "train-images-idx3-ubyte.gz", "labels.gz": "train-labels-idx1-ubyte.gz"},
    "cifar": {"cifar10.tar.gz": "cifar-10-python.tar.gz", "cifar100.tar.gz": "cifar-100-python.tar.gz"},
    "uci_housing": {"housing.data": "housing.data"},
    "imdb": {"imdb.tar.gz": "imdb%2FaclImdb_v1.tar.gz"},
    "imikolov": {"ptb.tgz": "imikolov%2Fsimple-examples.tgz"},
    "movielens": {"ml-1m.zip": "movielens%2Fml-1m.zip"},
    "wmt14": {"wmt14.tgz": "wmt14.tgz"},
    "wmt16": {"wmt16.tar.gz": "wmt16.tar.gz"},
    "conll05st": {
        "conll.tar.gz": "conll05st-tests.tar.gz", "words.txt": "conll05st%2FwordDict.txt",
        "verbs.txt": "conll05st%2FverbDict.txt", "targets.txt": "conll05st%2FtargetDict.txt",
    },
}  # fmt: skip
"""Module of ``paddle.dataset`` -> our file -> the name under which it is expected."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build(tmp_path_factory.mktemp("files"))


@pytest.fixture
def home(files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files where ``paddle.dataset`` expects them."""
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    for module, names in KNOWN.items():
        (tmp_path / module).mkdir()
        for ours, theirs in names.items():
            shutil.copy(files[ours], tmp_path / module / theirs)
    return tmp_path


def test_samples_are_paddles(files: dict[str, str]) -> None:
    def wmt16(mode: str, lang: str) -> Any:
        return paddle.text.WMT16(files["wmt16.tar.gz"], mode, 6, 7, lang)

    found = json.loads(json.dumps(sets(paddle, files, wmt16)))
    assert found.keys() == RECORDED.keys()
    for name, wanted in RECORDED.items():
        if "housing" in name:
            for ours, theirs in zip(found[name], wanted, strict=True):
                assert ours[0][:2] == theirs[0][:2]
                np.testing.assert_allclose(ours[0][2], theirs[0][2], rtol=1e-6, err_msg=name)
                assert ours[1] == theirs[1]
        else:
            assert found[name] == wanted, name


def test_flowers_are_those_of_the_part(tmp_path: Path) -> None:
    paths = flowers(tmp_path)
    for mode, labels in (("train", [9, 102, 1]), ("valid", [5, 77]), ("test", [5])):
        data = paddle.vision.datasets.Flowers(*paths, mode)
        assert [label.tolist() for _, label in (data[i] for i in range(len(data)))] == [[n] for n in labels]
    image, label = paddle.vision.datasets.Flowers(*paths, transform=lambda image: image + 1, backend="cv2")[1]
    pixels = np.random.RandomState(3).randint(0, 256, (5, 4, 3)).astype(np.uint8)
    assert (image.dtype, label.dtype) == (np.float32, np.int64)
    assert np.array_equal(image, pixels + np.uint8(1))
    with pytest.raises(DataError, match=r"has no jpg/image_00005\.jpg"):
        paddle.vision.datasets.Flowers(_without(paths[0], "00005"), *paths[1:])
    with pytest.raises(DataError, match="cannot read"):
        paddle.vision.datasets.Flowers(paths[0], paths[0], paths[2])


def _without(archive: str, part: str) -> str:
    """Returns the path of an archive that lacks a file."""
    with tarfile.open(archive) as old, tarfile.open(archive + ".new", "w:gz") as new:
        for item in old:
            if part not in item.name:
                new.addfile(item, old.extractfile(item))
    return archive + ".new"


def test_pixels_of_voc_have_classes(files: dict[str, str]) -> None:
    image, classes = paddle.vision.datasets.VOC2012(files["voc.tar"], "test")[0]
    assert (image.shape, image.dtype, classes.shape, classes.dtype) == ((5, 4, 3), np.uint8, (3, 4), np.uint8)
    assert np.array_equal(classes, np.random.RandomState(1).randint(0, 256, (3, 4)))
    for part in ("SegmentationClass/b", "Segmentation/val"):
        with pytest.raises(DataError, match="has no VOCdevkit"):
            paddle.vision.datasets.VOC2012(_without(files["voc.tar"], part), "valid" if "val" in part else "train")


def test_the_backend_of_images_is_that_of_the_process(tmp_path: Path) -> None:
    vision, path = paddle.vision, str(tmp_path / "red.png")
    image_module = pytest.importorskip("PIL.Image")
    image_module.new("RGB", (3, 2), (255, 0, 0)).save(path)
    assert vision.get_image_backend() == "pil"
    assert np.asarray(vision.image_load(path)).tolist() == [[[255, 0, 0]] * 3] * 2
    vision.set_image_backend("cv2")
    try:
        assert vision.get_image_backend() == "cv2"
        if importlib.util.find_spec("cv2") is None:
            with pytest.raises(ImportError, match="needs the package 'cv2'"):
                vision.image_load(path)
        else:
            assert vision.image_load(path).tolist() == [[[0, 0, 255]] * 3] * 2
        with pytest.raises(NotImplementedError, match="no tensors"):
            vision.image_load(path, "tensor")
    finally:
        vision.set_image_backend("pil")
    with pytest.raises(ValueError, match="Expected backend are one of"):
        vision.set_image_backend("gif")


def rows(reader: Callable[[], Iterator[Any]], count: int | None = None) -> list[Any]:
    return [plain(list(row)) for row in itertools.islice(reader(), count)]


def test_readers_give_what_the_classes_have(home: Path) -> None:
    data = paddle.dataset
    image, label = next(data.mnist.train()())
    assert (image.dtype, image.shape, len(rows(data.mnist.train()))) == (np.float32, (784,), IMAGES)
    pixels = np.array(RECORDED["mnist"][0][0][2], "float32")
    np.testing.assert_allclose(image[:12], pixels / 255 * 2 - 1, atol=1e-6)
    assert label == RECORDED["mnist"][0][1][0]
    for reader, name in ((data.cifar.train10(), "cifar10 train"), (data.cifar.test100(), "cifar100 test")):
        found = list(reader())
        assert [label for _, label in found] == [label for _, label in RECORDED[name]]
        sums = [row[0][3] for row in RECORDED[name]]
        np.testing.assert_allclose([image.sum() * 255 for image, _ in found], sums, rtol=1e-5)
    assert len(rows(data.cifar.train10(cycle=True), 15)) == 15
    assert len(rows(data.cifar.test10(cycle=True), 7)) == 7
    assert len(rows(data.cifar.train100())) == 3
    assert [len(rows(data.uci_housing.train())), len(rows(data.uci_housing.test()))] == [8, 2]
    words = data.imdb.build_dict(re.compile("aclImdb/(train|test)/(pos|neg)/"), 1)
    assert rows(data.imdb.train(words)) == [[ids, label[0]] for ids, label in RECORDED["imdb train"]]
    assert rows(data.imdb.test(words)) == [[ids, label[0]] for ids, label in RECORDED["imdb test"]]
    assert data.imdb.word_dict() == {"<unk>": 0}
    words = data.imikolov.build_dict(1)
    assert rows(data.imikolov.train(words, 3)) == RECORDED["ptb train NGRAM 3"]
    assert rows(data.imikolov.train(words, 6, data.imikolov.DataType.SEQ)) == RECORDED["ptb train SEQ 6"]
    assert len(rows(data.imikolov.test(words, 3))) == 5
    assert rows(data.wmt14.train(6)) == RECORDED["wmt14 train"]
    assert rows(data.wmt14.test(6)) == RECORDED["wmt14 test"]
    assert rows(data.wmt14.gen(6)) == RECORDED["wmt14 gen"]
    assert data.wmt14.get_dict(3)[0] == {0: "<s>", 1: "<e>", 2: "<unk>"}
    assert data.wmt14.get_dict(3, reverse=False)[1] == {"<s>": 0, "<e>": 1, "<unk>": 2}
    assert rows(data.wmt16.train(6, 7)) == RECORDED["wmt16 train en"]
    assert rows(data.wmt16.test(6, 7, "de")) == RECORDED["wmt16 test de"]
    assert len(rows(data.wmt16.validation(6, 7))) == 2
    assert list(data.wmt16.get_dict("en", 4)) == ["<s>", "<e>", "<unk>", "the"]
    assert data.wmt16.get_dict("de", 4, reverse=True)[3] == "der"


def test_readers_of_ratings_and_roles(home: Path) -> None:
    movies = paddle.dataset.movielens
    found = rows(movies.train(3, 0.4))
    assert [row[:5] for row in found] == [[n for (n,) in row[0]] for row in RECORDED["movies train"]]
    assert len(rows(movies.test(rand_seed=3, test_ratio=0.4))) == len(RECORDED["movies test"])
    assert [movies.max_user_id(), movies.max_movie_id(), movies.max_job_id()] == [5, 7, 16]
    assert sorted(movies.movie_categories()) == ["Animation", "Comedy", "Drama"]
    assert "caf\xe9" in movies.get_movie_title_dict()
    assert repr(movies.movie_info()[2]) == "<MovieInfo id(2), title(The Other Story ), categories(['Drama'])>"
    assert repr(movies.user_info()[1]) == "<UserInfo id(1), gender(F), age(1), job(10)>"
    assert movies.age_table[-1] == 56
    roles = paddle.dataset.conll05
    _, verbs, labels = roles.get_dict()
    assert verbs == {"sit": 0, "see": 1, "bark": 2, "saw": 3}
    names = {number: name for name, number in labels.items()}
    found = [[*plain(list(row[:8])), [names[n] for n in row[8]]] for row in roles.test()()]
    assert found == [list(row) for row in RECORDED["conll"]]
    with pytest.raises(DataError, match=r"conll05st%2Femb"):
        roles.get_embedding()


def test_links_in_folders_of_images_are_followed_but_not_without_end(tmp_path: Path) -> None:
    """Links that lead outwards were followed forty deep, in exponentially many ways; FIFOs and devices were waited for."""
    root = tmp_path / "pets"
    (root / "cat").mkdir(parents=True)
    np.save(root / "cat/a.npy", np.zeros((2, 2, 3), "uint8"))
    (tmp_path / "more").mkdir()
    np.save(tmp_path / "more/b.npy", np.ones((2, 2, 3), "uint8"))
    (root / "cat/linked").symlink_to(tmp_path / "more")
    (root / "cat/again").symlink_to(tmp_path / "more")
    (root / "cat/loop").symlink_to(root / "cat")
    (root / "broken").symlink_to(root / "broken")
    data = paddle.vision.datasets.DatasetFolder(str(root), extensions=(".npy",))
    assert data.classes == ["cat"]
    assert [os.path.relpath(path, root / "cat") for path, _ in data.samples] == ["a.npy", "again/b.npy", "linked/b.npy"]
    os.mkfifo(root / "cat/c.npy")
    (root / "cat/d.png").symlink_to("/dev/zero")
    data = paddle.vision.datasets.ImageFolder(str(root), extensions=(".npy", ".png"))
    for number, path in enumerate(data.samples):
        if path.endswith(("c.npy", "d.png")):
            with pytest.raises(DataError, match=r"a FIFO|a device"):
                data[number]
    for name in "abcdefghijklmno":
        (root / "cat" / name).symlink_to("..")
        (root / name).symlink_to("..")
        (tmp_path / name).symlink_to("pets/cat")
    with pytest.raises(DataError, match="in more than 100 ways"):
        paddle.vision.datasets.ImageFolder(str(root / "cat"), extensions=(".npy",))


def test_files_are_found_where_they_are_expected(home: Path) -> None:
    assert len(paddle.vision.datasets.MNIST()) == IMAGES
    assert len(paddle.text.datasets.WMT14(dict_size=6)) == len(RECORDED["wmt14 train"])
    assert common.md5file(str(home / "uci_housing" / "housing.data")) == common.md5file(
        common.download("http://x/housing.data", "uci_housing", "")
    )


def test_an_absent_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    data = paddle.dataset
    for call in (
        data.mnist.train, data.cifar.test10, data.uci_housing.train, data.imdb.word_dict, data.imikolov.build_dict,
        data.movielens.train, data.conll05.test, lambda: data.wmt14.train(3), lambda: data.wmt16.train(3, 3),
        paddle.vision.datasets.FashionMNIST, paddle.vision.datasets.Cifar100, paddle.text.Imdb,
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=rf"there is no file {tmp_path}/\w"):
            call()
        with pytest.raises(RuntimeError, match="http"):
            call()
    with pytest.raises(AssertionError, match="data_file is not set"):
        paddle.text.UCIHousing(download=False)
    with pytest.raises(RuntimeError, match="there is no file nowhere"):
        paddle.text.UCIHousing("nowhere")


def test_arguments_that_do_not_fit(files: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="mode should be 'train' or 'test', but got all"):
        paddle.text.Imdb(files["imdb.tar.gz"], "all")
    with pytest.raises(AssertionError, match="dict_size should be set as positive number"):
        paddle.text.WMT14(files["wmt14.tgz"])
    with pytest.raises(AssertionError, match="Invalid gram length"):
        paddle.text.Imikolov(files["ptb.tgz"])
    with pytest.raises(ValueError, match="An error language type"):
        paddle.text.WMT16(files["wmt16.tar.gz"], "train", 5, 5, "fr")
    with pytest.raises(ValueError, match="Expected backend"):
        paddle.vision.datasets.MNIST(files["images.gz"], files["labels.gz"], backend="png")


def test_images_are_transformed(files: dict[str, str]) -> None:
    digits = paddle.vision.datasets.MNIST(
        files["images.gz"], files["labels.gz"], transform=lambda image: image[None] / 2
    )
    assert digits[0][0].shape == (1, 28, 28)
    assert paddle.vision.datasets.MNIST(files["images.gz"], files["labels.gz"])[0][0].dtype == np.uint8
    pictures = paddle.vision.datasets.Cifar10(files["cifar10.tar.gz"], transform=np.flipud)
    plain_ones = paddle.vision.datasets.Cifar10(files["cifar10.tar.gz"])
    np.testing.assert_array_equal(pictures[0][0], plain_ones[0][0][::-1])


def test_wmt16_keeps_its_dictionaries(files: dict[str, str]) -> None:
    data = paddle.text.WMT16(files["wmt16.tar.gz"], "val", 4, 5)
    assert list(data.get_dict("en")) == ["<s>", "<e>", "<unk>", "the"]
    assert data.get_dict("de", reverse=True)[3] == "der"
    assert paddle.text.WMT14(files["wmt14.tgz"], dict_size=4).get_dict(reverse=True)[0][3] == "the"


# --------------------------------------------------------------------------------------------------------- hostile files
def tar(path: Path, name: str, content: bytes) -> str:
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return str(path)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


def test_a_pickle_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (
        pickle.dumps(Evil()), pickle.dumps({b"data": Evil(), b"labels": [1]}), b"", b"\x80\x02.", pickle.dumps([1]),
        pickle.dumps({b"data": np.zeros((1, 5), np.uint8), b"labels": [1]}, 2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.float32), b"labels": [1]}, 2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.int8), b"labels": [1]}, 2),
        pickle.dumps({b"data": np.zeros((1, 3072), object), b"labels": [1]}, 2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["a"]}, 2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": 4}, 2),
    ):  # fmt: skip
        path = tar(tmp_path / "evil.tar.gz", "cifar-10-batches-py/data_batch_1", content)
        with pytest.raises(DataError, match=r"cannot read .*evil\.tar\.gz"):
            paddle.vision.datasets.Cifar10(path)
    assert not (tmp_path / "owned").exists()
    # As Python 2 wrote them: texts where bytes are meant.
    old = b"\x80\x02}(U\x06labels](K\x01eU\x04data" + pickle.dumps(np.ones((1, 3072), np.uint8), 2)[2:-1] + b"u."
    path = tar(tmp_path / "old.tar.gz", "cifar-10-batches-py/data_batch_1", old)
    assert paddle.vision.datasets.Cifar10(path)[0][1] == 1


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "UNPACKED", 1 << 16)
    zeros = bytes(32 << 20)
    path = tar(tmp_path / "bomb.tar.gz", "aclImdb/train/pos/0_1.txt", zeros)
    with pytest.raises(DataError, match=r"bomb\.tar\.gz unpacks to more bytes"):
        paddle.text.Imdb(path)
    # Who trusts a file raises the limit.
    paddle.set_flags({"FLAGS_load_limit_factor": 1000.0})
    paddle.text.Imdb(path)
    paddle.set_flags({"FLAGS_load_limit_factor": 1.0})
    images = tmp_path / "images.gz"
    images.write_bytes(gzip.compress(struct.pack(">4I", 2051, 1 << 31, 1 << 31, 1 << 31) + zeros))
    with pytest.raises(DataError, match=r"images\.gz"):
        paddle.vision.datasets.MNIST(str(images), str(images))


def test_damaged_files_are_named(files: dict[str, str], tmp_path: Path) -> None:
    makers: dict[str, Callable[[str], Any]] = {
        "images.gz": lambda path: paddle.vision.datasets.MNIST(path, files["labels.gz"]),
        "cifar10.tar.gz": paddle.vision.datasets.Cifar10,
        "housing.data": paddle.text.UCIHousing,
        "imdb.tar.gz": paddle.text.Imdb,
        "ptb.tgz": lambda path: paddle.text.Imikolov(path, window_size=2),
        "ml-1m.zip": paddle.text.Movielens,
        "wmt14.tgz": lambda path: paddle.text.WMT14(path, dict_size=6),
        "wmt16.tar.gz": lambda path: paddle.text.WMT16(path, "train", 6, 6),
        "conll.tar.gz": lambda path: paddle.text.Conll05st(
            path, *(files[name] for name in ("words.txt", "verbs.txt", "targets.txt"))
        ),
    }
    numbers = np.random.RandomState(0)
    refused = 0
    for name, make in makers.items():
        whole = Path(files[name]).read_bytes()
        broken = [whole[: len(whole) // 2], b"", b"no archive"]
        for _ in range(12):
            copy = bytearray(whole)
            for at in numbers.randint(0, len(whole), 3):
                copy[at] = numbers.randint(256)
            broken.append(bytes(copy))
        for text in broken:
            path = tmp_path / name
            path.write_bytes(text)
            error = None
            try:
                make(str(path))
            except DataError as raised:
                error = raised
            assert error is None or name in str(error)
            refused += error is not None
    assert refused > 90


# --------------------------------------------------------------------------------------------------------------- folders
def test_folders_are_classes(tmp_path: Path) -> None:
    for number, name in enumerate(("cat/b.npy", "cat/deep/a.npy", "dog/c.npy", "dog/notes.txt", "top.npy")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((2, 2, 3), number)) if path.suffix == ".npy" else path.write_text("text")
    root = str(tmp_path)
    pets = paddle.vision.datasets.DatasetFolder(root, extensions=[".NPY"], transform=lambda image: int(image.max()))
    assert [pets[i] for i in range(len(pets))] == [(0, 0), (1, 0), (2, 1)]
    assert [pets.classes, pets.class_to_idx, pets.targets] == [["cat", "dog"], {"cat": 0, "dog": 1}, [0, 0, 1]]
    texts = paddle.vision.datasets.DatasetFolder(
        root, lambda path: Path(path).read_text(), is_valid_file=lambda p: p.endswith("txt")
    )
    assert [texts[i] for i in range(len(texts))] == [("text", 1)]
    images = paddle.vision.datasets.ImageFolder(root, extensions=(".npy",), transform=lambda image: int(image.max()))
    assert [images[i] for i in range(len(images))] == [[4], [0], [1], [2]]
    for make in (paddle.vision.datasets.DatasetFolder, paddle.vision.datasets.ImageFolder):
        with pytest.raises(RuntimeError, match="Found 0 files in"):
            make(root)
        with pytest.raises(ValueError, match="both extensions and is_valid_file"):
            make(root, None, [".npy"], None, bool)
    with pytest.raises(DataError, match="cannot read the folder"):
        paddle.vision.datasets.DatasetFolder(root + "/none")
