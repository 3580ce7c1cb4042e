"""``paddle.summary`` and ``paddle.flops`` of a Layer: its layers with shapes, parameters and operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.ir import names
from tstatic.ir.checks import check_type
from tstatic.ir.declare import data, program_guard
from tstatic.ir.program import Program, Variable
from tstatic.nn.layer import activation, common, conv, norm, pooling
from tstatic.nn.layer.container import LayerList, Sequential
from tstatic.nn.layer.layers import Layer

Call = tuple[Layer, list[tuple[int, ...]], list[tuple[int, ...]]]
"""A layer, and the shapes of its inputs and outputs."""
Count = Callable[[Any, Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]], int]
"""``(layer, shapes of inputs, shapes of outputs)``: the operations of a call."""


# ----------------------------------------------------------------------------------------------------------------- calls
def _shapes(value: Any) -> list[tuple[int, ...]]:
    """Returns the shapes of the Variables in a value, in lists and tuples too."""
    if isinstance(value, Variable):
        return [tuple(value.shape)]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [shape for item in items for shape in _shapes(item)]


def _inputs(input_size: Any, dtypes: Any, given: Any, function: str) -> list[tuple[tuple[int, ...], Any]]:
    """Returns the shape and dtype of each input; an unknown size counts as 1.

    Raises:
        ProgramError: Without sizes and inputs, or with a size below 1.
    """
    if given is not None:
        items = [*given.values()] if isinstance(given, dict) else given if isinstance(given, list | tuple) else [given]
        return [(_sizes(np.shape(v) if not isinstance(v, Variable) else v.shape, function), _dtype(v)) for v in items]
    if input_size is None:
        raise ProgramError(
            "input_size and input cannot be None at the same time",
            expected="the shape of an input",
            received="neither",
            fix=f"paddle.{function}(net, (1, 3, 224, 224))",
            op=function,
        )
    if hasattr(input_size, "shape"):  # an InputSpec
        input_size = [input_size]
    if not isinstance(input_size, int | list | tuple):
        raise ProgramTypeError(
            f"'input_size' of {function} is not a shape",
            expected="the shape of an input, an InputSpec, or a list of them",
            received=shown(input_size),
            fix=f"paddle.{function}(net, (1, 3, 224, 224))",
            op=function,
            var="input_size",
        )
    given_sizes = [input_size] if isinstance(input_size, int) else list(input_size)
    sizes = [input_size] if all(isinstance(n, int | None) for n in given_sizes) else given_sizes
    kinds = list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes] * len(sizes)
    if len(kinds) != len(sizes):
        raise ProgramError(
            f"'dtypes' of {function} has not one entry per input",
            expected=f"{len(sizes)} dtypes",
            received=shown(dtypes),
            fix="give one dtype for all inputs, or a list",
            op=function,
        )
    return [
        (_sizes(getattr(size, "shape", size), function), kind or getattr(size, "dtype", None) or "float32")
        for size, kind in zip(sizes, kinds, strict=True)
    ]


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype.name


def _sizes(shape: Any, function: str) -> tuple[int, ...]:
    given = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    found = tuple(1 if n is None or n == -1 else n for n in given)
    if not all(isinstance(n, int | np.integer) and n > 0 for n in found):
        raise ProgramError(
            "Expected all dim in input_size to be int and larger than 0",
            expected="sizes of at least 1; -1 or None counts as 1",
            received=shown(shape),
            fix=f"paddle.{function}(net, (1, 3, 224, 224))",
            op=function,
        )
    return tuple(int(n) for n in found)


@contextmanager
def _evaluated(net: Layer) -> Iterator[None]:
    """Puts a network and what is in it into evaluation, and back."""
    modes = [(layer, layer.training) for layer in net.sublayers(include_self=True)]
    net.eval()
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training


def _calls(net: Any, inputs: Sequence[tuple[tuple[int, ...], Any]], function: str) -> list[Call]:
    """Returns the calls of layers in order, from building the network in a program that is thrown away."""
    check_type(net, Layer, "net", function, expected="a paddle.nn.Layer")
    found: list[Call] = []
    hooks = [
        layer.register_forward_post_hook(
            lambda layer, given, made: found.append((layer, _shapes(given), _shapes(made)))
        )
        for layer in net.sublayers(include_self=True)
    ]
    parameters = net.parameters()
    # The copy has the parameters; what is built in it leaves no trace in the network's own program.
    program = parameters[0].block.program.clone() if parameters else Program()
    try:
        with program_guard(program, Program()), names.guard(), _evaluated(net):
            net(*(data(f"summary_input_{i}", list(shape), dtype) for i, (shape, dtype) in enumerate(inputs)))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _own(layer: Layer) -> tuple[int, int]:
    """Returns the elements of a layer's own parameters, and of those that are trained."""
    own = [p for p in vars(layer)["_parameters"].values() if p is not None]
    return sum(math.prod(p.shape) for p in own), sum(math.prod(p.shape) for p in own if p.trainable)


