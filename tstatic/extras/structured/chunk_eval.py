"""Precision, recall and F1 of the chunks (names, phrases) that a labelling marks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import spans
from tstatic.extras.structured._sequences import Array, check_form, count_of, starts_and_lengths
from tstatic.ir.attrs import one_of
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INDICES,
    check_choice,
    check_dtype,
    check_index,
    check_int,
    check_ints,
    check_rank,
    same_shape,
)
from tstatic.ir.opdef import Attr, Case, Domain, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import Meta, float32, int64
from tstatic.ops.base.host import READS_LENGTHS

SCHEMES = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "-"}
"""Scheme -> what each of a type's tags says: the beginning, inside, the end of a chunk, or a single one."""


def _infer(inference: Meta, label: Meta, length: Meta | None, offsets: Meta | None) -> tuple[Meta, ...]:
    for name, meta in (("Inference", inference), ("Label", label)):
        check_dtype(meta, INDICES, name)
    check_form(length, offsets, "input", "seq_length")
    check_rank(inference, (2, 3) if length is not None else (1, 2), "Inference", layout="[batch, steps]")
    check_fit(
        same_shape(inference.shape, label.shape), (inference, label), ("Inference", "Label"),
        "the tags found and the tags wanted have different shapes", f"Label of shape {list(inference.shape)}",
        "reshape one of them",
    )  # fmt: skip
    count_of(inference, length, offsets)
    share, number = Meta((1,), float32), Meta((1,), int64)
    return share, share, share, number, number, number


def _chunks(tags: Array, first: Array, scheme: str, types: int, excluded: Sequence[int]) -> tuple[Array, Array, Array]:
    """Returns where chunks begin (a truth value per row), the last row of the chunk that begins there, and the type per row.

    Args:
        tags: Of all sequences, one after the other.
        first: Whether a row is the first of its sequence.
        scheme: One of :data:`SCHEMES`.
        types: Number of types; the tag behind those of all types is outside.
        excluded: Types that do not count.
    """
    says = np.array([*SCHEMES[scheme]])
    kind = tags // len(says)
    tag = says[tags % len(says)]
    # Before its first row a sequence is outside.
    kind_before = np.where(first, types, np.roll(kind, 1))
    tag_before = np.roll(tag, 1)
    inside = kind != types
    goes_on = kind == kind_before
    new = (tag == "B") | (tag == "S") | (tag_before == "E") | (tag_before == "S")
    begins = inside & (~goes_on | (new & (tag != "-")))
    # A chunk ends before the next begins, before a row outside, and at the end of its sequence.
    ends = np.flatnonzero(np.append((begins | ~inside | first)[1:], True)[: len(tags)] & inside)
    last = np.zeros(len(tags), np.int64)
    last[begins] = ends
    return begins & ~np.isin(kind, excluded), last, kind


def _tags(*ins: Any, num_chunk_types: int, chunk_scheme: str) -> int:
    """Returns the number of tags."""
    return num_chunk_types * len(SCHEMES[chunk_scheme]) + 1


def _ref(
    inference: Array,
    label: Array,
    length: Array | None,
    offsets: Array | None,
    *outs: Array | None,
    num_chunk_types: int,
    chunk_scheme: str,
    excluded_chunk_types: Sequence[int],
) -> None:
    starts, lengths = starts_and_lengths(inference, length, offsets, "SeqLength")
    rows = spans(starts, lengths)
    first = np.zeros(len(rows) + 1, bool)
    first[np.cumsum(lengths) - lengths] = True
    found = []
    for name, tags in (("Inference", inference), ("Label", label)):
        tags = tags.reshape(-1)[rows].astype(np.int64)
        size = _tags(num_chunk_types=num_chunk_types, chunk_scheme=chunk_scheme)
        check_index(
            tags, size, name, fix=f"{num_chunk_types} types of chunks in scheme {chunk_scheme} have {size} tags"
        )
        found.append(_chunks(tags, first[:-1], chunk_scheme, num_chunk_types, excluded_chunk_types))
    (a, a_last, a_kind), (b, b_last, b_kind) = found
    right = int((a & b & (a_last == b_last) & (a_kind == b_kind)).sum())
    mine, wanted = int(a.sum()), int(b.sum())
    precision, recall = right / max(mine, 1), right / max(wanted, 1)
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    for out, value in zip(outs, (precision, recall, f1, mine, wanted, right), strict=True):
        if out is not None:
            out.fill(value)


