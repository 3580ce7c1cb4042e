"""Exchanges values between replicas and processes, and makes programs data parallel by passes.

* ``group``  collectives between the replicas of one process, which go on between processes
* ``transport``  the interface of what moves the arrays of devices
* ``host_transport``, ``gloo_transport``  its members: between the places of a process, and through the host between processes
* ``nccl_transport``, ``nccl_proof``, ``nccl``  members by NVIDIA's NCCL, what its communicators prove first, and its binding
* ``choice``  which of them moves values, and why
* ``ordered_sum``  sums from the first array to the last
* ``processes``  exchanges of the host's arrays between processes
* ``launch``, ``rendezvous``, ``joining``  this process's rank, and how processes find each other
* ``admission``, ``door``, ``links``  which process may take a rank, a running job's port, and messages before that
* ``mesh``, ``liveness``, ``exits``  connections to all ranks, which rank failed first, and how a rank ends
* ``hierarchy``  hierarchical sums
* ``gloo``  gloo of torch, whose calls can be given up
* ``collectives``  collectives as op definitions, for the passes of data parallelism
* ``row_sums``  the sum of gradients of tables, as rows
* ``process_ops``, ``process_collectives``  the collectives of ``paddle.distributed``: op definitions, and their functions
* ``fluid_collectives``  the collectives of ``fluid.layers.collective``
* ``distribution``  the settings and the report of data parallelism
* ``buckets``, ``low_gradients``  which gradients travel together, and those that travel in 16 bits
* ``run_sums``  which sums over several runs a replica keeps to itself until they are complete
* ``data_parallel``, ``sync_batch_norm``  the passes and ops of data parallelism
* ``finite_gradients``  whose gradients are not finite, before they are summed
* ``feed_watch``  warns when processes are fed the same data
"""
