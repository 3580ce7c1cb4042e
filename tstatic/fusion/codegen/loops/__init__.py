"""Groups of ops as one loop nest.

* ``loop_nest``  where each value lies in the iteration space, and what is computed per element
* ``lines``  expressions as lines of Triton text
* ``rows``, ``row_blocks``  groups along rows, whole or in blocks of columns
* ``sums``  sums over strips of rows, in a fixed order
"""
