"""``paddle.incubate``: averages of parameters, LookAhead and LARS, beside Paddle's stable API."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="nn optimizer")
facade_module("incubate.optimizer", "the update rules and averages of ``incubate``.")
facade_module("incubate.nn", "blocks of networks.", modules="functional")
facade_module("incubate.nn.functional", "blocks of networks as functions.")
