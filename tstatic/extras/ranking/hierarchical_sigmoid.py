"""The hierarchical sigmoid: a class as the leaf of a binary tree, and the logistic losses along the path to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.attrs import Attr, OpSpec
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    INDICES,
    check_dtype,
    check_has_shape,
    check_index,
    check_int,
    check_rank,
    check_same_dtype,
    check_size,
)
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp, respelled
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.no_effect import no_effect
from tstatic.ops.base.host import READS_PATHS
from tstatic.ops.base.indexing import add_rows
from tstatic.ops.base.shapes import emit_one
from tstatic.tuned._common import Array

FLOATS = ("float32", "float64")
DENSE = "the gradients of weight and bias are dense"
_LIMIT = 40.0
"""As in Paddle, what a node computes is clipped to 40 at most: exp stays finite in float32."""


def _infer(
    x: Meta, w: Meta, label: Meta, table: Meta | None, code: Meta | None, bias: Meta | None, *, num_classes: int
) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_same_dtype((x, w), ("X", "W"))
    check_rank(x, 2, "X", layout="[batch, features]")
    check_rank(w, 2, "W", layout="[nodes, features]")
    check_size(w, 1, x.shape[1], "W", why="one column for each feature of X")
    check_dtype(label, INDICES, "Label", fix="convert the labels with paddle.cast(label, 'int64')")
    check_fit(
        label.rank in (1, 2) and label.shape[1:] in ((), (1,), (UNKNOWN,)), (x, label), ("X", "Label"),
        "the labels of a hierarchical sigmoid do not fit its input", "labels of shape [batch, 1]", "reshape the labels",
    )  # fmt: skip
    check_size(label, 0, x.shape[0], "Label", why="one class for each row of X")
    if (table is None) != (code is None):
        raise ProgramError(
            "a tree of one's own needs the nodes of each path and the codes along it",
            expected="path_table and path_code, or neither",
            received="only one of them",
            fix="pass both, each [batch, longest path]",
        )
    if bias is not None:
        check_same_dtype((x, bias), ("X", "Bias"))
        check_has_shape(bias, (w.shape[0], 1), "Bias", why="one value for each node")
    steps = _steps(num_classes)
    if table is not None and code is not None:
        for meta, name in ((table, "PathTable"), (code, "PathCode")):
            check_dtype(meta, INDICES, name)
            check_rank(meta, 2, name, layout="[batch, longest path]")
            check_size(meta, 0, x.shape[0], name, why="one path for each row of X")
        check_size(code, 1, table.shape[1], "PathCode", why="one code for each node of PathTable")
        steps = table.shape[1]
    elif num_classes < 2:
        raise ProgramError(
            "num_classes must not be less than 2 with default tree",
            expected="at least 2 classes",
            received=f"num_classes={num_classes}",
            fix="pass the number of classes",
        )
    elif w.shape[0] != UNKNOWN:
        check_fit(
            w.shape[0] >= num_classes - 1, (w,), ("W",), "a tree of so many classes has more nodes than the weight has rows",
            f"{num_classes - 1} rows", "make the weight [num_classes - 1, features]",
        )  # fmt: skip
    batch = max(x.shape[0], label.shape[0])
    return x.with_shape((batch, 1)), x.with_shape((batch, steps))


def _steps(num_classes: int) -> int:
    """Returns the length of the longest path in the complete tree."""
    return (num_classes - 1).bit_length()


class _Paths:
    """The paths of a batch.

    Attributes:
        nodes: ``[batch, steps]``: rows of the weight; 0 behind the end of a path.
        codes: ``[batch, steps]``: 1 where a path turns right.
        inside: ``[batch, steps]``: false behind its end.
    """

    def __init__(self, label: Array, table: Array | None, code: Array | None, num_classes: int, rows: int) -> None:
        if table is not None and code is not None:
            # A path ends before its first negative node.
            self.inside = np.logical_and.accumulate(table >= 0, axis=1)
            self.nodes, self.codes = np.where(self.inside, table, 0), np.where(self.inside, code, 0)
            check_index(self.nodes, rows, "PathTable")
            return
        # Leaf c of the complete tree has the number c + classes; halving a number leads to the root, which is 1.
        leaf = label.reshape(-1, 1).astype(np.int64) + num_classes
        steps = np.arange(_steps(num_classes))
        above = leaf >> (steps + 1)
        self.inside = above > 0
        self.nodes, self.codes = np.where(self.inside, above - 1, 0), np.where(self.inside, leaf >> steps & 1, 0)


def _ref(
    x: Array, w: Array, label: Array, table: Any, code: Any, bias: Any, out: Array | None, pre: Array | None,
    *, num_classes: int,
) -> None:  # fmt: skip
    paths = _Paths(label, table, code, num_classes, len(w))
    # In float64, rounded once when stored: the loss adds up logarithms along a whole path.
    scores = np.einsum("bsf,bf->bs", w[paths.nodes], x, dtype=np.float64)
    if bias is not None:
        scores += bias.reshape(-1)[paths.nodes]
    np.clip(scores, -_LIMIT, _LIMIT, out=scores)
    scores[~paths.inside] = 0
    if pre is not None:
        np.copyto(pre, scores)
    if out is not None:
        # As in Paddle, the steps behind the end of a path cost log(2) each.
        out[:, 0] = (np.logaddexp(0, scores) - paths.codes * scores).sum(axis=1)


def _grad_ref(
    x: Array, w: Array, label: Array, table: Any, code: Any, bias: Any, pre: Array, dout: Array,
    dx: Array | None, dw: Array | None, dbias: Array | None, *, num_classes: int,
) -> None:  # fmt: skip
    paths = _Paths(label, table, code, num_classes, len(w))
    # Through the clipping as if it were not there, as in Paddle.
    by_score = (1 / (1 + np.exp(-pre.astype(np.float64))) - paths.codes) * dout.reshape(-1, 1) * paths.inside
    if dx is not None:
        np.copyto(dx, np.einsum("bs,bsf->bf", by_score, w[paths.nodes]))
    nodes = paths.nodes.reshape(-1)
    if dw is not None:
        dw.fill(0)
        # `add_rows` sums the rows of a node first: every path starts at the root, so its row is written many times.
        add_rows(
            dw,
            nodes,
            (by_score[:, :, None] * x[:, None, :]).reshape(-1, x.shape[1]).astype(dw.dtype, copy=False),
            fresh=True,
        )
    if dbias is not None:
        dbias.fill(0)
        add_rows(dbias, nodes, by_score.reshape(-1, 1).astype(dbias.dtype, copy=False), fresh=True)


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch_paths(torch: Any, label: Any, table: Any, code: Any, num_classes: int) -> tuple[Any, Any, Any]:
    if table is not None:
        inside = (table >= 0).cumprod(1).bool()
        return torch.where(inside, table, 0).long(), torch.where(inside, code, 0), inside
    nodes, codes = [], []
    # A walk from the leaf, written apart from the shifts of the reference, which tests compare it with.
    for c in label.reshape(-1).tolist():
        path = []
        leaf = c + num_classes
        while leaf > 1:
            path.append((leaf // 2 - 1, leaf % 2))
            leaf //= 2
        path += [(-1, 0)] * (_steps(num_classes) - len(path))
        nodes.append([n for n, _ in path])
        codes.append([b for _, b in path])
    shape = (len(nodes), _steps(num_classes))
    at = torch.tensor(nodes, dtype=torch.int64, device=label.device).reshape(shape)
    return at.clamp(min=0), torch.tensor(codes, device=label.device).reshape(shape), at >= 0


def _torch_scores(torch: Any, x: Any, w: Any, bias: Any, nodes: Any, inside: Any) -> Any:
    scores = (w[nodes].double() * x[:, None]).sum(-1)
    if bias is not None:
        scores = scores + bias.reshape(-1)[nodes]
    return torch.where(inside, scores.clamp(-_LIMIT, _LIMIT), 0)


def _lower(torch: Any, x: Any, w: Any, label: Any, table: Any, code: Any, bias: Any, *, num_classes: int) -> Any:
    nodes, codes, inside = _torch_paths(torch, label, table, code, num_classes)
    scores = _torch_scores(torch, x, w, bias, nodes, inside)
    # softplus turns linear above its threshold; within the limit of 40 it stays the exact form.
    loss = torch.nn.functional.softplus(scores, threshold=100) - codes * scores
    return loss.sum(1, keepdim=True).to(x.dtype), scores.to(x.dtype)


def _grad_lower(
    torch: Any, x: Any, w: Any, label: Any, table: Any, code: Any, bias: Any, pre: Any, dout: Any, *, num_classes: int
) -> Any:
    nodes, codes, inside = _torch_paths(torch, label, table, code, num_classes)
    by_score = (pre.double().sigmoid() - codes) * dout * inside
    rows = by_score.new_zeros(w.shape)
    dw = rows.index_add(0, nodes.flatten(), (by_score[..., None] * x[:, None]).flatten(0, 1))
    dx = (by_score[..., None] * w[nodes]).sum(1)
    dbias = rows[:, :1].index_add(0, nodes.flatten(), by_score.reshape(-1, 1))
    return dx.to(x.dtype), dw.to(w.dtype), None if bias is None else dbias.to(x.dtype)


# --------------------------------------------------------------------------------------------------------- op definition
def _read(op: PaddleOp) -> OpSpec:
    """Paddle's op also lists the weight among its outputs, which it does not write."""
    return op.made(outputs={slot: names for slot, names in op.outputs.items() if slot != "W_Out"})


