"""``paddle.vision``: data sets of images, which are arrays ``[height, width, channels]``."""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="datasets")
facade_module("vision.datasets", "data sets of images.")
