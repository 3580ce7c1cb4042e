"""``paddle.io``: data sets, samplers, and what makes batches of them.

* ``readers``  functions that decorate readers: batch, shuffle, buffered and others
* ``prefetch``  iterators that run ahead in threads
* ``feeder``  DataFeeder: lists of samples as feeds
* ``batch_sampler``  DistributedBatchSampler
* ``errors``  what they raise
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
