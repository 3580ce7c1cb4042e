"""``fluid.layers.learning_rate_scheduler``: learning rates computed by ops of the program."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
