"""``paddle.summary`` and ``paddle.flops``: what a network or a program consists of, and how many operations it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.display import size
from tstatic.errors import ProgramError, shown
from tstatic.ir.checks import check_known, check_type
from tstatic.ir.export import door
from tstatic.ir.frozen import FrozenOp, freeze
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Parameter, Program
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.nn import model_summary
from tstatic.nn.layer.layers import Layer
from tstatic.plan.known_values import infer_program
from tstatic.plan.shapes import entry_metas
from tstatic.where import show

__all__ = ["flops", "op_rows", "summary"]


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of a program.

    Attributes:
        type: Its type.
        output: Shape of its first result; sizes that depend on values are -1.
        parameters: Elements of the parameters that it is the first to read.
        flops: Its operations; a multiplication and the addition after it are one.
        role: ``forward``, ``backward`` or ``update``.
        where: The user's line.
    """

    type: str
    output: tuple[int, ...]
    parameters: int
    flops: int
    role: str
    where: str


def op_rows(program: Program, sizes: Mapping[str, Sequence[int]] | None = None) -> list[OpRow]:
    """Returns one row per op of the main block.

    Args:
        program: The program; it is not changed.
        sizes: Input -> shape; sizes that the program leaves open are 1 otherwise.
    """
    block = program.global_block()
    inputs = [v.name for v in block.vars.values() if v.is_data]
    frozen = freeze(program, inputs, [])
    known: dict[str, Meta] = {}
    for name, value in frozen.reads.items():
        known[value] = _closed(block.var(name).meta)
    for name in frozen.feeds:
        meta = block.var(name).meta
        known[name] = _closed(meta, (sizes or {}).get(name))
    metas = infer_program(frozen, known)
    names = {value: name for name, value in frozen.reads.items()}
    counted: set[str] = set()
    rows = []
    for op in frozen.ops:
        read = [names[v] for v in op.reads() if v in names]
        own = [n for n in dict.fromkeys(read) if isinstance(block.vars.get(n), Parameter) and n not in counted]
        counted.update(own)
        first = next((metas[v].shape for v in op.writes() if v in metas), ())
        elements = sum(math.prod(block.var(n).shape) for n in own)
        rows.append(OpRow(op.type, tuple(first), elements, operations(op, metas), _role(op), show(op.where)))
    return rows


def _closed(meta: Meta, shape: Sequence[int] | None = None) -> Meta:
    return meta.with_shape(shape if shape is not None else [1 if n == UNKNOWN else n for n in meta.shape])


def _role(op: FrozenOp) -> str:
    if op.role & (OpRole.Optimize | OpRole.LRSched):
        return "update"
    return "backward" if op.role & OpRole.Backward else "forward"


def operations(op: FrozenOp, metas: Mapping[str, Meta]) -> int:
    """Returns the operations of an op, as its definition states its cost; 0 where it states none or a size is not known.

    Matrix products and convolutions count a multiplication and the addition after it as one, as Paddle does; an elementwise op
    counts one per element.
    """
    definition = op.definition
    ins, outs = entry_metas(op.inputs, metas), entry_metas(op.outputs, metas)
    flat = [m for entry in (*ins, *outs) for m in (entry if isinstance(entry, list) else [entry])]
    if any(m is not None and UNKNOWN in m.shape for m in flat):
        return 0
    if definition.cost is not None and None not in ins:
        found = definition.cost(*ins, *outs, **definition.pick(definition.cost, op.attrs)).flops
        # The ops on the white list of mixed precision are those that multiply and add.
        return int(found / 2 if _forward(op).amp == "white" else found)
    if definition.pointwise is not None:
        return sum(m.numel for m in outs if isinstance(m, Meta))
    return 0


def _forward(op: FrozenOp) -> OpDef:
    definition = op.definition
    while definition.of:
        definition = op_def(definition.of)
    return definition


