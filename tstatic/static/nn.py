"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="common control_flow loss sequence_lod")
# Paddle has them in several modules, which scripts import from.
for _name in ("common", "control_flow", "loss", "sequence_lod"):
    facade_module(f"static.nn.{_name}", "some of the layers; here each module has all.", "static.nn")
