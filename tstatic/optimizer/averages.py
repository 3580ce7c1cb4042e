"""Averages of parameters over the steps of a training: made by ops of the program, used for a while by ``apply``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tstatic.autodiff.paths import path_to
from tstatic.errors import ProgramError
from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.checks import check_callable, check_int, check_number, check_type
from tstatic.ir.declare import default_main_program, program_guard
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.updates import numbered
from tstatic.nn.param import create_global_var
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.arithmetic import minimum
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast
from tstatic.optimizer.decay_ops import autoincreased_step_counter


class _Average:
    """What averages share: a program that puts them into the parameters, and one that puts the parameters back.

    Of a 16-bit parameter that an optimizer updates through a float32 copy, the copy is averaged.
    """

    _is_restored = True

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        if not parameters:
            raise ProgramError(
                f"{type(self).__name__} found no parameters to average",
                expected="a main program with parameters",
                received="none",
                fix=f"make {type(self).__name__} after the layers and minimize, in the same program",
            )
        self._parameters = list(parameters)
        self._backups: dict[str, str] = {}
        self._inside = False
        self.apply_program, self.restore_program = Program(), Program()

    def _average(self, param: Parameter) -> Variable:
        """Emits, in the program that applies averages, the average of a parameter."""
        raise NotImplementedError

    def _fill_programs(self) -> None:
        """Fills the two programs, once all state has names."""
        with program_guard(self.apply_program, Program()):
            for param in self._parameters:
                average = self._average(param)
                for target in copies(param):
                    mine = _seen(target)
                    self._backups[target.name] = names.generate(f"{target.name}_backup")
                    emit("assign", {"X": mine}, outputs={"Out": _seen(target, self._backups[target.name])})
                    emit("cast", {"X": average}, {"out_dtype": mine.dtype}, outputs={"Out": mine})
        with program_guard(self.restore_program, Program()):
            for target in (one for param in self._parameters for one in copies(param)):
                emit("assign", {"X": _seen(target, self._backups[target.name])}, outputs={"Out": _seen(target)})

    @contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Puts the averages into the parameters for the statements of a ``with``.

        Args:
            executor: The Executor that trains; acts on the scope that is current.
            need_restore: Put the parameters back at the end, after an error, too; otherwise :meth:`restore` does it.

        Raises:
            ProgramError: Inside another ``apply`` of this object.
        """
        check_callable(getattr(executor, "run", None), "executor.run", f"{type(self).__name__}.apply", "an Executor")
        if self._inside:
            raise ProgramError(
                "the averages are in the parameters already",
                expected="one apply at a time",
                received="apply inside of apply",
                fix="leave the first 'with' before the second: it would keep averages as the parameters to put back",
            )
        executor.run(self.apply_program)
        self._inside = need_restore
        try:
            yield
        finally:
            self._inside = False
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Puts the parameters back that the last :meth:`apply` replaced.

        Args:
            executor: The Executor that applied the averages.

        Raises:
            UninitializedError: If they were never applied in this scope.
        """
        executor.run(self.restore_program)


def _seen(var: Variable, name: str | None = None) -> Variable:
    """Returns a variable of the current program with the shape and dtype of another, and its name or a new one."""
    block = default_main_program().global_block()
    name = name or var.name
    if block.has_var(name):
        return block.var(name)
    return block.create_var(name=name, shape=var.shape, dtype=var.dtype, persistable=True, stop_gradient=True)


def _averaged(program: Program) -> list[Parameter]:
    """Returns the parameters of a program, running statistics too, whose attributes do not exclude them."""
    return [p for p in program.all_parameters() if p.do_model_average is not False]


def copies(param: Parameter) -> list[Variable]:
    """Returns the float32 copy that updates of a parameter work on, if there is one, and the parameter."""
    found: list[Variable] = []
    for op in param.block.ops:
        if op.definition.update and op.input("Param")[:1] == [param.name] and op.input("MasterParam"):
            found = [param.block.var(op.input("MasterParam")[0])]
    return [*found, param]


def _trained_by(program: Program, parameters: Sequence[Parameter]) -> dict[str, tuple[int, ...]]:
    """Returns the numbers of the ``minimize`` calls whose steps move the average of each parameter.

    Those that update it; of a running statistic, those of losses that its operator takes part in; of a value that nothing
    changes, all.
    """
    ops = program.global_block().ops
    numbers = sorted({n for op in ops for n in op.updates})
    writers: dict[str, set[int]] = {}
    for number in numbers:
        own = [op for op in ops if number in op.updates]
        path = {id(ops[i]) for i in path_to(ops, [n for op in own for n in op.input_arg_names])}
        for op in ops:
            if number in op.updates or (id(op) in path and not op.role & OpRole.Optimize):
                for name in op.output_arg_names:
                    writers.setdefault(name, set()).add(number)
    return {p.name: tuple(sorted(writers.get(p.name, numbers))) for p in parameters}


def _step_counter(program: Program, updates: tuple[int, ...]) -> Variable:
    """Makes the count of the steps of some ``minimize`` calls; all averages of the program share it."""
    name = "@EMA_STEP_COUNTER@"
    if updates != tuple(sorted({n for op in program.global_block().ops for n in op.updates})):
        name += "_".join(["", *map(str, updates)])
    counted = program.global_block().has_var(name)
    with program._lr_schedule_guard(is_with_opt=True):
        counter = autoincreased_step_counter(name)
    if not counted:
        program.global_block().ops[0].updates = updates
    return counter


def _state(stem: str, param: Parameter) -> Variable:
    """Makes a sum or average of the parameter's shape that starts at 0; float32 for 16 bits."""
    dtype = "float32" if param.dtype.is_low else param.dtype
    return create_global_var(list(param.shape), 0.0, dtype, persistable=True, name=names.generate(stem))


