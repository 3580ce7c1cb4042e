"""Cells of 1.x programs, ``rnn`` and ``birnn``, and ``basic_lstm`` and ``basic_gru`` made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_has_shape, check_int, check_number, check_rank, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.nn.depth import check_layers
from tstatic.nn.layer.layers import own_constructor
from tstatic.nn.layer.rnn_cells import BiRNN, RNNCellBase, run_cell


class _Unit(RNNCellBase):
    """What the two 1.x cells share: parameters are made at the first call, when the input's size is known."""

    kind: str
    _has_cell = False
    _parts: Sequence[tuple[str, int]]
    """Names of the weights, and how many matrices of the state's width each has."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(f"{name_scope}/{self.kind}", dtype)
        self.hidden_size = check_int(hidden_size, "hidden_size", self.kind, 1)
        self._attrs = param_attr, bias_attr
        self._gate_activation = gate_activation or _sigmoid
        self._activation = activation or _tanh

    @property
    def state_shape(self) -> Any:
        """The shape of the state, or of ``h`` and ``c``, without the batch."""
        shape = (self.hidden_size,)
        return [shape, shape] if self._has_cell else shape

    def _affine(self, which: str, parts: Sequence[Variable]) -> Variable:
        """Returns ``concat(parts) @ weight + bias`` with parameters that the first call makes."""
        joined = emit("concat", {"X": list(parts)}, {"axis": 1})
        if f"weight_{which}" not in self.__dict__["_parameters"]:
            self._make(joined)
        product = emit("matmul_v2", {"X": joined, "Y": getattr(self, f"weight_{which}")})
        bias = getattr(self, f"bias_{which}")
        return product if bias is None else emit("elementwise_add", {"X": product, "Y": bias}, {"axis": -1})  # type: ignore[no-any-return]

    def _make(self, joined: Variable) -> None:
        rows = check_static_dim(joined.shape[1], joined, "axis 1 (the features)", self.kind)
        param_attr, bias_attr = self._attrs
        sizes = [(which, count * self.hidden_size) for which, count in self._parts]
        for which, columns in sizes:
            setattr(self, f"weight_{which}", self.create_parameter((rows, columns), param_attr))
        for which, columns in sizes:
            setattr(self, f"bias_{which}", self.create_parameter((columns,), bias_attr, is_bias=True))


def _sigmoid(x: Variable) -> Variable:
    return emit("sigmoid", {"X": x})  # type: ignore[no-any-return]


def _tanh(x: Variable) -> Variable:
    return emit("tanh", {"X": x})  # type: ignore[no-any-return]


def _product(x: Variable, y: Variable) -> Variable:
    return emit("elementwise_mul", {"X": x, "Y": y})  # type: ignore[no-any-return]


def _total(x: Variable, y: Variable) -> Variable:
    return emit("elementwise_add", {"X": x, "Y": y})  # type: ignore[no-any-return]


@export("fluid.contrib.layers.BasicLSTMUnit", "fluid.contrib.BasicLSTMUnit")
class BasicLSTMUnit(_Unit):
    """One step of an LSTM with one weight ``[size + width, 4 * width]`` and one bias; gates i, g, f, o.

    Args:
        name_scope: First part of the parameters' names.
        hidden_size: Width of ``h`` and ``c``.
        param_attr, bias_attr: ParamAttr, name or initializer of weight and bias.
        gate_activation, activation: Functions of a Variable; sigmoid and tanh by default.
        forget_bias: Added to the sum of f.
        dtype: Float type of the parameters.

    Example:
        >>> unit = fluid.contrib.layers.BasicLSTMUnit("mine", 2)
        >>> h, c = unit(paddle.ones([1, 3]), paddle.zeros([1, 2]), paddle.zeros([1, 2]))
        >>> h.shape, [p.name for p in unit.parameters()]
        ((1, 2), ['mine/BasicLSTMUnit_0.w_0', 'mine/BasicLSTMUnit_0.b_0'])
    """

    kind = "BasicLSTMUnit"
    _has_cell = True
    _parts = (("gate", 4),)

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name_scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)
        self._forget_bias = check_number(forget_bias, "forget_bias", self.kind)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """Computes one step and returns the new states.

        Args:
            input: ``[batch, size]``.
            pre_hidden, pre_cell: States before the step, ``[batch, hidden_size]``.
        """
        sums = self._affine("gate", (input, pre_hidden))
        i, g, f, o = emit("split", {"X": sums}, {"num": 4, "axis": 1})
        gate = self._gate_activation
        f = emit("scale", {"X": f}, {"bias": self._forget_bias})
        c = _total(_product(pre_cell, gate(f)), _product(gate(i), self._activation(g)))
        return _product(self._activation(c), gate(o)), c


@export("fluid.contrib.layers.BasicGRUUnit", "fluid.contrib.BasicGRUUnit")
@own_constructor()
class BasicGRUUnit(_Unit):
    """One step of a GRU with the weights ``[size + width, 2 * width]`` of r and u, and ``[size + width, width]`` of the candidate.

    Args:
        name_scope: First part of the parameters' names.
        hidden_size: Width of the state.
        param_attr, bias_attr: ParamAttr, name or initializer of weights and biases.
        gate_activation, activation: Functions of a Variable; sigmoid and tanh by default.
        dtype: Float type of the parameters.

    Example:
        >>> unit = fluid.contrib.layers.BasicGRUUnit("mine", 2)
        >>> h = unit(paddle.ones([1, 3]), paddle.zeros([1, 2]))
        >>> h.shape, len(unit.parameters())
        ((1, 2), 4)
    """

    kind = "BasicGRUUnit"
    _parts = (("gate", 2), ("candidate", 1))

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """Computes one step and returns the new state.

        Args:
            input: ``[batch, size]``.
            pre_hidden: The state before the step, ``[batch, hidden_size]``.
        """
        gates = self._gate_activation(self._affine("gate", (input, pre_hidden)))
        r, u = emit("split", {"X": gates}, {"num": 2, "axis": 1})
        n = self._activation(self._affine("candidate", (input, _product(r, pre_hidden))))
        apart = emit("elementwise_sub", {"X": pre_hidden, "Y": n})
        return _total(_product(apart, u), n)


@export("fluid.layers.RNNCell")
class RNNCell(RNNCellBase):
    """Base class of 1.x cells, which write ``call(inputs, states)`` instead of ``forward``.

    Args:
        name_scope, dtype: As of :class:`Layer`.

    Example:
        >>> class Sum(fluid.layers.RNNCell):
        ...     state_shape = [2]
        ...     def call(self, inputs, states):
        ...         return inputs + states, inputs + states
        >>> y, last = fluid.layers.rnn(Sum(), paddle.ones([1, 3, 2]))
        >>> static.Executor().run(fetch_list=[last])[0]
        array([[3., 3.]], dtype=float32)
    """

    def forward(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
        """Calls :meth:`call`.

        Args:
            inputs, states: Of this step.
            **kwargs: Further arguments.
        """
        return self.call(inputs, states, **kwargs)

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
        """Returns the output and the new states; each class writes its own.

        Args:
            inputs, states: Of this step.
            **kwargs: Further arguments.

        Raises:
            UnsupportedError: If the class has none.
        """
        return super().forward(inputs, states, **kwargs)


@export("fluid.layers.LSTMCell")
class LSTMCell(RNNCell):
    """The 1.x LSTM cell, see :class:`BasicLSTMUnit`; its states are ``[h, c]``.

    Args:
        hidden_size: Width of ``h`` and ``c``.
        param_attr, bias_attr: ParamAttr, name or initializer of weight and bias.
        gate_activation, activation: Functions of a Variable; sigmoid and tanh by default.
        forget_bias: Added to the sum of the forget gate.
        dtype: Float type of the parameters.
        name: First part of the parameters' names.

    Example:
        >>> cell = fluid.layers.LSTMCell(hidden_size=2)
        >>> y, [h, c] = fluid.layers.rnn(cell, static.data("x", [None, 5, 3]))
        >>> y.shape, h.shape
        ((-1, 5, 2), (-1, 2))
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        forget_bias: float = 1.0,
        dtype: Any = "float32",
        name: str = "LSTMCell",
    ) -> None:
        super().__init__(dtype=dtype)
        self.hidden_size = hidden_size
        self.unit = BasicLSTMUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype
        )

    @property
    def state_shape(self) -> Any:
        """The shapes of ``h`` and ``c`` without the batch."""
        return self.unit.state_shape

    def call(self, inputs: Variable, states: Any) -> tuple[Variable, list[Variable]]:  # type: ignore[override]
        """Returns the output and ``[h, c]``.

        Args:
            inputs: ``[batch, size]``.
            states: ``[h, c]`` before the step.
        """
        h, c = self.unit(inputs, *states)
        return h, [h, c]


