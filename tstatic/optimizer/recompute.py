"""An optimizer that computes parts of the forward pass again instead of keeping them for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tstatic.errors import MissingCheckpointsError, ProgramTypeError, UnsupportedError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Operator, Program, Variable
from tstatic.optimizer.optimizer import Optimizer, Pair


@export("fluid.optimizer.RecomputeOptimizer", "incubate.optimizer.RecomputeOptimizer")
class RecomputeOptimizer:
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
        if not callable(getattr(optimizer, "apply_gradients", None)):
            raise ProgramTypeError(
                "RecomputeOptimizer wraps an optimizer",
                expected="an optimizer, such as fluid.optimizer.Adam()",
                received=shown(optimizer),
                fix="pass the optimizer first: RecomputeOptimizer(fluid.optimizer.Adam())",
            )
        self._optimizer = optimizer
        self._checkpoints: Sequence[Any] | None = None

    def _set_checkpoints(self, checkpoints: Sequence[Any]) -> None:
        """Says which Variables, or names of them, the backward pass starts again from; call it before ``minimize``."""
        self._checkpoints = list(checkpoints)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends backward ops, those computed again among them, and update ops.

        Args:
            loss: What to minimise.
            startup_program: Gets the ops that start accumulators and the learning rate.
            parameter_list: Variables or names to update; all trainable ones by default.
            no_grad_set: Variables or names that no gradient flows to.

        Returns:
            The update ops, and (parameter, gradient) pairs in program order.

        Raises:
            MissingCheckpointsError: Before ``_set_checkpoints``; it is an AssertionError, as in Paddle.
        """
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Pair]:
        """Appends the backward ops; arguments as in :meth:`Optimizer.backward`."""
        check_variable(loss, "loss", "RecomputeOptimizer.backward")
        if self._checkpoints is None:
            raise MissingCheckpointsError(
                "You should call _set_checkpoints first",
                expected="the Variables between which the backward pass computes again",
                received="no checkpoints",
                fix="call _set_checkpoints([hidden1, hidden2]) before minimize(loss)",
            )
        rule = self._optimizer
        while not isinstance(rule, Optimizer):
            rule = rule._optimizer
        before, rule._checkpoints = rule._checkpoints, self._checkpoints
        try:
            pairs: list[Pair] = self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        finally:
            rule._checkpoints = before
        return pairs

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Pair]
    ) -> list[Operator]:
        """Appends the update ops; arguments as in :meth:`Optimizer.apply_optimize`."""
        updates: list[Operator] = self._optimizer.apply_optimize(loss, startup_program, params_grads)
        return updates

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Appends the update ops; arguments as in :meth:`Optimizer.apply_gradients`."""
        updates: list[Operator] = self._optimizer.apply_gradients(params_grads)
        return updates

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

    def __getattr__(self, name: str) -> Any:
        # What else an optimizer has (set_lr, get_lr, ...) is the inner one's.
        if name.startswith("__") or "_optimizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self._optimizer, name)
