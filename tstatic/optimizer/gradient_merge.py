"""An optimizer that adds up the gradients of several runs before it updates parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_int, check_type
from tstatic.ir.declare import default_startup_program, program_guard
from tstatic.ir.names import generate
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program, Variable
from tstatic.ir.updates import numbered
from tstatic.nn.param import create_global_var
from tstatic.optimizer.optimizer import Pair
from tstatic.optimizer.wrapper import OptimizerWrapper, chain


@export("fluid.optimizer.GradientMergeOptimizer", "incubate.optimizer.GradientMergeOptimizer")
class GradientMergeOptimizer(OptimizerWrapper):
    """Updates parameters once in ``k_steps`` runs, with the gradients of all of them: a larger batch in the memory of a small one.

    With ``avg`` the gradient of the loss starts at 1 / ``k_steps``, and gradients are added in the order of the runs: the result
    is that of data parallelism over ``k_steps`` places, bit for bit; in mixed precision under strict numerics, since places
    otherwise exchange gradients in the 16 bits in which they were computed. In the runs between two updates parameters, moments
    and the scale of the loss stay as they are; running statistics of batch norm move in each run. Several places and processes
    exchange the sums, in the last run.

    Args:
        inner_optimizer: The rule that updates parameters, or what ``static.amp.decorate`` made of it.
        k_steps: Number of runs, at least 1.
        avg: Use the mean of the gradients; ``False``: their sum.

    Raises:
        ProgramTypeError: If ``inner_optimizer`` is none.
        ProgramError: If ``k_steps`` is less than 1.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> loss = paddle.sum(w * static.data("x", [1]))
        >>> _ = fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(0.5), k_steps=2).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [float(exe.run(feed={"x": np.array([x], "float32")}, fetch_list=[w])[0][0]) for x in (2.0, 4.0, 6.0)]
        [1.0, -0.5, -0.5]
    """

    def __init__(self, inner_optimizer: Any, k_steps: int = 1, avg: bool = True) -> None:
        super().__init__(inner_optimizer)
        self.k_steps = check_int(k_steps, "k_steps", "GradientMergeOptimizer", least=1, error=ProgramError)
        self.avg = check_type(avg, bool, "avg", "GradientMergeOptimizer")

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Pair]:
        """Appends the backward ops; arguments as in :meth:`Optimizer.backward`."""
        check_variable(loss, "loss", "GradientMergeOptimizer.backward")
        block = loss.block.program.global_block()
        before = {id(op) for op in block.ops}
        pairs = super().backward(loss, startup_program, parameter_list, no_grad_set, callbacks)
        if self.avg:
            for op in block.ops:
                if op.role == OpRole.Backward | OpRole.Loss and id(op) not in before:
                    # At the start, as data parallelism scales it: the sum of the scaled gradients is then its sum, bit for bit.
                    op._set_attr("value", op.attrs["value"] / self.k_steps)
        return pairs

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Appends the sums over runs, and updates with them; returns the update ops.

        Args:
            params_grads: (parameter, gradient) pairs; those without a gradient are left out.
        """
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if self.k_steps == 1 or not pairs:
            updates: list[Operator] = self._optimizer.apply_gradients(pairs)
            return updates
        program = pairs[0][0].block.program
        with numbered(program):
            with program_guard(program, default_startup_program()):
                first, hold = self._count(program)
                merged = [(p, self._merge(p, g, first, hold)) for p, g in pairs]
            inner = [*chain(self._optimizer)]
            for one in inner:
                one._skip_update = hold
            try:
                updates = self._optimizer.apply_gradients(merged)
            finally:
                for one in inner:
                    one._skip_update = None
        return updates

    def _count(self, program: Program) -> tuple[Variable, Variable]:
        """Emits the count of runs; returns whether a run is the first of a sum, and whether it is not the last."""
        with program._role_guard(OpRole.Backward):
            step = create_global_var([1], 0, "int32", persistable=True, name=generate("gradient_merge_step"))
            number = emit("assign", {"X": step})
            zero, last = (emit("fill_constant", {}, {"shape": (1,), "value": float(n), "dtype": "int32"})
                          for n in (0, self.k_steps - 1))  # fmt: skip
            first = emit("equal", {"X": number, "Y": zero})
            hold = emit("not_equal", {"X": number, "Y": last})
            following = emit("scale", {"X": number}, {"scale": 1.0, "bias": 1.0})
            emit("where", {"Condition": hold, "X": following, "Y": zero}, outputs={"Out": step})
        return first, hold

    def _merge(self, param: Variable, grad: Variable, first: Variable, hold: Variable) -> Variable:
        """Emits the sum of a gradient over the runs; returns its value so far."""
        wide = "float32" if grad.dtype.is_low else grad.dtype
        total = create_global_var(
            list(param.shape), 0.0, wide, persistable=True, name=generate(f"{param.name}@GRAD@GradientMerge")
        )
        block = grad.block
        merged = block.create_var(
            name=generate(f"{grad.name}@MERGED"), shape=grad.shape, dtype=grad.dtype, stop_gradient=True
        )
        # The role of a gradient: data parallelism exchanges the sum instead of the gradient of each run.
        with block.program._role_guard(OpRole.Backward, (param.name, merged.name)):
            emit(
                "merge_gradient",
                {"X": grad, "Sum": total, "First": first, "Hold": hold},
                outputs={"Out": merged, "SumOut": total},
            )
        return merged


__all__ = ["GradientMergeOptimizer"]
