"""Running plans.

* ``session``, ``queues``, ``sub_block``, ``generated``  a plan bound to memory: its steps, streams, bodies of
  control flow and kernels
* ``scope``, ``flat``, ``assign``  where persistable variables live, as views of flat buffers, and how they are
  written
* ``feed``, ``shards``  what the user feeds, and what each replica gets of it
* ``replica_threads``  one thread per replica
* ``random``, ``learning_rate``  seeds, and a scheduler's rate
* ``checkpoint``, ``header``, ``manifest``, ``stamp``, ``files``  saved values
* ``interrupt``  signals wait while state is written
"""
