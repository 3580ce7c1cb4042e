"""Data sets of files, and runs over them, give what Paddle 2.6.2 prints; what does not fit is named with file and line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.seed import SEED
from tstatic import distributed, fluid, static
from tstatic.errors import UnsupportedError
from tstatic.io.errors import DataError

FILES = {
    "a.txt": "2 7 8 1 0 3 .5 1.5 .25\n2 1 2 1 1 3 1 2 3\n2 3 4 1 1 3 1 2 3\n",
    "b.txt": "2 70 80 1 5 3 .5 1.5 .25\n2 10 20 1 6 3 1 2 3\n",
}
SUMS = [18, 157, 30]
"""Of the ids of each batch of two, as Paddle 2.6.2 prints them: batches go on over the ends of files."""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in FILES]


def inputs() -> list[Any]:
    ids, label = static.data("ids", [None, 2], "int64"), static.data("label", [None, 1], "int64")
    return [ids, label, static.data("x", [None, 3])]


def made(kind: str, files: list[str], use_var: list[Any], **settings: Any) -> Any:
    dataset = getattr(distributed, kind)()
    dataset.init(use_var=use_var, **{"batch_size": 2, **settings})
    dataset.set_filelist(files)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    return dataset


def column(dataset: Any, name: str = "ids") -> list[Any]:
    return [row for batch in dataset.batches() for row in np.array(batch[name]).tolist()]


KINDS = pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])


@KINDS
def test_runs_print_what_paddle_prints(kind: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ids, label, x = inputs()
    fetched = [paddle.sum(x), paddle.sum(ids), x * 2, paddle.cast(ids, "float64") / 3]
    dataset = made(kind, files, [ids, label, x])
    exe = static.Executor()
    returned = exe.train_from_dataset(
        dataset=dataset, fetch_list=fetched[:2], fetch_info=["sum", "count"], print_period=1
    )
    lines = capsys.readouterr().out.splitlines()
    assert returned is None
    pattern = r"time: \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\], batch: \[(\d)\], sum\[1\]:\[(.*)\], count\[1\]:\[(.*)\]"
    found = [match.groups() for line in lines if (match := re.fullmatch(pattern, line))]
    assert found == [("1", "8.25", "18"), ("2", "8.25", "157"), ("3", "6", "30")]
    exe.infer_from_dataset(dataset=dataset, fetch_list=fetched[2:], print_period=2)
    (line,) = capsys.readouterr().out.splitlines()
    assert "batch: [2]" in line
    assert line.endswith("[6]:[2 4 6 1 3 0.5], " + f"{fetched[3].name}[4]:[1 1.33333 23.3333 26.6667]")


@KINDS
def test_training_updates_and_takes_a_scope(kind: str, files: list[str]) -> None:
    ids, label, x = inputs()
    loss = paddle.mean(static.nn.fc(x, 1, weight_attr=paddle.nn.initializer.Constant(0.5), bias_attr=False))
    paddle.optimizer.SGD(0.1).minimize(loss)
    scope, exe = static.Scope(), static.Executor()
    exe.run(static.default_startup_program(), scope=scope)
    exe.train_from_dataset(static.default_main_program(), made(kind, files, [ids, label, x]), scope=scope)
    (name,) = [p.name for p in static.default_main_program().all_parameters()]
    means = [[0.75, 1.75, 1.625], [0.75, 1.75, 1.625], [1, 2, 3]]
    wanted = 0.5 - 0.1 * np.sum(means, 0)
    np.testing.assert_allclose(np.array(scope.find_var(name).get_tensor()).ravel(), wanted, rtol=1e-6)
    assert static.global_scope().find_var(name) is None


@KINDS
def test_files_go_through_the_command(kind: str, files: list[str]) -> None:
    use_var = inputs()
    command = f"{sys.executable} -c \"import sys; [print(l.replace('2 7 8', '2 5 6'), end='') for l in sys.stdin]\""
    assert column(made(kind, files[:1], use_var, pipe_command=command)) == [[5, 6], [1, 2], [3, 4]]
    for broken, text in (("cat; exit 3", "exit code 3"), ("no-such-command", "exit code 127")):
        with pytest.raises(DataError, match=r"pipe_command failed on .*a\.txt") as caught:
            column(made(kind, files, use_var, pipe_command=broken))
        assert text in str(caught.value)


def test_a_command_ends_with_its_reader(files: list[str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    dataset = made(
        "QueueDataset", files, inputs(), pipe_command=f"echo $$ > {pid}; sleep 100 & cat; wait", batch_size=1
    )
    batches = dataset.batches()
    next(batches)
    batches.close()
    deadline = time.monotonic() + 10
    while running(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(int(pid.read_text()))


def running(group: int) -> list[str]:
    """Processes of a group that have not ended, zombies left out."""
    lines = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            lines.append(stat.read_text().rpartition(")")[2].split())
    return [" ".join(fields) for fields in lines if fields[0] not in "ZX" and int(fields[2]) == group]


@KINDS
@pytest.mark.parametrize(
    ("line", "slot"),
    [
        ("3 1 2 1 1 0 3 1 1 1", "ids"), ("2 1 2 1 0 2 1 1", "x"),
        ("2 1 2 1 0 3 1 1", "x"), ("2 1 2 1 0", "x"), ("0 1 0 3 1 1 1", "ids"),
        ("2 1 b 1 0 3 1 1 1", "ids"), ("2 1 2 1 0.5 3 1 1 1", "label"), ("", "ids"),
        ("2 1 2 1 99999999999999999999 3 1 1 1", "label"),
        ("x", "ids"), ("-2 1 2", "ids"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_named(kind: str, line: str, slot: str, tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("2 7 8 1 0 3 .5 1.5 .25\n" + line + "\n")
    with pytest.raises(ValueError, match=rf"line 2 of .*c\.txt does not fit slot '{slot}'"):
        column(made(kind, [str(path)], inputs()))


def test_sizes_and_dtypes_are_those_of_the_variables(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text("4 1 2 3 4 1 7 2 1e-3 5 trailing\n4 5 6 7 8 1 -8 2 nan inf\n")
    use_var = [
        static.data("image", [None, 2, 2], "int32"),
        static.data("flat", [None], "int64"),
        static.data("open", [None, None], "float32"),
    ]
    (batch,) = made("QueueDataset", [str(path)], use_var).batches()
    found = [np.array(batch[name]) for name in ("image", "flat", "open")]
    assert [(a.dtype.name, a.shape) for a in found] == [("int32", (2, 2, 2)), ("int64", (2,)), ("float32", (2, 2))]
    assert [found[1].tolist(), found[2][0].tolist()] == [[7, -8], [np.float32(1e-3), 5]]
    path.write_text("4 1 2 3 4 1 7 2 1 5\n4 5 6 7 8 1 -8 1 2\n")
    with pytest.raises(DataError, match="different numbers of values for 'open'"):
        list(made("QueueDataset", [str(path)], use_var).batches())
    for bad in (static.data("f", [None, 1], "float64"), static.data("n", [None, None, None]), "x"):
        with pytest.raises(ValueError):
            made("QueueDataset", [], [bad])


def test_samples_in_memory_are_shuffled_and_forgotten(files: list[str]) -> None:
    dataset = made("InMemoryDataset", files, inputs())
    rows = column(dataset)
    assert [dataset.get_memory_data_size(), dataset.get_shuffle_data_size()] == [5, 0]
    orders = []
    for shuffle in (dataset.local_shuffle, dataset.global_shuffle, lambda: dataset.load_into_memory(is_shuffle=True)):
        paddle.seed(5)
        dataset.load_into_memory()
        shuffle()
        orders.append(column(dataset))
        assert sorted(orders[-1]) == sorted(rows)
        pairs = dict(zip(map(tuple, rows), [[0], [1], [1], [5], [6]], strict=True))
        assert [pairs[tuple(row)] for row in orders[-1]] == column(dataset, "label")
    assert orders[0] != rows
    assert orders[1] == orders[0]
    dataset.load_into_memory()
    dataset.global_shuffle()
    assert dataset.get_shuffle_data_size() == 5
    dataset.load_into_memory()
    dataset.slots_shuffle(["ids"])
    assert column(dataset, "label") == [[0], [1], [1], [5], [6]]
    assert sorted(column(dataset)) == sorted(rows)
    assert column(dataset) != rows
    with pytest.raises(ValueError, match="slots_shuffle got 'idz'"):
        dataset.slots_shuffle(["idz"])
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0
    with pytest.raises(DataError, match="has no samples"):
        column(dataset)
    dataset.preload_into_memory(thread_num=2)
    dataset.wait_preload_done()
    assert column(dataset) == rows
    with pytest.raises(AssertionError, match="nothing is being preloaded"):
        dataset.wait_preload_done()


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    (tmp_path / "e.txt").touch()
    for kind in ("QueueDataset", "InMemoryDataset"):
        assert column(made(kind, [str(tmp_path / "e.txt")], inputs())) == []


def test_names_of_1x(files: list[str]) -> None:
    factory = fluid.DatasetFactory()
    assert type(factory.create_dataset()) is distributed.QueueDataset is fluid.dataset.QueueDataset
    dataset = factory.create_dataset("InMemoryDataset")
    dataset.set_batch_size(3)
    dataset.set_thread(4)
    dataset.set_use_var(inputs())
    dataset.set_pipe_command("tail -n 2")
    dataset.set_filelist(files)
    dataset.load_into_memory()
    assert column(dataset) == [[1, 2], [3, 4], [70, 80], [10, 20]]
    with pytest.raises(ValueError, match="datafeed class Foo does not exist"):
        factory.create_dataset("Foo")
    queue = factory.create_dataset("QueueDataset")
    for shuffle in (queue.local_shuffle, queue.global_shuffle):  # type: ignore[attr-defined]
        with pytest.raises(UnsupportedError, match="please use InMemoryDataset"):
            shuffle()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"batch_size": 0}, "batch_size that is not a positive int"), ({"pipe_command": 3}, "should be a shell command"),
        ({"batch_sise": 2}, "no setting 'batch_sise'"), ({"use_var": [3]}, "list of Variables"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_change_nothing(settings: dict[str, Any], text: str) -> None:
    dataset = distributed.QueueDataset()
    dataset.init(batch_size=7, use_var=inputs(), pipe_command="tac")
    for change in (dataset.init, dataset.update_settings):
        with pytest.raises(ValueError, match=text):
            change(**{"batch_size": 9, "pipe_command": "rev", **settings})
        assert (dataset.batch_size, dataset.pipe_command, len(dataset.use_var)) == (7, "tac", 3)
    dataset.update_settings(batch_size=8, thread_num=3)
    assert (dataset.batch_size, dataset.pipe_command) == (8, "tac")


def test_misuse() -> None:
    exe = static.Executor()
    with pytest.raises(RuntimeError, match="dataset is need and should be initialized"):
        exe.train_from_dataset(static.default_main_program())
    dataset = distributed.QueueDataset()
    dataset.set_filelist(["no-such-file"])
    with pytest.raises(AssertionError, match="does not know the variables"):
        exe.train_from_dataset(dataset=dataset)
    dataset.init(use_var=inputs())
    with pytest.raises(DataError, match="cannot read the dataset's file no-such-file"):
        exe.train_from_dataset(dataset=dataset)
    with pytest.raises(RuntimeError, match="fetch_info and print_period"):
        exe.train_from_dataset(dataset=dataset, fetch_list=["x"], fetch_info=["a", "b"])
    with pytest.raises(TypeError, match="takes a list of paths"):
        dataset.set_filelist("a.txt")


def test_a_handler_gets_values(files: list[str]) -> None:
    use_var = inputs()
    seen = []

    class Keep(fluid.executor.FetchHandler):
        def handler(self, res_dict: Any) -> None:
            seen.append({name: int(value) for name, value in res_dict.items()})

    handler = Keep({"total": paddle.sum(use_var[0])}, period_secs=0)
    static.Executor().train_from_dataset(dataset=made("QueueDataset", files, use_var), fetch_handler=handler)
    assert [one["total"] for one in seen] == SUMS
    with pytest.raises(RuntimeError, match="needs the variables"):
        fluid.executor.FetchHandler()


@KINDS
def test_sequences_have_row_offsets(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text("3 1 2 3 1 0\n1 9 1 1\n2 5 6 1 1\n")
    use_var = [static.data("w", [None, 1], "int64", lod_level=1), static.data("y", [None, 1], "int64")]
    first, second = made(kind, [str(path)], use_var).batches()
    assert np.array(first["w"]).tolist() == [[1], [2], [3], [9]]
    assert [first["w"].lod(), first["y"].lod(), second["w"].recursive_sequence_lengths()] == [[[0, 3, 4]], [], [[2]]]


@KINDS
def test_runs_over_sequences(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.txt"
    path.write_text("3 1 2 3 1 0\n1 9 1 1\n2 5 6 1 1\n")
    words = static.data("w", [None, 1], "int64", lod_level=1)
    use_var = [words, static.data("y", [None, 1], "int64")]
    sums = static.nn.sequence_pool(paddle.cast(words, "float32"), "sum")
    dataset = made(kind, [str(path)], use_var)
    static.Executor().train_from_dataset(dataset=dataset, fetch_list=[sums], fetch_info=["sums"], print_period=1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("sums")[2] for line in lines] == ["[2]:[6 9]", "[1]:[11]"]


# ------------------------------------------------------------------------------------------------- what is not a data set
@KINDS
@pytest.mark.parametrize("command", ["cat", "cat /dev/zero", "tr '\\0' '1' < /dev/zero"])
def test_a_line_without_an_end_is_refused(kind: str, command: str) -> None:
    """Guards memory: a packed file, or a command that prints no lines, was once read until there was none left."""
    paddle.set_flags({"FLAGS_max_line_bytes": 200_000})
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"line 1 of .* is longer than a line may be") as caught:
            column(made(kind, ["/dev/zero"], inputs(), pipe_command=command))
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
        paddle.set_flags({"FLAGS_max_line_bytes": 16 << 20})
    assert "/dev/zero" in caught.value.what
    assert "200,000 bytes (FLAGS_max_line_bytes)" in str(caught.value)


def test_lines_end_at_the_limit(tmp_path: Path) -> None:
    """Guards the edges: a line of the limit is read, wherever blocks end; one byte more is not."""
    path = tmp_path / "long.txt"
    line = "2 7 8 1 0 3 .5 1.5 .25"
    for blanks in (70_000, 2 * 65_536 - len(line) - 1, 65_536 - len(line)):
        long = line + " " * blanks
        path.write_text(f"{line}\n{long}\n{long}\n{line}")
        paddle.set_flags({"FLAGS_max_line_bytes": len(long)})
        assert column(made("QueueDataset", [str(path)], inputs())) == [[7, 8]] * 4
        paddle.set_flags({"FLAGS_max_line_bytes": len(long) - 1})
        with pytest.raises(DataError, match="line 2 of"):
            column(made("QueueDataset", [str(path)], inputs()))
    paddle.set_flags({"FLAGS_max_line_bytes": 16 << 20})


@pytest.mark.parametrize(
    ("line", "slot"),
    [
        ("9" * 5000 + " 1 2 1 0 3 1 1 1", "ids"), ("2 1_0 2 1 0 3 1 1 1", "ids"), ("2 1 2 1_0 0 3 1 1 1", "label"),
        ("2 1 2 1 0 3 1 1_0 1", "x"), ("2 1 2 1 0 3 1 1e1_0 1", "x"), ("2 1 2 1 " + "9" * 5000 + " 3 1 1 1", "label"),
        ("2 1 2 1 0 3 1 \u0661 1", "x"), ("\u0662 1 2 1 0 3 1 1 1", "ids"), ("2 1 2 1 0 3 1 xx 1", "x"),
        ("2 0x1 2 1 0 3 1 1 1", "ids"),
    ],
)  # fmt: skip
def test_numbers_are_those_of_c(line: str, slot: str, tmp_path: Path) -> None:
    """Guards against what only Python reads: underscores, digits of other scripts, counts of thousands of digits."""
    path = tmp_path / "c.txt"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"line 1 of .*c\.txt does not fit slot '{slot}'") as caught:
        column(made("QueueDataset", [str(path)], inputs()))
    assert len(str(caught.value)) < 1000


def test_floats_are_those_of_c(tmp_path: Path) -> None:
    """Guards words that C reads as floats, as Paddle does; what follows the last slot may be anything."""
    path = tmp_path / "f.txt"
    path.write_text("2 1 2 1 0 3 INF -infinity NaN a_b\n2 1 2 1 0 3 0x1.8p3 1e39 +.5e-1\n")
    first, second = column(made("QueueDataset", [str(path)], inputs()), "x")
    assert [first[:2], np.isnan(first[2])] == [[np.inf, -np.inf], True]
    assert second == [12, np.inf, pytest.approx(0.05)]


@KINDS
def test_a_stage_that_fails_is_an_error(kind: str, files: list[str]) -> None:
    """Guards against an empty data set in silence: ``false | cat`` once was one. A stage whose reader had enough is none."""
    for command in ("false | cat", "cat | false", "cat no-such-file | sort"):
        with pytest.raises(DataError, match="pipe_command failed"):
            column(made(kind, files, inputs(), pipe_command=command))
    found = column(made(kind, files, inputs(), pipe_command="(cat; yes '2 1 2 1 0 3 1 1 1') | head -n 1"))
    assert found == [[7, 8], [70, 80]]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Guards against waiting for ever for whoever would write to a FIFO, and against bare errors of reading."""
    os.mkfifo(tmp_path / "fifo")
    for path, words in (
        (tmp_path / "fifo", "is a FIFO"), (tmp_path, "is a folder"), ("/proc/self/mem", "cannot read on in"),
        ("a\0b", "cannot read the"),
    ):  # fmt: skip
        for kind in ("QueueDataset", "InMemoryDataset"):
            with pytest.raises(DataError, match=words):
                column(made(kind, [str(path)], inputs()))


@pytest.mark.slow
def test_an_interrupt_ends_the_command() -> None:
    """Guards against commands that go on without their reader: one in nine once did."""
    count = 300 if os.environ.get("TSTATIC_SOAK") else 6
    # A process of its own, which ends as others do.
    command = [sys.executable, "-m", "tests.io.interrupted_commands", str(count), SEED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["commands"] >= count
