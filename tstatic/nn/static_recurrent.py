"""Recurrences as 1.x functions: ``gru_unit``, ``lstm_unit`` and ``lstm``."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    FLOATS,
    check_choice,
    check_divisible,
    check_has_shape,
    check_int,
    check_number,
    check_rank,
    check_static_dim,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.nn.depth import check_layers
from tstatic.nn.initializer import Initializer
from tstatic.nn.layer.rnn import run_layers
from tstatic.nn.param import LayerHelper, check_enabled
from tstatic.no_effect import no_effect
from tstatic.ops.functions.gru_unit import gru_gates
from tstatic.ops.functions.lstm_unit import lstm_gates


# ------------------------------------------------------------------------------------------------------- single steps
@export("fluid.layers.gru_unit")
def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """Computes one step of a GRU: gates u and r, candidate ``n = act(x_n + (r h) W_n)``, ``h = (1 - u) h + u n``.

    Args:
        input: ``[batch, 3 * width]``: the input's part of u, r and n, for example of ``fc``.
        hidden: The state before the step, ``[batch, width]``.
        size: ``3 * width``.
        param_attr: ParamAttr, name or initializer of the weight ``[width, 3 * width]``. Its first ``2 * width * width``
            numbers are the matrix ``[width, 2 * width]`` of u and r, the others that of n.
        bias_attr: The same for the bias ``[1, 3 * width]``; ``False`` for none.
        activation: Of the candidate: ``"tanh"``, ``"sigmoid"``, ``"relu"`` or ``"identity"``.
        gate_activation: Of u and r.
        origin_mode: ``h = u h + (1 - u) n``, as in the original paper.

    Returns:
        The new state, ``r h``, and the activated gates ``[batch, 3 * width]``.

    Raises:
        ShapeError: If the sizes do not fit.

    Example:
        >>> x, h = static.data("x", [None, 6]), static.data("h", [None, 2])
        >>> new, reset, gate = fluid.layers.gru_unit(x, h, size=6)
        >>> new.shape, gate.shape
        ((-1, 2), (-1, 6))
    """
    check_variable(input, "input", "gru_unit", FLOATS)
    check_variable(hidden, "hidden", "gru_unit", FLOATS)
    check_int(size, "size", "gru_unit", 3)
    check_divisible(size, 3, "size", "3 (gates)", "gru_unit")
    for arg, value in (("activation", activation), ("gate_activation", gate_activation)):
        check_choice(value, ["sigmoid", "tanh", "relu", "identity"], arg, "gru_unit")
    width = size // 3
    check_has_shape(input, (UNKNOWN, size), "input", "gru_unit", why="[batch, size]")
    check_has_shape(hidden, (UNKNOWN, width), "hidden", "gru_unit", why="[batch, size / 3]")
    check_enabled(param_attr, "param_attr", "gru_unit")
    helper = LayerHelper("gru_unit")
    weight = helper.create_parameter(param_attr, (width, size), input.dtype)
    bias = helper.create_parameter(bias_attr, (1, size), input.dtype, is_bias=True)
    gate, reset, new = gru_gates(helper, input, hidden, weight, bias, activation, gate_activation, bool(origin_mode))
    return new, reset, gate


@export("fluid.layers.lstm_unit")
def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Computes one step of an LSTM: gates i, f, o, g are a fully connected layer of input and state.

    Args:
        x_t: ``[batch, size]``.
        hidden_t_prev, cell_t_prev: The states before the step, ``[batch, width]``.
        forget_bias: Added to the sum of f.
        param_attr: ParamAttr, name or initializer of the weight ``[size + width, 4 * width]``.
        bias_attr: The same for the bias ``[4 * width]``; ``False`` for none.
        name: Name of the layer.

    Returns:
        ``h`` and ``c`` after the step.

    Raises:
        ShapeError: If a value is not a matrix, or the batches or widths differ.

    Example:
        >>> x, h, c = static.data("x", [None, 3]), static.data("h", [None, 2]), static.data("c", [None, 2])
        >>> h, c = fluid.layers.lstm_unit(x, h, c, forget_bias=1.0)
        >>> h.shape, c.shape
        ((-1, 2), (-1, 2))
    """
    given = {"x_t": x_t, "hidden_t_prev": hidden_t_prev, "cell_t_prev": cell_t_prev}
    for arg, value in given.items():
        check_rank(check_variable(value, arg, "lstm_unit", FLOATS), 2, arg, "lstm_unit", layout="[batch, size]")
        check_static_dim(value.shape[1], value, "axis 1 (the features)", "lstm_unit")
        check_has_shape(value, (x_t.shape[0], UNKNOWN), arg, "lstm_unit", why="one row per row of x_t")
    check_has_shape(hidden_t_prev, cell_t_prev.shape, "hidden_t_prev", "lstm_unit", why="that of cell_t_prev")
    check_number(forget_bias, "forget_bias", "lstm_unit")
    check_enabled(param_attr, "param_attr", "lstm_unit")
    width = cell_t_prev.shape[1]
    unit = LayerHelper("lstm_unit", name=name)
    joined = emit("concat", {"X": [x_t, hidden_t_prev]}, {"axis": 1})
    helper = LayerHelper("fc", bias_attr=bias_attr)
    weight = helper.create_parameter(param_attr, (joined.shape[1], 4 * width), x_t.dtype)
    sums = helper.append_bias_op(helper.emit("mul", {"X": joined, "Y": weight}), 1)
    c, h = lstm_gates(unit, sums, cell_t_prev, float(forget_bias))
    return h, c


