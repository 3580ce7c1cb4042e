"""Softmax over the rows of each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, fold, owners
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.base.gradients import Emitter
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one


def _infer(x: Meta, offsets: Meta) -> Meta:
    check_sequences(x, offsets)
    return x


def _of_each_row(ufunc: np.ufunc, x: Array, offsets: Array) -> Array:
    """Returns what all rows of a sequence together give, in each of its rows."""
    folded = np.empty((len(offsets) - 1, *x.shape[1:]), x.dtype)
    fold(ufunc, x, offsets, folded)
    return folded[owners(offsets)]


@in_float32()
def _ref(x: Array, offsets: Array, out: Array) -> None:
    # Less the largest of the sequence, so that no exponential overflows: exp(89) is infinite in float32.
    np.subtract(x, _of_each_row(np.maximum, x, offsets), out=out)
    np.exp(out, out=out)
    np.divide(out, _of_each_row(np.add, out, offsets), out=out)


@in_float32()
def _back(offsets: Array, out: Array, dout: Array, dx: Array) -> None:
    np.multiply(out, dout, out=dx)
    dx -= out * _of_each_row(np.add, dx, offsets)


def _back_grad(ctx: GradContext) -> list[OpSpec]:
    e = Emitter(ctx)
    given = e.incoming(f"X{GRAD}")
    if given is None:
        return []
    out, dout, offsets = e.input("Out"), e.input(f"Out{GRAD}"), e.input(f"X{LOD}")

    def times(x: str, y: str) -> str:
        return e.emit("elementwise_mul", {"X": x, "Y": y})

    def of_each_row(x: str) -> str:
        pooled = e.emit("sequence_pool", {"X": x, f"X{LOD}": offsets}, pooltype="SUM")
        return e.emit("sequence_expand_as", {"X": pooled, "Y": x, f"Y{LOD}": offsets})

    # Linear in what arrives and symmetric, so its derivative by that is the op itself.
    if (wanted := e.wanted(f"Out{GRAD}")) is not None:
        e.emit("sequence_softmax_grad", {f"X{LOD}": offsets, "Out": out, f"Out{GRAD}": given}, wanted, slot=f"X{GRAD}")
    if (wanted := e.wanted("Out")) is not None:
        # The gradient was out * (dout - the sum of out * dout).
        first = times(given, e.emit("elementwise_sub", {"X": dout, "Y": of_each_row(times(out, dout))}))
        e.emit("elementwise_sub", {"X": first, "Y": times(dout, of_each_row(times(out, given)))}, wanted)
    return e.specs


def _lower(torch: Any, x: Any, offsets: Any) -> Any:
    return torch.cat([torch.softmax(torch_wide(part), 0) for part in each(torch, x, offsets)]).to(x.dtype)


def _lower_back(torch: Any, offsets: Any, out: Any, dout: Any) -> Any:
    pairs = zip(each(torch, torch_wide(out), offsets), each(torch, torch_wide(dout), offsets), strict=True)
    return torch.cat([y * (dy - (y * dy).sum(0)) for y, dy in pairs]).to(out.dtype)


register(OpDef(
    "sequence_softmax", f"X, X{LOD} -> Out",
    attrs={
        "use_cudnn": Attr.idle(False, LIBRARY), "data_format": Attr.idle("AnyLayout", "rows have no layout"),
    },
    infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X", amp="black",
    grad=GradOp(
        f"X{LOD}, Out, Out{GRAD} -> X{GRAD}", infer=lambda offsets, out, dout: out, ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back,
        grad=_back_grad,
    ),
    domain=Domain(
        cases=tuple(Case((shape, (n,))) for shape, n in (((7, 1), 4), ((6,), 3), ((9, 2), 9), ((1, 1), 2), ((0, 1), 3))),
        values={f"X{LOD}": OFFSETS}, ulps=16.0,
    ),
))  # fmt: skip


@export("static.nn.sequence_softmax", "fluid.layers.sequence_softmax", op="sequence_softmax")
@no_effect(use_cudnn=LIBRARY)
def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Divides the exponentials of the numbers of each sequence by their sum.

    Args:
        input: Float ``[rows, 1]`` or ``[rows]`` with a LoD; of wider rows, each column for itself.
        name: Name of the layer.

    Returns:
        As ``input``, with its LoD.

    Raises:
        ProgramError: If ``input`` has no LoD.

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = static.nn.sequence_softmax(x)
        >>> feed = fluid.create_lod_tensor(np.zeros((5, 1), "float32"), [[1, 4]])
        >>> done = static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]
        >>> np.array(done).ravel().tolist(), done.lod()
        ([1.0, 0.25, 0.25, 0.25, 0.25], [[0, 1, 5]])
    """
    x = check_variable(input, "input", "sequence_softmax", FLOATS)
    return emit_one("sequence_softmax", {"X": x}, name=name)
