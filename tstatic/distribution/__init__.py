"""``paddle.distribution``: probability distributions as ops of the program: samples, densities, entropies, divergences.

* ``base``         what all have in common
* ``continuous``   normal, uniform, Laplace, Cauchy, beta, Dirichlet
* ``discrete``     Bernoulli, categorical, geometric, multinomial
* ``transform``    invertible functions with the volume that they stretch
* ``transformed``  distributions made of others: transformed ones, log-normal, Gumbel, independent dimensions
* ``kl``           Kullback-Leibler divergences
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
