"""Data sets of text files that ``Executor.train_from_dataset`` reads: InMemoryDataset and QueueDataset."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.comm import processes
from tstatic.errors import UnsupportedError, near, shown
from tstatic.io.errors import DataError, DataTypeError, DataUseError
from tstatic.io.global_shuffle import shuffled
from tstatic.io.lines import Commands, lines_of
from tstatic.io.multislot import Column, Line, Slot, parse
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.runtime import random
from tstatic.runtime.scope import LoDTensor

_CHUNK = 4096
"""Lines that are parsed at once on the way into memory."""
_IN_ORDER = "files are read in their order, so that runs can be repeated"
_LOCAL = "files are local"
_ONE_PARSER = "samples are MultiSlot text"


class FileDataset:
    """What both kinds share: text files, each of which goes through a shell command and becomes samples.

    The settings have the names of ``init``; the methods ``set_...`` of Paddle 1.x change one each.
    """

    def __init__(self) -> None:
        self.batch_size = 1
        self.pipe_command = "cat"
        self.use_var: list[Variable] = []
        self.filelist: list[str] = []
        self._slots: list[Slot] = []
        self._commands = Commands()

    @no_effect(
        thread_num=_IN_ORDER, input_type=_ONE_PARSER, fs_name=_LOCAL, fs_ugi=_LOCAL, download_cmd=_LOCAL,
    )  # fmt: skip
    def init(
        self,
        batch_size: int = 1,
        thread_num: int = 1,
        use_var: Sequence[Variable] = (),
        pipe_command: str = "cat",
        input_type: int = 0,
        fs_name: str = "",
        fs_ugi: str = "",
        download_cmd: str = "cat",
        **kwargs: Any,
    ) -> None:
        """Sets how files become batches.

        Args:
            batch_size: Samples in a batch.
            use_var: Variables in the order of a line's slots: int64, int32 or float32, of ``lod_level`` 0 or 1.
            pipe_command: Shell command that each file goes through, from standard input to standard output. A stage of a pipeline
                that fails is an error where the machine has bash. A line may have ``FLAGS_max_line_bytes`` bytes.
            **kwargs: Must be empty.

        Raises:
            DataError: If a setting is out of range, unknown, or a variable's values cannot stand in such a file (a
                ``ValueError``).
        """
        _check_names(kwargs)
        self._change(batch_size=batch_size, use_var=use_var, pipe_command=pipe_command)

    def update_settings(self, **kwargs: Any) -> None:
        """Changes some of the settings of :meth:`init`.

        Raises:
            DataError: As ``init`` does.
        """
        _check_names({name: value for name, value in kwargs.items() if name not in _SETTINGS})
        self._change(**{name: kwargs[name] for name in ("batch_size", "use_var", "pipe_command") if name in kwargs})

    def _change(self, **settings: Any) -> None:
        """Checks settings, then sets them all."""
        size = settings.get("batch_size", self.batch_size)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise DataError(
                "a dataset got a batch_size that is not a positive int", expected="an int >= 1", received=repr(size),
                fix="pass batch_size=32",
            )  # fmt: skip
        command = settings.get("pipe_command", self.pipe_command)
        if not isinstance(command, str):
            raise DataTypeError(
                "pipe_command should be a shell command", expected="a str", received=shown(command),
                fix="pass pipe_command='cat' to read the files as they are",
            )  # fmt: skip
        variables = list(settings.get("use_var", self.use_var))
        for var in variables:
            if not isinstance(var, Variable):
                raise DataTypeError(
                    "use_var should be a list of Variables", expected="what static.data returned", received=shown(var),
                    fix="pass the Variables in the order of a line's slots",
                )  # fmt: skip
        slots = [Slot.of(var) for var in variables]
        self.batch_size, self.pipe_command, self.use_var, self._slots = int(size), command, variables, slots

    def set_batch_size(self, batch_size: int) -> None:
        """Sets the number of samples in a batch."""
        self._change(batch_size=batch_size)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Sets the variables, in the order of a line's slots."""
        self._change(use_var=var_list)

    def set_pipe_command(self, pipe_command: str) -> None:
        """Sets the shell command that each file goes through."""
        self._change(pipe_command=pipe_command)

    @no_effect(thread_num=_IN_ORDER)
    def set_thread(self, thread_num: int) -> None:
        """Accepts a number of threads."""

    @no_effect(fs_name=_LOCAL, fs_ugi=_LOCAL)
    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Accepts the address of a file system."""

    @no_effect(download_cmd=_LOCAL)
    def set_download_cmd(self, download_cmd: str) -> None:
        """Accepts a command that fetches files."""

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Sets the files, which are read in this order.

        Raises:
            DataTypeError: If it is not a list of paths (a ``TypeError``).
        """
        if isinstance(filelist, str) or not all(isinstance(path, str | os.PathLike) for path in filelist):
            raise DataTypeError(
                "set_filelist takes a list of paths",
                expected="a list of str",
                received=shown(filelist),
                fix="pass set_filelist(['part-0.txt'])",
                op="set_filelist",
            )
        self.filelist = [os.fspath(path) for path in filelist]

    def batches(self) -> Iterator[dict[str, LoDTensor]]:
        """Yields the feed of each batch; the last one may be smaller.

        Raises:
            DataUseError: If variables or samples were not set (an ``AssertionError``).
            DataError: If a file cannot be read, its command fails, or a line does not fit.
        """
        raise NotImplementedError

    def _lines(self, commands: Commands | None = None) -> Generator[Line, None, None]:
        commands = self._commands if commands is None else commands
        if not self._slots:
            raise DataUseError(
                "the dataset does not know the variables of its lines",
                expected="use_var, with a variable for each slot",
                received="none",
                fix="call dataset.init(use_var=[...]), or set_use_var",
            )
        for path in self.filelist:
            # Closed with this generator, and not when somebody forgets it.
            with contextlib.closing(lines_of(path, self.pipe_command, commands)) as lines:
                for number, line in enumerate(lines, 1):
                    yield path, number, line

    def _feed(self, columns: Iterable[Column]) -> dict[str, LoDTensor]:
        return {slot.name: slot.tensor(column) for slot, column in zip(self._slots, columns, strict=True)}


