"""``nn.functional``: functions without parameters of their own."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__)
# Paddle has them in several modules, which scripts reach as F.loss or paddle.nn.functional.common.
facade_module("nn.functional.activation", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.common", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.conv", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.distance", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.extension", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.flash_attention", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.input", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.norm", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.pooling", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.sparse_attention", "some of the functions; here each module has all.", "nn.functional")
facade_module("nn.functional.vision", "some of the functions; here each module has all.", "nn.functional")
facade_module(
    "nn.functional.loss", "the losses, among the other functions.", "nn.functional",
    others={"tstatic.extras.structured.edit_distance": "edit_distance"},
)  # fmt: skip
