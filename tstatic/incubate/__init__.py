"""``paddle.incubate``: averages of parameters, LookAhead and LARS, beside Paddle's stable API."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="optimizer")
facade_module("incubate.optimizer", "the update rules and averages of ``incubate``.")