_INPUTS = "X, W, Label, PathTable?, PathCode?, Bias?"
# With paths given the labels are not read, so they need no check.
_INDICES = (
    Index(
        "Label", lambda x, w, label, table, *rest, num_classes: num_classes if table is None else None,
        fix="check the labels, or the number of classes ({size})",
    ),
    Index("PathTable", lambda x, w, *rest: w.shape[0], some=True),
)  # fmt: skip

register(OpDef(
    "hierarchical_sigmoid", f"{_INPUTS} -> Out, PreOut~",
    attrs={
        "num_classes": 2, "is_sparse": Attr.idle(False, DENSE),
        "remote_prefetch": Attr.idle(False, "there are no parameter servers"),
    },
    infer=_infer, ref=_ref, traits=(READS_PATHS,), lower=_lower, amp="black", uses_blas=True, indices=_INDICES,
    paddle=PaddleForm(_read, respelled(notes={"W_Out": "float32"}).write),
    grad=GradOp(
        f"{_INPUTS}, PreOut, Out@GRAD -> X@GRAD, W@GRAD, Bias@GRAD", ref=_grad_ref, traits=(READS_PATHS,), lower=_grad_lower,
        shape_only=("Bias",), indices=_INDICES,
    ),
    domain=Domain(
        cases=(
            Case(((4, 3), (5, 3), (4, 1), None, None, (5, 1)), {"num_classes": 6}),
            Case(((3, 2), (1, 2), (3, 1), None, None, None), {"num_classes": 2}),
            Case(((5, 4), (8, 4), (5,), None, None, (8, 1)), {"num_classes": 8}),
            Case(((3, 2), (6, 2), (3, 1), (3, 4), (3, 4), (6, 1)), {"num_classes": 7}),
            Case(((0, 2), (4, 2), (0, 1), None, None, None), {"num_classes": 5}),
        ),
        values={
            "Label": ValueRange(0, "num_classes", dtype="int64"), "PathTable": ValueRange(-1, "W.0", dtype="int64"),
            "PathCode": ValueRange(0, 1, dtype="int64"),
        },
        floats=FLOATS,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@no_effect(is_sparse=DENSE)
@export("nn.functional.hsigmoid_loss", op="hierarchical_sigmoid")
def hsigmoid_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    weight: Variable,
    bias: Variable | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns minus the logarithm of the probability of a class, as the product of the turns on the way to it in a binary tree.

    It costs as many products as the path is long: with the complete tree of ``num_classes`` leaves, their logarithm. As in Paddle,
    the steps that a path is shorter than the longest one add log(2) each.

    Args:
        input: ``[batch, features]``, float32 or float64.
        label: Class numbers ``[batch, 1]`` or ``[batch]``, int64.
        num_classes: Number of classes, at least 2.
        weight: ``[num_classes - 1, features]``, a row for each inner node, the root first.
        bias: ``[num_classes - 1, 1]``.
        path_table: ``[batch, longest path]``, int64: for a tree of one's own the rows of the weight from the class to the
            root, filled up with -1. ``weight`` and ``bias`` have as many rows as it names.
        path_code: The same shape: 1 where the path to the class turns right, else 0.
        is_sparse: Has no effect.
        name: Name of the layer.

    Returns:
        ``[batch, 1]``.

    Raises:
        ProgramError: If there are fewer than 2 classes, or only one of the path's two parts.
        ShapeError, DTypeError: If the arguments do not fit together.
        IndexRangeError: At run time, for a class or a node that is not there.

    Example:
        >>> x, label = paddle.to_tensor([[0.9, 0.9, 0.9]]), paddle.to_tensor([[1]])
        >>> w = paddle.full([1, 3], 0.05)
        >>> loss = paddle.nn.functional.hsigmoid_loss(x, label, 2, w)
        >>> static.Executor().run(fetch_list=[loss])[0]
        array([[0.6279]], dtype=float32)
    """
    function = "hsigmoid_loss"
    ins = {
        "X": check_variable(input, "input", function, FLOATS),
        "Label": check_variable(label, "label", function, INDICES),
    }
    ins["W"] = check_variable(weight, "weight", function, FLOATS)
    given = {"Bias": (bias, "bias"), "PathTable": (path_table, "path_table"), "PathCode": (path_code, "path_code")}
    ins |= {slot: check_variable(v, arg, function) for slot, (v, arg) in given.items() if v is not None}
    attrs = {"num_classes": check_int(num_classes, "num_classes", function, 2)}
    return emit_one("hierarchical_sigmoid", ins, attrs, name=name)
