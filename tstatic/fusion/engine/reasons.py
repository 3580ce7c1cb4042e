"""Explains why ops are not fused: stable codes, a sentence for each, and the smallest change that would allow it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One code: its meaning, and what to change; the engine fills in ``{...}``."""

    code: str
    meaning: str
    change: str


@dataclass(frozen=True, slots=True)
class RejectedPair:
    """Two ops, by their indices, that a search does not group: a code, a sentence, and the type of the op that prevents it."""

    indices: tuple[int, int]
    code: str
    reason: str
    reader: str = ""


_ALL = (
    Reason("FETCHED", "the value between them, '{value}', is fetched", "do not fetch '{value}' in this run"),
    Reason("PERSISTABLE", "the value between them, '{value}', is persistable: the scope keeps it after the run",
           "leave '{value}' temporary (persistable = False)"),
    Reason("EXTRA_READER", "the value between them, '{value}', is also read by {reader}",
           "let {reader} read another value, or fuse it too (enable_auto_fusion)"),
    Reason("CYCLE", "another operator reads what the first makes and makes what the second reads",
           "move {reader} before or after both"),
    Reason("AXIS_CONFLICT", "one value aligns with the others at two different axes",
           "reshape the operand once, before both operators"),
    Reason("SHAPE_MISMATCH", "the operators work on shapes that do not broadcast to a common one",
           "bring the operands to one shape first"),
    Reason("SMALL_OUTPUT", "a result that is read elsewhere is smaller than the common shape",
           "compute it for its other reader separately"),
    Reason("SUM_INSIDE", "the second operator reads a sum that is known only when the first is done",
           "nothing: this needs two passes over the data"),
    Reason("TWO_SUMS", "the operators sum over different dimensions", "give both operands one shape"),
    Reason("SUM_SHAPE", "a sum keeps dimensions that do not lie together", "transpose so that the kept dimensions are neighbours"),
    Reason("SUM_TYPE", "generated kernels sum floats only", "cast to a float type first"),
    Reason("ROWS", "the operators work along rows that differ, or that are not the last dimensions",
           "let all of them work over the same last axes"),
    Reason("LONG_ROW", "columns are summed over rows, and there are more of them than one program of a kernel holds",
           "nothing: the sums run by themselves"),
    Reason("MANY_OPS", "the group has as many operators as one kernel takes", "nothing: the rest begins another kernel"),
    Reason("MANY_ARRAYS", "one kernel would read and write more arrays than is fast", "nothing: the rest begins another kernel"),
    Reason("TWO_GROUPS", "the second operator is in a group already, and two groups are not merged",
           "fuse_together() around both, if they are forward operators"),
    Reason("FAR", "too many operators lie between them", "build the second one nearer to the first"),
    Reason("NOT_A_MATRIX", "{reader} multiplies batches of matrices or vectors", "reshape the operands to one matrix each"),
    Reason("TWO_PRODUCTS", "{reader} needs the results of two matrix products", "nothing: it runs by itself"),
    Reason("ROWS_KERNEL", "a kernel along rows reads the result, and does this on the way", "nothing: no bytes would be saved"),
    Reason("FEW_ROWS", "there are too few rows for two chunks", "nothing: the logits are small"),
    Reason("NOT_THE_PEAK", "the step needs most memory elsewhere, so that chunks would save nothing", "nothing"),
    Reason("STRIDES", "a kernel would read or write elements of a row that do not lie side by side",
           "transpose so that the last dimension stays the last one"),
    Reason("EMPTY", "there are no elements to compute", "nothing: an empty batch launches nothing"),
    Reason("DYNAMIC", "a size is known only when the program runs", "make the size a constant, or feed it"),
    Reason("NOT_POINTWISE", "{reader} states no expression per element", "nothing: this operator runs alone"),
    Reason("NO_KERNEL_FORM", "a function that it uses has no form in generated kernels", "use another function"),
    Reason("POSITION", "the second operator reads what the first makes as indices or labels, which are checked before it runs",
           "nothing: the first operator runs before the kernel"),
    Reason("COMPLEX", "generated kernels compute no complex values", "nothing: this operator runs alone"),
    Reason("RANDOM", "{reader} draws random numbers that kernels cannot draw in every bit",
           "draw uniform, normal or whole numbers, or use dropout with its seed in an attribute"),
    Reason("ATTRIBUTE", "an attribute has a value that the fusion does not compute", "change the attribute, see the message"),
    Reason("NUM_STRICT", "under strict numerics only kernels are made whose bits are those of the operators alone",
           "CompiledProgram(..., numerics='default'), or FLAGS_numerics=default"),
    Reason("MASK_FINITE", "the triangular mask has {value} above its diagonal, which may count beside scores or another mask: it "
           "is added, and nothing is skipped", "mask with -inf; or, where no other mask is added, with -1e9 or less"),
    Reason("FORBIDDEN", "no_fuse() forbids it", "leave the operators outside of no_fuse()"),
    Reason("OFF", "the switch is off", "build_strategy.{value} = True"),
    Reason("IDENTITY", "{reader} is the identity: its result equals the gradient that arrives, so it is removed and costs nothing",
           "nothing: there is no second operator"),
    Reason("TWO_PATTERNS", "one of them is in a kernel without the other ({value})",
           "turn the fusion off that takes one of them away, see the message"),
    Reason("NO_PATTERN", "no fusion has this pair of operators in its pattern", "nothing"),
)  # fmt: skip

REASONS = {r.code: r for r in _ALL}

UNNAMED = "the operator between them"
"""Stands in a sentence for an operator that the search could not name."""


def explain_code(code: str, **parts: str) -> tuple[str, str]:
    """Returns the meaning and the change of a code, filled in; unknown parts are named in general words."""
    reason = REASONS[code]
    # Parts that are empty are left out: general words take their place.
    known = {"value": "it", "reader": UNNAMED, **{k: v for k, v in parts.items() if v}}
    return reason.meaning.format(**known), reason.change.format(**known)


class MatchRejected(Exception):  # noqa: N818
    """A match that cannot be made.

    Args:
        code: A code of ``REASONS``.
        reason: A more specific sentence than the code's own, or empty.
        change: A more specific change than the code's own, or empty.
        value, reader: Fill in the code's own sentences.
    """

    def __init__(self, code: str, reason: str = "", change: str = "", *, value: str = "", reader: str = "") -> None:
        super().__init__(code)
        self.code = code
        meaning, smallest = explain_code(code, value=value, reader=reader)
        self.reason = reason or meaning
        self.change = change or smallest
