"""Linear algebra on matrices and batches of them, through LAPACK.

* ``decompose``: Decompositions: cholesky, qr, svd, eigh, lu, and what follows from them.
* ``solve``: Inverses, determinants, and linear systems.
* ``_batched``: Op definitions on the last two axes, with gradients that stand in numpy.
"""
