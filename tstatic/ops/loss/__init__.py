"""Losses and metrics.

* ``binary_loss``: Losses on two classes: `sigmoid_cross_entropy_with_logits`, `bce_loss`, `log_loss`,
  `hinge_loss`.
* ``classification_loss``: Losses on class numbers: `cross_entropy` of scores, `nll_loss`, and `label_smooth`.
* ``cross_entropy``: The 1.x losses on probabilities, `cross_entropy` and `cross_entropy2`.
* ``metric``: Accuracy, and the area under the ROC or precision-recall curve.
* ``regression_loss``: Losses on distances and on the order of scores: `huber_loss`, `kldiv_loss`, `rank_loss`,
  `margin_rank_loss`, and compositions.
* ``softmax_with_cross_entropy``: `softmax_with_cross_entropy`: softmax and its cross entropy in one op.
* ``_loss_onnx``: Their forms in ONNX.
"""
