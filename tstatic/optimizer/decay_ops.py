"""The 1.x learning-rate decays: ops of the program that compute the rate from a step counter kept in the scope."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.checks import check_number
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.param import create_global_var
from tstatic.ops.elementwise.arithmetic import maximum, minimum
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import ceil, cos, exp, floor
from tstatic.ops.shape.creation import full
from tstatic.optimizer.decay_formulas import exponential, inverse_time, natural_exponential, noam, polynomial

COUNTER = "@LR_DECAY_COUNTER@"

# In the formulas below, t is the number of finished runs of the program (noam_decay: of this run, counted from 1), and every
# result is a float32 Variable of shape [1].


def _rate(function: str, value: Any) -> Any:
    """Returns a start rate: a checked number, or the Variable of another decay."""
    return value if isinstance(value, Variable) else check_number(value, "learning_rate", function)


def _constant(value: float) -> Variable:
    return full([1], value, "float32")


@export("fluid.layers.autoincreased_step_counter", "fluid.layers.nn.autoincreased_step_counter")
def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """Makes a counter in the scope that every run of the main program advances first.

    Args:
        counter_name: Its name; programs that ask twice for one name share the counter. ``@STEP_COUNTER@`` by default.
        begin: What the first run sees.
        step: What each run adds.

    Returns:
        A persistable int64 Variable of shape ``[1]``.
    """
    name = "@STEP_COUNTER@" if counter_name is None else counter_name
    block = default_main_program().global_block()
    if block.has_var(name):
        return block.var(name)
    counter = create_global_var([1], begin - step, "int64", persistable=True, name=name)
    block._prepend_op(type="increment", inputs={"X": counter}, outputs={"Out": counter}, attrs={"step": step})
    return counter


@export("fluid.layers.learning_rate_scheduler._decay_step_counter")
def _decay_step_counter(begin: int = 0) -> Variable:
    """Returns the counter ``@LR_DECAY_COUNTER@`` that all decays of a program share, as float32 ``[1]``.

    Args:
        begin: What the first run sees.
    """
    with default_main_program()._lr_schedule_guard():
        return cast(autoincreased_step_counter(COUNTER, begin), "float32")


@export("fluid.layers.noam_decay", "fluid.layers.learning_rate_scheduler.noam_decay")
def noam_decay(d_model: float, warmup_steps: float, learning_rate: float | Variable = 1.0) -> Variable:
    """Returns ``learning_rate * d_model**-0.5 * min(t**-0.5, t * warmup_steps**-1.5)`` with t = 1, 2, ...

    Source: Vaswani et al., Attention Is All You Need (2017), section 5.3.

    Args:
        d_model: Width of the model, > 0.
        warmup_steps: Number of runs over which the rate rises, > 0.
        learning_rate: Factor.

    Example:
        >>> rate = fluid.layers.noam_decay(d_model=4, warmup_steps=4)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [round(exe.run(fetch_list=[rate])[0].item(), 4) for _ in range(6)]
        [0.0625, 0.125, 0.1875, 0.25, 0.2236, 0.2041]
    """
    width = check_number(d_model, "d_model", "noam_decay", above=0.0)
    rise = check_number(warmup_steps, "warmup_steps", "noam_decay", above=0.0)
    rate = _rate("noam_decay", learning_rate)
    with default_main_program()._lr_schedule_guard():
        return noam(rate, width, rise, _decay_step_counter(1), minimum)  # type: ignore[no-any-return]


def _turns(function: str, decay_steps: float, staircase: bool, name: str = "decay_steps") -> Any:
    """Returns ``t / decay_steps``, rounded down if ``staircase``."""
    length = check_number(decay_steps, name, function, above=0.0)
    turns = _decay_step_counter() / length
    return floor(turns) if staircase else turns


@export(
    "static.exponential_decay",
    "fluid.layers.exponential_decay",
    "fluid.layers.learning_rate_scheduler.exponential_decay",
)
def exponential_decay(
    learning_rate: float | Variable, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Variable:
    """Returns ``learning_rate * decay_rate ** (t / decay_steps)``.

    Args:
        learning_rate: The rate at t = 0.
        decay_steps: Number of runs after which the rate is multiplied by ``decay_rate``, > 0.
        decay_rate: Factor, > 0.
        staircase: Round ``t / decay_steps`` down, so that the rate falls in steps.

    Example:
        >>> rate = static.exponential_decay(1.0, decay_steps=2, decay_rate=0.25)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [round(exe.run(fetch_list=[rate])[0].item(), 4) for _ in range(3)]
        [1.0, 0.5, 0.25]
    """
    rate = _rate("exponential_decay", learning_rate)
    factor = check_number(decay_rate, "decay_rate", "exponential_decay", above=0.0)
    with default_main_program()._lr_schedule_guard():
        turns = _turns("exponential_decay", decay_steps, staircase)
        return exponential(rate, factor, turns)  # type: ignore[no-any-return]


@export("fluid.layers.natural_exp_decay", "fluid.layers.learning_rate_scheduler.natural_exp_decay")
def natural_exp_decay(
    learning_rate: float | Variable, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Variable:
    """Returns ``learning_rate * exp(-decay_rate * t / decay_steps)``; arguments as in :func:`exponential_decay`.

    Args:
        learning_rate: The rate at t = 0, before the first run.
        decay_steps: Runs per unit of ``decay_rate``, > 0.
        decay_rate: A number.
        staircase: Round ``t / decay_steps`` down, so that the rate falls in steps.

    Raises:
        ProgramError: If ``decay_steps`` is not positive.
    """
    rate = _rate("natural_exp_decay", learning_rate)
    factor = check_number(decay_rate, "decay_rate", "natural_exp_decay")
    with default_main_program()._lr_schedule_guard():
        turns = _turns("natural_exp_decay", decay_steps, staircase)
        return natural_exponential(rate, factor, turns, exp)  # type: ignore[no-any-return]


@export("fluid.layers.inverse_time_decay", "fluid.layers.learning_rate_scheduler.inverse_time_decay")
def inverse_time_decay(
    learning_rate: float | Variable, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Variable:
    """Returns ``learning_rate / (1 + decay_rate * t / decay_steps)``; arguments as in :func:`exponential_decay`.

    Args:
        learning_rate: The rate at t = 0, before the first run.
        decay_steps: Runs per unit of ``decay_rate``, > 0.
        decay_rate: A number.
        staircase: Round ``t / decay_steps`` down, so that the rate falls in steps.

    Raises:
        ProgramError: If ``decay_steps`` is not positive.
    """
    rate = _rate("inverse_time_decay", learning_rate)
    factor = check_number(decay_rate, "decay_rate", "inverse_time_decay")
    with default_main_program()._lr_schedule_guard():
        turns = _turns("inverse_time_decay", decay_steps, staircase)
        return inverse_time(rate, factor, turns)  # type: ignore[no-any-return]


@export("fluid.layers.polynomial_decay", "fluid.layers.learning_rate_scheduler.polynomial_decay")
def polynomial_decay(
    learning_rate: float | Variable,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Variable:
    """Returns ``(learning_rate - end_learning_rate) * (1 - min(t, N) / N)**power + end_learning_rate`` with ``N = decay_steps``.

    Args:
        learning_rate: The rate at t = 0.
        decay_steps: Number of runs to reach the last rate, > 0.
        end_learning_rate: The last rate.
        power: Exponent.
        cycle: Jump up and start again: N is then the smallest multiple of ``decay_steps`` that is not below t.

    Example:
        >>> rate = fluid.layers.polynomial_decay(1.0, decay_steps=4, end_learning_rate=0.0)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [exe.run(fetch_list=[rate])[0].item() for _ in range(6)]
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """
    rate = _rate("polynomial_decay", learning_rate)
    end = check_number(end_learning_rate, "end_learning_rate", "polynomial_decay")
    exponent = check_number(power, "power", "polynomial_decay")
    length = check_number(decay_steps, "decay_steps", "polynomial_decay", above=0.0)
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        if cycle:
            done = step / (maximum(ceil(step / length), _constant(1.0)) * length)
        else:
            done = minimum(step, _constant(length)) / length
        return polynomial(rate, end, exponent, done)  # type: ignore[no-any-return]


@export("fluid.layers.piecewise_decay", "fluid.layers.learning_rate_scheduler.piecewise_decay")
def piecewise_decay(boundaries: Sequence[float], values: Sequence[float]) -> Variable:
    """Returns ``values[i]`` while ``t < boundaries[i]``, and the last value from the last boundary on.

    Args:
        boundaries: Increasing numbers of runs.
        values: The rates, one more than there are boundaries.

    Raises:
        ProgramError: If the counts do not fit or the boundaries do not increase.
    """
    limits = [check_number(b, f"boundaries[{i}]", "piecewise_decay") for i, b in enumerate(boundaries)]
    rates = [check_number(v, f"values[{i}]", "piecewise_decay") for i, v in enumerate(values)]
    if len(rates) - len(limits) != 1 or any(a >= b for a, b in itertools.pairwise(limits)):
        raise ProgramError(
            "len(values) - len(boundaries) should be 1, and boundaries should increase",
            expected="increasing boundaries, and one value more than there are boundaries",
            received=f"boundaries {list(boundaries)}, values {list(values)}",
            fix="give one rate for each stretch",
            op="piecewise_decay",
        )
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        result: Any = _constant(rates[-1])
        for limit, rate in zip(reversed(limits), reversed(rates[:-1]), strict=True):
            result = where(step < limit, _constant(rate), result)
        return result  # type: ignore[no-any-return]


@export("fluid.layers.cosine_decay", "fluid.layers.learning_rate_scheduler.cosine_decay")
def cosine_decay(learning_rate: float | Variable, step_each_epoch: float, epochs: float) -> Variable:
    """Returns ``learning_rate * (1 + cos(pi * epoch / epochs)) / 2`` with ``epoch = floor(t / step_each_epoch)``.

    Args:
        learning_rate: The rate of epoch 0.
        step_each_epoch: Number of runs in an epoch, > 0.
        epochs: Number of epochs, > 0.
    """
    rate = _rate("cosine_decay", learning_rate)
    count = check_number(epochs, "epochs", "cosine_decay", above=0.0)
    with default_main_program()._lr_schedule_guard():
        epoch = _turns("cosine_decay", step_each_epoch, True, "step_each_epoch")
        return (cos(epoch * (math.pi / count)) + 1.0) * (rate * 0.5)  # type: ignore[no-any-return]


@export("fluid.layers.linear_lr_warmup", "fluid.layers.learning_rate_scheduler.linear_lr_warmup")
def linear_lr_warmup(learning_rate: float | Variable, warmup_steps: float, start_lr: float, end_lr: float) -> Variable:
    """Returns ``start_lr + (end_lr - start_lr) * t / warmup_steps`` while ``t < warmup_steps``, then ``learning_rate``.

    Args:
        learning_rate: A number, or the Variable of another decay.
        warmup_steps: Number of runs of the warm-up, > 0.
        start_lr: The first rate.
        end_lr: What the warm-up rises to.
    """
    rate = _rate("linear_lr_warmup", learning_rate)
    first = check_number(start_lr, "start_lr", "linear_lr_warmup")
    rise = check_number(end_lr, "end_lr", "linear_lr_warmup") - first
    length = check_number(warmup_steps, "warmup_steps", "linear_lr_warmup", above=0.0)
    with default_main_program()._lr_schedule_guard():
        step = _decay_step_counter()
        after = rate if isinstance(rate, Variable) else _constant(rate)
        return where(step < length, step * (rise / length) + first, after)  # type: ignore[no-any-return]
