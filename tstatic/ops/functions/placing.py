"""Values with some of their elements replaced, named by any index: setitem, index_put, index_fill and their relatives.

All of them find the flat positions of the elements by indexing numbers ``0, 1, 2, ...`` shaped like the value, and write there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import INDICES, check_axis, check_choice, check_int, check_not_empty
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, int64
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise.arithmetic import floor_divide, remainder
from tstatic.ops.elementwise.logic import where
from tstatic.ops.functions.getitem import getitem
from tstatic.ops.indexing.gather import gather, gather_nd, index_select
from tstatic.ops.indexing.scatter import scatter, scatter_nd_add
from tstatic.ops.shape.creation import full_like
from tstatic.ops.shape.diagonal import diagonal
from tstatic.ops.shape.expanding import expand
from tstatic.ops.shape.joining import stack
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import arange, numel, shape


def _sizes(x: Variable) -> Any:
    # One unknown size is written as -1; more are read at run time.
    return list(x.shape) if x.shape.count(UNKNOWN) < 2 else shape(x)


def _places(x: Variable) -> Variable:
    """Returns the flat position of each element, shaped like ``x``; sizes may be unknown."""
    line = arange(numel(x), dtype="int64")
    return reshape(line, _sizes(x))


def _written(x: Variable, places: Variable, value: Any, add: bool = False, name: str | None = None) -> Variable:
    """Returns ``x`` with a value that broadcasts to the shape of ``places`` written, or added, at these flat positions."""
    value = as_variable(value, like=x)
    # As numpy's assignment: the value takes the dtype of what it is written to.
    value = cast_to(value, x.dtype)
    if value.shape != places.shape:
        known = UNKNOWN not in places.shape
        value = expand(value, places.shape) if known else expand(value, shape(places))
    line, spots, values = (reshape(v, [-1]) for v in (x, places, value))
    # Both ops have gradients for the value and for what was there, so none of these functions needs its own.
    line = scatter_nd_add(line, unsqueeze(spots, -1), values) if add else scatter(line, spots, values)
    return reshape(line, _sizes(x), name=name)


@export("static.setitem")
def setitem(x: Variable, index: Any, value: Any) -> Variable:
    """Returns a new Variable: ``x`` with ``x[index]`` replaced by a value, which ``x[index] = value`` cannot do in a program.

    Args:
        x: ``[...]``, any dtype.
        index: Whatever selects elements between square brackets: numbers, slices, ``...``, integer Variables, a bool mask,
            or a tuple of them.
        value: A number, an array or a Variable that broadcasts to the shape of ``x[index]``; it is converted to the dtype of ``x``.

    Raises:
        IndexRangeError: If the index does not fit ``x``.
        ShapeError: If the value does not broadcast.

    Example:
        >>> x = paddle.zeros([2, 3])
        >>> y = static.setitem(x, (slice(None), 1), paddle.to_tensor([5.0, 7.0]))
        >>> static.Executor().run(fetch_list=[static.setitem(y, y > 6, -1.0)])[0]
        array([[ 0.,  5.,  0.],
               [ 0., -1.,  0.]], dtype=float32)
    """
    x = check_variable(x, "x", "setitem")
    return _written(x, getitem(_places(x), index), value)


@export("tensor.index_put", "Variable.index_put", inplace=True)
def index_put(
    x: Variable, indices: Sequence[Variable], value: Variable, accumulate: bool = False, name: str | None = None
) -> Variable:
    """Returns ``x`` with values written, or added, where index Variables point.

    Args:
        x: ``[...]``, any dtype.
        indices: A tuple of integer Variables that broadcast, one for each of the first axes, or of one bool mask.
        value: Broadcasts to the shape that the indices select.
        accumulate: Adds, also several values at one place, instead of writing.
        name: Name of the layer.

    Raises:
        ShapeError: If there is no index, or the value does not broadcast.

    Example:
        >>> x = paddle.zeros([4])
        >>> y = paddle.index_put(x, (paddle.to_tensor([1, 1, 3]),), paddle.ones([3]), accumulate=True)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 2., 0., 1.], dtype=float32)
    """
    x = check_variable(x, "x", "index_put")
    given = check_not_empty(list(indices), "indices", "index_put", of="index")
    found = getitem(_places(x), tuple(check_variable(i, "indices", "index_put") for i in given))
    return _written(x, found, value, accumulate, name)


@export("tensor.index_fill", "Variable.index_fill", inplace=True)
def index_fill(x: Variable, index: Variable, axis: int, value: Any, name: str | None = None) -> Variable:
    """Returns ``x`` with one number at the positions of an axis that an index names.

    Args:
        x: ``[...]``, any dtype.
        index: int32 or int64, ``[n]``.
        axis: Which axis.
        value: A number, or a Variable of one element.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.
    """
    x = check_variable(x, "x", "index_fill")
    at = check_axis(axis, x, "axis", "index_fill")
    places = index_select(_places(x), check_variable(index, "index", "index_fill", INDICES), at)
    return _written(x, places, value, name=name)


@export("tensor.select_scatter", "Variable.select_scatter")
def select_scatter(x: Variable, values: Variable, axis: int, index: int, name: str | None = None) -> Variable:
    """Returns ``x`` with ``values`` at one position of an axis.

    Args:
        x: ``[...]``, any dtype.
        values: Shaped like ``x`` without the axis.
        axis: Which axis.
        index: The position along it.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis or the shapes do not fit.
        IndexRangeError: If the position is out of range.
    """
    x = check_variable(x, "x", "select_scatter")
    at = check_axis(axis, x, "axis", "select_scatter")
    # Indexing the numbers of elements finds any part's positions, with getitem's own checks.
    places = getitem(_places(x), (*[slice(None)] * at, check_int(index, "index", "select_scatter")))
    if len(check_variable(values, "values", "select_scatter").shape) != len(places.shape):
        raise ShapeError(
            "values of select_scatter have the wrong number of dimensions",
            expected=list(places.shape),
            received=list(values.shape),
            fix="give them the shape of x without the axis",
            op="select_scatter",
        )
    return _written(x, places, values, name=name)


@export("tensor.diagonal_scatter", "Variable.diagonal_scatter")
def diagonal_scatter(
    x: Variable, y: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Variable:
    """Returns ``x`` with ``y`` on a diagonal of the planes of two axes.

    Args:
        x: ``[...]`` of at least two dimensions.
        y: Shaped like ``paddle.diagonal(x, offset, axis1, axis2)``.
        offset, axis1, axis2: As in :func:`diagonal`, with its errors.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "diagonal_scatter")
    places = diagonal(_places(x), offset, axis1, axis2)
    return _written(x, places, check_variable(y, "y", "diagonal_scatter"), name=name)


