"""What is asked of both libraries about the files of ``made``: all samples of each data set, as plain lists."""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTHS = 12
"""Of long arrays, first elements and the sum are compared."""


def plain(value: Any) -> Any:
    """A sample as lists and numbers; long arrays as shape, dtype, beginning and sum."""
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray) and value.size > LENGTHS:
        flat = value.reshape(-1)
        return [list(value.shape), str(value.dtype), plain(flat[:LENGTHS]), float(flat.astype("float64").sum())]
    return np.asarray(value).tolist() if not isinstance(value, (str, bytes)) else str(value)


def words(numbers: Any, known: Any) -> list[str]:
    """Numbers as the words of a dictionary whose order is not settled."""
    names = {number: word for word, number in known.items()}
    return [names[int(n)] for n in np.ravel(numbers)]


def sets(paddle: Any, files: dict[str, str], wmt16: Any) -> dict[str, Any]:
    """Makes every data set of ``vision.datasets`` and ``text``; returns what they hold.

    ``wmt16(mode, lang)`` gives the samples of WMT16: Paddle's own class counts the words of one language for both.
    """
    vision, text = paddle.vision.datasets, paddle.text
    found: dict[str, Any] = {}

    def keep(name: str, data: Any) -> None:
        found[name] = [plain(data[i]) for i in range(len(data))]

    keep("mnist", vision.MNIST(files["images.gz"], files["labels.gz"], backend="cv2"))
    for mode in ("train", "valid", "test"):
        keep(f"voc {mode}", vision.VOC2012(files["voc.tar"], mode, backend="cv2"))
    for mode in ("train", "test"):
        keep(f"cifar10 {mode}", vision.Cifar10(files["cifar10.tar.gz"], mode, backend="cv2"))
        keep(f"cifar100 {mode}", vision.Cifar100(files["cifar100.tar.gz"], mode, backend="cv2"))
        keep(f"housing {mode}", text.UCIHousing(files["housing.data"], mode))
        imdb = text.Imdb(files["imdb.tar.gz"], mode, cutoff=1)
        keep(f"imdb {mode}", imdb)
        found[f"imdb words {mode}"] = sorted((str(word), number) for word, number in imdb.word_idx.items())
        for kind, size in (("NGRAM", 3), ("SEQ", 6), ("SEQ", 0)):
            keep(f"ptb {mode} {kind} {size}", text.Imikolov(files["ptb.tgz"], kind, size, mode, 1))
        movies = text.Movielens(files["ml-1m.zip"], mode, 0.4, 3)
        found[f"movies {mode}"] = [
            [
                plain(row[:5]),
                words(row[5], movies.categories_dict),
                words(row[6], movies.movie_title_dict),
                plain(row[7]),
            ]
            for row in (movies[i] for i in range(len(movies)))
        ]
        for lang in ("en", "de"):
            keep(f"wmt16 {mode} {lang}", wmt16(mode, lang))
    for mode in ("train", "test", "gen"):
        keep(f"wmt14 {mode}", text.WMT14(files["wmt14.tgz"], mode, 6))
    roles = text.Conll05st(
        *(files[name] for name in ("conll.tar.gz", "words.txt", "verbs.txt", "targets.txt", "words.txt"))
    )
    found["conll"] = [
        [*plain(row[:8]), words(row[8], roles.label_dict)] for row in (roles[i] for i in range(len(roles)))
    ]
    return found