def _lower(
    torch: Any, inference: Any, label: Any, length: Any, offsets: Any, *, num_chunk_types: int, chunk_scheme: str,
    excluded_chunk_types: Sequence[int],
) -> Any:  # fmt: skip
    says = SCHEMES[chunk_scheme]

    def spans_of(tags: list[int]) -> set[tuple[int, int, int]]:
        chunks: set[tuple[int, int, int]] = set()
        begin, kind, last = -1, -1, ""
        for i, tag in enumerate([*tags, num_chunk_types * len(says)]):
            now, word = tag // len(says), says[tag % len(says)]
            fresh = now != kind or word in "BS" or last in ("E", "S")
            if begin >= 0 and fresh:
                chunks.add((begin, i, kind))
                begin = -1
            if fresh:
                begin = i if now != num_chunk_types else -1
            kind, last = now, word
        return {c for c in chunks if c[2] not in excluded_chunk_types}

    def listed(x: Any) -> list[list[int]]:
        if length is not None:
            return [
                row[:n] for row, n in zip(x.reshape(x.shape[:2]).tolist(), length.reshape(-1).tolist(), strict=True)
            ]
        at = offsets.tolist()
        return [x.reshape(-1).tolist()[i:j] for i, j in itertools.pairwise(at)]

    a, b = ({(k, *c) for k, row in enumerate(listed(x)) for c in spans_of(row)} for x in (inference, label))
    right = len(a & b)
    precision, recall = right / max(len(a), 1), right / max(len(b), 1)
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    shares = [torch.tensor([v], dtype=torch.float32) for v in (precision, recall, f1)]
    return (*shares, *(torch.tensor([v]) for v in (len(a), len(b), right)))


register(OpDef(
    "chunk_eval",
    "Inference, Label, SeqLength?, Inference@LOD? -> Precision, Recall, F1-Score, NumInferChunks, NumLabelChunks, "
    "NumCorrectChunks",
    attrs={
        "num_chunk_types": Attr(kind="int"), "chunk_scheme": Attr("IOB", "str", one_of(*SCHEMES)),
        "excluded_chunk_types": Attr((), "ints"),
    },
    infer=_infer, ref=_ref, traits=(READS_LENGTHS,), lower=_lower,
    indices=tuple(Index(slot, _tags, some=True) for slot in ("Inference", "Label")),
    domain=Domain(
        cases=(
            Case(((4, 9), (4, 9), (4,)), {"num_chunk_types": 2}),
            Case(((2, 9, 1), (2, 9, 1), (2, 1)), {"num_chunk_types": 3, "chunk_scheme": "IOE"}),
            Case(((4, 9), (4, 9), (4,)), {"num_chunk_types": 1, "chunk_scheme": "IOBES"}),
            Case(((4, 9), (4, 9), (4,)), {"num_chunk_types": 4, "chunk_scheme": "plain", "excluded_chunk_types": (1,)}),
            Case(((0, 9), (0, 9), (0,)), {"num_chunk_types": 2}),
            Case(((9, 1), (9, 1), None, (4,)), {"num_chunk_types": 2}),
        ),
        values={
            "Inference": ValueRange(0, 4, dtype="int64"), "Label": ValueRange(0, 4, dtype="int64"),
            "SeqLength": ValueRange(0, "Inference.1", dtype="int64"),
            "Inference@LOD": ValueRange(dtype="int64", offsets="Inference.0"),
        },
        floats=("float32",), ulps=1,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("fluid.layers.chunk_eval", op="chunk_eval")
def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, Variable, Variable, Variable, Variable, Variable]:
    """Counts the chunks that tags mark, and those that begin, end and are typed as wanted.

    A tag is ``type * tags_per_type + position``; the tag behind all of these is outside. The positions are in scheme ``"IOB"``
    begin and inside, in ``"IOE"`` inside and end, in ``"IOBES"`` begin, inside, end and single, and in ``"plain"`` one: chunks
    are runs of a type.

    Args:
        input: The tags found: ``[rows, 1]`` with lod_level 1, or padded ``[batch, steps]``; int64.
        label: The tags wanted, of the same shape.
        chunk_scheme: One of the schemes above.
        num_chunk_types: Number of types.
        excluded_chunk_types: Types that do not count.
        seq_length: ``[batch]``: steps of each padded sequence.

    Returns:
        Precision, recall and F1 (float32), the numbers of chunks found, wanted and right (int64), each ``[1]``; a share of
        nothing is 0.

    Raises:
        ProgramError: For another scheme, or if ``input`` has neither a LoD nor lengths.
        IndexRangeError: At run time, if a tag is out of range.

    Example:
        >>> found = paddle.to_tensor([[0, 1, 2, 0]])
        >>> wanted = paddle.to_tensor([[0, 1, 2, 2]])
        >>> n = paddle.to_tensor([4])
        >>> precision, recall, f1, *_ = fluid.layers.chunk_eval(found, wanted, "IOB", 1, seq_length=n)
        >>> static.Executor().run(fetch_list=[precision, recall])
        [array([0.5], dtype=float32), array([1.], dtype=float32)]
    """
    function = "chunk_eval"
    for arg, value in (("input", input), ("label", label)):
        check_variable(value, arg, function, INDICES)
    excluded = excluded_chunk_types or ()
    attrs = {
        "chunk_scheme": check_choice(chunk_scheme, tuple(SCHEMES), "chunk_scheme", function),
        "num_chunk_types": check_int(num_chunk_types, "num_chunk_types", function, 1),
        "excluded_chunk_types": check_ints(excluded, len(excluded), "excluded_chunk_types", function),
    }
    ins = {"Inference": input, "Label": label, "SeqLength": seq_length}
    found: tuple[Variable, Variable, Variable, Variable, Variable, Variable] = emit("chunk_eval", ins, attrs)
    return found
