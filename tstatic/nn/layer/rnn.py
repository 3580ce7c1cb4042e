"""Recurrent layers over whole sequences: ``SimpleRNN``, ``LSTM``, ``GRU``; the cells, too, are found here, as in Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import (
    FLOATS,
    check_choice,
    check_has_shape,
    check_int,
    check_number,
    check_rank,
    check_size,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.nn.depth import check_layers
from tstatic.nn.layer.container import LayerList
from tstatic.nn.layer.layers import own_constructor
from tstatic.nn.layer.rnn_cells import (
    RNN,
    BiRNN,
    GatedCell,
    GRUCell,
    LSTMCell,
    RNNCellBase,
    SimpleRNNCell,
    check_lengths,
    swap_steps_and_batch,
)

__all__ = ["GRU", "LSTM", "RNN", "BiRNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCellBase", "SimpleRNN", "SimpleRNNCell"]

_DIRECTIONS = {"forward": 1, "bidirect": 2, "bidirectional": 2}


def run_layers(
    helper: LayerNamer, op: str, x: Variable, states: Sequence[Sequence[Variable]],
    parameters: Sequence[Sequence[Sequence[Variable]]], dropout: float, is_test: bool,
    length: Variable | None = None, settings: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Variable, list[Variable]]:  # fmt: skip
    """Runs layers of a recurrence over whole sequences, each in one or two directions.

    Args:
        helper: Names the results.
        op: The op of one layer and direction.
        x: ``[steps, batch, size]``.
        states: For each value of a state, one Variable per layer and direction.
        parameters: For each layer and direction, two weights and two biases.
        dropout: Probability with which values between layers are dropped.
        is_test: Drops nothing.
        length: Steps of each row.
        settings: Further attributes of the op.

    Returns:
        The outputs of the last layer, and the values of the state after the last step, layer by layer, forward first.
    """
    slots = ("InitH", "InitC")[: len(states)]
    ends: list[list[Variable]] = []
    for layer, directions in enumerate(parameters):
        if layer and dropout:
            attrs = {"dropout_prob": dropout, "dropout_implementation": "upscale_in_train", "is_test": is_test}
            x = emit("dropout", {"X": x}, attrs)
        outs = []
        for direction, own in enumerate(directions):
            given = {
                "Input": x, **dict(zip(("WeightIh", "WeightHh", "BiasIh", "BiasHh"), own, strict=True)),
                "SequenceLength": length, **{slot: each[len(ends)] for slot, each in zip(slots, states, strict=True)},
            }  # fmt: skip
            out, *last = helper.emit(op, given, {"is_reverse": direction == 1, **settings})
            outs.append(out)
            ends.append(last)
        x = outs[0] if len(outs) == 1 else emit("concat", {"X": outs}, {"axis": 2})
    return x, [emit("stack", {"X": list(row)}, {"axis": 0}) for row in zip(*ends, strict=True)]


class RNNBase(LayerList):
    """Base class of :class:`SimpleRNN`, :class:`LSTM` and :class:`GRU`."""

    _cell: type[GatedCell]
    _op: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        direction: str,
        time_major: bool,
        dropout: float,
        attrs: Sequence[Any],
        name: str | None,
        **settings: Any,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        check_choice(direction, tuple(_DIRECTIONS), "direction", kind)
        self.input_size = check_int(input_size, "input_size", kind, 1)
        self.hidden_size = check_int(hidden_size, "hidden_size", kind, 1)
        self.num_layers = check_layers(num_layers, kind)
        self.num_directions = _DIRECTIONS[direction]
        self.time_major = bool(time_major)
        self.dropout = check_number(dropout, "dropout", kind, least=0.0, most=1.0)
        self._name = name
        self._settings = settings
        size = input_size
        for layer in range(num_layers):
            cells = [
                self._cell(
                    size, hidden_size, *settings.values(),
                    **dict(zip(("weight_ih_attr", "weight_hh_attr", "bias_ih_attr", "bias_hh_attr"), attrs, strict=True)),
                )
                for _ in range(self.num_directions)
            ]  # fmt: skip
            self.append(BiRNN(cells[0], cells[1], time_major) if len(cells) == 2 else RNN(cells[0], False, time_major))
            for cell, suffix in zip(cells, ("", "_reverse"), strict=False):
                for which in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    setattr(self, f"{which}_l{layer}{suffix}", getattr(cell, which))
            size = hidden_size * self.num_directions

    @property
    def state_components(self) -> int:
        """How many values a state has: 2 for an LSTM, else 1."""
        return 2 if self._cell is LSTMCell else 1

    def _cells(self) -> list[list[GatedCell]]:
        return [[one.cell_fw, one.cell_bw] if isinstance(one, BiRNN) else [one.cell] for one in self._list()]

    def forward(
        self, inputs: Variable, initial_states: Any = None, sequence_length: Variable | None = None
    ) -> tuple[Variable, Any]:
        """Runs all layers over a batch of sequences.

        Args:
            inputs: ``[batch, steps, input_size]``, or ``[steps, batch, input_size]`` if ``time_major``.
            initial_states: ``[num_layers * directions, batch, hidden_size]``, for an LSTM a pair of such; zeros by default.
            sequence_length: Steps of each row, ``[batch]``: after them outputs are 0 and the state stays, and the backward
                direction begins at the row's own end.

        Returns:
            The outputs of the last layer, ``[batch, steps, hidden_size * directions]``, and the states after the last step,
            layer by layer, forward first.

        Raises:
            ShapeError, DTypeError: Where a shape or a dtype does not fit.
        """
        kind = type(self).__name__
        check_variable(inputs, "inputs", kind, FLOATS)
        layout = "[steps, batch, input_size]" if self.time_major else "[batch, steps, input_size]"
        check_rank(inputs, 3, "inputs", kind, layout=layout)
        check_size(inputs, 2, self.input_size, "inputs", kind, why="input_size")
        check_lengths(sequence_length, kind)
        helper = LayerNamer(self.full_name(), self._name)
        states = self._initial(inputs, initial_states, self.num_layers * self.num_directions)
        x = inputs if self.time_major else swap_steps_and_batch(inputs)
        parameters = [[(c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh) for c in cells] for cells in self._cells()]
        attrs = self._settings
        x, last = run_layers(
            helper, self._op, x, states, parameters, self.dropout, not self.training, sequence_length, attrs
        )
        return x if self.time_major else swap_steps_and_batch(x), tuple(last) if len(last) == 2 else last[0]

    def _initial(self, inputs: Variable, given: Any, rows: int) -> list[list[Variable]]:
        """Returns, for each value of a state, one Variable per layer and direction."""
        kind, count = type(self).__name__, self.state_components
        if given is None:
            attrs = {
                "shape": (UNKNOWN, self.hidden_size), "dtype": inputs.dtype, "value": 0.0,
                "input_dim_idx": 1 if self.time_major else 0,
            }  # fmt: skip
            zeros = emit("fill_constant_batch_size_like", {"Input": inputs}, attrs)
            return [[zeros] * rows for _ in range(count)]
        values = list(given) if isinstance(given, list | tuple) else [given]
        if len(values) != count:
            raise ProgramTypeError(
                f"initial_states of {kind} has the wrong number of values",
                expected="a pair (h, c)" if count == 2 else "one Variable",
                received=shown(given),
                fix="pass initial_states=(h, c)" if count == 2 else "pass initial_states=h",
                op=kind,
            )
        for value in values:
            check_variable(value, "initial_states", kind, FLOATS)
            wanted = (rows, UNKNOWN, self.hidden_size)
            check_has_shape(value, wanted, "initial_states", kind, why="[num_layers * directions, batch, hidden_size]")
        return [list(emit("unstack", {"X": value}, {"axis": 0, "num": rows})) for value in values]

    def extra_repr(self) -> str:
        """Returns the sizes and what is not the default."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (("num_layers", 1), ("time_major", False), ("dropout", 0)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


