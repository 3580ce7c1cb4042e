"""Normalisation by statistics of rows, channels or groups.

* ``attention``: Attention from queries, keys and values.
* ``batch_norm``: Batch normalisation with running statistics, in training and in inference.
* ``group_norm``: Group normalisation: each sample's channels in groups; instance normalisation: each channel by itself.
* ``layer_norm``: Layer normalisation over the last axes.
* ``lrn``: Local response normalisation across channels.
* ``softmax``: `softmax` and `log_softmax` along any axis.
* ``_batch_norm_lower``: Batch normalisation in torch, with Paddle's running statistics.
* ``_norm``: What the normalisation op definitions share: views of the data, and checks of parameters.
* ``_norm_onnx``: Their forms in ONNX.
"""
