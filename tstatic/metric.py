"""``paddle.metric``: accuracy and area under the curve as ops of the program."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
