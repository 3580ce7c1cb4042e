"""Callbacks of training loops: a loop that calls them, a progress line, CSV files and TensorBoard."""

from __future__ import annotations

import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tstatic.errors import MissingPackageError, ProgramError, ProgramTypeError, shown
from tstatic.formats.report_files import reporting
from tstatic.ir.checks import check_callable, check_int, check_type
from tstatic.ir.export import door, notes_signatures
from tstatic.ir.program import Variable
from tstatic.progress import Progress, duration

__all__ = ["CSVLogger", "Callback", "CallbackList", "ProgBarLogger", "TensorBoard", "train"]

Logs = Mapping[str, float]


class Callback:
    """Base class: a loop calls these methods; override those that are wanted. Names and arguments are Paddle's.

    ``params`` holds what the loop knows: ``epochs`` and ``steps`` (batches an epoch, ``None`` if not known).
    ``epoch`` and ``step`` are numbers from 0, ``logs`` the loop's numbers by name: those of the batch, or their means over the
    epoch, where there are any.

    Example:
        >>> class Printed(paddle.callbacks.Callback):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print(epoch, logs)
        >>> _ = paddle.callbacks.train(lambda batch: {"loss": batch}, [4.0, 2.0], epochs=1, callbacks=[Printed()])
        0 {'loss': 3.0}
    """

    params: Mapping[str, Any] = {}

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Gets what the loop knows, before it begins."""
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Called before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Called after the last epoch, and when the loop ends by an error; ``logs`` are those of the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Called before an epoch, which counts from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch with the mean of each number over its batches."""

    def on_train_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Called before a batch, which counts from 0 in each epoch."""

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Called after a batch with its numbers."""


