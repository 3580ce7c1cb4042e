"""``paddle.vision``: data sets of images, networks for images, and transforms of images on the host.

* ``datasets``    data sets in local files; images are arrays ``[height, width, channels]``
* ``models``      networks with Paddle's structure and names
* ``transforms``  functions and classes that change such images
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(__name__, modules="datasets models transforms")
facade_module("vision.datasets", "data sets of images.")
