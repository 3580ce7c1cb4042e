"""Data of other libraries as sources of loaders and feeds, and fetched tensors as theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.io.test_data_loader import Calls, values
from tstatic import fluid, io, static
from tstatic.runtime.feed import host_array


class Table:
    """The protocol of a Hugging Face data set: numbered samples, also many at once."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, key: int) -> dict[str, Any]:
        return {"text": f"word {key}", "label": key}

    def __getitems__(self, keys: list[int]) -> list[dict[str, Any]]:
        self.asked.append(keys)
        return [self[key] for key in keys]


class Stream:
    """The protocol of a Hugging Face data set that is streamed."""

    def __iter__(self) -> Iterator[dict[str, int]]:
        for i in range(3):
            yield {"n": i}


def test_tables_give_many_samples_at_once() -> None:
    table = Table()
    loader = io.DataLoader(table, batch_size=2, use_buffer_reader=False)
    wanted = [{"text": ["word 0", "word 1"], "label": [0, 1]}, {"text": ["word 2", "word 3"], "label": [2, 3]}]
    assert [values(batch) for batch in loader][:2] == wanted
    assert table.asked == [[0, 1], [2, 3], [4]]
    assert values(list(io.DataLoader(table, batch_size=2, num_workers=2)))[:2] == wanted


@pytest.mark.parametrize("workers", [0, 1])
def test_streams_are_read_in_order(workers: int) -> None:
    loader = io.DataLoader(Stream(), batch_size=2, num_workers=workers)
    assert values(list(loader)) == [{"n": [0, 1]}, {"n": [2]}]
    with pytest.raises(ValueError, match="not support shuffle"):
        io.DataLoader(Stream(), shuffle=True)


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_data_sets(workers: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils import data

    tensors = data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.arange(4))
    found = list(io.DataLoader(tensors, batch_size=3, num_workers=workers))
    assert values(found) == [[[[0, 1], [2, 3], [4, 5]], [0, 1, 2]], [[[6, 7]], [3]]]
    part = data.Subset(tensors, [3, 1])
    assert values(list(io.DataLoader(part, batch_size=2, num_workers=workers)))[0][1] == [3, 1]
    single = values(list(io.DataLoader(tensors, batch_size=None, num_workers=workers)))
    assert single[1] == [[2, 3], 1]
    low = io.DataLoader(Calls(lambda i: torch.tensor([1.5]).bfloat16(), 2), batch_size=2, num_workers=workers)
    assert np.array(next(iter(low))).astype("float32").tolist() == [[1.5], [1.5]]


