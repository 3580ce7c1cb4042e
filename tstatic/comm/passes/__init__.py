"""The passes of data parallelism, and the ops that they put into programs.

* ``distribution``  the settings, and the report
* ``data_parallel``  scaled losses, collectives, buckets, and updates divided among replicas
* ``buckets``, ``low_gradients``  which gradients travel together, and those that travel in 16 bits
* ``row_sums``  the sum of gradients of tables, as rows
* ``run_sums``  which sums over several runs a replica keeps to itself until they are complete
* ``sync_batch_norm``  batch norm over the samples of all replicas
* ``finite_gradients``  whose gradients are not finite, before they are summed
"""