_SETTINGS = ("batch_size", "thread_num", "use_var", "pipe_command", "input_type", "fs_name", "fs_ugi", "download_cmd")


def _check_names(unknown: dict[str, Any]) -> None:
    for name in unknown:
        raise DataError(
            f"a dataset has no setting '{name}'",
            expected=", ".join(_SETTINGS),
            received=name,
            fix=near(name, _SETTINGS) or "leave it out",
            op="init",
        )


@export("distributed.QueueDataset", "distributed.fleet.QueueDataset", "fluid.dataset.QueueDataset")
class QueueDataset(FileDataset):
    """Reads batch by batch from files of MultiSlot text, without keeping them.

    Example:
        >>> ids, price = static.data("ids", [None, 2], "int64"), static.data("price", [None, 1])
        >>> np.savetxt("part.txt", [[2, 7, 8, 1, 0.5], [2, 1, 2, 1, 1.5]], fmt="%g")
        >>> dataset = paddle.distributed.QueueDataset()
        >>> dataset.init(batch_size=2, use_var=[ids, price], pipe_command="grep -v '^#'")
        >>> dataset.set_filelist(["part.txt"])
        >>> [np.array(batch["ids"]).tolist() for batch in dataset.batches()]
        [[[7, 8], [1, 2]]]
    """

    def batches(self) -> Iterator[dict[str, LoDTensor]]:
        """Yields the feed of each batch, as it is read."""
        with contextlib.closing(self._lines()) as lines:
            while group := list(itertools.islice(lines, self.batch_size)):
                yield self._feed(parse(group, self._slots))

    def local_shuffle(self) -> None:
        """Raises UnsupportedError: only an InMemoryDataset can be shuffled."""
        raise _not_queued("local shuffle")

    def global_shuffle(self, fleet: Any = None) -> None:
        """Raises UnsupportedError: only an InMemoryDataset can be shuffled."""
        raise _not_queued("global shuffle")


