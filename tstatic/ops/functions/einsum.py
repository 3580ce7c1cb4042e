"""``einsum``: an equation over labelled axes as transposes, sums and matrix products."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir import names
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_main_program, program_guard
from tstatic.ir.opdef import export
from tstatic.ir.program import Program, Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one

_TERM = re.compile(r"^[A-Za-z]*(\.\.\.)?[A-Za-z]*$")


@dataclass(frozen=True, slots=True)
class Term:
    """A value whose axes have labels; the axes that ``...`` covers are labelled ``.0``, ``.1`` from the right."""

    value: Variable
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        return self.value.shape[self.labels.index(label)]


@export("tensor.einsum")
def einsum(equation: str, *operands: Variable) -> Variable:
    """Sums products over labelled axes, for example ``einsum("bij,bjk->bik", x, y)``.

    Three or more operands are combined pair by pair in the order with the fewest multiplications, each step one matrix
    product.

    Args:
        equation: Labels of each operand's axes, separated by commas, then ``->`` and the labels of the result. Without
            ``->`` the result has the labels that occur once, in alphabetical order. ``...`` means any further axes,
            which broadcast. A label that occurs twice in one operand takes the diagonal.
        *operands: One Variable per group of labels.

    Returns:
        A Variable whose axes are those of the result's labels.

    Raises:
        ProgramError: If the equation is malformed or does not fit the operands.
        ShapeError: If sizes with one label differ.
    """
    fix = "pass the equation first, then the operands"
    check_type(equation, str, "equation", "einsum", expected="a text such as 'ij,jk->ik'", fix=fix)
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    values = [check_variable(v, "operands", "einsum") for v in operands]
    terms, result = _read(equation, values)
    terms = [_diagonals(t) for t in terms]
    _check_sizes(terms)
    order = _order(terms, result)
    if order is not None and _fits(terms, order, result):
        return _contracted(terms, order, result)
    return _contracted(terms, [(0, 1)] * (len(terms) - 1), result)


def _contracted(terms: Sequence[Term], order: Sequence[tuple[int, int]], result: Sequence[str]) -> Variable:
    """Combines the terms at two positions at a time; what they give takes the first one's place."""
    left = list(terms)
    for i, j in order:
        second = left.pop(j)
        others = left[:i] + left[i + 1 :]
        left[i] = _combine(left[i], second, set(result).union(*(t.labels for t in others)))
    return _arranged(_summed(left[0], set(result)), result).value


# ---------------------------------------------------------------------------------------------------------------- order
STAND_IN = 64
"""The size that an unknown one counts as when orders are compared."""
EXHAUSTIVE = 6
"""Most operands for which all orders are compared; beyond, each step takes the pair that is best then."""


def _order(terms: Sequence[Term], result: Sequence[str]) -> list[tuple[int, int]] | None:
    """Returns positions of the pairs to combine, as numpy's ``einsum_path`` plans them; ``None`` where there is no choice."""
    labels = sorted({label for t in terms for label in t.labels})
    # numpy tells that many labels apart.
    # Two operands have one order.
    if len(terms) < 3 or len(labels) > 52:
        return None
    number = {label: i for i, label in enumerate(labels)}
    found = {label: max(t.size(label) for t in terms if label in t.labels) for label in labels}
    # A size of 0 would make all orders cost nothing.
    size = {label: STAND_IN if s == UNKNOWN else max(s, 1) for label, s in found.items()}
    operands: list[Any] = []
    for term in terms:
        shape = [1 if term.size(label) == 1 else size[label] for label in term.labels]
        # Broadcast from one number: the path reads shapes only, and operands of any size cost nothing.
        operands += [np.broadcast_to(np.float32(0), shape), [number[label] for label in term.labels]]
    how = "optimal" if len(terms) <= EXHAUSTIVE else "greedy"
    # 2**62: no bound on the memory of intermediate values, of which the numbers of operations alone decide.
    path, _ = np.einsum_path(*operands, [number[label] for label in result], optimize=(how, 2**62))
    return _pairs(path[1:], len(terms))


def _pairs(path: Sequence[Sequence[int]], count: int) -> list[tuple[int, int]]:
    """Converts a path whose results go to the end of the list to pairs whose results stay in the first one's place."""
    # Which operand stands where: first in numpy's list, then in ours.
    theirs, ours, pairs = list(range(count)), list(range(count)), []
    for positions in path:
        taken = sorted(theirs[p] for p in positions)
        for other in taken[1:]:
            i, j = sorted((ours.index(taken[0]), ours.index(other)))
            pairs.append((i, j))
            ours[i] = taken[0]
            del ours[j]
        theirs = [t for t in theirs if t not in taken] + [taken[0]]
    return pairs


