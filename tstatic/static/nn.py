"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="sequence_lod")
facade_module("static.nn.sequence_lod", "sequences of different lengths, among the other layers.", "static.nn")
