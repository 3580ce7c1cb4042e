"""Losses as layers."""

from __future__ import annotations

from typing import Any

from tstatic.ir.checks import check_int, check_type
from tstatic.ir.export import export, facade
from tstatic.ir.program import Variable
from tstatic.nn.layer.functional_layer import functional_layer
from tstatic.nn.layer.layers import Layer
from tstatic.no_effect import no_effect
from tstatic.ops.loss.hierarchical_sigmoid import DENSE, hsigmoid_loss

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

# Losses of label sequences lie with what they call.
__getattr__, __dir__ = facade(__name__, "nn", only="CTCLoss RNNTLoss")


@export("nn.HSigmoidLoss", op="hierarchical_sigmoid")
class HSigmoidLoss(Layer):
    """Calls :func:`nn.functional.hsigmoid_loss` with a weight and a bias of its own.

    Args:
        feature_size: Number of features of the input.
        num_classes: Number of classes, at least 2; with a tree of one's own, of its inner nodes.
        weight_attr: ParamAttr, name or initializer of the weight ``[num_classes - 1, feature_size]``; Xavier by default.
        bias_attr: The same for the bias ``[num_classes - 1, 1]``; ``False`` for none.
        is_custom: Whether calls give the paths of a tree of one's own; weight and bias then have ``num_classes`` rows.
        is_sparse: Has no effect.
        name: Name of the loss.

    Example:
        >>> layer = paddle.nn.HSigmoidLoss(3, 2, weight_attr=paddle.nn.initializer.Constant(0.05))
        >>> loss = layer(paddle.to_tensor([[0.9, 0.9, 0.9]]), paddle.to_tensor([[1]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[loss])[0]
        array([[0.6279]], dtype=float32)
    """

    @no_effect(is_sparse=DENSE)
    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        function = "HSigmoidLoss"
        features = check_int(feature_size, "feature_size", function, 1)
        custom = check_type(is_custom, bool, "is_custom", function)
        self._num_classes = check_int(num_classes, "num_classes", function, 2)
        self._name = name
        nodes = num_classes if custom else num_classes - 1
        self.weight = self.create_parameter((nodes, features), weight_attr)
        self.bias = self.create_parameter((nodes, 1), bias_attr, is_bias=True)

    def forward(
        self, input: Variable, label: Variable, path_table: Variable | None = None, path_code: Variable | None = None
    ) -> Variable:
        """Returns the loss ``[batch, 1]`` of ``input`` ``[batch, feature_size]`` and ``label`` ``[batch, 1]``.

        Args:
            input, label: As of ``nn.functional.hsigmoid_loss``.
            path_table, path_code: ``[batch, longest path]``: the paths, with ``is_custom``.
        """
        return hsigmoid_loss(
            input, label, self._num_classes, self.weight, self.bias, path_table, path_code, name=self._name
        )
