"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__)
# Paddle has them in several modules, which scripts import from.
facade_module("static.nn.common", "layers; here each module has all of them.", "static.nn")
facade_module("static.nn.control_flow", "branches and loops, among the other layers.", "static.nn")
facade_module("static.nn.loss", "losses, among the other layers.", "static.nn")
facade_module("static.nn.sequence_lod", "sequences of different lengths, among the other layers.", "static.nn")
