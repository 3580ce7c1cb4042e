"""Layers as classes, by the file names that Paddle's own imports use.

* ``layers``            ``Layer``, the base class
* ``_state``            names, hooks and values of layers
* ``container``         ``Sequential``, ``LayerList``, ``LayerDict``, ``ParameterList``
* ``functional_layer``  layers made from one function and its signature
* ``common``, ``conv``, ``pooling``, ``batch_norm``, ``norm``, ``activation``, ``loss``, ``attention``, ``transformer``
"""

from tstatic.nn.layer import activation, common, container, conv, loss, norm, pooling, transformer
from tstatic.nn.layer.layers import Layer

__all__ = ["Layer", "activation", "common", "container", "conv", "loss", "norm", "pooling", "transformer"]
