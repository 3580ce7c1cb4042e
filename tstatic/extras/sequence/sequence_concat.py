"""Sequences joined one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, each, lengths_of, offsets_from, spans
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_not_empty, check_same_dtype
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.ops.base.gradients import zeros
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import ANY, emit_one


def _check_counts(counts: Sequence[int]) -> None:
    if len(set(counts)) > 1:
        raise ShapeError(
            "sequence_concat joins as many sequences of each input",
            expected="inputs with equal numbers of sequences",
            received=f"{', '.join(map(str, counts))} sequences",
            fix="feed one sequence per sample for each input, an empty one where there is nothing",
        )


def _infer(xs: Sequence[Meta], offsets: Sequence[Meta]) -> tuple[Meta, Meta]:
    check_not_empty(xs, "X")
    check_same_dtype(xs, "X")
    for x, one in zip(xs, offsets, strict=True):
        check_sequences(x, one)
    if any(x.shape[1:] != xs[0].shape[1:] and x.known and xs[0].known for x in xs):
        raise ShapeError(
            "sequence_concat joins rows of one shape",
            expected=f"rows of shape {list(xs[0].shape[1:])}",
            received=", ".join(str(list(x.shape[1:])) for x in xs),
            fix="bring the inputs to one width with layers.fc",
        )
    sizes = [x.shape[0] for x in xs]
    known = [one.shape[0] for one in offsets if one.shape[0] != UNKNOWN]
    _check_counts([size - 1 for size in known])
    rows = UNKNOWN if UNKNOWN in sizes else sum(sizes)
    return xs[0].with_shape((rows, *xs[0].shape[1:])), Meta((known[0] if known else UNKNOWN,), int64)


def _places(offsets: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Returns the offsets of the joined sequences, and for each input the places of its rows."""
    _check_counts([len(one) - 1 for one in offsets])
    lengths = [lengths_of(one) for one in offsets]
    # Sequence i of the result is as long as sequences i of all inputs together.
    joined = offsets_from(np.sum(lengths, axis=0))
    # A sequence of an input begins behind those of the inputs before it.
    before = np.cumsum([np.zeros_like(lengths[0]), *lengths[:-1]], axis=0)
    return joined, [spans(joined[:-1] + start, one) for start, one in zip(before, lengths, strict=True)]


def _ref(xs: Sequence[Array], offsets: Sequence[Array], out: Array, out_offsets: Array) -> None:
    joined, places = _places(offsets)
    for x, place in zip(xs, places, strict=True):
        out[place] = x
    if out_offsets is not None:
        np.copyto(out_offsets, joined)


def _back(xs: Sequence[Array], offsets: Sequence[Array], dout: Array, dxs: Sequence[Array | None]) -> None:
    for dx, place in zip(dxs, _places(offsets)[1], strict=True):
        # Every row of every input is one row of the result: a gather writes all of `dx`. Indices are right, so nothing is clipped.
        if dx is not None:
            np.take(dout, place, axis=0, out=dx, mode="clip")


def _back_grad(ctx: GradContext) -> list[OpSpec]:
    wanted = ctx.in_grads.get(ctx.inputs[f"Out{GRAD}"][0])
    names = ctx.outputs[f"X{GRAD}"]
    if wanted is None or not any(n in ctx.out_grads for n in names):
        return []
    specs: list[OpSpec] = []
    # The op is linear: its second derivative joins what arrives, zeros where nothing does.
    parts = [ctx.out_grads.get(n) or zeros(ctx, x, specs) for x, n in zip(ctx.inputs["X"], names, strict=True)]
    inputs = {"X": parts, f"X{LOD}": ctx.inputs[f"X{LOD}"]}
    return [*specs, OpSpec("sequence_concat", inputs, {"Out": [wanted]})]


def _lower(torch: Any, xs: Sequence[Any], offsets: Sequence[Any]) -> Any:
    groups = list(zip(*(each(torch, x, one) for x, one in zip(xs, offsets, strict=True)), strict=True))
    parts = [torch.cat(group) for group in groups]
    return torch.cat(parts), torch.cumsum(torch.tensor([0, *map(len, parts)]), 0)


def _lower_back(torch: Any, xs: Sequence[Any], offsets: Sequence[Any], dout: Any) -> Any:
    lengths = torch.stack([one[1:] - one[:-1] for one in offsets], 1)
    # Sequence by sequence, input by input: the parts of one input are every len(xs)-th.
    parts = torch.split(dout, lengths.flatten().tolist())
    return ([torch.cat(parts[i :: len(xs)]) for i in range(len(xs))],)


register(OpDef(
    "sequence_concat", f"X*, X{LOD}* -> Out, Out{LOD}", infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X[:-1]",
    grad=GradOp(
        f"X*, X{LOD}*, Out{GRAD} -> X{GRAD}*", infer=lambda xs, offsets, dout: (list(xs),), ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back,
        shape_only=("X",), grad=_back_grad,
    ),
    domain=Domain(
        cases=(
            Case(([(7, 2), (7, 2)], [(4,), (4,)])), Case(([(5,)], [(3,)])), Case(([(3, 1), (3, 1), (3, 1)], [(2,), (2,), (2,)])),
            Case(([(0, 2), (0, 2)], [(3,), (3,)])),
        ),
        values={f"X{LOD}": ValueRange(dtype="int64", offsets="X.0")}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("static.nn.sequence_concat", "fluid.layers.sequence_concat", op="sequence_concat")
def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Joins sequence 0 of each input, then sequence 1 of each, and so on.

    Args:
        input: Variables ``[rows, ...]`` with a LoD of as many sequences each.
        name: Name of the layer.

    Returns:
        All rows, with the LoD of the joined sequences.

    Raises:
        ProgramError: If an input has no LoD.
        ShapeError: If rows differ in shape, or, when the program runs, inputs in their number of sequences.

    Example:
        >>> x = static.data("x", [None, 1], "int64", lod_level=1)
        >>> y = static.nn.sequence_concat([x, x])
        >>> feed = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]])
        >>> done = static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0]
        >>> np.array(done).ravel().tolist(), done.lod()
        ([1, 2, 1, 2, 3, 3], [[0, 4, 6]])
    """
    inputs = [check_variable(x, "input", "sequence_concat") for x in input]
    return emit_one("sequence_concat", {"X": inputs}, name=name)
