"""Training loops with callbacks: the calls, progress as a line per epoch, CSV and TensorBoard."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.callbacks import Callback, CallbackList, CSVLogger, ProgBarLogger, TensorBoard, train
from tstatic.errors import MissingPackageError, ProgramError, ProgramTypeError, ShapeError


class Seen(Callback):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args: self.calls.append((name, *args))
        return super().__getattribute__(name)


def double(batch: float) -> dict[str, float]:
    return {"loss": 2 * batch}


def test_the_loop_calls_in_paddles_order_with_means() -> None:
    seen = Seen()
    history = train(double, [1.0, 2.0], epochs=2, callbacks=[seen])
    assert history == [{"loss": 3.0}, {"loss": 3.0}]
    assert seen.params == {"epochs": 2, "steps": 2}
    one = [
        ("on_train_batch_begin", 0), ("on_train_batch_end", 0, {"loss": 2.0}),
        ("on_train_batch_begin", 1), ("on_train_batch_end", 1, {"loss": 4.0}),
    ]  # fmt: skip
    assert seen.calls == [
        ("on_train_begin",),
        *((("on_epoch_begin", 0), *one, ("on_epoch_end", 0, {"loss": 3.0}))),
        *((("on_epoch_begin", 1), *one, ("on_epoch_end", 1, {"loss": 3.0}))),
        ("on_train_end", {"loss": 3.0}),
    ]


def test_an_error_of_a_step_ends_the_callbacks() -> None:
    seen = Seen()
    with pytest.raises(ZeroDivisionError):
        train(lambda batch: {"loss": 1 / batch}, [1, 0], callbacks=[seen])
    assert seen.calls[-1] == ("on_train_end", None)


def test_a_program_trains() -> None:
    x = static.data("x", [None, 2])
    loss = paddle.mean(static.nn.fc(x, 1) ** 2)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    batches = [np.ones((4, 2), "float32")] * 3
    history = train(lambda b: {"loss": exe.run(feed={"x": b}, fetch_list=[loss])[0]}, batches, epochs=3)
    assert history[2]["loss"] < history[0]["loss"]


def test_progress_is_one_line_per_epoch_without_a_terminal() -> None:
    stream = io.StringIO()
    train(double, [1.0] * 50, epochs=3, callbacks=[ProgBarLogger(stream)])
    lines = stream.getvalue().splitlines()
    assert [line.partition(" in ")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(line.endswith(" s: loss 2") for line in lines)


def test_csv_rows_continue_and_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    train(double, [1.0], epochs=2, callbacks=[CSVLogger(path)])
    train(double, [5.0], callbacks=[CSVLogger(path, append=True)])
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert rows[0] == ["epoch", "seconds", "loss"]
    assert [(r[0], r[2]) for r in rows[1:]] == [("0", "2.0"), ("1", "2.0"), ("2", "10.0")]
    before = path.read_text()
    with pytest.raises(ProgramError, match="has other columns"):
        train(lambda b: {"error": b}, [1.0], callbacks=[CSVLogger(path, append=True)])
    assert path.read_text() == before
    train(double, [1.0], callbacks=[CSVLogger(path)])
    assert len(path.read_text().splitlines()) == 2
    with pytest.raises(ProgramError, match="cannot be written"):
        train(double, [1.0], callbacks=[CSVLogger(tmp_path / "missing" / "log.csv")])


class Writer:
    made: ClassVar[list[Writer]] = []

    def __init__(self, folder: str) -> None:
        self.folder, self.points, self.closed = folder, [], False  # type: ignore[var-annotated]
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, at: int) -> None:
        self.points.append((name, value, at))

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_tensorboard_gets_points_per_batch_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    train(double, [1.0, 2.0, 3.0], epochs=2, callbacks=[TensorBoard("runs/a", every=2)])
    writer = Writer.made[-1]
    assert (writer.folder, writer.closed) == ("runs/a", True)
    assert writer.points == [
        ("train/loss", 2.0, 0), ("train/loss", 6.0, 2), ("epoch/loss", 4.0, 0),
        ("train/loss", 4.0, 4), ("epoch/loss", 4.0, 1),
    ]  # fmt: skip


def test_without_a_writer_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingPackageError, match="pip install tensorboard"):
        TensorBoard()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ProgramTypeError, match="numbers by name"):
        train(lambda b: b, [1.0])
    with pytest.raises(ProgramTypeError, match="iterator can be read once"):
        train(double, iter([1.0]), epochs=2)
    with pytest.raises(ProgramTypeError, match="'callbacks'"):
        train(double, [1.0], callbacks=[print])  # type: ignore[list-item]
    with pytest.raises(ShapeError, match="'epochs'"):
        train(double, [1.0], epochs=0)
    with pytest.raises(AttributeError):
        CallbackList().on_no_such_thing()
