"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__)
# Paddle defines them in several modules, which scripts import from.
facade_module(
    "static.nn.common",
    "layers that make their parameters.",
    "static",
    "static.nn",
    only=(
        "ExponentialMovingAverage batch_norm bilinear_tensor_product continuous_value_model conv2d conv2d_transpose conv3d "
        "conv3d_transpose data_norm deform_conv2d deformable_conv embedding fc group_norm instance_norm layer_norm prelu "
        "py_func row_conv sparse_embedding spectral_norm"
    ),
)
facade_module(
    "static.nn.control_flow",
    "branches and loops.",
    "fluid.layers",
    "static",
    "static.nn",
    only="Assert Print Switch While case cond switch_case while_loop",
)
facade_module("static.nn.loss", "losses that make their parameters.", "static.nn", only="nce")
facade_module("static.nn.metric", "metrics as ops of the program.", "static", only="accuracy auc ctr_metric_bundle")
facade_module(
    "static.nn.sequence_lod",
    "sequences of different lengths.",
    "fluid.layers",
    "static.nn",
    only=(
        "sequence_concat sequence_conv sequence_enumerate sequence_expand sequence_expand_as sequence_first_step "
        "sequence_last_step sequence_mask sequence_pad sequence_pool sequence_reshape sequence_reverse sequence_scatter "
        "sequence_slice sequence_softmax sequence_unpad"
    ),
)
