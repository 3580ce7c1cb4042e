"""Random numbers and dropout.

* ``distributions``: Normal, truncated normal and uniform random numbers.
* ``dropout``: Dropout of elements and of whole slices: zeroed at random in training, and scaled there or in inference.
* ``dropout_when_run``: Dropout whose chance is a Variable.
* ``drawn_like``: Random numbers shaped like a value: Paddle's in-place draws, and Poisson counts.
* ``gamma``: Draws of gamma distributions, which beta and Dirichlet distributions are made of.
* ``integers``: Random whole numbers and permutations.
* ``sampling``: Draws from given probabilities: coin flips and categories.
* ``_random``: What the op definitions of random ops share: checks, tiles, and test shapes.
"""
