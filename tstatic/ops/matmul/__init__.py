"""Matrix products and the functions composed of them.

* ``dot``: `dot`: inner products of vectors, and what is composed of matrix products.
* ``einsum``: `einsum`: an equation over labelled axes as transposes, sums and matrix products.
* ``linear``: Functions composed of matrix products: `linear`, `addmm`, `outer`, `inner`, `bilinear` and
  cosine similarities.
* ``matmul``: `matmul_v2` and its stricter forms `bmm` and `mv`.
* ``mul``: `mul`: the product of two values that are read as matrices, as `fc` uses it.
* ``_bilinear``: The gradient of the backward op of an op that is linear in each of two operands.
* ``_product``: Matrix products of any ranks as ready `np.matmul` calls, their gradients, and how both are cut into
  tiles.
"""
