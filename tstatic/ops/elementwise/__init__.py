"""Arithmetic element by element: unary and binary functions, comparisons, activations, and what they share.

* ``activation``: Smooth activations: sigmoid, tanh, softplus and their relatives, and GELU.
* ``activation_piecewise``: Activations with kinks: relu, its relatives, shrinkage, the hard sigmoids, and PReLU.
* ``add_n``: Sums of several values of one shape: the `sum` op that gradient accumulation uses too.
* ``arithmetic``: Arithmetic of two values that broadcast: add, sub, mul, div, min, max, pow, mod, floordiv, fmax,
  fmin, and lerp.
* ``logic``: Comparisons, nearness, truth values and bits, tests for NaN and infinity, and choice by a condition.
* ``maxout``: The maximum over groups of channels.
* ``pairs``: Functions of two values that broadcast, beside arithmetic: heaviside, nextafter, gcd, lcm, hypot and others.
* ``scale``: Copies, conversions, linear functions and limits of one value: assign, cast, scale, increment, clip.
* ``special``: The gamma function and its derivatives, Bessel functions, and the inverse of erf.
* ``unary``: Exponentials, logarithms, roots, powers, circular functions, rounding, absolute value, sign and erf.
* ``_broadcast``: Ops of several inputs that broadcast: alignment by Paddle's `axis`, `infer`, and gradients summed
  back.
* ``_elementwise_onnx``: Their forms in ONNX.
"""
