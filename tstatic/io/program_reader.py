"""Readers of Paddle 1.x that declare the variables which they read: ``fluid.layers.py_reader`` and ``read_file``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.io.errors import DataError
from tstatic.io.generator_loader import GeneratorLoader
from tstatic.io.readers import Reader
from tstatic.ir import names
from tstatic.ir.checks import check_type
from tstatic.ir.declare import data
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.no_effect import PLACE, no_effect

_NO_BUFFER = "a thread reads ahead in any case"


class ProgramReader(GeneratorLoader):
    """A reader of the default main program, whose batches its runs take; see :func:`py_reader`.

    Args:
        capacity: Batches that are made ahead.
        variables: The variables that it reads.
    """

    def __init__(self, capacity: int, variables: Sequence[Variable]) -> None:
        super().__init__(variables, capacity, iterable=False, return_list=False)
        self.variables = list(variables)

    def decorate_paddle_reader(self, reader: Reader, places: Any = None) -> None:
        """Sets a reader of lists of samples as the source, as :meth:`set_sample_list_generator` does."""
        self.set_sample_list_generator(reader, places)

    decorate_sample_list_generator = decorate_paddle_reader

    def decorate_tensor_provider(self, reader: Reader, places: Any = None) -> None:
        """Sets a reader of batches as the source, as :meth:`set_batch_generator` does."""
        self.set_batch_generator(reader, places)

    decorate_batch_generator = decorate_tensor_provider


@export("fluid.layers.py_reader")
@no_effect(use_double_buffer=_NO_BUFFER, name="no variable is made for the reader itself")
def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ProgramReader:
    """Declares variables ``read_file_0.tmp_0``, ... and returns the reader that fills them; ``read_file`` gives them.

    Args:
        capacity: Batches that are made ahead.
        shapes: The variables' shapes, the batch included.
        dtypes: Their element types.
        lod_levels: Their depths of nesting; 0 if ``None``.

    Returns:
        A reader with ``start``, ``reset``, ``queue``, ``decorate_paddle_reader`` and ``decorate_tensor_provider``.

    Raises:
        DataError: If the lists differ in length (a ``ValueError``).

    Example:
        >>> reader = fluid.layers.py_reader(4, shapes=[(-1, 1), (-1, 1)], dtypes=["float32", "int64"])
        >>> x, y = fluid.layers.read_file(reader)
        >>> reader.decorate_paddle_reader(paddle.batch(lambda: iter([(0.5, 1), (1.5, 0)]), 2))
        >>> reader.start()
        >>> static.Executor().run(fetch_list=[x * 2])[0].tolist()
        [[1.0], [3.0]]
    """
    levels = [0] * len(shapes) if lod_levels is None else lod_levels
    if not len(shapes) == len(dtypes) == len(levels):
        raise DataError(
            "py_reader needs a shape, a dtype and a lod_level for each variable",
            expected="lists of one length",
            received=f"{len(shapes)} shapes, {len(dtypes)} dtypes, {len(levels)} lod_levels",
            fix="for two variables: shapes=[[-1, 8], [-1, 1]], dtypes=['float32', 'int64'], lod_levels=[0, 0]",
            op="py_reader",
        )
    prefix = names.generate("read_file")
    rows = zip(shapes, dtypes, levels, strict=True)
    variables = [data(f"{prefix}.tmp_{i}", *row) for i, row in enumerate(rows)]
    for var in variables:
        # As in Paddle: "float" declares float64, and what the reader gives is taken as it is.
        var.need_check_feed = False
    return ProgramReader(capacity, variables)


@export("fluid.layers.create_py_reader_by_data")
@no_effect(use_double_buffer=_NO_BUFFER, name="no variable is made for the reader itself")
def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> ProgramReader:
    """Returns a reader that fills variables which are declared already.

    Args:
        capacity: Batches that are made ahead.
        feed_list: The variables.

    Example:
        >>> x = static.data("x", [None, 1])
        >>> reader = fluid.layers.create_py_reader_by_data(4, [x])
        >>> reader.decorate_tensor_provider(lambda: iter([[np.ones((2, 1), "float32")]]))
        >>> reader.start()
        >>> static.Executor().run(fetch_list=[x * 2])[0].tolist()
        [[2.0], [2.0]]
    """
    return ProgramReader(capacity, feed_list)


@export("fluid.layers.read_file")
def read_file(reader: ProgramReader) -> Variable | list[Variable]:
    """Returns the variables that a reader fills: a list, or the only one by itself.

    Raises:
        ProgramTypeError: If ``reader`` is of another type.

    Example:
        >>> reader = fluid.layers.py_reader(4, shapes=[(-1, 3)], dtypes=["float32"])
        >>> x = fluid.layers.read_file(reader)
        >>> x.name, x.shape, x.stop_gradient
        ('read_file_0.tmp_0', (-1, 3), True)
    """
    check_type(reader, ProgramReader, "reader", "fluid.layers.read_file", expected="what py_reader returned")
    return reader.variables[0] if len(reader.variables) == 1 else list(reader.variables)


@export("fluid.layers.double_buffer")
@no_effect(place=PLACE, name="no variable is made for the reader itself")
def double_buffer(reader: ProgramReader, place: Any = None, name: str | None = None) -> ProgramReader:
    """Returns ``reader``, whose thread reads ahead in any case.

    Example:
        >>> reader = fluid.layers.py_reader(4, shapes=[(-1, 3)], dtypes=["float32"])
        >>> same = fluid.layers.double_buffer(reader)
        >>> same is reader
        True
    """
    return reader
