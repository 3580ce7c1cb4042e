"""Layers on sequences as functions: ``sequence_conv``, ``row_conv``, ``dynamic_lstm``, ``dynamic_lstmp``, ``dynamic_gru``."""

from __future__ import annotations

from typing import Any

from tstatic.extras.sequence._recurrence import ACTIVATIONS
from tstatic.extras.sequence.sequence_pool import sequence_pool
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_divisible, check_int, check_size, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.param import LayerHelper, check_activation, check_enabled
from tstatic.no_effect import no_effect

_PADDING = "there are zeros outside of every sequence in any case"
_DTYPE = "parameters have the dtype of the input"


@no_effect(padding=_PADDING)
@export("static.nn.sequence_conv", "fluid.layers.sequence_conv", op="sequence_conv")
def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Builds a convolution along the rows of each sequence; outside of it there are zeros.

    Args:
        input: Float ``[rows, width]`` with a LoD, ``width`` known.
        num_filters: Width of the result.
        filter_size: How many rows a window has.
        filter_stride: 1, the only step.
        padding_start: Where the window of a row begins, relative to it: ``-(filter_size // 2)`` if ``None``.
        bias_attr: ParamAttr, name or initializer of the bias ``[num_filters]``; ``False`` for none.
        param_attr: The same for the weight ``[filter_size * width, num_filters]``.
        act: Op type of an activation.
        name: Name of the layer.

    Returns:
        ``[rows, num_filters]`` with the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD, or the stride is not 1.
        ShapeError: If the width is not known.

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = static.nn.sequence_conv(x, 1, 3, param_attr=paddle.nn.initializer.Constant(1.0))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> feed = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]], "float32"), [[2, 3]])
        >>> np.array(exe.run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]).ravel().tolist()
        [3.0, 3.0, 7.0, 12.0, 9.0]
    """
    function = "sequence_conv"
    x = check_variable(input, "input", function, FLOATS)
    width = check_static_dim(x.shape[-1], x, "the last axis (the width)", function)
    size = check_int(filter_size, "filter_size", function, 1)
    filters = check_int(num_filters, "num_filters", function, 1)
    start = -(size // 2) if padding_start is None else check_int(padding_start, "padding_start", function)
    attrs = {"contextLength": size, "contextStart": start, "contextStride": filter_stride}
    check_activation(act, function)
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function, name=name, bias_attr=bias_attr, act=act)
    weight = helper.create_parameter(param_attr, (size * width, filters), x.dtype)
    out = helper.emit(function, {"X": x, "Filter": weight}, attrs)
    return helper.append_activation(helper.append_bias_op(out))


@export("fluid.nets.sequence_conv_pool")
def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """Builds a convolution along the rows of each sequence, with an activation, then one row for each sequence.

    Args:
        input: Float ``[rows, width]`` with a LoD.
        num_filters, filter_size, param_attr, bias_attr, act: As in ``layers.sequence_conv``.
        pool_type: As in ``layers.sequence_pool``.

    Returns:
        ``[sequences, num_filters]``.

    Raises:
        ProgramError: If ``input`` has no LoD.

    Example:
        >>> words = static.data("words", [None, 1], "int64", lod_level=1)
        >>> y = fluid.nets.sequence_conv_pool(fluid.layers.embedding(words, [50, 8]), num_filters=4, filter_size=3)
        >>> y.shape
        (-1, 4)
    """
    out = sequence_conv(input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act)
    return sequence_pool(out, pool_type)


@export("static.nn.row_conv", "fluid.layers.row_conv", op="row_conv")
def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Variable:
    """Builds a layer that adds to each row the rows behind it, weighted column by column.

    Args:
        input: Float ``[rows, width]`` with a LoD, or ``[batch, steps, width]``; ``width`` known.
        future_context_size: How many rows behind each one count.
        param_attr: ParamAttr, name or initializer of the weight ``[future_context_size + 1, width]``.
        act: Op type of an activation.

    Returns:
        As ``input``.

    Raises:
        ShapeError: If the width is not known, or an ``input`` without LoD has another rank than 3.

    Example:
        >>> x = static.data("x", [None, 3, 1])
        >>> y = static.nn.row_conv(x, 1, paddle.nn.initializer.Constant(1.0))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.array([[[1], [2], [3]]], "float32")}, fetch_list=[y])[0].ravel().tolist()
        [3.0, 5.0, 3.0]
    """
    function = "row_conv"
    x = check_variable(input, "input", function, FLOATS)
    width = check_static_dim(x.shape[-1], x, "the last axis (the width)", function)
    rows = check_int(future_context_size, "future_context_size", function, 0) + 1
    check_activation(act, function)
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function, act=act)
    weight = helper.create_parameter(param_attr, (rows, width), x.dtype)
    return helper.append_activation(helper.emit(function, {"X": x, "Filter": weight}))


# ----------------------------------------------------------------------------------------------------------- recurrences
def _gates(input: Any, size: Any, count: int, function: str) -> tuple[Variable, int]:
    """Returns the input of a recurrence, which holds ``count`` gates side by side, and the width of one."""
    x = check_variable(input, "input", function, FLOATS)
    total = check_int(size, "size", function, 1)
    check_divisible(total, count, "size", "the number of gates", function)
    check_size(x, -1, total, "input", function, why=f"{count} gates", fix=f"put layers.fc(input, {total}) before it")
    return x, total // count


@no_effect(dtype=_DTYPE)
@export("fluid.layers.dynamic_lstm", op="lstm")
def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Builds an LSTM over each sequence; the product of the inputs with their weight stands before it, as ``layers.fc``.

    With ``x`` a row of ``input``: ``c = f c' + i a``, ``h = o tanh(c)``, where the candidate ``a`` and the gates ``i f o`` are
    activations of the four parts, in this order, of ``x + h' W + b``. Peepholes add ``c'`` to ``i`` and ``f``, ``c`` to ``o``,
    each with a weight of its own.

    Args:
        input: Float ``[rows, 4 * D]`` with a LoD.
        size: ``4 * D``.
        h_0, c_0: States before the first row of each sequence, ``[sequences, D]``; both or none, zeros if ``None``.
        param_attr: ParamAttr, name or initializer of the weight ``[D, 4 * D]``.
        bias_attr: The same for the bias, ``[1, 4 * D]``; with peepholes ``[1, 7 * D]``, of which the last three parts are their
            weights.
        use_peepholes: Let the gates see the cell.
        is_reverse: Begin at the last row of each sequence.
        gate_activation, cell_activation, candidate_activation: ``"sigmoid"``, ``"tanh"``, ``"relu"`` or ``"identity"``.
        name: Name of the layer.

    Returns:
        Hidden states and cells, ``[rows, D]`` each, with the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD, or only one state is given.
        ShapeError: If sizes do not fit.

    Example:
        >>> words = static.data("words", [None, 1], "int64", lod_level=1)
        >>> x = fluid.layers.fc(fluid.layers.embedding(words, [50, 8]), size=4 * 16)
        >>> hidden, cell = fluid.layers.dynamic_lstm(x, size=4 * 16, use_peepholes=False)
        >>> hidden.shape, hidden.lod_level
        ((-1, 16), 1)
    """
    function = "dynamic_lstm"
    x, width = _gates(input, size, 4, function)
    _check_pair(h_0, c_0, function)
    helper, inputs, attrs = _cell(
        "lstm", x, (width, 4 * width), (7 if use_peepholes else 4) * width, param_attr, bias_attr, name, function,
        is_reverse=is_reverse, gate_activation=gate_activation, candidate_activation=candidate_activation,
        cell_activation=cell_activation,
    )  # fmt: skip
    inputs.update(H0=h_0, C0=c_0)
    made: tuple[Variable, Variable] = helper.emit("lstm", inputs, {**attrs, "use_peepholes": bool(use_peepholes)})
    return made


