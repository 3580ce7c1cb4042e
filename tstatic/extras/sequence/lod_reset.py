"""The same rows in other sequences: lod_reset and lod_append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.extras.sequence._offsets import Array
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_dtype
from tstatic.ir.opdef import LOD, Case, Domain, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, int64
from tstatic.ops.base.gradients import grad_is_op
from tstatic.ops.base.shapes import ANY, emit_one

_Y = ValueRange(dtype="int64", offsets="X.0")


def _check(levels: Sequence[Array], rows: int) -> None:
    """Checks that offsets divide the rows.

    Raises:
        ShapeError: If not.
    """
    # A level's last offset counts the sequences of the next level; that of the innermost one counts rows.
    ends = [*(len(level) - 1 for level in levels[1:]), rows]
    for level, end in zip(levels, ends, strict=True):
        if len(level) == 0 or level[0] != 0 or level[-1] != end or (np.diff(level) < 0).any():
            raise ShapeError(
                "these offsets do not divide the rows",
                expected=f"offsets from 0, rising, to {end}",
                received=level.tolist()[:12],
                fix="offsets, not lengths, are wanted: [0, 2, 5] for sequences of 2 and 3 rows",
            )


def _levels(y: Any, y_levels: Any, target_lod: Sequence[int]) -> list[Any]:
    """Returns the new offsets: those of ``Y``, its values, or the attribute."""
    if y_levels:
        return list(y_levels)
    return [y] if y is not None else [target_lod]


# ------------------------------------------------------------------------------------------------------------ lod_reset
def _infer(
    x: Meta, y: Meta | None, y_levels: Sequence[Meta] | None, target_lod: Sequence[int]
) -> tuple[Meta, list[Meta]]:
    if y is not None and not y_levels:
        check_dtype(y, INDICES, "Y")
    made = [m if isinstance(m, Meta) else Meta((len(m),), int64) for m in _levels(y, y_levels, target_lod)]
    return x, [Meta(m.shape[:1], int64) for m in made]


def _ref(
    x: Array, y: Array | None, y_levels: Sequence[Array] | None, out: Array | None, offsets: Sequence[Array], *,
    target_lod: Sequence[int],
) -> None:  # fmt: skip
    # Y may be int32 or a column; a LoD is a vector of int64.
    levels = [np.asarray(level, np.int64).reshape(-1) for level in _levels(y, y_levels, target_lod)]
    _check(levels, len(x))
    if out is not None:
        np.copyto(out, x)
    # Not strict: offsets that nobody reads have no array.
    for made, level in zip(offsets or (), levels, strict=False):
        np.copyto(made, level)


def _read(op: PaddleOp) -> OpSpec:
    # Paddle has one operator for both; here they differ in their number of outputs, so in their definitions.
    return op.made("lod_append" if op.attrs.get("append") else "", attrs=op.without("append"))


def _lower(torch: Any, x: Any, y: Any, y_levels: Any, *, target_lod: Sequence[int]) -> Any:
    levels = y_levels or [y if y is not None else torch.tensor(target_lod)]
    return x.clone(), [level.to(torch.int64).clone() for level in levels]


register(OpDef(
    "lod_reset", f"X, Y?, Y{LOD}*? -> Out, Out{LOD}*", paddle=PaddleForm(read=_read),
    attrs={
        "target_lod": Attr((), "ints"),
        "append": Attr(False, "bool", lambda on: "False; operator lod_append adds a level" if on else None),
    },
    infer=_infer, ref=_ref, lower=_lower, effects=True, grad=grad_is_op("assign"),
    domain=Domain(
        cases=(
            Case(((7, 2), (4,), None)), Case(((5, 2), None, None), {"target_lod": (0, 2, 5)}), Case(((6,), (6,), [(3,)])),
        ),
        values={"Y": _Y, f"Y{LOD}": _Y}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("fluid.layers.lod_reset", op="lod_reset")
def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """Returns the same rows, divided into other sequences.

    Args:
        x: ``[rows, ...]``, with or without a LoD.
        y: Whose LoD the result has; of a Variable without one, the values are the offsets (int64 or int32).
        target_lod: The offsets where ``y`` is ``None``: ``[0, 2, 5]`` for sequences of 2 and 3 rows.

    Raises:
        ProgramError: If neither ``y`` nor ``target_lod`` is given.
        ShapeError: When the program runs, if the offsets do not divide the rows.

    Example:
        >>> x = static.data("x", [None, 1])
        >>> y = fluid.layers.lod_reset(x, target_lod=[0, 2, 3])
        >>> z = fluid.layers.sequence_pool(y, "sum")
        >>> static.Executor().run(feed={"x": np.array([[1], [2], [3]], "float32")}, fetch_list=[z])[0].tolist()
        [[3.0], [3.0]]
    """
    x = check_variable(x, "x", "lod_reset")
    if y is not None:
        # With a LoD, Y gives its LoD and may hold anything; without one, its values are the offsets.
        y = check_variable(y, "y", "lod_reset") if y.lod else check_variable(y, "y", "lod_reset", INDICES)
        return emit_one("lod_reset", {"X": x, "Y": y})
    if target_lod is None:
        raise ProgramError(
            "y and target_lod should not be both none",
            expected="a Variable as y, or a list of offsets as target_lod",
            received="neither",
            fix="pass target_lod=[0, 2, 5] for sequences of 2 and 3 rows",
            op="lod_reset",
        )
    return emit_one("lod_reset", {"X": x}, {"target_lod": list(target_lod)})


# ----------------------------------------------------------------------------------------------------------- lod_append
def _append_infer(x: Meta, levels: Sequence[Meta], y: Meta | None, target_lod: Sequence[int]) -> tuple[Meta, Meta]:
    if y is not None:
        check_dtype(y, INDICES, "Y")
    return x, Meta((len(target_lod),), int64) if y is None else Meta(y.shape[:1], int64)


def _append(
    x: Array, levels: Sequence[Array], y: Array | None, out: Array | None, offsets: Array | None, *,
    target_lod: Sequence[int],
) -> None:  # fmt: skip
    level = np.asarray(target_lod if y is None else y, np.int64).reshape(-1)
    # What the innermost level counts are now the new sequences.
    _check([*levels, level], len(x))
    if out is not None:
        np.copyto(out, x)
    if offsets is not None:
        np.copyto(offsets, level)


def _append_lower(torch: Any, x: Any, levels: Any, y: Any, *, target_lod: Sequence[int]) -> Any:
    return x.clone(), torch.tensor(target_lod) if y is None else y.to(torch.int64)


register(OpDef(
    "lod_append", f"X, X{LOD}*, Y? -> Out, Out{LOD}", attrs={"target_lod": Attr((), "ints")}, infer=_append_infer,
    paddle=PaddleForm(write=lambda op: [op.made("lod_reset", attrs={**op.attrs, "append": True})]), ref=_append,
    lower=_append_lower, effects=True, grad=grad_is_op("assign"), lod="X",
    domain=Domain(
        cases=(Case(((6, 2), [(4,)], (7,))), Case(((5,), [(3,)], None), {"target_lod": (0, 1, 2, 3, 4, 5)})),
        values={f"X{LOD}": _Y, "Y": ValueRange(dtype="int64", offsets="X.0")}, others=ANY, ulps=0,
    ),
    complex="linear",
))  # fmt: skip


@export("fluid.layers.lod_append", op="lod_append")
def lod_append(x: Variable, level: Variable | Sequence[int]) -> Variable:
    """Returns the same rows with one more level of sequences inside the others.

    Args:
        x: ``[rows, ...]`` with a LoD, whose innermost level counts the sequences of the new one.
        level: The offsets of the new level, which divide the rows: a list, or a Variable (int64 or int32).

    Raises:
        ProgramError: If ``x`` has no LoD.
        ShapeError: When the program runs, if the offsets do not fit.

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = fluid.layers.lod_append(x, [0, 1, 2, 3])
        >>> feed = fluid.create_lod_tensor(np.zeros((3, 1), "float32"), [[2, 1]])
        >>> static.Executor().run(feed={"x": feed}, fetch_list=[y], return_numpy=False)[0].lod()
        [[0, 2, 3], [0, 1, 2, 3]]
    """
    x = check_variable(x, "x", "lod_append")
    if isinstance(level, Variable):
        return emit_one("lod_append", {"X": x, "Y": check_variable(level, "level", "lod_append", INDICES)})
    return emit_one("lod_append", {"X": x}, {"target_lod": list(level)})
