"""Layers on label sequences that have parameters: ``linear_chain_crf`` and ``crf_decoding``."""

from __future__ import annotations

from typing import Any

from tstatic.errors import TstaticError
from tstatic.extras.structured.linear_chain_crf import FLOATS, check_crf
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_known, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Parameter, Variable
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.nn.param import LayerHelper, ParamAttr, check_enabled


def _inputs(function: str, input: Variable, label: Variable | None, length: Variable | None) -> dict[str, Any]:
    check_variable(input, "input", function, FLOATS)
    for arg, value in (("label", label), ("length", length)):
        if value is not None:
            check_variable(value, arg, function, INDICES)
    return {"Emission": input, "Label": label, "Length": length}


@export("fluid.layers.linear_chain_crf", op="linear_chain_crf")
def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """Returns the negative log likelihood of the labels of each sequence under a linear-chain CRF: a loss.

    The parameter ``[tags + 2, tags]`` holds the scores of the first tag in row 0, those of the last tag in row 1, and behind them
    those of going from a tag (row) to another (column).

    Args:
        input: Scores of each tag: ``[rows, tags]`` with lod_level 1, or padded ``[batch, steps, tags]``; float32 or float64.
        label: The tags: ``[rows, 1]`` with the same LoD, or ``[batch, steps]``, also with an axis of size 1 behind; int64 or int32.
        param_attr: ParamAttr, name or initializer of the parameter.
        length: ``[batch]`` or ``[batch, 1]``: how many steps of each padded sequence count.

    Returns:
        ``[sequences, 1]``; 0 for an empty sequence.

    Raises:
        ProgramError: If ``input`` has neither a LoD nor lengths.
        ShapeError, DTypeError: If the values do not fit together.
        IndexRangeError: At run time, if a label is not a tag.

    Example:
        >>> x = paddle.to_tensor(np.zeros([1, 2, 3], "float32"))
        >>> zero = fluid.ParamAttr(name="crfw", initializer=fluid.initializer.Constant(0.0))
        >>> n = paddle.to_tensor([2])
        >>> loss = fluid.layers.linear_chain_crf(x, paddle.to_tensor([[0, 2]]), param_attr=zero, length=n)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[loss])[0]  # one of 9 paths that are equally probable: log(9)
        array([[2.1972]], dtype=float32)
    """
    function = "linear_chain_crf"
    ins = _inputs(function, input, check_variable(label, "label", function), length)
    check_enabled(param_attr, "param_attr", function)
    tags = check_static_dim(input.shape[-1] if input.shape else 0, input, "the last axis (the tags)", function)
    helper, shape = LayerHelper(function), (tags + 2, tags)
    # Before the parameter is made: a layer that is refused leaves nothing behind.
    offsets = Meta((UNKNOWN,), int64) if input.lod_level else None
    try:
        check_crf(
            input.meta, input.meta.with_shape(shape), label.meta, None if length is None else length.meta, offsets
        )
    except TstaticError as error:
        raise error.add_context(op=function, var=input.name) from None
    transition = helper.create_parameter(param_attr, shape, input.dtype)
    loss: Variable = helper.emit(function, {**ins, "Transition": transition})
    return loss


@export("static.nn.crf_decoding", "fluid.layers.crf_decoding", op="crf_decoding")
def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """Returns the best tags of each sequence under a linear-chain CRF, or where they are the labels.

    Args:
        input: Scores of each tag: ``[rows, tags]`` with lod_level 1, or padded ``[batch, steps, tags]``; float32 or float64.
        param_attr: ParamAttr, or name, of the parameter that :func:`linear_chain_crf` made.
        label: The tags, to compare with.
        length: ``[batch]`` or ``[batch, 1]``: how many steps of each padded sequence count.

    Returns:
        int64, ``[rows, 1]`` or ``[batch, steps]``: the tags, or with ``label`` 1 where they are equal and else 0. Behind the end of
        a padded sequence stands 0.

    Raises:
        NotFoundError: If the program has no parameter of that name.
        ProgramError: If ``input`` has neither a LoD nor lengths.
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> x, n = static.data("x", [None, 3, 2]), static.data("n", [None], "int64")
        >>> zero = fluid.ParamAttr(name="crfw", initializer=fluid.initializer.Constant(0.0))
        >>> _ = static.create_parameter([4, 2], "float32", attr=zero)
        >>> tags, exe = fluid.layers.crf_decoding(x, zero, length=n), static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> scores = np.array([[[1, 0], [0, 1], [0, 1]]], "float32")
        >>> exe.run(feed={"x": scores, "n": np.array([2])}, fetch_list=[tags])[0]
        array([[0, 1, 0]])
    """
    function = "crf_decoding"
    ins = _inputs(function, input, label, length)
    check_enabled(param_attr, "param_attr", function)
    helper = LayerHelper(function)
    name = ParamAttr._to_attr(param_attr).name
    parameters = [n for n, v in helper.main_program.global_block().vars.items() if isinstance(v, Parameter)]
    check_known(name, parameters, "the program has no parameter", fix="name it as in linear_chain_crf", op=function)
    path: Variable = helper.emit(function, {**ins, "Transition": helper.get_parameter(name)})
    return path