@no_effect(dtype=_DTYPE)
@export("fluid.layers.dynamic_lstmp", op="lstmp")
def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """Builds an LSTM whose hidden state is projected: ``r = proj_activation(h V)`` is given out and fed back.

    Args:
        input: Float ``[rows, 4 * D]`` with a LoD.
        size: ``4 * D``.
        proj_size: ``P``, the width of ``r``.
        param_attr: ParamAttr or initializer, without a name, of both weights: ``[P, 4 * D]``, and ``V``, ``[D, P]``.
        bias_attr, use_peepholes, is_reverse, name: As in :func:`dynamic_lstm`.
        gate_activation, cell_activation, candidate_activation, proj_activation: As in :func:`dynamic_lstm`.
        h_0, c_0: States before the first row of each sequence, ``[sequences, P]`` and ``[sequences, D]``; both or none.
        cell_clip: Limits cells to ``[-cell_clip, cell_clip]``; no limit if ``None``.
        proj_clip: The same for ``r``.

    Returns:
        ``r``, ``[rows, P]``, and the cells, ``[rows, D]``, with the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD, or only one state is given.
        ShapeError: If sizes do not fit.

    Example:
        >>> x = static.data("x", [None, 32], lod_level=1)
        >>> r, cell = fluid.layers.dynamic_lstmp(x, size=32, proj_size=3)
        >>> r.shape, cell.shape
        ((-1, 3), (-1, 8))
    """
    function = "dynamic_lstmp"
    x, width = _gates(input, size, 4, function)
    projected = check_int(proj_size, "proj_size", function, 1)
    _check_pair(h_0, c_0, function)
    helper, inputs, attrs = _cell(
        "lstmp", x, (projected, 4 * width), (7 if use_peepholes else 4) * width, param_attr, bias_attr, name, function,
        (width, projected), is_reverse=is_reverse, gate_activation=gate_activation, cell_activation=cell_activation,
        candidate_activation=candidate_activation, proj_activation=proj_activation,
    )  # fmt: skip
    inputs.update(H0=h_0, C0=c_0)
    limits = {"cell_clip": float(cell_clip or 0.0), "proj_clip": float(proj_clip or 0.0)}
    more = {**attrs, **limits, "use_peepholes": bool(use_peepholes)}
    made: tuple[Variable, Variable] = helper.emit("lstmp", inputs, more)
    return made


