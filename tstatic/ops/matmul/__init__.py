"""Matrix products and the functions composed of them.

* ``einsum``: `einsum`: an equation over labelled axes as transposes, sums and matrix products.
* ``linear``: Functions composed of matrix products: `linear`, `addmm`, `outer`, `inner`, `bilinear` and
  cosine similarities.
* ``matmul``: Matrix products: matmul_v2 and its stricter forms bmm and mv, mul and dot, and functions of them.
* ``products``: Products beyond that of matrices: kron, cross, tensordot, and distances of all pairs.
* ``_product``: Matrix products of any ranks as ready `np.matmul` calls, their gradients, and how both are cut into
  tiles.
* ``_matmul_onnx``: Their forms in ONNX.
"""
