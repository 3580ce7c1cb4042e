"""``paddle.distributed``: the processes that a launcher started, what they exchange, and ``fleet``, which trains with them.

* ``environment``  this process among the others; exchanges of numpy arrays beside programs
* ``objects``  exchanges of Python objects
* ``spawning``  spawn: processes that run a function
* ``launching``  what processes are told when they start
* ``departures``  tells ranks which of them ended before they met
* ``launch``  ``python -m tstatic.distributed.launch``: processes that run a script
* ``fleet``  distributed training as Paddle spells it
* ``io``  saving persistable variables

The collectives that are ops of a program are in ``tstatic/comm/process_collectives.py``.
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules="fleet io launch",
    others={
        "tstatic.comm.process_ops": "ReduceOp",
        "tstatic.distributed.environment": (
            "ParallelEnv, destroy_process_group, get_backend, get_rank, get_world_size, init_parallel_env, "
            "is_available, is_initialized, local, mean"
        ),
        "tstatic.distributed.objects": (
            "all_gather_object, broadcast_object_list, gloo_barrier, gloo_init_parallel_env, gloo_release, scatter_object_list"
        ),
        "tstatic.distributed.spawning": "spawn",
    },
)