@export("fluid.layers.dynamic_gru", op="gru")
def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """Builds a GRU over each sequence; the product of the inputs with their weight stands before it, as ``layers.fc``.

    With ``x_u x_r x_n`` the three parts of a row of ``input`` (and of the bias): ``u = gate(x_u + h' W_u)``,
    ``r = gate(x_r + h' W_r)``, ``n = candidate(x_n + (r h') W_n)``, ``h = (1 - u) h' + u n``.

    Args:
        input: Float ``[rows, 3 * D]`` with a LoD.
        size: ``D``.
        param_attr: ParamAttr, name or initializer of the weight ``[D, 3 * D]``. Its first ``2 * D * D`` numbers in memory are
            ``[W_u W_r]``, ``[D, 2 * D]``; the others ``W_n``, ``[D, D]``.
        bias_attr: The same for the bias ``[1, 3 * D]``; ``False`` for none.
        is_reverse: Begin at the last row of each sequence.
        gate_activation, candidate_activation: ``"sigmoid"``, ``"tanh"``, ``"relu"`` or ``"identity"``.
        h_0: State before the first row of each sequence, ``[sequences, D]``; zeros if ``None``.
        origin_mode: ``h = u h' + (1 - u) n`` instead.

    Returns:
        Hidden states, ``[rows, D]``, with the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD.
        ShapeError: If sizes do not fit.

    Example:
        >>> x = static.data("x", [None, 24], lod_level=1)
        >>> h = fluid.layers.dynamic_gru(x, size=8)
        >>> h.shape, h.lod_level
        ((-1, 8), 1)
    """
    function = "dynamic_gru"
    width = check_int(size, "size", function, 1)
    x, _ = _gates(input, 3 * width, 3, function)
    helper, inputs, attrs = _cell(
        "gru", x, (width, 3 * width), 3 * width, param_attr, bias_attr, None, function, is_reverse=is_reverse,
        gate_activation=gate_activation, activation=candidate_activation,
    )  # fmt: skip
    made: Variable = helper.emit("gru", {**inputs, "H0": h_0}, {**attrs, "origin_mode": bool(origin_mode)})
    return made


def _cell(
    type: str,
    x: Variable,
    weight: tuple[int, int],
    bias: int,
    param_attr: Any,
    bias_attr: Any,
    name: str | None,
    function: str,
    projection: tuple[int, int] | None = None,
    **attrs: Any,
) -> tuple[LayerHelper, dict[str, Any], dict[str, Any]]:
    """Makes the parameters of a recurrence; returns its helper, inputs and attributes.

    Args:
        type: Op type.
        x: Its input.
        weight: Shape of the weight.
        bias: Width of the bias.
        param_attr, bias_attr, name: As given.
        function: The public function, for messages.
        projection: Shape of the second weight.
        **attrs: Attributes, among them the activations.
    """
    for arg, value in attrs.items():
        if arg.endswith("activation"):
            check_choice(value, tuple(ACTIVATIONS), arg, function)
    check_enabled(param_attr, "param_attr", function)
    if type != "gru":
        check_enabled(bias_attr, "bias_attr", function)
    helper = LayerHelper(type, name=name, bias_attr=bias_attr)
    inputs = {"Input": x, "Weight": helper.create_parameter(param_attr, weight, x.dtype)}
    if projection is not None:
        inputs["ProjWeight"] = helper.create_parameter(param_attr, projection, x.dtype)
    inputs["Bias"] = helper.create_parameter(bias_attr, (1, bias), x.dtype, is_bias=True)
    return helper, inputs, {**attrs, "is_reverse": bool(attrs["is_reverse"])}


def _check_pair(h: Any, c: Any, function: str) -> None:
    """Checks that two initial states are given, or none."""
    check_choice(
        (h is None) == (c is None),
        (True,),
        "'h_0' and 'c_0' together",
        function,
        fix="pass h_0 and c_0 of [batch, hidden], or neither for zeros",
    )
