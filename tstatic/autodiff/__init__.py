"""Automatic differentiation: appends gradient ops to the program.

* ``api``        append_backward, gradients
* ``backward``   creates the backward ops of one block, and appends them when all are known
* ``early``      places them before the updates of an earlier ``minimize``
* ``recompute``  segments that are recomputed instead of kept
* ``paths``      which ops and variables gradients flow through

One backward op per forward op, in reverse program order; the partial gradients of one variable are named
``x@GRAD@RENAME@block0@i`` and added by a ``sum`` op.
"""

from tstatic.autodiff.api import append_backward, gradients
from tstatic.autodiff.backward import differentiate_block

__all__ = ["append_backward", "differentiate_block", "gradients"]
