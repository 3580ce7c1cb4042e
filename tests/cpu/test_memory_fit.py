"""Whether a run fits in a memory, and the largest batch that does."""

import dataclasses

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static, target
from tstatic.errors import DeviceError, FeedError, ProgramError, ProgramTypeError, ShapeError, TstaticError
from tstatic.plan.capacity import RESERVED_BYTES, capacity
from tstatic.static.run.max_batch import MOST, largest, with_batch


@pytest.fixture
def net():
    x = static.data("x", [None, 64])
    label = static.data("label", [None, 1], "int64")
    hidden = static.nn.fc(x, 128, activation="relu")
    loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(static.nn.fc(hidden, 10), label))
    paddle.optimizer.Adam(learning_rate=0.1).minimize(loss)
    return static.CompiledProgram(static.default_main_program()), loss


def shapes(batch: int) -> dict[str, tuple[int, ...]]:
    return {"x": (batch, 64), "label": (batch, 1)}


def test_a_fit_counts_the_peak_and_what_is_in_the_scope(net) -> None:
    compiled, loss = net
    report = compiled.memory_report(shapes(32), [loss])
    needed = report.peak_bytes + report.by_category["parameters"] + report.by_category["other state"]
    needed += report.bound_bytes
    assert report.total_bytes == needed == compiled.fits(1, shapes(32), [loss]).needed_bytes
    assert report.fits(needed)
    short = report.fits(needed - 1)
    assert not short
    assert short.free_bytes == -1
    assert "does not fit" in str(short)
    assert "1 byte missing" in str(short)
    assert "test_memory_fit.py" in str(short)
    assert "other state" in str(short), "what is largest"
    assert str(report.fits("H200")).startswith("fits: ")
    assert "left" in str(report.fits("H200"))
    assert short.to_dict() == {
        "fits": False, "needed_bytes": needed, "available_bytes": needed - 1, "memory": "given",
    }  # fmt: skip


def test_parameters_of_the_scope_and_accumulators_are_part_of_it(net) -> None:
    compiled, loss = net
    report = compiled.memory_report(shapes(32), [loss])
    weights = 64 * 128 + 128 + 128 * 10 + 10
    assert report.by_category["parameters"] == 4 * weights
    assert report.by_category["other state"] >= 8 * weights


@pytest.mark.parametrize("names", ["abc", "bac", "bca"])
def test_one_input_with_an_open_batch_is_enough_wherever_it_stands(names: str) -> None:
    with static.program_guard(static.Program(), static.Program()):
        declared = {"a": [None, 3], "b": [2, 3], "c": []}
        for name in names:
            static.data(name, declared[name])
        program = static.default_main_program()
    assert with_batch(program, {}, 5) == {"a": (5, 3), "b": (2, 3), "c": ()}


@pytest.mark.parametrize("limit", [500_000, 77_000_001])
def test_the_largest_batch_fits_and_the_next_does_not(net, limit: int) -> None:
    compiled, loss = net
    batch = compiled.max_batch(limit, fetch_list=[loss])
    assert batch > 1
    assert compiled.fits(limit, shapes(batch), [loss])
    assert not compiled.fits(limit, shapes(batch + 1), [loss])
    by_eight = compiled.max_batch(limit, fetch_list=[loss], multiple_of=8)
    assert by_eight == batch // 8 * 8


def test_no_batch_fits_where_the_parameters_do_not(net) -> None:
    compiled, loss = net
    assert compiled.max_batch("10 kB", fetch_list=[loss]) == 0


def test_the_batch_may_stand_in_any_input(net) -> None:
    compiled, loss = net
    free = compiled.max_batch(3_000_000, fetch_list=[loss])
    assert compiled.max_batch(3_000_000, {"x": (-1, 64), "label": (None, 1)}, [loss]) == free


