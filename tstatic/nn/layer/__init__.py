"""Layers as classes, by the file names that Paddle's own imports use.

* ``layers``            ``Layer``, the base class
* ``container``         ``Sequential``, ``LayerList``, ``LayerDict``, ``ParameterList``
* ``functional_layer``  layers made from one function and its signature
* ``common``, ``conv``, ``pooling``, ``norm``, ``activation``, ``loss``, ``rnn``, ``rnn_cells``,
  ``transformer``
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(
    __name__,
    modules="activation common container conv loss norm pooling rnn rnn_cells structured transformer vision",
    others={"tstatic.nn.layer.layers": "Layer"},
)
facade_module("nn.layer.distance", "layers that compare vectors, among the others.", "nn")
