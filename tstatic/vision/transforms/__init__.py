"""``paddle.vision.transforms``: changes of images, which are arrays ``[height, width, channels]`` or ``[height, width]``.

* ``functions``   what is done to one image
* ``transforms``  classes that keep settings and draw random ones, for data sets
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
