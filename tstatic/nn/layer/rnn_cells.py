"""Cells of recurrences, and what calls any cell for each step: ``RNN``, ``BiRNN``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramTypeError, UnsupportedError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import FLOATS, INDICES, check_choice, check_int, check_rank, check_size
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, dtype_of
from tstatic.nn.initializer import Constant, Uniform
from tstatic.nn.layer.layers import Layer, own_constructor
from tstatic.nn.param import ParamAttr
from tstatic.ops.base import blocks as _blocks
from tstatic.ops.recurrent.recurrent import StepBuilder


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(n, int) for n in value)


@export("nn.RNNCellBase")
class RNNCellBase(Layer):
    """Base class of cells: ``forward(inputs, states)`` returns the output of one step and the new states.

    A cell says the shape of its state, without the batch, in the property ``state_shape``: a shape, or a nest of shapes.

    Args:
        name_scope, dtype: As of :class:`Layer`.

    Example:
        >>> class Sum(paddle.nn.RNNCellBase):
        ...     state_shape = (2,)
        ...     def forward(self, inputs, states):
        ...         return inputs + states, inputs + states
        >>> y, last = paddle.nn.RNN(Sum())(paddle.ones([1, 3, 2]))
        >>> static.Executor().run(fetch_list=[last])[0]
        array([[3., 3.]], dtype=float32)
    """

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = None,
        init_value: float = 0.0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Returns the states before the first step, one for each shape.

        Args:
            batch_ref: A Variable (or a nest of them, whose first counts) that has the batch's size.
            shape: A shape or a nest of shapes, without the batch; ``state_shape`` by default.
            dtype: Element type; ``state_dtype`` or the default dtype if ``None``.
            init_value: Every element.
            batch_dim_idx: The axis of ``batch_ref`` that is the batch.

        Raises:
            UnsupportedError: If the cell has no ``state_shape`` and none is given.
        """
        reference = _blocks.flatten(batch_ref)[0]
        check_variable(reference, "batch_ref", "get_initial_states")
        shapes = self.state_shape if shape is None else shape
        if dtype is None:
            dtype = self.state_dtype

        def make(one: Any, kind: Any) -> Any:
            if not _is_shape(one):
                kinds = kind if isinstance(kind, list | tuple) else [kind] * len(one)
                return type(one)(make(inner, k) for inner, k in zip(one, kinds, strict=True))
            sizes = tuple(one) if one and one[0] == UNKNOWN else (UNKNOWN, *one)
            attrs = {
                "shape": sizes, "dtype": dtype_of(kind), "value": float(init_value), "input_dim_idx": batch_dim_idx,
            }  # fmt: skip
            return emit("fill_constant_batch_size_like", {"Input": reference}, attrs)

        return make(shapes, dtype)

    @property
    def state_shape(self) -> Any:
        """The state's shape without the batch, or a nest of shapes.

        Raises:
            UnsupportedError: If the cell's class says none.
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not say the shape of its state",
            expected="a property state_shape, such as (hidden_size,)",
            received="a cell without one",
            fix="define state_shape in the class, or pass initial states",
            op=type(self).__name__,
        )

    @property
    def state_dtype(self) -> Any:
        """The state's element type."""
        return self._dtype


class GatedCell(RNNCellBase):
    """What the three cells share: four parameters."""

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, attrs: Sequence[Any], name: str | None) -> None:
        super().__init__()
        kind = type(self).__name__
        self.input_size = check_int(input_size, "input_size", kind, 1)
        self.hidden_size = check_int(hidden_size, "hidden_size", kind, 1)
        self._name = name
        bound = 1.0 / math.sqrt(hidden_size)
        columns = self.gates * hidden_size
        shapes = ((columns, input_size), (columns, hidden_size), (columns,), (columns,))
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for which, shape, attr in zip(names, shapes, attrs, strict=True):
            is_bias = which.startswith("bias")
            if attr is False:
                # Paddle keeps the parameter, at a value that changes nothing, and does not train it.
                attr = ParamAttr(initializer=Constant(0.0 if is_bias else 1.0), trainable=False)
            made = self.create_parameter(shape, attr, is_bias=is_bias, default_initializer=Uniform(-bound, bound))
            if not made.trainable:
                made.stop_gradient = True
            setattr(self, which, made)

    @property
    def state_shape(self) -> Any:
        """The state's shape without the batch."""
        return (self.hidden_size,)

    def _sums(self, inputs: Variable, hidden: Variable) -> tuple[Variable, Variable]:
        """Returns the input's and the state's part of the gates' sums, ``[batch, gates * hidden_size]`` each."""
        kind = type(self).__name__
        check_variable(inputs, "inputs", kind, FLOATS)
        check_size(inputs, -1, self.input_size, "inputs", kind, why="input_size")
        made = []
        for x, weight, bias in (
            (inputs, self.weight_ih, self.bias_ih), (check_variable(hidden, "states", kind), self.weight_hh, self.bias_hh),
        ):  # fmt: skip
            product = emit("matmul_v2", {"X": x, "Y": weight}, {"trans_y": True}, name=self._name)
            made.append(emit("elementwise_add", {"X": product, "Y": bias}, {"axis": -1}))
        return made[0], made[1]

    def _split(self, x: Variable) -> list[Variable]:
        return list(emit("split", {"X": x}, {"num": self.gates, "axis": 1}))

    def extra_repr(self) -> str:
        """Returns the sizes."""
        return f"{self.input_size}, {self.hidden_size}"


