"""Communication between replicas and between processes, and the passes that make a program data parallel.

* ``group``, ``processes``  collectives between the replicas of one process, and between processes
* ``launch``, ``rendezvous``  who this process is, and how processes find each other
* ``mesh``, ``liveness``, ``exits``  connections to all ranks, which rank failed first, and how a rank ends
* ``hierarchy``  hierarchical sums
* ``gloo``  the transport
* ``collectives``  collectives as op definitions
* ``distribution``  how a program is spread over replicas
* ``data_parallel``, ``sync_batch_norm``  the passes that do it
* ``feed_watch``  warns when all processes are fed the same
"""
