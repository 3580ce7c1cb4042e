"""Fusions, one file each; ``FUSIONS`` is their order.

* ``gemm_epilogue``, ``feedforward``  matrix products with what follows them, and blocks with two of them
* ``bn_act``, ``bn_add_act``, ``elewise_add_act``, ``relu_depthwise_conv``  fusions with patterns
* ``linear_cross_entropy``, ``row_groups``, ``row_chunks``  a linear layer and its loss in chunks of rows
* ``embedding_grad_add``  gradients of lookups in the place of other gradients of the table
* ``auto``, ``compiler``  groups of any ops that state expressions
* ``multi_tensor``, ``gradient_norm``  the updates of many parameters
* ``in_turn``  kernels of several parts, one after the other
* ``single_op``  kernels of ops that no fusion took

Those of attentions are in ``tstatic/fusion/attention``. A new fusion is a file with a ``FUSION`` record, an import here and its
place in the tuple.
"""

from __future__ import annotations

from tstatic.fusion.attention import dot_product_attention, fused_attention
from tstatic.fusion.patterns import (
    auto,
    bn_act,
    bn_add_act,
    compiler,
    elewise_add_act,
    embedding_grad_add,
    feedforward,
    gemm_epilogue,
    gradient_norm,
    linear_cross_entropy,
    multi_tensor,
    relu_depthwise_conv,
)

FUSIONS = (
    # Whole blocks first: an attention holds a dot-product attention, and both hold products with what is added to them.
    fused_attention.FUSION,
    feedforward.FUSION,
    dot_product_attention.FUSION,
    linear_cross_entropy.FUSION,
    embedding_grad_add.FUSION,
    gemm_epilogue.FUSION,
    relu_depthwise_conv.FUSION,
    bn_act.FUSION,
    bn_add_act.FUSION,
    elewise_add_act.FUSION,
    gradient_norm.ADAMW,
    gradient_norm.ALL,
    compiler.FUSION,
    auto.FUSION,
    # First AdamW, which has a switch of its own; the other switch takes what is left.
    multi_tensor.ADAMW,
    multi_tensor.ALL,
)
"""In the order in which they are applied: the fusions of particular operators come before the general compiler."""

__all__ = ["FUSIONS"]
