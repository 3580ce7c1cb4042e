"""Implements the CPU as a device: op definitions' references on numpy arrays, divided among threads.

* ``device``: the device record, and how a step becomes calls.
* ``pool``: worker threads that divide the tiles of a step among them.
* ``tile_chain``: chains steps that are cut into matching tiles.
* ``buffer``: the host's memory.
* ``blas``: holds BLAS to one thread.
* ``copy_speed``: how fast the machine's memory is.
"""
