"""Layers, functions on Variables, initializers, clipping.

* ``layer``          layer classes: ``Linear``, ``Conv2D``, ``Transformer``, ...
* ``functional``     functions without parameters of their own
* ``static_linear``, ``static_conv``, ``static_norm``   layers as functions: ``static.nn`` and ``fluid.layers``
* ``nets``           ``fluid.nets``
* ``initializer``    how parameters get their first value
* ``param``          ``ParamAttr``, and how layers make parameters
* ``clip``           gradient clipping
* ``regularizer``    weight decay
* ``utils``          parameters as a vector

Class names are spelled beside the classes (``nn.Linear``) and collected here.
"""

from tstatic.ir.opdef import namespace as _namespace
from tstatic.nn import (
    clip,
    functional,
    initializer,
    layer,
    nets,
    param,
    regularizer,
    static_conv,
    static_linear,
    static_norm,
    utils,
)
from tstatic.nn.layer import loss
from tstatic.nn.param import ParamAttr
from tstatic.unsupported import missing_in as _missing_in

globals().update(_namespace("nn"))

__all__ = [
    "ParamAttr",
    "clip",
    "functional",
    "initializer",
    "layer",
    "loss",
    "nets",
    "param",
    "regularizer",
    "static_conv",
    "static_linear",
    "static_norm",
    "utils",
    *sorted(_namespace("nn")),
]
__getattr__ = _missing_in(__name__, __all__)
