"""LookAhead: slow weights that follow the fast ones of another optimizer."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir import names
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_int, check_number
from tstatic.ir.declare import default_startup_program, program_guard
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program, Variable
from tstatic.ir.updates import numbered
from tstatic.nn.param import create_global_var
from tstatic.optimizer.averages import copies
from tstatic.optimizer.optimizer import Pair


@export("incubate.LookAhead", "incubate.optimizer.LookAhead", "fluid.optimizer.LookaheadOptimizer")
class LookAhead:
    """Lookahead (Zhang et al., 2019): every ``k`` steps of an optimizer, slow += alpha * (p - slow) and p = slow.

    The slow weights start as the parameters after the first step, as in Paddle.

    Args:
        inner_optimizer: The rule of the fast steps.
        alpha: How far the slow weights go towards the fast ones; from 0 to 1.
        k: Number of fast steps for each slow one; at least 1.
        name: Prefix of the names ``<parameter>_slow_0`` of the slow weights.

    Raises:
        ProgramTypeError: If ``inner_optimizer`` is none.
        ProgramError: If ``alpha`` or ``k`` is out of range.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> rule = paddle.incubate.LookAhead(paddle.optimizer.SGD(0.1), alpha=0.5, k=2)
        >>> _ = rule.minimize(paddle.sum(w))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [round(exe.run(fetch_list=[w])[0].item(), 2) for _ in range(5)]
        [0.9, 0.85, 0.75, 0.75, 0.65]
    """

    _is_restored = True

    def __init__(self, inner_optimizer: Any, alpha: float = 0.5, k: int = 5, name: str | None = None) -> None:
        if not callable(getattr(inner_optimizer, "minimize", None)):
            raise ProgramTypeError(
                "LookAhead wraps an optimizer",
                expected="an optimizer, such as paddle.optimizer.SGD()",
                received=shown(inner_optimizer),
                fix="pass the optimizer first: LookAhead(paddle.optimizer.SGD(), alpha=0.5, k=5)",
            )
        self.inner_optimizer = inner_optimizer
        self.alpha = check_number(alpha, "alpha", "LookAhead", least=0, most=1)
        self.k = check_int(k, "k", "LookAhead", least=1)
        self._name = name

    def minimize(
        self, loss: Variable, startup_program: Program | None = None, parameters: Any = None, no_grad_set: Any = None
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends the ops of the inner optimizer, then those of the slow weights.

        Args:
            loss: What to minimise.
            startup_program: Gets the ops that start slow weights, accumulators and the learning rate.
            parameters: Variables or names to update; all trainable ones by default.
            no_grad_set: Variables or names that no gradient flows to.

        Returns:
            The inner optimizer's update ops, and (parameter, gradient) pairs in program order.
        """
        check_variable(loss, "loss", "LookAhead.minimize")
        program = loss.block.program
        startup = startup_program if startup_program is not None else default_startup_program()
        with numbered(program):
            ops, pairs = self.inner_optimizer.minimize(loss, startup_program, parameters, no_grad_set)
            with program_guard(program, startup), program._role_guard(OpRole.Optimize):
                first, sync = self._schedule()
                for param, grad in pairs:
                    if grad is not None:
                        with program._role_guard(OpRole.Optimize, (param.name, grad.name)):
                            self._follow(param, first, sync)
        return ops, pairs

    def _schedule(self) -> tuple[Variable, Variable]:
        """Emits the count of steps; returns whether this is the first one, and whether the slow weights move in it."""
        step = create_global_var([1], 0, "int32", persistable=True, name=names.generate("lookahead_step"))
        emit("increment", {"X": step}, {"step": 1}, outputs={"Out": step})
        one, k, zero = (
            emit("fill_constant", {}, {"shape": (1,), "value": float(n), "dtype": "int32"}) for n in (1, self.k, 0)
        )
        rest = emit("elementwise_mod", {"X": step, "Y": k})
        return emit("equal", {"X": step, "Y": one}), emit("equal", {"X": rest, "Y": zero})

    def _follow(self, param: Any, first: Variable, sync: Variable) -> None:
        """Emits the slow weights of one parameter; those of a 16-bit one follow its float32 copy."""
        fast = copies(param)[0]
        stem = f"{param.name}_slow" if self._name is None else f"{param.name}_{self._name}_slow"
        slow = create_global_var(list(fast.shape), 0.0, fast.dtype, persistable=True, name=names.generate(stem))
        old = emit("where", {"Condition": first, "X": fast, "Y": slow})
        parts = [emit("scale", {"X": x}, {"scale": s}) for x, s in ((fast, self.alpha), (old, 1.0 - self.alpha))]
        mixed = emit("elementwise_add", {"X": parts[0], "Y": parts[1]})
        emit("where", {"Condition": sync, "X": mixed, "Y": old}, outputs={"Out": slow})
        emit("where", {"Condition": sync, "X": mixed, "Y": fast}, outputs={"Out": fast})
        if fast is not param:
            emit("cast", {"X": fast}, {"out_dtype": param.dtype}, outputs={"Out": param})

    def __getattr__(self, name: str) -> Any:
        # What else an optimizer has (set_lr, get_lr, ...) is the inner one's.
        if name.startswith("_") or "inner_optimizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)
