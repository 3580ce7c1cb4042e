"""Rewrites of a frozen program around the fusions.

* ``identity_gradients``, ``shape_readers``  before them: they let more patterns match
* ``recompute``, ``redrawn``  ops that a kernel computes or draws once more, so that their results need not be stored
* ``moves``  ops that only move elements around a group
* ``finish_together``  behind them: partial sums of many kernels in one launch
"""
