"""The logarithm of the multivariate gamma function."""

from __future__ import annotations

import math

from tstatic.ir.checks import check_int
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.scale import scale
from tstatic.ops.elementwise.special import lgamma
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.joining import stack


@export("tensor.multigammaln", "Variable.multigammaln", inplace=True)
def multigammaln(x: Variable, p: int, name: str | None = None) -> Variable:
    """Returns the logarithm of the multivariate gamma function of dimension ``p`` at each element.

    It is ``p (p - 1) / 4 log(pi)`` plus the sum of ``lgamma(x - j / 2)`` for ``j`` from 0 to ``p - 1``.

    Args:
        x: Floats above ``(p - 1) / 2``, of any shape.
        p: At least 1.
        name: Name of the layer.

    Raises:
        ShapeError: If ``p`` is less than 1.
    """
    count = check_int(p, "p", "multigammaln", least=1)
    terms = [lgamma(scale(x, bias=-0.5 * j)) for j in range(count)]
    return scale(sum(stack(terms), 0), bias=0.25 * count * (count - 1) * math.log(math.pi), name=name)
