"""The formulas of learning rates that decay, of a float (the schedulers of 2.x) or of a Variable (the ops of 1.x).

Schedules that round differently in the two say their formula themselves: ``CosineAnnealingDecay`` divides before it multiplies by
pi, ``cosine_decay`` multiplies by ``pi / epochs``; ``LinearWarmup`` divides last, ``linear_lr_warmup`` multiplies by the slope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Rates and steps are floats or Variables, and so are results. Bits depend on the order of the operations.


def noam(rate: Any, d_model: float, warmup_steps: float, step: Any, minimum: Callable[[Any, Any], Any]) -> Any:
    """Returns the rate at a step > 0: a line up to ``warmup_steps``, then the inverse square root.

    Source: Vaswani et al., Attention Is All You Need (2017), section 5.3.
    """
    return rate * d_model**-0.5 * minimum(step**-0.5, step * warmup_steps**-1.5)


def exponential(rate: Any, factor: float, count: Any) -> Any:
    """Returns ``rate`` after ``count`` multiplications by ``factor``."""
    return rate * factor**count


def natural_exponential(rate: Any, speed: float, step: Any, exp: Callable[[Any], Any]) -> Any:
    """Returns ``rate`` times e to the power of ``-speed * step``."""
    return rate * exp(-speed * step)


def inverse_time(rate: Any, speed: float, step: Any) -> Any:
    """Returns ``rate`` divided by a line that starts at 1."""
    return rate / (1.0 + speed * step)


def polynomial(rate: Any, end: float, power: float, done: Any) -> Any:
    """Returns the rate between ``rate`` (``done`` = 0) and ``end`` (``done`` = 1)."""
    return (rate - end) * (1.0 - done) ** power + end
