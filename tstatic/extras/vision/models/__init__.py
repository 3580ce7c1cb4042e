"""``paddle.vision.models``: networks whose layers and parameters have Paddle's names and shapes.

* ``classic``     LeNet, AlexNet, VGG
* ``densenet``    DenseNet
* ``inception``   GoogLeNet, InceptionV3
* ``mobilenet``   MobileNetV1, MobileNetV2, MobileNetV3
* ``resnet``      ResNet, and its wide and grouped forms
* ``shufflenet``  ShuffleNetV2
* ``squeezenet``  SqueezeNet
* ``_blocks``     what they share
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
