"""Kernels as text: what ops compute (``define``), a loop nest over it (``loop_nest``), and its Triton source (``emit``).

* ``kernel``  a generated kernel as data
* ``loop_nest``, ``define``  ops as one loop nest over expressions
* ``lines``, ``emit``, ``numerics``, ``prelude``  its text
* ``rows``, ``row_blocks``, ``sums``  kernels along rows, and sums in a fixed order
* ``batch_norm``, ``channel_sums``, ``per_channel``  batch norm
* ``gemm``, ``gemm_tail``, ``gemm_tiles``, ``products``  matrix products with what follows them
* ``composite``  kernels of several parts, one after the other
* ``attention``, ``attention_grad``, ``attention_module``, ``attention_parts``, ``attention_loops``, ``attention_tiles``,
  ``attention_sums``, ``layouts``  attention without scores in memory, the sums over rows of its gradients, where its matrices lie
* ``attention_library``  attention whose products the device's library makes
* ``depthwise``  depthwise convolution of relu
* ``segments``, ``update``, ``square_sum``, ``strip_sums``  many tensors in one launch
* ``script``, ``reference``, ``launched``  the part that runs alone, the numpy that it compares with, and which function runs where
"""
