"""Random numbers and dropout.

* ``dropout``: Dropout: elements are zeroed at random in training, and either scaled up there or scaled down in
  inference.
* ``dropout_nd``: Dropout of whole slices: elements along the other axes share one draw.
* ``gaussian``: Normal and truncated normal random numbers.
* ``integers``: Random whole numbers and permutations.
* ``sampling``: Draws from given probabilities: coin flips and categories.
* ``uniform``: Uniform random numbers.
* ``_dropout``: What `dropout` and `dropout_nd` share: attributes, scaling, masks and the gradient.
* ``_random``: What the op definitions of random ops share: checks, tiles, and test shapes.
"""