@pytest.mark.torch
def test_a_torch_data_set_knows_its_worker() -> None:
    pytest.importorskip("torch")
    from torch.utils import data

    class Shared(data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            info = data.get_worker_info()
            yield from range(4) if info is None else range(info.id, 4, info.num_workers)

    assert values(list(io.DataLoader(Shared(), batch_size=2))) == [[0, 1], [2, 3]]
    assert values(list(io.DataLoader(Shared(), batch_size=2, num_workers=2))) == [[0, 2], [1, 3]]


class Exported:
    """An array that can be had through DLPack only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_dlpack_objects_and_capsules() -> None:
    array = np.arange(4, dtype="float32").reshape(2, 2)
    x = static.data("x", [None, 2])
    exe = static.Executor()
    for make in (Exported, lambda a: a.__dlpack__()):
        assert exe.run(feed={"x": make(array)}, fetch_list=[x * 2])[0].tolist() == [[0, 2], [4, 6]]
        assert values(list(io.DataLoader(Calls(lambda i, make=make: make(array[i]), 2), batch_size=2))) == [
            [[0, 1], [2, 3]]
        ]
        assert values(io.TensorDataset([make(array)])[1][0].tolist()) == [2, 3]


def test_memory_maps_are_read_when_batches_are_made(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(12, dtype="float32").reshape(4, 3))
    rows = np.load(path, mmap_mode="r+")
    dataset = io.TensorDataset([rows])
    assert dataset.tensors[0] is rows
    assert np.shares_memory(dataset[2][0], rows)
    loader = io.DataLoader(dataset, batch_size=2)
    assert values(list(loader))[1] == [[[6, 7, 8], [9, 10, 11]]]
    single = next(iter(io.DataLoader(dataset, batch_size=None)))[0]
    assert np.shares_memory(single.array, rows)
    rows[0] = 7
    assert values(next(iter(loader)))[0][0] == [7, 7, 7]


# --------------------------------------------------------------------------------------------------------------- results
def fetched() -> fluid.LoDTensor:
    x = static.data("x", [None, 2])
    feed = {"x": np.arange(4, dtype="float32").reshape(2, 2)}
    (found,) = static.Executor().run(feed=feed, fetch_list=[x * 2], return_numpy=False)
    assert isinstance(found, fluid.LoDTensor)
    return found


def test_numpy_shares_what_is_fetched() -> None:
    tensor = fetched()
    array = np.from_dlpack(tensor)
    assert array.tolist() == [[0, 2], [4, 6]]
    assert np.shares_memory(array, tensor.array)
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(RuntimeError, match="holds no value yet"):
        np.from_dlpack(fluid.LoDTensor())


@pytest.mark.numpy_device("looks at the memory of a variable")
def test_a_variable_of_a_scope_gives_a_copy() -> None:
    w = paddle.create_parameter([2], "float32", name="w")
    static.Executor().run(static.default_startup_program())
    variable = static.global_scope().find_var(w.name)
    assert variable is not None
    tensor = variable.get_tensor()
    array = np.from_dlpack(tensor)
    assert array.tolist() == np.array(tensor).tolist()
    assert not np.shares_memory(array, tensor.array)


@pytest.mark.torch
def test_torch_shares_what_is_fetched() -> None:
    torch = pytest.importorskip("torch")
    tensor = fetched()
    theirs = torch.from_dlpack(tensor)
    assert theirs.tolist() == [[0, 2], [4, 6]]
    theirs += 1
    assert np.array(tensor).tolist() == [[1, 3], [5, 7]]


def fetched_bfloat16() -> fluid.LoDTensor:
    x = static.data("x", [None, 2])
    feed = {"x": np.arange(4, dtype="float32").reshape(2, 2)}
    (found,) = static.Executor().run(feed=feed, fetch_list=[paddle.cast(x, "bfloat16") * 1.5], return_numpy=False)
    return found


def test_bfloat16_goes_through_capsules() -> None:
    tensor = fetched_bfloat16()
    again = paddle.utils.dlpack.from_dlpack(paddle.utils.dlpack.to_dlpack(tensor))
    assert again.array.dtype == tensor.array.dtype
    assert np.array(again).astype(float).tolist() == [[0, 1.5], [3, 4.5]]
    assert np.shares_memory(again.array, tensor.array)
    versioned = host_array(tensor.__dlpack__(max_version=(1, 0)))
    assert versioned.astype(float).tolist() == [[0, 1.5], [3, 4.5]]
    capsule = paddle.utils.dlpack.to_dlpack(tensor)
    host_array(capsule)
    with pytest.raises(ValueError, match="was read before"):
        host_array(capsule)
    for call, value in ((paddle.utils.dlpack.to_dlpack, 3), (paddle.utils.dlpack.from_dlpack, "x")):
        with pytest.raises(TypeError, match="dlpack"):
            call(value)


@pytest.mark.torch
def test_torch_shares_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    tensor = fetched_bfloat16()
    theirs = torch.from_dlpack(tensor)
    assert theirs.dtype is torch.bfloat16
    theirs += 1
    assert np.array(tensor).astype(float).tolist() == [[1, 2.5], [4, 5.5]]
    back = host_array(torch.utils.dlpack.to_dlpack(theirs))
    assert back.dtype == tensor.array.dtype
    assert back.astype(float).tolist() == [[1, 2.5], [4, 5.5]]


def test_a_loader_feeds_sequences() -> None:
    words = static.data("w", [None, 1], "int64", lod_level=1)
    loader = io.DataLoader.from_generator([words])
    loader.set_sample_list_generator(paddle.batch(lambda: iter([([1, 2, 3],), ([9],)]), 2), places="cpu")
    sums = static.nn.sequence_pool(paddle.cast(words, "float32"), "sum")
    assert [static.Executor().run(feed=item, fetch_list=[sums])[0].tolist() for item in loader] == [[[6], [9]]]