# ------------------------------------------------------------------------------------------------------ whole sequences
@no_effect(
    max_len="the steps are the first axis of the input",
    seed="dropout draws from the program's own random numbers",
)
@export("fluid.layers.lstm", op="lstm_sequence")
def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """Runs layers of an LSTM over whole sequences, with one parameter for all weights.

    The parameter is a vector: for each layer and direction the weight of the input ``[4 * hidden_size, size]`` and of the state
    ``[4 * hidden_size, hidden_size]``, then for each layer and direction two biases ``[4 * hidden_size]``; gates i, f, g, o.

    Args:
        input: ``[steps, batch, size]``.
        init_h, init_c: States before the first step, ``[num_layers * directions, batch, hidden_size]``.
        hidden_size: Width of the states.
        num_layers: Layers, each of which reads the outputs of the one before.
        dropout_prob: Probability with which values between layers are dropped.
        is_bidirec: Adds a second recurrence from the end.
        is_test: Drops nothing.
        name: Name of the layer.
        default_initializer: How the parameter gets its first value; Xavier uniform by default.

    Returns:
        The outputs ``[steps, batch, hidden_size * directions]``, and the states after the last step.

    Raises:
        ShapeError, DTypeError: Where a shape or a dtype does not fit.

    Example:
        >>> x = static.data("x", [5, 2, 3])
        >>> h = c = paddle.zeros([1, 2, 4])
        >>> out, last_h, last_c = fluid.layers.lstm(x, h, c, max_len=5, hidden_size=4, num_layers=1)
        >>> out.shape, last_h.shape, static.default_main_program().all_parameters()[0].shape
        ((5, 2, 4), (1, 2, 4), (144,))
    """
    check_variable(input, "input", "lstm", FLOATS)
    check_rank(input, 3, "input", "lstm", layout="[steps, batch, size]")
    size = check_static_dim(input.shape[2], input, "axis 2 (the size)", "lstm")
    check_int(hidden_size, "hidden_size", "lstm", 1)
    check_layers(num_layers, "lstm")
    check_number(dropout_prob, "dropout_prob", "lstm", least=0.0, most=1.0)
    ways = 2 if is_bidirec else 1
    rows = num_layers * ways
    for arg, value in (("init_h", init_h), ("init_c", init_c)):
        check_variable(value, arg, "lstm", FLOATS)
        check_has_shape(
            value, (rows, input.shape[1], hidden_size), arg, "lstm", why="[num_layers * directions, batch, hidden_size]"
        )
    columns = 4 * hidden_size
    shapes: list[tuple[int, ...]] = []
    for layer in range(num_layers):
        shapes += [(columns, size if layer == 0 else ways * hidden_size), (columns, hidden_size)] * ways
    shapes += [(columns,)] * (2 * rows)
    counts = [shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes]
    helper = LayerHelper("cudnn_lstm", name=name)
    packed = helper.create_parameter(None, (sum(counts),), input.dtype, default_initializer=default_initializer)
    pieces = emit("split", {"X": packed}, {"sections": tuple(counts), "axis": 0})
    parts = [
        emit("reshape2", {"X": piece}, {"shape": shape}, drop=("XShape",)) if len(shape) == 2 else piece
        for piece, shape in zip(pieces, shapes, strict=True)
    ]
    matrices, biases = parts[: 2 * rows], parts[2 * rows :]
    starts = [emit("unstack", {"X": value}, {"axis": 0, "num": rows}) for value in (init_h, init_c)]
    layers = [
        [(*matrices[2 * at : 2 * at + 2], *biases[2 * at : 2 * at + 2]) for at in range(first, first + ways)]
        for first in range(0, rows, ways)
    ]
    x, (h, c) = run_layers(helper, "lstm_sequence", input, starts, layers, dropout_prob, bool(is_test))
    return x, h, c
