"""``paddle.distribution``: probability distributions as ops of the program: samples, densities, entropies, divergences.

* ``base``         what all have in common, and divergences
* ``continuous``   normal, uniform, Laplace, Cauchy, beta, Dirichlet
* ``discrete``     Bernoulli, categorical, geometric, multinomial
* ``older``        the distributions of ``fluid.layers``
* ``transform``    invertible functions, chains of them, and distributions of what they make of draws
* ``transforms``   kinds of invertible functions
* ``transformed``  distributions made of others: log-normal, Gumbel, independent dimensions
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
