"""Linear algebra on matrices and batches of them, through LAPACK.

* ``decompose``: Decompositions: cholesky, qr, svd, eigh, lu, and what follows from them.
* ``eig``: Eigenvalues and eigenvectors of matrices that need not be symmetric; both are complex.
* ``solve``: Inverses, determinants, and linear systems.
* ``_batched``: Op definitions on the last two axes, with gradients that stand in numpy.
"""
