"""``DynamicRNN``, the 1.x way to write a recurrence over sequences of different lengths as the ops of one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_int, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import dtype_of
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.functions.static_rnn import StaticRNN
from tstatic.undo import undone_on_error


class _Steps(StaticRNN):
    """The recurrence over padded steps."""

    _kind, _prefix, _block = "DynamicRNN", "dynamic_rnn", "block"


def _swapped(x: Variable) -> dict[str, Any]:
    """Returns the attributes of a transpose that changes the first two axes."""
    return {"axis": (1, 0, *range(2, len(x.shape)))}


@export("fluid.layers.DynamicRNN", "fluid.layers.control_flow.DynamicRNN")
class DynamicRNN:
    """A recurrence over sequences with a LoD, whose step is written as ops in a ``with`` block.

    In the block a step input is ``[sequences, ...]``: a row of each sequence. Steps behind the end of a sequence are computed as
    well, with zeros as inputs, and dropped; the ops of the block must not mix sequences. Calling it afterwards returns the
    outputs of all steps as rows with the LoD of the step input.

    Args:
        name: Name of the layer.

    Example:
        >>> x = fluid.data("x", [None, 1], "float32", lod_level=1)
        >>> rnn = fluid.layers.DynamicRNN()
        >>> with rnn.block():
        ...     now = rnn.step_input(x)
        ...     total = rnn.memory(shape=[1], value=0.0)
        ...     rnn.update_memory(total, total + now)
        ...     rnn.output(total + now)
        >>> rnn().shape, rnn().lod_level
        ((-1, 1), 1)
    """

    _is_restored = True

    def __init__(self, name: str | None = None) -> None:
        self._steps = _Steps(name)
        self._lod: tuple[str, ...] = ()
        self._length: Variable | None = None
        self._results: list[Variable] = []

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Collects the ops of a step.

        Raises:
            ProgramError: If there are no step inputs, or a memory is not updated.
        """
        with undone_on_error(self), self._steps.step():
            yield

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Returns one step of the sequences of ``x``.

        Args:
            x: Rows with lod_level 1.
            level: 0: the level whose sequences are walked through.

        Raises:
            ProgramError: Outside of the block, or if ``x`` has no LoD.
            UnsupportedError: If its sequences are nested.
        """
        self._steps._check_inside("step_input")
        check_variable(x, "x", "DynamicRNN.step_input")
        if check_int(level, "level", "DynamicRNN.step_input", 0) or len(x.lod) > 1:
            raise UnsupportedError(
                "DynamicRNN walks through sequences that are not nested",
                expected="lod_level=1 and level=0",
                received=f"'{x.name}' with lod_level={x.lod_level}, level={level}",
                fix="flatten the outer level with fluid.layers.lod_reset",
                op="DynamicRNN",
                var=x.name,
            )
        outside = self._steps._builder.outside
        # The block runs outside of the loop once: all rows padded, then steps first, as `recurrent` walks axis 0.
        zero = outside.emit("fill_constant", {}, {"shape": (1,), "dtype": x.dtype, "value": 0})
        padded, length = outside.emit("sequence_pad", {"X": x, "PadValue": zero}, {"padded_length": -1})
        now = self._steps.step_input(outside.emit("transpose2", {"X": padded}, _swapped(padded)))
        # Lengths and LoD of the first step input hold for all: outputs are cut back to them.
        if self._length is None:
            self._length, self._lod = length, x.lod
        return now

    def static_input(self, x: Variable) -> Variable:
        """Returns ``x`` as every step sees it: a row or a sequence for each sequence of the step input.

        Args:
            x: ``[sequences, ...]``, or rows with a LoD.

        Raises:
            ProgramError: Outside of the block, or in front of the step input.
        """
        self._check_started("static_input")
        return check_variable(x, "x", "DynamicRNN.static_input")

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """Returns a state before the step; :meth:`update_memory` says what it is after.

        Args:
            init: Its first value, ``[sequences, ...]``.
            shape: Without ``init``: the sizes behind the first axis.
            value: Without ``init``: the first value of every element.
            need_reorder: Whether row ``i`` of ``init`` belongs to sequence ``i``. Without it, it belongs to the ``i``-th
                longest, as in Paddle, which sorts the sequences.
            dtype: Without ``init``: the element type.

        Raises:
            ProgramError: Outside of the block, in front of the step input, or without ``init`` and ``shape``.
        """
        length = self._check_started("memory")
        check_type(need_reorder, bool, "need_reorder", "DynamicRNN.memory")
        outside = self._steps._builder.outside
        if init is not None:
            check_variable(init, "init", "DynamicRNN.memory")
            if not need_reorder:
                # Sorting the order gives each sequence's rank, so row i takes the state meant for the rank of sequence i.
                order = outside.emit("argsort", {"X": length}, {"descending": True})[1]
                rank = outside.emit("argsort", {"X": order}, {})[1]
                init = outside.emit("gather", {"X": init, "Index": rank})
        elif shape is None:
            raise ProgramError(
                "memory of a DynamicRNN needs a first value or a shape",
                expected="init, or shape without the sequences",
                received="neither",
                fix="pass memory(init=value, need_reorder=True) or memory(shape=[size])",
                op="DynamicRNN",
            )
        else:
            # One row a sequence: the lengths have as many entries, also where the batch is unknown while the program is built.
            attrs = {"shape": (-1, *shape), "value": value, "dtype": dtype_of(dtype)}
            init = outside.emit("fill_constant_batch_size_like", {"Input": length}, attrs)
        return self._steps.memory(init)

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Makes ``new_mem`` the value of the state ``ex_mem`` after the step.

        Raises:
            ProgramError: Outside of the block, or if ``ex_mem`` is not a memory of this recurrence.
        """
        self._steps.update_memory(ex_mem, new_mem)

    def output(self, *outputs: Variable) -> None:
        """Adds results of each step, ``[sequences, ...]``.

        Raises:
            ProgramError: Outside of the block.
        """
        self._steps.output(*outputs)

    def __call__(self) -> Any:
        """Returns the results of all steps, ``[rows, ...]`` with the LoD of the step input: one Variable, or a list of several.

        Raises:
            ProgramError: Before the end of the block, or if there are no results.
        """
        # Built once: a second call returns the same Variables instead of a second copy of the ops.
        found = self._steps()
        if not self._results:
            for padded in found if isinstance(found, list) else [found]:
                batch = emit_one("transpose2", {"X": padded}, _swapped(padded))
                rows = emit("sequence_unpad", {"X": batch, "Length": self._length})
                rows.lod, rows.lod_level = self._lod, len(self._lod)
                self._results.append(rows)
        return self._results[0] if len(self._results) == 1 else list(self._results)

    def _check_started(self, method: str) -> Variable:
        self._steps._check_inside(method)
        if self._length is None:
            raise ProgramError(
                f"{method} of a DynamicRNN stands in front of its step input, which says how many sequences there are",
                expected=f"step_input(x), then {method}",
                received=f"{method} first",
                fix="call step_input first",
                op="DynamicRNN",
            )
        return self._length
