"""Matrix products with ops per element behind them.

* ``products``, ``layouts``  which ops are products, and where the elements of their matrices lie
* ``gemm``, ``gemm_tail``  the kernel, and what follows a tile of it
* ``gemm_tiles``  how products are cut into tiles on each chip
"""
