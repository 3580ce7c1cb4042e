"""Ratings of films, with what is known of the users and the films."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.extras.dataset.common import checked_mode, found, reading, zip_member
from tstatic.extras.dataset.common import download as expected
from tstatic.io.dataset import Dataset
from tstatic.ir.export import export

__all__ = [
    "MovieInfo", "UserInfo", "age_table", "get_movie_title_dict", "max_job_id", "max_movie_id", "max_user_id",
    "movie_categories", "movie_info", "test", "train", "user_info",
]  # fmt: skip

age_table = [1, 18, 25, 35, 45, 50, 56]
_URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
_TITLE = re.compile(r"^(.*)\((\d+)\)$")


def _rows(path: str, name: str, fields: int) -> Iterator[list[str]]:
    with zip_member(path, f"ml-1m/{name}.dat") as file:
        for line in file:
            row = line.decode("latin1").strip().split("::")
            if len(row) != fields:
                raise ValueError(f"a line of {name}.dat with {len(row)} fields, not {fields}")
            yield row


def _numbers(words: Iterable[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(sorted(set(words)))}


class MovieInfo:
    """A film.

    Args:
        index: Its number.
        categories: The names of its kinds.
        title: Without the year.
    """

    def __init__(self, index: str | int, categories: list[str], title: str) -> None:
        self.index, self.categories, self.title = int(index), categories, title

    def fields(self, categories: dict[str, int], titles: dict[str, int]) -> list[Any]:
        """Returns its number, the numbers of its kinds, and those of the words of its title."""
        words = [titles[word.lower()] for word in self.title.split()]
        return [self.index, [categories[kind] for kind in self.categories], words]

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"


class UserInfo:
    """A user.

    Args:
        index: The number.
        gender: ``"M"`` or ``"F"``.
        age: One of ``age_table``.
        job_id: The number of the occupation.
    """

    def __init__(self, index: str | int, gender: str, age: str | int, job_id: str | int) -> None:
        self.index, self.job_id = int(index), int(job_id)
        self.is_male = gender == "M"
        self.age = age_table.index(int(age))

    def value(self) -> list[int]:
        """Returns number, 0 for a man or 1, the number of the age, and the occupation."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __repr__(self) -> str:
        gender = "M" if self.is_male else "F"
        return f"<UserInfo id({self.index}), gender({gender}), age({age_table[self.age]}), job({self.job_id})>"


class _Tables:
    """What the archive says of films and users."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.movies: dict[int, MovieInfo] = {}
        with reading(path):
            for index, title, kinds in _rows(path, "movies", 3):
                match = _TITLE.match(title)
                if match is None:
                    raise ValueError(f"a title without a year: {title}")
                self.movies[int(index)] = MovieInfo(index, kinds.split("|"), match.group(1))
            self.users = {
                int(index): UserInfo(index, gender, age, job) for index, gender, age, job, _ in _rows(path, "users", 5)
            }
        self.titles = _numbers(word.lower() for movie in self.movies.values() for word in movie.title.split())
        self.categories = _numbers(kind for movie in self.movies.values() for kind in movie.categories)

    def ratings(self, mode: str, test_ratio: float, rand_seed: int) -> Iterator[list[Any]]:
        """Yields the fields of user and film, and the rating from -3 to 5; a seeded draw for each decides who gets it."""
        draws = np.random.RandomState(rand_seed)
        for user, movie, rating, _ in _rows(self.path, "ratings", 4):
            if (draws.random_sample() < test_ratio) == (mode == "test"):
                with reading(self.path):
                    fields = self.movies[int(movie)].fields(self.categories, self.titles)
                    row = [*self.users[int(user)].value(), *fields, [float(rating) * 2 - 5.0]]
                yield row


def _tables() -> _Tables:
    return _Tables(expected(_URL, "movielens", ""))


def _reader(mode: str, rand_seed: int, test_ratio: float) -> Callable[[], Iterator[list[Any]]]:
    tables = _tables()
    return lambda: tables.ratings(mode, test_ratio, rand_seed)


def train(rand_seed: int = 0, test_ratio: float = 0.1) -> Callable[[], Iterator[list[Any]]]:
    """Returns a reader of the ratings to train with: user, gender, age, job, film, kinds, title, ``[rating]``.

    Args:
        rand_seed: Decides which ratings these are.
        test_ratio: The part that is for the test.

    Raises:
        DataError: If the file is not there; it names the path.
    """
    return _reader("train", rand_seed, test_ratio)


def test(rand_seed: int = 0, test_ratio: float = 0.1) -> Callable[[], Iterator[list[Any]]]:
    """Returns a reader of the ratings to test with, as :func:`train` does.

    Args:
        rand_seed: Decides which ratings these are.
        test_ratio: The part that is for the test.
    """
    return _reader("test", rand_seed, test_ratio)


def get_movie_title_dict() -> dict[str, int]:
    """Returns the numbers of the words of all titles."""
    return _tables().titles


def movie_categories() -> dict[str, int]:
    """Returns the numbers of the kinds of films."""
    return _tables().categories


def movie_info() -> dict[int, MovieInfo]:
    """Returns all films by number."""
    return _tables().movies


def user_info() -> dict[int, UserInfo]:
    """Returns all users by number."""
    return _tables().users


def max_movie_id() -> int:
    """Returns the largest number of a film."""
    return max(movie_info())


def max_user_id() -> int:
    """Returns the largest number of a user."""
    return max(user_info())


def max_job_id() -> int:
    """Returns the largest number of an occupation."""
    return max(user.job_id for user in user_info().values())


@export("text.Movielens")
class Movielens(Dataset):
    """Ratings of films: arrays of user, gender, age, job, film, kinds, words of the title, and rating.

    Args:
        data_file: The archive; below ``dataset.common.DATA_HOME`` if ``None``.
        mode: ``"train"`` or ``"test"``.
        test_ratio: The part of the ratings that is for the test.
        rand_seed: Decides which ratings these are.
        download: ``False`` refuses to look for a file that was not given; nothing is downloaded.

    Raises:
        DataError: If the file is not there, or is none of the kind; it names the path.

    Example:
        >>> try:
        ...     paddle.text.Movielens("ml-1m.zip")
        ... except RuntimeError as error:
        ...     print(error.what)
        there is no file ml-1m.zip
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        test_ratio: float = 0.1,
        rand_seed: int = 0,
        download: bool = True,
    ) -> None:
        self.mode = checked_mode(mode)
        self.data_file = found(data_file, _URL, "movielens", download)
        self.test_ratio, self.rand_seed = test_ratio, rand_seed
        tables = _Tables(self.data_file)
        self.movie_info, self.user_info = tables.movies, tables.users
        self.movie_title_dict, self.categories_dict = tables.titles, tables.categories
        self.data = [
            [part if isinstance(part, list) else [part] for part in row]
            for row in tables.ratings(self.mode, test_ratio, rand_seed)
        ]

    def __getitem__(self, idx: int) -> tuple[NDArray[Any], ...]:
        return tuple(np.array(part) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)
