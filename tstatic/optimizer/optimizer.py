"""The optimizer base class: minimize, backward, clipping, decay, accumulators and the learning-rate variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from tstatic.autodiff import append_backward
from tstatic.errors import LossSizeError, ProgramError
from tstatic.ir import names
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_number, check_type
from tstatic.ir.declare import default_startup_program, program_guard
from tstatic.ir.edit import sub_blocks
from tstatic.ir.export import notes_signatures
from tstatic.ir.learning_rate import SetRate
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.updates import numbered
from tstatic.logs import warn_once
from tstatic.nn.clip import ClipGradBase, append_gradient_clip_ops, check_clip, error_clip_callback
from tstatic.nn.initializer import Constant
from tstatic.nn.param import startup_value
from tstatic.nn.regularizer import L2Decay, WeightDecayRegularizer
from tstatic.no_effect import no_effect
from tstatic.optimizer.lr_decay import LRScheduler
from tstatic.passes.row_gradients import results_by_rows
from tstatic.where import show, user_line

Pair = tuple[Variable, Variable | None]
Lookups = tuple[Operator, ...]


FUSED = "``BuildStrategy.fuse_all_optimizer_ops`` updates several parameters at once"


@notes_signatures()
@no_effect(flatten_param_grads=FUSED, align_size=FUSED)
class Optimizer:
    """Base class of update rules.

    Args:
        learning_rate: A float, an LRScheduler, or (1.x) a Variable.
        parameters: Ignored in static programs unless it names a subset to update.
        weight_decay: A float (L2) or a regularizer; a parameter's own regularizer beats it.
        grad_clip: How gradients are clipped.
        name: Prefix of the accumulators' names.
        parameter_list, regularization: The names of ``parameters`` and ``weight_decay`` in Paddle 1.x; those
            count if both are given.

    Raises:
        ProgramTypeError: For arguments of the wrong type.

    Example:
        >>> optimizer = paddle.optimizer.SGD(learning_rate=0.1)
        >>> isinstance(optimizer, paddle.optimizer.Optimizer), optimizer.get_lr()
        (True, 0.1)
        >>> w = paddle.create_parameter([1], "float32", name="w")
        >>> ops, params_grads = optimizer.minimize(paddle.sum(w))
        >>> [(param.name, grad.name) for param, grad in params_grads]
        [('w', 'w@GRAD')]
    """

    type = ""
    _is_restored = True
    """A refused call of a method puts the optimizer's attributes back."""
    _lazy = False
    _multi_precision = False
    _skip_update: Variable | None = None
    """A truth value of the program: a step in which it is true leaves parameters and accumulators as they are."""
    _checkpoints: Any = None
    """Variables or names to keep: what lies between them is computed again in the backward part."""
    _sparse: dict[str, Lookups] | None = None
    """The sparse gradients, where ops that change whole lists of gradients stand between them and the updates."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        *,
        parameter_list: Any = None,
        regularization: Any = None,
        flatten_param_grads: bool = False,
        align_size: int = -1,
    ) -> None:
        parameters = parameter_list if parameters is None else parameters
        weight_decay = regularization if weight_decay is None else weight_decay
        kinds = (int, float, LRScheduler, Variable)
        check_type(learning_rate, kinds, "learning_rate", self.type, expected="a float or an optimizer.lr.LRScheduler")
        if isinstance(learning_rate, int | float):
            check_number(learning_rate, "learning_rate", self.type)
        check_clip(grad_clip)
        self._set_decay(weight_decay)
        self._learning_rate = learning_rate
        self._parameter_list = list(parameters) if parameters is not None else None
        self._grad_clip: ClipGradBase | None = grad_clip
        self._name = name
        self._lr_vars: dict[int, Variable] = {}
        self._accumulators: dict[tuple[int, str, str], Variable] = {}
        self._set_rate = SetRate()
        self._row_masks: dict[str, Variable] = {}

    def _set_decay(self, weight_decay: Any) -> None:
        """Sets what is added to gradients: a regularizer, or a float for L2.

        Raises:
            ProgramTypeError: For anything else.
        """
        if isinstance(weight_decay, int | float) and not isinstance(weight_decay, bool):
            weight_decay = L2Decay(float(weight_decay))
        expected = "a float, regularizer.L1Decay or regularizer.L2Decay"
        check_type(weight_decay, (WeightDecayRegularizer, NoneType), "weight_decay", self.type, expected=expected)
        self.regularization: WeightDecayRegularizer | None = weight_decay

    # -------------------------------------------------------------------------------------------------- learning rate
    def _create_global_learning_rate(self, program: Program, startup: Program) -> Variable:
        found = self._lr_vars.get(program.uid)
        if found is not None:
            return found
        if isinstance(self._learning_rate, Variable):
            self._lr_vars[program.uid] = self._learning_rate
            return self._learning_rate
        name = names.generate("learning_rate")
        block = program.global_block()
        var = block.create_var(name=name, shape=(), dtype="float32", persistable=True, stop_gradient=True)
        startup_value(var, Constant(self.get_lr()), startup)
        scheduled = isinstance(self._learning_rate, LRScheduler)
        if scheduled and any(isinstance(rate, LRScheduler) for rate in program.learning_rates.values()):
            warn_once(
                ("schedulers", program.uid),
                f"{program!r} has two optimizers with a scheduler: each follows its own; Paddle drops all but the last one",
            )
        # The Executor writes it before each run.
        program.learning_rates[name] = self._learning_rate if scheduled else self._set_rate
        self._lr_vars[program.uid] = var
        return var

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """Returns the learning-rate variable of a program (of the last one minimized by default)."""
        if program is not None:
            return self._lr_vars.get(program.uid)
        return next(reversed(self._lr_vars.values()), None)

    def get_lr(self) -> float:
        """Returns the current learning rate."""
        if isinstance(self._learning_rate, LRScheduler):
            return float(self._learning_rate())
        if isinstance(self._learning_rate, Variable):
            raise ProgramError(
                "the learning rate is computed by the program, so it has no value here",
                expected="a float or LRScheduler as learning_rate",
                received=repr(self._learning_rate),
                fix="fetch the learning-rate variable: exe.run(program, fetch_list=[lr])",
                op=self.type,
            )
        return float(self._learning_rate)

    def set_lr(self, value: float) -> None:
        """Sets a constant learning rate for later runs.

        Raises:
            ProgramError: If a scheduler decides it.
        """
        if isinstance(self._learning_rate, LRScheduler | Variable):
            raise ProgramError(
                "optimizer's learning rate can't be set when a scheduler or a variable decides it",
                expected="an optimizer made with a float learning_rate",
                received=repr(self._learning_rate),
                fix="change the scheduler instead",
                op=self.type,
            )
        # The Executor writes it before the next run, as it does for schedulers.
        self._learning_rate = self._set_rate.value = float(value)

    def _parameter_lr(self, param: Variable, lr: Variable) -> Variable:
        ratio = param.optimize_attr.get("learning_rate", 1.0) if isinstance(param, Parameter) else 1.0
        if isinstance(ratio, Variable):
            return ratio
        if ratio == 1.0:
            return lr
        return emit("scale", {"X": lr}, {"scale": float(ratio)})  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------------------------- accumulators
    def _accumulator(
        self, kind: str, param: Variable, value: float = 0.0, shape: Sequence[int] | None = None, dtype: Any = None
    ) -> Variable:
        """Makes ``<param>_<kind>_0``, filled with ``value`` by the startup program; float32 beside a master copy."""
        program = param.block.program
        key = (program.uid, kind, param.name)
        found = self._accumulators.get(key)
        if found is not None:
            return found
        stem = f"{param.name}_{kind}" if self._name is None else f"{param.name}_{self._name}_{kind}"
        var = program.global_block().create_var(
            name=names.generate(stem),
            shape=param.shape if shape is None else shape,
            dtype=dtype if dtype is not None else "float32" if self._has_master(param) else param.dtype,
            persistable=True,
            stop_gradient=True,
        )
        startup_value(var, Constant(value), self._startup)
        self._accumulators[key] = var
        return var

    # ------------------------------------------------------------------------------------------------------- minimize
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Any = None,
        no_grad_set: Any = None,
        parameter_list: Any = None,
    ) -> tuple[list[Operator], list[Pair]]:
        """Appends backward and update ops.

        Args:
            loss: What to minimise.
            startup_program: Gets the ops that start accumulators and the learning rate.
            parameters: Variables or names to update; all trainable ones by default.
            no_grad_set: Variables or names that no gradient flows to.
            parameter_list: Its name in Paddle 1.x; ``parameters`` counts if both are given.

        Returns:
            The update ops, and (parameter, gradient) pairs in program order.

        Raises:
            ProgramTypeError: If ``loss`` is not a Variable.
            LossSizeError: If it has another number of elements than 1.
        """
        check_variable(loss, "loss", f"{self.type or 'Optimizer'}.minimize")
        chosen = parameters if parameters is not None else parameter_list
        pairs = self.backward(loss, startup_program, chosen, no_grad_set)
        ops = self.apply_optimize(loss, startup_program, pairs)
        return ops, pairs

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
        parameter_list: Any = None,
    ) -> list[Pair]:
        """Appends the backward ops; returns (parameter, gradient) pairs.

        Args:
            loss, startup_program, parameters, no_grad_set, parameter_list: As of :meth:`minimize`, with its errors.
            callbacks: Called with ``(block, context)`` after each appended backward op.
        """
        check_variable(loss, "loss", f"{self.type or 'Optimizer'}.backward")
        if loss.meta.numel != 1:
            raise LossSizeError(
                f"The number of elements of loss should be 1, but the current loss.shape is {loss.shape}, whose number of "
                "elements is not 1. Maybe that you should call paddle.mean to process the current loss.",
                expected="a loss of shape [] or [1]",
                received=list(loss.shape),
                fix=f"minimize paddle.mean({loss.name}); static.append_backward differentiates the sum of several elements",
                op=self.type,
                var=loss.name,
            )
        chosen = parameters if parameters is not None else parameter_list
        if chosen is None:
            chosen = self._parameter_list
        startup = startup_program if startup_program is not None else default_startup_program()
        with program_guard(loss.block.program, startup):
            called = [*(callbacks or ()), error_clip_callback]
            pairs = list(append_backward(loss, chosen, no_grad_set, called, self._checkpoints))
        if not pairs:
            warn_once(
                ("nothing to train", loss.block.program.uid, loss.name),
                f"minimize at {show(user_line())} found no gradient for any parameter: no trainable parameter reaches the loss "
                f"'{loss.name}' without a stop_gradient or an operator without a gradient in between, so nothing is trained",
            )
        return pairs

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Pair]
    ) -> list[Operator]:
        """Appends clipping, decay and update ops to the loss's program; returns the update ops.

        Args:
            loss: A Variable of that program.
            startup_program: As of :meth:`minimize`.
            params_grads: (parameter, gradient) pairs; those without a gradient are left out.
        """
        startup = startup_program if startup_program is not None else default_startup_program()
        with program_guard(loss.block.program, startup):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[Pair]) -> list[Operator]:
        """Appends, for pairs sorted by parameter name: clipping, then decay, then one update op each."""
        pairs = sorted(((p, g) for p, g in params_grads if g is not None), key=lambda pair: pair[0].name)
        if not pairs:
            return []
        program = pairs[0][0].block.program
        startup = default_startup_program()
        self._startup = startup
        with program_guard(program, startup), numbered(program), program._role_guard(OpRole.Optimize):
            lr = self._create_global_learning_rate(program, startup)
            block = program.global_block()
            sparse = self._sparse
            if sparse is None:
                sparse = sparse_gradients(block, block.ops) if self._lazy else {}
            unclipped = len(block.ops)
            clipped = append_gradient_clip_ops(pairs) if self._grad_clip is None else self._grad_clip(pairs)
            pairs = [(p, g) for p, g in clipped if g is not None]
            sparse = sparse_gradients(block, block.ops[unclipped:], sparse)
            # A decay term has a value in every row, so as in Paddle every row is updated.
            self._row_masks = {
                p.name: row_mask(sparse[g.name], p)
                for p, g in pairs
                if g.name in sparse and self._added_decay(p) is None
            }
            for p, g in pairs:
                with program._role_guard(OpRole.Optimize, (p.name, g.name)):
                    self._regularize(p, g)
            block = program.current_block()
            before = len(block.ops)
            ops: list[Operator] = []
            for p, g in pairs:
                rate = self._parameter_lr(p, lr)
                with program._role_guard(OpRole.Optimize, (p.name, g.name)):
                    ops.append(self._append(p, g, rate))
            self._finish([p for p, _ in pairs], before)
        return ops

    def _regularize(self, param: Variable, grad: Variable) -> None:
        """Adds the decay term into the gradient's own name."""
        chosen = self._added_decay(param)
        if chosen is not None:
            # A float32 gradient of a 16-bit parameter is that of its float32 copy.
            master = self._master(param) if grad.dtype is not param.dtype else None
            emit("sum", {"X": [grad, chosen.term(param if master is None else master)]}, outputs={"Out": grad})

    def _added_decay(self, param: Variable) -> WeightDecayRegularizer | None:
        """Returns the decay that is added to a gradient; rules that decay inside their op return ``None``."""
        own = param.regularizer if isinstance(param, Parameter) else None
        return own if own is not None else self.regularization

    def _finish(self, params: Sequence[Variable], before: int) -> None:
        """Appends what a rule needs after all updates; nothing by default."""

    def _append(self, param: Variable, grad: Variable, lr: Variable) -> Operator:
        raise NotImplementedError

    def _op(
        self, param: Variable, grad: Variable, lr: Variable, state: Mapping[str, Variable], attrs: Mapping[str, Any],
        optional: Mapping[str, Variable | None] | None = None,
    ) -> Operator:  # fmt: skip
        """Appends the update op: each state slot ``S`` is read and written as ``SOut``."""
        inputs: dict[str, Any] = {"Param": param, "Grad": grad, "LearningRate": lr, **state}
        outputs: dict[str, Any] = {"ParamOut": param, **{f"{s}Out": v for s, v in state.items()}}
        for slot, var in (optional or {}).items():
            if var is not None:
                inputs[slot] = var
                if slot == "MasterParam":
                    outputs["MasterParamOut"] = var
        if self._skip_update is not None:
            inputs["SkipUpdate"] = self._skip_update
        return param.block.program.current_block().append_op(self.type, inputs, outputs, dict(attrs))

    def _has_master(self, param: Variable) -> bool:
        """Returns whether a float32 copy of the parameter is what the rule updates."""
        return self._multi_precision and param.dtype.is_low

    def _master(self, param: Variable) -> Variable | None:
        """Returns the float32 copy of a low-precision parameter, filled from it by the startup program."""
        if not self._has_master(param):
            return None
        key = (param.block.program.uid, "master", param.name)
        found = self._accumulators.get(key)
        if found is not None:
            return found
        name = names.generate(f"{param.name}_fp32_master")
        var = param.block.program.global_block().create_var(
            name=name, shape=param.shape, dtype="float32", persistable=True, stop_gradient=True
        )
        block = self._startup.global_block()
        startup_var = block.create_var(name=name, shape=param.shape, dtype="float32", persistable=True)
        block.append_op(
            "cast", {"X": param.name}, {"Out": startup_var}, {"in_dtype": param.dtype, "out_dtype": "float32"}
        )
        self._accumulators[key] = var
        return var

    # ----------------------------------------------------------------------------------------------- eager-style calls
    def step(self) -> None:
        """Raises an error: in a static program the update is an op."""
        raise ProgramError(
            "optimizer.step() is for eager training",
            expected="optimizer.minimize(loss) once, then exe.run(program, ...) per step",
            received="optimizer.step()",
            fix="call minimize while building the program",
            op=self.type,
        )

    @no_effect(args="there is nothing to clear", kwargs="there is nothing to clear")
    def clear_grad(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: gradients of a static program do not accumulate over runs."""

    clear_gradients = clear_grad

    def __repr__(self) -> str:
        return f"{type(self).__name__}(learning_rate={self._learning_rate!r})"


# -------------------------------------------------------------------------------- rows of a table that the batch looked up
def sparse_gradients(
    block: Block, ops: Sequence[Operator], known: Mapping[str, Lookups] | None = None
) -> dict[str, Lookups]:
    """Finds gradients that are zero outside of the rows that lookups with ``is_sparse`` name.

    Sums, casts, clipping and scaling preserve this. A gradient with other contributions, such as that of a table that is also
    multiplied by something, is not listed, nor is one computed by a block of control flow.

    Args:
        block: Their block.
        ops: Ops in order.
        known: What is known of values before the first of them.

    Returns:
        Name -> the backward ops of the lookups.
    """
    found = dict(known or {})
    for op in ops:
        lookups = _lookups(block, op, found)
        for name in op.output_arg_names:
            found.pop(name, None)
            if lookups:
                found[name] = lookups
    return found


def _lookups(block: Block, op: Operator, found: Mapping[str, Lookups]) -> Lookups:
    if op.definition.of and op.attrs.get("is_sparse"):
        return (op,)
    read = [n for n in op.input_arg_names if n in found]
    if not read or sub_blocks(op):
        return ()
    slots = op.definition.inputs, op.definition.outputs
    inputs, outputs = (
        [tuple(names) if s.many else names[0] if names else None for s in side for names in [of(s.name)]]
        for side, of in zip(slots, (op.input, op.output), strict=True)
    )
    kept = results_by_rows(op.definition, inputs, outputs, op.attrs, lambda n: block._var_recursive(n).meta, found)
    if not kept:
        return ()
    return tuple(dict.fromkeys(one for n in read for one in found[n]))


def row_mask(lookups: Lookups, param: Variable) -> Variable:
    """Emits the ops that count how often each row of a table was looked up, over all replicas; returns ``[rows]``."""
    block = param.block.program.global_block()
    mask = block.create_var(
        name=names.generate(f"{param.name}_rows"), shape=param.shape[:1], dtype="float32", stop_gradient=True
    )
    # The role of a gradient: data parallelism adds up what the replicas counted.
    with block.program._role_guard(OpRole.Backward, (mask.name, mask.name)):
        single = len(lookups) == 1
        counts = [
            emit(
                "embedding_rows",
                {"Ids": op.input("Ids")[0], "W": op.input("W")[0]},
                {"padding_idx": op.attrs["padding_idx"]},
                outputs={"Out": mask} if single else None,
            )
            for op in lookups
        ]
        if not single:
            emit("sum", {"X": counts}, outputs={"Out": mask})
    return mask
