"""``paddle.vision.models``: networks whose layers and parameters have Paddle's names and shapes.

* ``classic``     LeNet, AlexNet, VGG
* ``mobilenet``   MobileNetV1, MobileNetV2
* ``resnet``      ResNet, and its wide and grouped forms
* ``squeezenet``  SqueezeNet
* ``_blocks``     what they share
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
