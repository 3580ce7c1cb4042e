"""Losses as layers."""

from __future__ import annotations

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
