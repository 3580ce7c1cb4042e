"""``paddle.tensor``: the tensor functions, which are also names of the package itself."""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
