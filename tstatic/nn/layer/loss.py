"""Losses as layers."""

from __future__ import annotations

from tstatic.ir.export import facade
from tstatic.nn.layer.functional_layer import functional_layer

CrossEntropyLoss = functional_layer("CrossEntropyLoss", "cross_entropy", inputs=2)
NLLLoss = functional_layer("NLLLoss", "nll_loss", inputs=2)
BCELoss = functional_layer("BCELoss", "binary_cross_entropy", inputs=2)
BCEWithLogitsLoss = functional_layer("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", inputs=2)
MSELoss = functional_layer("MSELoss", "mse_loss", inputs=2)
L1Loss = functional_layer("L1Loss", "l1_loss", inputs=2)
SmoothL1Loss = functional_layer("SmoothL1Loss", "smooth_l1_loss", inputs=2)
KLDivLoss = functional_layer("KLDivLoss", "kl_div", inputs=2)
MarginRankingLoss = functional_layer("MarginRankingLoss", "margin_ranking_loss", inputs=3)
TripletMarginLoss = functional_layer("TripletMarginLoss", "triplet_margin_loss", inputs=3)
TripletMarginWithDistanceLoss = functional_layer(
    "TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss", inputs=3
)
CosineEmbeddingLoss = functional_layer("CosineEmbeddingLoss", "cosine_embedding_loss", inputs=3)
HingeEmbeddingLoss = functional_layer("HingeEmbeddingLoss", "hinge_embedding_loss", inputs=2)
SoftMarginLoss = functional_layer("SoftMarginLoss", "soft_margin_loss", inputs=2)
MultiLabelSoftMarginLoss = functional_layer("MultiLabelSoftMarginLoss", "multi_label_soft_margin_loss", inputs=2)
MultiMarginLoss = functional_layer("MultiMarginLoss", "multi_margin_loss", inputs=2)
PoissonNLLLoss = functional_layer("PoissonNLLLoss", "poisson_nll_loss", inputs=2)
GaussianNLLLoss = functional_layer("GaussianNLLLoss", "gaussian_nll_loss", inputs=3)

# Losses of label sequences and of trees of classes lie with what they call.
__getattr__, __dir__ = facade(__name__, "nn", only="CTCLoss HSigmoidLoss RNNTLoss")