def test_a_batch_of_several_places_is_that_of_all_together(net) -> None:
    compiled, loss = net
    two = static.CompiledProgram(static.default_main_program())
    two.with_data_parallel(loss.name, places=static.cpu_places(2))
    report = two.memory_report(shapes(64), [loss])
    assert len(report.replicas) == 2
    # GPUs have a memory each; CPU places share one.
    assert report.fits("H100").needed_bytes == max(r.total_bytes for r in report.replicas)
    assert report.fits(paddle.CPUPlace()).needed_bytes == sum(r.total_bytes for r in report.replicas)
    one = compiled.max_batch("3 MB", fetch_list=[loss], multiple_of=2)
    assert one < two.max_batch("3 MB", fetch_list=[loss], multiple_of=2) <= 2 * one + 2


def attention() -> tuple[static.CompiledProgram, paddle.static.Variable]:
    """Kernels keep none of the scores, 2 MiB for each of 8 heads."""
    q, k, v = (static.create_parameter([8, 1024, 64], "bfloat16") for _ in range(3))
    weights = paddle.nn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.125)
    loss = paddle.mean(paddle.matmul(weights, v))
    paddle.optimizer.SGD(0.1).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.fuse_dot_product_attention = True
    return static.CompiledProgram(static.default_main_program(), strategy), loss


def test_a_chip_is_planned_for_with_its_kernels() -> None:
    compiled, loss = attention()
    here = compiled.memory_report(fetch_list=[loss])
    scores = 8 * 1024 * 1024 * 2
    assert here.peak_bytes > scores
    assert here.planned_for == ""
    chip = compiled.memory_report(fetch_list=[loss], place="h100")
    assert chip.peak_bytes < scores
    assert chip.planned_for == target.H100.name
    assert str(chip).startswith("arena ")
    assert f" on {target.H100.name}; held now" in str(chip)
    assert chip.to_dict()["planned_for"] == target.H100.name
    same = compiled.memory_report(fetch_list=[loss], place=target.H100)
    assert (same.peak_bytes, same.by_op) == (chip.peak_bytes, chip.by_op)
    assert compiled.fits("H100", fetch_list=[loss]).needed_bytes == chip.total_bytes
    assert compiled.fits(target.H100, fetch_list=[loss]).needed_bytes == chip.total_bytes
    assert compiled.fits("1 GB", fetch_list=[loss]).needed_bytes == here.total_bytes
    assert compiled.fits(paddle.CPUPlace(), fetch_list=[loss]).needed_bytes == here.total_bytes
    assert compiled.memory_report(fetch_list=[loss], place=paddle.CPUPlace()).by_op == here.by_op


def test_more_fits_on_a_chip_than_operators_alone_would_let() -> None:
    x = static.data("x", [None, 512, 64], "bfloat16")
    out = paddle.matmul(paddle.nn.functional.softmax(paddle.matmul(x, x, transpose_y=True)), x)
    strategy = static.BuildStrategy()
    strategy.fuse_dot_product_attention = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    small = dataclasses.replace(target.A100, memory_bytes=RESERVED_BYTES + (1 << 24))
    assert compiled.max_batch(small, fetch_list=[out]) > 4 * compiled.max_batch(1 << 24, fetch_list=[out])


@pytest.mark.parametrize("place", ["H1000", "80 GB", 7, [1]])
def test_what_is_neither_a_place_nor_a_chip_is_refused(net, place: object) -> None:
    compiled, loss = net
    with pytest.raises(ProgramError, match="neither a place nor a chip"):
        compiled.memory_report(shapes(2), [loss], place=place)
    with pytest.raises(DeviceError):
        compiled.memory_report(shapes(2), [loss], place=paddle.CUDAPlace(77))


@pytest.mark.parametrize(
    ("memory", "nbytes"),
    [
        (1000, 1000),
        (np.float64(2e9), 2_000_000_000),
        ("80 GB", 80_000_000_000),
        ("24GiB", 24 << 30),
        ("1.5 mb", 1_500_000),
        ("12 bytes", 12),
        ("h100", target.H100.memory_bytes - RESERVED_BYTES),
        (target.B200, target.B200.memory_bytes - RESERVED_BYTES),
    ],
)
def test_a_memory_is_bytes_a_size_or_a_chip(memory: object, nbytes: int) -> None:
    assert capacity(memory).nbytes == nbytes


