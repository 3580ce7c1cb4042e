"""``fleet.metrics``: metrics over the workers, from sums that each worker's program keeps."""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

import numpy as np

from tstatic.distributed.fleet.util_base import UtilBase
from tstatic.errors import NotFoundError, ProgramTypeError, shown
from tstatic.ir.checks import check_type
from tstatic.ir.export import door
from tstatic.ir.program import Variable
from tstatic.runtime.scope import Scope, global_scope

Array = np.ndarray[Any, Any]


def _array(input: Any, scope: Scope | None) -> Array:
    """Returns an array, or the value of a variable of the scope."""
    if isinstance(input, Variable | str):
        name = input if isinstance(input, str) else input.name
        found = (scope if scope is not None else global_scope()).find_var(name)
        if found is None:
            raise NotFoundError(
                f"the scope has no variable '{name}'",
                expected="a persistable variable of a program that ran",
                received=repr(name),
                fix="make it with create_global_var(persistable=True), or pass the fetched array",
            )
        return np.array(found.get_tensor())
    if isinstance(input, np.ndarray | np.generic | int | float | list | tuple):
        return np.asarray(input)
    raise ProgramTypeError(
        "fleet.metrics takes an array or a variable",
        expected="a numpy array, a Variable, or its name",
        received=shown(input),
        fix="pass what a run fetched, or the variable",
    )


def _combined(input: Any, mode: str, scope: Scope | None, util: UtilBase | None) -> Array:
    check_type(util, (UtilBase, NoneType), "util", f"fleet.metrics.{mode}", expected="fleet.util, or None")
    return np.asarray((util or UtilBase()).all_reduce(_array(input, scope), mode))


@door("distributed.fleet.metrics.sum")
def sum(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> Array:
    """Returns the sum over all workers, element by element.

    Args:
        input: An array, a Variable or its name.
        scope: Has the variable's value; the global scope by default.
        util: ``fleet.util``.

    Example:
        >>> from tstatic.distributed import fleet
        >>> fleet.init()
        >>> fleet.metrics.sum(np.array([1.0, 2.0]))
        array([1., 2.])
    """
    return _combined(input, "sum", scope, util)


@door("distributed.fleet.metrics.max")
def max(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> Array:
    """Returns the largest of all workers, element by element; arguments as of :func:`sum`."""
    return _combined(input, "max", scope, util)


@door("distributed.fleet.metrics.min")
def min(input: Any, scope: Scope | None = None, util: UtilBase | None = None) -> Array:
    """Returns the smallest of all workers, element by element; arguments as of :func:`sum`."""
    return _combined(input, "min", scope, util)


def _total(input: Any, scope: Scope | None, util: UtilBase | None) -> float:
    return float(_combined(input, "sum", scope, util).reshape(-1)[0])


@door("distributed.fleet.metrics.acc")
def acc(correct: Any, total: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """Returns the share of correct answers over all workers.

    Args:
        correct: Number of correct answers: an array of one element, a Variable or its name.
        total: Number of answers, likewise.
        scope: Has the variables' values; the global scope by default.
        util: ``fleet.util``.
    """
    return _total(correct, scope, util) / _total(total, scope, util)


@door("distributed.fleet.metrics.mae")
def mae(abserr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """Returns the mean absolute error over all workers.

    Args:
        abserr: Sum of absolute errors: an array of one element, a Variable or its name.
        total_ins_num: Number of this worker's samples: a number, an array of one element, a Variable or its name.
        scope: Has the variables' values; the global scope by default.
        util: ``fleet.util``.
    """
    return _total(abserr, scope, util) / _total(total_ins_num, scope, util)


@door("distributed.fleet.metrics.mse")
def mse(sqrerr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """Returns the mean squared error over all workers; ``sqrerr`` is a sum of squares, other arguments as of :func:`mae`."""
    return _total(sqrerr, scope, util) / _total(total_ins_num, scope, util)


@door("distributed.fleet.metrics.rmse")
def rmse(sqrerr: Any, total_ins_num: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """Returns the root of :func:`mse`, with its arguments."""
    return math.sqrt(mse(sqrerr, total_ins_num, scope, util))


@door("distributed.fleet.metrics.auc")
def auc(stat_pos: Any, stat_neg: Any, scope: Scope | None = None, util: UtilBase | None = None) -> float:
    """Returns the area under the ROC curve over all workers, from the counts that ``static.auc`` keeps; 0.5 without samples.

    Args:
        stat_pos: Number of positive samples per bucket of the score: an array, a Variable or its name.
        stat_neg: Number of negative samples, likewise.
        scope: Has the variables' values; the global scope by default.
        util: ``fleet.util``.
    """
    # From the highest score down: true and false positives at each threshold.
    above = [np.cumsum(_combined(stat, "sum", scope, util).reshape(-1)[::-1].astype(np.float64))
             for stat in (stat_pos, stat_neg)]  # fmt: skip
    positive, negative = (np.concatenate([[0.0], counts]) for counts in above)
    if positive[-1] == 0 or negative[-1] == 0:
        return 0.5
    area = np.sum((negative[1:] - negative[:-1]) * (positive[1:] + positive[:-1])) / 2.0
    return float(area / (positive[-1] * negative[-1]))


__all__ = ["acc", "auc", "mae", "max", "min", "mse", "rmse", "sum"]
