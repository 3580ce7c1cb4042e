"""Tuned numpy functions on arrays, behind the op definitions of the heavy ops.

* ``conv``: convolution over two axes with groups, and both gradients; ``conv_pixels``, ``conv_rows``,
  ``conv_depthwise``, ``conv_bands``: its ways to arrange data; ``_windows``: which of them, and in which blocks
* ``pool``: maximum and average pooling, sliding or adaptive windows, places of maxima; ``pool_pairs``: windows of 2 x 2
* ``norm``: layer norm, batch norm; ``norm_rows``: batch norm with channels last
* ``softmax``: softmax, log-softmax, softmax with cross entropy; ``special``: erf, gelu
* ``recurrent``: LSTM, GRU and simple recurrence over all steps; ``recurrent_step``: one step of a GRU, and activations
* ``philox``, ``draw``: random numbers; ``normal``: normal ones, by arithmetic that gives the same bits everywhere
* ``_common``: types and helpers

Every array that is written is passed in. What a kernel needs besides stands in the ``*_scratch`` function next to it,
as ``(shape, dtype)`` pairs; nothing of the size of an operand is allocated inside as long as arrays are C-contiguous
(odd strides work and may copy). All kernels run in float32 and float64, take zero-size arrays, and give the same bits
for the same arguments: blocks depend on shapes only and are summed in order. Callers silence floating-point warnings.
"""
