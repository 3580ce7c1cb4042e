"""The labels of a CTC output: repeated classes merged, then blanks removed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import spans
from tstatic.extras.structured._sequences import Array, check_form, count_of, starts_and_lengths
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INDICES, check_dtype, check_int, check_rank
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.shapes import emit_one


def _infer(x: Meta, length: Meta | None, offsets: Meta | None) -> tuple[Meta, Meta | None, Meta | None]:
    check_dtype(x, INDICES, "Input")
    check_form(length, offsets, "input", "input_length")
    count = count_of(x, length, offsets)
    if length is not None:
        check_rank(x, 2, "Input", layout="[batch, steps]")
        return x, x.with_shape((count, 1)), None
    assert offsets is not None
    check_rank(x, (1, 2), "Input", layout="[rows, 1]")
    return x.with_shape((UNKNOWN, 1)), None, offsets


def _ref(
    x: Array, length: Array | None, offsets: Array | None, out: Any, out_length: Any, out_offsets: Any,
    *, blank: int, merge_repeated: bool, padding_value: int,
) -> tuple[Array, Array | None, Array | None]:  # fmt: skip
    starts, lengths = starts_and_lengths(x, length, offsets)
    classes = x.reshape(-1)[spans(starts, lengths)]
    kept = classes != blank
    if merge_repeated and len(classes):
        first = np.zeros(len(classes) + 1, bool)
        first[np.cumsum(lengths) - lengths] = True
        kept[1:] &= (classes[1:] != classes[:-1]) | first[1:-1]
    sequence = np.repeat(np.arange(len(lengths)), lengths)[kept]
    counts = np.bincount(sequence, minlength=len(lengths))
    if length is None:
        return classes[kept][:, None], None, np.concatenate(([0], np.cumsum(counts)))
    padded = np.full(x.shape, padding_value, x.dtype)
    padded[sequence, np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)] = classes[kept]
    return padded, counts[:, None].astype(x.dtype), None


def _lower(
    torch: Any, x: Any, length: Any, offsets: Any, *, blank: int, merge_repeated: bool, padding_value: int
) -> Any:
    if length is not None:
        rows = [row[:n] for row, n in zip(x.tolist(), length.reshape(-1).tolist(), strict=True)]
    else:
        flat, at = x.reshape(-1).tolist(), offsets.tolist()
        rows = [flat[i:j] for i, j in itertools.pairwise(at)]
    found = [
        [c for i, c in enumerate(row) if c != blank and not (merge_repeated and i and row[i - 1] == c)] for row in rows
    ]
    counts = torch.tensor([len(row) for row in found], dtype=torch.int64)
    if length is None:
        joined = torch.tensor([c for row in found for c in row], dtype=x.dtype)[:, None]
        return joined, None, torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    padded = torch.full_like(x, padding_value)
    for row, classes in zip(padded, found, strict=True):
        row[: len(classes)] = torch.tensor(classes, dtype=x.dtype)
    return padded, counts[:, None].to(x.dtype), None


register(OpDef(
    "ctc_align", "Input, InputLength?, Input@LOD? -> Output, OutputLength?, Output@LOD?",
    attrs={"blank": 0, "merge_repeated": True, "padding_value": 0}, infer=_infer, ref=_ref, lower=_lower,
    dynamic=Dynamic("the tokens that are kept"),
    domain=Domain(
        cases=(
            Case(((3, 6), (3,))), Case(((2, 5), (2, 1)), {"merge_repeated": False, "padding_value": -1}),
            Case(((2, 7), (2,)), {"blank": 2}), Case(((0, 4), (0,))),
            Case(((9, 1), None, (4,))),
        ),
        values={"Input": ValueRange(0, 2, dtype="int64"), "InputLength": ValueRange(0, "Input.1", dtype="int64"),
            "Input@LOD": ValueRange(dtype="int64", offsets="Input.0"),},
        floats=("float32",), ulps=0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("fluid.layers.ctc_greedy_decoder", op="ctc_align")
def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """Returns the best class of each step, repeated classes merged and blanks removed.

    Args:
        input: Scores or probabilities: ``[rows, classes]`` with lod_level 1, or padded ``[batch, steps, classes]``; floats.
        blank: The class that means "no label".
        input_length: ``[batch]`` or ``[batch, 1]``: how many steps of each padded sequence count.
        padding_value: What stands behind the labels of a padded sequence.
        name: Name of the layer.

    Returns:
        With a LoD the labels ``[rows, 1]``, int64, with their own LoD; padded the labels ``[batch, steps]`` and how many there
        are, ``[batch, 1]``.

    Raises:
        ProgramError: If ``input`` has neither a LoD nor lengths.
        ShapeError: If its rank does not fit.

    Example:
        >>> p = paddle.to_tensor([[[0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.9, 0.0, 0.1], [0.3, 0.6, 0.1]]])
        >>> labels, count = fluid.layers.ctc_greedy_decoder(p, blank=0, input_length=paddle.to_tensor([4]))
        >>> static.Executor().run(fetch_list=[labels, count])
        [array([[1, 1, 0, 0]]), array([[2]])]
    """
    function = "ctc_greedy_decoder"
    check_variable(input, "input", function, ("float32", "float64", "float16", "bfloat16"))
    padded = input_length is not None
    check_rank(
        input, 3 if padded else 2, "input", function, layout=f"[{'batch, steps' if padded else 'rows'}, classes]"
    )
    attrs = {
        "blank": check_int(blank, "blank", function, 0), "merge_repeated": True,
        "padding_value": check_int(padding_value, "padding_value", function),
    }  # fmt: skip
    if padded:
        best = emit_one("arg_max", {"X": input}, {"axis": -1})
        labels, count = emit("ctc_align", {"Input": best, "InputLength": input_length}, attrs, name=name)
        return labels, count
    _, indices = emit("top_k_v2", {"X": input}, {"k": 1})
    return emit_one("ctc_align", {"Input": indices}, attrs, name=name, drop=["OutputLength"])
