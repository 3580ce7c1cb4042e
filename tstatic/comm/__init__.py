"""Exchanges values between replicas and processes, and makes programs data parallel by passes.

* ``group``  collectives between the replicas of one process, which go on between processes
* ``transport``  what moves the arrays of devices, its members, and which of them is chosen
* ``processes``  exchanges of the host's arrays between processes
* ``rendezvous``  how processes find each other, and who may take a rank
* ``liveness``  which rank failed first, and how a rank ends
* ``collectives``  collectives as op definitions, for the passes of data parallelism
* ``process_ops``, ``process_collectives``  the collectives of ``paddle.distributed``: op definitions, and their functions
* ``fluid_collectives``  the collectives of ``fluid.layers.collective``
* ``passes``  programs made data parallel: buckets, rows of tables, synchronised batch norm
"""
