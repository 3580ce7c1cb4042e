"""Sums, extrema, norms and order along axes.

* ``arg_max``: Where the largest and the smallest element stand: argmax and argmin.
* ``argsort``: Sorting along an axis: argsort and sort.
* ``clipping``: Clipping by the norm of one value.
* ``cumsum``: Running sums and products along an axis.
* ``extrema``: Largest and smallest elements over axes, and whether all or any are true.
* ``logsumexp``: `logsumexp`: the logarithm of a sum of exponentials, without overflow.
* ``prod``: Products over axes.
* ``reduction``: Sums and means over axes.
* ``topk``: The k largest or smallest entries, or the k-th, along an axis.
* ``variance``: Functions of several reductions: norms over any axes, variance, and values divided by their norm.
* ``vector_norm``: Norms: `p_norm`, `frobenius_norm`, `squared_l2_norm`, and functions that divide by a norm.
* ``_ordering``: Order along an axis with NaN above all numbers and equal elements in their old order, as torch has
  it.
* ``_reduce``: What the reductions share: axes, shapes, views, tiles.
* ``_sum``: Sums over any axes as products with ones: faster than `add.reduce` and, in blocks, as accurate as
  pairwise summation.
"""
