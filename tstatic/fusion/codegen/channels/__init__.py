"""Kernels over data with channels.

* ``batch_norm``, ``channel_sums``  batch norm, and sums of a channel in two stages
* ``depthwise``  depthwise convolution of relu
* ``per_channel``  what they share: where a channel's values lie, and tiles of them
"""