@export("fluid.layers.GRUCell")
class GRUCell(RNNCell):
    """The 1.x GRU cell, see :class:`BasicGRUUnit`.

    Args:
        hidden_size: Width of the state.
        param_attr, bias_attr: ParamAttr, name or initializer of weights and biases.
        gate_activation, activation: Functions of a Variable; sigmoid and tanh by default.
        dtype: Float type of the parameters.
        name: First part of the parameters' names.

    Example:
        >>> cell = fluid.layers.GRUCell(hidden_size=2)
        >>> y, h = fluid.layers.rnn(cell, static.data("x", [None, 5, 3]))
        >>> y.shape, h.shape
        ((-1, 5, 2), (-1, 2))
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Callable[[Variable], Variable] | None = None,
        activation: Callable[[Variable], Variable] | None = None,
        dtype: Any = "float32",
        name: str = "GRUCell",
    ) -> None:
        super().__init__(dtype=dtype)
        self.hidden_size = hidden_size
        self.unit = BasicGRUUnit(name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)

    @property
    def state_shape(self) -> Any:
        """The state's shape without the batch."""
        return self.unit.state_shape

    def call(self, inputs: Variable, states: Variable) -> tuple[Variable, Variable]:  # type: ignore[override]
        """Returns the output and the new state.

        Args:
            inputs: ``[batch, size]``.
            states: The state before the step.
        """
        h = self.unit(inputs, states)
        return h, h


