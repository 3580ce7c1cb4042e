"""Functions of the expression language that need tuned numpy, or more than one line of it.

The package ``tstatic.ops`` imports this module, and nothing else, so that expressions mean the same whichever ops are loaded. It
must not import other modules of ``tstatic.ops``: a thread that imports one holds its lock while it waits for the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.tuned._common import Array, make
from tstatic.tuned.special import erf, special_scratch


def _erf(x: Array, out: Array) -> None:
    # Three cache-sized blocks, made anew so that threads may share the compiled expression.
    erf(x, out, make(special_scratch(x.size, x.dtype)))


def _power(x: Array, y: Array, out: Array) -> None:
    """Computes ``x ** y``; integers to a negative power are 1 or -1 for a base of that size, else 0, as in torch."""
    if out.dtype.kind not in "iu" or np.all(np.asarray(y) >= 0):
        np.power(x, y, out)
        return
    # numpy raises for integers to negative powers, so these exponents are replaced before.
    base, exponent = (np.array(np.broadcast_to(a, out.shape)) for a in (x, y))
    negative, unit = exponent < 0, np.abs(base) == 1
    np.power(base, np.where(negative, np.where(unit, -exponent, 0), exponent), out)
    np.copyto(out, 0, where=negative & ~unit)


def _torch_pair(name: str) -> Any:
    def call(torch: Any, a: Any, b: Any) -> Any:
        # torch's functions of two tensors take no Python numbers.
        like = a if hasattr(a, "dtype") else b
        return getattr(torch, name)(
            *(v if hasattr(v, "dtype") else torch.as_tensor(v, dtype=like.dtype) for v in (a, b))
        )

    return call


# The factor is 2 / sqrt(pi).
expr.define("erf", _erf, None, "1.1283791670955126 * exp(-a * a)", triton="tl.erf({a})")
expr.define("atan2", np.arctan2, _torch_pair("atan2"), "b / (a * a + b * b)", "-a / (a * a + b * b)")
# Beside a NaN the number is the result, and gets the gradient.
expr.define("fmax", np.fmax, _torch_pair("fmax"), "(a >= b) | isnan(b)", "~((a >= b) | isnan(b))")
expr.define("fmin", np.fmin, _torch_pair("fmin"), "(a <= b) | isnan(b)", "~((a <= b) | isnan(b))")
_POWER = expr.FUNCTIONS["pow"]
expr.define("pow", _power, _POWER.torch, *_POWER.grads)
