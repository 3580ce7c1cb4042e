"""Attentions, from what is found in a program to the kernels: read from top to bottom.

* ``search``, ``causal``  finds attentions, forward and backward, and masks that let a row see the columns up to its own
* ``dot_product_attention``, ``fused_attention``  the two fusions: of an attention alone, and with the layers around it
* ``parts``  which ops an attention has, its sizes, and ops per element on blocks of scores
* ``kernel``, ``grad``  the kernel, and those of its gradient
* ``module``, ``loops``, ``sums``, ``tiles``  what they share: launches, loops over blocks, sums over rows, sizes of blocks
* ``library``  an attention whose products the device's library makes
* ``block``  the kernel of an attention with the layers around it
"""
