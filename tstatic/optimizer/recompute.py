"""An optimizer that computes parts of the forward pass again instead of keeping them for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tstatic.errors import MissingCheckpointsError, UnsupportedError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Program, Variable
from tstatic.optimizer.optimizer import Pair
from tstatic.optimizer.wrapper import OptimizerWrapper, chain


@export("fluid.optimizer.RecomputeOptimizer", "incubate.optimizer.RecomputeOptimizer")
class RecomputeOptimizer(OptimizerWrapper):
    """Keeps only checkpoints of the forward pass: what lies between two of them is computed again in the backward pass.

    Gradients are the same bits; a step takes more time and less memory. ``compiled.memory_report()`` says how much.

    Args:
        optimizer: The rule that updates parameters, or what ``static.amp.decorate`` made of it.

    Raises:
        ProgramTypeError: If ``optimizer`` is none.

    Example:
        >>> x = static.data("x", [4, 8])
        >>> hidden = static.nn.fc(x, 8, activation="tanh")
        >>> loss = paddle.mean(static.nn.fc(hidden, 8, activation="tanh"))
        >>> rule = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
        >>> rule._set_checkpoints([hidden])
        >>> ops, params_grads = rule.minimize(loss)
        >>> [op.type for op in ops]
        ['sgd', 'sgd', 'sgd', 'sgd']
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._checkpoints: Sequence[Any] | None = None

    def _set_checkpoints(self, checkpoints: Sequence[Any]) -> None:
        """Says which Variables, or names of them, the backward pass starts again from; call it before ``minimize``."""
        self._checkpoints = list(checkpoints)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Pair]:
        """Appends the backward ops, those computed again among them; arguments as of :meth:`Optimizer.backward`.

        Raises:
            MissingCheckpointsError: Before ``_set_checkpoints``; it is an AssertionError, as in Paddle.
        """
        check_variable(loss, "loss", "RecomputeOptimizer.backward")
        if self._checkpoints is None:
            raise MissingCheckpointsError(
                "You should call _set_checkpoints first",
                expected="the Variables between which the backward pass computes again",
                received="no checkpoints",
                fix="call _set_checkpoints([hidden1, hidden2]) before minimize(loss)",
            )
        *_, rule = chain(self._optimizer)
        before, rule._checkpoints = rule._checkpoints, self._checkpoints
        try:
            return super().backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        finally:
            rule._checkpoints = before

    def load(self, state_dict: Any) -> NoReturn:
        """Raises an error, as in Paddle: state is loaded into the program, not into an optimizer.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "load function is not supported by Recompute Optimizer for now",
            expected="static.load(program, path)",
            received=shown(state_dict),
            fix="static.load(program, path) loads parameters and the optimizer's state",
        )
