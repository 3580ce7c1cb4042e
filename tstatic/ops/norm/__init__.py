"""Normalisation by statistics of rows, channels or groups.

* ``batch_norm``: Batch normalisation with running statistics, in training and in inference.
* ``group_norm``: Group normalisation: each sample's channels in groups; instance normalisation: each channel by itself.
* ``layer_norm``: Layer normalisation over the last axes.
* ``softmax``: `softmax` and `log_softmax` along any axis.
* ``_batch_norm_lower``: Batch normalisation in torch, with Paddle's running statistics.
* ``_norm_onnx``: Their forms in ONNX.
"""