@export("fluid.layers.rnn", "nn.functional.rnn")
def rnn(
    cell: Any,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Calls a cell for each step of a sequence.

    Args:
        cell: A cell: ``cell(inputs, states)`` returns the output of one step and the new states.
        inputs: ``[batch, steps, ...]``, or a nest of such.
        initial_states: States before the first step; those of ``cell.get_initial_states`` by default.
        sequence_length: Steps of each row ``[batch]``: after them, a row keeps its state.
        time_major: Inputs and outputs are ``[steps, batch, ...]``.
        is_reverse: Runs from the last step to the first.
        **kwargs: Further arguments of the cell.

    Returns:
        The outputs of all steps, and the states after the last one.

    Raises:
        ProgramTypeError: If the cell returns states of another structure.

    Example:
        >>> y, h = fluid.layers.rnn(paddle.nn.GRUCell(3, 2), static.data("x", [None, 5, 3]))
        >>> y.shape
        (-1, 5, 2)
    """
    return run_cell(cell, inputs, initial_states, sequence_length, time_major, is_reverse, "rnn", **kwargs)


@export("fluid.layers.birnn", "nn.functional.birnn")
def birnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Runs one cell forward and another backward; see :func:`rnn`.

    Args:
        cell_fw, cell_bw: The cells.
        inputs, sequence_length, time_major: As in :func:`rnn`.
        initial_states: A pair, one entry for each cell.
        **kwargs: Further arguments of the cells.

    Returns:
        The outputs, joined along the last axis, and the pair of last states.

    Example:
        >>> cells = paddle.nn.GRUCell(3, 2), paddle.nn.GRUCell(3, 2)
        >>> y, states = fluid.layers.birnn(*cells, static.data("x", [None, 5, 3]))
        >>> y.shape
        (-1, 5, 4)
    """
    return BiRNN(cell_fw, cell_bw, time_major)(inputs, initial_states, sequence_length, **kwargs)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------- contrib.layers
def _basic(
    make: Callable[[str], Any],
    input: Variable,
    starts: Sequence[Variable | None],
    hidden_size: int,
    num_layers: int,
    sequence_length: Variable | None,
    dropout_prob: float,
    bidirectional: bool,
    batch_first: bool,
    name: str,
) -> tuple[Variable, list[Variable]]:
    """Runs stacked units in one or both directions; both directions have layers of their own, which join at the end."""
    function = name
    check_variable(input, "input", function, FLOATS)
    check_rank(input, 3, "input", function, layout=f"[{'batch, steps' if batch_first else 'steps, batch'}, size]")
    check_layers(num_layers, function)
    check_number(dropout_prob, "dropout_prob", function, least=0.0, most=1.0)
    ways = ["", "reverse_"] if bidirectional else [""]
    rows = num_layers * len(ways)
    states: list[list[Variable] | None] = []
    for value in starts:
        if value is not None:
            check_variable(value, "init_hidden", function, FLOATS)
            if len(value.shape) == 3:
                wanted = (rows, UNKNOWN, hidden_size)
                check_has_shape(
                    value, wanted, "init_hidden", function, why="[num_layers * directions, batch, hidden_size]"
                )
                states.append(list(emit("unstack", {"X": value}, {"axis": 0, "num": rows})))
                continue
            raise ShapeError(
                f"init_hidden of {function} has the wrong number of dimensions",
                expected="[num_layers * directions, batch, hidden_size]",
                received=list(value.shape),
                fix="reshape it, or pass None for zeros",
                op=function,
                var=value.name,
            )
        states.append(None)
    units = [[make(f"{name}_{way}layers_{layer}") for layer in range(num_layers)] for way in ways]
    outs: list[Variable] = []
    ends: list[list[list[Variable]]] = []
    for way, stack in enumerate(units):
        x = input
        ends.append([])
        for layer, cell in enumerate(stack):
            at = layer * len(ways) + way
            first = [None if s is None else s[at] for s in states]
            given = None if first[0] is None else first if len(first) > 1 else first[0]
            x, last = run_cell(cell, x, given, sequence_length, not batch_first, way == 1, function, keep_output=True)
            ends[-1].append(last if isinstance(last, list) else [last])
            if dropout_prob:
                attrs = {"dropout_prob": dropout_prob, "dropout_implementation": "upscale_in_train"}
                x = emit("dropout", {"X": x}, attrs)
        outs.append(x)
    out = outs[0] if len(outs) == 1 else emit("concat", {"X": outs}, {"axis": 2})
    # Layer by layer, forward first.
    rows_of = [
        [ends[way][layer][k] for layer in range(num_layers) for way in range(len(ways))] for k in range(len(starts))
    ]
    return out, [emit("stack", {"X": row}, {"axis": 0}) for row in rows_of]


@export("fluid.contrib.layers.basic_lstm", "fluid.contrib.basic_lstm")
def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[[Variable], Variable] | None = None,
    activation: Callable[[Variable], Variable] | None = None,
    forget_bias: float = 1.0,
    dtype: Any = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Runs stacked :class:`BasicLSTMUnit` over whole sequences.

    Args:
        input: ``[batch, steps, size]``, or ``[steps, batch, size]`` without ``batch_first``.
        init_hidden, init_cell: States before the first step, ``[num_layers * directions, batch, hidden_size]``; zeros if
            ``None``.
        hidden_size: Width of the states.
        num_layers: Layers.
        sequence_length: Steps of each row ``[batch]``: after them, a row keeps its state.
        dropout_prob: Probability with which outputs of each layer are dropped.
        bidirectional: Adds layers that run from the end; the two stacks join after the last layer.
        batch_first: See ``input``.
        param_attr, bias_attr: ParamAttr, name or initializer of weights and biases.
        gate_activation, activation: Functions of a Variable; sigmoid and tanh by default.
        forget_bias: Added to the sum of the forget gate.
        dtype: Float type of the parameters.
        name: First part of the parameters' names.

    Returns:
        The outputs, and ``h`` and ``c`` after the last step.

    Raises:
        ShapeError: If a shape does not fit.

    Example:
        >>> x = static.data("x", [None, 5, 3])
        >>> out, h, c = fluid.contrib.layers.basic_lstm(x, None, None, hidden_size=4, num_layers=2)
        >>> out.shape, h.shape
        ((-1, 5, 4), (2, -1, 4))
    """

    def make(scope: str) -> Any:
        unit = BasicLSTMUnit(scope, hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype)
        return _Stepping(unit, True)

    out, (h, c) = _basic(
        make, input, (init_hidden, init_cell), hidden_size, num_layers, sequence_length, dropout_prob, bidirectional,
        batch_first, name,
    )  # fmt: skip
    return out, h, c


@export("fluid.contrib.layers.basic_gru", "fluid.contrib.basic_gru")
def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Callable[[Variable], Variable] | None = None,
    activation: Callable[[Variable], Variable] | None = None,
    dtype: Any = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Runs stacked :class:`BasicGRUUnit` over whole sequences.

    Args:
        input, hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first: As in
            :func:`basic_lstm`.
        init_hidden: State before the first step, ``[num_layers * directions, batch, hidden_size]``; zeros if ``None``.
        param_attr, bias_attr, gate_activation, activation, dtype, name: As there.

    Returns:
        The outputs, and the state after the last step.

    Raises:
        ShapeError: If a shape does not fit.

    Example:
        >>> out, h = fluid.contrib.layers.basic_gru(static.data("x", [None, 5, 3]), None, hidden_size=4)
        >>> out.shape, h.shape
        ((-1, 5, 4), (1, -1, 4))
    """

    def make(scope: str) -> Any:
        unit = BasicGRUUnit(scope, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)
        return _Stepping(unit, False)

    out, (h,) = _basic(
        make, input, (init_hidden,), hidden_size, num_layers, sequence_length, dropout_prob, bidirectional, batch_first,
        name,
    )  # fmt: skip
    return out, h


class _Stepping:
    """A 1.x unit as a cell: states are given and returned as one value."""

    def __init__(self, unit: _Unit, has_cell: bool) -> None:
        self.unit = unit
        self.has_cell = has_cell
        self.get_initial_states = unit.get_initial_states

    def __call__(self, x: Variable, states: Any) -> tuple[Variable, Any]:
        if self.has_cell:
            h, c = self.unit(x, *states)
            return h, [h, c]
        h = self.unit(x, states)
        return h, h