@notes_signatures(undo=False)
class CallbackList:
    """Several callbacks as one, in order.

    Args:
        callbacks: The callbacks.

    Raises:
        ProgramTypeError: If one is not a Callback.

    Example:
        >>> each = paddle.callbacks.CallbackList([paddle.callbacks.CSVLogger("log.csv")])
        >>> each.on_train_begin()
        >>> each.on_epoch_begin(0)
        >>> each.on_epoch_end(0, {"loss": 0.5})
        >>> each.callbacks[0].path.read_text().count("0.5")
        1
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        wanted = "callbacks of tstatic.callbacks"
        # A Variable can be iterated over, too.
        check_type(
            None if isinstance(callbacks, Variable) else callbacks,
            Iterable,
            "callbacks",
            "CallbackList",
            expected=wanted,
        )
        self.callbacks = tuple(callbacks)
        for one in self.callbacks:
            check_type(one, Callback, "callbacks", "CallbackList", expected=wanted)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith(("on_", "set_params")) or not hasattr(Callback, name):
            raise AttributeError(f"'CallbackList' object has no attribute {name!r}")

        def call(*args: Any) -> None:
            for one in self.callbacks:
                getattr(one, name)(*args)

        return call


@door("callbacks.train", undo=False)
def train(
    step: Callable[[Any], Any], batches: Iterable[Any], epochs: int = 1, callbacks: Iterable[Callback] = ()
) -> list[dict[str, float]]:
    """Runs a training loop that calls callbacks.

    Args:
        step: ``batch -> {name: number}``: runs the program on a batch; a number may be a fetched array of one element.
        batches: What can be iterated over once per epoch: a list, a DataLoader.
        epochs: Number of passes.
        callbacks: The callbacks, in the order in which they are called.

    Returns:
        For each epoch, the mean of each number over its batches.

    Raises:
        ProgramTypeError: If an argument is of another type, or ``step`` does not return numbers by name.
        ShapeError: If ``epochs`` is below 1.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> loss = paddle.mean(static.nn.fc(x, 1) ** 2)
        >>> _ = paddle.optimizer.SGD(0.1).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> def step(batch):
        ...     return {"loss": exe.run(feed={"x": batch}, fetch_list=[loss])[0]}
        >>> history = paddle.callbacks.train(step, [np.ones((4, 2), "float32")] * 3, epochs=2)
        >>> len(history), history[1]["loss"] <= history[0]["loss"]
        (2, True)
    """
    check_callable(step, "step", "callbacks.train", "a function of a batch")
    check_int(epochs, "epochs", "callbacks.train", 1)
    if isinstance(batches, Variable) or not hasattr(batches, "__iter__"):
        raise ProgramTypeError(
            "callbacks.train cannot go through 'batches'",
            expected="a list, a DataLoader, or another object that can be iterated over",
            received=shown(batches),
            fix="pass what is fed, batch by batch",
            op="callbacks.train",
            var="batches",
        )
    if iter(batches) is batches and epochs > 1:
        raise ProgramTypeError(
            "an iterator can be read once, and 'epochs' asks for more",
            expected="a list, a DataLoader, or another object that can be iterated over again",
            received=shown(batches),
            fix="list(batches), if they fit in memory",
            op="callbacks.train",
        )
    each = CallbackList(callbacks)
    each.set_params({"epochs": epochs, "steps": len(batches) if isinstance(batches, Sized) else None})
    history: list[dict[str, float]] = []
    each.on_train_begin()
    try:
        for epoch in range(epochs):
            each.on_epoch_begin(epoch)
            seen: dict[str, list[float]] = {}
            for number, batch in enumerate(batches):
                each.on_train_batch_begin(number)
                logs = _numbers(step(batch))
                for name, value in logs.items():
                    seen.setdefault(name, []).append(value)
                each.on_train_batch_end(number, logs)
            history.append({name: float(np.mean(values)) for name, values in seen.items()})
            each.on_epoch_end(epoch, history[-1])
    finally:
        each.on_train_end(history[-1] if history else None)
    return history


def _numbers(given: Any) -> dict[str, float]:
    try:
        return {str(name): float(np.asarray(value).reshape(())) for name, value in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ProgramTypeError(
            "'step' of callbacks.train must return numbers by name",
            expected="a dict such as {'loss': exe.run(feed=batch, fetch_list=[loss])[0]}, each value of one element",
            received=f"{shown(given)} ({error})",
            fix="return a dict; take the mean of arrays",
            op="callbacks.train",
        ) from None


def _text(logs: Logs) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in logs.items())


@notes_signatures(undo=False)
class ProgBarLogger(Callback):
    """Shows the epoch, its batches, the last numbers and the time left; one plain line per epoch where there is no terminal.

    Args:
        stream: Where it is shown; standard error if ``None``.

    Example:
        >>> import io
        >>> shown = io.StringIO()
        >>> bar = paddle.callbacks.ProgBarLogger(shown)
        >>> _ = paddle.callbacks.train(lambda batch: {"loss": batch}, [4.0, 2.0], callbacks=[bar])
        >>> shown.getvalue().partition(" in ")[0], shown.getvalue().rpartition(": ")[2].strip()
        ('epoch 1/1', 'loss 3')
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._progress: Progress | None = None
        self._begun = 0.0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._begun = time.monotonic()
        if self.params.get("steps"):
            self._progress = Progress(
                f"epoch {epoch + 1}/{self.params['epochs']}, batch", self.params["steps"], self._stream
            )

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        if self._progress is not None:
            self._progress.advance(_text(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._close()
        took = duration(time.monotonic() - self._begun)
        line = f"epoch {epoch + 1}/{self.params['epochs']} in {took}: {_text(logs or {})}"
        print(line, file=self._stream or sys.stderr, flush=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._close()

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None


@notes_signatures(undo=False)
class CSVLogger(Callback):
    """Writes a row per epoch to a CSV file: the epoch, its seconds, and the mean of each number.

    Args:
        path: The file.
        append: Continue a file that is there, whose columns must be the same.

    Raises:
        ProgramError: If the file to continue has other columns, or it cannot be written.

    Example:
        >>> log = paddle.callbacks.CSVLogger("log.csv")
        >>> _ = paddle.callbacks.train(lambda batch: {"loss": batch}, [1.0], callbacks=[log])
        >>> log.path.read_text().splitlines()[0]
        'epoch,seconds,loss'
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(path)
        self.append = append
        self._columns: list[str] = []
        self._begun = 0.0
        self._first = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._columns = []
        self._first = 0
        try:
            if self.append and self.path.exists():
                with self.path.open(newline="", encoding="utf-8") as file:
                    rows = list(csv.reader(file))
                self._columns = rows[0] if rows else []
                self._first = max(0, len(rows) - 1)
            else:
                self.path.write_text("", encoding="utf-8")
        except (OSError, ValueError, csv.Error) as error:
            raise self._refused("cannot be written", "a file in a folder that exists", str(error)) from error

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._begun = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        row = {"epoch": self._first + epoch, "seconds": round(time.monotonic() - self._begun, 6), **(logs or {})}
        fresh = not self._columns
        self._columns = self._columns or list(row)
        if list(row) != self._columns:
            raise self._refused("has other columns", ", ".join(self._columns), ", ".join(row))
        text = io.StringIO(newline="")
        csv.writer(text).writerows([*([self._columns] if fresh else []), list(row.values())])
        try:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(text.getvalue())
        except (OSError, ValueError) as error:
            raise self._refused("cannot be written", "a disk with room for a row", str(error)) from error

    def _refused(self, what: str, expected: str, received: str) -> ProgramError:
        return ProgramError(
            f"the file {str(self.path)!r} of CSVLogger {what}",
            expected=expected,
            received=received,
            fix="pass the path of a file in a folder that this user may write to: CSVLogger('out/log.csv')",
        )


@notes_signatures(undo=False)
class TensorBoard(Callback):
    """Writes each number to TensorBoard: per batch as ``train/NAME``, per epoch as ``epoch/NAME``.

    Args:
        log_dir: Folder of the event files.
        every: Batches between two points of ``train/NAME``.

    Raises:
        ReportError: If the folder or a file of it cannot be written (an ``OSError``).
        MissingPackageError: If neither torch with tensorboard nor tensorboardX is installed.
        ShapeError: If ``every`` is below 1.

    Example:
        >>> try:
        ...     made = [paddle.callbacks.TensorBoard("runs")]
        ... except paddle.errors.MissingPackageError:
        ...     made = []  # neither tensorboard nor tensorboardX is installed
        >>> paddle.callbacks.train(lambda batch: {"loss": batch}, [1.0], callbacks=made)
        [{'loss': 1.0}]
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "runs", every: int = 1) -> None:
        check_int(every, "every", "TensorBoard", 1)
        self.every = every
        self._folder = log_dir
        with reporting(log_dir, "the events"):
            self._writer = _writer_class()(str(log_dir))
        self._steps = 0

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        if self._steps % self.every == 0:
            self._add("train", logs, self._steps)
        self._steps += 1

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._add("epoch", logs, epoch)
        with reporting(self._folder, "the events"):
            self._writer.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        with reporting(self._folder, "the events"):
            self._writer.close()

    def _add(self, group: str, logs: Logs | None, at: int) -> None:
        for name, value in (logs or {}).items():
            self._writer.add_scalar(f"{group}/{name}", value, at)


def _writer_class() -> Any:
    """Returns the class that writes event files: torch's if tensorboard is installed, else that of tensorboardX.

    Raises:
        MissingPackageError: If neither is there.
    """
    reasons: list[str] = []
    for find in _WRITERS:
        try:
            return find()
        except ImportError as error:
            reasons.append(str(error).splitlines()[0])
    raise MissingPackageError(
        "callbacks.TensorBoard needs a package that writes event files",
        expected="tensorboard (with torch), or tensorboardX",
        received="; ".join(reasons),
        fix="pip install tensorboard, or use callbacks.CSVLogger",
    )


def _of_torch() -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


def _of_tensorboardx() -> Any:
    from tensorboardX import SummaryWriter

    return SummaryWriter


_WRITERS: Sequence[Callable[[], Any]] = (_of_torch, _of_tensorboardx)