@export("tensor.take", "Variable.take")
def take(x: Variable, index: Variable, mode: str = "raise", name: str | None = None) -> Variable:
    """Returns the elements of the flattened ``x`` at positions, in the shape of the index.

    Args:
        x: ``[...]``, any dtype.
        index: int32 or int64, any shape.
        mode: Out of range: ``"raise"`` refuses when the program runs (negative ones count from the end), ``"wrap"`` goes
            around, ``"clip"`` takes the first or the last element.
        name: Name of the layer.

    Raises:
        ProgramError: For another mode.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = paddle.take(x, paddle.to_tensor([0, 5]), mode="wrap")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 2.], dtype=float32)
    """
    x = check_variable(x, "x", "take")
    check_choice(mode, ("raise", "wrap", "clip"), "mode", "take")
    places = cast_to(check_variable(index, "index", "take", INDICES), int64)
    size = numel(x)
    if mode == "wrap":
        places = remainder(places, size)
    elif mode == "clip":
        # clip cuts negative positions to 0, as numpy does; they do not count from the end.
        places = where(
            places < 0, full_like(places, 0), where(places >= size, full_like(places, 0) + (size - 1), places)
        )
    else:
        places = where(places < 0, places + size, places)
    return reshape(gather(reshape(x, [-1]), reshape(places, [-1])), _sizes(index), name=name)


@export("tensor.multiplex", "Variable.multiplex", "fluid.layers.multiplex")
def multiplex(inputs: Sequence[Variable], index: Variable, name: str | None = None) -> Variable:
    """Chooses each row from one of several values.

    Args:
        inputs: At least two values of one shape ``[rows, ...]``.
        index: int32 or int64, ``[rows, 1]`` or ``[rows]``: which value each row comes from.
        name: Name of the layer.

    Raises:
        ShapeError: If there are no inputs, or their shapes differ.

    Example:
        >>> a, b = paddle.zeros([2, 3]), paddle.ones([2, 3])
        >>> y = paddle.multiplex([a, b], paddle.to_tensor([[1], [0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[1., 1., 1.],
               [0., 0., 0.]], dtype=float32)
    """
    check_not_empty(list(inputs), "inputs", "multiplex", of="value")
    chosen = cast_to(reshape(check_variable(index, "index", "multiplex", INDICES), [-1]), int64)
    # Coordinates (which value, which row): one gather from the stacked values.
    rows = arange(shape(chosen)[0], dtype="int64")
    return gather_nd(stack(list(inputs), 0), stack([chosen, rows], -1), name=name)


@export("tensor.shard_index", "Variable.shard_index", "fluid.layers.shard_index")
def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Turns numbers of a table's rows into numbers of one shard's rows; those of other shards become ``ignore_value``.

    Args:
        input: Integers whose last size is 1.
        index_num: How many rows the table has.
        nshards: How many shards; each has ``ceil(index_num / nshards)`` rows.
        shard_id: Which shard, from 0 on.
        ignore_value: Replaces rows of other shards.

    Raises:
        ShapeError: If the shard does not exist.

    Example:
        >>> y = paddle.shard_index(paddle.to_tensor([[1], [16]]), index_num=20, nshards=2, shard_id=1)
        >>> static.Executor().run(fetch_list=[y])[0].tolist()
        [[-1], [6]]
    """
    x = check_variable(input, "input", "shard_index", INDICES)
    count = check_int(nshards, "nshards", "shard_index", least=1)
    mine = check_int(shard_id, "shard_id", "shard_index", least=0, most=count - 1)
    # Rounded up, as Paddle: the last shard may be smaller than the others.
    size = (check_int(index_num, "index_num", "shard_index", least=1) + count - 1) // count
    width = full_like(x, size)
    found: Variable = where(floor_divide(x, width) == mine, remainder(x, width), full_like(x, ignore_value))
    return found
