"""``fluid.layer_helper``: the helper that layers are written with."""

from tstatic.nn.param import LayerHelper

__all__ = ["LayerHelper"]
