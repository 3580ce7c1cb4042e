"""Running programs.

* ``executor``  compiles a program once per key, then replays its plan
* ``prepared_run``, ``run_future``  a run whose plan is there, and the results of one that does not wait for its device
* ``from_dataset``  runs over all batches of a data set of files
* ``compiled_program``, ``history``, ``max_batch``  a program with strategies, and its runs; the largest batch that fits in a memory
* ``data_parallel``  the replicas of a program on several places
* ``parallel_executor``  a data-parallel program and its Executor in one, as in Paddle 1.x
"""
