"""Sums, extrema, norms and order along axes.

* ``cumsum``: Running sums and products along an axis.
* ``extrema``: Largest and smallest elements over axes, whether all or any are true, and the logarithm of a sum of
  exponentials.
* ``ordering``: Order along an axis: sort, top-k, the k-th element, and where the largest and smallest stand.
* ``reduction``: Sums, means and products over axes.
* ``running``: Running extremes and sums along an axis, differences of neighbours, and areas under curves.
* ``statistics``: Counts and order statistics along axes: median, quantile, mode, histograms, and sorted search.
* ``vector_norm``: Norms, variance, and values divided by their norm or clipped by it.
* ``_reduce``: What the reductions share: axes, shapes, views, tiles, and the bodies of their functions.
* ``_reduce_onnx``: Their forms in ONNX.
"""
