"""Fusions, one file each; ``FUSIONS`` is their order.

* ``engine``, ``pattern``, ``view``, ``reasons``  find matches, check and replace them, and explain rejections
* ``gemm_epilogue``  matrix products with what follows them
* ``bn_act``, ``bn_add_act``, ``elewise_add_act``, ``relu_depthwise_conv``  fusions with patterns
* ``linear_cross_entropy``, ``row_groups``, ``row_chunks``, ``live_bytes``  a linear layer and its loss in chunks of rows
* ``embedding_grad_add``  gradients of lookups in the place of other gradients of the table
* ``fused_attention``, ``attention_block``, ``feedforward``, ``product_blocks``  whole blocks with matrix products
* ``dot_product_attention``, ``attention_search``, ``causal``, ``moves``  attentions: search, masks, what moves their
  operands
* ``auto``, ``compiler``  groups of any ops that state expressions
* ``multi_tensor``, ``gradient_norm``  the updates of many parameters
* ``in_turn``  kernels of several parts, one after the other
* ``finish_together``  partial sums of many kernels in one launch
* ``explicit_groups``, ``single_op``  groups that the user names, and single ops
* ``user_kernel``, ``register``, ``registration``  the user's own kernels, and their registration as text
* ``identity_gradients``, ``shape_readers``, ``recompute``, ``redrawn``  rewrites that let more patterns match
* ``choice``  which of its ways of launching a kernel takes on a chip
* ``codegen``  the text of kernels
* ``cache``  kernels as files
* ``chain``, ``nearest``  what fusions without patterns look for, and why one that is on made nothing

A new fusion is a file with a ``FUSION`` record, an import here and its place in the tuple.
"""

from __future__ import annotations

from tstatic.fusion import (
    auto,
    bn_act,
    bn_add_act,
    compiler,
    dot_product_attention,
    elewise_add_act,
    embedding_grad_add,
    feedforward,
    fused_attention,
    gemm_epilogue,
    gradient_norm,
    linear_cross_entropy,
    multi_tensor,
    relu_depthwise_conv,
)

FUSIONS = (
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
    multi_tensor.ADAMW,
    multi_tensor.ALL,
)
"""In the order in which they are applied: the fusions of particular operators come before the general compiler."""

__all__ = ["FUSIONS"]
