"""``paddle.io``: data sets, samplers, and what makes batches of them.

* ``readers``  functions that decorate readers: batch, shuffle, buffered and others
* ``prefetch``  iterators that run ahead in threads
* ``feeder``  DataFeeder: lists of samples as feeds
* ``lod_tensor``  tensors of sequences made from lengths
* ``dataset``, ``sampler``  samples by number or one after another, and in which order they are taken
* ``data_loader``, ``collate``, ``workers``  DataLoader: how batches are made of samples, and the processes that do it
* ``messages``, ``watch``  what loader and workers tell each other, and how the end of a worker is noticed
* ``arguments``  checks of what loaders and samplers are passed
* ``shared``, ``recycled``  the memory of batches: shared with workers, or used again in this process
* ``generator_loader``  DataLoader.from_generator and PyReader: batches from a reader, also without a feed
* ``program_reader``  py_reader and read_file of Paddle 1.x
* ``file_dataset``, ``lines``, ``multislot``  InMemoryDataset and QueueDataset, the lines that they read, and their text
* ``global_shuffle``  samples of all processes in one random order
* ``data_generator``  programs that print such text
* ``batch_sampler``  DistributedBatchSampler
* ``callbacks``  training loops with callbacks: progress, CSV, TensorBoard
* ``errors``  what they raise
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
