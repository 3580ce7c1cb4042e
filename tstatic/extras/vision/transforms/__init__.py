"""``paddle.vision.transforms``: changes of images, which are arrays ``[height, width, channels]`` or ``[height, width]``.

* ``functions``        what is done to one image
* ``random_geometry``  classes that move or erase random pixels
* ``transforms``       classes that keep settings and draw random ones, for data sets
* ``warping``          rotations, affine maps and perspective of one image
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
