"""Layers, functions on Variables, initializers, clipping.

* ``layer``          layer classes: ``Linear``, ``Conv2D``, ``Transformer``, ...
* ``functional``     functions without parameters of their own
* ``static_linear``, ``static_conv``, ``static_norm``, ``static_recurrent``, ``static_cells``  as functions: ``static.nn`` and
  ``fluid.layers``
* ``depth``          how many layers one argument may ask for
* ``decode``         ``dynamic_decode``, ``BeamSearchDecoder`` and others
* ``nets``           ``fluid.nets``
* ``fused_functions``  ``incubate.nn.functional``
* ``initializer``    how parameters get their first value
* ``param``          ``ParamAttr``, and how layers make parameters
* ``clip``           gradient clipping
* ``regularizer``    weight decay
* ``model_summary``, ``summary``  ``summary`` and ``flops`` of a network
* ``sparse_embedding``  a table whose gradients are rows
* ``parameter_vector``  parameters as a vector
* ``weight_hooks``   weights that each call computes: ``weight_norm``, ``spectral_norm``
* ``utils``          the two above: ``nn.utils``

Class names are spelled beside the classes (``nn.Linear``) and collected here.
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules="clip functional initializer layer nets param regularizer static_conv static_linear static_norm "
    "static_recurrent static_cells static_sequence static_structured static_sampled static_loss utils decode",
    others={"tstatic.nn.layer": "loss", "tstatic.nn.param": "ParamAttr"},
)