def test_the_memory_of_this_machine_is_what_is_free() -> None:
    found = capacity()
    assert found == capacity(paddle.CPUPlace()) or abs(found.nbytes - capacity(paddle.CPUPlace()).nbytes) < 4e9
    assert 1e6 < found.nbytes < 1e14
    assert found.shared


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [
        ("H1000", ProgramError, "did you mean 'H100'"),
        ("80 XB", ProgramError, "neither a size nor a chip"),
        (0, ProgramTypeError, "not a memory"),
        (-5, ProgramTypeError, "not a memory"),
        (True, ProgramTypeError, "not a memory"),
        ([1], ProgramTypeError, "not a memory"),
        (float("nan"), ProgramTypeError, "not a memory"),
    ],
)
def test_what_is_not_a_memory_is_refused(net, memory: object, error: type[Exception], words: str) -> None:
    compiled, loss = net
    with pytest.raises(error, match=words):
        compiled.max_batch(memory, fetch_list=[loss])
    with pytest.raises(error, match=words):
        compiled.fits(memory, shapes(2), [loss])


def test_a_gpu_that_is_not_there_has_no_memory(net) -> None:
    compiled, loss = net
    with pytest.raises(DeviceError, match="gpu"):
        compiled.fits(paddle.CUDAPlace(77), shapes(2), [loss])


def test_shapes_without_one_open_batch_are_refused(net) -> None:
    compiled, _ = net
    program = static.default_main_program()
    with pytest.raises(ProgramError, match="no input has a batch"):
        compiled.max_batch("1 GB", shapes(3))
    with pytest.raises(ProgramError, match="'x' has an open size behind its first axis"):
        compiled.max_batch("1 GB", {"x": (-1, -1)})
    with pytest.raises(ProgramError, match="feed_shapes names 'y'"):
        compiled.max_batch("1 GB", {"y": (-1, 3)})
    assert with_batch(program, {}, 5) == shapes(5)


@pytest.mark.parametrize("limit", [0, 1, 7, 8, 9, 1000, MOST, 10 * MOST])
@pytest.mark.parametrize("steps", [False, True])
def test_the_search_takes_few_plans(limit: int, steps: bool) -> None:
    """Also where memory grows in steps, as that of chunks does."""
    tried = []

    class Planned:
        def __init__(self, batch: int) -> None:
            self.needed_bytes = 1000 + 64 * (batch // 50 * 50 + batch % 50 // 7 if steps else batch)
            self.free_bytes = 1000 + 64 * (limit // 50 * 50 + limit % 50 // 7 if steps else limit) - self.needed_bytes

        def __bool__(self) -> bool:
            return self.free_bytes >= 0

    found = largest(lambda batch: tried.append(batch) or Planned(batch), 1)
    if limit >= MOST:
        assert found == MOST
    else:
        assert bool(Planned(found)) or found == 0
        assert not Planned(found + 1)
    assert len(tried) == len(set(tried))
    assert len(tried) <= (36 if steps else 6)


def test_shapes_that_are_missing_or_do_not_fit_are_named(net) -> None:
    compiled, loss = net
    with pytest.raises(FeedError, match="no shape is given for input 'x'") as missing:
        compiled.memory_report({"label": (3, 1)}, [loss])
    assert "feed_shapes={'x': (-1, 64)}" in str(missing.value)
    assert missing.value.fix == "add 'x' to feed_shapes"
    with pytest.raises(FeedError, match="no shape is given for input"):
        compiled.fits("1 GB", fetch_list=[loss])
    # Feeds may lack trailing axes; an operator that needs them says so.
    wrongs: dict[tuple[int, ...], tuple[type[TstaticError], str]] = {
        (3, 65): (FeedError, "fed shape"),
        (3, 64, 1): (FeedError, "fed shape"),
        (3,): (ShapeError, r"wrong number of dimensions\n.*operator 'mul', variable 'x, fc_0.w_0'"),
    }
    for wrong, (kind, words) in wrongs.items():
        for call in (compiled.memory_report, lambda given, fetches: compiled.explain(fetches, given)):
            with pytest.raises(kind, match=words) as caught:
                call(shapes(3) | {"x": wrong}, [loss])
            assert "test_memory_fit.py" in caught.value.where
            assert caught.value.fix