@export("nn.SimpleRNNCell")
class SimpleRNNCell(GatedCell):
    """One step of a simple recurrence: ``h = act(W_ih x + b_ih + W_hh h + b_hh)``.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the state.
        activation: ``"tanh"`` or ``"relu"``.
        weight_ih_attr, weight_hh_attr: ParamAttr, name or initializer of the weights ``[hidden_size, input_size]`` and
            ``[hidden_size, hidden_size]``; uniform in ``+-1 / sqrt(hidden_size)`` by default.
        bias_ih_attr, bias_hh_attr: The same for the biases ``[hidden_size]``; ``False``: zeros that are not trained.
        name: Name of the ops' layer.

    Example:
        >>> cell = paddle.nn.SimpleRNNCell(3, 2)
        >>> y, h = cell(static.data("x", [None, 3]))
        >>> y.shape
        (-1, 2)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        check_choice(activation, ("tanh", "relu"), "activation", "SimpleRNNCell")
        super().__init__(input_size, hidden_size, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr), name)
        self.activation = activation

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Variable, Variable]:
        """Computes one step.

        Args:
            inputs: ``[batch, input_size]``.
            states: The state ``[batch, hidden_size]``; zeros if ``None``.

        Returns:
            The output and the new state, which are one value.
        """
        h = self.get_initial_states(inputs) if states is None else states
        total = emit("elementwise_add", dict(zip("XY", self._sums(inputs, h), strict=True)))
        h = emit(self.activation, {"X": total})
        return h, h

    def extra_repr(self) -> str:
        """Returns the sizes and the activation."""
        other = f", activation={self.activation}" if self.activation != "tanh" else ""
        return super().extra_repr() + other


class _PlainCell(GatedCell):
    """A cell whose activations are fixed."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr), name)


@export("nn.LSTMCell")
@own_constructor()
class LSTMCell(_PlainCell):
    """One step of an LSTM: gates i, f, g, o from ``W_ih x + b_ih + W_hh h + b_hh``; ``c = f c + i g``, ``h = o tanh(c)``.

    Args:
        input_size: Width of the input.
        hidden_size: Width of ``h`` and ``c``.
        weight_ih_attr, weight_hh_attr: ParamAttr, name or initializer of the weights ``[4 * hidden_size, input_size]`` and
            ``[4 * hidden_size, hidden_size]``; uniform in ``+-1 / sqrt(hidden_size)`` by default.
        bias_ih_attr, bias_hh_attr: The same for the biases ``[4 * hidden_size]``; ``False``: zeros that are not trained.
        name: Name of the ops' layer.

    Example:
        >>> cell = paddle.nn.LSTMCell(3, 2)
        >>> y, (h, c) = cell(static.data("x", [None, 3]))
        >>> y.shape, c.shape
        ((-1, 2), (-1, 2))
    """

    gates = 4

    @property
    def state_shape(self) -> Any:
        """The shapes of ``h`` and ``c`` without the batch."""
        return ((self.hidden_size,), (self.hidden_size,))

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Variable, tuple[Variable, Variable]]:
        """Computes one step.

        Args:
            inputs: ``[batch, input_size]``.
            states: The pair (h, c), ``[batch, hidden_size]`` each; zeros if ``None``.

        Returns:
            The output and the new pair.
        """
        h, c = self.get_initial_states(inputs) if states is None else states
        total = emit("elementwise_add", dict(zip("XY", self._sums(inputs, h), strict=True)))
        i, f, g, o = self._split(total)
        i, f, o = (emit("sigmoid", {"X": gate}) for gate in (i, f, o))
        kept = emit("elementwise_mul", {"X": f, "Y": c})
        new = emit("elementwise_mul", {"X": i, "Y": emit("tanh", {"X": g})})
        c = emit("elementwise_add", {"X": kept, "Y": new})
        h = emit("elementwise_mul", {"X": o, "Y": emit("tanh", {"X": c})})
        return h, (h, c)


