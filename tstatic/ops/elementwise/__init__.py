"""Arithmetic element by element: unary and binary functions, comparisons, activations, and what they share.

* ``activation``: Smooth activations: sigmoid, tanh, softplus and their relatives.
* ``activation_piecewise``: Activations with kinks: relu, its relatives, shrinkage and the hard sigmoids.
* ``add_n``: Sums of several values of one shape: the `sum` op that gradient accumulation uses too.
* ``arithmetic``: Arithmetic of two values that broadcast: add, sub, mul, div, min, max, pow, mod, floordiv, fmax,
  fmin, atan2.
* ``arithmetic_fluid``: The `fluid.layers` spellings of arithmetic: with Paddle's `axis` and an activation by
  name.
* ``cast``: Conversion of dtypes and copies: cast and assign.
* ``clip``: Limits: clip.
* ``close``: Nearness and equality of whole values: isclose, allclose, equal_all.
* ``compare``: Comparisons of two values that broadcast: equal, not_equal, less and greater, with or without equality.
* ``gelu``: GELU, exact or by its tanh approximation.
* ``lerp``: Linear interpolation between two values.
* ``logic``: Truth values and bits: logical and bitwise operators, tests for NaN and infinity, is_empty.
* ``maxout``: The maximum over groups of channels.
* ``operators``: Python's operators on Variables: which ops they build.
* ``prelu``: PReLU: a leaky relu whose slope is learned, one for all, one per channel, or one per element.
* ``rounding``: Rounding of each element: floor, ceil, round, trunc.
* ``scale``: Linear functions of one value by constants: scale and increment.
* ``trigonometry``: Circular and hyperbolic functions of each element, and their inverses.
* ``unary``: Exponentials, logarithms, roots, powers, absolute value, sign and erf of each element.
* ``where``: Choice by a condition: where.
* ``_broadcast``: Ops of several inputs that broadcast: alignment by Paddle's `axis`, and `infer`.
* ``_broadcast_grad``: Gradients of ops whose inputs broadcast: expressions over the aligned inputs, summed back to
  the shape of one of them.
* ``_functions``: Functions that the expression language gains from the ops: erf, atan2, fmax, fmin, powers of
  integers, safe tests.
* ``_mixed``: How operands of different dtypes, numbers and arrays meet in one dtype.
* ``_unary``: What the ops of one input share: their `infer` and the body of their public functions.
"""
