"""``IfElse``: two branches over the rows of a batch, each of which gets the rows that a condition gives it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_dtype, check_has_shape
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.no_effect import no_effect
from tstatic.undo import undone_on_error


@no_effect(name="results are named after the ops that make them")
@export("fluid.layers.IfElse", "fluid.layers.control_flow.IfElse")
class IfElse:
    """Sends the rows of a batch through one of two branches, and merges the results in the rows' order.

    Both branches run, each on its own rows, of which there may be none.

    Args:
        cond: Bool ``[batch, 1]``: true for the rows of the first branch.

    Raises:
        DTypeError, ShapeError: If ``cond`` is not bool, or not ``[batch, 1]``.

    Example:
        >>> x = paddle.to_tensor([[1.0], [-2.0], [3.0]])
        >>> branch = fluid.layers.IfElse(x > 0)
        >>> with branch.true_block():
        ...     branch.output(branch.input(x) * 10)
        >>> with branch.false_block():
        ...     branch.output(branch.input(x) * 0)
        >>> static.Executor().run(fetch_list=branch())[0].ravel()
        array([10., -0., 30.], dtype=float32)
    """

    _is_restored = True

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_variable(cond, "cond", "IfElse")
        check_dtype(cond, ("bool",), "cond", "IfElse", fix="pass a comparison, for example paddle.less_than(x, y)")
        check_has_shape(cond, (UNKNOWN, 1), "cond", "IfElse", why="one truth value per row")
        flat = emit("reshape2", {"X": cond}, {"shape": (-1,)}, drop=("XShape",))
        self._rows: dict[bool, Variable] = {}
        for which, flags in ((True, flat), (False, emit("logical_not", {"X": flat}))):
            found = emit("where_index", {"Condition": flags})
            # Row numbers instead of masks: both branches run on their rows only, none if they have none.
            self._rows[which] = emit("reshape2", {"X": found}, {"shape": (-1,)}, drop=("XShape",))
        self._inside: bool | None = None
        self._outputs: dict[bool, list[Variable]] = {}

    def true_block(self) -> contextlib.AbstractContextManager[None]:
        """Collects the branch of the rows whose condition is true."""
        return self._block(True)

    def false_block(self) -> contextlib.AbstractContextManager[None]:
        """Collects the branch of the other rows."""
        return self._block(False)

    @contextlib.contextmanager
    def _block(self, which: bool) -> Iterator[None]:
        if self._inside is not None:
            raise self._misplaced("a block of an IfElse stands inside another one", "one block after the other")
        with undone_on_error(self):
            self._inside = which
            self._outputs[which] = list(self._outputs.get(which, ()))
            yield
            self._inside = None

    def input(self, x: Variable) -> Variable:
        """Returns the branch's rows of ``x`` ``[batch, ...]``.

        Raises:
            ProgramError: Outside of a block.
        """
        if self._inside is None:
            raise self._misplaced("input must in true/false blocks", "a call inside a block")
        return emit("gather", {"X": check_variable(x, "x", "IfElse.input"), "Index": self._rows[self._inside]})  # type: ignore[no-any-return]

    def output(self, *outs: Variable) -> None:
        """Adds results of the branch, one row per row of its inputs.

        Raises:
            ProgramError: Outside of a block.
        """
        if self._inside is None:
            raise self._misplaced("output can only be invoked in the sub-block", "a call inside a block")
        self._outputs[self._inside] += [check_variable(x, "outs", "IfElse.output") for x in outs]

    def __call__(self) -> list[Variable]:
        """Returns the merged results of the branches.

        Raises:
            ProgramError: Inside a block, without results, or if the branches have different numbers of them.
        """
        if self._inside is not None:
            raise self._misplaced("IfElse::__call__ must be out of sub-block", "a call after the blocks")
        yes, no = self._outputs.get(True, []), self._outputs.get(False, [])
        if not yes and not no:
            raise self._misplaced("Must invoke true_block/false_block before __call__", "results of the blocks")
        # One branch alone: its rows are the result, as in Paddle.
        if not yes or not no:
            return list(yes or no)
        if len(yes) != len(no):
            raise ProgramError(
                "The length of true_out and false_out must be same",
                expected=f"{len(yes)} results of the false block",
                received=f"{len(no)}",
                fix="call output with as many values in both blocks",
                op="IfElse",
            )
        order = emit("concat", {"X": [self._rows[True], self._rows[False]]}, {"axis": 0})
        # Where each row of the batch lies in the joined results.
        place = emit("argsort", {"X": order})[1]
        return [
            emit("gather", {"X": emit("concat", {"X": [a, b]}, {"axis": 0}), "Index": place})
            for a, b in zip(yes, no, strict=True)
        ]

    def _misplaced(self, what: str, expected: str) -> ProgramError:
        return ProgramError(
            what,
            expected=expected,
            received="a call " + ("outside of the blocks" if self._inside is None else "inside a block"),
            fix="use 'with branch.true_block():' and 'with branch.false_block():', then branch()",
            op="IfElse",
        )