@export("nn.GRUCell")
@own_constructor()
class GRUCell(_PlainCell):
    """One step of a GRU: gates r, z; ``n = tanh(W_n x + b_n + r (U_n h + b'_n))``, ``h = z h + (1 - z) n``.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the state.
        weight_ih_attr, weight_hh_attr: ParamAttr, name or initializer of the weights ``[3 * hidden_size, input_size]`` and
            ``[3 * hidden_size, hidden_size]``; uniform in ``+-1 / sqrt(hidden_size)`` by default.
        bias_ih_attr, bias_hh_attr: The same for the biases ``[3 * hidden_size]``; ``False``: zeros that are not trained.
        name: Name of the ops' layer.

    Example:
        >>> cell = paddle.nn.GRUCell(3, 2)
        >>> y, h = cell(static.data("x", [None, 3]))
        >>> y.shape
        (-1, 2)
    """

    gates = 3

    def forward(self, inputs: Variable, states: Any = None) -> tuple[Variable, Variable]:
        """Computes one step.

        Args:
            inputs: ``[batch, input_size]``.
            states: The state ``[batch, hidden_size]``; zeros if ``None``.

        Returns:
            The output and the new state, which are one value.
        """
        h = self.get_initial_states(inputs) if states is None else states
        (xr, xz, xn), (hr, hz, hn) = (self._split(part) for part in self._sums(inputs, h))
        r, z = (emit("sigmoid", {"X": emit("elementwise_add", {"X": a, "Y": b})}) for a, b in ((xr, hr), (xz, hz)))
        gated = emit("elementwise_mul", {"X": r, "Y": hn})
        n = emit("tanh", {"X": emit("elementwise_add", {"X": xn, "Y": gated})})
        apart = emit("elementwise_sub", {"X": h, "Y": n})
        h = emit("elementwise_add", {"X": emit("elementwise_mul", {"X": apart, "Y": z}), "Y": n})
        return h, h


# ---------------------------------------------------------------------------------------------------------- any cell
def swap_steps_and_batch(x: Variable) -> Variable:
    """Swaps the first two axes."""
    order = (1, 0, *range(2, len(x.shape)))
    return emit("transpose2", {"X": x}, {"axis": order}, drop=("XShape",))  # type: ignore[no-any-return]


def check_lengths(length: Variable | None, function: str) -> None:
    """Refuses lengths that are not one whole number per row."""
    if length is not None:
        check_variable(length, "sequence_length", function, INDICES)
        check_rank(length, 1, "sequence_length", function, layout="[batch]")


