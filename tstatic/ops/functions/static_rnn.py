"""``StaticRNN``, the 1.x way to write a recurrence as the ops of one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.checks import check_known
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.recurrent.recurrent import StepBuilder


@export("fluid.layers.StaticRNN", "static.nn.StaticRNN", "fluid.layers.control_flow.StaticRNN")
class StaticRNN:
    """A recurrence whose step is written as ops in a ``with`` block; calling it afterwards returns the outputs of all steps.

    The number of steps is the first axis of the step inputs, and may be unknown while the program is built.

    Args:
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[[1.0]], [[2.0]], [[3.0]]])  # steps, batch, size
        >>> rnn = static.nn.StaticRNN()
        >>> with rnn.step():
        ...     now = rnn.step_input(x)
        ...     total = rnn.memory(shape=[-1, 1], batch_ref=now)
        ...     rnn.update_memory(total, total + now)
        ...     rnn.step_output(total + now)
        >>> static.Executor().run(fetch_list=[rnn()])[0].ravel()
        array([1., 3., 6.], dtype=float32)
    """

    _kind, _prefix, _block = "StaticRNN", "static_rnn", "step"

    _is_restored = True

    def __init__(self, name: str | None = None) -> None:
        self._builder = StepBuilder(LayerNamer(self._prefix, name))
        self._state = "before"

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Collects the ops of a step.

        Raises:
            ProgramError: If there are no step inputs, or a memory is not updated.
        """
        if self._state != "before":
            raise self._misplaced(
                f"{self._block}() of a {self._kind} can be entered once",
                f"a new {self._kind}",
                f"make another {self._kind}",
            )
        self._state = "inside"
        try:
            with self._builder.step():
                yield
                if not self._builder.inputs:
                    raise self._misplaced(
                        f"a {self._kind} has no step input, so the number of its steps is not known",
                        "at least one step_input(x)", "call step_input with a value of shape [steps, ...]",
                    )  # fmt: skip
            # Leaving the block appended the op: its outputs exist from here on.
            self._state = "after"
        except BaseException:
            # An error in the block leaves the recurrence as new, so that the user may enter it again.
            self._state, self._builder = "before", StepBuilder(self._builder.helper)
            raise

    def step_input(self, x: Variable) -> Variable:
        """Returns one step of ``x`` ``[steps, ...]``, of shape ``[...]``.

        Raises:
            ProgramError: Outside of the block, or if the number of steps is not that of the other step inputs.
        """
        self._check_inside("step_input")
        check_variable(x, "x", "StaticRNN.step_input")
        # Unknown sizes agree with everything: a run finds whether the sequences are equally long.
        counts = {v.shape[0] for v in (*self._builder.inputs, x) if v.shape and v.shape[0] != UNKNOWN}
        if not x.shape or len(counts) > 1:
            raise ProgramError(
                "Static RNN only take fix seq_len input",
                expected=f"[{', '.join(map(str, sorted(counts - {*x.shape[:1]}))) or 'steps'}, ...]",
                received=list(x.shape),
                fix="pass sequences with the steps on the first axis, all of one length",
                op="StaticRNN",
                var=x.name,
            )
        self._check_outside(x, "a sequence")
        return self._builder.step_input(x)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Returns a state before the step; :meth:`update_memory` says what it is after.

        Args:
            init: Its first value.
            shape: Without ``init``: the sizes of the first value, -1 for the batch.
            batch_ref: Without ``init``: a value from which the size of the batch is taken; of a step input, the
                whole sequence is meant, with the steps on axis 0.
            init_value: Without ``init``: the first value of every element.
            init_batch_dim_idx: The axis of ``shape`` that is the batch.
            ref_batch_dim_idx: The axis of ``batch_ref`` that is the batch.

        Raises:
            ProgramError: Outside of the block, or without ``init`` and either ``shape`` or ``batch_ref``.
        """
        self._check_inside("memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ProgramError(
                    "if init is None, memory at least need shape and batch_ref",
                    expected="init, or shape and batch_ref",
                    received=f"shape={shape}, batch_ref={batch_ref!r}",
                    fix="pass memory(init=value) or memory(shape=[-1, size], batch_ref=x)",
                    op="StaticRNN",
                )
            check_variable(batch_ref, "batch_ref", "StaticRNN.memory")
            # A step input is inside by nature; anything else must exist before the first step.
            if batch_ref.name not in {v.name for v in self._builder.inputs}:
                self._check_outside(batch_ref, "the value that has the size of the batch")
            attrs = {
                "shape": tuple(shape), "value": init_value, "dtype": batch_ref.dtype, "input_dim_idx": ref_batch_dim_idx,
                "output_dim_idx": init_batch_dim_idx,
            }  # fmt: skip
            # By its name, which means the whole sequence outside of the block.
            init = self._builder.outside.emit("fill_constant_batch_size_like", {"Input": batch_ref.name}, attrs)
        self._check_outside(check_variable(init, "init", "StaticRNN.memory"), "the first value of a memory")
        return self._builder.memory(init)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Makes ``var`` the value of the state ``mem`` after the step.

        Args:
            mem: What :meth:`memory` returned.
            var: Of its shape.

        Raises:
            ProgramError: Outside of the block, or if ``mem`` is not a memory of this recurrence.
        """
        self._check_inside("update_memory")
        check_variable(mem, "mem", f"{self._kind}.update_memory")
        check_variable(var, "var", f"{self._kind}.update_memory")
        known = [v.name for v in self._builder.initial]
        check_known(
            mem.name, known, f"update_memory of {self._kind}: this is not a memory of the recurrence:", error=ProgramError,
            op=self._kind, fix="pass what memory() returned",
        )  # fmt: skip
        self._builder.update(mem, var)

    def step_output(self, o: Variable) -> None:
        """Adds a result of each step.

        Raises:
            ProgramError: Outside of the block.
        """
        self._check_inside("step_output")
        self._builder.output(check_variable(o, "o", f"{self._kind}.step_output"))

    def output(self, *outputs: Variable) -> None:
        """Adds several results of each step.

        Raises:
            ProgramError: Outside of the block.
        """
        for one in outputs:
            self.step_output(one)

    def __call__(self) -> Any:
        """Returns the results of all steps, ``[steps, ...]``: one Variable, or a list of several.

        Raises:
            ProgramError: Before the end of the block, or if there are no results.
        """
        if self._state != "after":
            raise self._misplaced(
                "RNN output can only be retrieved after rnn block", "a call after the with block",
                f"call the {self._kind} after its block",
            )  # fmt: skip
        outputs = self._builder.outputs
        if not outputs:
            raise self._misplaced(
                "RNN has no output", "step_output(value) inside the block", "call step_output in the block"
            )
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def _check_outside(self, x: Variable, what: str) -> None:
        # First values and sequences are read before any step runs, so a value of the step cannot be one.
        if x.block is self._builder.block:
            raise ProgramError(
                f"{what} is made inside the step",
                expected="a value from outside of the block",
                received=repr(x),
                fix=f"compute it before 'with rnn.{self._block}():'",
                op=self._kind,
                var=x.name,
            )

    def _check_inside(self, method: str) -> None:
        if self._state != "inside":
            raise self._misplaced(
                f"You must invoke {method} in rnn block", f"{method} inside 'with rnn.{self._block}():'",
                "move the call into the block",
            )  # fmt: skip

    def _misplaced(self, what: str, expected: str, fix: str) -> ProgramError:
        return ProgramError(what, expected=expected, received=f"a call {self._state} the block", fix=fix, op=self._kind)