@export("nn.SimpleRNN", op="simple_rnn_sequence")
class SimpleRNN(RNNBase):
    """Layers of a simple recurrence over whole sequences; formula and parameters as in :class:`SimpleRNNCell`.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the state.
        num_layers: Layers, each of which reads the outputs of the one before.
        direction: ``"forward"``, or ``"bidirect"`` (``"bidirectional"``) for a second recurrence from the end.
        time_major: Inputs and outputs are ``[steps, batch, ...]`` instead of ``[batch, steps, ...]``.
        dropout: Probability with which values between layers are dropped.
        activation: ``"tanh"`` or ``"relu"``.
        weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr: As in the cell.
        name: Name of the ops' layer.

    Example:
        >>> rnn = paddle.nn.SimpleRNN(3, 2, num_layers=2)
        >>> y, h = rnn(static.data("x", [None, 5, 3]))
        >>> y.shape, h.shape
        ((-1, 5, 2), (2, -1, 2))
    """

    _cell, _op = SimpleRNNCell, "simple_rnn_sequence"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        check_choice(activation, ("tanh", "relu"), "activation", "SimpleRNN")
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(
            input_size, hidden_size, num_layers, direction, time_major, dropout, attrs, name, activation=activation
        )


class _Plain(RNNBase):
    """Layers whose activations are fixed."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        direction: str = "forward",
        time_major: bool = False,
        dropout: float = 0.0,
        weight_ih_attr: Any = None,
        weight_hh_attr: Any = None,
        bias_ih_attr: Any = None,
        bias_hh_attr: Any = None,
        name: str | None = None,
    ) -> None:
        attrs = (weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr)
        super().__init__(input_size, hidden_size, num_layers, direction, time_major, dropout, attrs, name)


@export("nn.LSTM", op="lstm_sequence")
@own_constructor()
class LSTM(_Plain):
    """Layers of an LSTM over whole sequences; formula and parameters as in :class:`LSTMCell`.

    Parameters are ``lstm_cell_0.w_0`` (``weight_ih_l0``), ``.w_1`` (``weight_hh_l0``), ``.b_0`` and ``.b_1``, and so on.

    Args:
        input_size: Width of the input.
        hidden_size: Width of ``h`` and ``c``.
        num_layers: Layers, each of which reads the outputs of the one before.
        direction: ``"forward"``, or ``"bidirect"`` (``"bidirectional"``) for a second recurrence from the end.
        time_major: Inputs and outputs are ``[steps, batch, ...]`` instead of ``[batch, steps, ...]``.
        dropout: Probability with which values between layers are dropped.
        weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr: As in the cell.
        name: Name of the ops' layer.

    Example:
        >>> lstm = paddle.nn.LSTM(3, 2, direction="bidirect")
        >>> length = paddle.to_tensor([5, 2])
        >>> y, (h, c) = lstm(static.data("x", [2, 5, 3]), sequence_length=length)
        >>> y.shape, h.shape, list(lstm.state_dict())[0]
        ((2, 5, 4), (2, 2, 2), 'weight_ih_l0')
    """

    _cell, _op = LSTMCell, "lstm_sequence"


@export("nn.GRU", op="gru_sequence")
@own_constructor()
class GRU(_Plain):
    """Layers of a GRU over whole sequences; formula and parameters as in :class:`GRUCell`.

    Args:
        input_size: Width of the input.
        hidden_size: Width of the state.
        num_layers: Layers, each of which reads the outputs of the one before.
        direction: ``"forward"``, or ``"bidirect"`` (``"bidirectional"``) for a second recurrence from the end.
        time_major: Inputs and outputs are ``[steps, batch, ...]`` instead of ``[batch, steps, ...]``.
        dropout: Probability with which values between layers are dropped.
        weight_ih_attr, weight_hh_attr, bias_ih_attr, bias_hh_attr: As in the cell.
        name: Name of the ops' layer.

    Example:
        >>> gru = paddle.nn.GRU(3, 2)
        >>> y, h = gru(static.data("x", [None, 5, 3]))
        >>> y.shape, h.shape
        ((-1, 5, 2), (1, -1, 2))
    """

    _cell, _op = GRUCell, "gru_sequence"