def _wide(param: Parameter, dtype: Any) -> Variable:
    """Returns the parameter, or its float32 copy, in the dtype of its average."""
    source = copies(param)[0]
    return source if source.dtype is dtype else cast(source, dtype)


@export("static.ExponentialMovingAverage", "fluid.optimizer.ExponentialMovingAverage")
class ExponentialMovingAverage(_Average):
    """E = decay * E + (1 - decay) * p after each step, from 0; ``apply`` uses E / (1 - decay^t) after t steps.

    Make it after ``minimize`` and call :meth:`update` once: that appends the ops that keep the averages, so each run of the
    program moves them, on every place. ``static.save`` saves them with the optimizer's state. A ``ParamAttr`` with
    ``do_model_average=False`` leaves its parameter out.

    Args:
        decay: How much of the average stays; from 0 to below 1.
        thres_steps: A Variable t that counts steps; the decay is then ``min(decay, (1 + t) / (10 + t))``.
        name: Prefix of the names ``<parameter>_ema_0`` of the averages.

    Raises:
        ProgramError: If ``decay`` is out of range, or the main program has no parameters.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> _ = paddle.optimizer.SGD(0.1).minimize(paddle.sum(w))
        >>> ema = static.ExponentialMovingAverage(0.9)
        >>> ema.update()
        >>> exe = static.Executor()
        >>> _ = [exe.run(p) for p in (static.default_startup_program(), None, None, None)]  # 0.9, 0.8, 0.7
        >>> with ema.apply(exe):
        ...     print(np.array(static.global_scope().find_var(w.name).get_tensor()))
        [0.793]
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        where_ = "ExponentialMovingAverage"
        self._decay = check_number(decay, "decay", where_, least=0, below=1)
        check_type(thres_steps, (Variable, type(None)), "thres_steps", where_)
        program = default_main_program()
        super().__init__(_averaged(program))
        prefix = name or ""
        self._updates = _trained_by(program, self._parameters)
        self._steps = {p.name: _step_counter(program, self._updates[p.name]) for p in self._parameters}
        with program._lr_schedule_guard():
            self._rate = self._scheduled(thres_steps, program)
        self._ema = {p.name: _state(f"{prefix}{p.name}_ema", p) for p in self._parameters}
        self._fill_programs()

    def _scheduled(self, thres_steps: Variable | None, program: Program) -> Variable:
        """Emits the decay of a step."""
        name = "scheduled_ema_decay_rate"
        name = names.generate(name) if program.global_block().has_var(name) else name
        rate = create_global_var([1], self._decay, "float32", persistable=True, name=name)
        if thres_steps is not None:
            t = cast(thres_steps, "float32").reshape([1])
            emit("assign", {"X": minimum((t + 1.0) / (t + 10.0), rate * 0.0 + self._decay)}, outputs={"Out": rate})
        return rate

    def update(self) -> None:
        """Appends the ops that move the averages to the program they were made in; call it once, after ``minimize``."""
        program = self._parameters[0].block.program
        with program_guard(program), program._role_guard(OpRole.Optimize):
            for param in self._parameters:
                average = self._ema[param.name]
                value = _wide(param, average.dtype)
                decay = self._rate if average.dtype is self._rate.dtype else cast(self._rate, average.dtype)
                slots = {"Average": average, "Value": value, "Decay": decay}
                with numbered(program, self._updates[param.name]):
                    emit("exponential_moving_average", slots, outputs={"AverageOut": average})

    def _average(self, param: Parameter) -> Variable:
        average, steps, rate = _seen(self._ema[param.name]), _seen(self._steps[param.name]), _seen(self._rate)
        weight = 1.0 - rate ** cast(steps, "float32")
        # Before the first step the average is 0, and so is its weight.
        weight = where(steps > 0, weight, weight * 0.0 + 1.0)
        corrected: Variable = average / cast(weight, average.dtype)
        return corrected


@export("incubate.ModelAverage", "incubate.optimizer.ModelAverage")
class ModelAverage(_Average):
    """The mean of a parameter over a window of the last steps.

    Make it after ``minimize``: each run of the program then adds the parameters to sums. A window ends when it has
    ``min_average_window`` steps, and ``min(max_average_window, int(steps * average_window_rate))``; the mean is over the last whole
    window and the steps since. Without a step there is no mean: ``apply`` leaves the parameters.

    Args:
        average_window_rate: Length of a window relative to the number of steps so far.
        parameters: Which parameters; by default all whose ``ParamAttr`` has not ``do_model_average=False``.
        min_average_window: Least number of steps of a window.
        max_average_window: Number of steps from which a window may end whatever the rate is; at least 1.
        name: Prefix of the names of the sums, after that of the parameter.

    Raises:
        ProgramError: If a number is out of range, or there are no parameters.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> _ = paddle.optimizer.SGD(0.1).minimize(paddle.sum(w))
        >>> average = paddle.incubate.ModelAverage(0.15, min_average_window=2, max_average_window=10)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> _ = [exe.run() for _ in range(5)]  # 0.9, 0.8, 0.7, 0.6, 0.5
        >>> with average.apply(exe):  # the mean of the last three
        ...     print(np.array(static.global_scope().find_var(w.name).get_tensor()))
        [0.6]
    """

    _counts = ("num_accumulates", "old_num_accumulates", "num_updates")

    def __init__(
        self,
        average_window_rate: float,
        parameters: Sequence[Parameter] | None = None,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        name: str | None = None,
    ) -> None:
        attrs = {
            "average_window": check_number(average_window_rate, "average_window_rate", "ModelAverage", least=0),
            "min_average_window": check_int(min_average_window, "min_average_window", "ModelAverage", least=0),
            "max_average_window": check_int(max_average_window, "max_average_window", "ModelAverage", least=1),
        }
        program = default_main_program()
        super().__init__(_averaged(program) if parameters is None else list(parameters))
        self._sums: dict[str, dict[str, Variable]] = {}
        trained_by = _trained_by(program, self._parameters)
        prefix = "" if name is None else f"{name}_"
        with program_guard(program), program._role_guard(OpRole.Optimize):
            for param in self._parameters:
                state = {f"sum_{i}": _state(f"{param.name}_{prefix}sum_{i}", param) for i in (1, 2, 3)}
                for kind in self._counts:
                    stem = names.generate(f"{param.name}_{prefix}{kind}")
                    state[kind] = create_global_var([1], 0, "int64", persistable=True, name=stem)
                self._sums[param.name] = state
                slots = {"param": _wide(param, state["sum_1"].dtype), **{f"in_{n}": v for n, v in state.items()}}
                outputs = {f"out_{n}": v for n, v in state.items()}
                with numbered(program, trained_by[param.name]):
                    emit("average_accumulates", slots, attrs, outputs=outputs)
        self._fill_programs()

    def _average(self, param: Parameter) -> Variable:
        state = {name: _seen(var) for name, var in self._sums[param.name].items()}
        total = state["sum_1"] + state["sum_2"] + state["sum_3"]
        number = state["num_accumulates"] + state["old_num_accumulates"]
        value = cast(_seen(copies(param)[0]), total.dtype)
        mean = total / cast(where(number > 0, number, number + 1), total.dtype)
        chosen: Variable = where(number > 0, mean, value)
        return chosen


@no_effect(regularization="an average has no loss that a penalty could be added to")
@export("fluid.optimizer.ModelAverage")
class FluidModelAverage(ModelAverage):
    """1.x spelling of :class:`incubate.ModelAverage`.

    Args:
        average_window_rate, min_average_window, max_average_window, name: As there.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> _ = fluid.optimizer.SGD(0.1).minimize(paddle.sum(w))
        >>> average = fluid.optimizer.ModelAverage(0.15, 2, 10)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> _ = [exe.run(fetch_list=[w]) for _ in range(5)]
        >>> with average.apply(exe):
        ...     print(np.array(static.global_scope().find_var(w.name).get_tensor()))
        [0.6]
    """

    def __init__(
        self, average_window_rate: float, min_average_window: int = 10000, max_average_window: int = 10000,
        regularization: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(average_window_rate, None, min_average_window, max_average_window, name)
