"""``static.nn``: layers that make their parameters, and control flow."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
