"""Losses and metrics.

* ``binary_loss``: Losses on two classes: `sigmoid_cross_entropy_with_logits`, `bce_loss`, `log_loss`,
  `hinge_loss`.
* ``classification_loss``: `cross_entropy` of scores, with class weights, ignored labels and smoothing.
* ``cross_entropy``: The 1.x losses on probabilities, `cross_entropy` and `cross_entropy2`.
* ``label_smooth``: `label_smooth`: moves a share of each label to a prior distribution.
* ``metric``: Accuracy, and the area under the ROC or precision-recall curve.
* ``nll_loss``: `nll_loss`: minus the log-probability of each label's class, weighted by class.
* ``ranking_loss``: Losses on the order of scores: `rank_loss`, `margin_rank_loss`, and functions composed of
  other ops.
* ``regression_loss``: Losses on distances: `huber_loss`, `kldiv_loss`, and functions composed of other ops
  (squares, magnitudes, overlap).
* ``softmax_with_cross_entropy``: `softmax_with_cross_entropy`: softmax and its cross entropy in one op.
* ``_labels``: What the losses on class numbers share: checks of labels, and the negative logarithm of picked
  probabilities.
"""