def _fits(terms: Sequence[Term], order: Sequence[tuple[int, int]], result: Sequence[str]) -> bool:
    """Returns whether products can be taken in this order: not if a step would have to restore two unknown sizes."""
    if sum(UNKNOWN in t.value.shape for t in terms) == 0:
        return True
    # Tried out in a program that is thrown away: the ops that a failed order has emitted would stay in the user's.
    with names.guard(), program_guard(Program(), Program()):
        block = default_main_program().global_block()
        made = [
            block.create_var(name=f"operand_{i}", shape=t.value.shape, dtype=t.value.dtype) for i, t in enumerate(terms)
        ]
        try:
            _contracted([Term(v, t.labels) for v, t in zip(made, terms, strict=True)], order, result)
        except ShapeError:
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------- parse
def _refuse(equation: str, what: str, expected: str, fix: str) -> ProgramError:
    return ProgramError(
        f"the equation of einsum {what}", expected=expected, received=repr(equation), fix=fix, op="einsum",
    )  # fmt: skip


def _read(equation: str, values: Sequence[Variable]) -> tuple[list[Term], tuple[str, ...]]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    groups = left.split(",")
    if len(groups) != len(values) or not values:
        raise _refuse(
            equation,
            f"names {len(groups)} operands, but {len(values)} are given",
            f"{len(values)} groups of labels before '->'",
            "write one group of labels per operand, separated by commas",
        )
    for group in (*groups, right):
        if not _TERM.match(group):
            raise _refuse(
                equation, f"has a group that cannot be read: {group!r}", "letters, and '...' at most once",
                "name each axis by one letter",
            )  # fmt: skip
    terms = []
    widest = 0
    for group, value in zip(groups, values, strict=True):
        letters = group.replace("...", "")
        rest = len(value.shape) - len(letters)
        if rest < 0 or (rest > 0 and "..." not in group):
            raise _refuse(
                equation,
                f"gives {len(letters)} labels to an operand of shape {list(value.shape)}",
                f"{len(value.shape)} labels, or '...'",
                "write one letter per axis",
            )
        widest = max(widest, rest)
        terms.append(Term(value, _labels(group, rest)))
    if arrow:
        wanted = _labels(right, widest)
    else:
        every = [label for term in terms for label in term.labels]
        # numpy's rule for a missing arrow: labels that occur once, in alphabetical order, after those of `...`.
        once = sorted(label for label in set(every) if not label.startswith(".") and every.count(label) == 1)
        wanted = (*_labels("...", widest), *once)
    known = {label for term in terms for label in term.labels}
    if len(set(wanted)) < len(wanted) or not set(wanted) <= known:
        raise _refuse(
            equation, "has a result with a label that occurs twice, or in no operand",
            "different labels that operands have", "check the labels after '->'",
        )  # fmt: skip
    return terms, wanted


def _labels(group: str, rest: int) -> tuple[str, ...]:
    before, dots, after = group.partition("...")
    return (*before, *(f".{i}" for i in reversed(range(rest if dots else 0))), *after)


