"""Calls of torch's convolutions, pools and recurrences: odd, uneven and empty sizes, groups, dilation, padding, directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A call: a function of float tensors of the given shapes.

    Attributes:
        function: Returns a tensor or a list of them.
        shapes: Shapes of its arguments.
        spared: Arguments, by place, that hold no special values: filters that meet padding, or zeros between the places of an
            image. These times infinity are NaN here, and torch leaves them out (docs/from_torch.md).
    """

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    spared: tuple[int, ...] = ()


def _each(rank: int, *values: int) -> Shape:
    """Returns one value for each axis, starting over where there are more axes."""
    return tuple(values[i % len(values)] for i in range(rank))


def convolutions(rank: int) -> dict[str, Case]:
    """Returns the convolutions over ``rank`` axes."""
    conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    n = partial(_each, rank)

    def case(
        batch: int, channels: int, out: int, size: Shape, kernel: Shape, bias: bool = False, **options: Any
    ) -> Case:
        groups = options.get("groups", 1)
        shapes = [(batch, channels, *size), (out, channels // groups, *kernel), *([(out,)] if bias else [])]
        spared = () if options.get("padding", 0) in (0, "valid") else (1,)
        return Case(lambda x, w, b=None: conv(x, w, b, **options), tuple(shapes), spared)

    return {
        "plain": case(2, 3, 4, n(7, 5), n(3), bias=True),
        "uneven": case(2, 3, 2, n(8, 5, 6), n(3, 2, 1), bias=True, stride=n(2, 1, 3), padding=n(1, 0, 2), dilation=n(1, 2)),
        "stride beyond the filter": case(1, 2, 3, n(7), n(2), stride=3),
        "dilated": case(2, 2, 3, n(7, 6), n(3, 2), padding=2, dilation=2),
        "groups": case(2, 4, 6, n(5), n(3), padding=1, groups=2),
        "depthwise": case(2, 3, 3, n(5, 4), n(3), bias=True, padding=1, groups=3),
        "depthwise, two filters each": case(1, 3, 6, n(5), n(2), stride=2, groups=3),
        "same": case(1, 2, 2, n(5, 4), n(3), padding="same"),
        "same, even filter": case(2, 2, 2, n(5, 4), n(2, 4), padding="same", dilation=n(1, 2)),
        "valid": case(2, 2, 2, n(4, 5), n(3), padding="valid", stride=2),
        "filter of one": case(2, 3, 2, n(4, 3), n(1), bias=True),
        "image of one": case(2, 3, 2, n(1), n(1)),
        "image of one, padded": case(1, 2, 3, n(1), n(3), bias=True, padding=1),
        "filter of the image's size": case(2, 2, 3, n(4, 3), n(4, 3)),
        "one channel": case(1, 1, 1, n(5, 3), n(2)),
        "no batch": case(0, 3, 2, n(5, 4), n(3), bias=True),
        "no batch, depthwise": case(0, 2, 4, n(4), n(3), padding=1, groups=2),
        "without a batch axis": Case(
            lambda x, w, b: conv(x, w, b, padding=1), ((3, *n(5, 4)), (2, 3, *n(3)), (2,)), (1,)
        ),
    }  # fmt: skip


def transposed(rank: int) -> dict[str, Case]:
    """Returns the transposed convolutions over ``rank`` axes."""
    conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    n = partial(_each, rank)

    def case(
        batch: int, channels: int, out: int, size: Shape, kernel: Shape, bias: bool = False, **options: Any
    ) -> Case:
        groups = options.get("groups", 1)
        shapes = [(batch, channels, *size), (channels, out // groups, *kernel), *([(out,)] if bias else [])]
        return Case(lambda x, w, b=None: conv(x, w, b, **options), tuple(shapes), (1,))

    return {
        "plain": case(2, 3, 4, n(4, 3), n(3), bias=True),
        "uneven": case(
            2,
            3,
            2,
            n(4, 3, 2),
            n(3, 2, 4),
            stride=n(2, 1, 3),
            padding=n(1, 0),
            output_padding=n(1, 0, 2),
            dilation=n(1, 2),
        ),
        "stride": case(1, 2, 3, n(3, 4), n(3), bias=True, stride=2, padding=1, output_padding=1),
        "stride beyond the filter": case(1, 2, 2, n(3), n(2), stride=3, output_padding=2),
        "dilated": case(2, 2, 3, n(4, 3), n(3, 2), padding=1, dilation=2),
        "groups": case(2, 4, 6, n(3, 4), n(3), stride=2, groups=2),
        "depthwise": case(2, 3, 3, n(4, 3), n(3), bias=True, padding=1, groups=3),
        "depthwise, two filters each": case(1, 3, 6, n(3), n(2), stride=2, groups=3),
        "filter of one": case(2, 3, 2, n(4, 3), n(1), bias=True),
        "image of one": case(2, 3, 2, n(1), n(3), padding=1),
        "no batch": case(0, 3, 2, n(3, 4), n(3), bias=True),
        "without a batch axis": Case(lambda x, w, b: conv(x, w, b), ((3, *n(4, 3)), (3, 2, *n(3)), (2,)), (1,)),
    }


def pools(rank: int) -> dict[str, Case]:
    """Returns the pools over ``rank`` axes."""
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    adaptive = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[rank - 1]
    adaptive_max = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[rank - 1]
    n = partial(_each, rank)

    def case(function: Callable[..., Any], batch: int, size: Shape, *given: Any, **options: Any) -> Case:
        return Case(lambda x: function(x, *given, **options), ((batch, 2, *size),))

    found = {
        "average": case(average, 2, n(7, 5), n(3, 2)),
        "average, padded": case(average, 2, n(7, 6), 3, 2, 1),
        "average, padding left out": case(average, 2, n(7, 6), 3, 2, 1, count_include_pad=False),
        "average, uneven": case(average, 2, n(7, 6), n(3, 2, 4), n(1, 3), n(1, 0, 2)),
        "average, ceil": case(average, 2, n(7, 6), 3, 2, ceil_mode=True),
        "average, ceil, far steps": case(average, 2, n(7, 8), 2, 4, ceil_mode=True),
        "average, ceil, padded": case(average, 2, n(7, 6), 3, 2, 1, ceil_mode=True),
        "average, ceil, padded wide": case(average, 1, n(5, 4), 4, 3, 2, ceil_mode=True),
        "average, ceil, padding left out": case(average, 2, n(7, 6), 3, 2, 1, ceil_mode=True, count_include_pad=False),
        "average, image of one": case(average, 1, n(1), 1),
        "average, no batch": case(average, 0, n(5), 2),
        "average, without a batch axis": Case(lambda x: average(x, 2), ((2, *n(5)),)),
        "largest": case(largest, 2, n(7, 5), n(3, 2)),
        "largest, padded": case(largest, 2, n(7, 6), 3, 2, 1),
        "largest, uneven": case(largest, 2, n(7, 6), n(3, 2, 4), n(1, 3), n(1, 0, 2)),
        "largest, ceil": case(largest, 2, n(7, 6), 3, 2, ceil_mode=True),
        "largest, ceil, far steps": case(largest, 2, n(7, 8), 2, 4, ceil_mode=True),
        "largest, ceil, padded": case(largest, 1, n(5, 4), 4, 3, 2, ceil_mode=True),
        "largest, image of one, padded": case(largest, 1, n(1), 2, 1, 1),
        "largest, no batch": case(largest, 0, n(5), 2),
        "largest, without a batch axis": Case(lambda x: largest(x, 2), ((2, *n(5)),)),
        "places": case(largest, 2, n(7, 5), n(3, 2), return_indices=True),
        "places, padded": case(largest, 2, n(7, 6), 3, 2, 1, return_indices=True),
        "places, overlapping": case(largest, 1, n(6, 5), 3, 1, return_indices=True),
        "places, ceil": case(largest, 1, n(5, 4), 4, 3, 2, ceil_mode=True, return_indices=True),
        "places, no batch": case(largest, 0, n(5), 2, return_indices=True),
        "adaptive": case(adaptive, 2, n(7, 5), n(3, 2)),
        "adaptive, one": case(adaptive, 2, n(7, 5), 1),
        "adaptive, more than there are": case(adaptive, 1, n(3, 2), n(5, 4)),
        "adaptive, same": case(adaptive, 2, n(4, 3), n(4, 3)),
        "adaptive, image of one": case(adaptive, 2, n(1), n(1, 3)),
        "adaptive, no batch": case(adaptive, 0, n(5), 2),
        "adaptive, without a batch axis": Case(lambda x: adaptive(x, 2), ((2, *n(5)),)),
        "adaptive largest": case(adaptive_max, 2, n(7, 5), n(3, 2)),
        "adaptive largest, places": case(adaptive_max, 2, n(7, 5), n(3, 2), return_indices=True),
        "adaptive largest, more than there are": case(adaptive_max, 1, n(3, 2), n(5, 4), return_indices=True),
        "adaptive largest, no batch": case(adaptive_max, 0, n(5), 2),
    }  # fmt: skip
    if rank > 1:
        axes = tuple(None if i else 3 for i in range(rank))
        found |= {
            "average, divisor": case(average, 2, n(7, 5), 3, 2, 1, divisor_override=5),
            "average, divisor, ceil": case(average, 2, n(7, 6), 3, 2, ceil_mode=True, divisor_override=3),
            "average, divisor, ceil, padded": case(average, 2, n(7, 6), 3, 2, 1, True, divisor_override=-7),
            "average, divisor, left out": case(average, 2, n(7, 5), 3, 2, 1, False, False, divisor_override=2),
            "average, image of one, padded": case(average, 1, n(1), 2 if rank < 3 else 1, 1, 1 if rank < 3 else 0),
            "adaptive, some axes": case(adaptive, 2, n(7, 5), axes),
        }
    return found


def recurrences(kind: str) -> dict[str, Case]:
    """Returns the recurrences of a kind: ``"lstm"``, ``"gru"``, ``"rnn_tanh"`` or ``"rnn_relu"``."""
    run, gates, states = getattr(torch, kind), {"lstm": 4, "gru": 3}.get(kind, 1), 2 if kind == "lstm" else 1

    def case(
        batch: int, steps: int, size: int, width: int, layers: int = 1, both: bool = False, first: bool = False,
        biases: bool = True,
    ) -> Case:  # fmt: skip
        directions = 1 + both
        shapes: list[Shape] = [(batch, steps, size) if first else (steps, batch, size)]
        shapes += [(layers * directions, batch, width)] * states
        for layer in range(layers):
            read = width * directions if layer else size
            own = [(gates * width, read), (gates * width, width), *([(gates * width,)] * 2 if biases else [])]
            shapes += own * directions

        def function(x: Any, *given: Any) -> list[Any]:
            state = list(given[:2]) if kind == "lstm" else given[0]
            return [*run(x, state, list(given[states:]), biases, layers, 0.0, False, both, first)]

        return Case(function, tuple(shapes))

    return {
        "plain": case(2, 3, 3, 4),
        "batch first": case(2, 3, 3, 4, first=True),
        "both directions": case(3, 4, 2, 3, both=True),
        "layers": case(2, 3, 3, 2, layers=3),
        "layers, both directions, batch first": case(2, 3, 3, 2, layers=2, both=True, first=True),
        "without biases": case(2, 3, 3, 4, biases=False),
        "without biases, layers, both directions": case(1, 2, 3, 2, layers=2, both=True, biases=False),
        "one of each": case(1, 1, 1, 1),
        "one step": case(3, 1, 2, 3, both=True),
        "one step, layers": case(2, 1, 2, 3, layers=2, first=True),
        "batch of one": case(1, 5, 3, 2),
        "no batch": case(0, 3, 2, 3),
        "no batch, both directions, batch first": case(0, 3, 2, 3, layers=2, both=True, first=True),
        "width of one": case(2, 4, 3, 1, both=True),
    }


KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
FAMILIES: dict[str, dict[str, Case]] = {
    f"{kind} {rank}": make(rank)
    for kind, make in (("convolutions", convolutions), ("transposed", transposed), ("pools", pools))
    for rank in (1, 2, 3)
} | {kind: recurrences(kind) for kind in KINDS}


class Family(torch.nn.Module):
    """All calls of a family; their arguments are parameters ``<number of the call>_<place>``."""

    def __init__(self, calls: dict[str, Case], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.calls = calls
        for number, call in enumerate(calls.values()):
            for place, shape in enumerate(call.shapes):
                self.register_parameter(f"p{number}_{place}", torch.nn.Parameter(torch.randn(shape, dtype=dtype)))

    def arguments(self, name: str) -> list[Any]:
        """Returns the parameters that a call reads."""
        number = list(self.calls).index(name)
        return [self.get_parameter(f"p{number}_{place}") for place in range(len(self.calls[name].shapes))]

    def forward(self, x: Any) -> dict[str, Any]:
        return {name: call.function(*self.arguments(name)) for name, call in self.calls.items()}
