"""Every argument of loaders and samplers is given values of wrong types: the error is typed and names the argument."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tstatic import io
from tstatic.errors import TstaticError, UnsupportedError
from tstatic.io.collate import default_collate_fn
from tstatic.io.errors import DataTypeError


class Odd:
    """Nothing that a loader can use."""

    def __repr__(self) -> str:
        return "an odd thing"


WRONG: tuple[Any, ...] = (
    Odd(),
    "3",
    "x",
    1.5,
    -1,
    3,
    None,
    [],
    {},
    float("nan"),
    b"1",
    1j,
    np.float32(2.5),
    [Odd()],
    True,
)
RIGHT: dict[Any, dict[str, Any]] = {
    io.DataLoader: {"dataset": list(range(6)), "num_workers": 0},
    io.BatchSampler: {"dataset": list(range(6))},
    io.DistributedBatchSampler: {"dataset": list(range(6)), "batch_size": 2},
    io.SequenceSampler: {"data_source": list(range(6))},
    io.RandomSampler: {"data_source": list(range(6))},
    io.WeightedRandomSampler: {"weights": [0.5, 0.5], "num_samples": 1},
    io.SubsetRandomSampler: {"indices": [1, 2]},
    io.Sampler: {},
}
PARAMETERS = [(made, name) for made in RIGHT for name in inspect.signature(made).parameters]


@pytest.mark.parametrize(("made", "name"), PARAMETERS, ids=lambda v: getattr(v, "__name__", v))
def test_a_wrong_argument_is_a_typed_error_or_works(made: Any, name: str) -> None:
    """No value of a wrong type ends in an error of Python's own, when it is passed or later."""
    for value in WRONG:
        arguments = {**RIGHT[made], name: value}
        if made is io.DataLoader and name == "num_workers" and value in (3, True):
            continue  # these are no wrong values, and processes take their time
        try:
            one = made(**arguments)
            if made is not io.Sampler:
                list(one)
                len(one)
        except (TstaticError, UnsupportedError):
            pass
        except Exception as error:
            raise AssertionError(f"{made.__name__}({name}={value!r}) raises {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": None}, {"num_workers": "2"}, {"num_workers": 1.5}, {"batch_size": "3"}, {"prefetch_factor": "x"},
        {"collate_fn": 3}, {"worker_init_fn": 3}, {"batch_sampler": 3}, {"timeout": "1"}, {"timeout": None},
        {"shuffle": "no"}, {"feed_list": 3}, {"persistent_workers": "false"}, {"dataset": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_loader_names_the_argument_where_it_is_made(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(TypeError, match=name) as caught:
        io.DataLoader(**{"dataset": [1, 2], "num_workers": 1, **arguments})
    assert isinstance(caught.value, TstaticError)
    assert caught.value.fix


def test_numbers_of_numpy_are_numbers() -> None:
    loader = io.DataLoader([1, 2, 3], batch_size=np.int64(2), num_workers=np.int32(0), timeout=np.float32(1.0))
    assert len(loader) == 2
    assert loader.timeout == 1.0


def test_samples_that_are_nested_too_deep_are_a_typed_error() -> None:
    """Guards against a bare RecursionError from the middle of a loader."""
    sample: Any = [1.0]
    for _ in range(5000):
        sample = [sample]
    with pytest.raises(DataTypeError, match="nested too deep") as caught:
        default_collate_fn([sample, sample])
    assert "collate_fn" in str(caught.value)