def _check_sizes(terms: Sequence[Term]) -> None:
    for label in {label for t in terms for label in t.labels}:
        # -1 and 1 fit any size.
        sizes = {t.size(label) for t in terms if label in t.labels} - {UNKNOWN, 1}
        groups = ["".join(t.labels) for t in terms]
        check_fit(
            len(sizes) <= 1, [t.value for t in terms], groups,
            f"axes with the label '{label}' of {','.join(groups)} differ in size", "one size, or 1",
            "check the shapes of the operands", "einsum",
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- steps
def _arranged(term: Term, labels: Sequence[str]) -> Term:
    """Puts the axes in the order of ``labels``."""
    if term.labels == tuple(labels):
        return term
    order = tuple(term.labels.index(label) for label in labels)
    return Term(emit_one("transpose2", {"X": term.value}, {"axis": order}), tuple(labels))


def _summed(term: Term, kept: set[str]) -> Term:
    """Sums over the labels that nothing needs any more."""
    dropped = tuple(i for i, label in enumerate(term.labels) if label not in kept)
    if not dropped:
        return term
    value = emit_one("reduce_sum", {"X": term.value}, {"dim": dropped})
    return Term(value, tuple(label for label in term.labels if label in kept))


def _diagonals(term: Term) -> Term:
    """Takes the diagonal of axes that share a label: every ``n + 1``-th of their ``n * n`` values."""
    # One pair at a time: a label that occurs three times is done in two rounds.
    while len(set(term.labels)) < len(term.labels):
        label = next(one for one in term.labels if term.labels.count(one) > 1)
        first = term.labels.index(label)
        second = term.labels.index(label, first + 1)
        size = term.value.shape[first]
        check_fit(
            UNKNOWN != size == term.value.shape[second], [term.value], ["operand"],
            f"a diagonal needs two known axes of one size for the label '{label}'", "equal, known sizes",
            "give both axes a known size", "einsum",
        )  # fmt: skip
        rest = [i for i in range(len(term.labels)) if i not in (first, second)]
        turned = emit_one("transpose2", {"X": term.value}, {"axis": (*rest, first, second)})
        shape = [turned.shape[i] for i in range(len(rest))]
        flat = _reshaped(turned, [*shape, size * size], len(rest))
        attrs = {"axes": (len(rest),), "starts": (0,), "ends": (size * size,), "strides": (size + 1,)}
        term = Term(emit_one("strided_slice", {"Input": flat}, attrs), (*(term.labels[i] for i in rest), label))
    return term


def _reshaped(value: Variable, shape: Sequence[int], kept: int) -> Variable:
    """Emits a ``reshape2`` in which the first ``kept`` axes stay, known or not, and one more size may be unknown."""
    if tuple(shape) == value.shape and UNKNOWN not in shape[kept:]:
        return value
    # 0 copies the size that stands there, so a size that is 0 must be found instead.
    wanted = [0 if i < kept else UNKNOWN if size == 0 else size for i, size in enumerate(shape)]
    check_fit(
        wanted.count(UNKNOWN) <= 1, [value], ["operand"],
        f"einsum would have to restore more than one unknown size, as {list(shape)}",
        "at most one unknown size among the axes that are merged", "give the axes known sizes in static.data", "einsum",
    )  # fmt: skip
    return emit_one("reshape2", {"X": value}, {"shape": tuple(wanted)})


def _combine(a: Term, b: Term, kept: set[str]) -> Term:
    """Emits one product of two terms; labels outside ``kept`` are summed."""
    # An axis of size 1 broadcasts: it is dropped where the other operand has the label too.
    a, b = _unstretched(a, b), _unstretched(b, a)
    a = _summed(a, kept | set(b.labels))
    b = _summed(b, kept | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in kept]
    inner = [label for label in shared if label not in kept]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    if not inner:
        # Nothing is summed: an elementwise product of axes that broadcast.
        left = _spread(_arranged(a, [*batch, *rows]), len(batch) + len(rows), len(columns))
        right = _spread(_arranged(b, [*batch, *columns]), len(batch), len(rows))
        return Term(emit_one("elementwise_mul", {"X": left, "Y": right}), (*batch, *rows, *columns))
    # Both with the summed axes last: the second one is transposed within the product, without a copy.
    first = _arranged(a, [*batch, *rows, *inner])
    second = _arranged(b, [*batch, *columns, *inner])
    # Without a batch the rows may stay several axes: the product takes them for one.
    merged = len(rows) if not batch and rows else 1
    x = _matrices(first, len(batch) + merged - 1, len(rows) - merged + 1)
    product = emit_one("matmul_v2", {"X": x, "Y": _matrices(second, len(batch), len(columns))}, {"trans_y": True})
    shape = (
        *(_known(a.size(label), b.size(label)) for label in batch),
        *(a.size(label) for label in rows),
        *(b.size(label) for label in columns),
    )
    if len(columns) == 1 and len(rows) == merged:
        return Term(product, (*batch, *rows, *columns))
    same = len(batch) + (len(rows) if len(rows) == merged else 0)
    return Term(_reshaped(product, shape, same), (*batch, *rows, *columns))


def _known(x: int, y: int) -> int:
    return y if x == UNKNOWN else x


def _unstretched(term: Term, other: Term) -> Term:
    ones = {
        label for label in term.labels if label in other.labels and term.size(label) == 1 and other.size(label) != 1
    }
    return _summed(term, set(term.labels) - ones) if ones else term


def _spread(term: Term, at: int, count: int) -> Variable:
    """Adds ``count`` axes of size 1 before axis ``at``."""
    if not count:
        return term.value
    return emit_one("unsqueeze2", {"X": term.value}, {"axes": tuple(range(at, at + count))})


def _matrices(term: Term, batch: int, rows: int) -> Variable:
    """Merges the axes after the batch to two: ``rows`` of them, and the rest."""
    shape = term.value.shape
    if len(shape) == batch + 2 and rows == 1:
        return term.value
    merged = [_times(shape[batch : batch + rows]), _times(shape[batch + rows :])]
    return _reshaped(term.value, [*shape[:batch], *merged], batch)


def _times(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        if size == UNKNOWN:
            return UNKNOWN
        total *= size
    return total
