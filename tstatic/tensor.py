"""``paddle.tensor``: the tensor functions, which are also names of the package itself."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__)
# Paddle has them in several modules, which scripts import from.
for _name in (
    "array",
    "attribute",
    "creation",
    "linalg",
    "logic",
    "manipulation",
    "math",
    "ops",
    "random",
    "search",
    "stat",
):
    facade_module(f"tensor.{_name}", "some of the tensor functions; here each module has all.", "tensor", "linalg")
