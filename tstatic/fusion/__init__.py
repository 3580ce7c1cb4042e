"""Fusions, one file each; this tuple is their order.

* ``engine``, ``pattern``, ``view``, ``reasons``  finds matches, checks them, replaces them, and says why not
* ``bn_act``, ``bn_add_act``, ``elewise_add_act``, ``relu_depthwise_conv``  fusions with patterns
* ``auto``, ``compiler``  groups of any ops that state expressions
* ``multi_tensor``, ``gradient_norm``  the updates of many parameters
* ``explicit_groups``, ``alone``  groups that the user names, and single ops
* ``user_kernel``, ``register``  the user's own kernels
* ``identity_gradients``, ``shape_readers``  rewrites that let more match
* ``codegen``  the text of kernels
* ``cache``  kernels as files

A new one is a file with a ``FUSION`` record, an import here and its place in the tuple.
"""

from __future__ import annotations

from tstatic.fusion import (
    auto,
    bn_act,
    bn_add_act,
    compiler,
    elewise_add_act,
    gradient_norm,
    multi_tensor,
    relu_depthwise_conv,
)

FUSIONS = (
    relu_depthwise_conv.FUSION,
    bn_act.FUSION,
    bn_add_act.FUSION,
    compiler.FUSION,
    auto.FUSION,
    gradient_norm.ADAMW,
    multi_tensor.ADAMW,
    elewise_add_act.FUSION,
    gradient_norm.ALL,
    multi_tensor.ALL,
)
"""In the order in which they are applied: what knows most about its operators comes before the general compiler."""

__all__ = ["FUSIONS"]
