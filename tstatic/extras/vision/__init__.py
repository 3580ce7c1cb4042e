"""``paddle.vision``: data sets of images in local files, networks for images, transforms, and operators on boxes.

* ``models``      networks with Paddle's structure and names
* ``transforms``  functions and classes that change images, which are arrays ``[height, width, channels]``
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="datasets models ops transforms")
facade_module("vision.datasets", "data sets of images.")
facade_module("vision.ops", "boxes of objects, regions of images, and deformable convolution.")
