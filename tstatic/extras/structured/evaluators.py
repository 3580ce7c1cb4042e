"""The evaluators of ``fluid``: counts that ops of the program add up over runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.extras.structured.chunk_eval import chunk_eval
from tstatic.extras.structured.edit_distance import edit_distance
from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.declare import default_main_program, program_guard
from tstatic.ir.opdef import export
from tstatic.ir.program import Program, Variable
from tstatic.metric.counting import Array
from tstatic.nn.param import create_global_var
from tstatic.ops.elementwise.logic import equal
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.reduce.reduction import sum as total
from tstatic.runtime.fetched import converting


class _Evaluator:
    """What evaluators share: persistable counts that start at 0.

    Attributes:
        states: The counts.
        metrics: What the batch of a run alone gives; fetch it.
    """

    def __init__(self) -> None:
        if default_main_program().current_block().idx != 0:
            raise ProgramError(
                "You can only invoke Evaluator in root block",
                expected=f"{type(self).__name__} outside of control flow",
                received="a block of control flow",
                fix="make the evaluator after the branch or loop",
            )
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []

    def _count(self, name: str, dtype: str, part: Variable) -> None:
        """Adds what a batch gives to a count of all batches."""
        name = names.generate(f"{type(self).__name__}_{name}")
        state = create_global_var([1], 0, dtype, persistable=True, name=name)
        emit("sum", {"X": [state, cast(part, dtype).reshape([1])]}, outputs={"Out": state})
        self.states.append(state)

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Sets the counts to 0.

        Args:
            executor: Acts on the scope that is current.
            reset_program: Gets the ops that do it; a program of its own by default.
        """
        program = Program() if reset_program is None else reset_program
        with program_guard(program, Program()):
            for state in self.states:
                emit(
                    "fill_constant",
                    {},
                    {"shape": (1,), "value": 0.0, "dtype": state.dtype},
                    outputs={"Out": _seen(state)},
                )
        executor.run(program)

    def _counts(self, executor: Any, eval_program: Program | None) -> list[float]:
        program = Program() if eval_program is None else eval_program
        with program_guard(program, Program()):
            values = [cast(_seen(state), "float64") for state in self.states]
        return [float(value.item()) for value in executor.run(program, fetch_list=values)]


def _seen(state: Variable) -> Variable:
    """Returns a count as a variable of the current program."""
    block = default_main_program().global_block()
    if block.has_var(state.name):
        return block.var(state.name)
    return block.create_var(name=state.name, shape=state.shape, dtype=state.dtype, persistable=True, stop_gradient=True)


def _row(value: float) -> Array:
    row: Array = converting(np.array([value], np.float32))
    return row


@export("fluid.evaluator.ChunkEvaluator")
class ChunkEvaluator(_Evaluator):
    """Precision, recall and F1 of chunks over all runs since :meth:`reset`; see ``fluid.metrics.ChunkEvaluator``.

    Args:
        input, label, chunk_scheme, num_chunk_types, excluded_chunk_types: As of ``fluid.layers.chunk_eval``.

    Example:
        >>> tags = [static.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "wanted")]
        >>> evaluator = fluid.evaluator.ChunkEvaluator(*tags, chunk_scheme="IOB", num_chunk_types=1)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> rows = [fluid.create_lod_tensor(np.array([[0], [1], [t], [0]]), [[4]]) for t in (2, 1)]
        >>> _ = exe.run(feed=dict(zip(("found", "wanted"), rows)), fetch_list=evaluator.metrics)
        >>> [float(value[0]) for value in evaluator.eval(exe)]
        [0.5, 0.5, 0.5]
    """

    def __init__(
        self, input: Variable, label: Variable, chunk_scheme: str, num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        *rates, inferred, wanted, right = chunk_eval(input, label, chunk_scheme, num_chunk_types, excluded_chunk_types)
        for name, count in (
            ("num_infer_chunks", inferred),
            ("num_label_chunks", wanted),
            ("num_correct_chunks", right),
        ):
            self._count(name, "int64", count)
        self.metrics += rates

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, Array, Array]:
        """Returns precision, recall and F1 as arrays ``[1]``; 0 where they have no meaning.

        Args:
            executor: Acts on the scope that is current.
            eval_program: Gets the ops that read the counts; a program of its own by default.
        """
        inferred, wanted, right = self._counts(executor, eval_program)
        precision, recall = (right / n if n else 0.0 for n in (inferred, wanted))
        return _row(precision), _row(recall), _row(2 * precision * recall / (precision + recall) if right else 0.0)


@export("fluid.evaluator.EditDistance")
class EditDistance(_Evaluator):
    """Mean edit distance, and the share of sequences with an error, over all runs since :meth:`reset`.

    Args:
        input, label, ignored_tokens: As of ``fluid.layers.edit_distance``.

    Example:
        >>> words = [static.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "wanted")]
        >>> evaluator = fluid.evaluator.EditDistance(*words)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> rows = [fluid.create_lod_tensor(np.array([[1], [2], [t], [4]]), [[2, 2]]) for t in (3, 5)]
        >>> _ = exe.run(feed=dict(zip(("found", "wanted"), rows)))
        >>> [float(value[0]) for value in evaluator.eval(exe)]
        [0.25, 0.5]
    """

    def __init__(self, input: Variable, label: Variable, ignored_tokens: Sequence[int] | None = None) -> None:
        super().__init__()
        distances, count = edit_distance(input, label, ignored_tokens=ignored_tokens)
        wrong = count.reshape([1]) - total(cast(equal(distances, distances * 0.0), "int64")).reshape([1])
        whole = total(distances)
        self._count("total_distance", "float32", whole)
        self._count("seq_num", "int64", count)
        self._count("instance_error", "int64", wrong)
        self.metrics += [whole, wrong]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Array, Array]:
        """Returns the mean distance and the share of sequences with an error, as arrays ``[1]``.

        Args:
            executor: Acts on the scope that is current.
            eval_program: Gets the ops that read the counts; a program of its own by default.

        Raises:
            ProgramError: Without a sequence.
        """
        distance, count, wrong = self._counts(executor, eval_program)
        if not count:
            raise ProgramError(
                "There is no data in EditDistance",
                expected="at least one run with sequences",
                received="none since reset",
                fix="run the program that the evaluator was made in before eval",
                op="EditDistance.eval",
            )
        return _row(distance / count), _row(wrong / count)
