"""Kernels as text: what ops compute (``define``), a loop nest over it (``loops``), and its Triton source (``text``).

* ``kernel``  a generated kernel as data
* ``define``  what an op computes, as expressions
* ``numerics``  what strict numerics ask of kernels
* ``loops``  groups of ops as loop nests, along rows too
* ``matrix``  matrix products with what follows them
* ``channels``  batch norm, and depthwise convolution of relu
* ``update``  many tensors in one launch
* ``text``  the text of a module, and the part of it that runs alone
"""
