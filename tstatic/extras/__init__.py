"""Breadth of Paddle's interface that few programs call; nothing outside needs it.

* ``vision``        networks for images, transforms, and data sets
* ``distribution``  probability distributions
* ``dataset``       well-known data sets, from local files
* ``detection``     boxes of objects and regions of images, with their layers and evaluators
* ``sequence``      operators and layers on sequences of different lengths (LoD)
* ``ranking``       losses over very many classes, and statistics of clicks
* ``structured``    losses and decoders of label sequences, with their layers and evaluators
* ``spectral``      Fourier transforms
* ``graph``         rows pooled by segment, and messages along edges
"""