def _counted(count: int, fleet: Any) -> int:
    """Returns the sum over all processes if ``fleet`` is given."""
    world = processes.world() if fleet is not None else None
    return count if world is None else int(world.all_gather(np.array(count)).sum())


def _not_queued(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"QueueDataset does not support {what}, please use InMemoryDataset for it",
        expected="an InMemoryDataset",
        received="a QueueDataset",
        fix="create_dataset('InMemoryDataset'), load_into_memory(), then shuffle",
    )


@export("distributed.InMemoryDataset", "distributed.fleet.InMemoryDataset", "fluid.dataset.InMemoryDataset")
class InMemoryDataset(FileDataset):
    """Keeps the samples of files of MultiSlot text in memory, where they can be shuffled; ``paddle.seed`` decides how.

    Example:
        >>> ids = static.data("ids", [None, 2], "int64")
        >>> np.savetxt("part.txt", [[2, 7, 8], [2, 1, 2], [2, 3, 4]], fmt="%d")
        >>> dataset = paddle.distributed.InMemoryDataset()
        >>> dataset.init(batch_size=2, use_var=[ids])
        >>> dataset.set_filelist(["part.txt"])
        >>> dataset.load_into_memory()
        >>> dataset.get_memory_data_size()
        3
    """

    def __init__(self) -> None:
        super().__init__()
        self._columns: list[Column] = []
        self._rows: list[NDArray[np.int64]] = []
        """For each slot: which sample's values stand at each position."""
        self._shuffled = 0
        self._loading: tuple[Future[list[Column]], Commands] | None = None

    def load_into_memory(self, is_shuffle: bool = False) -> None:
        """Reads all files.

        Args:
            is_shuffle: Shuffles the samples, as ``local_shuffle`` does.

        Raises:
            DataError: If a file cannot be read, its command fails, or a line does not fit; what was in memory stays.
        """
        self._keep(self._read(self._commands))
        if is_shuffle:
            self.local_shuffle()

    @no_effect(thread_num=_IN_ORDER)
    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Starts to read all files in a thread; ``wait_preload_done`` takes the samples over."""
        loading: Future[list[Column]] = Future()
        commands = Commands()

        def load() -> None:
            try:
                loading.set_result(self._read(commands))
            except BaseException as error:
                loading.set_exception(error)

        # A daemon: a process that ends does not wait for the files.
        threading.Thread(target=load, name="tstatic preload", daemon=True).start()
        self._loading = loading, commands

    def wait_preload_done(self) -> None:
        """Waits for ``preload_into_memory``.

        Raises:
            DataUseError: If it was not called before (an ``AssertionError``).
            DataError: As ``load_into_memory`` does.
        """
        if self._loading is None:
            raise DataUseError(
                "nothing is being preloaded",
                expected="preload_into_memory() before wait_preload_done()",
                received="no call of it",
                fix="call preload_into_memory first, or load_into_memory alone",
            )
        (loading, commands), self._loading = self._loading, None
        try:
            columns = loading.result()
        except KeyboardInterrupt:
            # Nobody will take the samples over.
            commands.end()
            raise
        self._keep(columns)

    def _read(self, commands: Commands) -> list[Column]:
        parts = []
        with contextlib.closing(self._lines(commands)) as lines:
            while group := list(itertools.islice(lines, _CHUNK)):
                parts.append(parse(group, self._slots))
        return [Column.joined(columns) for columns in zip(*(parts or [parse((), self._slots)]), strict=True)]

    def _keep(self, columns: list[Column]) -> None:
        self._columns = columns
        self._rows = [np.arange(len(column.lengths)) for column in columns]
        self._shuffled = 0

    def release_memory(self) -> None:
        """Forgets the samples."""
        self._keep([])

    def local_shuffle(self) -> None:
        """Puts the samples into a random order."""
        order = random.generator().permutation(self.get_memory_data_size())
        self._rows = [rows[order] for rows in self._rows]

    @no_effect(thread_num="one thread shuffles")
    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Puts the samples of all processes into one random order, of which each process gets an equal part.

        Args:
            fleet: ``distributed.fleet``: samples go from process to process, and all processes must call this; ``None``: this
                process shuffles its own, as ``local_shuffle`` does.

        Raises:
            RankFailedError: If a process failed or did not come.
        """
        world = processes.world() if fleet is not None else None
        if world is None:
            self.local_shuffle()
        else:
            columns = self._columns or parse((), self._slots)
            rows = self._rows or [np.arange(0)] * len(columns)
            self._keep(shuffled([column.take(chosen) for column, chosen in zip(columns, rows, strict=True)], world))
        self._shuffled = self.get_memory_data_size()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Shuffles the values of some slots among all samples, which shows how much a model needs them.

        Args:
            slots: Names of variables of ``use_var``.

        Raises:
            DataError: If a name is none of theirs (a ``ValueError``).
        """
        names = [slot.name for slot in self._slots]
        for name in slots:
            if name not in names:
                raise DataError(
                    f"slots_shuffle got '{name}', which is not a variable of the dataset",
                    expected=", ".join(names),
                    received=name,
                    fix=near(name, names) or "pass names of use_var",
                )
        for name in slots:
            order = random.generator().permutation(self.get_memory_data_size())
            self._rows[names.index(name)] = self._rows[names.index(name)][order]

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Returns the number of samples in memory.

        Args:
            fleet: ``distributed.fleet`` to count those of all processes, which must all call this; ``None`` for this one.
        """
        return _counted(len(self._rows[0]) if self._rows else 0, fleet)

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Returns the number of samples after ``global_shuffle``, 0 before.

        Args:
            fleet: As of ``get_memory_data_size``.
        """
        return _counted(self._shuffled, fleet)

    @no_effect(date="it names tables of parameter servers")
    def set_date(self, date: str) -> None:
        """Accepts a date."""

    def batches(self) -> Iterator[dict[str, LoDTensor]]:
        """Yields the feed of each batch of the samples in memory.

        Raises:
            DataUseError: If nothing was loaded (an ``AssertionError``).
        """
        if not self._rows:
            raise DataUseError(
                "the InMemoryDataset has no samples",
                expected="load_into_memory() before the dataset is used",
                received="an empty memory",
                fix="call dataset.load_into_memory()",
            )
        columns, rows = self._columns, self._rows
        for start in range(0, len(rows[0]), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self._feed(column.take(order[part]) for column, order in zip(columns, rows, strict=True))


@export("fluid.DatasetFactory", "fluid.dataset.DatasetFactory")
class DatasetFactory:
    """Makes data sets of files by the name of their class.

    Example:
        >>> ids = static.data("ids", [None, 2], "int64")
        >>> dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        >>> dataset.set_use_var([ids])
        >>> dataset.set_batch_size(16)
        >>> dataset.batch_size, dataset.pipe_command
        (16, 'cat')
    """

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> FileDataset:
        """Returns a new data set.

        Args:
            datafeed_class: ``"QueueDataset"`` or ``"InMemoryDataset"``.

        Raises:
            DataError: For other names (a ``ValueError``).
        """
        kinds: dict[str, type[FileDataset]] = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}
        if datafeed_class not in kinds:
            raise DataError(
                f"datafeed class {datafeed_class} does not exist",
                expected=" or ".join(kinds),
                received=repr(datafeed_class),
                fix=near(str(datafeed_class), kinds) or "pass one of them",
            )
        return kinds[datafeed_class]()
