"""The benchmark: ops, fusions and small programs, measured beside their peers (docs/benchmarks.md).

* ``rows``, ``shapes``, ``fusions``  what a row is: made from op definitions, from files of sizes, from patterns of fusions
* ``cases``  the program of a row, its work, its results in float64, and the tolerance rule
* ``programs``  the row of a user's own program
* ``blocks``  sizes of blocks in place of those that kernels choose
* ``peers``, ``own``  who is measured; others register by a decorator, or stand in a user's file
* ``timers``, ``measure``  how calls are timed on a device, and peers in turns
* ``statistics``  when two peers differ
* ``suite``  chooses rows, checks results, times what is right
* ``results``, ``compare``  the file of a result, and the comparison of two
* ``table``, ``plots``, ``report``  a result as text, CSV and a page
* ``gpu_memory``  the memory report of a program beside what a GPU's allocator and driver say
* ``machine``  what a result belongs to
"""