# -------------------------------------------------------------------------------------------------------------- functions
@door("summary")
def summary(net: Layer | Program, input_size: Any = None, dtypes: Any = None, input: Any = None) -> dict[str, int]:
    """Prints the layers of a network, or the operators of a program, and returns how many parameters it has.

    Nothing is run. A network is built once more, in evaluation, in a program that is thrown away.

    Args:
        net: A Layer, or a Program.
        input_size: Shape of the input, or a list of shapes or ``InputSpec``; -1 and ``None`` count as 1. For a Program: a dict
            of input name -> shape, the shape of its only input, or ``None``.
        dtypes: Dtype of a Layer's inputs, or a list; float32 by default. A Program declares its own.
        input: Instead of sizes, for a Layer: an example of the input, or a list or dict of them.

    Returns:
        ``total_params`` (running statistics of batch norm are among them) and ``trainable_params``.

    Raises:
        ProgramTypeError: If ``net`` is neither a Layer nor a Program.
        ProgramError: For a Layer without sizes and inputs, for sizes below 1, for names of no input, and for arguments of a Layer
            with a Program.

    Example:
        >>> net = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.ReLU())
        >>> import contextlib, io
        >>> with contextlib.redirect_stdout(io.StringIO()) as printed:
        ...     found = paddle.summary(net, (1, 4))
        >>> found, "Linear-1" in printed.getvalue()
        ({'total_params': 15, 'trainable_params': 15}, True)
    """
    check_type(net, (Layer, Program), "net", "summary", expected="a paddle.nn.Layer or a static.Program")
    if not isinstance(net, Program):
        return model_summary.summary(net, input_size, dtypes, input)
    _for_layers_only("summary", dtypes=dtypes, input=input)
    rows = op_rows(net, _sizes(net, input_size, "summary"))
    parameters = net.all_parameters()
    total = sum(math.prod(p.shape) for p in parameters)
    trained = sum(math.prod(p.shape) for p in parameters if p.trainable)
    head = ("Op (type)", "Output Shape", "Param #", "FLOPs", "Line")
    table = [
        (r.type, str(list(r.output)), f"{r.parameters:,}", f"{r.flops:,}", r.where) for r in rows if r.role == "forward"
    ]
    for line in _table(head, table):
        print(line)
    for role in ("backward", "update"):
        mine = [r for r in rows if r.role == role]
        if mine:
            print(f"{role}: {len(mine)} ops, {sum(r.flops for r in mine):,} FLOPs")
    nbytes = sum(math.prod(p.shape) * p.dtype.itemsize for p in parameters)
    print(f"Total params: {total:,} ({size(nbytes)})")
    print(f"Trainable params: {trained:,}\nNon-trainable params: {total - trained:,}")
    return {"total_params": total, "trainable_params": trained}


@door("flops")
def flops(
    net: Layer | Program,
    input_size: Any = None,
    custom_ops: Mapping[type[Layer], Callable[..., Any]] | None = None,
    print_detail: bool = False,
) -> int:
    """Returns how many operations a network or a program takes, and prints the number.

    Of a network, convolutions and linear layers count (a multiplication and an addition are one), batch norm, averages and leaky
    relu, as Paddle counts them. Of a program, every operator of its main block counts whose definition states a cost, backward
    ones and updates included; matrix products and convolutions as above, elementwise operators one per element.

    Args:
        net: A Layer, or a Program.
        input_size: Shape of a Layer's input. For a Program: a dict of input name -> shape; sizes that it leaves open are 1.
        custom_ops: Class -> ``(layer, shapes of inputs, shapes of outputs) -> number``, for layers of your own.
        print_detail: Print a line per layer or operator, too.

    Raises:
        ProgramTypeError: If ``net`` is neither a Layer nor a Program.
        ProgramError: For sizes below 1.

    Example:
        >>> net = paddle.vision.models.LeNet()
        >>> import contextlib, io
        >>> with contextlib.redirect_stdout(io.StringIO()):
        ...     found = paddle.flops(net, [1, 1, 28, 28])
        >>> found
        347560
    """
    check_type(net, (Layer, Program), "net", "flops", expected="a paddle.nn.Layer or a static.Program")
    if not isinstance(net, Program):
        return model_summary.flops(net, input_size, custom_ops, print_detail)
    _for_layers_only("flops", custom_ops=custom_ops)
    rows = op_rows(net, _sizes(net, input_size, "flops"))
    total = sum(r.flops for r in rows)
    if print_detail:
        head = ("Op Type", "Role", "Output Shape", "Flops", "Line")
        listed = [(r.type, r.role, str(list(r.output)), f"{r.flops:,}", r.where) for r in rows if r.flops]
        for line in _table(head, listed):
            print(line)
    print(f"Total Flops: {total}     Total Params: {sum(math.prod(p.shape) for p in net.all_parameters())}")
    return total


def _sizes(program: Program, given: Any, function: str) -> Mapping[str, Sequence[int]]:
    """Returns input -> shape: a dict as it is, one shape for the only input.

    Raises:
        ProgramError: If a name is not that of an input, or one shape is given for several inputs.
    """
    if given is None:
        return {}
    inputs = [v.name for v in program.global_block().vars.values() if v.is_data]
    if not isinstance(given, Mapping):
        if len(inputs) != 1:
            raise ProgramError(
                f"'input_size' of {function} is one shape, and the program has {len(inputs)} inputs",
                expected=f"a dict of shapes for {', '.join(inputs) or 'its inputs'}, or None",
                received=shown(given),
                fix="pass {'x': (32, 784)}, for example",
                op=function,
            )
        given = {inputs[0]: given}
    for name in given:
        check_known(name, inputs, f"'input_size' of {function} names no input of the program:")
    return {name: tuple(shape) for name, shape in given.items()}


def _for_layers_only(function: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ProgramError(
                f"'{name}' of {function} is for Layers",
                expected="None for a Program, which declares its inputs and has no layers",
                received=shown(value),
                fix=f"leave '{name}' out",
                op=function,
            )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    numbers = [i for i, name in enumerate(head) if name in ("Param #", "FLOPs", "Flops")]
    for at, row in enumerate((head, *rows)):
        cells = (f"{t:>{w}}" if i in numbers else f"{t:<{w}}" for i, (t, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()
        if not at:
            yield "-" * (sum(widths) + 2 * len(widths) - 2)
