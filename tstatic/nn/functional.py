"""``nn.functional``: functions without parameters of their own."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__)
# Paddle has them in several modules, which scripts reach as F.loss or paddle.nn.functional.common.
for _name in (
    "activation", "common", "conv", "distance", "extension", "flash_attention", "input", "norm", "pooling",
    "sparse_attention", "vision",
):  # fmt: skip
    facade_module(f"nn.functional.{_name}", "some of the functions; here each module has all.", "nn.functional")
facade_module(
    "nn.functional.loss", "the losses, among the other functions.", "nn.functional",
    others={"tstatic.extras.structured.edit_distance": "edit_distance"},
)  # fmt: skip