# --------------------------------------------------------------------------------------------------------------- summary
def summary(net: Layer, input_size: Any = None, dtypes: Any = None, input: Any = None) -> dict[str, int]:
    """Prints the layers of a network in the order of their calls, and returns its number of parameters: see ``static/summary``."""
    inputs = _inputs(input_size, dtypes, input, "summary")
    # A layer that is called twice has one row, which says what its last call did, as in Paddle.
    rows: dict[str, tuple[str, str, int, int, int]] = {}
    for layer, given, out in _calls(net, inputs, "summary"):
        # The network itself is what all rows together say.
        if isinstance(layer, Sequential | LayerList) or (layer is net and rows):
            continue
        name = f"{type(layer).__name__}-{int(layer.full_name().rpartition('_')[2]) + 1}"
        shape = [list(s) for s in out]
        elements = sum(math.prod(s) for s in out)
        rows[name] = str([list(s) for s in given]), str(shape[0] if len(shape) == 1 else shape), *_own(layer), elements
    total, trained, made = (sum(row[i] for row in rows.values()) for i in (2, 3, 4))  # type: ignore[misc]
    head = ("Layer (type)", "Input Shape", "Output Shape", "Param #")
    table = [(name, given, out, f"{count:,}") for name, (given, out, count, *_) in rows.items()]
    widths = [max(least, *(len(row[i]) for row in (head, *table))) for i, least in enumerate((15, 20, 20, 15))]
    wide = sum(widths) + 5
    print("-" * wide)
    print(" ".join(f"{text:^{width}}" for text, width in zip(head, widths, strict=True)))
    print("=" * wide)
    for row in table:
        print(" ".join(f"{text:^{width}}" for text, width in zip(row, widths, strict=True)))
    print("=" * wide)
    print(f"Total params: {total:,}\nTrainable params: {trained:,}\nNon-trainable params: {total - trained:,}")
    print("-" * wide)
    megabytes = [4 * n / 2**20 for n in (sum(math.prod(shape) for shape, _ in inputs), 2 * made, total)]
    for what, size in zip(("Input", "Forward/backward pass", "Params"), megabytes, strict=True):
        print(f"{what} size (MB): {size:.2f}")
    print(f"Estimated Total Size (MB): {sum(megabytes):.2f}")
    print("-" * wide + "\n")
    return {"total_params": total, "trainable_params": trained}


# ----------------------------------------------------------------------------------------------------------------- flops
def _of_conv(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    window = math.prod(layer.weight.shape[2:])
    return int(math.prod(out[0]) * (given[0][1] / layer._groups * window + (layer.bias is not None)))


def _of_batch_norm(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    return 2 * math.prod(given[0])


def _of_linear(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    return int(layer.weight.shape[0]) * math.prod(out[0])


def _of_elements(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    return math.prod(out[0])


def _of_adaptive(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    return math.prod(out[0]) * (math.prod(a // b for a, b in zip(given[0][2:], out[0][2:], strict=True)) + 1)


def _nothing(layer: Any, given: Sequence[tuple[int, ...]], out: Sequence[tuple[int, ...]]) -> int:
    return 0


COUNTS: Mapping[type[Layer], Count] = {
    conv.Conv1D: _of_conv, conv.Conv2D: _of_conv, conv.Conv3D: _of_conv, conv.Conv1DTranspose: _of_conv,
    conv.Conv2DTranspose: _of_conv, norm.BatchNorm2D: _of_batch_norm, norm.BatchNorm: _of_batch_norm,
    common.Linear: _of_linear, activation.LeakyReLU: _of_elements, pooling.AvgPool1D: _of_elements,
    pooling.AvgPool2D: _of_elements, pooling.AdaptiveAvgPool1D: _of_adaptive, pooling.AdaptiveAvgPool2D: _of_adaptive,
    activation.ReLU: _nothing, activation.ReLU6: _nothing, common.Dropout: _nothing,
}  # fmt: skip
"""How Paddle counts the operations of a layer: a multiplication and the addition after it are one; other layers count as 0."""


def flops(
    net: Layer,
    input_size: Any,
    custom_ops: Mapping[type[Layer], Callable[..., Any]] | None = None,
    print_detail: bool = False,
) -> int:
    """Returns how many operations a network takes, as Paddle counts them, and prints the number: see ``static/summary``."""
    check_type(
        custom_ops,
        (Mapping, NoneType),
        "custom_ops",
        "flops",
        expected="a dict from a class of layers to what counts it",
    )
    counts: dict[type[Layer], Count] = {**COUNTS, **(custom_ops or {})}
    total = parameters = 0
    rows: list[tuple[str, ...]] = []
    for layer, given, out in _calls(net, _inputs(input_size, None, None, "flops"), "flops"):
        if any(True for _ in layer.children()):
            continue
        number, own = counts.get(type(layer), _nothing)(layer, given, out), _own(layer)[0]
        total, parameters = total + number, parameters + own
        shapes = (str(list(s[0])) if s else "[]" for s in (given, out))
        rows.append((layer.full_name(), *shapes, str(own), str(number)))
    if print_detail:
        head = ("Layer Name", "Input Shape", "Output Shape", "Params", "Flops")
        widths = [2 + max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        line = "+".join(["", *("-" * width for width in widths), ""])
        cells = ["|".join(["", *(f"{t:^{w}}" for t, w in zip(row, widths, strict=True)), ""]) for row in (head, *rows)]
        print("\n".join([line, cells[0], line, *cells[1:], line]))
    print(f"Total Flops: {total}     Total Params: {parameters}")
    return total
