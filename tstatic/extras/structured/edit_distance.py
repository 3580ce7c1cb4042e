"""The least number of insertions, deletions and substitutions between two sequences; sequences without some tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError
from tstatic.extras.sequence._offsets import OFFSETS
from tstatic.extras.structured._sequences import Array, check_form, count_of, starts_and_lengths
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INTEGERS, check_dtype, check_ints, check_rank, check_same_dtype, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta, float32, int64
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.shapes import emit_one


def _infer(
    hyps: Meta, refs: Meta, hyps_length: Meta | None, refs_length: Meta | None, hyps_offsets: Meta | None,
    refs_offsets: Meta | None,
) -> tuple[Meta, Meta]:  # fmt: skip
    counts = []
    for arg, slot, x, length, offsets in (
        ("input", "Hyps", hyps, hyps_length, hyps_offsets), ("label", "Refs", refs, refs_length, refs_offsets),
    ):  # fmt: skip
        check_form(length, offsets, arg, f"{arg}_length")
        check_dtype(x, INTEGERS, slot)
        check_rank(x, 2 if length is not None else (1, 2), slot, layout="[batch, tokens]")
        counts.append(count_of(x, length, offsets))
    check_same_dtype((hyps, refs), ("Hyps", "Refs"))
    check_fit(
        UNKNOWN in counts or counts[0] == counts[1], (hyps, refs), ("Hyps", "Refs"),
        "there must be one reference for each sequence", f"{counts[0]} references", "feed as many of both",
    )  # fmt: skip
    return Meta((1,), int64), Meta((max(counts), 1), float32)


def _padded(x: Array, starts: Array, lengths: Array) -> Array:
    """Returns ``[sequences, longest]``; what stands behind a sequence is arbitrary."""
    columns = np.arange(int(lengths.max(initial=0)))
    flat = x.reshape(-1)
    return np.asarray(flat[np.minimum(starts[:, None] + columns, max(len(flat) - 1, 0))])


def _distances(hyps: Array, hyp_lengths: Array, refs: Array, ref_lengths: Array) -> Array:
    """Returns the number of edits for each pair of padded rows.

    A row of the table of distances between beginnings follows from the one before at once: edits that insert tokens of the
    reference cost 1 for each column, so they are a running minimum after each column's own number is taken off.
    """
    columns = np.arange(refs.shape[1] + 1)
    row = np.broadcast_to(columns, (len(hyps), len(columns)))
    pairs = np.arange(len(hyps)), ref_lengths
    found = row[pairs]
    for i in range(hyps.shape[1]):
        best = row + 1
        np.minimum(best[:, 1:], row[:, :-1] + (refs != hyps[:, i, None]), out=best[:, 1:])
        row = np.minimum.accumulate(best - columns, axis=1) + columns
        found = np.where(hyp_lengths == i + 1, row[pairs], found)
    return found


def _ref(
    hyps: Array,
    refs: Array,
    hyps_length: Array | None,
    refs_length: Array | None,
    hyps_offsets: Array | None,
    refs_offsets: Array | None,
    number: Array | None,
    out: Array | None,
    *,
    normalized: bool,
) -> None:
    at, lengths = starts_and_lengths(hyps, hyps_length, hyps_offsets, "HypsLength")
    to, wanted = starts_and_lengths(refs, refs_length, refs_offsets, "RefsLength")
    if normalized and not wanted.all():
        raise FeedError(
            f"reference {int(np.argmin(wanted))} of edit_distance is empty, so no distance can be divided by its length",
            expected="at least one token in each reference",
            received=f"lengths {wanted.tolist()}"[:200],
            fix="pass normalized=False, or leave empty references out",
        )
    if number is not None:
        number.fill(len(lengths))
    if out is not None:
        found = _distances(_padded(hyps, at, lengths), lengths, _padded(refs, to, wanted), wanted)
        out[:, 0] = found / wanted if normalized else found


def _lower(
    torch: Any, hyps: Any, refs: Any, hyps_length: Any, refs_length: Any, hyps_offsets: Any, refs_offsets: Any,
    *, normalized: bool,
) -> Any:  # fmt: skip
    def listed(x: Any, length: Any, offsets: Any) -> list[list[int]]:
        if length is not None:
            return [row[:n] for row, n in zip(x.tolist(), length.reshape(-1).tolist(), strict=True)]
        at = offsets.tolist()
        return [x.reshape(-1).tolist()[i:j] for i, j in itertools.pairwise(at)]

    found = []
    for a, b in zip(listed(hyps, hyps_length, hyps_offsets), listed(refs, refs_length, refs_offsets), strict=True):
        row = list(range(len(b) + 1))
        for i, token in enumerate(a):
            last, row = row, [i + 1]
            for j, other in enumerate(b):
                row.append(min(last[j] + (token != other), last[j + 1] + 1, row[j] + 1))
        found.append(row[-1] / len(b) if normalized else row[-1])
    return torch.tensor([len(found)]), torch.tensor(found, dtype=torch.float32).reshape(-1, 1)


_TOKENS = ValueRange(0, 3, dtype="int64")

register(OpDef(
    "edit_distance", "Hyps, Refs, HypsLength?, RefsLength?, Hyps@LOD?, Refs@LOD? -> SequenceNum, Out",
    attrs={"normalized": False}, infer=_infer, ref=_ref, traits=(READS_LENGTHS,), lower=_lower,
    indices=(
        Index("HypsLength", lambda hyps, *rest: hyps.shape[1] + 1, some=True),
        Index("RefsLength", lambda hyps, refs, *rest: refs.shape[1] + 1, some=True),
    ),
    domain=Domain(
        cases=(
            Case(((3, 4), (3, 5), (3,), (3,))), Case(((2, 6), (2, 3), (2, 1), (2,)), {"normalized": True}),
            Case(((0, 3), (0, 2), (0,), (0,))),
            Case(((7, 1), (6, 1), None, None, (4,), (4,))),
        ),
        values={
            "Hyps": _TOKENS, "Refs": _TOKENS, "HypsLength": ValueRange(0, "Hyps.1", dtype="int64"),
            "RefsLength": ValueRange(1, "Refs.1", dtype="int64"),
            "Hyps@LOD": ValueRange(dtype="int64", offsets="Hyps.0"),
            "Refs@LOD": ValueRange(dtype="int64", offsets="Refs.0"),
        },
        floats=("float32",), ulps=1,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------- sequence_erase
def _erase_infer(x: Meta, offsets: Meta) -> tuple[Meta, Meta]:
    check_dtype(x, INTEGERS, "X")
    check_rank(x, (1, 2), "X", layout="[rows, 1]")
    return x.with_shape((UNKNOWN, *x.shape[1:])), offsets


def _erase_ref(x: Array, offsets: Array, out: Any, out_offsets: Any, *, tokens: Sequence[int]) -> tuple[Array, Array]:
    kept = ~np.isin(x.reshape(-1), tokens)
    return x[kept], np.concatenate(([0], np.cumsum(kept)))[offsets]


def _erase_lower(torch: Any, x: Any, offsets: Any, *, tokens: Sequence[int]) -> Any:
    kept = ~torch.isin(x.reshape(-1), torch.tensor(tokens, dtype=x.dtype))
    zero = torch.zeros(1, dtype=torch.int64)
    return x[kept], torch.cat([zero, kept.cumsum(0)])[offsets.long()]


register(OpDef(
    "sequence_erase", "X, X@LOD -> Out, Out@LOD", attrs={"tokens": Attr((), "ints")}, infer=_erase_infer,
    ref=_erase_ref, lower=_erase_lower, dynamic=Dynamic("the tokens that are kept"),
    domain=Domain(
        cases=(Case(((7, 1), (4,)), {"tokens": (1, 3)}), Case(((5,), (3,))), Case(((0, 1), (1,)), {"tokens": (0,)})),
        values={"X": _TOKENS, "X@LOD": OFFSETS}, floats=("float32",), others=("int32",), ulps=0,
    ),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------- public functions
@export("fluid.layers.edit_distance", op="edit_distance")
def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Returns the least number of insertions, deletions and substitutions that turn each sequence into its reference.

    Args:
        input: Tokens: ``[rows, 1]`` with lod_level 1, or padded ``[batch, tokens]`` with ``input_length``; ints.
        label: The references, likewise.
        normalized: Divide by the length of the reference.
        ignored_tokens: Tokens that are left out of both; they need sequences with a LoD.
        input_length, label_length: ``[batch]``, of padded sequences.

    Returns:
        The distances ``[sequences, 1]``, float32, and the number of sequences ``[1]``, int64.

    Raises:
        ProgramError: If a value has neither a LoD nor lengths; or tokens are ignored in padded sequences.
        DTypeError: If both have not the same integer type.
        FeedError: At run time, if an empty reference should divide.

    Example:
        >>> a, b = paddle.to_tensor([[1, 2, 3]]), paddle.to_tensor([[1, 3, 4, 5]])
        >>> n, m = paddle.to_tensor([3]), paddle.to_tensor([4])
        >>> distance, count = fluid.layers.edit_distance(a, b, normalized=False, input_length=n, label_length=m)
        >>> static.Executor().run(fetch_list=[distance, count])
        [array([[3.]], dtype=float32), array([1])]
    """
    function = "edit_distance"
    for arg, value in (("input", input), ("label", label)):
        check_variable(value, arg, function, INTEGERS)
    check_type(normalized, bool, "normalized", function)
    if ignored_tokens:
        tokens = check_ints(ignored_tokens, len(ignored_tokens), "ignored_tokens", function)
        input, label = (emit_one("sequence_erase", {"X": x}, {"tokens": tokens}) for x in (input, label))
    ins = {"Hyps": input, "Refs": label, "HypsLength": input_length, "RefsLength": label_length}
    number, distance = emit("edit_distance", ins, {"normalized": normalized})
    return distance, number
