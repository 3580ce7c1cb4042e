"""Matrix products.

* ``matmul``: Matrix products: matmul_v2 and its stricter forms bmm and mv, mul and dot, and functions of them.
* ``_product``: Matrix products of any ranks as ready `np.matmul` calls, their gradients, and how both are cut into
  tiles.
* ``_matmul_onnx``: Their forms in ONNX.
"""