def run_cell(
    cell: Any,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    function: str = "rnn",
    keep_output: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Calls a cell for each step of a sequence.

    Args:
        cell: A callable of (inputs, states) with ``get_initial_states``.
        inputs: ``[batch, steps, ...]``, or a nest of such.
        initial_states: The states before the first step; those of ``cell.get_initial_states`` by default.
        sequence_length: Steps of each row ``[batch]``: after them, a row keeps its state.
        time_major: Inputs and outputs are ``[steps, batch, ...]``.
        is_reverse: Runs from the last step to the first.
        function: Who is called, for messages.
        keep_output: After a row's end, an output that is a state stays, too.
        **kwargs: Further arguments of the cell.

    Returns:
        The outputs of all steps, and the states after the last one.
    """
    check_lengths(sequence_length, function)
    given = [check_variable(x, "inputs", function) for x in _blocks.flatten(inputs)]
    sequences = given if time_major else [swap_steps_and_batch(x) for x in given]
    if initial_states is None:
        initial_states = cell.get_initial_states(given[0], batch_dim_idx=1 if time_major else 0)
    builder = StepBuilder(LayerNamer("rnn"), is_reverse)
    mask = None
    if sequence_length is not None:
        mask = _steps_left(sequences[0], sequence_length)
    with builder.step():
        now = _blocks.pack(inputs, iter([builder.step_input(x) for x in sequences]))
        memories = [
            builder.memory(check_variable(s, "initial_states", function)) for s in _blocks.flatten(initial_states)
        ]
        alive = builder.step_input(mask) if mask is not None else None
        output, states = cell(now, _blocks.pack(initial_states, iter(memories)), **kwargs)
        if not _blocks.same_structure(states, initial_states):
            raise ProgramTypeError(
                "the cell returns states of another structure than it was given",
                expected=f"{len(memories)} states, nested like the initial states",
                received=f"{len(_blocks.flatten(states))} states",
                fix="return (output, new_states) from the cell",
                op=function,
            )
        kept: dict[str, Variable] = {}
        for memory, new in zip(memories, _blocks.flatten(states), strict=True):
            chosen = new if alive is None else _choose(alive, new, memory)
            builder.update(memory, chosen)
            if keep_output:
                kept[new.name] = chosen
        for one in _blocks.flatten(output):
            builder.output(kept.get(one.name, one))
        for memory in memories:
            builder.last(memory)
    outputs = builder.outputs if time_major else [swap_steps_and_batch(x) for x in builder.outputs]
    return _blocks.pack(output, iter(outputs)), _blocks.pack(states, iter(builder.final))


def _steps_left(x: Variable, length: Variable) -> Variable:
    """Returns ``[steps, batch]`` in the sequence's own type: 1 while a row's sequence lasts."""
    attrs = {"shape": (UNKNOWN, 1), "dtype": length.dtype, "value": 1, "input_dim_idx": 0}
    # Counted rather than made by arange, whose size would be known only when it has run.
    number = emit("cumsum", {"X": emit("fill_constant_batch_size_like", {"Input": x}, attrs)}, {"axis": 0})
    alive = emit("less_equal", {"X": number, "Y": emit("unsqueeze2", {"X": length}, {"axes": (0,)}, drop=("XShape",))})
    return emit("cast", {"X": alive}, {"in_dtype": alive.dtype, "out_dtype": x.dtype})  # type: ignore[no-any-return]


def _choose(alive: Variable, new: Variable, old: Variable) -> Variable:
    """Returns ``new`` in rows that are alive, else ``old``."""
    apart = emit("elementwise_sub", {"X": new, "Y": old})
    column = emit("reshape2", {"X": alive}, {"shape": (-1, *[1] * (len(new.shape) - 1))}, drop=("XShape",))
    return emit("elementwise_add", {"X": old, "Y": emit("elementwise_mul", {"X": apart, "Y": column})})  # type: ignore[no-any-return]


@export("nn.RNN")
class RNN(Layer):
    """Calls any cell for each step of a sequence.

    Args:
        cell: A :class:`RNNCellBase`.
        is_reverse: Runs from the last step to the first.
        time_major: Inputs and outputs are ``[steps, batch, ...]`` instead of ``[batch, steps, ...]``.

    Example:
        >>> rnn = paddle.nn.RNN(paddle.nn.GRUCell(3, 2))
        >>> y, h = rnn(static.data("x", [None, 5, 3]))
        >>> y.shape, h.shape
        ((-1, 5, 2), (-1, 2))
    """

    def __init__(self, cell: Any, is_reverse: bool = False, time_major: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.is_reverse = bool(is_reverse)
        self.time_major = bool(time_major)

    def forward(
        self, inputs: Any, initial_states: Any = None, sequence_length: Variable | None = None, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Returns the outputs of all steps and the last states.

        Args:
            inputs: ``[batch, steps, ...]``.
            initial_states: States before the first step; zeros by default.
            sequence_length: Steps of each row ``[batch]``; after them a row's state stays. Outputs are not masked.
            **kwargs: Further arguments of the cell.
        """
        return run_cell(
            self.cell, inputs, initial_states, sequence_length, self.time_major, self.is_reverse, "RNN", **kwargs
        )


@export("nn.BiRNN")
class BiRNN(Layer):
    """Runs one cell forward and another backward, and joins their outputs along the last axis.

    Args:
        cell_fw, cell_bw: The cells.
        time_major: As in :class:`RNN`.

    Example:
        >>> rnn = paddle.nn.BiRNN(paddle.nn.GRUCell(3, 2), paddle.nn.GRUCell(3, 2))
        >>> y, (forward, backward) = rnn(static.data("x", [None, 5, 3]))
        >>> y.shape
        (-1, 5, 4)
    """

    def __init__(self, cell_fw: Any, cell_bw: Any, time_major: bool = False) -> None:
        super().__init__()
        self.cell_fw = cell_fw
        self.cell_bw = cell_bw
        self.time_major = bool(time_major)

    def forward(
        self, inputs: Any, initial_states: Any = None, sequence_length: Variable | None = None, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Returns the joined outputs and the pair of last states.

        Args:
            inputs, sequence_length: As in :meth:`RNN.forward`.
            initial_states: A pair, one entry for each cell.
            **kwargs: Further arguments of the cells.
        """
        pair = (None, None) if initial_states is None else initial_states
        outputs, states = [], []
        for cell, state, reverse in zip((self.cell_fw, self.cell_bw), pair, (False, True), strict=True):
            output, last = run_cell(
                cell, inputs, state, sequence_length, self.time_major, reverse, "BiRNN", **kwargs
            )  # fmt: skip
            outputs.append(_blocks.flatten(output))
            states.append(last)
        joined = [emit("concat", {"X": list(both)}, {"axis": -1}) for both in zip(*outputs, strict=True)]
        return _blocks.pack(output, iter(joined)), tuple(states)
