"""What optimizers that wrap another one share: they pass on what they do not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.declare import default_startup_program, program_guard
from tstatic.ir.program import Operator, Program, Variable
from tstatic.optimizer.optimizer import Optimizer, Pair


class OptimizerWrapper:
    """An optimizer around another one, in ``_optimizer``, which may be a wrapper, too; the innermost one is the update rule.

    A subclass overrides :meth:`backward`, :meth:`apply_gradients` or both. Other attributes, such as ``get_lr`` and
    ``set_lr``, are those of the wrapped optimizer.

    Args:
        optimizer: What to wrap.

    Raises:
        ProgramTypeError: If it is not an optimizer.
    """

    _is_restored = True

    def __init__(self, optimizer: Any) -> None:
        # The class's own: an object that merely passes attributes on would be left out of the chain.
        if not callable(getattr(type(optimizer), "apply_gradients", None)):
            name = type(self).__name__
            raise ProgramTypeError(
                f"{name} wraps an optimizer",
                expected="an optimizer, such as paddle.optimizer.Adam()",
                received=shown(optimizer),
                fix=f"pass the optimizer first: {name}(paddle.optimizer.Adam(), ...)",
            )
        self._optimizer = optimizer

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends what :meth:`backward` and :meth:`apply_gradients` append.

        Args:
            loss: What to minimise.
            startup_program: Gets the ops that start accumulators and the learning rate.
            parameter_list: Variables or names to update; all trainable ones by default.
            no_grad_set: Variables or names that no gradient flows to.

        Returns:
            The update ops, and (parameter, gradient) pairs in program order.
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
        """Appends the backward ops; arguments and errors as of :meth:`Optimizer.backward`."""
        pairs: list[Pair] = self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        return pairs

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Pair]
    ) -> list[Operator]:
        """Appends to a loss's program what :meth:`apply_gradients` appends; arguments as of :meth:`Optimizer.apply_optimize`."""
        startup = startup_program if startup_program is not None else default_startup_program()
        with program_guard(loss.block.program, startup):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Appends the update ops; arguments as of :meth:`Optimizer.apply_gradients`."""
        updates: list[Operator] = self._optimizer.apply_gradients(params_grads)
        return updates

    def __getattr__(self, name: str) -> Any:
        """Returns other attributes, such as ``get_lr`` and ``set_lr``, from the wrapped optimizer."""
        if name.startswith("__") or "_optimizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self._optimizer, name)


def chain(optimizer: Any) -> Iterator[Any]:
    """Yields an optimizer and those that it wraps, to the rule that updates parameters."""
    while optimizer is not None:
        yield optimizer
        optimizer = None if isinstance(optimizer, Optimizer) else vars(optimizer).get("_optimizer")


__all__ = ["OptimizerWrapper", "chain"]
