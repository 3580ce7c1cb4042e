"""``paddle.inference``: predictors over saved models."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
