"""The optimizer of mixed precision: rewrites the program, scales the loss, and leaves out the steps that overflow."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tstatic.autodiff.paths import path_to
from tstatic.errors import CallOrderError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_type
from tstatic.ir.declare import default_startup_program, program_guard
from tstatic.ir.export import notes_signatures
from tstatic.ir.names import generate
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program, Variable
from tstatic.ir.types import DType, dtype_of
from tstatic.ir.updates import numbered
from tstatic.nn.param import create_global_var
from tstatic.optimizer.optimizer import Optimizer, Pair, sparse_gradients
from tstatic.optimizer.wrapper import OptimizerWrapper
from tstatic.runtime.scope import Scope
from tstatic.static.amp.lists import AutoMixedPrecisionLists, level_of, low_dtype
from tstatic.static.amp.rewrite import TRAINING, Precision, cast_parameters_to_fp16, convert

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class LossScaling:
    """How the factor of the loss begins and moves."""

    init: float
    dynamic: bool = False
    incr_every_n_steps: int = 2000
    decr_every_n_nan_or_inf: int = 1
    incr_ratio: float = 2.0
    decr_ratio: float = 0.5

    def moves(self) -> Mapping[str, Any]:
        """Returns the attributes of ``update_loss_scaling``."""
        return {
            "incr_every_n_steps": self.incr_every_n_steps, "decr_every_n_nan_or_inf": self.decr_every_n_nan_or_inf,
            "incr_ratio": self.incr_ratio, "decr_ratio": self.decr_ratio,
        }  # fmt: skip


@notes_signatures()
class OptimizerWithMixedPrecision(OptimizerWrapper):
    """An optimizer that trains in mixed precision; what ``static.amp.decorate`` returns.

    Args:
        optimizer: The rule that updates parameters.
        precision: How the program is rewritten; ``None`` (level O0) leaves it as it is.
        scaling: How the loss is scaled.
        master_grad: Convert 16-bit gradients to float32 before they are unscaled.

    Example:
        >>> loss = paddle.mean(static.nn.fc(static.data("x", [None, 3]), 2))
        >>> optimizer = static.amp.decorate(paddle.optimizer.SGD(0.1), init_loss_scaling=8.0)
        >>> isinstance(optimizer, static.amp.decorator.OptimizerWithMixedPrecision)
        True
        >>> ops, params_grads = optimizer.minimize(loss)
        >>> [op.type for op in ops], optimizer.get_loss_scaling().name
        (['sgd', 'sgd'], 'loss_scaling_0')
    """

    _skip_update: Variable | None = None
    """As of :class:`Optimizer`: in a step in which it is true the scale of the loss stays, too."""

    def __init__(
        self, optimizer: Optimizer, precision: Precision | None, scaling: LossScaling, master_grad: bool
    ) -> None:
        super().__init__(optimizer)
        self._precision = precision
        self._scaling = scaling
        self._master_grad = master_grad
        self._program: Program | None = None
        self._loss_scaling: Variable | None = None
        self._counters: tuple[Variable, ...] = ()
        self._scaled_loss: Variable | None = None

    # ---------------------------------------------------------------------------------------------------------- minimize
    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Pair]:
        """Rewrites a loss's program, scales the loss, appends backward ops; arguments as in :meth:`Optimizer.backward`."""
        check_variable(loss, "loss", "amp.decorate(...).backward")
        startup = startup_program if startup_program is not None else default_startup_program()
        self._program = program = loss.block.program
        with program_guard(program, startup):
            self._start()
            if self._precision is not None:
                convert(program, self._precision)
            # The name that the user knows, for data parallelism; the backward part starts from the scaled loss.
            program.loss_name = program.loss_name or loss.name
            made = next((op for op in reversed(loss.block.ops) if loss.name in op.output_arg_names), None)
            if made is not None:
                made.role |= OpRole.Loss
            if loss.dtype.is_low:
                loss = emit("cast", {"X": loss}, {"in_dtype": loss.dtype, "out_dtype": "float32"})
            if self._scales:
                loss = emit("elementwise_mul", {"X": loss, "Y": self._loss_scaling})
            self._scaled_loss = loss
        return super().backward(loss, startup, parameter_list, no_grad_set, callbacks)

    @property
    def _scales(self) -> bool:
        return self._scaling.dynamic or self._scaling.init != 1.0

    def _start(self) -> None:
        """Makes the variables of loss scaling."""
        self._loss_scaling = create_global_var(
            [1], self._scaling.init, "float32", persistable=True, name=generate("loss_scaling")
        )
        if self._scaling.dynamic:
            self._counters = tuple(
                create_global_var([1], 0, "int32", persistable=True, name=generate(name))
                for name in ("num_good_steps", "num_bad_steps")
            )

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Appends ops that unscale gradients, move the scale of the loss, clip, decay and update.

        In a step in which a gradient is not finite, on any replica, all parameters and accumulators stay as they are, bit for
        bit, and only the scale and its counters change.
        """
        pairs = [(p, g) for p, g in params_grads if g is not None]
        if not pairs:
            return []
        program = pairs[0][0].block.program
        with numbered(program):
            with program_guard(program, default_startup_program()), program._role_guard(OpRole.Optimize):
                if self._master_grad:
                    pairs = [(p, self._wide(g)) for p, g in pairs]
                block = program.global_block()
                sparse = sparse_gradients(block, block.ops) if self._optimizer._lazy else {}
                skip = self._unscale([g for _, g in pairs]) if self._scales else None
                hold = self._skip_update
                if hold is not None:
                    skip = hold if skip is None else emit("logical_or", {"X": hold, "Y": skip})
            self._optimizer._skip_update, self._optimizer._sparse = skip, sparse
            try:
                return super().apply_gradients(pairs)
            finally:
                self._optimizer._skip_update = self._optimizer._sparse = None

    def _wide(self, grad: Variable) -> Variable:
        if not grad.dtype.is_low:
            return grad
        block = grad.block
        wide = block.create_var(name=f"{grad.name}_fp32", shape=grad.shape, dtype="float32", stop_gradient=True)
        return emit(  # type: ignore[no-any-return]
            "cast", {"X": grad}, {"in_dtype": grad.dtype, "out_dtype": "float32"}, outputs={"Out": wide}
        )

    def _unscale(self, grads: list[Variable]) -> Variable:
        """Divides gradients by the scale, in place, and moves it on; returns whether any of them is not finite."""
        _, found = emit(
            "check_finite_and_unscale", {"X": grads, "Scale": self._loss_scaling}, outputs={"Out": grads},
            prefix="find_infinite_scale",
        )  # fmt: skip
        if self._scaling.dynamic:
            good, bad = self._counters
            moving = (self._loss_scaling, good, bad)
            before = [emit("assign", {"X": var}) for var in moving] if self._skip_update is not None else []
            emit(
                "update_loss_scaling",
                {"X": grads, "FoundInfinite": found, "PrevLossScaling": self._loss_scaling, "InGoodSteps": good,
                 "InBadSteps": bad},
                self._scaling.moves(),
                outputs={"Out": grads, "LossScaling": self._loss_scaling, "OutGoodSteps": good, "OutBadSteps": bad},
            )  # fmt: skip
            for old, var in zip(before, moving, strict=False):
                emit("where", {"Condition": self._skip_update, "X": old, "Y": var}, outputs={"Out": var})
        self._keep_statistics(found)
        return found  # type: ignore[no-any-return]

    def _keep_statistics(self, skip: Variable) -> None:
        """Takes back what a step that is left out did to running statistics, which otherwise might keep an infinity."""
        block = skip.block
        assert self._scaled_loss is not None
        ops = block.ops[:]
        # Only of the ops that this loss depends on: another optimizer of the program has its own losses and its own steps.
        for op in [ops[i] for i in path_to(ops, [self._scaled_loss.name])]:
            if op.role & TRAINING or op.definition.grad is None:
                continue
            for source, target in op.definition.state:
                names = {*op.input(source), *op.output(target)}
                for name in names if len(names) == 1 else ():
                    var = block._var_recursive(name)
                    if not var.persistable:
                        continue
                    before = block.create_var(name=generate(f"{name}.before"), shape=var.shape, dtype=var.dtype)
                    kept = block._insert_op(
                        op.idx, type="assign", inputs={"X": var}, outputs={"Out": before}, attrs={"op_role": op.role}
                    )
                    kept.where = op.where
                    emit("where", {"Condition": skip, "X": before, "Y": var}, outputs={"Out": var})

    # ------------------------------------------------------------------------------------------------------ after startup
    def amp_init(
        self,
        place: Any,
        scope: Scope | None = None,
        test_program: Program | None = None,
        use_fp16_test: bool = False,
        rewrite_master_weight: bool = False,
    ) -> None:
        """Rounds the values of 16-bit parameters, which the startup program makes in float32; needed at level O2.

        Args:
            place: Where the values are; the executor's place decides.
            scope: Holds the values; the global scope by default.
            test_program: A clone of the program made before :meth:`minimize`, which is rewritten to read these parameters.
            use_fp16_test: At level O1 rewrite it, too.
            rewrite_master_weight: Set the float32 copies to the rounded values.

        Raises:
            CallOrderError: Before :meth:`minimize`.
        """
        program = self._minimized(self._program, "amp_init")
        precision = self._precision
        if precision is None:
            return
        if precision.level == "O2":
            low = {p.name for p in program.all_parameters() if p.dtype is precision.dtype}
            masters = {
                param: var
                for (uid, kind, param), var in self._optimizer._accumulators.items()
                if uid == program.uid and kind == "master"
            }
            cast_parameters_to_fp16(place, program, scope, low, precision.dtype, rewrite_master_weight, masters)
        if test_program is not None and (precision.level == "O2" or use_fp16_test):
            check_type(test_program, Program, "test_program", "amp_init")
            convert(test_program, precision)

    def get_loss_scaling(self) -> Variable:
        """Returns the variable that holds the scale of the loss, ``[1]`` of float32.

        Raises:
            CallOrderError: Before :meth:`minimize`.
        """
        self._minimized(self._program, "get_loss_scaling")
        assert self._loss_scaling is not None
        return self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """Returns the loss after scaling; ``None`` before :meth:`minimize`."""
        return self._scaled_loss

    def _minimized(self, program: Program | None, method: str) -> Program:
        if program is None:
            raise CallOrderError(
                f"Please call minimize() before calling {method}().",
                expected="a call of minimize before",
                received="none",
                fix="call optimizer.minimize(loss) first",
                op=self._optimizer.type,
            )
        return program


# -------------------------------------------------------------------------------------------------------------- decorate
def _decorated(
    optimizer: Optimizer, lists: AutoMixedPrecisionLists | None, level: str, dtype: DType, scaling: LossScaling,
    guard: bool, promote: bool, master_grad: bool = False,
) -> OptimizerWithMixedPrecision:  # fmt: skip
    check_type(
        optimizer, Optimizer, "optimizer", "amp.decorate", expected="an optimizer, such as paddle.optimizer.Adam()"
    )
    if lists is None:
        lists = AutoMixedPrecisionLists(dtype=dtype.name)
    precision = None if level == "O0" else Precision(lists, dtype, level, guard and level == "O2", promote)
    return OptimizerWithMixedPrecision(optimizer, precision, scaling, master_grad and level == "O2")


def _scaling(
    dtype: DType, init: float, dynamic: bool, incr_every: int, decr_every: int, incr_ratio: float, decr_ratio: float
) -> LossScaling:
    if dtype.name == "bfloat16" and dynamic:
        # Its exponents are those of float32: gradients do not vanish.
        init, dynamic = 1.0, False
    return LossScaling(float(init), dynamic, incr_every, decr_every, float(incr_ratio), float(decr_ratio))


@export("fluid.contrib.mixed_precision.decorate", "fluid.contrib.mixed_precision.decorator.decorate")
def decorate_older(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
    use_pure_fp16: bool = False,
    use_fp16_guard: bool | None = None,
    use_bf16: bool = False,
    use_promote: bool = False,
) -> OptimizerWithMixedPrecision:
    """Returns an optimizer that trains in mixed precision; the older spelling of :func:`static.amp.decorate`.

    Args:
        optimizer: The rule that updates parameters.
        amp_lists: Which ops run in 16 bits; the defaults without it.
        init_loss_scaling: The first factor of the loss.
        incr_every_n_steps: After so many steps without overflow the factor is multiplied by ``incr_ratio``.
        decr_every_n_nan_or_inf: After so many steps with one it is multiplied by ``decr_ratio``.
        incr_ratio: Above 1.
        decr_ratio: Below 1.
        use_dynamic_loss_scaling: Whether the factor moves.
        use_pure_fp16: Level O2.
        use_fp16_guard: Convert only what was built under ``fp16_guard``; by default the value of ``use_pure_fp16``.
        use_bf16: bfloat16, without loss scaling.
        use_promote: Let ops that are on no white or black list run in float32 if one of their inputs is.

    Example:
        >>> loss = paddle.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        >>> optimizer = fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.1))
        >>> _ = optimizer.minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.ones([2, 3], "float32")}, fetch_list=[optimizer.get_loss_scaling()])[0]
        array([32768.], dtype=float32)
    """
    dtype = dtype_of("bfloat16" if use_bf16 else "float16")
    scaling = _scaling(
        dtype, init_loss_scaling, bool(use_dynamic_loss_scaling), incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio,
        decr_ratio,
    )  # fmt: skip
    guard = bool(use_pure_fp16 if use_fp16_guard is None else use_fp16_guard)
    return _decorated(optimizer, amp_lists, "O2" if use_pure_fp16 else "O1", dtype, scaling, guard, bool(use_promote))


def _overloaded(function: F) -> F:
    """Lets calls with arguments that only the older signature has mean :func:`decorate_older`."""
    newer = inspect.signature(function).parameters

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> OptimizerWithMixedPrecision:
        older = not kwargs.keys() <= newer.keys() or (len(args) > 2 and isinstance(args[2], float))
        return (decorate_older if older else function)(*args, **kwargs)

    return cast(F, chosen)


@export("static.amp.decorate")
@_overloaded
def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    level: Any = "O1",
    dtype: Any = "float16",
    master_weight: bool | None = None,
    master_grad: bool = False,
    init_loss_scaling: float = 2**16,
    incr_every_n_steps: int = 2000,
    decr_every_n_nan_or_inf: int = 1,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.5,
    use_dynamic_loss_scaling: bool | None = None,
    use_amp_guard: bool = False,
    use_promote: bool = False,
) -> OptimizerWithMixedPrecision:
    """Returns an optimizer whose ``minimize`` trains in mixed precision.

    At O1 the ops of the white list run in 16 bits, those of the gray list as their inputs, all others in float32; parameters
    stay float32. At OD only the white list is converted. At O2 parameters and all ops but a few become 16-bit, with float32
    copies of the parameters that the optimizer updates; call ``amp_init`` after the startup program. O0 converts nothing.

    With ``use_pure_fp16``, ``use_fp16_guard`` or ``use_bf16``, and with a float in the place of ``level``, arguments and
    defaults are those of ``fluid.contrib.mixed_precision.decorate``.

    Args:
        optimizer: The rule that updates parameters.
        amp_lists: Which ops run in 16 bits; the defaults without it, and at OD.
        level: ``"O0"``, ``"OD"``, ``"O1"`` or ``"O2"``.
        dtype: ``"float16"`` or ``"bfloat16"``.
        master_weight: At O2, whether the optimizer keeps float32 copies; ``None`` means yes.
        master_grad: At O2, whether 16-bit gradients are converted to float32 before they are unscaled, if there are copies.
        init_loss_scaling: The first factor of the loss.
        incr_every_n_steps: After so many steps without overflow the factor is multiplied by ``incr_ratio``.
        decr_every_n_nan_or_inf: After so many steps with one it is multiplied by ``decr_ratio``.
        incr_ratio: Above 1.
        decr_ratio: Below 1.
        use_dynamic_loss_scaling: Whether the factor moves; by default for float16. bfloat16 needs no scaling: the factor is
            1 then.
        use_amp_guard: At O2, convert only what was built under ``fp16_guard``.
        use_promote: Let ops that are on no white or black list run in float32 if one of their inputs is.

    Raises:
        ProgramError: For another level or dtype.
        ProgramTypeError: If ``optimizer`` is none.

    Example:
        >>> x = static.data("x", [None, 4])
        >>> loss = paddle.mean(static.nn.fc(paddle.nn.functional.relu(static.nn.fc(x, 8)), 1))
        >>> _ = static.amp.decorate(paddle.optimizer.Adam(0.01), dtype="bfloat16").minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> feed = {"x": np.ones([2, 4], "float32")}
        >>> first, second = (exe.run(feed=feed, fetch_list=[loss])[0] for _ in range(2))
        >>> bool(second < first)
        True
    """
    level, low = level_of(level), low_dtype(dtype)
    dynamic = low.name == "float16" if use_dynamic_loss_scaling is None else bool(use_dynamic_loss_scaling)
    scaling = _scaling(
        low, init_loss_scaling, dynamic, incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio, decr_ratio
    )
    lists = None if level == "OD" else amp_lists
    masters = master_weight is not False
    decorated = _decorated(
        optimizer, lists, level, low, scaling, bool(use_amp_guard), bool(use_promote), master_grad and masters
    )
    if masters:
        optimizer._multi_precision = True
    return decorated
